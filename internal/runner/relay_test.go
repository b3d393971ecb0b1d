package runner_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const ticket = "ticket.of.the.run"

// relay is a relay with the control plane behind it, for one run: it holds the fence, keeps steps and
// lines by their numbers, and takes one result.
type relay struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	spec    api.Spec
	control api.Control
	bare    bool  // the spec does not come with the start
	strips  bool  // the relay keeps a result without the rest of its log
	away    bool  // as a gateway whose upstream is gone
	over    error // what every call is refused with
	refuse  func(call string, body []byte) error
	boot    string
	calls   []string
	bodies  []byte
	steps   []api.Step
	lines   []api.LogLine
	results []api.Result
	beats   []api.Heartbeat

	announced map[string]api.NewArtifact
	bytes     map[string]string
	placed    []string
	batches   []int // how many artifacts each call announced

	inputs  map[string]string // what other workspaces have left, by the index that is asked for
	asks    string            // the input whose bytes are asked for next
	arrives string            // in place of what was left; "" for the very bytes
}

func newRelay(t *testing.T, spec api.Spec) *relay {
	t.Helper()
	r := &relay{
		t: t, spec: spec, changed: make(chan struct{}), announced: map[string]api.NewArtifact{}, bytes: map[string]string{},
		control: api.Control{RemainingSeconds: 3600, HeartbeatSeconds: 0.01},
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *relay) run() api.Run {
	return api.Run{Workflow: r.spec.Workflow, Attempt: r.spec.Attempt, Task: "task-1", Boot: strings.Repeat("ab", 16)}
}

// client is the real client of this relay.
func (r *relay) client() *client.Runner {
	r.t.Helper()
	transport := &http.Transport{}
	r.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.NewRunner(client.RunnerConfig{
		URL: r.url, Credential: redact.New(ticket), Run: r.run(), HTTPClient: &http.Client{Transport: transport},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.change()
	call := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	if r.away {
		http.Error(w, "upstream is gone", http.StatusBadGateway)
		return
	}
	r.calls = append(r.calls, call)
	r.bodies = append(r.bodies, body...)
	out, err := r.answer(call, req, body)
	if err != nil {
		p := api.ProblemFor(err)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)
		return
	}
	if raw, ok := out.([]byte); ok {
		_, _ = w.Write(raw)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

func (r *relay) answer(call string, req *http.Request, body []byte) (any, error) {
	if got, want := req.Header.Get("Authorization"), "Bearer "+ticket; got != want {
		return nil, workflow.Refuse(workflow.ErrUnauthenticated, "", "wrong ticket %q", got)
	}
	attempt, _ := strconv.Atoi(req.Header.Get(api.HeaderAttempt))
	boot := req.Header.Get(api.HeaderBoot)
	if attempt != r.spec.Attempt || boot == "" || req.Header.Get(api.HeaderTask) == "" {
		r.t.Errorf("%s names attempt %d, task %q, boot %q", call, attempt, req.Header.Get(api.HeaderTask), boot)
	}
	if r.over != nil {
		return nil, r.over
	}
	if r.refuse != nil {
		if err := r.refuse(call, body); err != nil {
			return nil, err
		}
	}
	if call == "start" {
		if r.boot != "" && r.boot != boot {
			return nil, workflow.ErrAlreadyStarted
		}
		r.boot = boot
		if r.bare {
			return r.control, nil
		}
		return api.Started{Control: r.control, Spec: &r.spec}, nil
	}
	if boot != r.boot {
		return nil, workflow.ErrNotStarted
	}
	decode := func(v any) {
		if err := json.Unmarshal(body, v); err != nil {
			r.t.Errorf("%s: %v", call, err)
		}
	}
	switch call {
	case "spec":
		return r.spec, nil
	case "heartbeat":
		var in api.Heartbeat
		decode(&in)
		r.beats = append(r.beats, in)
	case "steps":
		var in api.Steps
		decode(&in)
		r.takeSteps(in.Steps)
	case "logs":
		var in api.Logs
		decode(&in)
		next, err := r.takeLines(in.First, in.Lines)
		return api.LogsTaken{Control: r.control, Next: next}, err
	case "result":
		var in api.Handover
		decode(&in)
		r.results = append(r.results, in.Result)
		r.takeSteps(in.Steps)
		out := api.HandedOver{Control: r.control}
		if in.Tail != nil && !r.strips {
			lines, err := in.Tail.Unpack()
			if err != nil {
				r.t.Errorf("the last lines: %v", err)
			}
			out.Next, _ = r.takeLines(in.Tail.First, lines)
		}
		return out, nil
	case "states":
		return api.WhoseStates{Control: r.control}, nil
	case "artifacts":
		var in api.NewArtifacts
		decode(&in)
		return r.takeArtifacts(in)
	case "input":
		r.asks = req.Header.Get(api.HeaderInput)
		left, ok := r.inputs[r.asks]
		if !ok {
			return nil, workflow.Refuse(workflow.ErrInvalid, "", "there is no input %q", r.asks)
		}
		return api.Input{
			Control: r.control, Download: &api.Transfer{Method: http.MethodGet, URL: "/v1/jobs/" + r.spec.Workflow + "/bytes"},
			Artifact: api.Artifact{Name: api.OutputsName, Kind: api.ArtifactOutputs, Size: int64(len(left)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(left)))},
		}, nil
	case "bytes":
		if req.Method == http.MethodGet {
			return []byte(cmp.Or(r.arrives, r.inputs[r.asks])), nil
		}
		name := req.Header.Get(api.HeaderArtifact)
		if a := r.announced[name]; int64(len(body)) != a.Size || fmt.Sprintf("%x", sha256.Sum256(body)) != a.SHA256 {
			return nil, workflow.Refuse(workflow.ErrInvalid, "sha256", "%d other bytes came", len(body))
		}
		r.bytes[name] = string(body)
	default:
		return nil, workflow.ErrNotFound
	}
	return r.control, nil
}

func (r *relay) takeArtifacts(in api.NewArtifacts) (out api.ArtifactsTaken, err error) {
	out.Control = r.control
	r.batches = append(r.batches, len(in.Artifacts))
	for _, name := range in.Placed {
		if _, ok := r.bytes[name]; !ok {
			r.t.Errorf("%s is reported as placed", name)
		}
		r.placed = append(r.placed, name)
	}
	for _, a := range in.Artifacts {
		if had, ok := r.announced[a.Name]; ok && had != a {
			return out, workflow.Refuse(workflow.ErrExists, "name", "there is another")
		}
		r.announced[a.Name] = a
		out.Uploads = append(out.Uploads, api.Transfer{Method: http.MethodPut, URL: "/v1/jobs/" + r.spec.Workflow + "/bytes"})
	}
	return out, nil
}

func (r *relay) takeSteps(steps []api.Step) {
	for _, s := range steps {
		switch i := slices.IndexFunc(r.steps, func(have api.Step) bool { return have.Seq == s.Seq }); {
		case i >= 0 && r.steps[i].Status == workflow.StepRunning: // a late report of the beginning does not undo the end
			r.steps[i] = s
		case i < 0:
			r.steps = append(r.steps, s)
		}
	}
}

func (r *relay) takeLines(first int64, lines []api.LogLine) (next int64, err error) {
	end := int64(len(r.lines))
	if first > end {
		return end, &api.LogGapError{Next: end}
	}
	if skip := end - first; skip < int64(len(lines)) {
		r.lines = append(r.lines, lines[skip:]...)
	}
	return int64(len(r.lines)), nil
}

func (r *relay) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// set changes the relay.
func (r *relay) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.change()
}

// wait waits until f is true.
func (r *relay) wait(what string, f func() bool) {
	r.t.Helper()
	for {
		r.mu.Lock()
		ok, changed := f(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-r.t.Context().Done():
			r.t.Fatalf("the test ended before %s", what)
		}
	}
}

func (r *relay) result() api.Result {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.results) != 1 {
		r.t.Fatalf("got %d results, want 1: %+v; log: %s", len(r.results), r.results, r.log())
	}
	return r.results[0]
}

// log returns the text of the log; the caller holds mu.
func (r *relay) log() string {
	var out strings.Builder
	for _, l := range r.lines {
		out.WriteString(l.Text + "\n")
	}
	return out.String()
}

func (r *relay) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log()
}

// asked returns the calls so far. The last heartbeat may still be under way when a run is over.
func (r *relay) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *relay) called(call string) int {
	n := 0
	for _, c := range r.asked() {
		if c == call {
			n++
		}
	}
	return n
}

// known resolves the references that it knows.
type known map[string]string

func (k known) Resolve(_ context.Context, ref string) (redact.String, error) {
	if v, ok := k[ref]; ok {
		return redact.New(v), nil
	}
	return redact.String{}, errors.New("no such secret")
}
