package engine_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// R15: what was made is not forgotten because its backend refuses the state after the apply.
func TestRun_AStateThatItsBackendRefusesIsKept(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusForbidden
		if r.Method == http.MethodGet {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	}))
	defer backend.Close()
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{
			"main.tf":         thing + fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n  }\n}\n", backend.URL),
			"errored.tfstate": `{"of": "an earlier run"}`,
		}
		for keepErr, want := range map[error]string{
			nil:                             "dayfly artifact get wf plan/errored.tfstate), then dayfly state push app errored.tfstate",
			errors.New("no place for more"): "is lost: no place for more",
		} {
			j := job(t, name, workflow.Update, files)
			j.Spec.State = api.State{Kind: api.StateSource}
			h := newHost()
			h.keepErr = keepErr
			_, err := engine.Run(t.Context(), h, j)
			f := failure(t, err)
			if f.Reason != workflow.ReasonStepFailed || !strings.Contains(f.Detail, want) || !strings.Contains(f.Detail, "apply failed") {
				t.Errorf("%s: %s\n%s", f.Reason, f.Detail, h.text())
			}
			if state := string(h.kept[api.ArtifactState+" "+api.ErroredName]); keepErr == nil && !strings.Contains(state, `"terraform_data"`) {
				t.Errorf("kept is %q", state)
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
