package rules

import (
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// DependsOn lists the workspaces on which one depends, and those of which it takes sensitive outputs. Both are
// sorted.
func DependsOn(w api.Workspace) (on, sensitive []string) {
	on = slices.Clone(w.After)
	for _, in := range w.Inputs {
		on = append(on, in.Workspace)
		if in.Sensitive {
			sensitive = append(sensitive, in.Workspace)
		}
	}
	slices.Sort(on)
	slices.Sort(sensitive)
	return slices.Compact(on), slices.Compact(sensitive)
}

// Cycle finds a path from a workspace back to itself, in a graph of dependencies. It begins and ends with the
// workspace; nil if there is none. Of several it is the shortest, and of those the first by name.
func Cycle(on map[string][]string, from string) []string {
	came := map[string]string{} // the workspace from which each was reached
	for next := []string{from}; len(next) > 0; next = next[1:] {
		for _, to := range slices.Sorted(slices.Values(on[next[0]])) {
			if to == from {
				path := []string{from}
				for at := next[0]; at != from; at = came[at] {
					path = append(path, at)
				}
				path = append(path, from)
				slices.Reverse(path)
				return path
			}
			if _, seen := came[to]; !seen {
				came[to] = next[0]
				next = append(next, to)
			}
		}
	}
	return nil
}

// Edges counts the dependencies of a graph.
func Edges(on map[string][]string) (n int) {
	for _, list := range on {
		n += len(list)
	}
	return n
}

// Dependents lists the workspaces that depend on one directly, sorted.
func Dependents(on map[string][]string, name string) (out []string) {
	for one, list := range on {
		if slices.Contains(list, name) {
			out = append(out, one)
		}
	}
	slices.Sort(out)
	return out
}
