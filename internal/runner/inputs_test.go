package runner_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const canary = "canary-5d1f0a77"

func TestRunJob_SensitiveInputsReachOnlyTheEngine(t *testing.T) {
	spec, cfg := job(t, `printf '%s %s %s\n' "$DAYFLY_VAR_token" "$DAYFLY_VAR_all" "$DAYFLY_VAR_size"; printf '{"a":"x-%s"}' "$DAYFLY_VAR_token" > "$DAYFLY_OUTPUTS"; [ "$DAYFLY_VAR_token" = `+"`printf 'canary-%s' 5d1f0a77`"+` ]`)
	spec.Variables = map[string]any{"size": 3}
	spec.Inputs = []api.WorkspaceInput{
		{Workspace: "network", Output: "token", Sensitive: true},
		{Workspace: "network", Output: "doc", Variable: "all", Sensitive: true},
	}
	r := newRelay(t, spec)
	r.inputs = map[string]string{"0": `{"token":"` + canary + `","doc":{"n":12345678901234567,"s":"` + canary + `-2"},"other":"` + canary + `-3"}` + "\n"}
	runJob(t, r, cfg)
	got := r.result()
	if got.Outcome != workflow.Succeeded || r.called("input") != 1 {
		t.Fatalf("got %+v after %q: %s", got, r.asked(), r.text())
	}
	if !strings.Contains(r.text(), "*** ") || strings.Contains(r.text(), "12345678901234567") {
		t.Errorf("the log: %s", r.text())
	}
	if strings.Contains(string(r.bodies), canary) {
		t.Error("a value was sent")
	}
	if len(got.Outputs) != 1 || !got.Outputs[0].Masked {
		t.Errorf("an output that holds a value is not marked: %+v", got.Outputs)
	}
	err := filepath.WalkDir(cfg.WorkDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), canary) { //nolint:gosec // of the test
			t.Errorf("%s has a value", path)
		}
		return nil
	})
	if err != nil && cfg.WorkDir != "" && !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestRunJob_InvalidInputsEndTheRun(t *testing.T) {
	const left = `{"token":"` + canary + "\"}\n"
	for name, tc := range map[string]struct{ left, arrives, says string }{
		"replaced":    {left, strings.Replace(left, "canary", "CANARY", 1), "they were replaced"},
		"no object":   {`"` + canary + "\"\n", "", "not a JSON object"},
		"without it":  {`{"other":"` + canary + "\"}\n", "", "network lack token"},
		"not to have": {"", "", "there is no input"},
	} {
		spec, cfg := job(t, "echo ran")
		spec.Inputs = []api.WorkspaceInput{{Workspace: "network", Output: "token", Sensitive: true}}
		r := newRelay(t, spec)
		if r.inputs = map[string]string{"0": tc.left}; tc.left == "" {
			r.inputs = nil
		}
		r.arrives = tc.arrives
		runJob(t, r, cfg)
		if got := r.result(); got.Reason != workflow.ReasonArtifactFailed || !strings.Contains(got.Detail, tc.says) || strings.Contains(r.text(), "ran\n") || strings.Contains(got.Detail, canary) {
			t.Errorf("%s: got %+v\n%s", name, got, r.text())
		}
	}
}

func TestRunJob_UploadsSensitiveOutputsIfConsumed(t *testing.T) {
	const script = `printf '{"id":"net-1","token":{"value":"` + canary + `","sensitive":true}}' > "$DAYFLY_OUTPUTS"`
	for _, wanted := range []bool{true, false} {
		spec, cfg := job(t, script)
		spec.ShareOutputs = wanted
		r := newRelay(t, spec)
		runJob(t, r, cfg)
		got := r.result()
		left, there := r.bytes[api.OutputsName]
		if got.Outcome != workflow.Succeeded || there != wanted || (got.SensitiveOutputs != nil) != wanted {
			t.Fatalf("wanted %t: got %+v and %q", wanted, got, r.bytes)
		}
		if !wanted {
			continue
		}
		var values map[string]string
		if err := json.Unmarshal([]byte(left), &values); err != nil || len(values) != 1 || values["token"] != canary {
			t.Errorf("left %s", left)
		}
		if a := r.announced[api.OutputsName]; a.Kind != api.ArtifactOutputs || got.SensitiveOutputs.SHA256 != a.SHA256 || got.SensitiveOutputs.Size != a.Size || got.SensitiveOutputs.Artifact != a.Name {
			t.Errorf("announced %+v, reported %+v", a, got.SensitiveOutputs)
		}
		if raw, _ := json.Marshal(got); strings.Contains(string(raw), canary) || strings.Contains(r.text(), canary) {
			t.Error("a value was reported")
		}
	}
}

func TestRunJob_OutputsThatCannotBeLeftFailNoRun(t *testing.T) {
	spec, cfg := job(t, `printf '{"token":{"value":"`+canary+`","sensitive":true}}' > "$DAYFLY_OUTPUTS"`)
	spec.ShareOutputs = true
	r := newRelay(t, spec)
	r.refuse = func(call string, _ []byte) error {
		if call == "artifacts" {
			return workflow.Refuse(workflow.ErrUnsupported, "", "the relay of this pool has no place for artifacts")
		}
		return nil
	}
	runJob(t, r, cfg)
	if got := r.result(); got.Outcome != workflow.Succeeded || got.SensitiveOutputs != nil || !strings.Contains(r.text(), "no place for artifacts") {
		t.Errorf("got %+v\n%s", got, r.text())
	}
}
