package runs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestStatePush_PlacesTheStateForTheAgent(t *testing.T) {
	state := []byte(`{"version": 4, "serial": 0, "lineage": "0815", "resources": [{}]}`)
	data := t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, filepath.Dir(embedded.ArtifactsDir)), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		push := describePush(state)
		if want := fmt.Sprintf("%x", sha256.Sum256(state)); push.SHA256 != want || push.Size != int64(len(state)) {
			t.Errorf("got %+v", push)
		}
		key := api.PushedKey("default", "ws_1", push.SHA256)
		if err := (&statePush{Data: data}).place(nil, key, push, state); err != nil {
			t.Error(err)
		}
		if kept, err := os.ReadFile(filepath.Join(data, embedded.ArtifactsDir, key)); string(kept) != string(state) {
			t.Errorf("placed: %q, %v", kept, err)
		}
	}
}

func TestDescribeState_OfPulumi(t *testing.T) {
	export := `{"version":3,"deployment":{"manifest":{"time":"2026-01-02T03:04:05Z"},"resources":[{"id":"CANARY"},{}]}}`
	if got, err := describeState([]byte(export)); err != nil || got != "version 3, of 2026-01-02T03:04:05Z, 2 resources" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{export[:40], `{"version":3,"deployment":{}}`, `{"deployment":{"manifest":{"time":"2026-01-02T03:04:05Z"}}}`, `{"version":3,"checkpoint":{"latest":{}}}`} {
		if got, err := describeState([]byte(bad)); err == nil {
			t.Errorf("%s: got %q", bad, got)
		}
	}
}

func TestStatePush_RefusesAnOlderDataDirectory(t *testing.T) {
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "ticket-keys.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	push := describePush([]byte("{}"))
	err := (&statePush{Data: data}).place(nil, api.PushedKey("default", "ws_1", push.SHA256), push, []byte("{}"))
	if !errors.Is(err, workflow.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(data); err != nil || len(entries) != 1 {
		t.Errorf("in the directory: %v, %v; want the keys alone", entries, err)
	}
}
