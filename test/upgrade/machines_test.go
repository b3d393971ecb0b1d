package upgrade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue"
	queuememory "github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// tasks is a launcher that starts nothing. It remembers what it was asked for, as every launcher does, and
// the tasks that the launcher of the recording had started.
type tasks struct {
	mu       sync.Mutex
	known    map[string]string // task by job and attempt
	launched map[string]launcher.Request
}

func (l *tasks) Launch(_ context.Context, r launcher.Request) (launcher.Task, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := fmt.Sprintf("%s/%d", r.Workflow, r.Attempt)
	if l.known[name] == "" {
		l.known[name] = "task-of-the-new-dispatcher-" + name
	}
	l.launched[r.Workflow] = r
	return launcher.Task{Ref: l.known[name], Workflow: r.Workflow, Attempt: r.Attempt, Phase: launcher.Starting}, nil
}

// machines are a pool's stages of this version.
type machines struct {
	queue      *queuememory.Queue
	launcher   *tasks
	dispatcher *dispatcher.Dispatcher
	keys       *ticket.Keyring
	relay      http.Handler
}

// machines returns the stages, with the recorded ticket keys; through is how they reach the control plane.
func (w *world) machines(t *testing.T, through http.RoundTripper) *machines {
	t.Helper()
	m := &machines{launcher: &tasks{known: map[string]string{}, launched: map[string]launcher.Request{}}}
	for _, run := range w.scene.Runs {
		m.launcher.known[fmt.Sprintf("%s/%d", run.Workflow, run.Attempt)] = run.Task
	}
	keyFile := filepath.Join(t.TempDir(), "ticket-keys.json")
	if err := os.WriteFile(keyFile, read(t, w.dir, "ticket-keys.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.keys, err = ticket.LoadFile(keyFile); err != nil {
		t.Fatal(err)
	}
	if m.queue, err = queuememory.New(queuememory.Config{}); err != nil {
		t.Fatal(err)
	}
	upstream := w.client(t, "pool", through)
	if m.dispatcher, err = dispatcher.New(m.queue, m.launcher, upstream, dispatcher.Config{
		Relay: func(string) string { return "http://relay.test" }, Now: w.clock.now,
	}); err != nil {
		t.Fatal(err)
	}
	if m.relay, err = relay.New(m.keys, upstream, relay.Config{
		URL: "http://control.test", Transport: through, Hold: -1, Now: w.clock.now,
	}); err != nil {
		t.Fatal(err)
	}
	return m
}

// dispatch handles everything that lies in the queue and returns what became of it, by job.
func (m *machines) dispatch(t *testing.T) map[string]dispatcher.Disposition {
	t.Helper()
	out := map[string]dispatcher.Disposition{}
	for {
		got, err := m.queue.Receive(t.Context(), queue.MaxBatch, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return out
		}
		for i, d := range m.dispatcher.Batch(t.Context(), got) {
			if err := m.dispatcher.Finish(t.Context(), got[i], d); err != nil {
				t.Fatal(err)
			}
			out[d.Job] = d
		}
	}
}

// toResult is a runner of this version: it starts with what it was launched with, and ends well.
func (m *machines) toResult(t *testing.T, r launcher.Request, task string) {
	t.Helper()
	c, err := client.NewRunner(client.RunnerConfig{
		URL: r.Relay, HTTPClient: &http.Client{Transport: client.InMemory(m.relay)}, Credential: redact.New(r.Ticket),
		Run: api.Run{Workflow: r.Workflow, Attempt: r.Attempt, Task: task, Boot: strings.Repeat("b", 32)},
	})
	if err != nil {
		t.Fatal(err)
	}
	control, err := c.Start(t.Context())
	if err != nil || control.Cancel || control.RemainingSeconds <= 0 {
		t.Fatalf("start of %s: %+v, %v", r.Workflow, control, err)
	}
	spec, err := c.Spec(t.Context())
	if err != nil || spec.Workflow != r.Workflow || spec.Attempt != r.Attempt {
		t.Fatalf("spec: %+v, %v", spec, err)
	}
	if _, err := c.Heartbeat(t.Context(), api.Heartbeat{Step: "apply"}); err != nil {
		t.Fatal(err)
	}
	if taken, err := c.Logs(t.Context(), api.Logs{Lines: []api.LogLine{{Text: "one line"}}}); err != nil || taken.Next != 1 {
		t.Fatalf("logs: %+v, %v", taken, err)
	}
	if _, err := c.Result(t.Context(), api.Result{Outcome: workflow.Succeeded, LogEnd: 1}); err != nil {
		t.Fatal(err)
	}
}

// claimToResult takes what is pending through the whole arrow. change alters a message on its way.
func (w *world) claimToResult(t *testing.T, through http.RoundTripper, change func([]byte) []byte) {
	t.Helper()
	w.clock.set(w.scene.At)
	m := w.machines(t, through)
	p, err := poller.New(w.client(t, "pool", through), m.queue, m.keys, poller.Config{Instance: "one", Now: w.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := p.Pass(t.Context()); err != nil || s.Sent == 0 {
		t.Fatalf("poll: %+v, %v", s, err)
	}
	if change != nil {
		for depth, err := m.queue.Depth(t.Context()); depth > 0; depth-- {
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.queue.Receive(t.Context(), 1, 0)
			if err != nil || len(got) != 1 {
				t.Fatalf("receive: %d, %v", len(got), err)
			}
			if err := m.queue.Send(t.Context(), change(got[0].Body), "default"); err != nil {
				t.Fatal(err)
			}
			if err := m.queue.Delete(t.Context(), got[0].Receipt); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.dispatch(t)
	for _, name := range []string{"pending", "pending-preview", "pending-scan"} {
		id := w.scene.Workflows[name]
		r, ok := m.launcher.launched[id]
		if !ok {
			t.Fatalf("%s was not launched", name)
		}
		m.toResult(t, r, m.launcher.known[fmt.Sprintf("%s/%d", id, r.Attempt)])
		w.is(t, id, workflow.Succeeded)
	}
}

func (w *world) is(t *testing.T, id string, want workflow.State) {
	t.Helper()
	wf, err := w.client(t, "admin", client.InMemory(w.handler)).Workflow(t.Context(), id)
	if err != nil || wf.State != want {
		t.Errorf("workflow of %s: got %s (%s), %v; want %s", wf.Workspace, wf.State, wf.Reason, err, want)
	}
}

// The messages that were left in the queue, with their tickets, meet this version's dispatcher, relay and runner: what
// is wanted is launched once and runs to its end, what is launched or has started is not launched again.
func TestUpgrade_OldMessagesAndTicketsAreTaken(t *testing.T) {
	launch := []string{"claimed", "queued", "launch-refused", "scan-again"}
	eachVersion(t, func(t *testing.T, dir string) {
		for name, change := range map[string]func([]byte) []byte{
			"as they were":              func(b []byte) []byte { return b },
			"with what a later one has": func(b []byte) []byte { return enrich(t, b) },
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, dir, stores["memory"](t, dir, lines[stored](t, dir, "records.jsonl")))
				m := w.machines(t, client.InMemory(w.handler))
				messages := lines[message](t, dir, "messages.jsonl")
				for range 2 { // a message may come twice
					for _, one := range messages {
						if err := m.queue.Send(t.Context(), change(one.Body), "default"); err != nil {
							t.Fatal(err)
						}
					}
				}
				for id, d := range m.dispatch(t) {
					if !d.Delete {
						t.Errorf("message of %s: %+v, want it done", id, d)
					}
				}
				var got []string
				for _, one := range messages {
					if _, ok := m.launcher.launched[w.scene.Jobs[one.Name].ID]; ok {
						got = append(got, one.Name)
					}
				}
				if diff := cmp.Diff(launch, got); diff != "" {
					t.Errorf("launched: want -, got +\n%s", diff)
				}
				for _, name := range launch {
					job := w.scene.Jobs[name]
					r := m.launcher.launched[job.ID]
					if r.Ticket == "" || r.MaxRuntimeSeconds <= 0 || r.Pool != job.Pool || r.Size != job.Size || (r.States.Own == "") != (job.StateKey == "") ||
						r.SourceDirectory != job.SourceDirectory || r.ReadsState != (name == "launch-refused" || name == "scan-again") {
						t.Errorf("request of %s: %+v", name, r)
					}
					m.toResult(t, r, m.launcher.known[fmt.Sprintf("%s/%d", job.ID, job.Attempt)])
					w.is(t, job.ID, workflow.Succeeded)
				}
			})
		}
	})
}

// A run that had started goes on through this version's relay, with the ticket that its runner was given then.
func TestUpgrade_OldTicketsOfRunningJobsOpen(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		w := newWorld(t, dir, stores["memory"](t, dir, lines[stored](t, dir, "records.jsonl")))
		m := w.machines(t, client.InMemory(w.handler))
		seen := 0
		for _, one := range lines[message](t, dir, "messages.jsonl") {
			if one.Name != "running" && one.Name != "preview" && one.Name != "handed-over" && one.Name != "lost" {
				continue
			}
			seen++
			decoded, err := api.DecodeLaunchMessage(one.Body)
			if err != nil {
				t.Fatal(err)
			}
			run := w.scene.Runs[one.Name]
			body, err := json.Marshal(api.Result{Outcome: workflow.Succeeded})
			if err != nil {
				t.Fatal(err)
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/jobs/"+run.Workflow+"/result", strings.NewReader(string(body)))
			request.Header.Set("Authorization", "Bearer "+decoded.Ticket)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set(api.HeaderAttempt, fmt.Sprint(run.Attempt))
			request.Header.Set(api.HeaderTask, run.Task)
			request.Header.Set(api.HeaderBoot, run.Boot)
			answer := httptest.NewRecorder()
			m.relay.ServeHTTP(answer, request)
			if answer.Code != http.StatusOK {
				t.Errorf("result of %s: got %d %s", one.Name, answer.Code, answer.Body)
			}
			want := workflow.Succeeded
			if one.Name == "lost" {
				want = workflow.Failed // it stays what it was: the result frees the slot
			}
			w.is(t, run.Workflow, want)
		}
		if seen != 4 {
			t.Errorf("%d messages, want 4", seen)
		}
		// The slot of the one that was lost is free again.
		w.claimToResult(t, client.InMemory(w.handler), func(b []byte) []byte { return enrich(t, b) })
	})
}
