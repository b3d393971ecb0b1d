package e2e_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// With real runners, a sensitive output goes from one run to another, and its value is in no record, log or file but the
// artifact.
func TestInputs_ASensitiveOutputReachesTheOtherRunAlone(t *testing.T) {
	const canary = "canary-77f3a1c0e9"
	w := start(t)
	// The value is in the shared directory, so that it is in no command.
	if err := os.WriteFile(filepath.Join(w.shared, "token"), []byte(canary), 0o644); err != nil { //nolint:gosec // for the engine's user
		t.Fatal(err)
	}
	w.put("net", map[string]string{"update": `printf '{"id": "net-1", "token": {"value": {"key": "%s"}, "sensitive": true}}' "$(cat "$SHARED/token")" > "$DAYFLY_OUTPUTS"`})
	w.put("app", map[string]string{"update": `echo "has $DAYFLY_VAR_token"; printf '%s' "$DAYFLY_VAR_token" > "$SHARED/got"; echo "in $DAYFLY_VAR_net" >> "$EFFECTS"`}, func(ws *api.Workspace) {
		ws.Inputs = []api.WorkspaceInput{{Workspace: "net", Output: "id", Variable: "net"}, {Workspace: "net", Output: "token", Sensitive: true}}
	})
	missing := w.Over(w.Update("app"))
	if missing.Reason != workflow.ReasonInputMissing || !strings.Contains(missing.Detail, "run an update of net once") {
		t.Errorf("before anything is left it ends as %s: %s", missing.Reason, missing.Detail)
	}
	w.wants(w.Over(w.Update("net")), workflow.Succeeded, "")
	app := w.Over(w.Update("app"))
	w.wants(app, workflow.Succeeded, "")
	if got, err := os.ReadFile(filepath.Join(w.shared, "got")); err != nil || string(got) != `{"key":"`+canary+`"}` {
		t.Errorf("the run was given %q, %v", got, err)
	}
	if log := w.Log(app.ID, 1); !strings.Contains(log, "has ") || strings.Contains(log, canary) {
		t.Errorf("the log: %s", log)
	}
	if got := w.lines(); len(got) != 1 || got[0] != "in net-1" {
		t.Errorf("the runs did %q", got)
	}
	w.Stop()
	kept := 0
	err := filepath.WalkDir(w.Data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path) //nolint:gosec // of the test
		if err != nil || !bytes.Contains(raw, []byte(canary)) {
			return err
		}
		if kept++; !strings.HasSuffix(path, "/plan/outputs.json") {
			t.Errorf("%s has the value", path)
		}
		return nil
	})
	if err != nil || kept != 1 {
		t.Errorf("the value is kept in %d files, want the artifact alone: %v", kept, err)
	}
}
