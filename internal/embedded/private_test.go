package embedded_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func plant(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// plantSchema1 leaves a database of schema 1 as a control plane that was killed left it: a part is in its log alone.
func plantSchema1(t *testing.T, path string) {
	t.Helper()
	open := filepath.Join(t.TempDir(), "dayfly.db")
	db, err := sql.Open("sqlite", open)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "PRAGMA journal_mode = WAL; CREATE TABLE records (part); PRAGMA application_id = 0x64617966; PRAGMA user_version = 1; PRAGMA wal_checkpoint; INSERT INTO records VALUES ('x')")
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(open + end)
		if err != nil || len(b) == 0 {
			t.Fatalf("%s: %d bytes, %v", end, len(b), err)
		}
		plant(t, path+end, string(b))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// treeOf describes all below a directory, and itself: content, mode and time.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		var b []byte
		if !e.IsDir() {
			b, err = os.ReadFile(path)
		}
		out[path] = fmt.Sprint(info.Mode(), info.ModTime(), " ", string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever is to open it says so, and leaves it to the version that can.
func TestData_OfAnOlderVersionIsRefusedUntouched(t *testing.T) {
	now := dataDir(t)
	_, stop := serve(t, embedded.ServerConfig{Data: now})
	stop()
	backup := filepath.Join(t.TempDir(), "backup")
	if _, err := embedded.Backup(t.Context(), now, backup, ""); err != nil {
		t.Fatal(err)
	}
	opens := map[string]func(data string) error{
		"server": func(data string) error {
			_, err := embedded.OpenServer(t.Context(), embedded.ServerConfig{Data: data, Listen: "127.0.0.1:0"})
			return err
		},
		"up": func(data string) error {
			_, err := embedded.OpenUp(t.Context(), embedded.UpConfig{Server: embedded.ServerConfig{Data: data, Listen: "127.0.0.1:0"}})
			return err
		},
		"agent": func(data string) error {
			cfg := embedded.AgentConfig{}
			cfg.Settings.WorkingDirectory = data
			_, err := embedded.OpenAgent(t.Context(), cfg)
			return err
		},
		"restore": func(data string) error {
			_, err := embedded.Restore(t.Context(), embedded.RestoreConfig{Backup: backup, Data: data, Replace: true})
			return err
		},
		"backup": func(data string) error {
			_, err := embedded.Backup(t.Context(), data, filepath.Join(t.TempDir(), "other"), "")
			return err
		},
	}
	for name, tt := range map[string]struct {
		plant func(t *testing.T, data string)
		found string
	}{
		"database beside private": {func(t *testing.T, data string) { plantSchema1(t, filepath.Join(data, "dayfly.db")) }, "dayfly.db outside of private/"},
		"note beside private": {func(t *testing.T, data string) {
			plant(t, filepath.Join(data, "dayfly.db"), "Moved to private/ by a newer Dayfly.\n")
			plant(t, filepath.Join(data, runner.DataMarker), "")
		}, "dayfly.db outside of private/"},
		"keys":     {func(t *testing.T, data string) { plant(t, filepath.Join(data, "ticket-keys.json"), "{}") }, "ticket-keys.json outside of private/"},
		"token":    {func(t *testing.T, data string) { plant(t, filepath.Join(data, "admin-token"), "dft_x") }, "admin-token outside of private/"},
		"secrets":  {func(t *testing.T, data string) { plant(t, filepath.Join(data, "secrets", "db"), "value") }, "secrets outside of private/"},
		"schema 1": {func(t *testing.T, data string) { plantSchema1(t, filepath.Join(data, embedded.DatabaseFile)) }, "private/dayfly.db has schema 1"},
	} {
		t.Run(name, func(t *testing.T) {
			data := dataDir(t)
			tt.plant(t, data)
			plant(t, filepath.Join(data, "lock"), "1\n")
			plant(t, filepath.Join(data, "state", "default", "ws_1", "terraform.tfstate"), "{}")
			if err := os.MkdirAll(filepath.Join(data, "private"), 0o755); err != nil { //nolint:gosec // a start would change it
				t.Fatal(err)
			}
			for path := range treeOf(t, data) {
				if err := os.Chtimes(path, time.Unix(1000, 0), time.Unix(1000, 0)); err != nil {
					t.Fatal(err)
				}
			}
			before := treeOf(t, data)
			for name, open := range opens {
				err := open(data)
				if !errors.Is(err, workflow.ErrUnsupported) {
					t.Fatalf("%s: got %v, want a refusal", name, err)
				}
				for _, want := range []string{data, tt.found, "nothing in it was changed", "--data", "--take-over", filepath.Join(data, "state", "ORGANIZATION", "WORKSPACE")} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: got %q, want it to say %q", name, err, want)
					}
				}
				if diff := cmp.Diff(before, treeOf(t, data)); diff != "" {
					t.Errorf("%s changed it (-before +after):\n%s", name, diff)
				}
			}
		})
	}
}

func TestData_IsMarkedAndItsPrivateDirectoryClosed(t *testing.T) {
	data := dataDir(t)
	private := filepath.Join(data, "private")
	if err := os.Mkdir(private, 0o755); err != nil { //nolint:gosec // what is to be repaired
		t.Fatal(err)
	}
	for range 2 {
		_, stop := serve(t, embedded.ServerConfig{Data: data})
		stop()
		info, err := os.Stat(private)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the private directory: %v, %v", info, err)
		}
		entries, err := os.ReadDir(data)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if diff := cmp.Diff([]string{runner.DataMarker, "lock", "private"}, names); diff != "" {
			t.Errorf("in the data directory (-want +got):\n%s", diff)
		}
		if _, err := os.Stat(filepath.Join(private, runner.DataMarker)); err != nil {
			t.Error(err)
		}
	}
}
