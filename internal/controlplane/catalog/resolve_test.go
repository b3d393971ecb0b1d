package catalog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// some returns each of some names with a chance.
func some[T any](r *rand.Rand, names []T) (out []T) {
	for _, name := range names {
		if r.IntN(3) == 0 {
			out = append(out, name)
		}
	}
	return out
}

// gets is a naive reference: whether a pool gets a workflow of a workspace, by the rules as they are written down.
func gets(w api.Workspace, chain []record.Project, defaultPool string, pool record.Pool, t workflow.Type) bool {
	if pool.Disabled || pool.Closed || len(pool.Types) > 0 && !slices.Contains(pool.Types, t) {
		return false
	}
	assigned := pool.AssignedToAll || slices.Contains(pool.Assigned, record.Assigned{ID: "ws_" + w.Name})
	for _, s := range pool.Stacks {
		assigned = assigned || s == w.Stack
	}
	for _, n := range pool.Namespaces {
		assigned = assigned || n == w.Namespace
	}
	for _, p := range chain {
		assigned = assigned || slices.Contains(pool.Projects, p.Name)
	}
	if !assigned {
		return false
	}
	if len(w.Labels) > 0 {
		for _, l := range w.Labels {
			if !slices.Contains(pool.Labels, l) {
				return false
			}
		}
		return true
	}
	if w.Pool != "" {
		return pool.Name == w.Pool
	}
	for _, p := range chain {
		if p.PoolID != "" {
			return pool.ID == p.PoolID
		}
	}
	if defaultPool != "" {
		return pool.ID == defaultPool
	}
	return pool.BuiltIn
}

func TestChoose_MatchesResolverOnRandomTrees(t *testing.T) {
	labels, names := []string{"a", "b", "c", "d"}, []string{"s1", "s2", "s3"}
	yes := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var pools []record.Pool
		for i := range 5 {
			p := record.Pool{
				ID: fmt.Sprintf("pool_%d", i), Name: fmt.Sprintf("p%d", i), BuiltIn: i == 0, Disabled: r.IntN(8) == 0, Closed: i > 0 && r.IntN(8) == 0,
				AssignedToAll: r.IntN(3) == 0, Assigned: some(r, []record.Assigned{{ID: "ws_net"}, {ID: "ws_db"}}), Projects: some(r, []string{"global", "eu", "eu-prod"}),
				Stacks: some(r, names), Namespaces: some(r, names), Labels: some(r, labels),
			}
			if r.IntN(4) == 0 {
				p.Types = []workflow.Type{workflow.InsightsScan}
			}
			pools = append(pools, p)
		}
		chain := []record.Project{{Name: "eu-prod", Parent: "eu"}, {Name: "eu", Parent: "global"}, {Name: "global"}}[r.IntN(3):]
		for i := range chain {
			if r.IntN(3) == 0 {
				chain[i].PoolID = pools[r.IntN(5)].ID
			}
		}
		o := record.Organization{}
		if r.IntN(2) == 0 {
			o.DefaultPool = pools[r.IntN(5)].ID
		}
		w := api.Workspace{Name: []string{"net", "db", "web"}[r.IntN(3)], Stack: append(names, "")[r.IntN(4)], Namespace: append(names, "")[r.IntN(4)]}
		named := ""
		switch r.IntN(4) {
		case 0:
			w.Labels = some(r, labels)
		case 1:
			i := r.IntN(5)
			w.Pool, named = pools[i].Name, pools[i].ID
		}
		builtIn := pools[0].ID
		typ := []workflow.Type{workflow.Deployment, workflow.InsightsScan}[r.IntN(2)]
		verdicts := catalog.Choose(record.Workspace{ID: "ws_" + w.Name, W: w}, chain, o, named, builtIn).Explain(pools, typ)
		for i, v := range verdicts {
			want := gets(w, chain, o.DefaultPool, pools[i], typ)
			if v.Gets != want || v.Why == "" || v.Pool != pools[i].Name {
				t.Fatalf("seed %d: %+v of workspace %+v in %+v: got %+v, want %v", seed, pools[i], w, chain, v, want)
			}
			if want {
				yes++
			}
		}
	}
	if yes < 500 {
		t.Errorf("only %d workflows would go to any pool: the test proves too little", yes)
	}
}

func TestExplain_SaysWhyNot(t *testing.T) {
	near := record.Pool{ID: "pool_near", Name: "near", AssignedToAll: true}
	far := record.Pool{ID: "pool_far", Name: "far", BuiltIn: true, AssignedToAll: true, Labels: []string{"gpu"}}
	chain := []record.Project{{Name: "eu", PoolID: near.ID}, {Name: "global"}}
	for _, c := range []struct {
		why  string
		w    api.Workspace
		pool record.Pool
	}{
		{"pool near is nearer: project eu has it", api.Workspace{Name: "net"}, far},
		{"project eu has it", api.Workspace{Name: "net"}, near},
		{"project eu has it; only its instance one may run it", api.Workspace{Name: "net", Runner: "one"}, near},
		{"it lacks label ssd", api.Workspace{Name: "net", Labels: []string{"ssd", "gpu"}}, far},
		{"it lacks labels arm, ssd", api.Workspace{Name: "net", Labels: []string{"ssd", "gpu", "arm"}}, far},
		{"it has label gpu: the first of such pools to claim it gets it", api.Workspace{Name: "net", Labels: []string{"gpu"}}, far},
		{"it is not assigned to workspace net: an admin can assign it to the workspace, its stack, its namespace or one of its projects", api.Workspace{Name: "net"}, record.Pool{ID: near.ID, Name: "near"}},
		{"it is disabled: it claims nothing until it is enabled", api.Workspace{Name: "net"}, record.Pool{ID: near.ID, Name: "near", AssignedToAll: true, Disabled: true}},
		{"it does not take workflows of type deployment", api.Workspace{Name: "net"}, record.Pool{ID: near.ID, Name: "near", AssignedToAll: true, Types: []workflow.Type{workflow.InsightsScan}}},
		{"it assumes roles under the path /x/ only, and the role of the workspace lies under /y/", api.Workspace{Name: "net", Role: "arn:aws:iam::123456789012:role/y/z"}, record.Pool{ID: near.ID, Name: "near", AssignedToAll: true, RolePath: "/x/"}},
	} {
		pools := []record.Pool{c.pool}
		if c.pool.ID != near.ID {
			pools = append(pools, near)
		}
		got := catalog.Choose(record.Workspace{W: c.w}, chain, record.Organization{}, "", far.ID).Explain(pools, workflow.Deployment)
		if got[0].Why != c.why {
			t.Errorf("got %q, want %q", got[0].Why, c.why)
		}
	}
}
