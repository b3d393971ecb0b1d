package upgrade_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// While a control plane is replaced, a function of the older version may write a workflow's record again and
// drop what it does not know: here, which placement a launch may have been taken with. The next launch then
// begins elsewhere, so there are two tasks; one of them is granted the start, and the other never is.
func TestUpgrade_APlacementThatAnOlderFunctionDropsCostsATaskAtMost(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		st := stores["memory"](t, dir, lines[stored](t, dir, "records.jsonl"))
		w := newWorld(t, dir, st)
		job := w.scene.Jobs["queued"]
		pool := w.client(t, "pool", client.InMemory(w.handler))
		pending := func() string {
			t.Helper()
			got, err := pool.States(t.Context(), api.StatesQuery{IDs: []string{job.ID}})
			if err != nil {
				t.Fatal(err)
			}
			return got.Jobs[0].PendingPlacement
		}
		report := func(in api.Launch) {
			t.Helper()
			in.Attempt = job.Attempt
			if err := pool.Launch(t.Context(), job.ID, in); err != nil {
				t.Fatal(err)
			}
		}
		report(api.Launch{Kind: api.LaunchRefused, Reason: workflow.ReasonUnavailable, Text: "the answer was lost", RetrySeconds: 5, Placement: "subnet-a"})
		if got := pending(); got != "subnet-a" {
			t.Fatalf("pending placement %q", got)
		}
		rewriteWithout(t, st, store.Key{Part: "wf/" + job.ID, Sort: "wf"}, "held", "placement")
		if got := pending(); got != "" {
			t.Fatalf("pending placement %q after it was dropped", got)
		}

		report(api.Launch{Kind: api.LaunchAccepted, Task: "task-in-b"})
		report(api.Launch{Kind: api.LaunchAccepted, Task: "task-in-a"})
		granted := 0
		for i, task := range []string{"task-in-a", "task-in-b"} {
			c, err := client.NewRunner(client.RunnerConfig{
				URL: "http://control.test", HTTPClient: &http.Client{Transport: client.InMemory(w.handler)}, Credential: redact.New(job.Token),
				Run: api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: task, Boot: strings.Repeat(string(rune('a'+i)), 32)},
			})
			if err != nil {
				t.Fatal(err)
			}
			switch _, err := c.Start(t.Context()); {
			case err == nil:
				granted++
			case !errors.Is(err, workflow.ErrAlreadyStarted):
				t.Errorf("start of %s: %v", task, err)
			}
		}
		if granted != 1 {
			t.Errorf("%d starts were granted, want 1", granted)
		}
	})
}

// The earlier version did not record which task started an attempt. For an attempt that still runs, the workflow's own
// record decides whether the rest of the log is accepted.
func TestUpgrade_TheLogOfARunThatAnOlderVersionStartedIsMadeWhole(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		w := newWorld(t, dir, stores["memory"](t, dir, lines[stored](t, dir, "records.jsonl")))
		job, pool := w.scene.Jobs["running"], w.client(t, "pool", client.InMemory(w.handler))
		states, err := pool.States(t.Context(), api.StatesQuery{IDs: []string{job.ID}})
		if err != nil || states.Jobs[0].Task == "" {
			t.Fatalf("%+v, %v", states, err)
		}
		before, err := pool.Tail(t.Context(), job.ID, api.Tail{Attempt: job.Attempt, Task: states.Jobs[0].Task})
		if err != nil {
			t.Fatal(err)
		}
		got, err := pool.Tail(t.Context(), job.ID, api.Tail{
			Attempt: job.Attempt, Task: states.Jobs[0].Task, First: before.Next, Lines: []api.LogLine{{Text: "the last"}},
		})
		if err != nil || got.Next != before.Next+1 {
			t.Errorf("next %d after %d, %v", got.Next, before.Next, err)
		}
		if _, err := pool.Tail(t.Context(), job.ID, api.Tail{Attempt: job.Attempt, Task: "another"}); !errors.Is(err, workflow.ErrConflict) {
			t.Errorf("of another task: %v", err)
		}
	})
}

// rewriteWithout does to a record what a function does that does not know the field at path.
func rewriteWithout(t *testing.T, st store.Store, k store.Key, path ...string) {
	t.Helper()
	got, err := st.Get(t.Context(), k)
	if err != nil || len(got) != 1 {
		t.Fatalf("record %s: %d, %v", k, len(got), err)
	}
	var whole map[string]any
	if err := json.Unmarshal(got[0].Value, &whole); err != nil {
		t.Fatal(err)
	}
	at := whole
	for _, name := range path[:len(path)-1] {
		var ok bool
		if at, ok = at[name].(map[string]any); !ok {
			t.Fatalf("record %s has no %v", k, path)
		}
	}
	delete(at, path[len(path)-1])
	if got[0].Value, err = json.Marshal(whole); err != nil {
		t.Fatal(err)
	}
	if err := st.Commit(t.Context(), "an-older-function", store.Put(got[0], got[0].Version)); err != nil {
		t.Fatal(err)
	}
}

// The data directory of the earlier version is served as it is: its database, the admin's token, and the
// agent's keys.
func TestUpgrade_OldDataDirectoryIsServed(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		data := t.TempDir()
		for _, dir := range []string{filepath.Dir(data), data} { // the engines of root pass through
			if err := os.Chmod(dir, 0o711); err != nil {
				t.Fatal(err)
			}
		}
		database(t, dir, filepath.Join(data, "dayfly.db"))
		for _, name := range []string{"admin-token", "ticket-keys.json"} {
			if err := os.WriteFile(filepath.Join(data, name), read(t, dir, "data", name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		now := &clock{}
		now.set(sceneOf(t, dir).At)
		for range 2 { // and again, as this version left it
			s, err := embedded.OpenServer(t.Context(), embedded.ServerConfig{Data: data, Listen: "127.0.0.1:0", Now: now.now})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got, want := read(t, data, embedded.AdminTokenFile), read(t, dir, "data", "admin-token"); string(got) != string(want) {
				t.Error("the admin has a new token")
			}
		}
	})
}
