package api

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxFlags = 20 // of a step
	maxFlag  = 500
)

// flagsOf are the flags that a workspace may add to the steps of an engine. Flags that Dayfly sets itself or relies
// on are not among them: the place of the state, its lock, the plan that is made and applied, and its output. A word
// in capitals stands for a value.
func flagsOf(engine string) map[string][]string {
	init := []string{"-upgrade", "-get=false", "-plugin-dir=PATH", "-lockfile=readonly", "-lock-timeout=DURATION"}
	apply := []string{"-parallelism=NUMBER", "-lock-timeout=DURATION", "-compact-warnings"}
	plan := append(slices.Clone(apply), "-refresh=false")
	switch engine {
	case EngineTerraform:
		return map[string][]string{"init": init, "plan": plan, "apply": apply}
	case EngineTofu:
		more := []string{"-concise", "-consolidate-warnings=false", "-deprecation=MODE"}
		return map[string][]string{
			"init": init, "plan": slices.Concat(plan, more, []string{"-exclude=ADDRESS"}), "apply": slices.Concat(apply, more),
		}
	case EngineTerragrunt:
		more := []string{"--log-level=LEVEL", "--strict-mode"}
		return map[string][]string{"plan": slices.Concat(plan, more), "apply": slices.Concat(apply, more)}
	case EnginePulumi:
		plan := []string{"--parallel=NUMBER", "--show-sames", "--show-replacement-steps", "--suppress-progress"}
		return map[string][]string{"plan": plan, "apply": append(slices.Clone(plan), "--continue-on-error")}
	}
	return nil
}

// flagValues are the forms of the values.
var flagValues = sync.OnceValue(func() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"NUMBER":   regexp.MustCompile(`^[1-9][0-9]{0,3}$`),
		"DURATION": regexp.MustCompile(`^[0-9]{1,5}(s|m|h)$`),
		"PATH":     regexp.MustCompile(`^[A-Za-z0-9._/+-]+$`),
		"ADDRESS":  regexp.MustCompile(`^[ -~]+$`),
		"MODE":     regexp.MustCompile(`^module:(all|local|none)$`),
		"LEVEL":    regexp.MustCompile(`^(error|warn|info|debug)$`),
	}
})

// CheckFlags refuses flags that a workspace may not add to a step of its engine. It is a pure function, by which the
// control plane and the runner go.
func CheckFlags(engine string, flags map[string][]string) error {
	all := flagsOf(engine)
	for _, step := range slices.Sorted(maps.Keys(flags)) {
		known, ok := all[step]
		switch {
		case all == nil:
			return workflow.Refuse(workflow.ErrInvalid, "flags", "engine %s has no flags", engine)
		case !ok:
			return workflow.Refuse(workflow.ErrInvalid, "flags", "%q is not a step that has flags; with engine %s these are %s", text.Cut(step, 40), engine, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		case len(flags[step]) > maxFlags:
			return workflow.Refuse(workflow.ErrInvalid, "flags."+step, "a step has at most %d flags", maxFlags)
		}
		for i, flag := range flags[step] {
			if !slices.ContainsFunc(known, func(form string) bool { return isFlag(flag, form) }) {
				return workflow.Refuse(workflow.ErrInvalid, fmt.Sprintf("flags.%s[%d]", step, i), "%q is not one of the flags of %s that can be set: %s", text.Cut(flag, 80), step, strings.Join(known, ", "))
			}
		}
	}
	return nil
}

// isFlag says whether a flag has the form that stands in the list.
func isFlag(flag, form string) bool {
	name, word, _ := strings.Cut(form, "=")
	value, ok := strings.CutPrefix(flag, name+"=")
	if want := flagValues()[word]; want != nil {
		return ok && len(flag) <= maxFlag && want.MatchString(value)
	}
	return flag == form
}
