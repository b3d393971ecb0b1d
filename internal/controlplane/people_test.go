package controlplane_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func ptr[T any](v T) *T { return &v }

// as makes a principal of a role.
func (w *world) as(role string) controlplane.Principal {
	w.t.Helper()
	tok, err := w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: role, Role: role})
	w.must(err)
	who, err := w.plane.Authenticate(w.ctx(), tok.Value)
	w.must(err)
	return who
}

// C16: each call asks for its role, below HTTP, and a refusal is audited.
func TestRoles_EachCallNeedsItsRole(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	wf := w.submit("net", workflow.Update)
	viewer, operator := w.as(api.RoleViewer), w.as(api.RoleOperator)
	for name, call := range map[string]struct {
		needs string
		do    func(who controlplane.Principal) error
	}{
		"submit": {api.RoleOperator, func(who controlplane.Principal) error {
			_, err := w.plane.Submit(w.ctx(), who, "", api.Submit{Workspace: "net", Operation: workflow.Preview})
			return err
		}},
		"retry":  {api.RoleOperator, func(who controlplane.Principal) error { _, err := w.plane.Retry(w.ctx(), who, "", wf.ID); return err }},
		"cancel": {api.RoleOperator, func(who controlplane.Principal) error { _, err := w.plane.Cancel(w.ctx(), who, wf.ID); return err }},
		"apply": {api.RoleOperator, func(who controlplane.Principal) error {
			_, _, err := w.plane.PutWorkspace(w.ctx(), who, api.Workspace{Name: "x", Engine: "command", Commands: map[string]string{"update": "true"}, Source: api.Source{Directory: "/x"}})
			return err
		}},
		"pool create": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.CreatePool(w.ctx(), who, "", api.PoolSettings{Name: ptr("pool-" + who.Role)})
			return err
		}},
		"pool update": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.UpdatePool(w.ctx(), who, "default", api.PoolSettings{Description: ptr("x")})
			return err
		}},
		"pool delete": {api.RoleAdmin, func(who controlplane.Principal) error { return w.plane.DeletePool(w.ctx(), who, "default") }},
		"rotate": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.RotatePoolToken(w.ctx(), who, "default", api.RotateToken{OverlapSeconds: 60})
			return err
		}},
		"token": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.CreateToken(w.ctx(), who, api.NewToken{Name: "x", Role: api.RoleViewer})
			return err
		}},
		"tokens":    {api.RoleAdmin, func(who controlplane.Principal) error { _, err := w.plane.Tokens(w.ctx(), who, "", 0); return err }},
		"revoke":    {api.RoleAdmin, func(who controlplane.Principal) error { return w.plane.RevokeToken(w.ctx(), who, "tok_x") }},
		"audit":     {api.RoleAdmin, func(who controlplane.Principal) error { _, err := w.plane.Audit(w.ctx(), who, "", 0); return err }},
		"delete ws": {api.RoleAdmin, func(who controlplane.Principal) error { return w.plane.DeleteWorkspace(w.ctx(), who, "net") }},
		"unlock": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.Unlock(w.ctx(), who, "net", api.Unlock{Workflow: wf.ID})
			return err
		}},
		"slot": {api.RoleViewer, func(who controlplane.Principal) error { _, err := w.plane.Slot(w.ctx(), who, "net"); return err }},
		"show": {api.RoleViewer, func(who controlplane.Principal) error { _, err := w.plane.Workflow(w.ctx(), who, wf.ID); return err }},
		"logs": {api.RoleViewer, func(who controlplane.Principal) error {
			_, err := w.plane.Logs(w.ctx(), who, wf.ID, 0, 0, 0, 0)
			return err
		}},
		"why": {api.RoleViewer, func(who controlplane.Principal) error { _, err := w.plane.Why(w.ctx(), who, wf.ID); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, who := range []controlplane.Principal{w.pool, viewer, operator} {
				allowed := who.Audience == "user" && (call.needs == api.RoleViewer || call.needs == api.RoleOperator && who.Role == api.RoleOperator)
				err := call.do(who)
				if !allowed {
					wantErr(t, err, workflow.ErrForbidden)
				} else if err != nil && strings.Contains(err.Error(), "needs the role") {
					t.Errorf("%s was refused: %v", who.Role, err)
				}
			}
		})
	}
	page, err := w.plane.Audit(w.ctx(), w.admin, "", 0)
	w.must(err)
	refused := 0
	for _, e := range page.Items {
		if e.Outcome == "refused" {
			refused++
		}
	}
	if refused == 0 || len(page.Items) == refused {
		t.Errorf("the audit trail has %d refusals among %d events", refused, len(page.Items))
	}
	for _, call := range []func() error{
		func() error { _, err := w.plane.Claim(w.ctx(), w.admin, api.Claim{Instance: "x", Max: 1}); return err },
		func() error { _, err := w.plane.Held(w.ctx(), w.admin, "", ""); return err },
		func() error {
			_, err := w.plane.States(w.ctx(), w.admin, api.StatesQuery{IDs: []string{wf.ID}})
			return err
		},
	} {
		wantErr(t, call(), workflow.ErrForbidden)
	}
	wantErr(t, w.plane.Queued(w.ctx(), w.admin, wf.ID, api.Attempt{Attempt: 1}), workflow.ErrNotFound)
}

func TestTokens_LiveUntilTheyExpireOrAreRevoked(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		tok, err := w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "ci", Role: api.RoleOperator, ExpiresSeconds: 3600})
		w.must(err)
		if !strings.HasPrefix(tok.Value, "dfu_") || len(tok.Value) != 47 {
			t.Errorf("token value has the form %q...", tok.Value[:4])
		}
		who, err := w.plane.Authenticate(w.ctx(), tok.Value)
		if err != nil || who.Name != "ci" || who.Role != api.RoleOperator {
			t.Errorf("authenticated as %+v, %v", who, err)
		}
		w.clock.advance(time.Hour)
		_, err = w.plane.Authenticate(w.ctx(), tok.Value)
		wantErr(t, err, workflow.ErrRevoked)
		tok, err = w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "ci", Role: api.RoleOperator})
		w.must(err)
		w.must(w.plane.RevokeToken(w.ctx(), w.admin, tok.Token.ID))
		_, err = w.plane.Authenticate(w.ctx(), tok.Value)
		wantErr(t, err, workflow.ErrRevoked)
		for _, bad := range []string{"", "dfu_", "nonsense", strings.Repeat("x", 10000)} {
			_, err = w.plane.Authenticate(w.ctx(), bad)
			wantErr(t, err, workflow.ErrUnauthenticated)
		}
		// No value is stored: what the store holds opens nothing.
		page, err := w.plane.Tokens(w.ctx(), w.admin, "", 0)
		w.must(err)
		if len(page.Items) != 3 {
			t.Errorf("%d tokens are listed, want 3: %+v", len(page.Items), page.Items)
		}
	})
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
		// Taken away while it waits: it is not handed out, and why says so.
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
		// A second instance of another name is refused, until the first is gone.
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
		if !strings.Contains(why.Waiting, "last sign of life at 12:10:00 UTC; for pool default nobody has polled since 12:10:00 UTC") {
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

// L11: a waiting claim is woken by the submission.
func TestClaim_WaitsAndIsWokenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		plane := controlplane.New(st, controlplane.Config{})
		w := &world{t: t, plane: plane, store: st}
		token, err := plane.Bootstrap(t.Context(), "default")
		w.must(err)
		w.admin, err = plane.Authenticate(t.Context(), token)
		w.must(err)
		poolToken, err := plane.EnsurePoolToken(t.Context(), "default", "default", "agent")
		w.must(err)
		w.pool, err = plane.Authenticate(t.Context(), poolToken)
		w.must(err)
		w.workspace("net")
		began := time.Now()
		got := make(chan int, 1)
		wait := func() {
			out, err := plane.Claim(t.Context(), w.pool, api.Claim{Instance: "one", Max: 1, WaitSeconds: 20})
			if err != nil {
				t.Error(err)
			}
			got <- len(out.Jobs)
		}
		go wait()
		if n := <-got; n != 0 || time.Since(began) < 20*time.Second {
			t.Errorf("an idle claim answered %d jobs after %s", n, time.Since(began))
		}
		go wait()
		synctest.Wait()
		began = time.Now()
		w.submit("net", workflow.Update)
		if n := <-got; n != 1 || time.Since(began) > 200*time.Millisecond {
			t.Errorf("a woken claim answered %d jobs after %s", n, time.Since(began))
		}
	})
}

// L11: where memory is not shared, the wake mark does it within a second.
func TestClaim_IsWokenByTheMarkOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		w := &world{t: t, plane: controlplane.New(st, controlplane.Config{}), store: st}
		woken := &waker{}
		other := controlplane.New(st, controlplane.Config{Waker: woken})
		token, err := w.plane.Bootstrap(t.Context(), "default")
		w.must(err)
		w.admin, err = w.plane.Authenticate(t.Context(), token)
		w.must(err)
		poolToken, err := w.plane.EnsurePoolToken(t.Context(), "default", "default", "agent")
		w.must(err)
		w.pool, err = w.plane.Authenticate(t.Context(), poolToken)
		w.must(err)
		target := "dayfly-wake-default"
		_, err = controlplane.New(st, controlplane.Config{Waker: &waker{}}).UpdatePool(t.Context(), w.admin, "default", api.PoolSettings{WakeTarget: &target})
		w.must(err)
		w.workspace("net")
		w.workspace("web")
		got := make(chan int, 1)
		go func() {
			out, err := w.plane.Claim(t.Context(), w.pool, api.Claim{Instance: "one", Max: 1, WaitSeconds: 20})
			if err != nil {
				t.Error(err)
			}
			got <- len(out.Jobs)
		}()
		synctest.Wait()
		began := time.Now()
		for _, ws := range []string{"net", "web"} {
			if _, err := other.Submit(t.Context(), w.admin, "", api.Submit{Workspace: ws, Operation: workflow.Update}); err != nil {
				t.Fatal(err)
			}
		}
		if n := <-got; n != 1 || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("answered %d jobs after %s", n, time.Since(began))
		}
		if got := woken.all(); len(got) != 1 || got[0] != "dayfly-wake-default" {
			t.Errorf("woken %v, want the pool once: the second submission found the mark set", got)
		}
	})
}

func TestStates_WaitEndsAtCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		w := newWorld(t, st)
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		w.started()
		got := make(chan api.States, 1)
		go func() {
			s, err := w.plane.States(t.Context(), w.pool, api.StatesQuery{IDs: []string{wf.ID}, WaitSeconds: 20})
			if err != nil {
				t.Error(err)
			}
			got <- s
		}()
		synctest.Wait()
		began := time.Now()
		_, err := w.plane.Cancel(t.Context(), w.admin, wf.ID)
		w.must(err)
		if s := <-got; !s.Jobs[0].Cancel || time.Since(began) > 200*time.Millisecond {
			t.Errorf("answered %+v after %s", s, time.Since(began))
		}
	})
}

// R5: a log is complete and in order whatever was sent twice or too early.
func TestLogs_NothingLostNothingDoubled(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		lines := func(from, n int) api.Logs {
			in := api.Logs{First: int64(from)}
			for i := range n {
				in.Lines = append(in.Lines, api.LogLine{Text: "line " + string(rune('a'+from+i))})
			}
			return in
		}
		send := func(from, n int) (int64, error) {
			out, err := w.plane.AppendLogs(w.ctx(), job.Token, r, lines(from, n))
			return out.Next, err
		}
		for _, step := range []struct{ from, n, next int }{{0, 3, 3}, {0, 3, 3}, {2, 4, 6}, {1, 2, 6}, {6, 1, 7}} {
			if next, err := send(step.from, step.n); err != nil || next != int64(step.next) {
				t.Fatalf("send %+v = %d, %v", step, next, err)
			}
		}
		_, err := send(9, 1)
		wantErr(t, err, workflow.ErrLogGap)
		var text strings.Builder
		var offset int64
		for range 4 {
			page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 0, offset, 2, 0)
			w.must(err)
			for _, l := range page.Lines {
				text.WriteString(strings.TrimPrefix(l.Text, "line "))
			}
			offset = page.Next
			if page.Done {
				t.Error("the log of a running workflow is done")
			}
		}
		if text.String() != "abcdefg" {
			t.Errorf("read %q", text.String())
		}
		_, err = w.plane.Result(w.ctx(), job.Token, r, api.Result{Outcome: workflow.Succeeded, LogEnd: 8})
		w.must(err)
		if page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 0, 7, 10, 0); err != nil || page.Done {
			t.Errorf("page = %+v, %v: a line is still to come", page, err)
		}
		if _, err := send(7, 1); err != nil { // late lines are taken
			t.Error(err)
		}
		if page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 0, 0, 0, 0); err != nil || !page.Done || len(page.Lines) != 8 {
			t.Errorf("page = %+v, %v", page, err)
		}
		w.clock.advance(workflow.ReportRetention - time.Minute)
		if _, err := send(8, 1); err != nil {
			t.Errorf("as long as its result might have been on its way: %v", err)
		}
		w.clock.advance(time.Minute)
		_, err = send(9, 1)
		wantErr(t, err, workflow.ErrOver)
	})
}

// The end of a long detail is what to do about it: who looks at one workflow sees all of it.
func TestWorkflow_ShowsTheWholeDetailOfItsResult(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		want := strings.Repeat("the state is locked; ", 20) + "release it with: force-unlock"
		_, err := w.plane.Result(w.ctx(), job.Token, r, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: want})
		w.must(err)
		if got := w.show(wf.ID).Detail; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		why, err := w.plane.Why(w.ctx(), w.admin, wf.ID)
		w.must(err)
		if !strings.HasSuffix(why.Summary, want) {
			t.Errorf("why says %q, want all of %q", why.Summary, want)
		}
		page, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{})
		w.must(err)
		for _, listed := range page.Items { // a list may lag
			if len(listed.Detail) > 200 {
				t.Errorf("in the list: got %q, want its beginning", listed.Detail)
			}
		}
	})
}

func TestReports_AboutAnotherPoolsOrUnknownJobsChangeNothing(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job := w.claimOne()
		other, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("other")})
		w.must(err)
		who, err := w.plane.Authenticate(w.ctx(), other.Token)
		w.must(err)
		for _, err := range []error{
			w.plane.Queued(w.ctx(), who, job.ID, api.Attempt{Attempt: 1}),
			w.plane.Release(w.ctx(), who, job.ID, api.Release{Attempt: 1}),
			w.plane.Lost(w.ctx(), who, job.ID, api.Lost{Attempt: 1, Task: "t"}),
			w.plane.Launch(w.ctx(), who, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchFailed}),
			w.plane.Queued(w.ctx(), w.pool, "wf_nosuch", api.Attempt{Attempt: 1}),
			w.plane.Queued(w.ctx(), w.pool, "../../wf", api.Attempt{Attempt: 1}),
		} {
			wantErr(t, err, workflow.ErrNotFound)
		}
		wantErr(t, w.plane.Queued(w.ctx(), w.pool, job.ID, api.Attempt{Attempt: 7}), workflow.ErrInvalid)
		states, err := w.plane.States(w.ctx(), who, api.StatesQuery{IDs: []string{job.ID, "wf_x"}})
		w.must(err)
		if states.Jobs[0].Known || states.Jobs[1].Known {
			t.Errorf("another pool's job is known: %+v", states)
		}
		w.is(wf.ID, workflow.Claimed, "")
	})
}

func TestWorkspace_MistakesNameTheFieldAndChangeNothing(t *testing.T) {
	w := newWorld(t, memory.New())
	good := func() api.Workspace {
		return api.Workspace{Name: "net", Engine: api.EngineTerraform, Source: api.Source{Directory: "/src"}}
	}
	git := func(g api.GitSource) func(*api.Workspace) {
		return func(ws *api.Workspace) { ws.Source = api.Source{Git: &g} }
	}
	for name, c := range map[string]struct {
		field  string
		change func(*api.Workspace)
	}{
		"name":               {"name", func(ws *api.Workspace) { ws.Name = "../x" }},
		"project":            {"project", func(ws *api.Workspace) { ws.Project = "team" }},
		"engine":             {"engine", func(ws *api.Workspace) { ws.Engine = "pulumi" }},
		"commands":           {"commands", func(ws *api.Workspace) { ws.Commands = map[string]string{"update": "x"} }},
		"no command":         {"commands", func(ws *api.Workspace) { ws.Engine = api.EngineCommand }},
		"no source":          {"source", func(ws *api.Workspace) { ws.Source = api.Source{} }},
		"relative directory": {"source.directory", func(ws *api.Workspace) { ws.Source.Directory = "src" }},
		"traversal":          {"source.directory", func(ws *api.Workspace) { ws.Source.Directory = "/src/../etc" }},
		"git file":           {"source.git.url", git(api.GitSource{URL: "file:///etc"})},
		"git http":           {"source.git.url", git(api.GitSource{URL: "http://example.com/x"})},
		"git credentials":    {"source.git.url", git(api.GitSource{URL: "https://me:pw@example.com/x"})},
		"git token in query": {"source.git.url", git(api.GitSource{URL: "https://example.com/x?access_token=pw"})},
		"git token behind #": {"source.git.url", git(api.GitSource{URL: "https://example.com/x#pw"})},
		"git path":           {"source.git.path", git(api.GitSource{URL: "https://example.com/x", Path: "../../x"})},
		"git ref":            {"source.git.ref", git(api.GitSource{URL: "https://example.com/x", Ref: "--upload-pack=x"})},
		"ssh without key":    {"source.git.ssh_key_ref", git(api.GitSource{URL: "git@example.com:x/y"})},
		"ssh without host":   {"source.git.known_hosts", git(api.GitSource{URL: "git@example.com:x/y", SSHKeyRef: "file:key"})},
		"state":              {"state.kind", func(ws *api.Workspace) { ws.State = &api.State{Kind: "ftp"} }},
		"s3":                 {"state", func(ws *api.Workspace) { ws.State = &api.State{Kind: api.StateS3} }},
		"runtime":            {"max_runtime", func(ws *api.Workspace) { ws.MaxRuntime = "25h" }},
		"size":               {"size", func(ws *api.Workspace) { ws.Size = "huge" }},
		"explicit size":      {"size", func(ws *api.Workspace) { ws.Size = "2048/1024" }},
		"env":                {"environment", func(ws *api.Workspace) { ws.Environment = map[string]string{"A B": "x"} }},
		"env kept":           {"environment", func(ws *api.Workspace) { ws.Environment = map[string]string{"DAYFLY_TICKET": "x"} }},
		"secret both":        {"secrets[0]", func(ws *api.Workspace) { ws.Secrets = []api.Secret{{Env: "A", File: "b", Ref: "file:x"}} }},
		"secret path":        {"secrets[0].file", func(ws *api.Workspace) { ws.Secrets = []api.Secret{{File: "../b", Ref: "file:x"}} }},
		"secret value":       {"secrets[0].ref", func(ws *api.Workspace) { ws.Secrets = []api.Secret{{Env: "A", Ref: "hunter2-hunter2"}} }},
		"pool":               {"pool", func(ws *api.Workspace) { ws.Pool = "nosuch" }},
		"no version":         {"engine_version", func(ws *api.Workspace) { ws.Engine, ws.Commands, ws.EngineVersion = api.EngineTofu, nil, "abc" }},
		"half a constraint":  {"engine_version", func(ws *api.Workspace) { ws.Engine, ws.Commands, ws.EngineVersion = api.EngineTofu, nil, ">= 1.10," }},
	} {
		t.Run(name, func(t *testing.T) {
			ws := good()
			c.change(&ws)
			_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
			e, ok := err.(*workflow.Error) //nolint:errorlint // a refusal is not wrapped
			if !ok || e.Field != c.field {
				t.Errorf("error = %v, want one about %s", err, c.field)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Error("the error repeats what may be a secret")
			}
		})
	}
	page, err := w.plane.Workspaces(w.ctx(), w.admin, "", 0)
	w.must(err)
	if len(page.Items) != 0 {
		t.Errorf("mistakes left %d workspaces", len(page.Items))
	}
}

func TestWorkspace_SecretReferencesAreAnAdminsField(t *testing.T) {
	w := newWorld(t, memory.New())
	operator := w.as(api.RoleOperator)
	w.workspace("net", func(ws *api.Workspace) { ws.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:token"}} })
	ws, err := w.plane.Workspace(w.ctx(), operator, "net")
	w.must(err)
	ws.MaxRuntime = "2h"
	_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
	w.must(err)
	_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws) // that version is gone
	wantErr(t, err, workflow.ErrConflict)
	ws.Version = 0
	ws.Secrets[0].Ref = "file:somebody-elses"
	_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
	wantErr(t, err, workflow.ErrForbidden)
}

func TestWorkspace_TakesAnExplicitSizeToItsJob(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.Size = "2048/8192" })
	w.submit("net", workflow.Update)
	job, _ := w.started()
	if job.Size != "2048/8192" {
		t.Errorf("the job has size %q", job.Size)
	}
}

// What does not fit into a record is a refusal that the runner can act on, and not a failure.
func TestLogs_ThatDoNotFitAreRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	for name, lines := range map[string][]api.LogLine{
		"many":    slices.Repeat([]api.LogLine{{Step: strings.Repeat("s", 64), Text: "x"}}, 5000),
		"escaped": slices.Repeat([]api.LogLine{{Text: strings.Repeat("\x01", 60<<10)}}, 2),
		"long":    {{Text: strings.Repeat("x", 65<<10)}},
	} {
		_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: lines})
		if !errors.Is(err, workflow.ErrTooLarge) {
			t.Errorf("%s: %v, want too large", name, err)
		}
	}
	out, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: slices.Repeat([]api.LogLine{{Text: "x"}}, 2000)})
	if err != nil || out.Next != 2000 {
		t.Errorf("2000 short lines: %+v, %v", out, err)
	}
}
