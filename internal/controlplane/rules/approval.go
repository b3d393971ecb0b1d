package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of the requirements of a level.
const (
	maxApprovalRules   = 10
	maxApprovalChanges = 1_000_000 // N of changes > N
)

// CheckApproval refuses an invalid requirement of a level. It returns the requirement to keep: nil if no approval is
// required, else a copy with normalized rules.
func CheckApproval(field string, in *api.Approval) (*api.Approval, error) {
	refuse := func(name, format string, args ...any) (*api.Approval, error) {
		return nil, workflow.Refuse(workflow.ErrInvalid, field+"."+name, format, args...)
	}
	if in == nil {
		return nil, nil
	}
	if !in.Required {
		if in.NotBySubmitter || in.AfterMerge || in.Expires != "" || len(in.Rules) > 0 {
			return refuse("required", "not_by_submitter, after_merge, expires and rules go with required: set %s.required to true, or leave them out", field)
		}
		return nil, nil
	}
	out := *in
	if d, err := time.ParseDuration(in.Expires); in.Expires != "" && (err != nil || d <= 0 || d > api.MaxApprovalExpires || len(in.Expires) > 40) {
		return refuse("expires", "expires is a duration such as 24h, at most %gh; %q is not", api.MaxApprovalExpires.Hours(), text.Cut(in.Expires, 40))
	}
	if len(in.Rules) > maxApprovalRules {
		return refuse("rules", "there are at most %d rules", maxApprovalRules)
	}
	var err error
	if out.Rules, err = normalize(field, in.Rules); err != nil {
		return nil, err
	}
	return &out, nil
}

// normalize returns rules in one spelling, each once.
func normalize(field string, kept []string) (out []string, err error) {
	for i, s := range kept {
		r, ok := parseRule(s)
		if !ok {
			return nil, workflow.Refuse(workflow.ErrInvalid, field+"."+fmt.Sprintf("rules[%d]", i), "a rule is destroys, replaces, policies or changes > N with N from 0 to %d; %q is not", maxApprovalChanges, text.Cut(s, 40))
		}
		if !slices.Contains(out, r.String()) {
			out = append(out, r.String())
		}
	}
	return out, nil
}

// rulePolicies is the rule for plans that a policy denied without stopping the run, or warned of.
const rulePolicies = "policies"

// rule says which plans need an approval.
type rule struct {
	word string // destroys, replaces, policies or changes
	more int    // with changes: the plan changes more than this
}

// parseRule reads a rule. Spaces do not matter.
func parseRule(s string) (rule, bool) {
	switch s = strings.Trim(s, " "); s {
	case "destroys", "replaces", rulePolicies:
		return rule{word: s}, true
	}
	word, number, ok := strings.Cut(s, ">")
	number = strings.Trim(number, " ")
	n, err := strconv.ParseUint(number, 10, 32) // takes no sign
	ok = ok && len(s) <= 40 && strings.Trim(word, " ") == "changes" && err == nil && n <= maxApprovalChanges
	return rule{"changes", int(n)}, ok //nolint:gosec // at most maxApprovalChanges where it is used
}

// String is the spelling that is kept.
func (r rule) String() string {
	if r.word == "changes" {
		return fmt.Sprintf("changes > %d", r.more)
	}
	return r.word
}

// covers says whether a rule matches every plan that another one matches.
func (r rule) covers(o rule) bool {
	switch r.word {
	case "destroys":
		return o.word == "destroys" || o.word == "replaces" // a replaced resource is destroyed
	case "replaces", rulePolicies:
		return o.word == r.word
	}
	return o.word == "changes" && r.more <= o.more
}

// wants says why a rule requires an approval of a plan, as a clause; "" if it does not.
func (r rule) wants(c api.Changes, all int, policies []api.PolicyResult) string {
	switch n := max(c.Destroy, c.Replace); {
	case r.word == "destroys" && n > 0:
		return "it destroys " + text.Count(n, "resource")
	case r.word == "replaces" && c.Replace > 0:
		return "it replaces " + text.Count(c.Replace, "resource")
	case r.word == "changes" && all > r.more:
		return fmt.Sprintf("it makes %s, more than %d", text.Count(all, "change"), r.more)
	case r.word == rulePolicies:
		return found(policies)
	}
	return ""
}

// found lists in a clause the policy findings that did not stop the run; empty if there are none.
func found(all []api.PolicyResult) string {
	var said []string
	for _, r := range all {
		if !r.Passed() {
			said = append(said, runtext.Group(r))
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "it has policy findings: " + text.Some(said, 5)
}

// Tightens says whether a level that required before now requires at least as much after: it matches every plan that
// it matched, by the same people, and does not wait longer.
func Tightens(before, after *api.Approval) bool {
	switch {
	case before == nil || !before.Required:
		return true
	case after == nil || !after.Required,
		before.NotBySubmitter && !after.NotBySubmitter,
		before.AfterMerge && !after.AfterMerge,
		expires(*after) > expires(*before):
		return false
	case len(after.Rules) == 0:
		return true
	}
	for _, s := range before.Rules {
		was, known := parseRule(s)
		covered := slices.ContainsFunc(after.Rules, func(s string) bool {
			is, ok := parseRule(s)
			return ok && is.covers(was)
		})
		if !known || !covered {
			return false
		}
	}
	return len(before.Rules) > 0
}

// expires is how long a plan waits for its approval by one level.
func expires(a api.Approval) time.Duration {
	d, _ := time.ParseDuration(a.Expires) // it was checked
	return cmp.Or(d, api.DefaultApprovalExpires)
}

// Requirement is the approval that one level requires before a plan is applied.
type Requirement struct {
	Of string // such as "the organization", "project payments", "the workspace"
	api.Approval
}

// Required says whether one of the levels requires approvals at all.
func Required(levels []Requirement) bool { return len(levels) > 0 }

// Wanted is the approval that the levels require of one plan. Without a Why it may be applied as it is.
type Wanted struct {
	Why            []string      // the levels that require an approval, with their reasons
	NotBySubmitter bool          // of those levels
	AfterMerge     bool          // of any level: the plan of a pull request is not applied before its merge
	Expires        time.Duration // the shortest of all levels
}

// Wants decides which approval the levels require of a preview's plan. It is a pure function. A plan without changes
// needs no approval. Every level requires one for a plan whose counts are incomplete, and for a push of a state.
func Wants(levels []Requirement, op workflow.Operation, preview api.Result) Wanted {
	out := Wanted{Expires: api.DefaultApprovalExpires}
	for i, level := range levels {
		out.AfterMerge = out.AfterMerge || level.AfterMerge
		if d := expires(level.Approval); i == 0 || d < out.Expires {
			out.Expires = d
		}
	}
	if preview.Plan != nil && preview.Plan.Empty && op != workflow.StatePush {
		return out
	}
	for _, level := range levels {
		if why := wants(level.Rules, op, preview); why != "" {
			out.Why = append(out.Why, level.Of+": "+why)
			out.NotBySubmitter = out.NotBySubmitter || level.NotBySubmitter
		}
	}
	return out
}

// wants says why the rules of a level require an approval of a plan, as a clause; "" if they do not.
func wants(kept []string, op workflow.Operation, preview api.Result) string {
	if op == workflow.StatePush {
		return "it puts another state in place of the present one"
	}
	if len(kept) == 0 {
		return "it changes something"
	}
	if preview.Changes == nil {
		return "its changes are unknown"
	}
	all := countChanges(*preview.Changes, op)
	if all == 0 {
		return "its changes are not counted"
	}
	var why []string
	for _, s := range kept {
		r, ok := parseRule(s)
		because := r.wants(*preview.Changes, all, preview.Policies)
		switch {
		case !ok: // of a later version
			because = fmt.Sprintf("this version does not know the rule %q", text.Cut(s, 40))
		case because == "" && r.word == "changes" && preview.Truncated:
			because = fmt.Sprintf("the list of its changes is incomplete, and may be longer than %d", r.more)
		}
		if because != "" {
			why = append(why, because)
		}
	}
	return strings.Join(why, ", ")
}

// countChanges counts the resources and outputs that a plan changes, each once. If their list was cut, a resource
// that is both changed and moved or imported counts twice.
func countChanges(c api.Changes, op workflow.Operation) int {
	n := c.Add + c.Change + c.Destroy - c.Replace + c.Import + c.Move + len(c.Outputs)
	if op == workflow.Refresh {
		n += c.Drift // it changes the state only, by the drift
	}
	for _, r := range c.Resources {
		switch r.Action {
		case "create", "update", "delete", "replace":
			if r.Imported || r.From != "" {
				n--
			}
		case "forget":
			n++
		}
	}
	return n
}
