package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
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
			if got, err := w.plane.Restored(w.ctx()); err != nil || got != (api.Restored{Workflows: want}) {
				t.Errorf("ended %s (%v), want %d workflows", got, err, want)
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

// Nothing goes on by itself that nobody asked for since: no tree submits its next run, no plan is applied by an approval of
// before, no time of a schedule is made up for, nothing is told again.
func TestRestored_NothingGoesOnByItself(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("network")
		w.workspace("app", func(ws *api.Workspace) { ws.After = []string{"network"} })
		w.guarded(required()) // net
		tree, err := w.plane.SubmitTree(w.ctx(), w.admin, "", api.NewTree{Workspace: "network", Operation: workflow.Destroy})
		w.must(err)
		app, r := w.started()
		waits := w.asks(w.admin, workflow.Update)
		w.plans(one)
		w.reviewOf(waits.ID, api.ReviewWaiting)
		w.notified("ops")
		w.fails("app") // and a delivery tells it
		w.schedule(func(s *api.Schedule) { s.Workspaces, s.Projects = []string{"network"}, nil })
		w.schedule(func(s *api.Schedule) {
			s.Name, s.Type, s.Operation, s.Workspaces, s.Projects = "destroyer", workflow.Deployment, workflow.Destroy, []string{"app"}, nil
		})

		w.clock.advance(6 * time.Hour)
		w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Alone: true})
		for _, want := range []api.Restored{{Plans: 1, Trees: 1, Deliveries: 1, Schedules: 1}, {}} { // it is idempotent
			if got, err := w.plane.Restored(w.ctx()); err != nil || got != want {
				t.Errorf("ended %s (%v), want %s", got, err, want)
			}
		}
		before := len(w.all())
		w.passes()
		w.must(w.result(app, r, workflow.Succeeded)) // it lived
		w.passes()
		if after := w.all(); len(after) != before {
			t.Errorf("%d runs were submitted: %+v", len(after)-before, after[before:])
		}
		got, err := w.plane.Tree(w.ctx(), w.admin, tree.ID)
		w.must(err)
		if got.State != api.TreeCancelled || got.Nodes[0].State != api.TreeCancelled || got.Nodes[1].State != api.TreeSucceeded {
			t.Errorf("the tree is %+v", got)
		}
		_, err = w.plane.Approve(w.ctx(), w.admin, waits.ID, seen)
		wantErr(t, err, workflow.ErrConflict)
		w.reviewOf(waits.ID, api.ReviewExpired)
		if d := w.deliveries(); len(d) != 1 || d[0].State != api.DeliveryFailed || !strings.Contains(d[0].Detail, "restored") {
			t.Errorf("the deliveries are %+v", d)
		}
		destroyer, err := w.plane.Schedules.Show(w.ctx(), w.admin, "destroyer")
		w.must(err)
		if !destroyer.IsPaused {
			t.Error("what destroys goes on by itself")
		}
		w.clock.advance(time.Hour)
		w.passes()
		if after := w.all(); len(after) != before+1 || after[before].SubmittedBy != "schedule/hourly" || after[before].Type != workflow.InsightsScan {
			t.Errorf("the next hour submits %+v, want a scan", after[before:])
		}
	})
}

// A pull request's plan was approved, and waits for its merge: whether that was applied since is not known.
func TestRestored_PullRequestApprovalsAreNotReused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(afterMerge())
	made := w.pulled(valuesSum)
	w.approves(w.person("bob"), made.ID)
	w.reviewOf(made.ID, api.ReviewMerge)
	for _, want := range []api.Restored{{Plans: 1}, {}} {
		if got, err := w.plane.Restored(w.ctx()); err != nil || got != want {
			t.Errorf("ended %s (%v), want %s", got, err, want)
		}
	}
	w.reviewOf(made.ID, api.ReviewExpired)
	merged := w.merged(valuesSum)
	if r := w.reviewOf(merged.ID, api.ReviewWaiting); r.CarriedFrom != "" || len(r.Votes) != 0 {
		t.Errorf("its approvals were carried over: %+v", r)
	}
}
