package controlplane_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestReports_OnForeignOrUnknownJobsChangeNothing(t *testing.T) {
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
		// The new attempt's number with the old attempt's token is refused.
		_, err = w.plane.Start(w.ctx(), old.Token, run(job, "task-1", 'a'), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrUnauthenticated)
	})
}

func TestLaunch_PermanentFailureEndsOnlyATasklessClaim(t *testing.T) {
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

func TestStart_WaitsALittleForTheReportOfItsLaunch(t *testing.T) {
	inBubble(t, func(w *world) {
		w.workspace("net")
		w.submit("net", workflow.Update)
		job := w.claimOne()
		r := run(job, "task-1", 'a')
		began := time.Now()
		_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrNotReported)
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("it waited %s for the report", waited)
		}
		got := make(chan error, 1)
		go func() {
			_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
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
