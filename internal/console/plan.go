package console

import (
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// shownOpen is how many resources of a plan are shown at once; the others are folded, by module. Destroyed
// and replaced resources are never folded, however many there are.
const shownOpen = 60

// planTree is a plan as a page shows it: destroyed and replaced resources of all modules, and then the rest by module.
type planTree struct {
	changes   api.Changes
	first     []planned // destroyed and replaced resources, by their whole address
	modules   []module
	of        string // the run that has all of it
	truncated bool
}

// module is the other changes of one module.
type module struct {
	name      string // empty for the root
	resources []planned
	shown     int // of them; the others are folded
}

// planned is one line of a plan.
type planned struct {
	mark  mark
	name  string // within the module, if it stands under one
	about string // why it is replaced, other changes, its origin
}

// actionMark is an action in a sign and a word.
func actionMark(action string) mark { return signed(action, clean(runtext.Action(action))) }

// treeOf sorts a plan for people. It is a pure function.
func treeOf(id string, c api.Changes, truncated bool) *planTree {
	out := &planTree{changes: c, of: id, truncated: truncated}
	places := map[string]int{}
	for _, r := range runtext.Ordered(c.Resources) {
		if r.Action == "delete" || r.Action == "replace" {
			out.first = append(out.first, plannedOf(r, r.Address))
			continue
		}
		name, rest := splitAddress(r.Address)
		i, known := places[name]
		if !known {
			i = len(out.modules)
			places[name], out.modules = i, append(out.modules, module{name: clean(name)})
		}
		out.modules[i].resources = append(out.modules[i].resources, plannedOf(r, rest))
	}
	if len(c.Outputs) > 0 {
		outputs := module{name: "outputs"}
		for _, o := range c.Outputs {
			outputs.resources = append(outputs.resources, planned{mark: actionMark(o.Action), name: clean(o.Name)})
		}
		out.modules = append(out.modules, outputs)
	}
	left := max(0, shownOpen-len(out.first))
	for i := range out.modules {
		m := &out.modules[i]
		m.shown = min(left, len(m.resources))
		left -= m.shown
	}
	return out
}

func plannedOf(r api.ResourceChange, name string) planned {
	return planned{mark: actionMark(r.Action), name: clean(name), about: clean(strings.Join(runtext.About(r), "; "))}
}

// splitAddress cuts an address into its module and the rest: module.a["x.y"].module.b and aws_subnet.c.
func splitAddress(address string) (name, rest string) {
	at := 0
	for strings.HasPrefix(address[at:], "module.") {
		end, quoted, depth := -1, false, 0
		for i := at + len("module."); i < len(address) && end < 0; i++ {
			switch c := address[i]; {
			case quoted && c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case quoted:
			case c == '[':
				depth++
			case c == ']':
				depth--
			case c == '.' && depth <= 0:
				end = i
			}
		}
		if end < 0 {
			break
		}
		at = end + 1
	}
	return strings.TrimSuffix(address[:at], "."), address[at:]
}

// empty says whether there is nothing to list.
func (p *planTree) empty() bool { return p == nil || len(p.first)+len(p.modules) == 0 }

// heading says whether the changes are planned or done, and counts them.
func (p *planTree) heading(w api.Workflow) string {
	switch {
	case w.State != workflow.Succeeded && p.of != w.ID: // it was to apply this plan
		return "Plan · " + runtext.Changes(p.changes, false)
	case w.Did():
		return "Changes · " + runtext.Counted(w, p.changes)
	}
	return "Plan · " + runtext.Counted(w, p.changes)
}

// firstUnits are the units that a page shows, those that did not succeed first, and how many others there are.
func firstUnits(all []api.UnitResult) (shown []api.UnitResult, more int) {
	for _, succeeded := range []bool{false, true} {
		for _, u := range all {
			if (u.Result == "succeeded") == succeeded && len(shown) < shownOpen {
				shown = append(shown, u)
			}
		}
	}
	return shown, len(all) - len(shown)
}

// summary counts the changes of a module, in the order of its resources.
func (m module) summary() string {
	var parts []string
	for i := 0; i < len(m.resources); {
		n := 1
		for i+n < len(m.resources) && m.resources[i+n].mark == m.resources[i].mark {
			n++
		}
		parts = append(parts, m.resources[i].mark.glyph+fmt.Sprint(n))
		i += n
	}
	return strings.Join(parts, " ")
}
