package runtext

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// WhichState says which state it is. One of Pulumi has neither a lineage nor a serial number, and Dayfly keeps
// PROJECT/STACK and the milliseconds of its last change in their place. No engine makes a lineage with a slash.
func WhichState(lineage string, serial int64) string {
	if strings.Contains(lineage, "/") {
		return fmt.Sprintf("stack %s, changed %s", lineage, time.UnixMilli(serial).UTC().Format("2006-01-02 15:04:05 MST"))
	}
	return fmt.Sprintf("lineage %s, serial %d", lineage, serial)
}

// maxNames is how many attributes or types are named.
const maxNames = 10

// count is a number of resources, with the verb of their change.
type count struct {
	n          int
	would, did string
}

// counts are those of a plan, irreversible changes first. Replaced resources count as that only.
func counts(c api.Changes) []count {
	all := []count{
		{c.Destroy - c.Replace, "destroy", "destroyed"}, {c.Replace, "replace", "replaced"},
		{c.Change, "change", "changed"}, {c.Add - c.Replace, "add", "added"},
		{c.Import, "import", "imported"}, {c.Move, "move", "moved"}, {c.Forget, "forget", "forgotten"},
	}
	return slices.DeleteFunc(all, func(one count) bool { return one.n <= 0 })
}

// Changes counts changes, planned or done: "1 to destroy, 3 to add", "3 added", "no changes".
func Changes(c api.Changes, did bool) string {
	var out []string
	say := func(n int, noun, would, done string) {
		if did {
			out = append(out, fmt.Sprintf("%d%s %s", n, noun, done))
		} else {
			out = append(out, fmt.Sprintf("%d%s to %s", n, noun, would))
		}
	}
	for _, one := range counts(c) {
		say(one.n, "", one.would, one.did)
	}
	if c.Drift > 0 {
		out = append(out, fmt.Sprintf("%d drifted", c.Drift))
	}
	if n := len(c.Outputs); n > 0 {
		say(n, strings.TrimPrefix(text.Count(n, "output"), fmt.Sprint(n)), "change", "changed")
	}
	if len(out) == 0 {
		return "no changes"
	}
	return strings.Join(out, ", ")
}

// Counted counts the changes of the result of a run: the planned ones, or those that it made, and before what.
func Counted(w api.Workflow, c api.Changes) string {
	if !w.Did() || w.State == workflow.Succeeded || !c.Any() && len(c.Outputs) == 0 {
		return Changes(c, w.Did())
	}
	drift := c.Drift // nobody made it
	c.Drift = 0
	said := Changes(c, true) + " before it failed"
	if w.State == workflow.Cancelled {
		said = Changes(c, true) + " before it was cancelled"
	}
	if drift > 0 {
		said += "; " + Changes(api.Changes{Drift: drift}, true)
	}
	return said
}

// Unit is the result of a unit and its changes: "1 added", "failed, 1 added", "excluded".
func Unit(u api.UnitResult, did bool) string {
	var said []string
	if u.Result != "succeeded" {
		said = append(said, cmp.Or(u.Result, "no result"))
	}
	if u.Changes != nil {
		c := *u.Changes
		c.Outputs = make([]api.OutputChange, u.Outputs)
		said = append(said, Changes(c, did))
	}
	if u.Planned {
		said = append(said, "as planned")
	}
	return strings.Join(said, ", ")
}

// Changed counts the changes of the plan of a run, or those that the run has made; empty where they are not known.
func Changed(w api.Workflow) string {
	c := w.Changes
	if w.Result != nil && w.Result.Changes != nil {
		c = w.Result.Changes
	}
	if c == nil || !w.State.Terminal() {
		return ""
	}
	said := Counted(w, *c)
	switch none := said == Changes(api.Changes{}, false); {
	case none && w.State != workflow.Succeeded:
		return ""
	case none && w.Type == workflow.InsightsScan:
		return "no drift"
	}
	return said
}

// inState counts the resources of which a plan changes only the state: "1 import, 2 move"; empty if there are none.
func inState(c api.Changes) string {
	var out []string
	for _, one := range counts(api.Changes{Import: c.Import, Move: c.Move, Forget: c.Forget}) {
		out = append(out, fmt.Sprintf("%d %s", one.n, one.would))
	}
	return strings.Join(out, ", ")
}

// Column is Changed for a narrow column: numbers of added, changed and destroyed resources, then words.
func Column(c *api.Changes) string {
	switch {
	case c == nil:
		return ""
	case !c.Any() && c.Drift == 0:
		return "none"
	case c.Add+c.Change+c.Destroy > 0:
		return strings.TrimSuffix(fmt.Sprintf("+%d ~%d -%d, %s", c.Add, c.Change, c.Destroy, inState(*c)), ", ")
	}
	return cmp.Or(inState(*c), fmt.Sprintf("%d drifted", c.Drift))
}

// Summary is Changed as a sentence, about a run that succeeded.
func Summary(w api.Workflow) string {
	if w.Result == nil || w.Result.Changes == nil {
		return "Everything that it had to do is done"
	}
	c, would := *w.Result.Changes, "It would "
	verb := func(one count) string { return one.would }
	if w.Did() {
		would, verb = "It ", func(one count) string { return one.did }
	}
	var parts []string
	for i, one := range counts(c) {
		n := fmt.Sprint(one.n)
		if i == 0 {
			n = text.Count(one.n, "resource")
		}
		parts = append(parts, verb(one)+" "+n)
	}

	change := verb(count{would: "change", did: "changed"})
	switch last := len(parts) - 1; {
	case last > 0:
		would += strings.Join(parts[:last], ", ") + " and " + parts[last]
	case last == 0:
		would += parts[0]
	case len(c.Outputs) > 0:
		would += change + " " + text.Count(len(c.Outputs), "output") + " only"
	default:
		would += change + " nothing"
	}
	if c.Drift > 0 {
		would += "; " + Drift(c.Drift)
	}
	return would
}

// Drift says how many resources drifted.
func Drift(n int) string {
	if n == 1 {
		return "1 resource was changed outside the code"
	}
	return text.Count(n, "resource") + " were changed outside the code"
}

// Inventory counts in a line the resources that a scan found in the state; empty where it did not count them.
func Inventory(i *api.Inventory) string {
	if i == nil {
		return ""
	}
	said := text.Count(i.Resources, "resource")
	var types []string
	for _, t := range i.Types {
		types = append(types, fmt.Sprintf("%d %s", t.Count, t.Type))
	}
	if len(types) > 0 {
		said += ": " + text.Some(types, maxNames)
	}
	return said
}

// Checks counts the check blocks that fail, and names the first of them; empty where none is known to.
func Checks(c *api.Checks) string {
	if c == nil || c.Failing == 0 {
		return ""
	}
	said := fmt.Sprintf("%d failing", c.Failing)
	if len(c.Names) > 0 {
		said += ": " + strings.Join(c.Names, ", ")
	}
	if more := c.Failing - len(c.Names); more > 0 && len(c.Names) > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}

// actions are the changes of a resource, the dangerous first, in the words in which they are counted.
var actions = []struct{ action, word string }{
	{"delete", "destroy"}, {"replace", "replace"}, {"update", "change"}, {"create", "add"}, {"drift", "drifted"},
}

func rank(action string) int {
	for i, a := range actions {
		if a.action == action {
			return i
		}
	}
	return len(actions)
}

// Action is the change of a resource in a word: destroy, not delete, as it is counted.
func Action(action string) string {
	if i := rank(action); i < len(actions) {
		return actions[i].word
	}
	return action
}

// Ordered has the dangerous changes first: destroyed resources, then replaced ones.
func Ordered(resources []api.ResourceChange) []api.ResourceChange {
	out := slices.Clone(resources)
	slices.SortStableFunc(out, func(x, y api.ResourceChange) int { return rank(x.Action) - rank(y.Action) })
	return out
}

// About lists further facts about the change of a resource.
func About(r api.ResourceChange) (out []string) {
	if len(r.Forces) > 0 {
		out = append(out, "replaced because of "+text.Some(r.Forces, maxNames))
	}
	others := slices.DeleteFunc(slices.Clone(r.Changed), func(name string) bool { return slices.Contains(r.Forces, name) })
	if len(others) > 0 {
		out = append(out, "changes "+text.Some(others, maxNames))
	}
	if r.From != "" {
		out = append(out, "moved from "+r.From)
	}
	if r.Imported {
		out = append(out, "imported")
	}
	if r.Drifted {
		out = append(out, "changed outside the code")
	}
	return out
}
