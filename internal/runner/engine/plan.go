package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	maxResources     = 1000
	maxResourceBytes = 160 << 10 // of their JSON
	maxChangedBytes  = 40 << 10  // of the JSON of the outputs that change
	maxAddress       = 1000
	maxProvider      = 255
	maxNames         = 100 // of attributes of one resource
	maxName          = 255
	maxPlanJSON      = 64 << 20

	// Values shorter than this are not masked: they would hide half of every line, and are not
	// secrets.
	minMasked = 4
	maxMasked = 2000
)

// summary is the part of a plan that may be shown, and the values to be masked.
type summary struct {
	changes   api.Changes
	digest    string // SHA-256 of all that may be said, before it was cut to the bounds
	values    string // digest for comparing it with another plan, values included; never shown
	compared  comparison
	truncated bool
	sealed    bool      // one of two states that were to be compared is encrypted
	managed   []managed // with mode.scan: the resources in the state
	checks    checks
	same      bool     // a state that is to be pushed is the one that is there
	secrets   []string // sensitive values, for the mask only
}

// readPlan reads the JSON form of a plan. Only the structure becomes part of the changes: addresses, actions, counts
// and names, never a value.
func readPlan(raw []byte, m mode) (summary, error) {
	var plan tfjson.Plan
	plan.UseJSONNumber(true) // large numbers that differ are not to become the same
	if err := json.Unmarshal(raw, &plan); err != nil {
		// The error of a decoder may quote values.
		return summary{}, errors.New("the engine's plan is in a form that this version cannot read")
	}
	var s summary
	drifted := s.drift(&plan, m)
	for _, c := range plan.ResourceChanges {
		if c != nil && c.Change != nil {
			s.resource(c, actionOf(c.Change.Actions), drifted[c.Address])
		}
	}
	for _, a := range plan.ActionInvocations {
		if a != nil {
			s.changes.Resources = append(s.changes.Resources, api.ResourceChange{Address: a.Address, Action: "invoke", Provider: a.ProviderName})
		}
	}
	for name, c := range plan.OutputChanges {
		if c != nil && actionOf(c.Actions) != "" {
			s.changes.Outputs = append(s.changes.Outputs, api.OutputChange{Name: name, Action: actionOf(c.Actions)})
			s.compared.add("output", name, c)
		}
	}
	for _, c := range plan.Checks {
		s.checks.add(string(c.Address.Kind), c.Address.ToDisplay, string(c.Status))
	}
	s.compared.rest(&plan)
	s.values = s.compared.digest()
	s.secrets = sensitiveValues(&plan)
	if m.scan {
		s.managed = managedIn(&plan)
	}
	return s, s.finish()
}

// drift returns the addresses of drifted resources. With refreshOnly it adds them to the summary.
func (s *summary) drift(plan *tfjson.Plan, m mode) map[string]bool {
	drifted := map[string]bool{}
	for _, c := range plan.ResourceDrift {
		if c == nil || c.Change == nil {
			continue
		}
		action := actionOf(c.Change.Actions)
		drifted[c.Address] = drifted[c.Address] || action != ""
		if action != "" {
			action = "drift"
		}
		if m.refreshOnly {
			s.resource(c, action, action != "")
		}
	}
	return drifted
}

// resource adds one to the summary. An action that is empty may still be an import or a new address.
func (s *summary) resource(c *tfjson.ResourceChange, action string, drifted bool) {
	r := api.ResourceChange{
		Address: c.Address, Provider: c.ProviderName, Changed: changedNames(c.Change), Forces: forcingNames(c.Change.ReplacePaths),
		Imported: c.Change.Importing != nil, Drifted: drifted,
	}
	if c.DeposedKey != "" {
		r.Address += " (deposed " + c.DeposedKey + ")"
	}
	if c.PreviousAddress != c.Address {
		r.From = c.PreviousAddress
	}
	switch {
	case action != "":
	case r.Imported:
		action = "import"
	case r.From != "":
		action = "move"
	default:
		return
	}
	r.Action = action
	if r.Imported {
		s.changes.Import++
	}
	if r.From != "" {
		s.changes.Move++
	}
	s.add(r)
	s.compared.add("resource", c)
}

// add counts an action and lists its resource.
func (s *summary) add(r api.ResourceChange) {
	switch r.Action {
	case "create":
		s.changes.Add++
	case "update":
		s.changes.Change++
	case "delete":
		s.changes.Destroy++
	case "replace":
		s.changes.Add++
		s.changes.Destroy++
		s.changes.Replace++
	case "forget":
		s.changes.Forget++
	case "drift":
		s.changes.Drift++
	}
	s.changes.Resources = append(s.changes.Resources, r)
}

// finish sorts the entries, takes the digest of all of them, and then cuts them to the bounds.
func (s *summary) finish() error {
	rank := func(action string) int {
		if i := slices.Index([]string{"delete", "replace"}, action); i >= 0 {
			return i
		}
		return 2
	}
	slices.SortStableFunc(s.changes.Resources, func(a, b api.ResourceChange) int {
		return cmp.Or(cmp.Compare(rank(a.Action), rank(b.Action)), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Action, b.Action))
	})
	slices.SortFunc(s.changes.Outputs, func(a, b api.OutputChange) int { return cmp.Compare(a.Name, b.Name) })
	raw, err := json.Marshal(s.changes)
	if err != nil {
		return errors.New("the plan's changes cannot be written as JSON")
	}
	s.digest = sha256Hex(raw)
	for i := range s.changes.Resources {
		s.shorten(&s.changes.Resources[i])
	}
	for i := range s.changes.Outputs {
		s.cut(&s.changes.Outputs[i].Name, maxOutputName)
	}
	s.changes.Resources = fitting(s, s.changes.Resources, maxResources, maxResourceBytes)
	s.changes.Outputs = fitting(s, s.changes.Outputs, maxOutputs, maxChangedBytes)
	return nil
}

// shorten keeps one resource within its bounds.
func (s *summary) shorten(r *api.ResourceChange) {
	s.cut(&r.Address, maxAddress)
	s.cut(&r.From, maxAddress)
	s.cut(&r.Provider, maxProvider)
	for _, names := range []*[]string{&r.Changed, &r.Forces} {
		if len(*names) > maxNames {
			*names, s.truncated = (*names)[:maxNames], true
		}
		for i := range *names {
			s.cut(&(*names)[i], maxName)
		}
	}
}

func (s *summary) cut(field *string, limit int) {
	if len(*field) > limit {
		*field, s.truncated = text.Cut(*field, limit), true
	}
}

// fitting returns the first that are not too many and not too much JSON.
func fitting[T any](s *summary, all []T, limit, size int) []T {
	for i, one := range all {
		raw, err := json.Marshal(one)
		if size -= len(raw) + 1; err != nil || size < 0 || i == limit {
			s.truncated = true
			return all[:i]
		}
	}
	return all
}

// changedNames lists the attributes in which the two sides of a change differ: in their value, in the parts known
// only later, or in the sensitive parts. Only names of the first level are returned: deeper names may be values.
func changedNames(c *tfjson.Change) []string {
	before, was := c.Before.(map[string]any)
	after, is := c.After.(map[string]any)
	if !was || !is {
		return nil // it begins or ends here
	}
	fields := func(v any) map[string]any { m, _ := v.(map[string]any); return m }
	unknown, wasMarked, isMarked := fields(c.AfterUnknown), fields(c.BeforeSensitive), fields(c.AfterSensitive)
	names := map[string]bool{}
	for _, side := range []map[string]any{before, after, unknown} {
		for name := range side {
			if !reflect.DeepEqual(before[name], after[name]) || marked(unknown[name]) ||
				(marked(wasMarked[name]) || marked(isMarked[name])) && !reflect.DeepEqual(wasMarked[name], isMarked[name]) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// marked says whether a tree of marks has true anywhere.
func marked(mark any) bool {
	return hasLeaf(mark, func(leaf any) bool { return leaf == true })
}

// hasLeaf says whether a JSON value has something that is neither a list nor an object, and that is as wanted.
func hasLeaf(value any, wanted func(leaf any) bool) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(sub any) bool { return hasLeaf(sub, wanted) })
	case map[string]any:
		for _, sub := range v {
			if hasLeaf(sub, wanted) {
				return true
			}
		}
		return false
	}
	return wanted(value)
}

// forcingNames lists the attributes with which the paths that force a replacement begin.
func forcingNames(paths []any) []string {
	var names []string
	for _, p := range paths {
		if steps, ok := p.([]any); ok && len(steps) > 0 {
			if name, ok := steps[0].(string); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// actionOf names the action that is planned for a resource; empty means none.
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

// text describes the changes of a plan in a line for the step.
func (s summary) text(m mode) string {
	c := s.changes
	if m.push && s.sealed {
		return "its changes are not known: one of the two states is encrypted or of another form"
	}
	if m.push {
		return fmt.Sprintf("of the resources in the state: %d added, %d changed, %d forgotten", c.Add, c.Change, c.Destroy)
	}
	if m.refreshOnly {
		if c.Drift == 0 {
			return "no drift"
		}
		return text.Count(c.Drift, "resource") + " drifted"
	}
	c.Drift = 0 // of a plan that changes it back
	return runtext.Changes(c, false)
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
	v.sensitiveVariables(plan)
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

func (v *values) sensitiveVariables(plan *tfjson.Plan) {
	if plan.Config == nil || plan.Config.RootModule == nil {
		return
	}
	for name, declaration := range plan.Config.RootModule.Variables {
		if given := plan.Variables[name]; declaration != nil && declaration.Sensitive && given != nil {
			v.all(given.Value)
		}
	}
}

// marked collects the parts of value at which mark, a tree of the same form, has true.
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
