package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// unsaves runs the update that can be claimed; its engine cannot write the state, which is kept as an artifact.
func (w *world) unsaves() (job api.Job, r api.Run) {
	w.t.Helper()
	job, r = w.started()
	for _, in := range []api.NewArtifacts{announced(leaves(api.ArtifactState, api.ErroredName)), {Placed: []string{api.ErroredName}}} {
		_, err := w.plane.Announce(w.ctx(), job.Token, r, in)
		w.must(err)
	}
	return job, r
}

// pushes submits a run that pushes a state.
func (w *world) pushes() api.Workflow {
	w.t.Helper()
	wf, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.StatePush, Push: &api.PushedState{SHA256: bundleSum, Size: 3}})
	w.must(err)
	return wf
}

// R15: if a backend lacks the state of a run, the next run that changes the state makes the same resources again. So
// no run may change it before that state is pushed, or an admin has given it up.
func TestUnsaved_NoRunChangesTheStateBeforeItIsPushed(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.guarded(nil)
		first, before := w.submit("net", workflow.Update), w.submit("net", workflow.Destroy) // which waits already
		job, r := w.unsaves()
		w.must(w.result(job, r, workflow.Failed))
		if jobs := w.claim(10); len(jobs) > 0 {
			t.Fatalf("claimed %+v", jobs)
		}
		w.plan(w.submit("net", workflow.Preview).ID)
		slot, err := w.plane.Slot(w.ctx(), w.admin, "net")
		w.must(err)
		if !slot.IsUnsaved || slot.Holder == nil || slot.Holder.ID != first.ID || slot.Refusal != "" {
			t.Errorf("the slot is %+v", slot)
		}
		why, err := w.plane.Why(w.ctx(), w.admin, before.ID)
		w.must(err)
		for _, want := range []string{"the state that workflow " + first.ID + " could not write", "dayfly state push net", "dayfly repair unlock net"} {
			if !strings.Contains(why.Waiting, want) {
				t.Errorf("it waits for %s; it does not say %s", why.Waiting, want)
			}
		}
		err = w.plane.DeleteWorkspace(w.ctx(), w.admin, "net")
		wantErr(t, err, workflow.ErrInUse)

		// A push that fails decides nothing, and a run of a higher priority does not come before the next one.
		w.pushes()
		job, r = w.started()
		w.must(w.result(job, r, workflow.Failed))
		_, err = w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, Priority: new(9)})
		w.must(err)
		push := w.pushes()
		_, err = w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, Priority: new(9)})
		w.must(err)
		job, r = w.started()
		if job.ID != push.ID {
			t.Fatalf("started %s, want the run that pushes, %s", job.ID, push.ID)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		if story := w.story(first.ID); !strings.Contains(story, "run "+push.ID+" has pushed a state") {
			t.Errorf("the story of the run says nothing of it:\n%s", story)
		}
		if slot, err := w.plane.Slot(w.ctx(), w.admin, "net"); err != nil || slot.IsUnsaved {
			t.Errorf("the slot is %+v, %v", slot, err)
		}
		for range 3 { // all that waited
			job, r = w.started()
			w.must(w.result(job, r, workflow.Succeeded))
		}
		w.is(before.ID, workflow.Succeeded, "")
	})
}

// plan runs a preview.
func (w *world) plan(id string) {
	w.t.Helper()
	job, r := w.started()
	if job.ID != id {
		w.t.Fatalf("started %s, want the preview %s", job.ID, id)
	}
	w.must(w.result(job, r, workflow.Succeeded))
}

func TestUnsaved_AnAdminGivesItUp(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.guarded(nil)
		first := w.submit("net", workflow.Update)
		job, _ := w.unsaves()
		w.live(workflow.Silence + time.Minute) // and then its runner is lost
		w.is(first.ID, workflow.Failed, workflow.ReasonRunnerLost)
		_, err := w.plane.Unlock(w.ctx(), w.admin, "net", api.Unlock{Workflow: job.ID}) // its task is gone
		w.must(err)
		next := w.submit("net", workflow.Update)
		if jobs := w.claim(10); len(jobs) > 0 {
			t.Fatalf("claimed %+v", jobs)
		}
		operator := w.admin
		operator.Role = api.RoleOperator
		_, err = w.plane.Unlock(w.ctx(), operator, "net", api.Unlock{Workflow: first.ID})
		wantErr(t, err, workflow.ErrForbidden)
		_, err = w.plane.Unlock(w.ctx(), w.admin, "net", api.Unlock{Workflow: next.ID})
		wantErr(t, err, workflow.ErrConflict)
		_, err = w.plane.Unlock(w.ctx(), w.admin, "net", api.Unlock{Workflow: first.ID})
		w.must(err)
		if story := w.story(first.ID); !strings.Contains(story, "admin gives up the state") {
			t.Errorf("the story of the run says nothing of it:\n%s", story)
		}
		if job := w.claimOne(); job.ID != next.ID {
			t.Errorf("claimed %s, want %s", job.ID, next.ID)
		}
	})
}

// The upload of a state fails more often than what announces it, and then nobody else has it either.
func TestUnsaved_AlsoWhereItCannotBeKeptAsAnArtifact(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.guarded(nil)
		first := w.submit("net", workflow.Update)
		job, r := w.started()
		_, err := w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactState, api.ErroredName)))
		w.must(err)
		w.must(w.result(job, r, workflow.Failed))
		next := w.submit("net", workflow.Update)
		if jobs := w.claim(10); len(jobs) > 0 {
			t.Fatalf("claimed %+v", jobs)
		}
		_, err = w.plane.Unlock(w.ctx(), w.admin, "net", api.Unlock{Workflow: first.ID})
		w.must(err)
		if job := w.claimOne(); job.ID != next.ID {
			t.Errorf("claimed %s, want %s", job.ID, next.ID)
		}
	})
}

// It waits for a decision longer than other artifacts are kept, and then goes like all else.
func TestUnsaved_IsKeptUntilSomebodyDecides(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.guarded(nil)
		first := w.submit("net", workflow.Update)
		job, r := w.unsaves()
		w.must(w.result(job, r, workflow.Failed))
		w.clock.advance(300 * day)
		w.passes()
		kept, err := w.plane.Artifacts(w.ctx(), w.admin, first.ID, "", 0)
		if err != nil || len(kept.Items) != 1 || !kept.Items[0].ExpiresAt.After(w.clock.now().Add(400*day)) {
			t.Fatalf("after 300 days: %+v, %v", kept.Items, err)
		}
		_, err = w.plane.Unlock(w.ctx(), w.admin, "net", api.Unlock{Workflow: first.ID})
		w.must(err)
		_, err = w.plane.Artifacts(w.ctx(), w.admin, first.ID, "", 0)
		wantErr(t, err, workflow.ErrExpired)
	})
}

// Only a run that changes the state can leave one that it could not write.
func TestUnsaved_APreviewLeavesNone(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(nil)
	w.submit("net", workflow.Preview)
	job, r := w.started()
	_, err := w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactState, api.ErroredName)))
	wantErr(t, err, workflow.ErrInvalid)
}
