package controlplane_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestRun_GoesFromSubmissionToResult(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		w.is(wf.ID, workflow.Pending, "")
		job, r := w.started()
		spec, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		if spec.Workflow != wf.ID || spec.Attempt != 1 || spec.Commands["update"] != "true" || spec.State.Directory() != spec.WorkspaceID {
			t.Errorf("spec = %+v", spec)
		}
		_, err = w.plane.Steps(w.ctx(), job.Token, r, api.Steps{Steps: []api.Step{{Seq: 1, Name: "run", Status: workflow.StepSucceeded}}})
		w.must(err)
		w.must(w.result(job, r, workflow.Succeeded))
		got := w.is(wf.ID, workflow.Succeeded, "")
		if got.SlotHeld || got.EndedAt == nil || len(got.Steps) != 1 || got.Result == nil {
			t.Errorf("workflow = %+v", got)
		}
		for _, kind := range []string{"submitted", "claimed", "launched", "started", "result"} {
			if !strings.Contains(w.story(wf.ID), " "+kind+" ") {
				t.Errorf("the timeline has no %s:\n%s", kind, w.story(wf.ID))
			}
		}
	})
}

// C8: the fence.
func TestStart_OnlyOneBootOfOneReportedTask(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.submit("net", workflow.Update)
		job := w.claimOne()
		first := run(job, "task-1", 'a')
		w.launch(job, "task-1")
		_, err := w.plane.Spec(w.ctx(), job.Token, first)
		wantErr(t, err, workflow.ErrNotStarted)
		one, err := w.plane.Start(w.ctx(), job.Token, first, api.Start{Knows: api.RunnerKnows()})
		w.must(err)
		again, err := w.plane.Start(w.ctx(), job.Token, first, api.Start{Knows: api.RunnerKnows()})
		w.must(err)
		if one.Cancel || again.RemainingSeconds > one.RemainingSeconds {
			t.Errorf("answers %+v and %+v", one, again)
		}
		_, err = w.plane.Start(w.ctx(), job.Token, run(job, "task-1", 'b'), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrAlreadyStarted)
		w.launch(job, "task-2")
		_, err = w.plane.Start(w.ctx(), job.Token, run(job, "task-2", 'c'), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrAlreadyStarted)
		_, err = w.plane.Heartbeat(w.ctx(), job.Token, run(job, "task-2", 'c'), api.Heartbeat{})
		wantErr(t, err, workflow.ErrAlreadyStarted)
		_, err = w.plane.Start(w.ctx(), "dfj_wrong", first, api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrUnauthenticated)
	})
}

func TestRunnerCalls_StaleAttemptIsOver(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.submit("net", workflow.Update)
		old := w.claimOne()
		w.launch(old, "task-1")
		w.live(16 * time.Minute)
		_, err := w.plane.Start(w.ctx(), old.Token, run(old, "task-1", 'a'), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrOver) // lapsed, claimable again
		job := w.claimOne()
		if job.Attempt != 2 {
			t.Fatalf("attempt %d, want 2", job.Attempt)
		}
		_, err = w.plane.Start(w.ctx(), old.Token, run(old, "task-1", 'a'), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrOver)
		// The new attempt's number with the old attempt's token is nobody's.
		_, err = w.plane.Start(w.ctx(), old.Token, run(job, "task-1", 'a'), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrUnauthenticated)
	})
}

// C8, C18: leases.
func TestLease_FiveLapsesEndAWorkflowWithTheReason(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		for i := range workflow.MaxLapses {
			job := w.claimOne()
			if job.Attempt != i+1 {
				t.Fatalf("attempt %d, want %d", job.Attempt, i+1)
			}
			w.live(59 * time.Second)
			w.is(wf.ID, workflow.Claimed, "")
			w.live(2 * time.Second)
		}
		got := w.is(wf.ID, workflow.Failed, workflow.ReasonNeverStarted)
		if got.SlotHeld || !strings.Contains(got.Detail, "one") {
			t.Errorf("workflow = %+v", got)
		}
		w.submit("net", workflow.Update)
		w.claimOne() // the workspace is free
	})
}

func TestLease_QueuedAndLaunchReportsExtendItInsideTheWindow(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job := w.claimOne()
		w.must(w.plane.Queued(w.ctx(), w.pool, job.ID, api.Attempt{Attempt: 1}))
		w.live(14 * time.Minute)
		w.is(wf.ID, workflow.Claimed, "")
		for range 5 {
			w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchRefused, Reason: workflow.ReasonCapacity, Text: "no room in zone a", RetrySeconds: 60}))
			w.live(9 * time.Minute)
			w.is(wf.ID, workflow.Claimed, "")
		}
		why, err := w.plane.Why(w.ctx(), w.admin, wf.ID)
		w.must(err)
		if why.Code != "launch" || !strings.Contains(why.Waiting, "no room in zone a") {
			t.Errorf("why = %q %q", why.Code, why.Waiting)
		}
		w.live(2 * time.Minute) // the window ends: capacity is nobody's failure, and no lapse
		w.is(wf.ID, workflow.Pending, "")
		for range workflow.MaxLapses - 1 {
			w.claimOne()
			w.live(61 * time.Second)
		}
		w.is(wf.ID, workflow.Pending, "")
	})
}

func TestLaunchWindow_PassedForNoGoodReasonFails(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job := w.claimOne()
		for range 7 {
			w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchRefused, Reason: workflow.ReasonUnavailable, Text: "500", RetrySeconds: 60}))
			w.live(9 * time.Minute)
		}
		w.is(wf.ID, workflow.Failed, workflow.ReasonLaunchWindow)
	})
}

func TestQueueTimeout_EndsWhatWaitedADay(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		first, second := w.submit("net", workflow.Update), w.submit("net", workflow.Update)
		w.clock.advance(workflow.QueueTimeout + time.Second)
		w.pass()
		if got := w.is(first.ID, workflow.Failed, workflow.ReasonExpiredInQueue); !strings.Contains(got.Detail, "nobody has polled") {
			t.Errorf("detail %q does not say what it waited for", got.Detail)
		}
		w.is(second.ID, workflow.Failed, workflow.ReasonExpiredInQueue)
		w.submit("net", workflow.Update)
		w.claimOne()
	})
}

// C8, L6: silence ends a deployment, never repeats it, and keeps its slot.
func TestSilence_DeploymentIsLostAndHoldsItsSlotUntilProvenOver(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf, next := w.submit("net", workflow.Update), w.submit("net", workflow.Update)
		job, r := w.started()
		w.live(workflow.Silence + time.Minute)
		got := w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
		if !got.SlotHeld {
			t.Error("the slot is free although nothing proves the run over")
		}
		if jobs := w.claim(10); len(jobs) != 0 {
			t.Fatalf("claimed %v while the slot is held", jobs)
		}
		why, err := w.plane.Why(w.ctx(), w.admin, next.ID)
		w.must(err)
		if why.Code != "slot" || !strings.Contains(why.Waiting, wf.ID) || !strings.Contains(why.Waiting, r.Task) {
			t.Errorf("why = %q %q", why.Code, why.Waiting)
		}
		if why, err = w.plane.Why(w.ctx(), w.admin, wf.ID); err != nil || why.Code != "task_end" || !strings.Contains(why.Waiting, r.Task) {
			t.Errorf("why = %+v, %v; want the task that is waited for", why, err)
		}
		// It is answered as if running: nobody stops it before its deadline.
		ctl, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		if err != nil || ctl.Cancel {
			t.Errorf("heartbeat of the lost run = %+v, %v", ctl, err)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		got = w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
		if got.SlotHeld || !strings.Contains(w.story(wf.ID), "LATE RESULT") {
			t.Errorf("after the late result: %+v\n%s", got, w.story(wf.ID))
		}
		if j := w.claimOne(); j.ID != next.ID {
			t.Errorf("claimed %s, want %s", j.ID, next.ID)
		}
	})
}

func TestSilence_SlotIsFreedByTheStopOfThatVeryTaskOnly(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		w.live(workflow.Silence + time.Minute)
		w.lost(job, run(job, "another-task", 'x'), 1)
		if !w.show(wf.ID).SlotHeld {
			t.Error("another task's stop freed the slot")
		}
		w.lost(job, r, 137)
		if w.show(wf.ID).SlotHeld {
			t.Error("its own task's stop did not free the slot")
		}
		w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
	})
}

func TestSilence_SlotIsFreedAfterDeadlineAndGrace(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxRuntime = "30m" })
		wf := w.submit("net", workflow.Update)
		w.started()
		w.live(31 * time.Minute)
		if got := w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost); !got.SlotHeld {
			t.Fatal("freed before the grace was over")
		}
		w.live(2 * time.Minute)
		if w.show(wf.ID).SlotHeld {
			t.Errorf("still held after deadline and grace\n%s", w.story(wf.ID))
		}
	})
}

// L6: an admin lets go what nothing proves to be over. Its runner is told to stop, what it still reports is told and
// frees nothing, and nobody frees what another run holds.
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
		page, err := w.plane.Audit(w.ctx(), w.admin, "", 2)
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
			t.Errorf("the pool is told %+v; it stops the task of what is not active", states.Jobs)
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

// C8: scans are run again, three times at most.
func TestSilence_ScanIsRunAgainUpToThreeStarts(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", "")
		var old api.Job
		var oldRun api.Run
		for i := range workflow.MaxStarts {
			job, r := w.started()
			if job.Attempt != i+1 {
				t.Fatalf("attempt %d, want %d", job.Attempt, i+1)
			}
			if i > 0 {
				_, err := w.plane.Heartbeat(w.ctx(), old.Token, oldRun, api.Heartbeat{})
				wantErr(t, err, workflow.ErrOver)
			}
			old, oldRun = job, r
			w.live(workflow.Silence + time.Minute)
		}
		w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
	})
}

func TestHeartbeat_KeepsARunAlive(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		for range 10 {
			w.live(5 * time.Minute)
			_, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{Step: "apply"})
			w.must(err)
		}
		w.is(wf.ID, workflow.Running, "")
		w.live(workflow.Silence - time.Minute)
		w.is(wf.ID, workflow.Running, "")
		w.live(2 * time.Minute)
		w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
	})
}

// L6: a control plane that was away fails nobody for it.
func TestSilence_CountsOnlyWhileTheControlPlaneWasUp(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		w.clock.advance(11 * time.Minute) // no pass in between: away
		w.pass()
		w.is(wf.ID, workflow.Running, "")
		w.live(5 * time.Minute)
		_, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		w.must(err)
		w.live(9 * time.Minute)
		w.is(wf.ID, workflow.Running, "")
	})
}

func TestDeadline_EndsARunThatHeartbeats(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxRuntime = "20m" })
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		for range 7 {
			w.live(3 * time.Minute)
			ctl, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
			w.must(err)
			if ctl.RemainingSeconds > 20*60 {
				t.Errorf("remaining %v", ctl.RemainingSeconds)
			}
		}
		w.is(wf.ID, workflow.Running, "")
		w.live(2 * time.Minute)
		if got := w.is(wf.ID, workflow.Failed, workflow.ReasonDeadline); got.SlotHeld {
			t.Error("the slot is held past deadline and grace")
		}
	})
}

// L8: the stop of the started task ends its run, with the reason that it came with.
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

func TestStop_WithExitCodeZeroFreesTheSlotAndWaitsForTheResult(t *testing.T) {
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
		// The stop that is reported before its launch is remembered.
		job = w.claimOne()
		w.lost(job, run(job, "task-2", 'a'), 1)
		w.launch(job, "task-2")
		w.is(wf.ID, workflow.Pending, "")
		if job = w.claimOne(); job.Attempt != 3 {
			t.Errorf("attempt %d, want 3", job.Attempt)
		}
	})
}

func TestLaunch_PermanentFailureEndsOnlyAClaimWithoutATask(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job := w.claimOne()
		w.launch(job, "task-1")
		failed := api.Launch{Attempt: 1, Kind: api.LaunchFailed, Text: "no such image"}
		w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, failed))
		w.is(wf.ID, workflow.Claimed, "")
		w.must(w.plane.Lost(w.ctx(), w.pool, job.ID, api.Lost{Attempt: 1, Task: "task-1"}))
		w.claimOne()
		failed.Attempt = 2
		w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, failed))
		if got := w.is(wf.ID, workflow.Failed, workflow.ReasonLaunchFailed); got.Detail != "no such image" {
			t.Errorf("detail %q", got.Detail)
		}
	})
}

// L6: cancel in every window.
func TestCancel_EveryWindow(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		cancel := func(id string) {
			t.Helper()
			_, err := w.plane.Cancel(w.ctx(), w.admin, id)
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
		_, err = w.plane.Cancel(w.ctx(), w.admin, a.ID)
		w.must(err) // cancelling what is cancelled is no error
	})
}

func TestCancel_FlagTurnsALossIntoCancelled(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		w.started()
		_, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID)
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
		_, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID)
		wantErr(t, err, workflow.ErrConflict)
		again, err := w.plane.Retry(w.ctx(), w.admin, "", wf.ID)
		w.must(err)
		if again.RetryOf != wf.ID || again.ID == wf.ID || again.State != workflow.Pending {
			t.Errorf("retry = %+v", again)
		}
		_, err = w.plane.Retry(w.ctx(), w.admin, "", again.ID)
		wantErr(t, err, workflow.ErrConflict)
	})
}

// C9: one run at a time changes the state of a workspace.
func TestLane_OneStateChangingRunAtATimeByPriorityThenAge(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		low, mid := w.submit("net", workflow.Update), w.submit("net", workflow.Destroy)
		high, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, Priority: 5})
		w.must(err)
		for _, want := range []string{high.ID, low.ID, mid.ID} {
			job, r := w.started()
			if job.ID != want {
				t.Fatalf("claimed %s, want %s", job.ID, want)
			}
			w.must(w.result(job, r, workflow.Succeeded))
		}
	})
}

func TestLane_PreviewsOverlapUpToTheWorkspaceLimit(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 3 })
		w.submit("net", workflow.Update)
		for range 5 {
			w.submit("net", workflow.Preview)
		}
		jobs := w.claim(10)
		if len(jobs) != 3 {
			t.Fatalf("claimed %d, want 3", len(jobs))
		}
		for _, j := range jobs {
			w.launch(j, "t"+j.ID)
			_, err := w.plane.Start(w.ctx(), j.Token, run(j, "t"+j.ID, 'a'), api.Start{Knows: api.RunnerKnows()})
			w.must(err)
		}
		if more := w.claim(10); len(more) != 0 {
			t.Fatalf("claimed %d beyond the limit", len(more))
		}
		w.must(w.result(jobs[0], run(jobs[0], "t"+jobs[0].ID, 'a'), workflow.Succeeded))
		if more := w.claim(10); len(more) != 1 {
			t.Fatalf("claimed %d after one place was freed, want 1", len(more))
		}
	})
}

func TestLimits_OfPoolAndOrganizationHoldAndFree(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		two := 2
		_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{Concurrency: &two})
		w.must(err)
		var last api.Workflow
		for _, name := range []string{"a", "b", "c", "d"} {
			w.workspace(name)
			last = w.submit(name, workflow.Update)
		}
		jobs := w.claim(10)
		if len(jobs) != 2 {
			t.Fatalf("claimed %d, want 2", len(jobs))
		}
		out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 5})
		w.must(err)
		if len(out.Jobs) != 0 || !out.Short || !strings.Contains(out.Note, "limit of 2") {
			t.Errorf("claim = %+v", out)
		}
		why, err := w.plane.Why(w.ctx(), w.admin, last.ID)
		w.must(err)
		if why.Code != "pool_limit" {
			t.Errorf("why = %q", why.Code)
		}
		_, err = w.plane.Cancel(w.ctx(), w.admin, jobs[0].ID)
		w.must(err)
		if more := w.claim(10); len(more) != 1 {
			t.Errorf("claimed %d, want 1", len(more))
		}
	})
}

func TestClaim_MoreThanOneCommitHoldsIsHandedOutWhole(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 100 })
		var order []string
		for range 40 {
			order = append(order, w.submit("net", workflow.Preview).ID)
		}
		jobs := w.claim(30)
		if len(jobs) != 30 {
			t.Fatalf("claimed %d, want 30", len(jobs))
		}
		for i, j := range jobs {
			if j.ID != order[i] {
				t.Errorf("job %d is %s, want %s: the oldest first", i, j.ID, order[i])
			}
		}
		held, err := w.plane.Held(w.ctx(), w.pool, "one", "")
		w.must(err)
		if len(held.Items) != 30 {
			t.Errorf("%d are held, want 30", len(held.Items))
		}
	})
}

func TestRelease_MakesItClaimableAtOnceAndIsNoLapse(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		for i := range workflow.MaxLapses + 2 {
			job := w.claimOne()
			if job.Attempt != i+1 {
				t.Fatalf("attempt %d", job.Attempt)
			}
			w.must(w.plane.Release(w.ctx(), w.pool, job.ID, api.Release{Attempt: job.Attempt, Text: "shutting down"}))
		}
		w.is(wf.ID, workflow.Pending, "")
		job := w.claimOne()
		w.launch(job, "task-1")
		wantErr(t, w.plane.Release(w.ctx(), w.pool, job.ID, api.Release{Attempt: job.Attempt}), workflow.ErrInUse)
	})
}

func TestSubmit_SameKeySameWorkflow(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		in := api.Submit{Workspace: "net", Operation: workflow.Update}
		one, err := w.plane.Submit(w.ctx(), w.admin, "key-1", in)
		w.must(err)
		two, err := w.plane.Submit(w.ctx(), w.admin, "key-1", in)
		w.must(err)
		if one.ID != two.ID {
			t.Errorf("two workflows, %s and %s, of one key", one.ID, two.ID)
		}
		in.Operation = workflow.Destroy
		_, err = w.plane.Submit(w.ctx(), w.admin, "key-1", in)
		wantErr(t, err, workflow.ErrKeyReused)
	})
}

func TestStart_WaitsALittleForTheReportOfItsLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		w.workspace("net")
		w.submit("net", workflow.Update)
		job := w.claimOne()
		r := run(job, "task-1", 'a')
		began := time.Now()
		_, err := w.plane.Start(t.Context(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrNotReported)
		if waited := time.Since(began); waited < 2*time.Second || waited > 4*time.Second {
			t.Errorf("it waited %s for the report", waited)
		}
		got := make(chan error, 1)
		go func() {
			_, err := w.plane.Start(t.Context(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
			got <- err
		}()
		synctest.Wait()
		began = time.Now()
		w.launch(job, "task-1")
		if err := <-got; err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("start after the report: %v after %s", err, time.Since(began))
		}
	})
}

func TestWorkflows_ListIsNewestFirstPagedAndFiltered(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.workspace("web")
	var ids []string
	for i := range 7 {
		ids = append(ids, w.submit([]string{"net", "web"}[i%2], workflow.Preview).ID)
	}
	_, err := w.plane.Cancel(w.ctx(), w.admin, ids[0])
	w.must(err)
	list := func(f controlplane.Filter) (got []string) {
		t.Helper()
		for {
			page, err := w.plane.Workflows(w.ctx(), w.admin, f)
			w.must(err)
			for _, wf := range page.Items {
				got = append(got, wf.ID)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return got
			}
		}
	}
	for name, c := range map[string]struct {
		f    controlplane.Filter
		want []int
	}{
		"all":       {controlplane.Filter{Limit: 3}, []int{6, 5, 4, 3, 2, 1, 0}},
		"workspace": {controlplane.Filter{Workspace: "net", Limit: 2}, []int{6, 4, 2, 0}},
		"state":     {controlplane.Filter{State: "cancelled"}, []int{0}},
		"both":      {controlplane.Filter{Workspace: "net", State: "pending", Limit: 1}, []int{6, 4, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, i := range c.want {
				want = append(want, ids[i])
			}
			if diff := cmp.Diff(want, list(c.f)); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
	_, err = w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{State: "asleep"})
	wantErr(t, err, workflow.ErrInvalid)
}
