package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// spec plays the runner of the next run up to its end, and returns its spec.
func (w *world) spec(found *api.StateFound, lines ...string) api.Spec {
	w.t.Helper()
	ctx := w.t.Context()
	_, runner := w.claim()
	spec, err := runner.Spec(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.says(runner, api.StepState, lines)
	if _, err := runner.Result(ctx, api.Result{Outcome: workflow.Succeeded, State: found, LogEnd: int64(len(lines))}); err != nil {
		w.t.Fatal(err)
	}
	return spec
}

// An incomplete state document is refused before anything is asked or placed.
func TestStatePush_PlacesTheStateWhereTheAgentFindsIt(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	write := func(text string) string {
		file := filepath.Join(dir, "state")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const state = `{"version": 4, "serial": 0, "lineage": "0815", "resources": [{}]}`
	for name, text := range map[string]string{"nothing": "", "half": state[:40], "two": state + state, "a list": "[]", "no serial": `{"version":4,"lineage":"0815"}`, "no lineage": `{"version":4,"serial":1}`, "no version": `{"serial":1,"lineage":"0815"}`} {
		if got := w.run("state", "push", "net", write(text), "--yes"); got.code != cli.ExitUsage {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	file := write("name: net\nengine: terraform\nsource: {git: {url: 'https://git.example.com/net.git'}}\n")
	w.ok("apply", "-f", file)
	file = write(state)
	got := w.run("state", "push", "net", file, "--data", filepath.Join(dir, "none"))
	if got.code != cli.ExitUsage {
		t.Errorf("nobody was asked: got %+v", got)
	}
	has(t, "asked", got.stderr, `serial 0, lineage "0815", 1 resource`, "workspace net")
}

// R16: the flags about a state reach the run, and the state that it found is listed when the workspace is gone.
func TestState_IsChosenLookedAtAndListed(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "workspace.yaml")
	text := "name: net\nengine: terraform\nsource: {git: {url: 'https://git.example.com/net.git'}}\nstate: {workspace: prod, backend_config: {bucket: states}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("apply", "-f", file)
	if got := value[api.Workspace](w, "workspace", "show", "net"); got.State == nil || got.State.Workspace != "prod" || got.State.BackendConfig["bucket"] != "states" {
		t.Errorf("the state of the workspace is %+v", got.State)
	}

	w.ok("run", "net", "--take-over-from", "dev")
	if got := w.spec(nil); !got.TakeOver || got.TakeOverFrom != "dev" || got.BeginAnew {
		t.Errorf("take over from dev: got %+v", got)
	}
	w.ok("run", "net", "--op", "update", "--yes", "--begin-anew")
	if got := w.spec(&api.StateFound{Backend: "s3", Lineage: "0815", Serial: 7}); got.TakeOver || !got.BeginAnew {
		t.Errorf("begin anew: got %+v", got)
	}
	if got := w.run("run", "net", "--begin-anew", "--take-over"); got.code != cli.ExitRefused {
		t.Errorf("both: got %+v", got)
	}

	for _, tc := range []struct {
		args   []string
		op     workflow.Operation
		lock   string
		stdout string
	}{
		{[]string{"state", "list", "net"}, workflow.StateList, "", "terraform_data.thing\n"},
		{[]string{"state", "list", "net", "-o", "name"}, workflow.StateList, "", "terraform_data.thing\n"},
		{[]string{"state", "list", "net", "-o", "json"}, workflow.StateList, "", "[\n  \"terraform_data.thing\"\n]\n"},
		{[]string{"state", "list", "net", "-o", "yaml"}, workflow.StateList, "", "- terraform_data.thing\n"},
		{[]string{"state", "unlock", "net", "0a1b", "--yes"}, workflow.StateUnlock, "0a1b", ""},
	} {
		done := make(chan answer)
		go func() { done <- w.in(t.Context(), "", tc.args...) }()
		spec := w.spec(nil, "$ terraform state list", "terraform_data.thing", "[dayfly] 3 lines are missing here")
		got := <-done
		if spec.Operation != tc.op || spec.LockID != tc.lock || got.code != cli.ExitOK {
			t.Errorf("%v: got %+v for %+v", tc.args, got, spec)
		}
		if tc.op == workflow.StateUnlock {
			has(t, "unlock", got.stdout, "terraform_data.thing", "succeeded")
			continue
		}
		if got.stdout != tc.stdout {
			t.Errorf("%v printed %q", tc.args, got.stdout)
		}
		has(t, "what is said about it", got.stderr, "3 lines are missing here")
	}
	done := make(chan answer)
	go func() { done <- w.in(t.Context(), "", "state", "list", "net") }()
	w.finish(api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "no such bucket"})
	if got := <-done; got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, "no such bucket") {
		t.Errorf("a list that failed: got %+v", got)
	}
	if got := w.run("state", "unlock", "net", "0a1b"); got.code != cli.ExitUsage {
		t.Errorf("nobody was asked: got %+v", got)
	}

	w.ok("workspace", "delete", "net", "--yes")
	has(t, "deleted", w.ok("workspace", "list", "--deleted"), "net", "0815", "7", "as the code declares")
	if got := value[[]api.DeletedWorkspace](w, "workspace", "list", "--deleted"); len(got) != 1 || got[0].Found == nil || got[0].Found.Serial != 7 {
		t.Errorf("got %+v", got)
	}
}
