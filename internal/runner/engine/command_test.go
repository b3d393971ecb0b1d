package engine_test

import (
	"context"
	"encoding/json"
	"errors"
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

func commandJob(t *testing.T, op workflow.Operation, script string) engine.Job {
	t.Helper()
	j := job(t, api.EngineCommand, op, map[string]string{"file.txt": "from the source"})
	name := string(op)
	if op == "" {
		name = "insights_scan"
	}
	j.Spec.Commands = map[string]string{name: script}
	return j
}

// R1: plain commands.
func TestCommand_FindsItsInputsAndLeavesOutputs(t *testing.T) {
	j := commandJob(t, workflow.Update, lines(
		`cat file.txt`,
		`echo "$DAYFLY_OPERATION: $DAYFLY_VAR_name, $DAYFLY_VAR_list, secrets in $DAYFLY_SECRETS_DIR"`,
		`echo kept >"$DAYFLY_STATE_DIR/kept"`,
		`printf '{"url":"https://x","key":{"value":"planted-key","sensitive":true}}' >"$DAYFLY_OUTPUTS"`))
	j.Spec.Variables = map[string]any{"name": "it's $HOME", "list": []any{"a", json.Number("2")}}
	j.SecretsDir = "/secret/files"
	h := newHost()
	out, err := engine.Run(t.Context(), h, j)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.text())
	}
	for _, want := range []string{"from the source", `update: it's $HOME, ["a",2], secrets in /secret/files`} {
		if !strings.Contains(h.text(), want) {
			t.Errorf("the log has no %q:\n%s", want, h.text())
		}
	}
	if diff := cmp.Diff([]api.Output{{Name: "key", Sensitive: true}, {Name: "url", Value: "https://x"}}, out.Outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if !slices.Contains(h.masked, "planted-key") {
		t.Error("the sensitive output was not masked")
	}
	if diff := cmp.Diff([]step{{"run", workflow.StepSucceeded, "2 outputs"}}, h.steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(j.StateDir, "kept")); err != nil {
		t.Errorf("the state directory was not the workspace's: %v", err)
	}
	for _, args := range h.args {
		if strings.Contains(strings.Join(args, " "), "printf") {
			t.Errorf("the script is on the command line: %q", args)
		}
	}
}

func TestCommand_ScanHasItsOwnCommandAndNoState(t *testing.T) {
	j := commandJob(t, "", `echo "state: [$DAYFLY_STATE_DIR]"`)
	h := newHost()
	if _, err := engine.Run(t.Context(), h, j); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(h.text(), "state: []") {
		t.Errorf("a run that only reads was given the state directory:\n%s", h.text())
	}
}

// R12: a failed command is a failed step, whatever it left.
func TestCommand_FailureIsToldWithItsCode(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		says   string
	}{
		"exit code":     {"echo before\nexit 7", "exit code 7"},
		"first error":   {"false\necho never", "exit code 1"},
		"with outputs":  {`echo '{"a":1}' >"$DAYFLY_OUTPUTS"; exit 3`, "exit code 3"},
		"bad outputs":   {`echo 'planted' >"$DAYFLY_OUTPUTS"`, "DAYFLY_OUTPUTS"},
		"linked output": {`ln -s /etc/passwd "$DAYFLY_OUTPUTS"`, "not a plain file"},
		"large outputs": {`head -c 2000000 /dev/zero >"$DAYFLY_OUTPUTS"`, "it is too long"},
	} {
		h := newHost()
		out, err := engine.Run(t.Context(), h, commandJob(t, workflow.Update, tc.script))
		f := failure(t, err)
		if f.Reason != workflow.ReasonStepFailed || !strings.Contains(f.Detail, tc.says) || strings.Contains(f.Detail, "planted") {
			t.Errorf("%s: got %s %q, want %s that says %q", name, f.Reason, f.Detail, workflow.ReasonStepFailed, tc.says)
		}
		if out.Outputs != nil || strings.Contains(h.text(), "never") {
			t.Errorf("%s: got outputs %v and log %q", name, out.Outputs, h.text())
		}
	}
}

func TestCommand_OperationWithoutCommandIsRefused(t *testing.T) {
	j := commandJob(t, workflow.Update, "true")
	j.Spec.Operation = workflow.Destroy
	_, err := engine.Run(t.Context(), newHost(), j)
	if f := failure(t, err); !strings.Contains(f.Detail, "no command for destroy, only for update") {
		t.Errorf("got %q, want a sentence that names both", f.Detail)
	}
}

func TestCommand_InterruptIsToldAsOne(t *testing.T) {
	why := errors.New("cancelled by a person")
	ctx, cancel := context.WithCancelCause(t.Context())
	h := newHost()
	h.onLine = func(text string) {
		if strings.Contains(text, "begun") {
			cancel(why)
		}
	}
	_, err := engine.Run(ctx, h, commandJob(t, workflow.Update, "echo begun; while :; do sleep 0.05; done"))
	if f := failure(t, err); f.Reason != workflow.ReasonInterrupted || !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %s %v, want %s of %v", f.Reason, err, workflow.ReasonInterrupted, why)
	}
}

// The copy that a reader gets is a whole one, also while the state is being written.
// What an engine put in place of its state is not read for another run.
func TestCopyState_LinksAreRefused(t *testing.T) {
	for name, link := range map[string]func(from, to string) error{"hard": os.Link, "symbolic": os.Symlink} {
		from, to := t.TempDir(), t.TempDir()
		precious, state := filepath.Join(from, "precious"), filepath.Join(from, "terraform.tfstate")
		if err := errors.Join(os.WriteFile(precious, []byte("{}"), 0o600), link(precious, state)); err != nil {
			t.Fatal(err)
		}
		if err := engine.CopyState(t.Context(), from, to); err == nil {
			t.Errorf("a %s link was copied", name)
		}
	}
}

func TestCopyState(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := engine.CopyState(t.Context(), filepath.Join(from, "nothing"), to); err != nil {
		t.Errorf("no directory yet: %v", err)
	}
	if err := engine.CopyState(t.Context(), from, to); err != nil {
		t.Errorf("no state yet: %v", err)
	}
	if _, err := os.Stat(filepath.Join(to, "terraform.tfstate")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a state was made of nothing: %v", err)
	}
	whole := `{"serial":1,"resources":[{"a":"` + strings.Repeat("x", 100_000) + `"}]}` + "\n"
	put(t, from, map[string]string{"terraform.tfstate": whole})
	if err := engine.CopyState(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, "terraform.tfstate")); err != nil || string(got) != whole {
		t.Errorf("copy: got %d bytes, %v, want %d", len(got), err, len(whole))
	}

	// Half written, or emptied to be written, by an engine that holds the lock: it is not taken,
	// and the copy waits until it is whole.
	why := errors.New("cancelled by a person")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for name, half := range map[string]map[string]string{
		"half written": {"terraform.tfstate": whole[:500], ".terraform.tfstate.lock.info": "{}"},
		"just emptied": {"terraform.tfstate": "", ".terraform.tfstate.lock.info": "{}"},
	} {
		put(t, from, half)
		if err := engine.CopyState(ended, from, to); !errors.Is(err, why) {
			t.Errorf("%s: got %v, want %v", name, err, why)
		}
		done := make(chan error, 1)
		go func() { done <- engine.CopyState(t.Context(), from, to) }()
		put(t, from, map[string]string{"terraform.tfstate": `{"serial":2}`})
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(filepath.Join(to, "terraform.tfstate")); err != nil || string(got) != `{"serial":2}` {
			t.Errorf("%s: got %.40q, %v, want the whole state", name, got, err)
		}
	}
}
