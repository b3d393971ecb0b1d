package controlplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

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
			if job.Attempt == workflow.MaxLapses {
				w.launch(job, "task-5")
				w.live(workflow.QueuedLease)
			}
			w.live(2 * time.Second)
		}
		got := w.is(wf.ID, workflow.Failed, workflow.ReasonNeverStarted)
		const why = "its claim by one lapsed without a start: task task-5 was launched and never asked for its start"
		if got.SlotHeld || got.Detail != why {
			t.Errorf("workflow = %+v, want %q", got, why)
		}
		w.submit("net", workflow.Update)
		w.claimOne() // the workspace is free
	})
}

func TestLease_QueuedAndLaunchReportsExtendIt(t *testing.T) {
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
		w.live(2 * time.Minute) // the window ends: a lack of capacity is neither a failure nor a lapse
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
		got := w.is(wf.ID, workflow.Failed, workflow.ReasonLaunchWindow)
		if why := fmt.Sprintf("it could not be launched within %s: 500", workflow.LaunchWindow); got.Detail != why {
			t.Errorf("it failed with %q, want %q", got.Detail, why)
		}
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
func TestSilence_LostDeploymentKeepsItsSlotUntilProof(t *testing.T) {
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
		if why.Code != "slot" || why.WaitingForWorkflow != wf.ID || !strings.Contains(why.Waiting, wf.ID) || !strings.Contains(why.Waiting, r.Task) {
			t.Errorf("why = %q %q", why.Code, why.Waiting)
		}
		if why, err = w.plane.Why(w.ctx(), w.admin, wf.ID); err != nil || why.Code != "task_end" || why.WaitingForWorkflow != "" || !strings.Contains(why.Waiting, r.Task) {
			t.Errorf("why = %+v, %v; want the task that is waited for", why, err)
		}
		// It is reported as if it were running: it is not stopped before its deadline.
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

// L6: runs do not fail because the control plane was away.
func TestSilence_CountsOnlyWhileTheControlPlaneWasUp(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		w.clock.advance(11 * time.Minute) // no pass in between: away
		w.pass()
		w.is(wf.ID, workflow.Running, "")
		w.live(workflow.Silence - 2*time.Minute) // the pass after a gap counts a minute of it
		w.is(wf.ID, workflow.Running, "")
		_, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		w.must(err)
		w.live(workflow.Silence - time.Minute)
		w.is(wf.ID, workflow.Running, "")
		w.live(2 * time.Minute)
		w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
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
