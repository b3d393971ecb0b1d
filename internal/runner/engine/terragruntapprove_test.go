package engine_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// approvable is a tree whose plans can be approved.
type approvable struct {
	*testing.T
	files map[string]string
}

func newApprovable(t *testing.T) approvable {
	backend := remote(t)
	return approvable{t, map[string]string{
		"net/main.tf": backend("net") + netUnit, "net/terragrunt.hcl": "",
		"app/main.tf": backend("app") + appUnit, "app/terragrunt.hcl": needsNet,
	}}
}

func (a approvable) job(op workflow.Operation) engine.Job {
	a.Helper()
	j := treeJob(a.T, op, a.files)
	j.Fetched, j.Spec.WorkspaceID = "commit-1", "ws_1"
	return j
}

// applied runs an operation without an approval.
func (a approvable) applied(op workflow.Operation) {
	a.Helper()
	h := newHost()
	if _, err := engine.Run(a.Context(), h, a.job(op)); err != nil {
		a.Fatalf("%s: %v\n%s", op, err, h.text())
	}
}

// planned makes a preview with a plan, and returns the job that applies it.
func (a approvable) planned(op workflow.Operation) (engine.Job, *host, engine.Outcome) {
	a.Helper()
	h := newHost()
	j := a.job(workflow.Preview)
	j.Spec.For = op
	out, err := engine.Run(a.Context(), h, j)
	if err != nil || out.Plan == nil {
		a.Fatalf("preview for %s: %v, plan %+v\n%s", op, err, out.Plan, h.text())
	}
	if strings.Contains(h.text(), "resource_changes") {
		a.Errorf("what the plans show is in the log:\n%s", h.text())
	}
	apply := a.job(op)
	apply.Spec.Plan = &api.PlanRef{Workflow: "wf_0", Attempt: 1, PlanMade: *out.Plan}
	applying := newHost()
	applying.input = h.kept[bundleKey]
	return apply, applying, out
}

// C13: a plan for each unit, which are what is applied, in the order of the units.
func TestTerragrunt_AppliesThePlansThatWereApproved(t *testing.T) {
	a := newApprovable(t)
	a.files["app/main.tf"] += "check \"name\" {\n  assert {\n    condition     = terraform_data.b.output.name != \"first\"\n    error_message = \"another\"\n  }\n}\n"
	a.applied(workflow.Update)
	a.files["net/main.tf"] = strings.Replace(a.files["net/main.tf"], `"first"`, `"second"`, 1)
	j, h, out := a.planned(workflow.Update)
	if out.Plan.Empty || out.Changes.Change == 0 {
		t.Errorf("got %+v, %+v", out.Plan, out.Changes)
	}
	a.files["app/main.tf"] += "resource \"terraform_data\" \"more\" {}\n" // it is not in the plans
	done, err := engine.Run(t.Context(), h, j)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.text())
	}
	if diff := cmp.Diff([]string{"init", "check", "apply", "output"}, stepNames(h)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(addresses(out.Changes), addresses(done.Changes)); diff != "" {
		t.Errorf("the changes applied are not those shown (-shown +applied):\n%s", diff)
	}
	if diff := cmp.Diff(&api.Checks{Failing: 1, Names: []string{"app/check.name"}}, done.Checks); diff != "" {
		t.Errorf("checks of what it left (-want +got):\n%s", diff)
	}

	j, h, _ = a.planned(workflow.Destroy)
	if done, err = engine.Run(t.Context(), h, j); err != nil || done.Changes.Destroy != 2 {
		t.Fatalf("destroy: %v, %+v\n%s", err, done.Changes, h.text())
	}
}

func TestTerragrunt_PlansThatDoNotFitAreNotApplied(t *testing.T) {
	for title, tc := range map[string]struct {
		change func(a approvable, j *engine.Job, h *host)
		says   string
	}{
		"another source": {func(_ approvable, j *engine.Job, _ *host) { j.Fetched = "commit-2" }, "the source was commit-1"},
		"another bundle": {func(_ approvable, _ *engine.Job, h *host) { h.input = append(slices.Clone(h.input), 0) }, "SHA-256"},
		"a state that moved": {func(a approvable, _ *engine.Job, _ *host) {
			a.files = maps.Clone(a.files)
			a.files["net/main.tf"] = strings.Replace(a.files["net/main.tf"], `"second"`, `"third"`, 1)
			a.applied(workflow.Update)
		}, "Saved plan is stale"},
	} {
		a := newApprovable(t)
		a.applied(workflow.Update)
		a.files["net/main.tf"] = strings.Replace(a.files["net/main.tf"], `"first"`, `"second"`, 1)
		j, h, _ := a.planned(workflow.Update)
		tc.change(a, &j, h)
		_, err := engine.Run(t.Context(), h, j)
		if f := failure(t, err); f.Reason != workflow.ReasonPlanStale || !strings.Contains(f.Detail, tc.says) {
			t.Errorf("%s: got %s %q, want %q\n%s", title, f.Reason, f.Detail, tc.says, h.text())
		}
	}
}

// What people see is what the engine shows of the plans that are kept, not the JSON beside them: code of a unit could
// change one of the two.
func TestTerragrunt_ShowsThePlansThatItKeeps(t *testing.T) {
	j, h := standInJob(t, workflow.Preview, `for u in a b; do (cd $u && "$TG_TF_PATH" show -json); done`)
	fakeEngine(t, filepath.Join(j.EnginePath[0], "tofu"), "1.11.0",
		`show) echo '{"format_version":"1.2","resource_changes":[{"address":"terraform_data.kept","mode":"managed",`+
			`"type":"terraform_data","change":{"actions":["delete"]}}]}' ;;`)
	j.Spec.For, j.Fetched = workflow.Update, "commit-1"
	out, err := engine.Run(t.Context(), h, j)
	want := []string{"delete a/terraform_data.kept", "delete b/terraform_data.kept"}
	if err != nil || out.Plan == nil || !cmp.Equal(addresses(out.Changes), want) || !strings.Contains(h.steps[1].Text, "2 to destroy") {
		t.Errorf("got %v, %v, %+v\n%s", err, addresses(out.Changes), h.steps, h.text())
	}
}

// Terragrunt may fail before any unit has begun.
func TestTerragrunt_FailsBeforeAnApprovedUnit(t *testing.T) {
	a := newApprovable(t)
	a.applied(workflow.Update)
	a.files["net/main.tf"] = strings.Replace(a.files["net/main.tf"], `"first"`, `"second"`, 1)
	j, h, _ := a.planned(workflow.Update)
	h.onExec = func(c engine.Command) {
		if slices.Contains(c.Args, "apply") {
			put(t, j.Root, map[string]string{"net/terragrunt.hcl": "{", "app/terragrunt.hcl": "{"})
		}
	}
	out, err := engine.Run(t.Context(), h, j)
	if f := failure(t, err); f.Reason != workflow.ReasonStepFailed || out.Changes != nil || out.Units != nil {
		t.Errorf("got %s %q, changes %+v, units %+v\n%s", f.Reason, f.Detail, out.Changes, out.Units, h.text())
	}
}

// A plan that rests on invented outputs, or on a file that somebody changed, is none.
func TestTerragrunt_PlansThatCannotBeApproved(t *testing.T) {
	a := newApprovable(t)
	a.files["app/terragrunt.hcl"] = strings.Replace(needsNet, "\"../net\"\n", "\"../net\"\n  mock_outputs = { name = \"mock\" }\n", 1)
	j := a.job(workflow.Preview)
	j.Spec.For = workflow.Update
	mocked := newHost()
	out, err := engine.Run(t.Context(), mocked, j)
	if err != nil || out.Plan != nil || !strings.Contains(mocked.steps[1].Text, "planned with mock outputs") || len(out.Changes.Resources) != 2 {
		t.Errorf("with mock outputs: got %v, %+v, %+v", err, out, mocked.steps)
	}

	a.applied(workflow.Update)
	a.files["net/main.tf"] = strings.Replace(a.files["net/main.tf"], `"first"`, `"second"`, 1)
	j, h, _ := a.planned(workflow.Update)
	h.onExec = func(c engine.Command) {
		if !slices.Contains(c.Args, "apply") {
			return
		}
		for _, name := range []string{"net", "app"} {
			plans, _ := filepath.Glob(filepath.Join(j.TempDir, "plans-*", name, "tfplan.tfplan"))
			for _, plan := range plans {
				if err := os.WriteFile(plan, []byte("another"), 0o600); err != nil {
					t.Error(err)
				}
			}
		}
	}
	_, err = engine.Run(t.Context(), h, j)
	if f := failure(t, err); !strings.Contains(f.Detail+h.text(), "the plan of this unit is not the one that was approved") {
		t.Errorf("a plan that was swapped: got %s\n%s", f.Detail, h.text())
	}
}
