package runtext

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Group is the result of a policy group in a line.
func Group(r api.PolicyResult) string {
	var said []string
	for _, c := range []struct {
		n       int
		outcome string
	}{{r.Denied, api.FindingDenied}, {r.Waived, api.FindingWaived}, {r.Warned, api.FindingWarned}} {
		if c.n > 0 {
			said = append(said, fmt.Sprintf("%d %s", c.n, c.outcome))
		}
	}
	switch {
	case r.Error != "":
		said = append(said, "could not be evaluated")
	case len(said) == 0:
		said = append(said, "passed")
	}
	return fmt.Sprintf("%s (%s): %s", r.Group, r.Enforcement, strings.Join(said, ", "))
}

// Groups are the results of all policy groups in a line; empty where there are none.
func Groups(all []api.PolicyResult) string {
	said := make([]string, 0, len(all))
	for _, r := range all {
		said = append(said, Group(r))
	}
	return strings.Join(said, "; ")
}

// GroupLines is the result of a policy group, line by line: first in sum, then each finding.
func GroupLines(r api.PolicyResult) []string {
	out := []string{"policy group " + Group(r)}
	if r.Error != "" {
		out = append(out, "  "+r.Error)
	}
	for _, f := range r.Findings {
		out = append(out, "  "+f.Outcome+" "+Finding(r, f))
	}
	if n := r.Unlisted(); n > 0 {
		out = append(out, fmt.Sprintf("  and %d more", n))
	}
	return out
}

// Finding is a finding of a rule in a line, with its address and, if it is waived, why it passes.
func Finding(r api.PolicyResult, f api.PolicyFinding) string {
	said := f.Rule
	if f.Address != "" {
		said += " at " + f.Address
	}
	said += ": " + strings.Join(strings.Fields(f.Message), " ")
	if why := Waiver(r, f); why != "" {
		said += " (" + why + ")"
	}
	return said
}

// Waiver says in a clause why a finding that is waived passes: by which waiver, whose, why and until when.
func Waiver(r api.PolicyResult, f api.PolicyFinding) string {
	if f.Outcome != api.FindingWaived {
		return ""
	}
	said, w := "waiver "+f.Waiver, api.PolicyWaiver{}
	if i := slices.IndexFunc(r.Waivers, func(w api.PolicyWaiver) bool { return w.Name == f.Waiver }); i >= 0 {
		w = r.Waivers[i]
	}
	if w.GivenBy != "" {
		said += " by " + w.GivenBy
	}
	if !w.Until.IsZero() {
		said += " until " + w.Until.UTC().Format(time.DateOnly)
	}
	if w.Reason != "" {
		said += ": " + w.Reason
	}
	return said
}
