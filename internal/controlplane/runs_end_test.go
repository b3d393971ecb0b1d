package controlplane_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

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
		_, err := w.plane.Cancel(t.Context(), w.admin, wf.ID, api.WithReason{})
		w.must(err)
		if s := <-got; !s.Jobs[0].Cancel || time.Since(began) > 200*time.Millisecond {
			t.Errorf("answered %+v after %s", s, time.Since(began))
		}
	})
}

// L6: an admin frees a slot although nothing proves the end of its run. The run's runner is told to stop; what it
// still reports goes to the timeline and frees nothing. A slot that another run holds is not freed.
func TestUnlock_FreesTheSlotOfTheLostRunAlone(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		slot := func() api.Slot {
			t.Helper()
			s, err := w.plane.Slot(w.ctx(), w.admin, "net")
			w.must(err)
			return s
		}
		unlock := func(id string) error {
			_, err := w.plane.Unlock(w.ctx(), w.admin, "net", api.Unlock{Workflow: id})
			return err
		}
		first, second, third := w.submit("net", workflow.Update), w.submit("net", workflow.Update), w.submit("net", workflow.Update)
		if s := slot(); s.Holder != nil || !strings.Contains(s.Refusal, "is free") {
			t.Errorf("before a claim: %+v", s)
		}
		wantErr(t, unlock(first.ID), workflow.ErrConflict)
		job, r := w.started()
		if s := slot(); s.Holder == nil || s.Holder.ID != first.ID || s.FreeAt != nil || !strings.Contains(s.Refusal, "workflow cancel "+first.ID) {
			t.Errorf("while it runs: %+v", s)
		}
		wantErr(t, unlock(first.ID), workflow.ErrInUse)

		w.live(workflow.Silence + time.Minute)
		s := slot()
		if s.Refusal != "" || s.Holder == nil || s.Holder.Task != r.Task || s.LastSign == nil || s.FreeAt == nil {
			t.Fatalf("when it is lost: %+v", s)
		}
		for _, id := range []string{first.ID, second.ID} {
			why, err := w.plane.Why(w.ctx(), w.admin, id)
			w.must(err)
			if n := strings.Count(why.Next, "dayfly repair unlock net"); n != 1 {
				t.Errorf("why of %s names the way out %d times: %s", id, n, why.Next)
			}
		}
		operator := w.admin
		operator.Role = api.RoleOperator
		_, err := w.plane.Unlock(w.ctx(), operator, "net", api.Unlock{Workflow: first.ID})
		wantErr(t, err, workflow.ErrForbidden)
		wantErr(t, unlock(second.ID), workflow.ErrConflict)
		w.must(unlock(first.ID))

		if got := w.is(first.ID, workflow.Failed, workflow.ReasonRunnerLost); got.SlotHeld || !strings.Contains(w.story(first.ID), "UNLOCKED by admin") {
			t.Errorf("after it was unlocked: %+v\n%s", got, w.story(first.ID))
		}
		page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 2})
		w.must(err)
		for i, outcome := range []string{"done", "refused"} {
			if e := page.Items[i]; e.Action != "workspace.unlock" || e.Target != "net" || e.Outcome != outcome {
				t.Errorf("the audit trail says %+v, want workspace.unlock %s", e, outcome)
			}
		}
		_, err = w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		wantErr(t, err, workflow.ErrOver) // for which a runner kills its engine
		states, err := w.plane.States(w.ctx(), w.pool, api.StatesQuery{IDs: []string{first.ID}})
		w.must(err)
		if len(states.Jobs) != 1 || states.Jobs[0].Active {
			t.Errorf("the pool gets %+v; it stops tasks of inactive runs", states.Jobs)
		}

		next, nextRun := w.started()
		if next.ID != second.ID {
			t.Fatalf("claimed %s, want %s", next.ID, second.ID)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		w.lost(job, r, 137)
		if s := slot(); s.Holder == nil || s.Holder.ID != second.ID || !strings.Contains(w.story(first.ID), "LATE RESULT") {
			t.Errorf("after the late result: %+v\n%s", s, w.story(first.ID))
		}
		if jobs := w.claim(10); len(jobs) != 0 {
			t.Errorf("claimed %v while %s holds the workspace", jobs, second.ID)
		}
		wantErr(t, unlock(first.ID), workflow.ErrConflict)
		w.must(w.result(next, nextRun, workflow.Succeeded))
		if got := w.claimOne(); got.ID != third.ID {
			t.Errorf("claimed %s, want %s", got.ID, third.ID)
		}
		pool, err := w.plane.Pool(w.ctx(), w.admin, "default")
		w.must(err)
		if pool.Active != 1 {
			t.Errorf("%d workflows count as active, want 1", pool.Active)
		}
	})
}

// L8: the stop of the started task ends its run, with the reason of that report.
func TestStop_RunningDeploymentEndsWithTheStopReason(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		exit := 137
		w.must(w.plane.Lost(w.ctx(), w.pool, job.ID, api.Lost{Attempt: 1, Task: r.Task, ExitCode: &exit, Text: "out of memory"}))
		got := w.is(wf.ID, workflow.Failed, workflow.ReasonTaskStopped)
		if got.SlotHeld || got.Detail != "out of memory" {
			t.Errorf("workflow = %+v", got)
		}
		w.lost(job, r, 137) // once more: harmless
		w.is(wf.ID, workflow.Failed, workflow.ReasonTaskStopped)
	})
}

func TestStop_ExitCodeZeroFreesTheSlotAndAwaitsResult(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf, next := w.submit("net", workflow.Update), w.submit("net", workflow.Update)
		job, r := w.started()
		w.lost(job, r, 0)
		w.is(wf.ID, workflow.Running, "")
		if j := w.claimOne(); j.ID != next.ID {
			t.Errorf("claimed %s, want %s", j.ID, next.ID)
		}
		w.live(9 * time.Minute)
		w.must(w.result(job, r, workflow.Succeeded))
		w.is(wf.ID, workflow.Succeeded, "")
	})
}

func TestStop_WithExitCodeZeroAndNoResultFails(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		w.lost(job, r, 0)
		w.live(workflow.ResultGrace + time.Minute)
		w.is(wf.ID, workflow.Failed, workflow.ReasonResultMissing)
	})
}

func TestStop_BeforeStartMakesItClaimableAgain(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job := w.claimOne()
		w.launch(job, "task-1")
		w.lost(job, run(job, "task-1", 'a'), 1)
		w.is(wf.ID, workflow.Pending, "")
		// A stop that is reported before its launch is remembered.
		job = w.claimOne()
		w.lost(job, run(job, "task-2", 'a'), 1)
		w.launch(job, "task-2")
		w.is(wf.ID, workflow.Pending, "")
		if job = w.claimOne(); job.Attempt != 3 {
			t.Errorf("attempt %d, want 3", job.Attempt)
		}
	})
}

// L6: cancel in every window.
func TestCancel_EveryWindow(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		cancel := func(id string) {
			t.Helper()
			_, err := w.plane.Cancel(w.ctx(), w.admin, id, api.WithReason{})
			w.must(err)
		}
		wanted := func(id string, attempt int) bool {
			t.Helper()
			s, err := w.plane.States(w.ctx(), w.pool, api.StatesQuery{IDs: []string{id}})
			w.must(err)
			return s.Jobs[0].Wanted(attempt)
		}
		// Pending, first and waiting behind.
		a, b, c := w.submit("net", workflow.Update), w.submit("net", workflow.Update), w.submit("net", workflow.Update)
		cancel(b.ID)
		w.is(b.ID, workflow.Cancelled, workflow.ReasonCancelled)
		cancel(a.ID)
		w.is(a.ID, workflow.Cancelled, workflow.ReasonCancelled)
		// Claimed, not launched: the next one.
		job := w.claimOne()
		if job.ID != c.ID {
			t.Fatalf("claimed %s, want %s", job.ID, c.ID)
		}
		if !wanted(c.ID, 1) {
			t.Error("a claimed job is not wanted")
		}
		cancel(c.ID)
		if wanted(c.ID, 1) {
			t.Error("a cancelled job is still wanted")
		}
		w.is(c.ID, workflow.Cancelled, workflow.ReasonCancelled)
		// Launched, not started: the start is refused.
		d := w.submit("net", workflow.Update)
		job = w.claimOne()
		w.launch(job, "task-d")
		cancel(d.ID)
		_, err := w.plane.Start(w.ctx(), job.Token, run(job, "task-d", 'a'), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrOver)
		// Running: a flag, and the slot stays held until the end is known.
		e := w.submit("net", workflow.Update)
		job, r := w.started()
		cancel(e.ID)
		cancel(e.ID)
		w.is(e.ID, workflow.Running, "")
		if !wanted(e.ID, 1) {
			t.Error("a running job that is to end is reported as unwanted")
		}
		ctl, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		if err != nil || !ctl.Cancel {
			t.Errorf("heartbeat = %+v, %v; want cancel", ctl, err)
		}
		w.submit("net", workflow.Update)
		if jobs := w.claim(5); len(jobs) != 0 {
			t.Errorf("claimed %v while the cancelled run still holds the slot", jobs)
		}
		w.must(w.result(job, r, workflow.Cancelled))
		w.is(e.ID, workflow.Cancelled, "")
		_, err = w.plane.Cancel(w.ctx(), w.admin, a.ID, api.WithReason{})
		w.must(err) // a second cancellation is not an error
	})
}

func TestCancel_FlagTurnsALossIntoCancelled(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		w.started()
		_, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID, api.WithReason{})
		w.must(err)
		w.live(workflow.Silence + time.Minute)
		if got := w.is(wf.ID, workflow.Cancelled, workflow.ReasonCancelled); !got.SlotHeld {
			t.Error("the slot was freed without proof")
		}
	})
}

func TestCancel_OfAnEndedOneIsRefused(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		w.must(w.result(job, r, workflow.Failed))
		_, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID, api.WithReason{})
		wantErr(t, err, workflow.ErrConflict)
		again, err := w.plane.Retry(w.ctx(), w.admin, "", wf.ID, api.WithReason{})
		w.must(err)
		if again.RetryOf != wf.ID || again.ID == wf.ID || again.State != workflow.Pending {
			t.Errorf("retry = %+v", again)
		}
		_, err = w.plane.Retry(w.ctx(), w.admin, "", again.ID, api.WithReason{})
		wantErr(t, err, workflow.ErrConflict)
	})
}

func TestCancel_AndRetryKeepTheReason(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		runs := w.submit("net", workflow.Preview)
		w.started()
		waits := w.submit("net", workflow.Preview)
		said := func(id, want string) {
			t.Helper()
			why, err := w.plane.Why(w.ctx(), w.admin, id)
			w.must(err)
			if got := why.Timeline[len(why.Timeline)-1].Text; !strings.Contains(got, want) {
				t.Errorf("the timeline says %q, want %q in it", got, want)
			}
		}
		_, err := w.plane.Cancel(w.ctx(), w.admin, waits.ID, api.WithReason{Reason: strings.Repeat("é", 201)})
		wantErr(t, err, workflow.ErrInvalid)
		_, err = w.plane.Cancel(w.ctx(), w.admin, waits.ID, api.WithReason{Reason: "wrong branch"})
		w.must(err)
		said(waits.ID, "before it started: wrong branch")
		_, err = w.plane.Retry(w.ctx(), w.admin, "", waits.ID, api.WithReason{Reason: strings.Repeat("é", 201)})
		wantErr(t, err, workflow.ErrInvalid)
		again, err := w.plane.Retry(w.ctx(), w.admin, "", waits.ID, api.WithReason{Reason: strings.Repeat("é", 200)})
		w.must(err)
		said(again.ID, "as a retry of "+waits.ID+": éé")
		_, err = w.plane.Cancel(w.ctx(), w.admin, runs.ID, api.WithReason{Reason: "too slow"})
		w.must(err)
		said(runs.ID, "too slow; the runner interrupts")
		entries, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{})
		w.must(err)
		if details := fmt.Sprint(entries); !strings.Contains(details, "wrong branch") || !strings.Contains(details, "net: éé") {
			t.Errorf("the audit trail does not say why: %s", details)
		}
	})
}
