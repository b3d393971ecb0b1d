package controlplane_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ofPush submits an update of a commit for the push of a git host or of a pipeline.
func (w *world) ofPush(kind, commit string) api.Workflow {
	w.t.Helper()
	by := runs.Triggered{Trigger: record.Trigger{Kind: kind, Name: "forge", Repository: "Example/Infra", Commit: commit}}
	wf, err := w.plane.SubmitFor(w.ctx(), controlplane.Principal{Organization: "default", ID: "prn_pipeline", Name: "pipeline", Audience: w.admin.Audience}, "", api.Submit{Workspace: "net", Operation: workflow.Update}, by)
	w.must(err)
	return wf
}

// runs starts the one run that can be claimed, and ends it.
func (w *world) runs(outcome workflow.State) {
	w.t.Helper()
	job, run := w.started()
	w.must(w.result(job, run, outcome))
}

// at checks which commit was applied last, and by which run.
func (w *world) at(commit, run string) {
	w.t.Helper()
	one, err := w.plane.Workspace(w.ctx(), w.admin, "net")
	w.must(err)
	list, err := w.plane.Workspaces(w.ctx(), w.admin, "", 10)
	w.must(err)
	if diff := cmp.Diff(one.Applied, list.Items[0].Applied); diff != "" {
		w.t.Errorf("the list has another commit (-show +list):\n%s", diff)
	}
	if a := one.Applied; a == nil || a.Commit != commit || a.Workflow != run || a.Repository != "forge.example/example/infra" || a.At.IsZero() {
		w.t.Errorf("got %+v, want %s of forge.example/example/infra by %s", a, commit, run)
	}
}

func TestApplied_TheCommitOfAPushThatWasAppliedLast(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.reviewed(nil)
		if ws, err := w.plane.Workspace(w.ctx(), w.admin, "net"); err != nil || ws.Applied != nil {
			t.Errorf("before any run: %+v, %v", ws.Applied, err)
		}
		first := w.ofPush(api.TriggerPush, oneCommit)
		w.runs(workflow.Succeeded)
		w.at(oneCommit, first.ID)

		w.ofPush(api.TriggerPush, anotherCommit)
		w.runs(workflow.Failed)
		w.submit("net", workflow.Update) // by hand, of no commit
		w.runs(workflow.Succeeded)
		w.at(oneCommit, first.ID)

		// A value for it in the settings is ignored, and does not change them.
		ws, err := w.plane.Workspace(w.ctx(), w.admin, "net")
		w.must(err)
		ws.Applied = &api.AppliedCommit{Commit: anotherCommit, Repository: "forge.example/example/infra"}
		if _, outcome, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws); err != nil || outcome != api.OutcomeUnchanged {
			t.Errorf("put with a commit: %s, %v", outcome, err)
		}
		w.at(oneCommit, first.ID)
	})
}

func TestApplied_UnderApproval(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.reviewed(required())
		bob := w.person("bob")
		made := w.ofPush(api.TriggerPush, oneCommit)
		w.plans(one, valued(valuesSum, oneCommit))
		if ws, err := w.plane.Workspace(w.ctx(), w.admin, "net"); err != nil || ws.Applied != nil {
			t.Errorf("a plan that waits: %+v, %v", ws.Applied, err)
		}
		w.approves(bob, made.ID)
		applies := w.reviewOf(made.ID, api.ReviewApproved).Applies
		w.runs(workflow.Succeeded)
		w.at(oneCommit, applies)

		// The commit of a pull request is on no branch.
		pull := w.pulled(valuesSum, "ada")
		w.approves(bob, pull.ID)
		w.runs(workflow.Succeeded)
		w.at(oneCommit, applies)

		// A plan that changes nothing has no run that applies it. Nobody has approved its commit.
		empty := w.ofPush(api.TriggerPush, anotherCommit)
		w.plans(api.Changes{}, valued(valuesSum, anotherCommit))
		w.reviewOf(empty.ID, api.ReviewEmpty)
		w.at(anotherCommit, empty.ID)
		ws, err := w.plane.Workspace(w.ctx(), w.admin, "net")
		w.must(err)
		k := record.AppliedKey("default", ws.ID)
		got, err := w.store.Get(w.ctx(), k)
		w.must(err)
		if kept, err := record.Decode[record.Applied](got[0]); err != nil || kept.Commit != "c1" {
			t.Errorf("approved was %q, want that of the pull request (%v)", kept.Commit, err)
		}
	})
}
