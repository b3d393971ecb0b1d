package controlplane_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func (w *world) submitWith(workspace string, op workflow.Operation, priority int) api.Workflow {
	w.t.Helper()
	wf, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: workspace, Operation: op, Priority: &priority})
	w.must(err)
	return wf
}

// C9: a workflow that comes back from a claim joins the queue again.
func TestQueue_UnstartedClaimYieldsToHigherPriority(t *testing.T) {
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

func TestQueue_ARaisedLimitLetsInAllThatItHasRoomFor(t *testing.T) {
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
		if why.Code != "pool_inactive" { // nobody has polled yet; the workspace is not the cause
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

// C9: one run at a time changes the state of a workspace.
func TestQueue_StateChangesRunOneByOneInOrder(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		low, mid := w.submit("net", workflow.Update), w.submit("net", workflow.Destroy)
		high, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, Priority: new(5)})
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

func TestQueue_PreviewsOverlapUpToTheWorkspaceLimit(t *testing.T) {
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
		_, err = w.plane.Cancel(w.ctx(), w.admin, jobs[0].ID, api.WithReason{})
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
