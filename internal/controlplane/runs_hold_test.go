package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func (w *world) refusedLaunch(job api.Job, reason workflow.Reason, retry time.Duration, placement string) {
	w.t.Helper()
	w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, api.Launch{
		Attempt: job.Attempt, Kind: api.LaunchRefused, Reason: reason, Text: "not now: " + string(reason),
		RetrySeconds: retry.Seconds(), Placement: placement,
	}))
}

func (w *world) ask() api.Claimed {
	w.t.Helper()
	out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 10})
	w.must(err)
	return out
}

// A pool whose latest launch was refused for capacity or quota gets no more work, whichever process asks: what it
// claimed would only wait.
func TestHold_RefusedLaunchPausesClaimsUntilRetry(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 10 })
		for range 3 {
			w.submit("net", workflow.Preview)
		}
		jobs := w.claim(1)
		w.refusedLaunch(jobs[0], workflow.ReasonCapacity, time.Minute, "")
		got := w.ask()
		if len(got.Jobs) != 0 || !got.Short || got.RetryAfterSeconds < 59 || got.RetryAfterSeconds > 60 || !strings.Contains(got.Note, "capacity") {
			t.Errorf("a claim while its pool is held: %+v", got)
		}
		w.clock.advance(59 * time.Second)
		if got := w.ask(); len(got.Jobs) != 0 {
			t.Errorf("claimed %d jobs a second too early", len(got.Jobs))
		}
		w.clock.advance(2 * time.Second)
		if got := w.ask(); len(got.Jobs) != 2 || got.RetryAfterSeconds != 0 {
			t.Errorf("after the hold: %d jobs, wait %v", len(got.Jobs), got.RetryAfterSeconds)
		}
	})
}

func TestHold_EndsWithTheNextLaunchThatIsTaken(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 10 })
		for range 3 {
			w.submit("net", workflow.Preview)
		}
		jobs := w.claim(2)
		w.refusedLaunch(jobs[0], workflow.ReasonQuota, time.Minute, "")
		w.launch(jobs[1], "task-1")
		if got := w.ask(); len(got.Jobs) != 1 {
			t.Errorf("claimed %d jobs after a launch was taken, want 1", len(got.Jobs))
		}
	})
}

// A throttle does not stop a pool from claiming: it passes within seconds. And a hold of one pool does not affect
// another.
func TestHold_IsNotForAThrottle(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 10 })
		for range 3 {
			w.submit("net", workflow.Preview)
		}
		jobs := w.claim(2)
		w.refusedLaunch(jobs[0], workflow.ReasonThrottled, time.Minute, "")
		w.refusedLaunch(jobs[1], workflow.ReasonCapacity, 0, "b") // another placement is tried immediately
		if got := w.ask(); len(got.Jobs) != 1 {
			t.Errorf("claimed %d jobs, want 1", len(got.Jobs))
		}
	})
}

// Every later try is told which placement may have been taken, until its answer is known.
func TestPendingPlacement_IsToldUntilItsAnswerIsKnown(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job := w.claimOne()
		pending := func() string {
			t.Helper()
			out, err := w.plane.States(w.ctx(), w.pool, api.StatesQuery{IDs: []string{job.ID}})
			w.must(err)
			return out.Jobs[0].PendingPlacement
		}
		events := func() int {
			t.Helper()
			page, err := w.plane.Timeline(w.ctx(), w.admin, wf.ID, "", 0)
			w.must(err)
			return len(page.Items)
		}
		before := events()
		w.refusedLaunch(job, workflow.ReasonCapacity, 0, "b")
		if got := pending(); got != "b" || events() != before {
			t.Errorf("before b is tried: %q, %d new events; want b and none", got, events()-before)
		}
		// No other report may end it while b may be alive: a dead letter does not know a placement.
		w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchFailed, Text: "dead letter"}))
		w.is(wf.ID, workflow.Claimed, "")
		w.refusedLaunch(job, workflow.ReasonUnavailable, time.Second, "b")
		if got := pending(); got != "b" {
			t.Errorf("when its answer is lost: %q", got)
		}
		w.refusedLaunch(job, workflow.ReasonCapacity, time.Second, "")
		if got := pending(); got != "" {
			t.Errorf("when it is refused: %q", got)
		}
		out, err := w.plane.States(w.ctx(), w.pool, api.StatesQuery{IDs: []string{job.ID}})
		w.must(err)
		if got := out.Jobs[0].LaunchText; got != "not now: capacity" {
			t.Errorf("why its launch was refused last: %q", got)
		}
		w.refusedLaunch(job, workflow.ReasonCapacity, 0, "c")
		w.launch(job, "task-1")
		if got := pending(); got != "" {
			t.Errorf("when it is launched: %q", got)
		}
	})
}

// A placement that is refused for good ends the workflow, although it was recorded before the try.
func TestPendingPlacement_PermanentRefusalEndsTheRun(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job := w.claimOne()
		w.refusedLaunch(job, workflow.ReasonCapacity, 0, "b")
		w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchFailed, Text: "no such image", Placement: "b"}))
		w.is(wf.ID, workflow.Failed, workflow.ReasonLaunchFailed)
	})
}
