package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// addStack adds an instance of a pool: its parts, and the ticking of their clocks.
func (w *world) addStack(r *rand.Rand, pool, name string) *stack {
	rules := w.cp.server().rules
	token := must(rules.EnsurePoolToken(w.ctx, "default", pool, "stack "+name))
	w.guard.secret(token)
	s := &stack{
		w: w, pool: pool, name: name, lives: map[string]*process{}, who: must(rules.Authenticate(w.ctx, token)), keys: w.keys,
		heard: r.IntN(3) == 0, batch: 1 + r.IntN(10), placement: []string{"a", "b", "c"}[:1+r.IntN(3)],
		skew: between(r, -2*time.Second, 2*time.Second),
	}
	s.direct = !s.heard && r.IntN(4) > 0
	s.place = w.placeOf(s)
	s.queue, s.launcher = &simQueue{w: w, s: s}, &simLauncher{w: w, s: s}
	for _, part := range []string{relays, poll, reap} {
		s.build(part)
	}
	w.stacks = append(w.stacks, s)
	w.every(pollEvery, between(r, 0, pollEvery), "poll", s.pollOnce)
	sweepEvery := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute}[r.IntN(3)]
	w.every(sweepEvery, between(r, 0, sweepEvery), "sweep", s.sweep)
	return s
}

// addWorkspace registers a workspace, and remembers how, for when somebody deletes it.
func (w *world) addWorkspace(name, pool string, maxRuntime time.Duration, maxActive int) {
	ws := api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
			Commands: map[string]string{"preview": "p", "update": "u", "refresh": "r", "destroy": "d", "insights_scan": "s"},
		},
		Pool:       pool,
		MaxRuntime: maxRuntime.Round(time.Second).String(), MaxActive: maxActive,
	}
	_, _, err := w.cp.server().rules.PutWorkspace(w.ctx, w.people.admin, ws)
	must(0, err)
	w.people.settings[name] = ws
}

// How much of everything a big world has: more than one read returns, wherever the product reads by pages.
const (
	bigEvery  = 25  // one seed in so many is a big world
	crowd     = 140 // runs at once in one pool
	shutOut   = 505 // waiting runs, in each of two workspaces that no pool is assigned to any more
	shutStay  = 105 // of those, how many are not cancelled: they expire in one minute
	bigPools  = 510
	bigSpaces = 510
)

// What some world must have met.
const (
	metHeld    = "more claims than a page"
	metTimers  = "more timers due than a page"
	metRefused = "more refused entries than one claim reads over"

	metTakeover = "another instance takes a pool over"
	metDirect   = "a poller launches"
)

// grow makes a big world.
func (w *world) grow(r *rand.Rand) {
	rules, admin := w.cp.server().rules, w.people.admin
	name, everybody, n := "crowd", false, 0
	_ = must(rules.CreatePool(w.ctx, admin, "", api.PoolSettings{Name: &name}))
	s := w.addStack(r, name, name)
	s.batch = 50
	s.build(poll)
	submit := func(workspace string, priority int) string {
		n++
		out := must(rules.Submit(w.ctx, admin, "", api.Submit{
			Workspace: workspace, Type: workflow.Deployment, Operation: workflow.Preview, Priority: &priority, Message: fmt.Sprint("big ", n),
		}))
		return out.ID
	}
	for _, ws := range []string{"shut0", "shut1"} {
		w.addWorkspace(ws, name, 20*time.Minute, 1000)
		for i := range shutOut {
			id := submit(ws, 1)
			if i >= shutStay {
				w.after(between(r, time.Hour, troubleFor), "cancel", func() { w.people.cancelID(id) })
			}
		}
	}
	w.addWorkspace("crowd", name, 20*time.Minute, 1000)
	for range crowd {
		submit("crowd", 0)
	}
	_ = must(rules.UpdatePool(w.ctx, admin, name, api.PoolSettings{AssignedToAll: &everybody, AssignedWorkspaces: &[]string{"crowd"}}))
	for i := range bigPools {
		name := fmt.Sprint("extra", i)
		_ = must(rules.CreatePool(w.ctx, admin, "", api.PoolSettings{Name: &name}))
		if i < 2 {
			w.pools = append(w.pools, name)
		}
	}
	for i := range bigSpaces {
		w.addWorkspace(fmt.Sprint("extra", i), "", time.Hour, 1)
	}
}

// aPool picks one of the pools that settings of change.
func aPool(w *world, r *rand.Rand) string { return w.pools[r.IntN(len(w.pools))] }

// aWorkspace picks one of the workspaces.
func aWorkspace(w *world, r *rand.Rand) string {
	return w.people.workspaces[r.IntN(len(w.people.workspaces))]
}

// someLabels picks labels that a pool may have.
func someLabels(r *rand.Rand) []string {
	return [][]string{{}, {"x"}, {"y"}, {"x", "y"}}[r.IntN(4)]
}

// defaultTo makes a pool the default of the organization, as a process does that dies right after its commit: nobody has
// routed anything again.
func (w *world) defaultTo(name string) {
	pool, _ := stored[poolRecord](w, store.Key{Part: "org/default", Sort: "poolname/" + name})
	var ops []store.Op
	for k, change := range map[store.Key]func(map[string]any){
		{Part: "orgs", Sort: "default"}:            func(v map[string]any) { v["default_pool"] = pool.ID },
		{Part: "org/default", Sort: "routes"}:      func(v map[string]any) { epoch, _ := v["epoch"].(float64); v["epoch"] = epoch + 1 },
		{Part: "limit/default", Sort: "rerouting"}: func(v map[string]any) { v["after"] = "" },
	} {
		v, version := map[string]any{}, store.Absent
		if found := must(w.cp.inner.Get(w.ctx, k)); len(found) > 0 {
			must(0, json.Unmarshal(found[0].Value, &v))
			version = found[0].Version
		}
		change(v)
		ops = append(ops, store.Put(store.Record{Key: k, Value: must(json.Marshal(v))}, version))
	}
	must(0, w.cp.inner.Commit(w.ctx, fmt.Sprintf("default pool %d", w.steps), ops...))
	w.tell("the default pool is %q", name)
}

// leadsBack lets a workspace go where it went at first.
func (w *world) leadsBack(name string) func(*api.Workspace) {
	return func(ws *api.Workspace) { ws.Labels, ws.Runner, ws.Pool = nil, "", w.people.settings[name].Pool }
}

// update changes settings of a pool.
func (w *world) update(pool string, in api.PoolSettings) {
	w.people.set("pool "+pool, func(ctx context.Context, c *controlplane.Plane) error {
		_, err := c.UpdatePool(ctx, w.people.admin, pool, in)
		return err
	})
}

// projects is the tree of a world; the last one may lie below either of the others.
var projects = []string{"global", "eu", "prod"}

// project changes a project.
func (w *world) project(name string, in api.ProjectSettings) {
	w.people.set("project "+name, func(ctx context.Context, c *controlplane.Plane) error {
		_, err := c.UpdateProject(ctx, w.people.admin, name, in)
		return err
	})
}

// settings are faults that people make: they change or remove what others work with. Refusals are accepted as they
// come.
var settings = []fault{
	{"the limit of a pool changes", 2, func(w *world, r *rand.Rand) string {
		name, n := aPool(w, r), r.IntN(4)
		w.update(name, api.PoolSettings{Concurrency: &n})
		return fmt.Sprintf("limit of pool %s becomes %d", name, n)
	}},
	{"a pool is disabled for a while", 2, func(w *world, r *rand.Rand) string {
		name, d, yes, no := aPool(w, r), between(r, time.Minute, 30*time.Minute), true, false
		w.update(name, api.PoolSettings{IsDisabled: &yes})
		w.after(d, "enable pool", func() { w.update(name, api.PoolSettings{IsDisabled: &no}) })
		return fmt.Sprintf("pool %s is disabled for %s", name, d)
	}},
	{"the assignment of a pool changes for a while", 2, func(w *world, r *rand.Rand) string {
		name, d, yes, no := aPool(w, r), between(r, time.Minute, 30*time.Minute), true, false
		some := []string{}
		for _, ws := range w.people.workspaces {
			if r.IntN(2) == 0 {
				some = append(some, ws)
			}
		}
		w.update(name, api.PoolSettings{AssignedToAll: &no, AssignedWorkspaces: &some})
		w.after(d, "assign pool", func() { w.update(name, api.PoolSettings{AssignedToAll: &yes}) })
		return fmt.Sprintf("pool %s is assigned to %v for %s", name, some, d)
	}},
	{"a pool takes one type for a while", 2, func(w *world, r *rand.Rand) string {
		name, d := aPool(w, r), between(r, time.Minute, 30*time.Minute)
		w.update(name, api.PoolSettings{EnabledTypes: &[]workflow.Type{workflow.InsightsScan}})
		w.after(d, "every type", func() { w.update(name, api.PoolSettings{EnabledTypes: &[]workflow.Type{}}) })
		return fmt.Sprintf("pool %s takes scans alone for %s", name, d)
	}},
	{"the limit of a workspace changes", 2, func(w *world, r *rand.Rand) string {
		n := 1 + r.IntN(4)
		return w.people.put(r, fmt.Sprint("limit ", n), func(ws *api.Workspace) { ws.MaxActive = n })
	}},
	{"a workspace goes to another pool", 2, func(w *world, r *rand.Rand) string {
		pool := aPool(w, r)
		return w.people.put(r, "pool "+pool, func(ws *api.Workspace) { ws.Pool = pool })
	}},
	{"a pool gets other labels", 2, func(w *world, r *rand.Rand) string {
		name, labels := aPool(w, r), someLabels(r)
		w.update(name, api.PoolSettings{Labels: &labels})
		return fmt.Sprintf("labels of pool %s become %v", name, labels)
	}},
	{"a workspace wants labels for a while", 3, func(w *world, r *rand.Rand) string {
		name, d := aWorkspace(w, r), between(r, time.Minute, 30*time.Minute)
		labels := []string{"x", "y"}[:1+r.IntN(2)]
		w.after(d, "labels are over", func() { w.people.change(name, w.leadsBack(name)) })
		w.people.change(name, func(ws *api.Workspace) { ws.Labels, ws.Pool, ws.Runner = labels, "", "" })
		return fmt.Sprintf("workspace %s wants %v for %s", name, labels, d)
	}},
	{"the default pool changes for a while", 2, func(w *world, r *rand.Rand) string {
		name, d := aPool(w, r), between(r, time.Minute, 30*time.Minute)
		w.defaultTo(name)
		w.after(d, "no default pool", func() { w.defaultTo("") })
		return fmt.Sprintf("pool %s is the default pool for %s", name, d)
	}},
	{"a project has a pool for a while", 2, func(w *world, r *rand.Rand) string {
		pool, project, d := aPool(w, r), projects[r.IntN(len(projects))], between(r, time.Minute, 30*time.Minute)
		none := ""
		w.project(project, api.ProjectSettings{Pool: &pool})
		w.after(d, "no pool of a project", func() { w.project(project, api.ProjectSettings{Pool: &none}) })
		return fmt.Sprintf("project %s has pool %s for %s", project, pool, d)
	}},
	{"a project moves", 1, func(w *world, r *rand.Rand) string {
		parent := projects[r.IntN(2)]
		w.project(projects[2], api.ProjectSettings{Parent: &parent})
		return fmt.Sprintf("project %s lies below %s", projects[2], parent)
	}},
	{"a workspace moves to another project", 3, func(w *world, r *rand.Rand) string {
		project := projects[r.IntN(len(projects))]
		return w.people.put(r, "project "+project, func(ws *api.Workspace) { ws.Project = project })
	}},
	{"a workspace is pinned for a while", 2, func(w *world, r *rand.Rand) string {
		name, s, d := aWorkspace(w, r), anyStack(w, r), between(r, time.Minute, 30*time.Minute)
		w.after(d, "pin is over", func() { w.people.change(name, w.leadsBack(name)) })
		w.people.change(name, func(ws *api.Workspace) { ws.Labels, ws.Pool, ws.Runner = nil, s.pool, "stack-"+s.name })
		return fmt.Sprintf("workspace %s is pinned to %s for %s", name, s.name, d)
	}},
	{"somebody deletes a workspace", 4, func(w *world, r *rand.Rand) string {
		name := w.people.workspaces[r.IntN(len(w.people.workspaces))]
		w.people.set("workspace "+name, func(ctx context.Context, c *controlplane.Plane) error {
			return c.DeleteWorkspace(ctx, w.people.admin, name)
		})
		w.after(between(r, time.Second, 5*time.Minute), "workspace again", func() {
			w.people.set("workspace "+name, func(ctx context.Context, c *controlplane.Plane) error {
				_, _, err := c.PutWorkspace(ctx, w.people.admin, w.people.settings[name])
				return err
			})
		})
		return "workspace " + name + " is deleted"
	}},
	{"somebody deletes a pool", 2, func(w *world, r *rand.Rand) string {
		name := aPool(w, r)
		w.people.set("pool "+name, func(ctx context.Context, c *controlplane.Plane) error {
			return c.DeletePool(ctx, w.people.admin, name)
		})
		return "pool " + name + " is deleted"
	}},
	{"what a workspace runs after changes", 4, func(w *world, r *rand.Rand) string {
		return w.depends(r, r.IntN(len(w.people.workspaces)))
	}},
	{"what requires approvals changes", 5, func(w *world, r *rand.Rand) string { return w.require(r) }},
	{"what a workspace's runs do changes", 3, func(w *world, r *rand.Rand) string {
		value := fmt.Sprint(r.IntN(3))
		return w.people.put(r, "environment "+value, func(ws *api.Workspace) { ws.Environment = map[string]string{"A": value} })
	}},
	{"the control plane crashes again and again", 3, func(w *world, r *rand.Rand) string {
		end, each := w.clock+between(r, 3*time.Minute, 25*time.Minute), between(r, 15*time.Second, 110*time.Second)
		down := between(r, 0, each/2)
		var crash func()
		crash = func() {
			if w.clock >= end || w.healed {
				return
			}
			w.cp.crash(w.clock + down)
			if w.alone { // a server makes a pass when it begins; a function, when its schedule says so
				w.after(down, "begins again", w.pass)
			}
			w.after(each, "crash", crash)
		}
		crash()
		return fmt.Sprintf("the control plane crashes every %s until %s, and is away for %s then", each, clockText(end), down)
	}},
	{"the control plane's clock steps", 3, func(w *world, r *rand.Rand) string {
		return w.cp.stepBy(between(r, -20*time.Minute, 20*time.Minute))
	}},
	{"the control plane's clock steps while a task is cut off", 3, func(w *world, r *rand.Rand) string {
		in, d := between(r, time.Minute, 50*time.Minute), between(r, time.Minute, 20*time.Minute)
		return aTask(w, r, func(t *task) string {
			t.cut = max(t.cut, w.clock+90*time.Minute)
			w.after(in, "clock steps", func() { w.cp.stepBy(d) })
			return fmt.Sprintf("%s is cut off from the relay, and in %s the control plane's clock steps by %s", t.ref, in, d)
		})
	}},
}
