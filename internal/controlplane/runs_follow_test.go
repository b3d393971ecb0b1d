package controlplane_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// follower waits for the end of a log and for a change of its workflow, and notes at what time of the bubble each came.
type follower struct {
	*world
	log, state chan time.Time
}

func (w *world) follow(id string) *follower {
	w.t.Helper()
	f := &follower{w, make(chan time.Time, 1), make(chan time.Time, 1)}
	seen, err := w.plane.Workflow(w.ctx(), w.admin, id)
	w.must(err)
	go func() {
		page, err := w.plane.Logs(w.ctx(), w.admin, id, 0, 0, 0, 20*time.Second)
		if err != nil || !page.Done {
			w.t.Errorf("the log: %+v, %v", page, err)
		}
		f.log <- time.Now()
	}()
	go func() {
		got, err := w.plane.WorkflowAfter(w.ctx(), w.admin, id, seen.Revision, 20*time.Second)
		if err != nil || got.Revision == seen.Revision {
			w.t.Errorf("the workflow: %+v, %v", got, err)
		}
		f.state <- time.Now()
	}()
	synctest.Wait()
	return f
}

// O15: a follower of a run sees its end at once, however it ends.
func TestFollow_TheEndIsSeenAtOnce(t *testing.T) {
	for name, end := range map[string]func(w *world, job api.Job, r api.Run){
		"succeeded": func(w *world, job api.Job, r api.Run) { w.must(w.result(job, r, workflow.Succeeded)) },
		"failed":    func(w *world, job api.Job, r api.Run) { w.must(w.result(job, r, workflow.Failed)) },
		"lost":      func(w *world, job api.Job, r api.Run) { w.lost(job, r, 1) },
		"cancelled": func(w *world, job api.Job, r api.Run) { w.must(w.result(job, r, workflow.Cancelled)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.workspace("net")
				wf := w.submit("net", workflow.Preview)
				job, r := w.started()
				if name == "cancelled" {
					_, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID, api.WithReason{})
					w.must(err)
				}
				f := w.follow(wf.ID)
				<-time.After(100 * time.Millisecond) // between two looks
				began := time.Now()
				end(w, job, r)
				if got := (<-f.log).Sub(began); got != 0 {
					t.Errorf("the reader of the log saw it after %s", got)
				}
				if got := (<-f.state).Sub(began); got != 0 {
					t.Errorf("who waits for the state saw it after %s", got)
				}
			})
		})
	}
}

// A call that waits for a workflow answers when anything that it shows has changed: also a step.
func TestWorkflowAfter_AnswersWhenAStepChanges(t *testing.T) {
	inBubble(t, func(w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Preview)
		job, r := w.started()
		seen, err := w.plane.Workflow(w.ctx(), w.admin, wf.ID)
		w.must(err)
		began := time.Now()
		idle, err := w.plane.WorkflowAfter(w.ctx(), w.admin, wf.ID, seen.Revision, 20*time.Second)
		if took := time.Since(began); err != nil || idle.Revision != seen.Revision || took != 20*time.Second {
			t.Errorf("nothing changed: %s after %s, %v", idle.Revision, took, err)
		}
		got := make(chan api.Workflow)
		go func() {
			next, err := w.plane.WorkflowAfter(w.ctx(), w.admin, wf.ID, seen.Revision, 20*time.Second)
			w.must(err)
			got <- next
		}()
		synctest.Wait()
		began = time.Now()
		_, err = w.plane.Steps(w.ctx(), job.Token, r, api.Steps{Steps: []api.Step{{Seq: 1, Name: "plan", Status: workflow.StepRunning}}})
		w.must(err)
		if next := <-got; len(next.Steps) != 1 || time.Since(began) != 0 {
			t.Errorf("%d steps after %s", len(next.Steps), time.Since(began))
		}
		w.must(w.result(job, r, workflow.Succeeded))
	})
}
