package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The results of a unit in a report of terragrunt.
const (
	unitSucceeded = "succeeded"
	unitSkipped   = "early exit" // because one that it needs has failed
	unitExcluded  = "excluded"
	unitIgnored   = "error ignored" // its reason there: the result is succeeded
)

// unit is the result of one unit.
type unit struct {
	name   string // its path below the directory of the run
	result string
	cause  string
}

// broke says whether the unit itself failed. A result that is not known does not count as a success.
func (u unit) broke() bool {
	return !slices.Contains([]string{unitSucceeded, unitSkipped, unitExcluded, unitIgnored}, u.result)
}

// ended is how terragrunt ended over all units.
type ended struct {
	code    int
	units   []unit // by name; none if there is no report
	printed string
	root    string // the directory of the run, with which the units' paths in the output begin
}

// readReport reads a run report in JSON.
func readReport(raw []byte, root string) ([]unit, error) {
	var list []struct{ Name, Result, Reason, Cause string } // keys in any case
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("it is in a form that this version cannot read")
	}
	var out []unit
	for _, u := range list {
		name := u.Name
		if rel, err := filepath.Rel(root, name); err == nil && filepath.IsAbs(name) {
			name = rel
		}
		if u.Result == unitSucceeded && u.Reason == unitIgnored {
			u.Result = unitIgnored
		}
		out = append(out, unit{cmp.Or(filepath.ToSlash(filepath.Clean(name)), "."), u.Result, u.Cause})
	}
	slices.SortFunc(out, func(a, b unit) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// named lists the units with one of these results.
func (e ended) named(results ...string) []string {
	var names []string
	for _, u := range e.units {
		if slices.Contains(results, u.result) {
			names = append(names, u.name)
		}
	}
	return names
}

func (e ended) result(name string) string {
	for _, u := range e.units {
		if u.name == name {
			return u.result
		}
	}
	return ""
}

// succeeded says whether a unit did all that it had to do. Without a report it is so for all if terragrunt says so.
func (e ended) succeeded(name string) bool {
	return e.result(name) == unitSucceeded || len(e.units) == 0 && e.code == 0
}

// leftOut names the units that a run that succeeded has not run, or not to their end.
func (e ended) leftOut() (said string) {
	for _, result := range []string{unitExcluded, unitIgnored} {
		if names := e.named(result); len(names) > 0 {
			said += "; " + result + ": " + text.Some(names, maxNamed)
		}
	}
	return said
}

// failed says whether a unit failed or was not run.
func (e ended) failed() bool {
	return e.code != 0 || len(e.named(unitSucceeded, unitExcluded, unitIgnored)) < len(e.units)
}

// noOutputsYet is part of the error of a unit without mock_outputs if its dependency was never applied.
const noOutputsYet = "detected no outputs"

// tooEarly says whether all failed units failed only because their dependencies were never applied.
func (e ended) tooEarly() bool {
	return len(e.units) > 0 && !slices.ContainsFunc(e.units, func(u unit) bool { return u.broke() && !strings.Contains(e.causeOf(u), noOutputsYet) })
}

// causeOf is the cause of a unit's failure. The report has none for a unit that could not start, but terragrunt
// prints it: missing outputs with the paths of both units, other causes on lines that begin with the unit's name.
func (e ended) causeOf(u unit) string {
	if u.cause != "" {
		return u.cause
	}
	needs := " is a dependency of " + filepath.Join(e.root, u.name) + "/"
	var own strings.Builder
	for line := range strings.Lines(text.WithoutEscapes(e.printed)) {
		if strings.Contains(line, needs) && strings.Contains(line, noOutputsYet) {
			return strings.TrimPrefix(strings.ReplaceAll(line, e.root+"/", ""), "* ")
		}
		if prefix := logPrefix().FindString(line); strings.Contains(prefix, "["+u.name+"]") && !strings.Contains(prefix, " INFO ") {
			own.WriteString(line[len(prefix):])
		}
	}
	return own.String()
}

// failure lists the result of each unit.
func (e ended) failure(step string) error {
	detail := fmt.Sprintf("%s failed with exit code %d", step, e.code)
	if len(e.units) == 0 {
		detail += fmt.Sprintf(": %s; its log has the result of each unit", firstOf(e.printed))
		return &Failure{Reason: workflow.ReasonStepFailed, Detail: text.Middle(detail, maxDetail)}
	}
	var parts []string
	broke := 0
	for _, u := range e.units {
		if u.broke() {
			broke++
		}
		if u.broke() && broke <= maxCauses {
			parts = append(parts, fmt.Sprintf("%s failed: %s", u.name, firstOf(e.causeOf(u))))
		}
	}
	for _, p := range []struct{ result, words string }{
		{unitSkipped, "not run, because a dependency failed: "}, {unitSucceeded, "succeeded: "}, {unitExcluded, "left out: "}, {unitIgnored, "error ignored: "},
	} {
		if names := e.named(p.result); len(names) > 0 {
			parts = append(parts, p.words+text.Some(names, maxNamed))
		}
	}
	detail = fmt.Sprintf("%s failed in %d of %s. %s", step, broke, text.Count(len(e.units), "unit"), strings.Join(parts, ". "))
	return &Failure{Reason: workflow.ReasonStepFailed, Detail: text.Middle(detail, maxDetail)}
}

// maxNamed is how many units of one result a failure names.
const maxNamed = 10

// logPrefix is the prefix of terragrunt before each line that a unit prints.
var logPrefix = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d+ +[A-Z]+ +(?:\[[^\]\n]*\] )?(?:(?:tofu|terraform): ?)?`)
})

// firstOf is the first error in the output of terragrunt, or in its report of a unit.
func firstOf(printed string) string {
	plain := logPrefix().ReplaceAllString(text.WithoutEscapes(printed), "")
	first := cmp.Or(firstError(plain), text.Middle(strings.Join(strings.Fields(plain), " "), maxDetail/maxCauses), "its log has the cause")
	return strings.TrimSuffix(first, ".")
}
