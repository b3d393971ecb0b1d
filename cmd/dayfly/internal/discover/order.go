package discover

import (
	"fmt"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// maxAfter is how many workspaces one may name in after.
const maxAfter = 50

// order writes into each workspace after which others it runs: those that its project names, those of the nearest
// lower group, and those with the units that its units depend on. Names must be final.
func order(list []Workspace) {
	projects, dirs, groups := map[string][]int{}, map[string][]int{}, map[int][]int{}
	for i, w := range list {
		dirs[w.Dir] = append(dirs[w.Dir], i)
		if p := w.from; p != nil {
			projects[p.Name] = append(projects[p.Name], i)
			groups[p.Group] = append(groups[p.Group], i)
		}
	}
	before := make([][]int, len(list))
	for i := range list {
		w := &list[i]
		for _, dir := range w.needs {
			before[i] = append(before[i], dirs[dir]...)
		}
		if w.from == nil {
			continue
		}
		for _, name := range w.from.DependsOn {
			if len(projects[name]) == 0 || name == "" {
				w.Notes = append(w.Notes, fmt.Sprintf("%s: \"depends_on\" names %s, which is not here", w.from.file, text.Quote(name, 60)))
			}
			before[i] = append(before[i], projects[name]...)
		}
		if lower, ok := nearest(groups, w.from.Group); ok && len(groups[lower]) > maxAfter {
			w.Notes = append(w.Notes, fmt.Sprintf("%s: \"execution_order_group\" is not carried over: group %d has more than %d projects", w.from.file, lower, maxAfter))
		} else if ok {
			before[i] = append(before[i], groups[lower]...)
		}
	}
	d := drawing{list: list, before: before, state: make([]int, len(list))}
	for i := range list {
		d.visit(i)
	}
}

// nearest is the highest of the groups below one.
func nearest(groups map[int][]int, group int) (lower int, ok bool) {
	for g := range groups {
		if g < group && (!ok || g > lower) {
			lower, ok = g, true
		}
	}
	return lower, ok
}

// drawing walks the graph of the workspaces, and leaves out what would close a circle.
type drawing struct {
	list   []Workspace
	before [][]int
	state  []int // entered or left
}

const (
	entered = 1
	left    = 2
)

func (d *drawing) visit(i int) {
	if d.state[i] != 0 {
		return
	}
	d.state[i] = entered
	w := &d.list[i]
	slices.Sort(d.before[i])
	for _, other := range slices.Compact(d.before[i]) {
		d.visit(other)
		switch name := d.list[other].Name; {
		case d.state[other] == entered:
			w.Notes = append(w.Notes, fmt.Sprintf("it does not run after %s, because that runs after it", name))
		case len(w.After) == maxAfter:
			w.Notes = append(w.Notes, fmt.Sprintf("it does not run after %s: after names at most %d", name, maxAfter))
		default:
			w.After = append(w.After, name)
		}
	}
	d.state[i] = left
}
