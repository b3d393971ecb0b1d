package engine_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// treeJob is a job of the terragrunt of this machine over a tree of files, or skips.
func treeJob(t *testing.T, op workflow.Operation, files map[string]string) engine.Job {
	t.Helper()
	if _, err := exec.LookPath(api.EngineTerragrunt); err != nil {
		t.Skip("terragrunt is not on this machine")
	}
	j := job(t, api.EngineTerragrunt, op, files)
	j.Spec.State, j.ReadOnlyState = api.State{Kind: api.StateSource}, !workflow.ChangesState(j.Spec.Type, op)
	return j
}

// remote keeps states as the backend http has them, and returns the block that names the place of one.
func remote(t *testing.T) (backend func(unit string) string) {
	t.Helper()
	var mu sync.Mutex
	states := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.Method {
		case http.MethodGet:
			if states[r.URL.Path] == nil {
				http.NotFound(w, r)
			}
			_, _ = w.Write(states[r.URL.Path])
		case http.MethodPost:
			states[r.URL.Path], _ = io.ReadAll(r.Body)
		case http.MethodDelete:
			delete(states, r.URL.Path)
		}
	}))
	t.Cleanup(server.Close)
	return func(unit string) string {
		return fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n  }\n}\n", server.URL+"/"+unit)
	}
}

const (
	netUnit = `
variable "word" { default = "first" }
resource "terraform_data" "a" { input = var.word }
output "name" { value = terraform_data.a.output }
check "word" {
  assert {
    condition     = terraform_data.a.output != "first"
    error_message = "it is the first"
  }
}
output "key" {
  value     = "planted-output"
  sensitive = true
}
`
	appUnit = `
variable "name" { type = string }
resource "terraform_data" "b" { input = { name = var.name, secret = sensitive("planted-attribute") } }
`
	needsNet = "dependency \"net\" {\n  config_path = \"../net\"\n}\ninputs = { name = dependency.net.outputs.name }\n"
)

func addresses(c *api.Changes) (out []string) {
	if c != nil {
		for _, r := range c.Resources {
			out = append(out, r.Action+" "+r.Address)
		}
	}
	return out
}

// R1: a tree of two units, of which one needs an output of the other, from its first update to its end.
func TestTerragrunt_LifeOfATree(t *testing.T) {
	backend := remote(t)
	tree := map[string]string{
		"net/main.tf": backend("net") + netUnit, "net/terragrunt.hcl": "",
		"app/main.tf": backend("app") + appUnit, "app/terragrunt.hcl": needsNet,
		"net/.terragrunt-cache/x/.terraform/terraform.tfstate": `{"backend":{"type":"local"}}`, // another machine's
	}
	run := func(op workflow.Operation, variables map[string]any, steps ...string) (engine.Outcome, *host) {
		t.Helper()
		j, h := treeJob(t, op, tree), newHost()
		j.Spec.Variables = variables
		out, err := engine.Run(t.Context(), h, j)
		if err != nil {
			t.Fatalf("%s: %v\n%s", op, err, h.text())
		}
		var got []string
		for _, s := range h.steps {
			got = append(got, s.Name+": "+s.Text)
		}
		if !slices.EqualFunc(got, steps, strings.HasPrefix) {
			t.Errorf("%s: steps %q, want %q", op, got, steps)
		}
		return out, h
	}
	const init = "init: terragrunt "

	out, h := run(workflow.Update, nil, init, "plan: 1 to add, 2 outputs to change, in 1 unit; the others need outputs",
		"apply: 2 added, 2 outputs changed, in 2 units", "output: 2 outputs")
	if got, want := addresses(out.Changes), []string{"create app/terraform_data.b", "create net/terraform_data.a"}; out.Truncated || !cmp.Equal(got, want) {
		t.Errorf("update: cut %t, got %v, want %v", out.Truncated, got, want)
	}
	if len(out.Outputs) != 2 || out.Outputs[0].Name != "net/key" || out.Outputs[0].Value != nil || out.Outputs[1].Value != "first" {
		t.Errorf("update: got %+v", out)
	}
	failing := &api.Checks{Failing: 1, Names: []string{"net/check.word"}}
	if diff := cmp.Diff(failing, out.Checks); diff != "" {
		t.Errorf("update: checks of what it left (-want +got):\n%s", diff)
	}
	if !slices.Contains(h.masked, "planted-output") {
		t.Errorf("the sensitive output is not masked: %q", h.masked)
	}
	if out, _ = run(workflow.Update, nil, init, "plan: no changes, in 2 units", "apply: no changes", "output: 2 outputs"); len(out.Changes.Resources) != 0 {
		t.Errorf("update without changes: got %v", addresses(out.Changes))
	}
	if diff := cmp.Diff(failing, out.Checks); diff != "" {
		t.Errorf("update without changes: checks (-want +got):\n%s", diff)
	}

	out, h = run(workflow.Preview, map[string]any{"word": "second"}, init, "plan: 1 to change, 1 output to change, in 2 units")
	if got, want := addresses(out.Changes), []string{"update net/terraform_data.a"}; !cmp.Equal(got, want) || out.Changes.Outputs[0].Name != "net/name" {
		t.Errorf("preview: got %v %v, want %v", got, out.Changes.Outputs, want)
	}
	if !slices.Contains(h.masked, "planted-attribute") || strings.Contains(h.text(), "planted-attribute") {
		t.Error("the sensitive attribute is not masked")
	}

	out, h = run("", nil, init, "plan: no drift, in 2 units")
	if diff := cmp.Diff(&api.Inventory{Resources: 2, Types: []api.InventoryCount{{Type: "terraform_data", Count: 2}}}, out.Inventory); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
	if list := string(h.kept["file files/dayfly-inventory.json"]); !strings.Contains(list, `"net/terraform_data.a"`) || strings.Contains(list, "first") {
		t.Errorf("the list is %s", list)
	}

	j, h := treeJob(t, workflow.Preview, tree), newHost()
	j.Spec.Variables = map[string]any{"word": "workspace"}
	j.Spec.Options, j.Spec.Flags = &api.Options{Variables: map[string]any{"word": "of the run"}}, map[string][]string{"plan": {"-compact-warnings", "--strict-mode"}}
	if out, err := engine.Run(t.Context(), h, j); err != nil || out.Changes.Change != 1 || !strings.Contains(string(h.text()), "of the run") {
		t.Errorf("with options: got %+v, %v\n%s", out.Changes, err, h.text())
	}
	if line := strings.Join(h.args[len(h.args)-1], " "); !strings.Contains(line, " --strict-mode") || !strings.HasSuffix(line, " -compact-warnings") || strings.Contains(line, "of the run") {
		t.Errorf("with flags: got %s", line)
	}

	run(workflow.Refresh, nil, init, "plan: no drift", "apply: no changes", "output: 2 outputs")
	out, _ = run(workflow.Update, map[string]any{"word": "second"}, init, "plan: 1 to change", "apply: 2 changed, 1 output changed, in 2 units", "output")
	if out.Checks != nil {
		t.Errorf("an update that mends it: got checks %+v", out.Checks)
	}
	out, _ = run(workflow.Destroy, nil, init, "plan: 2 to destroy, 2 outputs to change, in 2 units", "apply: 2 destroyed, 2 outputs changed, in 2 units")
	if got, want := addresses(out.Changes), []string{"delete app/terraform_data.b", "delete net/terraform_data.a"}; !cmp.Equal(got, want) {
		t.Errorf("destroy: got %v, want %v", got, want)
	}
}

// A plan on mock outputs lists other changes than the apply makes.
func TestTerragrunt_ExcludedIgnoredAndMocked(t *testing.T) {
	backend := remote(t)
	const (
		exclude = "exclude {\n  if      = true\n  actions = [\"destroy\"]\n}\n"
		ignore  = "errors {\n  ignore \"known\" {\n    ignorable_errors = [\".*planted failure.*\"]\n  }\n}\n"
		failing = "resource \"terraform_data\" \"bad\" {\n  depends_on = [terraform_data.a]\n  provisioner \"local-exec\" {\n    command = \"echo planted failure; exit 3\"\n  }\n}\n"
		refused = "variable \"absent\" { default = \"x\" }\nresource \"terraform_data\" \"bad\" {\n  lifecycle {\n    precondition {\n      condition     = var.absent != \"x\"\n      error_message = \"planted failure\"\n    }\n  }\n}\n"
		counted = "variable \"name\" { type = string }\nresource \"terraform_data\" \"b\" {\n  count = var.name == \"first\" ? 2 : 1\n}\n"
	)
	tree := map[string]string{
		"net/main.tf": backend("net") + netUnit, "net/terragrunt.hcl": "",
		"app/main.tf": backend("app") + counted, "app/terragrunt.hcl": strings.Replace(needsNet, "../net\"", "../net\"\n  mock_outputs = { name = \"mock\" }\n  mock_outputs_allowed_terraform_commands = [\"plan\", \"validate\"]", 1),
		"kept/main.tf": backend("kept") + netUnit, "kept/terragrunt.hcl": exclude,
		"half/main.tf": backend("half") + netUnit + failing, "half/terragrunt.hcl": ignore,
		"none/main.tf": backend("none") + refused, "none/terragrunt.hcl": ignore,
	}
	run := func(op workflow.Operation, plan, apply string, want, units []string) {
		t.Helper()
		j, h := treeJob(t, op, tree), newHost()
		out, err := engine.Run(t.Context(), h, j)
		if err != nil {
			t.Fatalf("%s: %v\n%s", op, err, h.text())
		}
		if h.steps[1].Text != plan || h.steps[2].Text != apply {
			t.Errorf("%s: got %q and %q, want %q and %q\n%s", op, h.steps[1].Text, h.steps[2].Text, plan, apply, h.text())
		}
		var got []string
		for _, u := range out.Units {
			got = append(got, u.Unit+": "+runtext.Unit(u, true))
		}
		if !cmp.Equal(addresses(out.Changes), want) || !cmp.Equal(got, units) {
			t.Errorf("%s: got %q of %q, want %q of %q", op, addresses(out.Changes), got, want, units)
		}
	}
	run(workflow.Update, "5 to add, 6 outputs to change, in 4 units; error ignored: none", "5 added, 4 outputs changed, in 3 units; error ignored: half, none",
		[]string{"create app/terraform_data.b[0]", "create app/terraform_data.b[1]", "create half/terraform_data.a", "create kept/terraform_data.a", "create net/terraform_data.a"},
		[]string{"app: 2 added", "half: error ignored, 1 added", "kept: 1 added, 2 outputs changed", "net: 1 added, 2 outputs changed", "none: error ignored, no changes"})
	run(workflow.Destroy, "6 to destroy, 6 outputs to change, in 5 units", "5 destroyed, 4 outputs changed, in 4 units; excluded: kept",
		[]string{"delete app/terraform_data.b[0]", "delete app/terraform_data.b[1]", "delete half/terraform_data.a", "delete half/terraform_data.bad", "delete net/terraform_data.a"},
		[]string{"app: 2 destroyed", "half: 2 destroyed, 2 outputs changed", "kept: excluded", "net: 1 destroyed, 2 outputs changed", "none: no changes"})
}

func TestTerragrunt_PartialFailureIsToldPerUnit(t *testing.T) {
	backend, h := remote(t), newHost()
	_, err := engine.Run(t.Context(), h, treeJob(t, workflow.Update, map[string]string{
		"a/main.tf": backend("a") + netUnit, "a/terragrunt.hcl": "",
		"net/main.tf": backend("net") + netUnit + "resource \"terraform_data\" \"bad\" {\n  provisioner \"local-exec\" {\n    command = \"exit 3\"\n  }\n}\n", "net/terragrunt.hcl": "",
		"deep/er/main.tf": backend("deep") + netUnit, "deep/er/terragrunt.hcl": "",
		"app/main.tf": backend("app") + appUnit, "app/terragrunt.hcl": needsNet,
	}))
	f := failure(t, err)
	for _, want := range []string{"apply failed in 1 of 4 units", "net failed: ", "exit status 3", "not run, because a dependency failed: app", "succeeded: a, deep/er"} {
		if f.Reason != workflow.ReasonStepFailed || !strings.Contains(f.Detail, want) {
			t.Errorf("%s %q does not say %q", f.Reason, f.Detail, want)
		}
	}
}

// R15: what would be applied into a state that ends with the run is not, also where that shows only during the apply.
func TestTerragrunt_RefusesToApplyUnitsWithLocalState(t *testing.T) {
	h := newHost()
	out, err := engine.Run(t.Context(), h, treeJob(t, workflow.Update, map[string]string{
		"net/main.tf": remote(t)("net") + netUnit, "net/terragrunt.hcl": "",
		"app/main.tf": appUnit, "app/terragrunt.hcl": needsNet,
	}))
	f := failure(t, err)
	if want := "app failed: Error: the state of this unit would be lost"; !strings.Contains(f.Detail, want) || strings.Contains(h.text(), "terraform_data.b: Creat") {
		t.Errorf("got %q, want %q\n%s", f.Detail, want, h.text())
	}
	if got, want := addresses(out.Changes), []string{"create net/terraform_data.a"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Units that lie outside of the workspace's path are others' business, and units that a stack generates are its own.
func TestTerragrunt_UnitsOutsideAndInAStack(t *testing.T) {
	backend, h := remote(t), newHost()
	j := treeJob(t, workflow.Update, map[string]string{
		"net/main.tf": backend("net") + netUnit, "net/terragrunt.hcl": "",
		"live/app/main.tf": backend("app") + appUnit, "live/app/terragrunt.hcl": strings.Replace(needsNet, "../net\"", "../../net\"\n  mock_outputs = { name = \"mock\" }", 1),
		"live/terragrunt.stack.hcl": "unit \"made\" {\n  source = \"../unit\"\n  path = \"made\"\n}\n",
		"unit/main.tf":              backend("made") + netUnit, "unit/terragrunt.hcl": "",
	})
	j.Root = filepath.Join(j.Root, "live")
	out, err := engine.Run(t.Context(), h, j)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.text())
	}
	if got, want := addresses(out.Changes), []string{"create .terragrunt-stack/made/terraform_data.a", "create app/terraform_data.b"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(out.Outputs) != 2 || out.Outputs[1].Name != ".terragrunt-stack/made/name" {
		t.Errorf("got %+v", out.Outputs)
	}
}

// The report of a unit that could not begin has no cause. What follows was printed by terragrunt 1.0.0, but for the
// directories.
func TestTerragrunt_CauseIsReadFromWhatWasPrinted(t *testing.T) {
	const report = `[{"Name":"app","Reason":"run error","Result":"failed"},{"Name":"net","Result":"succeeded"}]`
	for name, tc := range map[string]struct {
		printed, says string
		tooEarly      bool
	}{
		"needs outputs": {lines(
			"15:30:30.225 INFO   [net] tofu: OpenTofu has been successfully initialized!",
			"15:30:30.293 ERROR  [app] Error: Unknown variable",
			"15:30:30.294 ERROR  [app] There is no variable named \"dependency\".",
			"15:30:30.298 ERROR  Run failed: 2 errors occurred:", "",
			"* /w/net/terragrunt.hcl is a dependency of /w/app/terragrunt.hcl but detected no outputs. Either the target module has not been applied yet, or the module has no outputs.",
		), "plan failed in 1 of 2 units. app failed: net/terragrunt.hcl is a dependency of app/terragrunt.hcl but detected no outputs. Either the target module has not been applied yet, or the module has no outputs. succeeded: net", true},
		"another unit needs outputs": {lines(
			"15:30:30.293 ERROR  [app] Error: Unsupported attribute",
			"* /w/net/terragrunt.hcl is a dependency of /w/deep/app/terragrunt.hcl but detected no outputs.",
		), "app failed: Error: Unsupported attribute", false},
		"nothing": {"15:30:30.293 ERROR  [apple] Error: it broke", "app failed: its log has the cause", false},
	} {
		_, detail, tooEarly, err := engine.ReadReport([]byte(report), tc.printed, "/w")
		if err != nil || !strings.Contains(detail, tc.says) || tooEarly != tc.tooEarly {
			t.Errorf("%s: got %q, %t, want %q, %t", name, detail, tooEarly, tc.says, tc.tooEarly)
		}
	}
}

func TestTerragrunt_WhatWasDoneIsToldOfAFailure(t *testing.T) {
	j, h := standInJob(t, workflow.Update, `echo '[{"name":"a","result":"succeeded"},{"Name":"'"$PWD"'/b","Result":"failed","Cause":"no"}]' >"$report"; exit 1`)
	out, err := engine.Run(t.Context(), h, j)
	if f := failure(t, err); !strings.Contains(f.Detail, "b failed: no. succeeded: a") {
		t.Errorf("got %q", f.Detail)
	}
	if got, want := addresses(out.Changes), []string{"create a/terraform_data.x"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := []api.UnitResult{{Unit: "a", Result: "succeeded", Changes: &api.Changes{Add: 1}, Planned: true}, {Unit: "b", Result: "failed"}}; !cmp.Equal(out.Units, want) {
		t.Errorf("got %+v, want %+v", out.Units, want)
	}
}

// The plans of the stand-in would create x in a and b. What the wrapped program prints, and the report, say otherwise.
func TestTerragrunt_ResultIsWhatUnitsDid(t *testing.T) {
	const (
		in     = `(cd "$PWD/UNIT" && "$TG_TF_PATH" apply)`
		report = `echo '[{"Name":"a","Result":"succeeded"},{"Name":"b",B}]' >"$report"`
		b      = "mkdir -p b/.terragrunt-cache/x/.terraform && cp b/.terraform/terraform.tfstate b/.terragrunt-cache/x/.terraform/"
	)
	both := lines(b, strings.ReplaceAll(in, "UNIT", "a"), strings.ReplaceAll(in, "UNIT", "b/.terragrunt-cache/x"))
	for name, tc := range map[string]struct {
		script, says string
		want         []string
		units        string
	}{
		"both": {
			lines(both, strings.ReplaceAll(report, "B", `"Result":"succeeded","Reason":"retry succeeded"`)), "1 changed, 2 added, in 2 units",
			[]string{"create a/terraform_data.a", "update a/terraform_data.x", "create b/terraform_data.x"}, "a: 1 changed, 1 added; b: 1 added",
		},
		"excluded": {
			lines(strings.ReplaceAll(in, "UNIT", "a"), strings.ReplaceAll(report, "B", `"Result":"excluded","Reason":"exclude block"`)), "1 changed, 1 added, in 1 unit; excluded: b",
			[]string{"create a/terraform_data.a", "update a/terraform_data.x"}, "a: 1 changed, 1 added; b: excluded",
		},
		"ignored": {
			lines("export END=1", both, strings.ReplaceAll(report, "B", `"Result":"succeeded","Reason":"error ignored","Cause":"known"`)), "1 changed, 2 added, in 1 unit; error ignored: b",
			[]string{"create a/terraform_data.a", "update a/terraform_data.x", "create b/terraform_data.x"}, "a: 1 changed, 1 added; b: error ignored, 1 added",
		},
		"nothing printed": {
			lines(strings.ReplaceAll(report, "B", `"Result":"excluded"`)), "1 added, in 1 unit; excluded: b; as planned, because the engine did not print what it did: a",
			[]string{"create a/terraform_data.x"}, "a: 1 added, as planned; b: excluded",
		},
		"no report": {
			strings.ReplaceAll(in, "UNIT", "a"), "1 changed, 2 added, in 2 units; as planned, because the engine did not print what it did: b",
			[]string{"create a/terraform_data.a", "update a/terraform_data.x", "create b/terraform_data.x"}, "a: no result, 1 changed, 1 added; b: no result, 1 added, as planned",
		},
	} {
		j, h := standInJob(t, workflow.Update, tc.script)
		fakeEngine(t, filepath.Join(j.EnginePath[0], "tofu"), "1.11.0", lines(
			`apply) case $PWD in`,
			`*/a) echo "terraform_data.x: Modifications complete after 1s"; echo "terraform_data.a: Creation complete after 0s"; echo "Apply complete! Resources: 1 added, 1 changed, 0 destroyed." ;;`,
			`*) echo "terraform_data.x: Creation complete after 0s"; [ "$END" ] || echo "Apply complete! Resources: 1 added, 0 changed, 0 destroyed." ;; esac ;;`,
		))
		out, err := engine.Run(t.Context(), h, j)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, h.text())
			continue
		}
		if got := h.steps[2].Text; got != tc.says {
			t.Errorf("%s: got %q, want %q", name, got, tc.says)
		}
		if got := addresses(out.Changes); !cmp.Equal(got, tc.want) || out.Truncated {
			t.Errorf("%s: got %q, cut %t, want %q", name, got, out.Truncated, tc.want)
		}
		var units []string
		for _, u := range out.Units {
			units = append(units, u.Unit+": "+runtext.Unit(u, true))
		}
		if got := strings.Join(units, "; "); got != tc.units {
			t.Errorf("%s: got units %q, want %q", name, got, tc.units)
		}
		if strings.Contains(tc.script, "TG_TF_PATH") && !strings.Contains(h.text(), "Modifications complete") {
			t.Errorf("%s: the log does not have what the program printed:\n%s", name, h.text())
		}
	}
}

// The plan of a unit that failed is empty, because terragrunt could not show it.
func TestTerragrunt_IgnoredErrorOfAPlan(t *testing.T) {
	for _, op := range []workflow.Operation{workflow.Preview, workflow.Update} {
		j, h := standInJob(t, op, `echo '[{"Name":"a","Result":"succeeded"},{"Name":"b","Result":"succeeded"}]' >"$report"`)
		terragrunt := filepath.Join(j.EnginePath[0], "terragrunt")
		script, err := os.ReadFile(terragrunt)
		if err != nil {
			t.Fatal(err)
		}
		plan := `: >"$json/b/tfplan.json"; echo '[{"Name":"a","Result":"succeeded"},{"Name":"b","Result":"succeeded","Reason":"error ignored"}]' >"$report"`
		put(t, filepath.Dir(terragrunt), map[string]string{"terragrunt": strings.Replace(string(script), "\nelif", "\n"+plan+"\nelif", 1)})
		h.policies = func(on engine.PolicyInputs) ([]api.PolicyResult, error) {
			if want := "because terragrunt ignored an error: b"; !strings.Contains(on.Missing, want) || len(on.Inputs) != 1 {
				t.Errorf("%s: policies have %+v, want %q", op, on, want)
			}
			return nil, nil
		}
		j.Spec.Policies = []api.Policy{{}}
		if out, err := engine.Run(t.Context(), h, j); err != nil || out.Changes.Add != 1 {
			t.Errorf("%s: got %+v, %v", op, out.Changes, err)
		}
		if got, want := h.steps[1].Text, "1 to add, in 1 unit; error ignored: b"; got != want {
			t.Errorf("%s: got %q, want %q", op, got, want)
		}
	}
}

func TestTerragrunt_InterruptedRunListsWhatWasDone(t *testing.T) {
	j, h := standInJob(t, workflow.Update, `(cd a && "$TG_TF_PATH" apply); echo waits; exec sleep 60`)
	fakeEngine(t, filepath.Join(j.EnginePath[0], "tofu"), "1.11.0", `apply) echo "terraform_data.other: Creation complete after 0s" ;;`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	h.onLine = func(said string) {
		if strings.Contains(said, "waits") {
			stop()
		}
	}
	out, err := engine.Run(ctx, h, j)
	if f := failure(t, err); f.Reason != workflow.ReasonInterrupted {
		t.Errorf("got %s %q", f.Reason, f.Detail)
	}
	if got, want := addresses(out.Changes), []string{"create a/terraform_data.other"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTerragrunt_Refusals(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(j *engine.Job, h *host)
		reason workflow.Reason
		says   string
	}{
		"too old":           {func(_ *engine.Job, h *host) { h.env = []string{"VERSION=0.88.9"} }, workflow.ReasonEngineNotFound, "0.89.0 or newer"},
		"other version":     {func(j *engine.Job, _ *host) { j.Spec.EngineVersion = "~> 1.0" }, workflow.ReasonEngineNotFound, "terragrunt ~> 1.0"},
		"other place":       {func(j *engine.Job, _ *host) { j.Spec.State.Kind = api.StateDirectory }, workflow.ReasonStateNotKept, "own remote_state"},
		"state operation":   {func(j *engine.Job, _ *host) { j.Spec.Operation = workflow.StatePull }, workflow.ReasonRunnerError, "cannot run"},
		"state in the tree": {func(j *engine.Job, _ *host) { _ = os.RemoveAll(filepath.Join(j.Root, "a", "up")) }, workflow.ReasonStateNotKept, "the state of a would be lost"},
		"state elsewhere":   {func(j *engine.Job, _ *host) { put(t, j.Root, map[string]string{"a/file": "/srv/a.tfstate"}) }, workflow.ReasonStateNotKept, "the state of a is a file outside of the source"},
		"state in a file of the tree": {func(j *engine.Job, _ *host) {
			put(t, j.Root, map[string]string{"a/file": filepath.Join(j.Root, "a.tfstate")})
		}, workflow.ReasonStateNotKept, "the state of a would be lost"},
	} {
		j, h := standInJob(t, workflow.Update, "echo applied")
		tc.change(&j, h)
		_, err := engine.Run(t.Context(), h, j)
		if f := failure(t, err); f.Reason != tc.reason || !strings.Contains(f.Detail, tc.says) || strings.Contains(h.text(), "applied") {
			t.Errorf("%s: got %s %q", name, f.Reason, f.Detail)
		}
	}
}

// standInJob is a job with a terragrunt that plans one resource in each of the units a and b, and applies as the script
// says.
func standInJob(t *testing.T, op workflow.Operation, apply string) (engine.Job, *host) {
	t.Helper()
	j := job(t, api.EngineTerragrunt, op, map[string]string{"a/up": "", "b/up": ""})
	j.Spec.State = api.State{Kind: api.StateSource}
	dir := t.TempDir()
	put(t, dir, map[string]string{"terragrunt": lines("#!/bin/sh",
		`[ "$1" = --version ] && echo "terragrunt version v${VERSION:-0.99.5}" && exit`,
		`while [ "$1" != -- ]; do case "$1" in --json-out-dir) json=$2 ;; --report-file) report=$2 ;; esac; shift; done`,
		`if [ "$2" = plan ]; then for u in a b; do mkdir -p "$json/$u" $u/.terraform; [ -e $u/up ] && echo '{"backend":{"type":"s3"}}' >$u/.terraform/terraform.tfstate`,
		`[ -e $u/file ] && echo '{"backend":{"type":"local","config":{"path":"'"$(cat $u/file)"'"}}}' >$u/.terraform/terraform.tfstate`,
		`echo '{"format_version":"1.2","resource_changes":[{"address":"terraform_data.x","mode":"managed","type":"terraform_data","change":{"actions":["create"]}}]}' >"$json/$u/tfplan.json"; echo plan >"$json/$u/tfplan.tfplan"; done`,
		`elif [ "$2" = output ]; then echo '{}'`, "else", apply, "fi")})
	fakeEngine(t, filepath.Join(dir, "tofu"), "1.11.0", "")
	if err := os.Chmod(filepath.Join(dir, "terragrunt"), 0o700); err != nil { //nolint:gosec // a program must be executable
		t.Fatal(err)
	}
	j.EnginePath, j.Path = []string{dir}, t.TempDir()
	return j, newHost()
}

func TestTerragruntVersion(t *testing.T) {
	for answer, want := range map[string]string{"terragrunt version v0.77.22\n": "0.77.22", "terragrunt version 1.0.0-rc1": "1.0.0-rc1", "Terraform v1.9.8": ""} {
		v, err := engine.TerragruntVersion([]byte(answer))
		if got := fmt.Sprint(v); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%q: got %s, %v", answer, got, err)
		}
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add([]byte(`[{"Name":"a","Started":"2025-06-05T16:28:41-04:00","Result":"failed","Reason":"run error","Cause":"x"}]`), "")
	f.Add([]byte(`[{"name":"/w/b/c","result":"early exit"},{"name":"","result":"new"}]`), "15:30:30.293 ERROR  [.] Error: it broke\n* /w/a is a dependency of /w/terragrunt.hcl but detected no outputs")
	f.Fuzz(func(t *testing.T, raw []byte, printed string) {
		names, detail, _, err := engine.ReadReport(raw, printed, "/w")
		if err == nil && (slices.Contains(names, "") || detail == "" || len(detail) > 2000) {
			t.Errorf("%q: %q, %q", raw, names, detail)
		}
	})
}
