package controlplane_test

import (
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// After a restore, what had not started when the records were copied never starts, because it may have run since. What
// was running goes on if it still lives, however long ago that was, and is given up if it does not.
func TestRestored_NothingStartsThatMayHaveRunSince(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		for _, ws := range []string{"lives", "died", "claimed", "waits"} {
			w.workspace(ws)
		}
		w.submit("lives", workflow.Update)
		lives, run := w.started()
		w.submit("died", workflow.Update)
		died, _ := w.started()
		behind := w.submit("died", workflow.Update).ID // waits for the slot
		w.submit("claimed", workflow.Update)
		claimed := w.claimOne()
		w.launch(claimed, "task")
		waits := w.submit("waits", workflow.Update).ID

		w.clock.advance(30 * 24 * time.Hour)
		w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Alone: true})
		for _, want := range []int{3, 0} { // it is idempotent
			if got, err := w.plane.Restored(w.ctx(), "a restore"); err != nil || got != want {
				t.Errorf("cancelled %d (%v), want %d", got, err, want)
			}
		}
		for _, id := range []string{behind, claimed.ID, waits} {
			w.is(id, workflow.Cancelled, workflow.ReasonCancelled)
		}
		if jobs := w.claim(10); len(jobs) > 0 {
			t.Errorf("claimed %v", jobs)
		}
		_, err := w.plane.Start(w.ctx(), claimed.Token, runOf(claimed), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrOver)

		// The time since the backup is no silence.
		w.pass()
		for range 12 {
			w.live(time.Minute)
			if _, err := w.plane.Heartbeat(w.ctx(), lives.Token, run, api.Heartbeat{}); err != nil {
				t.Fatal(err)
			}
		}
		w.is(lives.ID, workflow.Running, "")
		w.is(died.ID, workflow.Failed, workflow.ReasonRunnerLost)
		w.must(w.result(lives, run, workflow.Succeeded))
		w.submit("claimed", workflow.Update) // its slot is free
		w.claimOne()
	})
}

func runOf(job api.Job) api.Run { return run(job, "task", 'a') }
