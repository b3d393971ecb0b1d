package controlplane_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Random trees, assignments, labels and defaults: what each pool claims is what a naive reference says.
func TestRoute_WhoMayClaimIsAsTheRulesSay(t *testing.T) {
	labels, stacks := []string{"a", "b", "c"}, []string{"s1", "s2", ""}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(t, memory.New())
		pools := map[string]*record.Pool{}
		who := map[string]controlplane.Principal{"default": w.pool}
		subset := func(of []string) []string {
			out := []string{}
			for _, s := range of {
				if s != "" && r.IntN(2) == 0 {
					out = append(out, s)
				}
			}
			return out
		}
		w.project("eu", record.GlobalProject, "")
		w.project("prod", "eu", "")
		for i := range 4 {
			all := r.IntN(2) == 0
			some, projects := subset(stacks), subset([]string{"eu", "prod"})
			name := fmt.Sprintf("pool%d", i)
			has := subset(labels)
			who[name] = w.newPool(name, func(s *api.PoolSettings) {
				s.AssignedToAll, s.AssignedStacks, s.AssignedProjects, s.Labels = &all, &some, &projects, &has
			})
			pools[name] = &record.Pool{ID: who[name].PoolID, Name: name, AssignedToAll: all, Stacks: some, Projects: projects, Labels: has}
		}
		pools["default"] = &record.Pool{ID: w.pool.PoolID, Name: "default", AssignedToAll: true}
		anyPool := func() string {
			if i := r.IntN(6); i < 4 {
				return fmt.Sprintf("pool%d", i)
			}
			return ""
		}
		settings := map[string]api.Workspace{}
		ids := map[string]string{}
		for i := range 6 {
			name := fmt.Sprintf("ws%d", i)
			w.workspace(name)
			ids[w.submit(name, workflow.Update).ID] = name // all go to the built-in pool, and then elsewhere
		}
		for i := range 6 {
			name := fmt.Sprintf("ws%d", i)
			w.workspace(name, func(ws *api.Workspace) {
				ws.Project, ws.Stack = []string{"global", "eu", "prod"}[r.IntN(3)], stacks[r.IntN(3)]
				switch r.IntN(3) {
				case 0:
					ws.Labels = subset(labels)
				case 1:
					ws.Pool = anyPool()
				}
				settings[name] = *ws
			})
		}
		of := map[string]string{"global": anyPool(), "eu": anyPool(), "prod": anyPool(), "": anyPool()}
		idOf := func(name string) string {
			if name == "" {
				return ""
			}
			return pools[name].ID
		}
		w.project(record.GlobalProject, "", idOf(of["global"]))
		w.project("eu", record.GlobalProject, idOf(of["eu"]))
		w.project("prod", "eu", idOf(of["prod"]))
		w.defaultPool(idOf(of[""]))
		if r.IntN(2) == 0 {
			w.pass() // else the claims repair
		}
		may := func(ws api.Workspace, pool *record.Pool) bool {
			chain := []string{"prod", "eu", "global"}[2-slices.Index([]string{"global", "eu", "prod"}, ws.Project):]
			ok := pool.AssignedToAll || ws.Stack != "" && slices.Contains(pool.Stacks, ws.Stack)
			for _, p := range chain {
				ok = ok || slices.Contains(pool.Projects, p)
			}
			if len(ws.Labels) > 0 {
				for _, l := range ws.Labels {
					ok = ok && slices.Contains(pool.Labels, l)
				}
				return ok
			}
			for _, name := range append([]string{ws.Pool}, of[chain[0]], of[chain[min(1, len(chain)-1)]], of["global"], of[""], "default") {
				if name != "" {
					return ok && pool.Name == name
				}
			}
			return false
		}
		left := map[string]bool{}
		for id := range ids {
			left[id] = true
		}
		for round := range 2 { // the second finds runs that claims of the first have routed elsewhere
			for _, name := range slices.Sorted(maps.Keys(who)) {
				for _, id := range w.claimFor(who[name], "i", 10) {
					if !may(settings[ids[id]], pools[name]) {
						t.Errorf("seed %d: pool %+v claims workspace %+v of %v", seed, pools[name], settings[ids[id]], of)
					}
					if !left[id] {
						t.Errorf("seed %d: %s is claimed twice", seed, id)
					}
					delete(left, id)
				}
			}
			for id := range left {
				for name, pool := range pools {
					if round == 1 && may(settings[ids[id]], pool) {
						t.Errorf("seed %d: pool %s leaves %+v behind", seed, name, settings[ids[id]])
					}
				}
			}
		}
	}
}
