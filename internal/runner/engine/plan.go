package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	maxResources = 200
	maxAddress   = 1000
	maxPlanJSON  = 64 << 20

	// Values shorter than this are not masked: they would hide half of every line, and are not
	// secrets.
	minMasked = 4
	maxMasked = 2000
)

// summary is what may be said of a plan, and what must be hidden.
type summary struct {
	changes   api.Changes
	truncated bool
	secrets   []string // sensitive values, for the mask only
}

// readPlan reads the JSON form of a plan. Only addresses, actions and counts become part of the
// changes.
func readPlan(raw []byte, m mode) (summary, error) {
	var plan tfjson.Plan
	if err := json.Unmarshal(raw, &plan); err != nil {
		// The error of a decoder may quote what it could not read.
		return summary{}, fmt.Errorf("the engine's plan is in a form that this version cannot read")
	}
	var s summary
	for _, c := range plan.ResourceChanges {
		if c == nil || c.Change == nil {
			continue
		}
		action := actionOf(c.Change.Actions)
		switch action {
		case "":
			continue
		case "create":
			s.changes.Add++
		case "update":
			s.changes.Change++
		case "delete":
			s.changes.Destroy++
		case "replace":
			s.changes.Add++
			s.changes.Destroy++
		}
		s.list(c.Address, action)
	}
	if m.refreshOnly {
		for _, c := range plan.ResourceDrift {
			if c == nil || c.Change == nil || actionOf(c.Change.Actions) == "" {
				continue
			}
			s.changes.Drift++
			s.list(c.Address, "drift")
		}
	}
	slices.SortStableFunc(s.changes.Resources, func(a, b api.ResourceChange) int { return cmp.Compare(a.Address, b.Address) })
	if len(s.changes.Resources) > maxResources {
		s.changes.Resources = s.changes.Resources[:maxResources]
		s.truncated = true
	}
	s.secrets = sensitiveValues(&plan)
	return s, nil
}

func (s *summary) list(address, action string) {
	if len(address) > maxAddress {
		address = text.Cut(address, maxAddress)
		s.truncated = true
	}
	s.changes.Resources = append(s.changes.Resources, api.ResourceChange{Address: address, Action: action})
}

// actionOf names what is planned for a resource; empty means nothing.
func actionOf(a tfjson.Actions) string {
	switch {
	case a.NoOp(), len(a) == 0:
		return ""
	case a.Create():
		return "create"
	case a.Update():
		return "update"
	case a.Delete():
		return "delete"
	case a.Replace():
		return "replace"
	case a.Read():
		return "read"
	default:
		var names []string
		for _, action := range a[:min(len(a), 2)] {
			names = append(names, text.Cut(string(action), 10))
		}
		return strings.Join(names, " ")
	}
}

// text says what a plan would do, in a line for the step.
func (s summary) text(m mode) string {
	c := s.changes
	if m.refreshOnly {
		if c.Drift == 0 {
			return "no drift"
		}
		return text.Count(c.Drift, "resource") + " drifted"
	}
	c.Drift = 0 // of a plan that changes it back
	return c.Text(false)
}

// sensitiveValues collects the values that the plan marks as sensitive.
func sensitiveValues(plan *tfjson.Plan) []string {
	v := values{seen: map[string]bool{}}
	changes := slices.Concat(plan.ResourceChanges, plan.ResourceDrift)
	for _, c := range changes {
		if c != nil && c.Change != nil {
			v.marked(c.Change.Before, c.Change.BeforeSensitive)
			v.marked(c.Change.After, c.Change.AfterSensitive)
		}
	}
	for _, c := range plan.OutputChanges {
		if c != nil {
			v.marked(c.Before, c.BeforeSensitive)
			v.marked(c.After, c.AfterSensitive)
		}
	}
	if plan.Config != nil && plan.Config.RootModule != nil {
		for name, declaration := range plan.Config.RootModule.Variables {
			if given := plan.Variables[name]; declaration != nil && declaration.Sensitive && given != nil {
				v.all(given.Value)
			}
		}
	}
	if plan.PriorState != nil && plan.PriorState.Values != nil {
		for _, o := range plan.PriorState.Values.Outputs {
			if o != nil && o.Sensitive {
				v.all(o.Value)
			}
		}
	}
	return v.list
}

// values collects strings that are to be masked, each once and not without bound.
type values struct {
	seen map[string]bool
	list []string
}

// marked collects what lies in value where mark, a tree of the same form, has true.
func (v *values) marked(value, mark any) {
	switch m := mark.(type) {
	case bool:
		if m {
			v.all(value)
		}
	case map[string]any:
		if fields, ok := value.(map[string]any); ok {
			for name, sub := range m {
				v.marked(fields[name], sub)
			}
		}
	case []any:
		if items, ok := value.([]any); ok {
			for i := range min(len(items), len(m)) {
				v.marked(items[i], m[i])
			}
		}
	}
}

// all collects every string and number in value.
func (v *values) all(value any) {
	switch x := value.(type) {
	case string:
		v.add(x)
	case json.Number:
		v.add(x.String())
	case float64:
		if raw, err := json.Marshal(x); err == nil {
			v.add(string(raw))
		}
	case map[string]any:
		for _, sub := range x {
			v.all(sub)
		}
	case []any:
		for _, sub := range x {
			v.all(sub)
		}
	}
}

func (v *values) add(s string) {
	if len(strings.TrimSpace(s)) < minMasked || v.seen[s] || len(v.list) >= maxMasked {
		return
	}
	v.seen[s] = true
	v.list = append(v.list, s)
}
