package engine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// refusing is the address of a backend that has no state and takes none.
func refusing(t *testing.T) string {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusForbidden
		if r.Method == http.MethodGet {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(backend.Close)
	return backend.URL
}

// R15: what was made is not forgotten because its backend refuses the state after the apply.
func TestRun_AStateThatItsBackendRefusesIsKept(t *testing.T) {
	backend := refusing(t)
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{
			"main.tf":         thing + fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n  }\n}\n", backend),
			"errored.tfstate": `{"of": "an earlier run"}`,
		}
		full := errors.New("no place for more")
		for _, tt := range []struct {
			keepErr       error
			unsaved, want string
		}{
			{nil, "", "dayfly artifact get wf plan/errored.tfstate), then dayfly state push app errored.tfstate"},
			{nil, "/jobs/unsaved/task on one", "dayfly artifact get wf plan/errored.tfstate), then dayfly state push app errored.tfstate"},
			{full, "", "is lost: no place for more; import or delete the resources that the log lists as created, then dayfly repair unlock app"},
			{full, "/jobs/unsaved/task on one", "(no place for more): the only copy is errored.tfstate in /jobs/unsaved/task on one: there dayfly state push app errored.tfstate, then remove it"},
		} {
			keepErr, want := tt.keepErr, tt.want
			j := job(t, name, workflow.Update, files)
			j.Spec.State = api.State{Kind: api.StateSource}
			j.Work, j.Unsaved = filepath.Dir(j.Root), tt.unsaved
			h := newHost()
			h.keepErr = keepErr
			h.keeping = func() {
				if _, err := os.Lstat(filepath.Join(j.Work, task.UnsavedName, "errored.tfstate")); (err == nil) != (j.Unsaved != "") {
					t.Errorf("while it is sent it is %v", err)
				}
			}
			_, err := engine.Run(t.Context(), h, j)
			f := failure(t, err)
			if f.Reason != workflow.ReasonStepFailed || !strings.Contains(f.Detail, want) || !strings.Contains(f.Detail, "apply failed") {
				t.Errorf("%s: %s\n%s", f.Reason, f.Detail, h.text())
			}
			if state := string(h.kept[api.ArtifactState+" "+api.ErroredName]); keepErr == nil && !strings.Contains(state, `"terraform_data"`) {
				t.Errorf("kept is %q", state)
			}
			left := filepath.Join(j.Work, task.UnsavedName, "errored.tfstate")
			switch info, err := os.Lstat(left); {
			case keepErr == nil || j.Unsaved == "":
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("left is %v, %v, want nothing", info, err)
				}
			case err != nil || info.Mode() != 0o600:
				t.Errorf("left is %v, %v, want it for its owner alone", info, err)
			default:
				if state, err := os.ReadFile(left); err != nil || !strings.Contains(string(state), `"terraform_data"`) {
					t.Errorf("left is %q, %v", state, err)
				}
			}
		}

		// A failure that has nothing to do with the state leaves none.
		j := job(t, name, workflow.Update, map[string]string{
			"main.tf":         "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" {\n    command = \"exit 7\"\n  }\n}\n",
			"errored.tfstate": `{"of": "an earlier run"}`,
		})
		h := newHost()
		_, err := engine.Run(t.Context(), h, j)
		if f := failure(t, err); strings.Contains(f.Detail, "errored.tfstate") || len(h.kept) > 0 {
			t.Errorf("%s; kept %v", f.Detail, h.kept)
		}
	})
}

// With terragrunt, each unit leaves the state that it could not write.
func TestTerragrunt_KeepsStatesRefusedByBackends(t *testing.T) {
	unit := fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n  }\n}\n", refusing(t)+"/UNIT") + netUnit
	tree := map[string]string{
		"net/main.tf": strings.Replace(unit, "UNIT", "net", 1), "net/terragrunt.hcl": "", "net/errored.tfstate": `{"of": "an earlier run"}`,
		"a b/main.tf": strings.Replace(unit, "UNIT", "ab", 1), "a b/terragrunt.hcl": "terraform {\n  source = \".\"\n}\n",
	}
	j, h := treeJob(t, workflow.Update, tree), newHost()
	j.Spec.Workflow, j.Spec.Workspace = "wf", "live"
	_, err := engine.Run(t.Context(), h, j)
	f := failure(t, err)
	for _, want := range []string{"apply failed in 2 of 2 units", api.ErroredOf("a b") + ", " + api.ErroredOf("net"), "dayfly artifact list wf), then terragrunt state push FILE in each unit, then dayfly repair unlock live"} {
		if !strings.Contains(f.Detail, want) {
			t.Errorf("%s: %s; it does not say %s\n%s", f.Reason, f.Detail, want, h.text())
		}
	}
	for _, name := range []string{"plan/errored/net.tfstate", api.ErroredOf("a b")} {
		if state := string(h.kept[api.ArtifactState+" "+name]); !strings.Contains(state, `"terraform_data"`) || api.CheckArtifactName(name) != nil || !api.IsErrored(name) {
			t.Errorf("%s has %q", name, state)
		}
	}

	h = newHost()
	h.keepErr = errors.New("no place for more")
	_, err = engine.Run(t.Context(), h, treeJob(t, workflow.Update, tree))
	if f := failure(t, err); !strings.Contains(f.Detail, "the state of a b, net could not be written, and is lost: no place for more") {
		t.Errorf("got %s", f.Detail)
	}

	j = treeJob(t, workflow.Update, tree)
	j.Work, j.Unsaved = filepath.Dir(j.Root), "/jobs/unsaved/task on one"
	_, err = engine.Run(t.Context(), h, j)
	if f := failure(t, err); !strings.Contains(f.Detail, "errored-net.tfstate in /jobs/unsaved/task on one") {
		t.Errorf("got %s", f.Detail)
	}
	if left, err := filepath.Glob(filepath.Join(j.Work, task.UnsavedName, "errored-*.tfstate")); err != nil || len(left) != 2 {
		t.Errorf("left is %q, %v", left, err)
	}
}
