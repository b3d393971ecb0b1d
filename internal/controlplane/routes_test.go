package controlplane_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// newPool makes a pool and returns it as a caller.
func (w *world) newPool(name string, change ...func(*api.PoolSettings)) controlplane.Principal {
	w.t.Helper()
	several := true
	in := api.PoolSettings{Name: &name, AllowMultipleInstances: &several}
	for _, c := range change {
		c(&in)
	}
	made, err := w.plane.CreatePool(w.ctx(), w.admin, "", in)
	w.must(err)
	who, err := w.plane.Authenticate(w.ctx(), made.Token)
	w.must(err)
	return who
}

func labelled(labels ...string) func(*api.PoolSettings) {
	return func(s *api.PoolSettings) { s.Labels = &labels }
}

func wants(labels ...string) func(*api.Workspace) {
	return func(ws *api.Workspace) { ws.Labels = labels }
}

// stored changes a record in place, past the rules.
func stored[T any](w *world, k store.Key, change func(*T)) {
	w.t.Helper()
	for try := range 100 {
		found, err := w.store.Get(w.ctx(), k)
		if err != nil {
			continue
		}
		var v T
		version := store.Absent
		if len(found) > 0 {
			w.must(record.DecodeInto(found[0], &v))
			version = found[0].Version
		}
		change(&v)
		w.commit(fmt.Sprintf("stored %d %s", try, record.Random(9)), store.Put(record.Encode(k, v), version))
		return
	}
	w.t.Fatal("the store stays busy")
}

// project writes a project as a change of it does that dies before it has routed anything again.
func (w *world) project(name, parent, poolID string) {
	w.t.Helper()
	stored(w, record.ProjectKey("default", name), func(p *record.Project) { p.Name, p.Parent, p.PoolID = name, parent, poolID })
	w.raise()
}

// defaultPool is the same for the default pool of the organization.
func (w *world) defaultPool(id string) {
	w.t.Helper()
	stored(w, record.OrganizationKey("default"), func(o *record.Organization) { o.DefaultPool = id })
	w.raise()
}

func (w *world) raise() {
	w.t.Helper()
	stored(w, record.RoutesKey("default"), func(r *record.Routes) { r.Epoch++ })
	stored(w, record.ReroutingKey("default"), func(r *record.Rerouting) { *r = record.Rerouting{Epoch: 1} })
}

func (w *world) claimFor(who controlplane.Principal, instance string, n int) (ids []string) {
	w.t.Helper()
	out, err := w.plane.Claim(w.ctx(), who, api.Claim{Instance: instance, Max: n})
	w.must(err)
	for _, j := range out.Jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// under lists the ids of the claimable runs under a key.
func (w *world) under(key string) (ids []string) {
	w.t.Helper()
	for _, t := range workflow.Types() {
		page, err := w.store.Range(w.ctx(), store.Scan{Part: record.ClaimPart(key, t), Limit: 1000})
		w.must(err)
		for _, r := range page.Records {
			e, err := record.Decode[record.Entry](r)
			w.must(err)
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func (w *world) waitsFor(id string) string {
	w.t.Helper()
	why, err := w.plane.Why(w.ctx(), w.admin, id)
	w.must(err)
	return why.Waiting
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestRoute_WaitingWorkFollowsItsProject(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		blue := w.newPool("blue")
		w.project("eu", record.GlobalProject, "")
		w.workspace("net", inProject("eu"))
		wf := w.submit("net", workflow.Update)
		waiting := w.submit("net", workflow.Update)
		w.project("eu", record.GlobalProject, blue.PoolID) // and nobody routes anything
		if text := w.waitsFor(wf.ID); !strings.Contains(text, "pool blue") {
			t.Errorf("it waits for %q, want pool blue", text)
		}
		same(t, "the old pool claims", w.claimFor(w.pool, "one", 10), nil) // it repairs the entries that it refuses
		same(t, "under the new pool", w.under(record.PoolRoute(blue.PoolID)), []string{wf.ID})
		same(t, "the new pool claims", w.claimFor(blue, "b", 10), []string{wf.ID})
		if got := w.show(wf.ID).Pool; got != "blue" {
			t.Errorf("it is claimed by pool %q, want blue", got)
		}
		if got := w.show(waiting.ID).Pool; got != "blue" {
			t.Errorf("the waiting one would get pool %q, want blue", got)
		}
	})
}

func TestRoute_LabelsFirstClaimWins(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		a, b := w.newPool("gpu-a", labelled("gpu", "eu")), w.newPool("gpu-b", labelled("gpu"))
		w.newPool("ssd", labelled("ssd"))
		w.workspace("net", wants("gpu"))
		w.workspace("far", wants("tpu", "gpu"))
		one, two, none := w.submit("net", workflow.Preview), w.submit("net", workflow.Preview), w.submit("far", workflow.Update)
		if got := w.show(one.ID).Pool; got != "" {
			t.Errorf("a run that wants labels has pool %q before its claim", got)
		}
		if text := w.waitsFor(one.ID); !strings.Contains(text, "any pool with labels gpu") || !strings.Contains(text, "gpu-a, gpu-b") {
			t.Errorf("it waits for %q", text)
		}
		if text := w.waitsFor(none.ID); !strings.Contains(text, "any pool with labels gpu, tpu: none") {
			t.Errorf("it waits for %q", text)
		}
		same(t, "the default pool claims", w.claimFor(w.pool, "one", 10), nil)
		same(t, "pool a claims", w.claimFor(a, "a", 1), []string{one.ID})
		same(t, "pool b claims", w.claimFor(b, "b", 10), []string{two.ID})
		if got := w.show(two.ID).Pool; got != "gpu-b" {
			t.Errorf("it was claimed by pool %q, want gpu-b", got)
		}
		// A claim that lapses goes back under the labels.
		w.clock.advance(2 * time.Minute)
		w.pass()
		same(t, "pool b claims the lapsed runs", w.claimFor(b, "b", 10), []string{one.ID, two.ID})
		// The pool loses its label: what waits is not its any more.
		w.workspace("web", wants("gpu"))
		wf := w.submit("web", workflow.Update)
		_, err := w.plane.UpdatePool(w.ctx(), w.admin, "gpu-a", api.PoolSettings{Labels: &[]string{"eu"}})
		w.must(err)
		same(t, "pool a claims", w.claimFor(a, "a", 10), nil)
		same(t, "pool b claims", w.claimFor(b, "b", 10), []string{wf.ID})
	})
}

func TestRoute_LabelledPoolsMustBeAssigned(t *testing.T) {
	w := newWorld(t, memory.New())
	no := false
	a := w.newPool("gpu-a", labelled("gpu"), func(s *api.PoolSettings) { s.AssignedToAll, s.AssignedStacks = &no, &[]string{"prod"} })
	w.workspace("net", wants("gpu"))
	w.workspace("app", wants("gpu"), func(ws *api.Workspace) { ws.Stack = "prod" })
	net, app := w.submit("net", workflow.Update), w.submit("app", workflow.Update)
	same(t, "it claims", w.claimFor(a, "a", 10), []string{app.ID})
	// The other one gets the stack while it waits.
	w.workspace("net", wants("gpu"), func(ws *api.Workspace) { ws.Stack = "prod" })
	same(t, "it claims then", w.claimFor(a, "a", 10), []string{net.ID})
}

func TestRoute_APinnedRunIsClaimedByItsInstance(t *testing.T) {
	w := newWorld(t, memory.New())
	blue := w.newPool("blue")
	w.workspace("net", func(ws *api.Workspace) { ws.Pool, ws.Runner = "blue", "two" })
	wf := w.submit("net", workflow.Update)
	if text := w.waitsFor(wf.ID); !strings.Contains(text, "runner two of pool blue, which has not polled yet") {
		t.Errorf("it waits for %q", text)
	}
	same(t, "another instance claims", w.claimFor(blue, "one", 10), nil)
	same(t, "an instance of that name in another pool claims", w.claimFor(w.pool, "two", 10), nil)
	same(t, "its instance claims", w.claimFor(blue, "two", 10), []string{wf.ID})
	second := w.submit("net", workflow.Preview)
	w.workspace("net", func(ws *api.Workspace) { ws.Pool = "blue" })
	same(t, "any instance claims a run that is no longer pinned", w.claimFor(blue, "one", 10), []string{second.ID})
}

func TestRoute_AWorkspaceMovesWithMoreThanACommitMoves(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		const n = 100
		blue := w.newPool("blue")
		many := func(ws *api.Workspace) { ws.MaxActive = n }
		w.workspace("net", many)
		w.workspace("web")
		var want []string
		for range n {
			want = append(want, w.submit("net", workflow.Preview).ID)
		}
		web := w.submit("web", workflow.Update).ID
		claimed := w.claimFor(w.pool, "one", 3) // these stay where they are
		w.workspace("net", many, func(ws *api.Workspace) { ws.Pool = "blue" })
		same(t, "left in the old pool", w.under(record.PoolRoute(w.pool.PoolID)), []string{web})
		var got []string
		for some := w.claimFor(blue, "b", 50); len(some) > 0; some = w.claimFor(blue, "b", 50) {
			got = append(got, some...)
		}
		same(t, "the new pool claims the rest", append(got, claimed...), want)
		same(t, "the old pool claims its own runs", w.claimFor(w.pool, "one", 50), []string{web})
	})
}

// died ends a call after some commits, as if its process had died.
type died struct {
	store.Store
	left int // commits; negative means that it lives
}

func (d *died) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if d.left == 0 {
		return context.Canceled
	}
	d.left--
	return d.Store.Commit(ctx, id, ops...)
}

func TestRoute_WhoeverDiesThePassFinishes(t *testing.T) {
	for after := range 6 {
		t.Run(fmt.Sprintf("after %d commits", after+1), func(t *testing.T) {
			st := &died{Store: memory.New(), left: -1}
			w := newWorld(t, st)
			w.newPool("gpu", labelled("gpu"))
			ssd := w.newPool("ssd", labelled("ssd"))
			const n = 70
			var want []string
			for i := range 3 {
				name := fmt.Sprintf("ws%d", i)
				w.workspace(name, wants("gpu"), func(ws *api.Workspace) { ws.MaxActive = n })
			}
			for range n {
				want = append(want, w.submit("ws0", workflow.Preview).ID)
			}
			want = append(want, w.submit("ws1", workflow.Update).ID)
			st.left = after + 1
			_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, api.Workspace{
				Name: "ws0", RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true"}}, MaxActive: n, Labels: []string{"ssd"},
			})
			t.Logf("the change answered: %v", err)
			st.left = -1
			w.pass()
			same(t, "left under the old key", w.under(record.LabelRoute([]string{"gpu"})), want[n:])
			same(t, "under the new key", w.under(record.LabelRoute([]string{"ssd"})), slices.Clone(want[:n]))
			if found, err := st.Get(w.ctx(), record.ReroutingKey("default")); err != nil || len(found) > 0 {
				t.Errorf("the rerouting is not over: %v %v", found, err)
			}
			got := w.claimFor(ssd, "s", 50)
			same(t, "the new pool claims them all", append(got, w.claimFor(ssd, "s", 50)...), want[:n])
		})
	}
}

func TestRoute_ASecondChangeBeginsAnew(t *testing.T) {
	w := newWorld(t, memory.New())
	blue, red := w.newPool("blue"), w.newPool("red")
	var ids []string
	for i := range 5 {
		name := fmt.Sprintf("ws%d", i)
		w.workspace(name)
		ids = append(ids, w.submit(name, workflow.Update).ID)
	}
	w.defaultPool(blue.PoolID)
	same(t, "the old pool claims", w.claimFor(w.pool, "one", 1), nil) // routes them
	w.defaultPool(red.PoolID)
	w.pass()
	for _, key := range []string{w.pool.PoolID, blue.PoolID} {
		same(t, "left behind", w.under(record.PoolRoute(key)), nil)
	}
	same(t, "the last default claims", w.claimFor(red, "r", 10), ids)
}

func TestPool_DeletedDefaultHandsWorkToTheBuiltIn(t *testing.T) {
	w := newWorld(t, memory.New())
	blue := w.newPool("blue")
	w.workspace("net")
	w.defaultPool(blue.PoolID)
	wf := w.submit("net", workflow.Update)
	if wf.Pool != "blue" {
		t.Fatalf("it goes to pool %q, want blue", wf.Pool)
	}
	w.must(w.plane.DeletePool(w.ctx(), w.admin, "blue"))
	_, err := w.plane.Pool(w.ctx(), w.admin, "blue")
	wantErr(t, err, workflow.ErrNotFound)
	same(t, "the built-in pool claims", w.claimFor(w.pool, "one", 10), []string{wf.ID})
	if next := w.submit("net", workflow.Preview); next.Pool != "default" {
		t.Errorf("the next one goes to pool %q", next.Pool)
	}
}

func TestPool_ThatAProjectHasIsNotDeleted(t *testing.T) {
	w := newWorld(t, memory.New())
	blue := w.newPool("blue")
	w.project("eu", record.GlobalProject, blue.PoolID)
	wantErr(t, w.plane.DeletePool(w.ctx(), w.admin, "blue"), workflow.ErrInUse)
}

// A claim has read a run, and its workspace is led to another pool before the claim commits.
func TestClaim_GetsNothingThatIsNotItsOwnAtTheCommit(t *testing.T) {
	for name, change := range map[string]func(w *world, blue controlplane.Principal){
		"the workspace names another pool": func(w *world, _ controlplane.Principal) {
			w.workspace("net", func(ws *api.Workspace) { ws.Pool = "blue" })
		},
		"another default pool": func(w *world, blue controlplane.Principal) { w.defaultPool(blue.PoolID) },
		"it is pinned": func(w *world, _ controlplane.Principal) {
			w.workspace("net", func(ws *api.Workspace) { ws.Runner = "other" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			blue := w.newPool("blue")
			w.workspace("net")
			wf := w.submit("net", workflow.Update)
			st.beforeCommit = moves(wf.ID, workflow.Claimed, func() { change(w, blue) })
			same(t, "claimed", w.claimFor(w.pool, "one", 10), nil)
			if st.beforeCommit != nil {
				t.Error("nothing changed meanwhile")
			}
			w.is(wf.ID, workflow.Pending, workflow.ReasonNone)
		})
	}
}

func TestWorkspace_LabelSetsOfAnOrganizationAreBounded(t *testing.T) {
	w := newWorld(t, memory.New())
	for i := range 64 {
		w.workspace(fmt.Sprintf("ws%d", i), wants(fmt.Sprintf("l%d", i)))
	}
	w.workspace("same", wants("l7"))
	put := func(labels ...string) error {
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, api.Workspace{Name: "more", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, Labels: labels})
		return err
	}
	wantErr(t, put("new"), workflow.ErrInUse)
	w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "ws7"))
	wantErr(t, put("new"), workflow.ErrInUse) // another one wants the same
	w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "same"))
	w.must(put("new"))
	// A claim of a pool that has them all reads them all.
	var all []string
	for i := 10; i < 30; i++ {
		all = append(all, fmt.Sprintf("l%d", i))
	}
	big := w.newPool("big", labelled(all...))
	var want []string
	for i := range 64 {
		if i != 7 {
			id := w.submit(fmt.Sprintf("ws%d", i), workflow.Update).ID
			if i >= 10 && i < 30 {
				want = append(want, id)
			}
		}
	}
	same(t, "it claims", w.claimFor(big, "b", 50), want)
}

func TestWorkspace_SettingsThatChoosePoolsAreChecked(t *testing.T) {
	w := newWorld(t, memory.New())
	for field, change := range map[string]func(*api.Workspace){
		"labels":    func(ws *api.Workspace) { ws.Labels, ws.Pool = []string{"a"}, "default" },
		"runner":    func(ws *api.Workspace) { ws.Labels, ws.Runner = []string{"a"}, "one" },
		"stack":     func(ws *api.Workspace) { ws.Stack = "a b" },
		"project":   func(ws *api.Workspace) { ws.Project = "nowhere" },
		"namespace": func(ws *api.Workspace) { ws.Namespace = strings.Repeat("n", 65) },
	} {
		ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}}
		change(&ws)
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
	operator := controlplane.Principal{Organization: "default", Name: "op", Audience: w.admin.Audience, Role: api.RoleOperator}
	w.workspace("net")
	ws, err := w.plane.Workspace(w.ctx(), w.admin, "net")
	w.must(err)
	ws.Labels = []string{"gpu"}
	_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
	wantErr(t, err, workflow.ErrForbidden)
}

func TestClaim_KeepsTheOrganizationsOwnLimit(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Preview)
	second := w.submit("net", workflow.Preview)
	stored(w, record.OrganizationKey("default"), func(o *record.Organization) { o.Limit = 1 })
	w.clock.advance(time.Minute)
	if n := len(w.claim(10)); n != 1 {
		t.Errorf("claimed %d, want 1", n)
	}
	if text := w.waitsFor(second.ID); !strings.Contains(text, "1 of 1 are in use") {
		t.Errorf("it waits for %q", text)
	}
}

// Nobody else has the plan that a run applies: it says so, and fails with that when its time is over.
func TestPool_ApplyNamesTheDeletedPoolOfItsPlan(t *testing.T) {
	w := newWorld(t, memory.New())
	builtIn, blue := w.pool, w.newPool("blue")
	w.defaultPool(blue.PoolID)
	w.guarded(required())
	made := w.asks(w.admin, workflow.Update)
	w.pool = blue
	w.plans(one)
	w.approves(w.person("bob"), made.ID)
	id := w.reviewOf(made.ID, api.ReviewApproved).Applies
	w.must(w.plane.DeletePool(w.ctx(), w.admin, "blue"))
	same(t, "the built-in pool claims", w.claimFor(builtIn, "one", 10), nil)
	const want = "a deleted pool, the only one with the plan that it applies"
	if got := w.waitsFor(id); !strings.HasPrefix(got, want) {
		t.Errorf("it waits for %q", got)
	}
	w.clock.advance(workflow.QueueTimeout + time.Second)
	w.pass()
	if got := w.is(id, workflow.Failed, workflow.ReasonExpiredInQueue); !strings.Contains(got.Detail, want) {
		t.Errorf("it failed with %q", got.Detail)
	}
}
