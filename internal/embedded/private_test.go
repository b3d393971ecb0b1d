package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// base is where an earlier version had a file of the private directory.
func base(data, name string) string { return filepath.Join(data, filepath.Base(name)) }

// formerData makes a data directory as a control plane of the version before left it that was killed: a part of its
// database is in the log alone. It returns the directory and the admin's token.
func formerData(t *testing.T) (data, token string) {
	t.Helper()
	now := dataDir(t)
	s, stop := serve(t, embedded.ServerConfig{Data: now})
	kept := "kept"
	if _, err := person(t, s).CreatePool(t.Context(), api.PoolSettings{Name: &kept}); err != nil {
		t.Fatal(err)
	}
	token, err := s.AdminToken()
	if err != nil {
		t.Fatal(err)
	}
	data = dataDir(t)
	for _, name := range []string{embedded.DatabaseFile, embedded.DatabaseFile + "-wal", embedded.DatabaseFile + "-shm", embedded.AdminTokenFile} {
		b, err := os.ReadFile(filepath.Join(now, name))
		if err != nil || len(b) == 0 {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
		plant(t, base(data, name), string(b))
	}
	stop()
	if _, err := ticket.EnsureFile(base(data, embedded.TicketKeysFile)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"lock": "1\n", "instance": "host-1\n", "state-id": "ID\n", "relay-port": "4711\n", "secrets/db": "value", "dayfly.db.v1": "copy", "state/default/ws/terraform.tfstate": "{}"} {
		plant(t, filepath.Join(data, name), text)
	}
	return data, token
}

func plant(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// holdsAll opens a data directory and fails unless all that formerData made is there, and private.
func holdsAll(t *testing.T, data, token string) {
	t.Helper()
	keys, err := os.ReadFile(base(data, embedded.TicketKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(string(keys), "Moved") {
		if keys, err = os.ReadFile(filepath.Join(data, embedded.TicketKeysFile)); err != nil {
			t.Fatal(err)
		}
	}
	s, stop := serve(t, embedded.ServerConfig{Data: data})
	if got, err := s.AdminToken(); err != nil || got != token {
		t.Errorf("the admin has another token: %v", err)
	}
	if _, err := person(t, s).Pool(t.Context(), "kept"); err != nil {
		t.Errorf("what was in the log of the database alone: %v", err)
	}
	stop()
	for name, want := range map[string]string{
		embedded.TicketKeysFile: string(keys), embedded.SecretsDir + "/db": "value", "private/instance": "host-1\n", "private/state-id": "ID\n",
		"private/relay-port": "4711\n", "private/dayfly.db.v1": "copy", "state/default/ws/terraform.tfstate": "{}",
	} {
		if b, err := os.ReadFile(filepath.Join(data, name)); err != nil || string(b) != want {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(b), err, len(want))
		}
	}
	info, err := os.Stat(filepath.Join(data, "private"))
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
	if diff := cmp.Diff([]string{runner.DataMarker, "dayfly.db", "lock", "private", "state", "ticket-keys.json"}, names); diff != "" {
		t.Errorf("in the data directory (-want +got):\n%s", diff)
	}
}

// The data directory of the version before is moved as a whole, whenever the process that moves it dies.
func TestData_OfTheVersionBeforeIsMovedAndLosesNothing(t *testing.T) {
	link := func(t *testing.T, data string, names ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(data, "private"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.Link(base(data, name), filepath.Join(data, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const db, wal, shm = embedded.DatabaseFile, embedded.DatabaseFile + "-wal", embedded.DatabaseFile + "-shm"
	note := "Moved to private/ by a newer Dayfly. And so on.\n"
	for name, died := range map[string]func(t *testing.T, data string){
		"before the first step":    func(*testing.T, string) {},
		"with the database linked": func(t *testing.T, data string) { link(t, data, db) },
		"with its log linked":      func(t *testing.T, data string) { link(t, data, db, wal) },
		"with all of it linked":    func(t *testing.T, data string) { link(t, data, db, wal, shm) },
		"with the old log left": func(t *testing.T, data string) {
			link(t, data, db, wal, shm)
			if err := os.Remove(base(data, db)); err != nil {
				t.Fatal(err)
			}
			plant(t, base(data, db), note)
		},
		"with the keys linked": func(t *testing.T, data string) { link(t, data, embedded.TicketKeysFile) },
		"in the secrets": func(t *testing.T, data string) {
			plant(t, filepath.Join(data, embedded.SecretsDir, "db"), "older value")
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, token := formerData(t)
			died(t, data)
			for range 2 {
				holdsAll(t, data, token)
			}
		})
	}
}

// A version that does not know the private directory would begin with an empty database and other keys.
func TestData_AnOlderVersionRefusesWhatWasMoved(t *testing.T) {
	data, token := formerData(t)
	holdsAll(t, data, token)
	if _, err := sqlite.Open(t.Context(), base(data, embedded.DatabaseFile), sqlite.Config{}); err == nil || !strings.Contains(err.Error(), "not a Dayfly data file") {
		t.Errorf("the database of an older version: got %v, want a refusal", err)
	}
	if _, err := ticket.LoadFile(base(data, embedded.TicketKeysFile)); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("the keys of an older version: got %v, want a refusal", err)
	}
	// The way back, and forth again.
	entries, err := os.ReadDir(filepath.Join(data, "private"))
	if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "secrets" }) {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(data, "private", e.Name()), filepath.Join(data, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	holdsAll(t, data, token)
	// Two databases: nobody but the owner knows which one counts.
	if err := os.Remove(base(data, embedded.DatabaseFile)); err != nil {
		t.Fatal(err)
	}
	plant(t, base(data, embedded.DatabaseFile), strings.Repeat("another", 100))
	if _, err := embedded.OpenServer(t.Context(), embedded.ServerConfig{Data: data, Listen: "127.0.0.1:0"}); !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), "keep the one") {
		t.Errorf("two databases: got %v, want a refusal that says what to do", err)
	}
}

func TestSecretsPath_IsWhereTheRunningVersionLooks(t *testing.T) {
	data := dataDir(t)
	now, before := filepath.Join(data, "private", "secrets"), filepath.Join(data, "secrets")
	for _, step := range []struct{ name, want string }{{"", now}, {"lock", before}, {"secrets/db", before}} {
		if step.name != "" {
			plant(t, filepath.Join(data, step.name), "")
		}
		if got := embedded.SecretsPath(data); got != step.want {
			t.Errorf("with %q: got %s, want %s", step.name, got, step.want)
		}
	}
	_, stop := serve(t, embedded.ServerConfig{Data: data})
	stop()
	if got := embedded.SecretsPath(data); got != now {
		t.Errorf("after a start: got %s, want %s", got, now)
	}
}
