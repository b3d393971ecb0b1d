// Package templates reads templates as CloudFormation does, after the transform of AWS SAM: their conditions are
// decided and their functions evaluated. So a test can ask what a function is given, what a
// role may do, and whether what is deployed is what was tested.
package templates

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Template is one template after the transform of AWS::Serverless-2016-10-31.
type Template struct {
	Parameters map[string]Parameter
	Rules      map[string]Rule
	Conditions map[string]any
	Resources  map[string]Resource
	Outputs    map[string]struct{ Value any }
}

// Parameter is what a template asks for.
type Parameter struct {
	Type                  string
	Default               any
	AllowedValues         []any
	AllowedPattern        string
	Description           string
	MinValue, MaxValue    *float64
	ConstraintDescription string
}

// Resource is one resource. In a Template its properties hold functions; in a Stack they are values.
type Resource struct {
	Type                string
	Condition           string
	Properties          map[string]any
	DeletionPolicy      string
	UpdateReplacePolicy string
	DependsOn           any
	Metadata            map[string]any
}

// Load reads a transformed template.
func Load(path string) (*Template, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var t Template
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("read template %s: %w", path, err)
	}
	return &t, nil
}

// Account says where a stack lies.
type Account struct{ Partition, Region, ID string }

// Stack is a template with everything decided.
type Stack struct {
	Name      string
	Account   Account
	Resources map[string]Resource // those whose condition holds
	Outputs   map[string]string
}

// Deploy decides a template. parameters override defaults, lists in the form a,b. physical gives what Ref (with
// attribute "") and GetAtt return for a resource; where it returns nil, a made-up value in the form of the
// resource's type is taken. Everything that cannot be decided is an error.
func (t *Template) Deploy(name string, account Account, parameters map[string]string, physical func(logical, attribute string) any) (*Stack, error) {
	d := &deployment{template: t, name: name, account: account, given: parameters, physical: physical}
	if d.physical == nil {
		d.physical = func(string, string) any { return nil }
	}
	for p := range parameters {
		if _, ok := t.Parameters[p]; !ok {
			return nil, fmt.Errorf("the template has no parameter %s", p)
		}
	}
	if d.check(); len(d.errs) > 0 {
		return nil, errors.Join(d.errs...)
	}
	s := &Stack{Name: name, Account: account, Resources: map[string]Resource{}, Outputs: map[string]string{}}
	for _, logical := range slices.Sorted(maps.Keys(t.Resources)) {
		r := t.Resources[logical]
		if r.Condition != "" && !d.condition(r.Condition) {
			continue
		}
		properties, _ := d.value(logical, r.Properties).(map[string]any)
		r.Properties = properties
		s.Resources[logical] = r
	}
	for out, o := range t.Outputs {
		s.Outputs[out] = text(d.value("output "+out, o.Value))
	}
	return s, errors.Join(d.errs...)
}

// Decide evaluates each condition of the template with these parameters, and those that Deploy takes by default.
func (t *Template) Decide(account Account, parameters map[string]string) (map[string]bool, error) {
	d, out := &deployment{template: t, account: account, given: parameters}, map[string]bool{}
	for name := range t.Conditions {
		out[name] = d.condition(name)
	}
	return out, errors.Join(d.errs...)
}

// Of returns the logical names of the resources of a type, sorted.
func (s *Stack) Of(kind string) []string {
	var out []string
	for name, r := range s.Resources {
		if r.Type == kind {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// noValue stands for AWS::NoValue: whatever has it is left out.
type noValue struct{}

type deployment struct {
	template *Template
	name     string
	account  Account
	given    map[string]string
	physical func(logical, attribute string) any
	errs     []error
}

func (d *deployment) fail(at, format string, args ...any) any {
	d.errs = append(d.errs, fmt.Errorf(at+": "+format, args...))
	return ""
}

// value evaluates every function in a value.
func (d *deployment) value(at string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 1 {
			for name, arg := range v {
				if name == "Ref" || strings.HasPrefix(name, "Fn::") || name == "Condition" && isString(arg) && d.isCondition(arg) {
					return d.function(at, name, arg)
				}
			}
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			if e = d.value(at+"."+k, e); e != (noValue{}) {
				out[k] = e
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for i, e := range v {
			if e = d.value(fmt.Sprintf("%s[%d]", at, i), e); e != (noValue{}) {
				out = append(out, e)
			}
		}
		return out
	}
	return v
}

func isString(v any) bool { _, ok := v.(string); return ok }

func (d *deployment) isCondition(v any) bool {
	_, ok := d.template.Conditions[text(v)]
	return ok
}

func (d *deployment) function(at, name string, arg any) any {
	switch name {
	case "Ref":
		return d.ref(at, text(arg))
	case "Fn::GetAtt":
		return d.getAtt(at, arg)
	case "Fn::Sub":
		return d.sub(at, arg)
	case "Fn::If":
		if list, ok := arg.([]any); ok && len(list) == 3 {
			if d.condition(text(list[0])) {
				return d.value(at, list[1])
			}
			return d.value(at, list[2])
		}
	case "Fn::Join":
		if list, ok := arg.([]any); ok && len(list) == 2 {
			return strings.Join(Texts(d.value(at, list[1])), text(list[0]))
		}
	case "Fn::Split":
		if list, ok := arg.([]any); ok && len(list) == 2 {
			return anys(strings.Split(text(d.value(at, list[1])), text(list[0])))
		}
	case "Fn::Select":
		if list, ok := arg.([]any); ok && len(list) == 2 {
			of, ok := d.value(at, list[1]).([]any)
			if i := int(number(list[0])); ok && i < len(of) {
				return of[i]
			}
		}
	case "Fn::GetAZs":
		return anys([]string{d.account.Region + "a", d.account.Region + "b", d.account.Region + "c"})
	case "Fn::Cidr":
		if list, ok := arg.([]any); ok && len(list) >= 2 {
			block, out := text(d.value(at, list[0])), []any{}
			for i := range int(number(list[1])) {
				out = append(out, fmt.Sprintf("%s#%d", block, i))
			}
			return out
		}
	case "Condition":
		return d.condition(text(arg))
	}
	return d.fail(at, "%s with %v is not understood", name, arg)
}

// condition decides a condition of the template by its name.
func (d *deployment) condition(name string) bool {
	c, ok := d.template.Conditions[name]
	if !ok {
		d.fail("conditions", "there is no condition %q", name)
		return false
	}
	return d.decide(name, c)
}

func (d *deployment) decide(at string, v any) bool {
	m, ok := v.(map[string]any)
	if !ok || len(m) != 1 {
		d.fail(at, "%v is not a condition", v)
		return false
	}
	for name, arg := range m {
		list, _ := arg.([]any)
		switch {
		case name == "Condition":
			return d.condition(text(arg))
		case name == "Fn::Equals" && len(list) == 2:
			return text(d.value(at, list[0])) == text(d.value(at, list[1]))
		case name == "Fn::Not" && len(list) == 1:
			return !d.decide(at, list[0])
		case name == "Fn::And":
			return !slices.ContainsFunc(list, func(e any) bool { return !d.decide(at, e) })
		case name == "Fn::Or":
			return slices.ContainsFunc(list, func(e any) bool { return d.decide(at, e) })
		}
		d.fail(at, "the condition %s is not understood", name)
	}
	return false
}

func (d *deployment) ref(at, name string) any {
	switch name {
	case "AWS::NoValue":
		return noValue{}
	case "AWS::Region":
		return d.account.Region
	case "AWS::AccountId":
		return d.account.ID
	case "AWS::Partition":
		return d.account.Partition
	case "AWS::StackName":
		return d.name
	case "AWS::StackId":
		return "arn:" + d.account.Partition + ":cloudformation:" + d.account.Region + ":" + d.account.ID + ":stack/" + d.name + "/0a1b2c3d-4e5f-11f0-8a9b-0123456789ab"
	case "AWS::URLSuffix":
		return "amazonaws.com"
	}
	if p, ok := d.template.Parameters[name]; ok {
		v, given := d.given[name]
		if !given {
			if p.Default == nil {
				return d.fail(at, "parameter %s has no value and no default", name)
			}
			v = text(p.Default)
		}
		if !strings.HasPrefix(p.Type, "List<") && p.Type != "CommaDelimitedList" {
			return v
		}
		if v == "" {
			return []any{""} // as CloudFormation does
		}
		return anys(strings.Split(v, ","))
	}
	return d.resource(at, name, "")
}

func (d *deployment) resource(at, logical, attribute string) any {
	r, ok := d.template.Resources[logical]
	if !ok {
		return d.fail(at, "there is neither a parameter nor a resource %q", logical)
	}
	if v := d.physical(logical, attribute); v != nil {
		return v
	}
	v, ok := d.invent(logical, attribute, r)
	if !ok {
		return d.fail(at, "what %s.%s of type %s returns is not known here", logical, cmp.Or(attribute, "Ref"), r.Type)
	}
	return v
}

func (d *deployment) getAtt(at string, arg any) any {
	if s, ok := arg.(string); ok {
		logical, attribute, _ := strings.Cut(s, ".")
		return d.resource(at, logical, attribute)
	}
	if list := Texts(arg); len(list) == 2 {
		return d.resource(at, list[0], list[1])
	}
	return d.fail(at, "GetAtt of %v is not understood", arg)
}

func (d *deployment) sub(at string, arg any) any {
	format, variables := text(arg), map[string]any{}
	if list, ok := arg.([]any); ok && len(list) == 2 {
		format = text(list[0])
		variables, _ = list[1].(map[string]any)
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(format, "${")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, "}")
		switch v, own := variables[name]; {
		case !closed:
			return d.fail(at, "%q has no end of ${", arg)
		case strings.HasPrefix(name, "!"):
			b.WriteString("${" + name[1:] + "}")
		case own:
			b.WriteString(text(d.value(at, v)))
		case strings.Contains(name, "."):
			b.WriteString(text(d.getAtt(at, name)))
		default:
			b.WriteString(text(d.ref(at, name)))
		}
		format = after
	}
}

// At reads a value below keys of maps and numbers of lists, such as At(p, "Rules", "0", "Id"); nil where there
// is none.
func At(v any, keys ...string) any {
	for _, k := range keys {
		switch of := v.(type) {
		case map[string]any:
			v = of[k]
		case []any:
			i := int(number(k))
			if i >= len(of) {
				return nil
			}
			v = of[i]
		default:
			return nil
		}
	}
	return v
}
