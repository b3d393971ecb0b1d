package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// eachEngine runs a test with each of the engines that this machine has.
func eachEngine(t *testing.T, test func(t *testing.T, name string)) {
	for _, name := range []string{api.EngineTerraform, api.EngineTofu} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("%s is not on this machine", name)
			}
			test(t, name)
		})
	}
}

func newHost() *host { return &host{path: os.Getenv("PATH")} }

const app = `
variable "word" {
  type    = string
  default = "first"
}
variable "password" {
  type      = string
  default   = "planted-variable"
  sensitive = true
}
resource "terraform_data" "one" {
  input = var.word
}
resource "terraform_data" "many" {
  for_each = toset(["a", "b"])
  input    = { key = each.key, secret = sensitive("planted-attribute") }
}
output "word" {
  value = terraform_data.one.output
}
output "count" {
  value = 123456789012345678
}
output "password" {
  value     = "planted-output-${var.password}"
  sensitive = true
}
`

// R1, R15: an update, a preview, an update without changes, a destroy, over one kept state.
func TestRun_LifeOfAWorkspace(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": app}
		first := job(t, name, workflow.Update, files)
		h := newHost()
		out, err := engine.Run(t.Context(), h, first)
		if err != nil {
			t.Fatalf("update: %v\n%s", err, h.text())
		}
		const builtin = "terraform.io/builtin/terraform"
		wantChanges := &api.Changes{
			Add: 3,
			Resources: []api.ResourceChange{
				{Address: `terraform_data.many["a"]`, Action: "create", Provider: builtin},
				{Address: `terraform_data.many["b"]`, Action: "create", Provider: builtin}, {Address: "terraform_data.one", Action: "create", Provider: builtin},
			},
			Outputs: []api.OutputChange{{Name: "count", Action: "create"}, {Name: "password", Action: "create"}, {Name: "word", Action: "create"}},
		}
		if diff := cmp.Diff(wantChanges, out.Changes); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		wantSteps := []string{"init", "plan", "apply", "output"}
		var got []string
		for _, s := range h.steps {
			got = append(got, s.Name)
			if s.Status != workflow.StepSucceeded {
				t.Errorf("step %s: %s (%s)", s.Name, s.Status, s.Text)
			}
		}
		if diff := cmp.Diff(wantSteps, got); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if got, want := h.steps[1].Text, "3 to add, 3 outputs to change"; got != want {
			t.Errorf("text of plan: got %q, want %q", got, want)
		}
		if len(out.Outputs) != 3 || out.Outputs[1].Name != "password" || !out.Outputs[1].Sensitive || out.Outputs[1].Value != nil {
			t.Errorf("outputs: got %+v, want three, the password by name only", out.Outputs)
		}
		if got := out.Outputs[2]; got.Value != "first" {
			t.Errorf("output word: got %v, want first", got.Value)
		}
		for _, planted := range []string{"planted-attribute", "planted-variable", "planted-output-planted-variable"} {
			if !slices.Contains(h.masked, planted) {
				t.Errorf("%s was not masked", planted)
			}
			if strings.Contains(h.text(), planted) {
				t.Errorf("%s is in the log", planted)
			}
		}
		if !strings.Contains(h.text(), "terraform_data.one: Creation complete") {
			t.Errorf("the log has no output of the engine:\n%s", h.text())
		}
		if _, err := os.Stat(filepath.Join(first.StateDir, "terraform.tfstate")); err != nil {
			t.Errorf("the state was not kept: %v", err)
		}
		kept, err := os.ReadFile(filepath.Join(first.StateDir, "terraform.tfstate"))
		if err != nil {
			t.Fatal(err)
		}

		preview := again(t, first, workflow.Preview, files)
		preview.Spec.Variables = map[string]any{"word": "second"}
		h = newHost()
		out, err = engine.Run(t.Context(), h, preview)
		if err != nil {
			t.Fatalf("preview: %v\n%s", err, h.text())
		}
		wantChanges = &api.Changes{
			Change:    1,
			Resources: []api.ResourceChange{{Address: "terraform_data.one", Action: "update", Provider: builtin, Changed: []string{"input", "output"}}},
			Outputs:   []api.OutputChange{{Name: "word", Action: "update"}},
		}
		if diff := cmp.Diff(wantChanges, out.Changes); diff != "" {
			t.Errorf("changes of preview (-want +got):\n%s", diff)
		}
		if out.Outputs != nil || len(h.steps) != 2 {
			t.Errorf("preview: got outputs %v and steps %v, want none and two", out.Outputs, h.steps)
		}

		h = newHost()
		out, err = engine.Run(t.Context(), h, again(t, first, workflow.Update, files))
		if err != nil {
			t.Fatalf("second update: %v\n%s", err, h.text())
		}
		if diff := cmp.Diff(&api.Changes{}, out.Changes); diff != "" {
			t.Errorf("changes of the second update (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(step{"apply", workflow.StepSkipped, "no changes"}, h.steps[2]); diff != "" {
			t.Errorf("apply of the second update (-want +got):\n%s", diff)
		}
		if len(out.Outputs) != 3 {
			t.Errorf("second update: got outputs %v, want three", out.Outputs)
		}

		if now, err := os.ReadFile(filepath.Join(first.StateDir, "terraform.tfstate")); err != nil || string(now) != string(kept) {
			t.Errorf("a preview or an empty update changed the state: %v", err)
		}

		h = newHost()
		out, err = engine.Run(t.Context(), h, again(t, first, workflow.Destroy, files))
		if err != nil {
			t.Fatalf("destroy: %v\n%s", err, h.text())
		}
		if out.Changes.Destroy != 3 || out.Changes.Add != 0 || len(out.Outputs) != 0 {
			t.Errorf("destroy: got %+v and %v, want three destroyed and no outputs", out.Changes, out.Outputs)
		}
	})
}

// An output that changes alone is a change: it is applied.
func TestRun_ChangeOfAnOutputOnlyIsApplied(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		first := job(t, name, workflow.Update, map[string]string{"main.tf": `output "o" { value = "old" }`})
		if _, err := engine.Run(t.Context(), newHost(), first); err != nil {
			t.Fatal(err)
		}
		out, err := engine.Run(t.Context(), newHost(), again(t, first, workflow.Update, map[string]string{"main.tf": `output "o" { value = "new" }`}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]api.Output{{Name: "o", Value: "new"}}, out.Outputs); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
	})
}

func TestRun_RefreshAndScanOfAnUnchangedWorld(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": app}
		first := job(t, name, workflow.Update, files)
		if _, err := engine.Run(t.Context(), newHost(), first); err != nil {
			t.Fatal(err)
		}
		for _, op := range []workflow.Operation{workflow.Refresh, ""} {
			h := newHost()
			out, err := engine.Run(t.Context(), h, again(t, first, op, files))
			if err != nil {
				t.Fatalf("%q: %v\n%s", op, err, h.text())
			}
			if diff := cmp.Diff(&api.Changes{}, out.Changes); diff != "" {
				t.Errorf("%q: changes (-want +got):\n%s", op, diff)
			}
			if h.steps[1].Text != "no drift" {
				t.Errorf("%q: plan says %q, want no drift", op, h.steps[1].Text)
			}
		}
	})
}

func TestRun_FailedPlanSaysWhy(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		j := job(t, name, workflow.Update, map[string]string{"main.tf": lines(
			`variable "n" { default = 5 }`,
			`output "o" {`,
			`  value = ["planted-literal", "b"][var.n]`,
			`}`)})
		h := newHost()
		_, err := engine.Run(t.Context(), h, j)
		f := failure(t, err)
		if f.Reason != workflow.ReasonStepFailed {
			t.Errorf("reason: got %s, want %s", f.Reason, workflow.ReasonStepFailed)
		}
		if strings.Contains(f.Detail, "\x1b") {
			t.Errorf("detail %q has colours", f.Detail)
		}
		for _, want := range []string{"plan failed with exit code 1", "Error: Invalid index", "on main.tf line 3", "does not identify an element"} {
			if !strings.Contains(f.Detail, want) {
				t.Errorf("detail %q does not say %q", f.Detail, want)
			}
		}
		if strings.Contains(f.Detail, "planted-literal") {
			t.Errorf("detail %q repeats the source", f.Detail)
		}
		if !strings.Contains(h.text(), "Error: Invalid index") {
			t.Errorf("the log does not have the error:\n%s", h.text())
		}
		if last := h.steps[len(h.steps)-1]; last.Name != "plan" || last.Status != workflow.StepFailed {
			t.Errorf("last step: got %v, want a failed plan", last)
		}
	})
}

// The log has the colours of the engine. What is stored of a run beside its log has none.
func TestRun_LogKeepsColours(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": "variable \"key\" { default = \"hunter22\" }\n" + lines(
			`resource "terraform_data" "old" { input = var.key }`,
			`resource "terraform_data" "boom" {`,
			`  provisioner "local-exec" { command = "printf 'one \\033[1mtwo\\033]0;three\\007'; exit 7" }`,
			`}`)}
		h := newHost()
		first := job(t, name, workflow.Update, files)
		out, err := engine.Run(t.Context(), h, first)
		f := failure(t, err)
		for _, want := range []string{
			"\x1b[32m+\x1b[0m", "\x1b[1mPlan:\x1b[0m 2 to add, 0 to change, 0 to destroy.", "\x1b[1mterraform_data.old: Creating...", "\x1b[31m",
		} {
			if !strings.Contains(h.coloured(), want) {
				t.Errorf("the log has no %q:\n%q", want, h.coloured())
			}
		}
		h.steps = append(h.steps, step{Text: f.Detail})
		if !strings.Contains(f.Detail, "apply failed with exit code 1: Error: local-exec provisioner error (terraform_data.boom, on main.tf line 4): Error running command") {
			t.Errorf("detail %q does not say what failed", f.Detail)
		}
		if kept := fmt.Sprintf("%+v %+v", h.steps, out); strings.Contains(kept, "\x1b") {
			t.Errorf("escape sequences in what is kept: %q", kept)
		}

		next := again(t, first, workflow.Preview, map[string]string{"main.tf": `resource "terraform_data" "old" { input = "" }`})
		h = newHost()
		h.env = []string{"TF_CLI_ARGS=-no-color"}
		if _, err := engine.Run(t.Context(), h, next); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(h.coloured(), "Plan: ") || strings.Contains(h.coloured(), "\x1b") {
			t.Errorf("TF_CLI_ARGS=-no-color leaves colours in the log: %q", h.coloured())
		}
	})
}

// Of what the engine prints about a resource the reader needs the end.
func TestRun_FailedApplySaysWhy(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		j := job(t, name, workflow.Update, map[string]string{"main.tf": lines(
			`resource "terraform_data" "boom" {`,
			`  for_each = toset(["a b", "c"])`,
			`  provisioner "local-exec" {`,
			`    command = "exit 7"`,
			`  }`,
			`}`)})
		_, err := engine.Run(t.Context(), newHost(), j)
		f := failure(t, err)
		for _, want := range []string{"apply failed with exit code 1", `(terraform_data.boom["`, `"], on main.tf line 3): Error running`, "command 'exit 7': exit status 7.", "(1 more error in the log)"} {
			if !strings.Contains(f.Detail, want) {
				t.Errorf("detail %q does not say %q", f.Detail, want)
			}
		}
	})
}

// A step that is not needed is told, and what an engine says of its failure is in the log as well.
func TestRun_SkippedStepsAndErrorsAreTold(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		h := newHost()
		first := job(t, name, workflow.Update, map[string]string{"main.tf": `output "o" { value = 1 }`})
		for range 2 {
			if _, err := engine.Run(t.Context(), h, first); err != nil {
				t.Fatal(err)
			}
			first = again(t, first, workflow.Update, map[string]string{"main.tf": `output "o" { value = 1 }`})
		}
		if !slices.Contains(h.steps, step{"apply", workflow.StepSkipped, "no changes"}) {
			t.Errorf("the steps do not say that apply was skipped: %v", h.steps)
		}
		_, err := engine.Run(t.Context(), h, again(t, first, workflow.Update, map[string]string{"main.tf": `output "o" { value = nothing }`}))
		if f := failure(t, err); !strings.Contains(h.text(), "Error: Invalid reference") || !strings.Contains(f.Detail, "Invalid reference") {
			t.Errorf("detail %q, log:\n%s", f.Detail, h.text())
		}
	})
}

// R15: a deployment whose state would be lost is refused, before plan.
func TestRun_StateThatWouldBeLostIsRefused(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		for title, tc := range map[string]struct {
			kind string
			tf   string
			says string
			ran  []string
		}{
			"no backend":      {api.StateSource, `output "o" { value = 1 }`, "declares no backend", []string{"version"}},
			"local backend":   {api.StateSource, lines(`terraform {`, `  backend "local" { path = "/tmp/kept.tfstate" }`, `}`), "backend local", []string{"version"}},
			"s3, no bucket":   {api.StateS3, `output "o" { value = 1 }`, "names no bucket", []string{"version"}},
			"unheard-of kind": {"elsewhere", `output "o" { value = 1 }`, "elsewhere", []string{"version"}},
		} {
			for _, op := range []workflow.Operation{workflow.Update, workflow.Preview, workflow.Destroy} {
				j := job(t, name, op, map[string]string{"main.tf": tc.tf})
				j.Spec.State.Kind = tc.kind
				h := newHost()
				_, err := engine.Run(t.Context(), h, j)
				f := failure(t, err)
				if f.Reason != workflow.ReasonStateNotKept || !strings.Contains(f.Detail, tc.says) {
					t.Errorf("%s, %s: got %s %q, want %s that says %q", title, op, f.Reason, f.Detail, workflow.ReasonStateNotKept, tc.says)
				}
				if diff := cmp.Diff(tc.ran, h.ran()); diff != "" {
					t.Errorf("%s, %s: ran (-want +got):\n%s", title, op, diff)
				}
			}
		}
	})
}

// What the parser of this package could not see, the engine's own record shows.
func TestRun_EngineHasTheLastWordOnTheBackend(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", `plan) echo planned >>"$TF_DATA_DIR/../planned" ;;`)
	j := job(t, api.EngineTerraform, workflow.Update, map[string]string{"main.tf": "this is { no configuration"})
	j.Spec.State.Kind = api.StateSource
	j.EnginePath = []string{dir}
	h := newHost()
	_, err := engine.Run(t.Context(), h, j)
	if f := failure(t, err); f.Reason != workflow.ReasonStateNotKept {
		t.Errorf("got %s %q, want %s", f.Reason, f.Detail, workflow.ReasonStateNotKept)
	}
	if diff := cmp.Diff([]string{"version", "init"}, h.ran()); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
	// With a remote backend on record, the same run goes on.
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
		`init) echo '{"version":3,"backend":{"type":"gcs","config":{}}}' >"$TF_DATA_DIR/terraform.tfstate" ;;`,
		`show) echo '{"format_version":"1.2"}' ;;`,
		`output) echo '{}' ;;`))
	j = again(t, j, workflow.Update, map[string]string{"main.tf": "this is { no configuration"})
	h = newHost()
	if _, err := engine.Run(t.Context(), h, j); err != nil {
		t.Errorf("with a remote backend: %v\n%s", err, h.text())
	}
}

func TestRun_S3State(t *testing.T) {
	dir := t.TempDir()
	cases := lines(
		`init) echo '{"version":3,"backend":{"type":"s3","config":{}}}' >"$TF_DATA_DIR/terraform.tfstate"; cat dayfly_backend_override.tf.json ;;`,
		`show) echo '{"format_version":"1.2"}' ;;`,
		`output) echo '{}' ;;`)
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", cases)
	j := job(t, api.EngineTerraform, workflow.Update, nil)
	j.EnginePath = []string{dir}
	j.Spec.State = api.State{Kind: api.StateS3, Key: "app", Bucket: "states", Region: "eu-west-1", KMSKeyARN: "arn:aws:kms:eu-west-1:1:key/x"}
	h := newHost()
	if _, err := engine.Run(t.Context(), h, j); err != nil {
		t.Fatalf("%v\n%s", err, h.text())
	}
	for _, want := range []string{`"key": "default/app/terraform.tfstate"`, `"use_lockfile": true`, `"bucket": "states"`, `"kms_key_id"`} {
		if !strings.Contains(h.text(), want) {
			t.Errorf("the override has no %s:\n%s", want, h.text())
		}
	}
	for version, want := range map[string]bool{"1.9.8": false, "1.10.0-rc1": true, "1.10.0": true, "2.0.0": true} {
		fakeEngine(t, filepath.Join(dir, "terraform"), version, cases)
		_, err := engine.Run(t.Context(), newHost(), again(t, j, workflow.Update, nil))
		if got := err == nil; got != want {
			t.Errorf("version %s: got %v, want it taken: %v", version, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "1.10.0 or newer") {
			t.Errorf("version %s: %v does not say which version is needed", version, err)
		}
	}
}

// A run that reads takes no lock and works on a copy, also while another holds the lock.
func TestRun_ReadersTakeNoLock(t *testing.T) {
	for _, op := range []workflow.Operation{workflow.Preview, ""} {
		dir := t.TempDir()
		fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
			`init) readlink .dayfly/state >"$TF_DATA_DIR/../../behind"; cat .dayfly/state/terraform.tfstate >"$TF_DATA_DIR/../../copy" ;;`,
			`show) echo '{"format_version":"1.2"}' ;;`))
		j := job(t, api.EngineTerraform, op, nil)
		j.EnginePath = []string{dir}
		const kept = `{"serial":7,"lineage":"x"}`
		put(t, j.StateDir, map[string]string{"terraform.tfstate": kept})
		h := newHost()
		if _, err := engine.Run(t.Context(), h, j); err != nil {
			t.Fatal(err)
		}
		for _, args := range h.args {
			if args[1] == "plan" && !slices.Contains(args, "-lock=false") {
				t.Errorf("%q: plan takes the lock: %v", op, args)
			}
		}
		behind, err := os.ReadFile(filepath.Join(filepath.Dir(j.TempDir), "behind"))
		if err != nil {
			t.Fatal(err)
		}
		copied, err := os.ReadFile(filepath.Join(filepath.Dir(j.TempDir), "copy"))
		if err != nil || string(copied) != kept || !strings.HasPrefix(string(behind), j.TempDir) {
			t.Errorf("%q: the engine was not given a copy, but %s with %q (%v)", op, behind, copied, err)
		}
	}
}

// L-lessons 13, R7: who was interrupted says so, and names the lock that is left.
func TestRun_InterruptedApplyReportsItsLock(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
		`plan) exit 2 ;;`,
		`show) echo '{"format_version":"1.2","resource_changes":[{"address":"a.b","change":{"actions":["create"]}}]}' ;;`,
		`apply) trap 'exit 1' INT; echo '{"ID":"1234","Operation":"OperationTypeApply","Who":"me@host","Created":"2024-01-01T00:00:00Z","Path":"p"}' >"$STATE/.terraform.tfstate.lock.info"; echo applying; while :; do sleep 0.05; done ;;`))
	j := job(t, api.EngineTerraform, workflow.Update, nil)
	j.EnginePath = []string{dir}
	why := errors.New("cancelled by a person")
	ctx, cancel := context.WithCancelCause(t.Context())
	h := newHost()
	h.env = []string{"STATE=" + j.StateDir}
	h.onLine = func(text string) {
		if strings.HasPrefix(text, "applying") {
			cancel(why)
		}
	}
	_, err := engine.Run(ctx, h, j)
	f := failure(t, err)
	if f.Reason != workflow.ReasonInterrupted || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("got %s %v, want %s of %v", f.Reason, err, workflow.ReasonInterrupted, why)
	}
	want := &api.Lock{ID: "1234", Operation: "OperationTypeApply", Who: "me@host", Created: "2024-01-01T00:00:00Z", Path: "p"}
	if diff := cmp.Diff(want, f.Lock); diff != "" {
		t.Errorf("lock (-want +got):\n%s", diff)
	}
}

// The real engine, interrupted while it waits in a provisioner, ends in order and gives up its lock.
func TestRun_InterruptedEngineEndsInOrder(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		j := job(t, name, workflow.Update, map[string]string{"main.tf": lines(
			`resource "terraform_data" "slow" {`,
			`  provisioner "local-exec" {`,
			`    command = "echo waiting-now; exec sleep 60"`,
			`  }`,
			`}`)})
		ctx, cancel := context.WithCancel(t.Context())
		h := newHost()
		h.onLine = func(text string) {
			if strings.Contains(text, "(local-exec): waiting-now") {
				cancel()
			}
		}
		_, err := engine.Run(ctx, h, j)
		f := failure(t, err)
		if f.Reason != workflow.ReasonInterrupted || !errors.Is(err, context.Canceled) || !strings.Contains(f.Detail, "apply") {
			t.Errorf("got %s %q, want %s during apply", f.Reason, f.Detail, workflow.ReasonInterrupted)
		}
		if f.Lock != nil {
			t.Errorf("a lock is left: %+v", f.Lock)
		}
	})
}

func TestRun_LockOfSomebodyElseIsNamed(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
		`plan) cat >&2 <<'END'`, lockText, `END`, `exit 1 ;;`))
	j := job(t, api.EngineTerraform, workflow.Update, nil)
	j.EnginePath = []string{dir}
	_, err := engine.Run(t.Context(), newHost(), j)
	f := failure(t, err)
	if f.Lock == nil || f.Lock.ID != "9db590f1-b6fe-c5f2-2678-8804f089deba" {
		t.Fatalf("lock: got %+v, want the one of the text", f.Lock)
	}
	for _, want := range []string{"locked by root@host", "dayfly state unlock app 9db590f1"} {
		if !strings.Contains(f.Detail, want) {
			t.Errorf("detail %q does not say %q", f.Detail, want)
		}
	}
}

func TestRun_EngineThatIsNotThere(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	fakeEngine(t, filepath.Join(dir, "tofu"), "1.8.1", "")
	fakeEngine(t, filepath.Join(dir, "tofu_1.9.0"), "1.9.0", "")
	for name, tc := range map[string]struct {
		engine, version string
		path            []string
		says            []string
	}{
		"nowhere":       {api.EngineTofu, "", []string{empty}, []string{"no tofu", empty, "found none"}},
		"other version": {api.EngineTofu, "~> 1.10", []string{dir}, []string{"no tofu ~> 1.10", "tofu (1.8.1)", "tofu_1.9.0 (1.9.0)", "not downloaded: downloads are not allowed here: engine_downloads"}},
		"many places":   {api.EngineTofu, "", []string{empty, empty + "/2", empty + "/3", empty + "/4", empty + "/5"}, []string{empty + "/3 and 2 more, found none"}},
		"no constraint": {api.EngineTofu, "latest", []string{dir}, []string{"engine_version", "latest"}},
		"other engine":  {"chef", "", []string{dir}, []string{"the engines terraform, tofu", "chef"}},
	} {
		j := job(t, tc.engine, workflow.Update, nil)
		j.Spec.EngineVersion, j.EnginePath, j.Path = tc.version, tc.path, empty
		_, err := engine.Run(t.Context(), newHost(), j)
		f := failure(t, err)
		if f.Reason != workflow.ReasonEngineNotFound {
			t.Errorf("%s: got %s, want %s", name, f.Reason, workflow.ReasonEngineNotFound)
		}
		for _, want := range tc.says {
			if !strings.Contains(f.Detail, want) {
				t.Errorf("%s: %q does not say %q", name, f.Detail, want)
			}
		}
	}
}

func TestRun_VersionThatFitsIsTaken(t *testing.T) {
	dir := t.TempDir()
	ok := lines(`show) echo '{"format_version":"1.2"}' ;;`)
	fakeEngine(t, filepath.Join(dir, "tofu"), "1.8.1", ok)
	fakeEngine(t, filepath.Join(dir, "tofu_1.10.2"), "1.10.2", ok)
	fakeEngine(t, filepath.Join(dir, "tofu", "..", "tofu_1.11.0"), "1.11.0", ok)
	fakeEngine(t, filepath.Join(dir, "tofu_1.7.0-dev"), "1.7.0-dev", ok)
	fakeEngine(t, filepath.Join(dir, "tofu_1.6.0-rc1"), "1.6.0-rc1", ok)
	for constraint, want := range map[string]string{
		"": "tofu", "~> 1.10": "tofu_1.11.0", "1.10.2": "tofu_1.10.2", "< 1.9": "tofu", "~> 1.7.0": "tofu_1.7.0-dev", "1.6.0-rc1": "tofu_1.6.0-rc1", "~> 1.6.0": "",
	} {
		j := job(t, api.EngineTofu, workflow.Preview, nil)
		j.Spec.EngineVersion, j.EnginePath = constraint, []string{dir}
		h := newHost()
		if _, err := engine.Run(t.Context(), h, j); err != nil {
			if want != "" {
				t.Errorf("%q: %v", constraint, err)
			}
			continue
		}
		if got := filepath.Base(h.args[len(h.args)-1][0]); got != want {
			t.Errorf("%q: took %s, want %s", constraint, got, want)
		}
	}
}

// What a search that was begun earlier found, or why it found nothing, counts: nobody looks again.
func TestRun_SearchThatWasBegunIsUsed(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "tofu"), "1.10.2", lines(`show) echo '{"format_version":"1.2"}' ;;`))
	for constraint, fits := range map[string]bool{"1.10.2": true, "1.11.0": false} {
		j := job(t, api.EngineTofu, workflow.Preview, nil)
		j.Spec.EngineVersion, j.EnginePath, j.Path = constraint, []string{dir}, dir
		h, other := newHost(), newHost()
		j.Search = engine.StartSearch(t.Context(), other, j)
		_, err := engine.Run(t.Context(), h, j)
		j.Search.End()
		failure, _ := errors.AsType[*engine.Failure](err)
		if fits && err != nil || !fits && (failure == nil || failure.Reason != workflow.ReasonEngineNotFound) {
			t.Errorf("%s: %v", constraint, err)
		}
		if len(other.args) != 1 || slices.ContainsFunc(h.args, func(args []string) bool { return args[1] == "version" }) {
			t.Errorf("%s: the search ran %q, the run %q; want one question for the version", constraint, other.args, h.args)
		}
	}
}

// An engine is started to say its version once, and not by each run. A script is asked each time.
func TestLook_AsksForAVersionOnce(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "tofu"), "1.10.2", "")
	for name, c := range map[string]struct {
		engine, path string
		asked        []int // commands of the first search, and of the second
	}{
		"terraform": {api.EngineTerraform, os.Getenv("PATH"), []int{1, 0}},
		"tofu":      {api.EngineTofu, os.Getenv("PATH"), []int{1, 0}},
		"a script":  {api.EngineTofu, dir, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(c.engine); err != nil && c.path != dir {
				t.Skipf("%s is not on this machine", c.engine)
			}
			j := job(t, c.engine, workflow.Preview, nil)
			j.Path, j.Tools = c.path, &toolcache.Cache{Dir: t.TempDir()}
			for _, want := range c.asked {
				h := newHost()
				search := engine.StartSearch(t.Context(), h, j)
				search.Wait()
				search.End()
				if len(h.args) != want {
					t.Errorf("it ran %q, want %d commands", h.args, want)
				}
			}
		})
	}
}

// A scan reports what drifted, by address alone.
func TestRun_ScanFindsDrift(t *testing.T) {
	dir := t.TempDir()
	raw, err := os.ReadFile("testdata/drift.json")
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{"plan.json": string(raw)})
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(`plan) exit 2 ;;`, `show) cat `+dir+`/plan.json ;;`))
	j := job(t, api.EngineTerraform, "", nil)
	j.EnginePath = []string{dir}
	h := newHost()
	out, err := engine.Run(t.Context(), h, j)
	if err != nil {
		t.Fatal(err)
	}
	const provider = "registry.terraform.io/hashicorp/local"
	want := &api.Changes{Drift: 2, Move: 1, Resources: []api.ResourceChange{
		{Address: "local_file.gone", Action: "drift", Provider: provider, Drifted: true},
		{Address: "local_file.moved", Action: "move", Provider: provider, From: "local_file.before"},
		{Address: "local_sensitive_file.edited", Action: "drift", Provider: provider, Changed: []string{"content", "tags"}, Drifted: true},
	}}
	if diff := cmp.Diff(want, out.Changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if !slices.Contains(h.masked, "planted-drift") || strings.Contains(h.text(), "planted-drift") {
		t.Errorf("the sensitive attribute is not masked: %v\n%s", h.masked, h.text())
	}
	if h.steps[1].Text != "2 resources drifted" {
		t.Errorf("plan says %q", h.steps[1].Text)
	}
}

func TestRun_PolicyEvaluationOfOtherEnginesIsRefused(t *testing.T) {
	for _, name := range []string{api.EngineTerragrunt, api.EnginePulumi, api.EngineCommand} {
		j := job(t, name, workflow.Update, nil)
		j.Spec.Type, j.Spec.Operation = workflow.PolicyEvaluation, ""
		_, err := engine.Run(t.Context(), newHost(), j)
		if f := failure(t, err); !errors.Is(err, workflow.ErrUnsupported) || !strings.Contains(f.Detail, "policy_evaluation") {
			t.Errorf("%s: got %v, want a refusal by name", name, err)
		}
	}
}

// The files of a run can be read by the user that the engine runs as, and by nobody else.
func TestRun_FilesBelongToTheEnginesUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
		`init) stat -c '%u %a %n' dayfly_backend_override.tf.json "$STATE" "$STATE"/* "$TF_DATA_DIR" "$TF_DATA_DIR"/../vars-* | sed 's|/.*/||' ;;`,
		`show) echo '{"format_version":"1.2"}' ;;`, `output) echo '{}' ;;`))
	j := job(t, api.EngineTerraform, workflow.Update, nil)
	j.EnginePath = []string{dir}
	j.Owner = &engine.Owner{UID: 200007, GID: 200007}
	j.Spec.Variables = map[string]any{"n": 1}
	put(t, j.StateDir, map[string]string{"terraform.tfstate": "{}"})
	h := newHost()
	h.env = []string{"STATE=" + j.StateDir}
	if _, err := engine.Run(t.Context(), h, j); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"200007 600 dayfly_backend_override.tf.json", "200007 700 state", "200007 600 terraform.tfstate", "200007 700 tf-data-", "200007 600 vars-"} {
		if !strings.Contains(h.text(), want) {
			t.Errorf("log has no %q:\n%s", want, h.text())
		}
	}
}

const checked = `
variable "n" { default = 3 }
resource "terraform_data" "one" { input = var.n }
check "passes" {
  assert {
    condition     = var.n == 3
    error_message = "planted"
  }
}
check "known" {
  assert {
    condition     = var.n == 5
    error_message = "planted"
  }
}
check "later" {
  assert {
    condition     = terraform_data.one.output == 4
    error_message = "planted"
  }
}
`

// A check that needs the result of the apply is counted as it is after it. Policies see the checks of the plan.
func TestRun_CountsFailingChecks(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": checked}
		first := job(t, name, workflow.Preview, files)
		first.Spec.Policies = []api.Policy{{Group: "g", Enforcement: api.PolicyMandatory}}
		before, both := &api.Checks{Failing: 1, Names: []string{"check.known"}}, &api.Checks{Failing: 2, Names: []string{"check.known", "check.later"}}
		for _, tc := range []struct {
			op    workflow.Operation
			apply workflow.StepStatus
			want  *api.Checks
		}{
			{workflow.Preview, "", before},
			{workflow.Update, workflow.StepSucceeded, both},
			{workflow.Update, workflow.StepSkipped, both},
			{"", "", both},
			{workflow.Destroy, workflow.StepSucceeded, nil},
		} {
			h, j := newHost(), again(t, first, tc.op, files)
			j.Spec.Policies = first.Spec.Policies
			out, err := engine.Run(t.Context(), h, j)
			if err != nil {
				t.Fatalf("%q: %v\n%s", tc.op, err, h.text())
			}
			if diff := cmp.Diff(tc.want, out.Checks); diff != "" {
				t.Errorf("%q: checks (-want +got):\n%s", tc.op, diff)
			}
			if i := slices.IndexFunc(h.steps, func(s step) bool { return s.Name == "apply" }); (i >= 0) != (tc.apply != "") || i >= 0 && h.steps[i].Status != tc.apply {
				t.Errorf("%q: steps %+v, want apply %q", tc.op, h.steps, tc.apply)
			}
			if tc.op == workflow.Preview && (len(h.policed) != 1 || !strings.Contains(string(h.policed[0].Inputs[0].JSON), `"to_display":"check.known"`)) {
				t.Errorf("policies do not see the checks: %+v", h.policed)
			}
		}

		h, j := newHost(), again(t, first, workflow.Preview, files)
		j.Spec.Policies = first.Spec.Policies
		h.policies = func(engine.PolicyInputs) ([]api.PolicyResult, error) {
			return nil, &engine.Failure{Reason: workflow.ReasonPolicyFailed, Detail: "a check fails"}
		}
		if out, err := engine.Run(t.Context(), h, j); err == nil || !cmp.Equal(before, out.Checks) {
			t.Errorf("of a preview that policies deny got %+v, %v", out.Checks, err)
		}
	})
}

func TestRun_NamesOutputsThatDoNotFit(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		h, j := newHost(), job(t, name, workflow.Update, map[string]string{"main.tf": `
output "small" { value = 1 }
output "big" { value = format("%070000d", 1) }
`})
		out, err := engine.Run(t.Context(), h, j)
		if err != nil {
			t.Fatalf("%v\n%s", err, h.text())
		}
		if diff := cmp.Diff([]string{"big"}, out.OmittedOutputs); diff != "" || !out.Truncated || len(out.Outputs) != 1 {
			t.Errorf("got %+v, omitted (-want +got):\n%s", out, diff)
		}
	})
}
