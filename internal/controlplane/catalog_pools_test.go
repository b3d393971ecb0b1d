package controlplane_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestPool_DeletedPoolServesLateRunsThenGoes(t *testing.T) {
	st := &between{Store: memory.New()}
	w := newWorld(t, st)
	blue, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("blue")})
	w.must(err)
	in := func(ws *api.Workspace) { ws.Pool = "blue" }
	var wf api.Workflow
	st.beforeCommit = writing(record.PoolKey("default", blue.Pool.ID), "", func() {
		w.workspace("net", in)
		wf = w.submit("net", workflow.Update)
	})
	w.must(w.plane.DeletePool(w.ctx(), w.admin, "blue"))
	status := func() string {
		t.Helper()
		p, err := w.plane.Pool(w.ctx(), w.admin, "blue")
		w.must(err)
		return p.Status
	}
	if got := status(); got != "closed" {
		t.Errorf("the pool is %s while work waits for it, want closed", got)
	}
	_, err = w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Preview})
	wantErr(t, err, workflow.ErrInUse)
	_, _, err = w.plane.PutWorkspace(w.ctx(), w.admin, api.Workspace{Name: "late", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, Pool: "blue"})
	wantErr(t, err, workflow.ErrInUse)

	why, err := w.plane.Why(w.ctx(), w.admin, wf.ID)
	if w.must(err); why.Code != "pool_deleted" || !strings.Contains(why.Waiting, "pool blue, which is being deleted") {
		t.Errorf("it waits for %q %q", why.Code, why.Waiting)
	}
	w.pool, err = w.plane.Authenticate(w.ctx(), blue.Token)
	w.must(err)
	w.pass() // it waits
	job, r := w.started()
	if job.ID != wf.ID {
		t.Fatalf("claimed %s, want %s", job.ID, wf.ID)
	}
	w.pass() // it runs
	if got := status(); got != "closed" {
		t.Errorf("the pool is %s while its work runs, want closed", got)
	}
	w.must(w.result(job, r, workflow.Succeeded))
	w.is(wf.ID, workflow.Succeeded, "")
	w.pass()
	_, err = w.plane.Pool(w.ctx(), w.admin, "blue")
	wantErr(t, err, workflow.ErrNotFound)
	if _, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "b", Max: 1}); err == nil {
		t.Error("the token of a pool that is gone still claims")
	}
	w.pass() // nothing of it is left to do
}

// The run of a closed pool ends while the pass looks at what is left of the pool, and the next one begins in that commit:
// the pool serves that one too. A project leads to the pool, so that no workspace names it.
func TestPool_ThatIsClosedServesWhatAnEndLetsBegin(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		st := &between{Store: w.store}
		w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now})
		builtIn := w.pool
		w.pool = w.newPool("blue")
		w.project("eu", record.GlobalProject, w.pool.PoolID)
		w.workspace("net", inProject("eu"))
		w.submit("net", workflow.Update)
		next := w.submit("net", workflow.Update)
		job, r := w.started()
		stored(w, record.PoolKey("default", w.pool.PoolID), func(p *record.Pool) { p.Closed = true })
		stored(w, record.ClosedKey("default", w.pool.PoolID), func(n *record.Name) { n.ID = w.pool.PoolID })
		of := record.ClaimPart(record.PoolRoute(w.pool.PoolID), workflow.Types()[len(workflow.Types())-1])
		st.afterRange = func(part string) func() {
			if part != of {
				return nil
			}
			return func() { w.must(w.result(job, r, workflow.Succeeded)) }
		}
		w.pass()
		if st.afterRange != nil { // the pass saw the run, and looked no further
			st.afterRange = nil
			w.must(w.result(job, r, workflow.Succeeded))
			w.pass()
		}
		if got := w.waitsFor(next.ID); !strings.Contains(got, "pool blue, which is being deleted") {
			t.Errorf("the next one waits for %q", got)
		}
		job, r = w.started()
		if job.ID != next.ID {
			t.Errorf("claimed %s, want %s", job.ID, next.ID)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		w.pass()
		w.pool = builtIn
		_, err := w.plane.Pool(w.ctx(), w.admin, "blue")
		wantErr(t, err, workflow.ErrNotFound)
	})
}

// A pool becomes the default while it is deleted, and a run is submitted to it: one of the two is refused, or sees the other.
func TestPool_ThatBecomesTheDefaultDuringItsDeletion(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		st := &between{Store: w.store}
		deletes := controlplane.New(st, controlplane.Config{Now: w.clock.now})
		w.newPool("blue")
		w.workspace("net")
		var wf api.Workflow
		st.afterGet = func(keys []store.Key) func() {
			if !slices.Contains(keys, record.OrganizationKey("default")) {
				return nil
			}
			return func() {
				_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{DefaultPool: ptr("blue")})
				w.must(err)
				wf = w.submit("net", workflow.Update)
			}
		}
		w.must(deletes.DeletePool(w.ctx(), w.admin, "blue"))
		o, err := w.plane.Organization(w.ctx(), w.admin)
		if w.must(err); o.DefaultPool != "" && o.DefaultPool != "default" {
			t.Errorf("the default is still pool %q", o.DefaultPool)
		}
		if job := w.claimOne(); job.ID != wf.ID {
			t.Errorf("the built-in pool claims %s, want %s", job.ID, wf.ID)
		}
		w.submit("net", workflow.Preview)
		_, err = w.plane.Pool(w.ctx(), w.admin, "blue")
		wantErr(t, err, workflow.ErrNotFound)
	})
}

func TestPool_RenameUpdatesRacingReferences(t *testing.T) {
	st := &between{Store: memory.New()}
	w := newWorld(t, st)
	blue, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("blue")})
	w.must(err)
	st.beforeCommit = writing(record.PoolKey("default", blue.Pool.ID), "", func() {
		w.workspace("net", func(ws *api.Workspace) { ws.Pool = "blue" })
		w.submit("net", workflow.Update)
	})
	_, err = w.plane.UpdatePool(w.ctx(), w.admin, "blue", api.PoolSettings{Name: ptr("green")})
	w.must(err)
	w.submit("net", workflow.Update)
	if ws, err := w.plane.Workspace(w.ctx(), w.admin, "net"); err != nil || ws.Pool != "green" {
		t.Errorf("workspace names pool %q (%v), want green", ws.Pool, err)
	}
	w.pool, err = w.plane.Authenticate(w.ctx(), blue.Token)
	w.must(err)
	for range 2 {
		job, r := w.started()
		w.must(w.result(job, r, workflow.Succeeded))
	}
}

// C1: rotation with overlap.
func TestPool_TokenRotationOverlaps(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		made, err := w.plane.CreatePool(w.ctx(), w.admin, "k", api.PoolSettings{Name: ptr("blue")})
		w.must(err)
		next, err := w.plane.RotatePoolToken(w.ctx(), w.admin, "blue", api.RotateToken{OverlapSeconds: 60})
		w.must(err)
		for _, token := range []string{made.Token, next.Token} {
			if who, err := w.plane.Authenticate(w.ctx(), token); err != nil || who.Pool != "blue" {
				t.Errorf("authenticated as %+v, %v", who, err)
			}
		}
		w.clock.advance(61 * time.Second)
		_, err = w.plane.Authenticate(w.ctx(), made.Token)
		wantErr(t, err, workflow.ErrRevoked)
		_, err = w.plane.Authenticate(w.ctx(), next.Token)
		w.must(err)
		w.must(w.plane.DeletePool(w.ctx(), w.admin, "blue"))
		_, err = w.plane.Authenticate(w.ctx(), next.Token)
		wantErr(t, err, workflow.ErrRevoked)
	})
}

func TestPool_NamesAreUniqueAndFollowTheRule(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("no spaces")})
		wantErr(t, err, workflow.ErrInvalid)
		_, err = w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{})
		wantErr(t, err, workflow.ErrInvalid)
		_, err = w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("blue")})
		w.must(err)
		_, err = w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("blue")})
		wantErr(t, err, workflow.ErrExists)
		_, err = w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("green")})
		w.must(err)
		_, err = w.plane.UpdatePool(w.ctx(), w.admin, "green", api.PoolSettings{Name: ptr("blue")})
		wantErr(t, err, workflow.ErrExists)
		_, err = w.plane.UpdatePool(w.ctx(), w.admin, "green", api.PoolSettings{Name: ptr("red")})
		w.must(err)
		_, err = w.plane.Pool(w.ctx(), w.admin, "green")
		wantErr(t, err, workflow.ErrNotFound)
		wantErr(t, w.plane.DeletePool(w.ctx(), w.admin, "default"), workflow.ErrInvalid)
	})
}

// C4 and C6.
func TestPool_ServesOnlyAssignedWorkspacesAndSaysWhy(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("blue"), AssignedWorkspaces: &[]string{"nte"}})
		if e, ok := errors.AsType[*workflow.Error](err); !ok || e.Field != "assigned_workspaces" || !strings.Contains(e.Message, `"nte"`) {
			t.Errorf("a slip of the pen: got %v, want a refusal that repeats it", err)
		}
		w.workspace("net")
		blue, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("blue"), AssignedWorkspaces: &[]string{"net"}})
		w.must(err)
		_, err = w.plane.UpdatePool(w.ctx(), w.admin, "blue", api.PoolSettings{AssignedWorkspaces: &[]string{"net", "nte"}})
		wantErr(t, err, workflow.ErrInvalid)
		for _, name := range []string{"net", "web"} {
			w.workspace(name, func(ws *api.Workspace) { ws.Pool = "blue" })
		}
		_, err = w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "web", Operation: workflow.Update})
		wantErr(t, err, workflow.ErrForbidden)
		if err == nil || !strings.Contains(err.Error(), "not assigned to workspace web") {
			t.Errorf("the refusal does not say why: %v", err)
		}
		wf := w.submit("net", workflow.Update)
		if jobs := w.claim(5); len(jobs) != 0 {
			t.Errorf("the default pool claimed another pool's work: %v", jobs)
		}
		who, err := w.plane.Authenticate(w.ctx(), blue.Token)
		w.must(err)
		// The assignment is removed while the workflow waits: it is not handed out, and why says so.
		_, err = w.plane.UpdatePool(w.ctx(), w.admin, "blue", api.PoolSettings{AssignedWorkspaces: &[]string{}})
		w.must(err)
		out, err := w.plane.Claim(w.ctx(), who, api.Claim{Instance: "b", Max: 5})
		w.must(err)
		if len(out.Jobs) != 0 {
			t.Errorf("claimed %v", out.Jobs)
		}
		why, err := w.plane.Why(w.ctx(), w.admin, wf.ID)
		w.must(err)
		if why.Code != "pool_not_assigned" {
			t.Errorf("why = %q", why.Code)
		}
		wantErr(t, w.plane.DeletePool(w.ctx(), w.admin, "blue"), workflow.ErrInUse)
		_, err = w.plane.UpdatePool(w.ctx(), w.admin, "blue", api.PoolSettings{AssignedToAll: ptr(true)})
		w.must(err)
		out, err = w.plane.Claim(w.ctx(), who, api.Claim{Instance: "b", Max: 5})
		w.must(err)
		if len(out.Jobs) != 1 {
			t.Errorf("claimed %d, want 1", len(out.Jobs))
		}
	})
}

// A pool that an admin assigns to a workspace is for that workspace, and not for a later one of its name.
func TestPool_AssignmentEndsWithItsWorkspace(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.madeProject("shop", "global")
		w.madeProject("web", "global")
		w.workspace("net", inProject("shop"))
		w.workspace("db", inProject("shop"))
		both := []string{"net", "db"}
		for _, name := range []string{"blue", "green"} {
			_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: &name, AssignedWorkspaces: &both})
			w.must(err)
		}
		assigned := func(want ...string) {
			t.Helper()
			for _, name := range []string{"blue", "green"} {
				pool, err := w.plane.Pool(w.ctx(), w.admin, name)
				w.must(err)
				if d := cmp.Diff(want, pool.AssignedWorkspaces); d != "" {
					t.Errorf("pool %s (-want +got):\n%s", name, d)
				}
			}
		}
		assigned("db", "net")
		before := w.idOf("net")
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"))
		assigned("db")

		eve := w.in(map[string]string{"web": api.RoleOperator})
		net := api.Workspace{Name: "net", Project: "web", RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"update": "true"}}}
		put := func(pool string) error {
			in := net
			in.Pool = pool
			_, _, err := w.plane.PutWorkspace(w.ctx(), eve, in)
			return err
		}
		wantErr(t, put("blue"), workflow.ErrForbidden)
		w.must(put(""))
		wantErr(t, put("blue"), workflow.ErrForbidden)
		// Neither does an assignment that was left behind count.
		left := record.Pool{Assigned: []record.Assigned{{ID: before, Name: "net"}}}
		after := left
		after.Assigned = []record.Assigned{{ID: w.idOf("net"), Name: "net"}}
		scope := record.Scope{ID: w.idOf("net"), Workspace: "net"}
		if left.AssignedTo(scope) || !after.AssignedTo(scope) {
			t.Error("an assignment goes by the name")
		}
		// One that an admin makes anew does.
		_, err := w.plane.AssignPool(w.ctx(), w.admin, "blue", api.AssignmentChange{Add: api.Assignments{Workspaces: []string{"net"}}})
		w.must(err)
		w.must(put("blue"))
		// It goes with the workspace into another project.
		moved := net
		moved.Project, moved.Pool = "shop", "blue"
		_, _, err = w.plane.PutWorkspace(w.ctx(), w.admin, moved)
		w.must(err)
		w.submit("net", workflow.Update)
	})
}

func TestPool_DisabledTypesAndInstances(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{IsDisabled: ptr(true)})
		w.must(err)
		out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 5})
		w.must(err)
		if len(out.Jobs) != 0 || !strings.Contains(out.Note, "disabled") {
			t.Errorf("claim = %+v", out)
		}
		if why, err := w.plane.Why(w.ctx(), w.admin, wf.ID); err != nil || why.Code != "pool_disabled" {
			t.Errorf("why = %+v, %v", why, err)
		}
		_, err = w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{IsDisabled: ptr(false), EnabledTypes: &[]workflow.Type{workflow.InsightsScan}})
		w.must(err)
		if jobs := w.claim(5); len(jobs) != 0 {
			t.Errorf("a pool for scans claimed %v", jobs)
		}
		// A second instance with another name is refused until the first has gone.
		_, err = w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "two", Max: 5})
		wantErr(t, err, workflow.ErrInUse)
		_, err = w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{AllowMultipleInstances: ptr(true)})
		w.must(err)
		_, err = w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "two", Max: 5})
		w.must(err)
	})
}

// C7.
func TestPool_StatusAndRunners(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		status := func() string {
			t.Helper()
			p, err := w.plane.Pool(w.ctx(), w.admin, "default")
			w.must(err)
			return p.Status
		}
		if got := status(); got != "inactive" {
			t.Errorf("status %s before the first poll", got)
		}
		w.claim(1)
		if got := status(); got != "healthy" {
			t.Errorf("status %s after a poll", got)
		}
		w.clock.advance(10 * time.Minute)
		if got := status(); got != "offline" {
			t.Errorf("status %s after ten minutes", got)
		}
		count := func() int {
			t.Helper()
			r, err := w.plane.Runners(w.ctx(), w.admin, "default")
			w.must(err)
			return len(r.Items)
		}
		if got := count(); got != 1 {
			t.Errorf("%d runners, want 1", got)
		}
		w.workspace("net")
		waiting := w.submit("net", workflow.Update)
		says := func(what, id, want string) {
			t.Helper()
			why, err := w.plane.Why(w.ctx(), w.admin, id)
			w.must(err)
			if strings.Contains(why.Waiting, "nobody has polled since 12:00:00 UTC") != (want != "") || !strings.Contains(why.Waiting, want) {
				t.Errorf("why of %s: %q, want it to say %q", what, why.Waiting, want)
			}
		}
		says("one that waits", waiting.ID, "is its agent running?")
		job, r := w.started() // its claim is a sign of the pool
		says("one that runs", job.ID, "")
		w.live(7 * time.Minute)
		why, err := w.plane.Why(w.ctx(), w.admin, job.ID)
		w.must(err)
		if !strings.Contains(why.Waiting, "last sign of life at 12:10:00 UTC; nobody has polled for pool default since 12:10:00 UTC") {
			t.Errorf("why of one that is silent, as its pool: %q", why.Waiting)
		}
		_, err = w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		w.must(err)
		says("one whose pool is full", job.ID, "")
		w.clock.advance(2 * time.Hour)
		if got := count(); got != 0 {
			t.Errorf("%d runners after two hours, want 0", got)
		}
	})
}

func TestWakeTarget_IsSetByAnAdminAndShown(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		arn := "arn:aws:lambda:eu-central-1:123456789012:function:dayfly-wake-prod_1:live"
		_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{WakeTarget: &arn})
		if e, ok := errors.AsType[*workflow.Error](err); !ok || !errors.Is(err, workflow.ErrUnsupported) || e.Field != "wake_target" {
			t.Errorf("where nothing wakes: got %v, want a refusal that names wake_target", err)
		}
		none := ""
		_, err = w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{WakeTarget: &none})
		w.must(err)
		w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, Waker: &waker{}})
		for _, target := range []string{"dayfly-wake-a", arn, arn, ""} {
			pool, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{WakeTarget: &target})
			w.must(err)
			if pool.WakeTarget != target {
				t.Errorf("target %q, want %q", pool.WakeTarget, target)
			}
			w.target(target)
		}
		set := arn
		operator := w.admin
		operator.Role = api.RoleOperator
		_, err = w.plane.UpdatePool(w.ctx(), operator, "default", api.PoolSettings{WakeTarget: &set})
		wantErr(t, err, workflow.ErrForbidden)
		for _, bad := range []string{
			"poller", "dayfly-wake-", "x-dayfly-wake-a", "dayfly-wake-" + strings.Repeat("a", 60), "dayfly-wake-a/b",
			"arn:aws:lambda:eu-central-1:123456789012:function:poller", "arn:aws:sqs:eu-central-1:123456789012:dayfly-wake-a",
			"arn:aws:lambda:eu-central-1:1:function:dayfly-wake-a", "https://example.com/dayfly-wake-a", arn + "\n",
		} {
			_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{WakeTarget: &bad})
			wantErr(t, err, workflow.ErrInvalid)
		}
		page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 1})
		w.must(err)
		if e := page.Items[0]; e.Outcome != "refused" && !strings.Contains(e.Detail, "wake_target") {
			t.Errorf("audited as %+v", e)
		}
		name := "extra"
		_, err = w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: &name, WakeTarget: &set})
		w.must(err)
		pool, err := w.plane.Pool(w.ctx(), w.admin, name)
		w.must(err)
		if pool.WakeTarget != set {
			t.Errorf("target %q", pool.WakeTarget)
		}
		w.must(w.plane.DeletePool(w.ctx(), w.admin, name))
	})
}
