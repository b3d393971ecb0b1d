package templates

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Rule is an assertion about parameters, which CloudFormation checks before it makes anything.
type Rule struct {
	RuleCondition any
	Assertions    []struct {
		Assert            any
		AssertDescription string
	}
}

// check evaluates the rules of the template. Those that do not hold are errors with their own words.
func (d *deployment) check() {
	for _, name := range slices.Sorted(maps.Keys(d.template.Rules)) {
		r := d.template.Rules[name]
		if r.RuleCondition != nil && !d.holds(name, r.RuleCondition) {
			continue
		}
		for _, a := range r.Assertions {
			if !d.holds(name, a.Assert) {
				d.errs = append(d.errs, fmt.Errorf("rule %s: %s", name, a.AssertDescription))
			}
		}
	}
}

// holds decides a rule function. Rules know fewer functions than the rest of a template: comparisons, and Ref of a
// parameter (CloudFormation user guide, "Rule functions").
func (d *deployment) holds(rule string, v any) bool {
	m, ok := v.(map[string]any)
	if !ok || len(m) != 1 {
		d.fail("rule "+rule, "%v is not a rule function", v)
		return false
	}
	for name, arg := range m {
		list, _ := arg.([]any)
		switch {
		case name == "Fn::Not" && len(list) == 1:
			return !d.holds(rule, list[0])
		case name == "Fn::And" && len(list) >= 2 && len(list) <= 10:
			return !slices.ContainsFunc(list, func(e any) bool { return !d.holds(rule, e) })
		case name == "Fn::Or" && len(list) >= 2 && len(list) <= 10:
			return slices.ContainsFunc(list, func(e any) bool { return d.holds(rule, e) })
		case name == "Fn::Equals" && len(list) == 2:
			return text(d.operand(rule, list[0])) == text(d.operand(rule, list[1]))
		case name == "Fn::Contains" && len(list) == 2:
			return slices.Contains(Texts(d.operand(rule, list[0])), text(d.operand(rule, list[1])))
		case name == "Fn::EachMemberEquals" && len(list) == 2:
			want := text(d.operand(rule, list[1]))
			return !slices.ContainsFunc(Texts(d.operand(rule, list[0])), func(e string) bool { return e != want })
		}
		d.fail("rule "+rule, "the function %s with %v is not one of rules", name, arg)
	}
	return false
}

func (d *deployment) operand(rule string, v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	name := text(m["Ref"])
	if _, ok := d.template.Parameters[name]; !ok || len(m) != 1 {
		return d.fail("rule "+rule, "%v is not a parameter", v)
	}
	return d.ref("rule "+rule, name)
}

// Allows finds the parameters that CloudFormation would refuse by themselves. Deploy does not ask: a test's addresses are
// those of its own servers. Each member of a list must be allowed (CloudFormation user guide, "Parameters"). A pattern with
// a look-ahead, which Go's regexp does not know, is not compared.
func (t *Template) Allows(parameters map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t.Parameters)) {
		value, given := parameters[name]
		if p := t.Parameters[name]; !given && p.Default == nil {
			errs = append(errs, fmt.Errorf("parameter %s has no value", name))
		} else if given && !p.takes(value) {
			errs = append(errs, fmt.Errorf("parameter %s: %q is not allowed: it %s", name, value, p.ConstraintDescription))
		}
	}
	return errors.Join(errs...)
}

func (p Parameter) takes(value string) bool {
	members := []string{value}
	if p.Type == "CommaDelimitedList" {
		members = strings.Split(value, ",")
	}
	pattern, err := regexp.Compile(p.AllowedPattern)
	return !slices.ContainsFunc(members, func(member string) bool {
		n, notNumber := strconv.ParseFloat(member, 64)
		return err == nil && !pattern.MatchString(member) ||
			p.Type == "Number" && (notNumber != nil || p.MinValue != nil && n < *p.MinValue || p.MaxValue != nil && n > *p.MaxValue) ||
			len(p.AllowedValues) > 0 && !slices.ContainsFunc(p.AllowedValues, func(v any) bool { return text(v) == member })
	})
}
