package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The options of a run reach it as they were written, and are shown with the run and with its plan.
func TestRun_OptionsReachTheRunAndAreShown(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "workspace.yaml")
	text := "name: net\nengine: terraform\nsource: {git: {url: 'https://git.example.com/net.git'}}\nvar_files: [prod.tfvars]\n" +
		"flags: {plan: [-parallelism=20, -compact-warnings]}\napproval: {required: true}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("apply", "-f", file)
	has(t, "workspace", w.ok("workspace", "show", "net"), "plan: -parallelism=20 -compact-warnings", "prod.tfvars")

	id := value[api.Workflow](w, "run", "net", "--op", "preview", "--target", `a.b["x, y"]`, "--target", "a.c", "--replace", "a.d",
		"--var", "word=a,b=c", "--var", `list=[1, "two"]`, "--var", "text=[not json", "--var-file", "big.tfvars", "--ref", "feature",
		"--import", `a.e["k=v"]=id=1`).ID
	want := &api.Options{
		Targets: []string{`a.b["x, y"]`, "a.c"}, Replace: []string{"a.d"}, VarFiles: []string{"big.tfvars"}, Ref: "feature",
		Variables: map[string]any{"word": "a,b=c", "list": `[1, "two"]`, "text": "[not json"},
		Imports:   []api.Import{{To: `a.e["k=v"]`, ID: "id=1"}},
	}
	shown := []string{`a.b["x, y"], a.c`, `list=[1, "two"], text=[not json, word=a,b=c`, "big.tfvars", "feature", `a.e["k=v"]=id=1`}
	has(t, "show", w.ok("workflow", "show", id), shown...)
	if d := cmp.Diff(want, value[api.Workflow](w, "workflow", "show", id).Options); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if made := w.planned(api.Changes{Add: 1}); made != id {
		t.Fatalf("planned %s, want %s", made, id)
	}
	has(t, "plan", w.ok("workflow", "plan", id), shown...)
	for _, args := range [][]string{{"workflow", "list"}, {"workflow", "show", id}} {
		if got := w.ok(args...); !strings.Contains(got, "to approve") || strings.Contains(got, "succeeded") {
			t.Errorf("%v: a plan that waits is shown as\n%s", args, got)
		}
	}
	has(t, "list", w.ok("workflow", "list"), "CHANGES", "+1 ~0 -0")
	if list := value[[]api.Workflow](w, "workflow", "list"); !list[0].ToApprove || list[0].State != workflow.Succeeded {
		t.Errorf("in JSON it is %+v", list[0])
	}
	if got := w.run("workflow", "approve", id); got.code != cli.ExitUsage {
		t.Errorf("without --yes: %+v", got)
	} else {
		has(t, "approve", got.stderr, shown...)
	}

	for _, empty := range []string{"--target", "--replace", "--var-file"} { // as of a shell variable that is not set
		if got := w.run("run", "net", empty, ""); got.code != cli.ExitRefused {
			t.Errorf("%s with no text: got %+v", empty, got)
		}
	}
	for _, args := range [][]string{{"--ref", ""}, {"--var", "novalue"}, {"--var", "=x"}, {"--import", "a.b"}, {"--import", `a.b["x=y"]`}, {"--import", "=x"}} {
		if got := w.run(append([]string{"run", "net"}, args...)...); got.code != cli.ExitUsage {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	if got := w.run("run", "net", "--refresh-only", "--replace", "a.b"); got.code != cli.ExitRefused {
		t.Errorf("a contradiction: got %+v", got)
	} else {
		has(t, "refusal", got.stderr, "options.replace")
	}
}
