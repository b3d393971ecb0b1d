package controlplane_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func (w *world) submitWith(workspace string, op workflow.Operation, priority int) api.Workflow {
	w.t.Helper()
	wf, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: workspace, Operation: op, Priority: priority})
	w.must(err)
	return wf
}

// C9: what comes back from a claim lines up again.
func TestLane_AClaimThatEndsWithoutAStartGivesWayToAHigherPriority(t *testing.T) {
	for name, test := range map[string]struct {
		max int
		op  workflow.Operation
	}{"changes state": {10, workflow.Update}, "the only place": {1, workflow.Preview}} {
		t.Run(name, func(t *testing.T) {
			everyStore(t, func(t *testing.T, w *world) {
				w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = test.max })
				low := w.submit("net", test.op)
				job := w.claimOne()
				high := w.submitWith("net", test.op, 5)
				w.must(w.plane.Release(w.ctx(), w.pool, job.ID, api.Release{Attempt: job.Attempt, Text: "no room"}))
				for _, want := range []string{high.ID, low.ID} {
					got, r := w.started()
					if got.ID != want {
						t.Fatalf("claimed %s, want %s", got.ID, want)
					}
					w.must(w.result(got, r, workflow.Succeeded))
				}
			})
		})
	}
}

func TestLane_ARaisedLimitLetsInAllThatItHasRoomFor(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		limit := func(n int) func(*api.Workspace) { return func(ws *api.Workspace) { ws.MaxActive = n } }
		w.workspace("net", limit(1))
		for range 70 {
			w.submit("net", workflow.Preview)
		}
		update := w.submit("net", workflow.Update)
		why, err := w.plane.Why(w.ctx(), w.admin, update.ID)
		w.must(err)
		if why.Code != "workspace_limit" || why.Waiting != "a place in workspace net, which allows 1 active workflow at once" {
			t.Errorf("why = %q: %q", why.Code, why.Waiting)
		}
		w.workspace("net", limit(80))
		why, err = w.plane.Why(w.ctx(), w.admin, update.ID)
		w.must(err)
		if why.Code != "pool_inactive" { // nobody has polled yet; the workspace holds nothing back
			t.Errorf("with room for all, why = %q: %q", why.Code, why.Waiting)
		}
		var got []api.Job
		for range 2 {
			got = append(got, w.claim(50)...)
		}
		if len(got) != 71 || got[70].ID != update.ID {
			t.Errorf("claimed %d, want all 71, and the update last", len(got))
		}
	})
}
