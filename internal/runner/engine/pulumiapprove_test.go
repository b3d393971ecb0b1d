package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// stackPlanned makes a preview that leaves a plan, and returns a job that applies it and its host.
func stackPlanned(t *testing.T, h *host, j engine.Job, op workflow.Operation, program string) (engine.Job, *host, engine.Outcome) {
	t.Helper()
	h = &host{path: h.path, env: h.env}
	j = next(t, h, j, engine.Outcome{State: j.Spec.Known}, workflow.Preview, program)
	j.Fetched, j.StateStore, j.Spec.WorkspaceID, j.Spec.For = "commit-1", "machine", "ws_1", op
	out := mustRun(t, h, j)
	if out.Plan == nil {
		t.Fatalf("there is no plan\n%s", h.text())
	}
	applying := &host{path: h.path, env: h.env, input: h.kept[bundleKey]}
	update := next(t, applying, j, engine.Outcome{State: j.Spec.Known}, op, program)
	update.Fetched, update.StateStore, update.Spec.WorkspaceID = j.Fetched, j.StateStore, j.Spec.WorkspaceID
	update.Spec.Plan = &api.PlanRef{Workflow: "wf_0", Attempt: 1, PlanMade: *out.Plan}
	return update, applying, out
}

// C13: what one run planned another applies, also to a stack that is made for it.
func TestPulumi_AppliesThePlanThatWasApproved(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		h := fresh()
		first := pulumiJob(t, h, workflow.Preview, outputsOnly)
		first.Spec.Variables = map[string]any{"word": "planned"}
		update, applying, out := stackPlanned(t, h, first, workflow.Update, outputsOnly)
		if got := filesBelow(t, first.StateDir); len(got) != 0 || out.Plan.Empty || out.Plan.Source != "commit-1" {
			t.Errorf("the preview made %v, and the plan %+v", got, out.Plan)
		}
		done := mustRun(t, applying, update)
		if diff := cmp.Diff([]string{"init", "check", "apply", "output"}, stepNames(applying)); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if !slices.ContainsFunc(applying.args, func(args []string) bool { return slices.Contains(args, "--plan") }) || done.Outputs[2].Value != "planned" {
			t.Errorf("ran %v, outputs %+v", applying.args, done.Outputs)
		}

		first.Spec.Known = done.State
		if _, _, out = stackPlanned(t, fresh(), first, workflow.Update, outputsOnly); !out.Plan.Empty {
			t.Errorf("a plan that changes nothing is not said to be empty: %+v", out.Plan)
		}
		first.Spec.Variables = map[string]any{"word": "another"}
		if _, _, out = stackPlanned(t, fresh(), first, workflow.Update, outputsOnly); out.Plan.Empty {
			t.Error("a plan that changes an output is said to be empty")
		}
		update, applying, _ = stackPlanned(t, fresh(), first, workflow.Destroy, outputsOnly)
		mustRun(t, applying, update)
	})
}

// Whatever has moved since the preview is named, and nothing is applied.
func TestPulumi_PlanThatDoesNotFitIsNotApplied(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		h := fresh()
		first := pulumiJob(t, h, workflow.Update, outputsOnly)
		first.StateStore = "machine"
		out := mustRun(t, h, first)
		preview := next(t, h, first, out, workflow.Preview, outputsOnly)
		preview.Spec.Variables = map[string]any{"word": "planned"}
		for title, tc := range map[string]struct {
			change func(j *engine.Job, h *host)
			says   string
		}{
			"another source":    {func(j *engine.Job, _ *host) { j.Fetched = "commit-2" }, "the source was commit-1"},
			"another workspace": {func(j *engine.Job, _ *host) { j.Spec.WorkspaceID = "ws_2" }, "the workspace's id was ws_1"},
			"another operation": {func(j *engine.Job, _ *host) { j.Spec.Operation = workflow.Destroy }, "the operation was update"},
			"another bundle":    {func(_ *engine.Job, h *host) { h.input = append(slices.Clone(h.input), 0) }, "SHA-256"},
			"other settings":    {func(j *engine.Job, _ *host) { j.Spec.Variables = map[string]any{"word": "other"} }, "the SHA-256 of the stack's settings"},
			"a later state": {func(j *engine.Job, _ *host) {
				again := &host{path: h.path, env: h.env}
				update := next(t, again, first, out, workflow.Update, outputsOnly)
				update.StateStore = first.StateStore
				out = mustRun(t, again, update)
				j.Spec.Known = out.State
			}, "the state's serial was"},
		} {
			preview.Spec.Known = out.State
			approved, applying, _ := stackPlanned(t, h, preview, workflow.Update, outputsOnly)
			tc.change(&approved, applying)
			_, err := engine.Run(t.Context(), applying, approved)
			if f := failure(t, err); f.Reason != workflow.ReasonPlanStale || !strings.Contains(f.Detail, tc.says) {
				t.Errorf("%s: got %s %q, want %s with %q", title, f.Reason, f.Detail, workflow.ReasonPlanStale, tc.says)
			}
			if ran := applying.ran(); slices.Contains(ran, "up") || slices.Contains(ran, "destroy") {
				t.Errorf("%s: ran %v", title, ran)
			}
		}
	})
}

// A run that was killed in its update leaves a lock, and a state that its plan does not fit any more. Both are named.
func TestPulumi_StalePlanOfALockedStack(t *testing.T) {
	h := withStandIn(t)
	first := pulumiJob(t, h, workflow.Update, withResources("s", "x"))
	first.StateStore = "machine"
	approved, applying, _ := stackPlanned(t, h, first, workflow.Update, withResources("s", "x"))
	mustRun(t, h, first)
	put(t, first.StateDir, map[string]string{".pulumi/locks/organization/demo/dev/cccc.json": "{}"})
	_, err := engine.Run(t.Context(), applying, approved)
	if f := failure(t, err); f.Reason != workflow.ReasonPlanStale || f.Lock == nil || f.Lock.ID != "cccc" {
		t.Errorf("got %s %q, lock %+v", f.Reason, f.Detail, f.Lock)
	}
}

// The program can want something else at each run. A second preview finds that; what only the update itself finds ends
// it, with a word on what is done.
func TestPulumi_ProgramThatChangesItsMind(t *testing.T) {
	h := withStandIn(t)
	first := pulumiJob(t, h, workflow.Update, withResources("s", "x"))
	first.StateStore = "machine"
	out := mustRun(t, h, first)
	preview := next(t, h, first, out, workflow.Preview, withResources("t", "x"))
	for title, tc := range map[string]struct {
		program, surprise, says string
		reason                  workflow.Reason
	}{
		"at the check":  {withResources("t", "y"), "", "the SHA-256 of the planned changes' summary", workflow.ReasonPlanStale},
		"at the update": {withResources("t", "x"), "1", "::a violates the approved plan, so the update ended there", workflow.ReasonStepFailed},
	} {
		approved, applying, _ := stackPlanned(t, h, preview, workflow.Update, withResources("t", "x"))
		put(t, approved.Root, map[string]string{"Pulumi.yaml": tc.program}) // as a program does that reads the world
		applying.env = append(slices.Clone(h.env), "SURPRISE="+tc.surprise)
		before := filesBelow(t, first.StateDir)
		_, err := engine.Run(t.Context(), applying, approved)
		if f := failure(t, err); f.Reason != tc.reason || !strings.Contains(f.Detail, tc.says) || strings.Contains(f.Detail, "planted") {
			t.Errorf("%s: got %s %q", title, f.Reason, f.Detail)
		}
		if diff := cmp.Diff(before, filesBelow(t, first.StateDir)); diff != "" {
			t.Errorf("%s: the state has changed:\n%s", title, diff)
		}
	}
	approved, applying, _ := stackPlanned(t, h, preview, workflow.Update, withResources("t", "x"))
	if done := mustRun(t, applying, approved); done.Changes.Change != 1 {
		t.Errorf("got %+v", done.Changes)
	}
}

// The program runs as the user that writes the plan file.
func TestPulumi_PlanThatAllowsMoreThanIsShown(t *testing.T) {
	h := withStandIn(t)
	first := pulumiJob(t, h, workflow.Update, withResources("s", "x"))
	out := mustRun(t, h, first)
	for env, says := range map[string]string{"TAMPERED=" + address("b"): "::b\" that the preview does not show", "EMPTIED=1": "it is empty"} {
		kept := &host{path: h.path, env: append(slices.Clone(h.env), env)}
		preview := next(t, kept, first, out, workflow.Preview, withResources("t", "x"))
		preview.Fetched, preview.Spec.For = "commit-1", workflow.Update
		_, err := engine.Run(t.Context(), kept, preview)
		if f := failure(t, err); !strings.Contains(f.Detail, says) || len(kept.kept) > 0 {
			t.Errorf("%s: got %s, kept %d", env, f.Detail, len(kept.kept))
		}
	}
}

// A backend of the code's own encrypts the secrets of a plan only for a stack that it has.
func TestPulumi_ANewStackElsewhereHasNoPlan(t *testing.T) {
	h := withStandIn(t)
	j := pulumiJob(t, h, workflow.Preview, lines("name: demo", "backend: {url: 's3://states'}"))
	j.Spec.State.Kind, j.Spec.For, j.Fetched = api.StateSource, workflow.Update, "commit-1"
	_, err := engine.Run(t.Context(), h, j)
	if f := failure(t, err); !strings.Contains(f.Detail, "create it there with pulumi stack init") {
		t.Errorf("got %s: %s", f.Reason, f.Detail)
	}
}
