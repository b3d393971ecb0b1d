package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
)

func TestCycle_IsTheShortestWayBack(t *testing.T) {
	for name, c := range map[string]struct {
		on   map[string][]string
		want []string
	}{
		"nothing":        {nil, nil},
		"itself":         {map[string][]string{"a": {"a"}}, []string{"a", "a"}},
		"two":            {map[string][]string{"a": {"b"}, "b": {"a"}}, []string{"a", "b", "a"}},
		"three":          {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}}, []string{"a", "b", "c", "a"}},
		"a diamond":      {map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}, nil},
		"of others":      {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}, nil},
		"the shorter":    {map[string][]string{"a": {"b", "d"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, []string{"a", "d", "a"}},
		"the first name": {map[string][]string{"a": {"c", "b"}, "b": {"a"}, "c": {"a"}}, []string{"a", "b", "a"}},
	} {
		if d := cmp.Diff(c.want, rules.Cycle(c.on, "a")); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// reaches is the reference: whether a walk of at most as many edges as there are workspaces leads from one to another.
func reaches(on map[string][]string, from, to string) bool {
	at := map[string]bool{from: true}
	for range 12 {
		next := map[string]bool{}
		for one := range at {
			for _, two := range on[one] {
				if two == to {
					return true
				}
				next[two] = true
			}
		}
		at = next
	}
	return false
}

func TestCycle_OfRandomGraphsAgreesWithAllWalks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 3_000 {
		n := 1 + r.IntN(9)
		on := map[string][]string{}
		for range r.IntN(2 * n) {
			from, to := fmt.Sprint(r.IntN(n)), fmt.Sprint(r.IntN(n))
			if !slices.Contains(on[from], to) {
				on[from] = append(on[from], to)
			}
		}
		for i := range n {
			from := fmt.Sprint(i)
			path := rules.Cycle(on, from)
			if got, want := path != nil, reaches(on, from, from); got != want {
				t.Fatalf("%v from %s: found %v, want a cycle: %t", on, from, path, want)
			}
			if path == nil {
				continue
			}
			found++
			if path[0] != from || path[len(path)-1] != from {
				t.Fatalf("%v from %s: %v does not lead from it to it", on, from, path)
			}
			for j := range path[1:] {
				if !slices.Contains(on[path[j]], path[j+1]) {
					t.Fatalf("%v: %v has a step that is no dependency", on, path)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no graph had a cycle")
	}
}

func TestDependsOn_NamesEachOnce(t *testing.T) {
	on, sensitive := rules.DependsOn(api.Workspace{
		After:  []string{"c", "a"},
		Inputs: []api.WorkspaceInput{{Workspace: "b", Output: "x"}, {Workspace: "a", Output: "y", Sensitive: true}, {Workspace: "a", Output: "z", Sensitive: true}},
	})
	if d := cmp.Diff([]string{"a", "b", "c"}, on); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"a"}, sensitive); d != "" {
		t.Error(d)
	}
}
