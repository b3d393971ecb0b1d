package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var _ relay.Opener = (*ticket.Keyring)(nil)

const token = "dfj_planted-job-token"

// upstream is a control plane behind a transport. Jobs that are not set are running.
type upstream struct {
	mu      sync.Mutex
	calls   []seen
	answer  func(seen) (int, string) // nil: 200 and a control
	header  http.Header
	err     error
	jobs    map[string]api.JobState
	queries []api.StatesQuery
	statErr error
	changed chan struct{}
	log     safeBuilder
}

func (u *upstream) questions() []api.StatesQuery {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.queries)
}

func (u *upstream) made() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.calls)
}

type seen struct {
	Method, URL, Auth, Body string
	Header                  http.Header
}

type safeBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safeBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newUpstream() *upstream {
	return &upstream{jobs: map[string]api.JobState{}, changed: make(chan struct{}), header: http.Header{"Content-Type": {"application/json"}}}
}

func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(req.Body)
	_ = req.Body.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	s := seen{Method: req.Method, URL: req.URL.String(), Auth: req.Header.Get("Authorization"), Body: string(body), Header: req.Header.Clone()}
	u.calls = append(u.calls, s)
	if u.err != nil {
		return nil, u.err
	}
	status, text := 200, `{"cancel":false,"remaining_seconds":60,"heartbeat_seconds":30,"from_the_future":{"a":[1]}}`
	if u.answer != nil {
		status, text = u.answer(s)
	}
	return &http.Response{StatusCode: status, Header: u.header.Clone(), Body: io.NopCloser(strings.NewReader(text)), Request: req}, nil
}

// set changes a job and wakes those who wait for it.
func (u *upstream) set(s api.JobState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.jobs[s.ID] = s
	close(u.changed)
	u.changed = make(chan struct{})
}

func (u *upstream) States(ctx context.Context, in api.StatesQuery) (api.States, error) {
	u.mu.Lock()
	u.queries = append(u.queries, in)
	u.mu.Unlock()
	end := time.After(time.Duration(in.WaitSeconds) * time.Second)
	for {
		u.mu.Lock()
		if u.statErr != nil {
			defer u.mu.Unlock()
			return api.States{}, u.statErr
		}
		var out api.States
		news := false
		for _, id := range in.IDs {
			s, ok := u.jobs[id]
			if !ok {
				s = api.JobState{ID: id, Known: true, State: workflow.Running, Attempt: 1, Active: true, Started: true}
			}
			news = news || s.Cancel || !s.Active
			out.Jobs = append(out.Jobs, s)
		}
		changed := u.changed
		u.mu.Unlock()
		if news || in.WaitSeconds == 0 {
			return out, nil
		}
		select {
		case <-changed:
		case <-end:
			return out, nil
		case <-ctx.Done():
			return api.States{}, ctx.Err()
		}
	}
}

var ring = func() *ticket.Keyring {
	k, err := ticket.NewKeyring(ticket.GenerateKey())
	if err != nil {
		panic(err)
	}
	return k
}()

func seal(t *testing.T, job string, attempt int, expires time.Time) string {
	t.Helper()
	s, err := ring.Seal(ticket.Claims{
		Job: job, Attempt: attempt, Token: redact.New(token), Expires: expires, Group: "default/" + job, Organization: "default", WorkspaceID: "ws_1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (u *upstream) relay(t *testing.T, cfg relay.Config) *relay.Relay {
	t.Helper()
	cfg.URL, cfg.Transport = "https://cp.example.com/base/", u
	cfg.Log = slog.New(slog.NewTextHandler(&u.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, err := relay.New(ring, u, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// call makes a runner's call of attempt 1 of a job.
func call(t *testing.T, h http.Handler, name, job, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	method := http.MethodPost
	if name == "spec" {
		method = http.MethodGet
	}
	req := httptest.NewRequestWithContext(t.Context(), method, "/v1/jobs/"+job+"/"+name, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+seal(t, job, 1, time.Now().Add(24*time.Hour)))
	req.Header.Set(api.HeaderAttempt, "1")
	req.Header.Set(api.HeaderTask, "task-1")
	req.Header.Set(api.HeaderBoot, "0123")
	req.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(req)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func code(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Detail == "" {
		t.Errorf("%d %s is not a problem: %v", w.Code, w.Body, err)
	}
	return p.Code
}

func control(t *testing.T, w *httptest.ResponseRecorder) api.Control {
	t.Helper()
	var c api.Control
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || w.Code != 200 {
		t.Errorf("%d %s: %v", w.Code, w.Body, err)
	}
	return c
}

func TestForward_SendsOnlyTheJobToken(t *testing.T) {
	u := newUpstream()
	w := call(t, u.relay(t, relay.Config{}), "steps", "wf_1", `{"steps":[]}`, func(r *http.Request) {
		r.Header.Set("Connection", "X-Hop")
		r.Header.Set("X-Hop", "1")
		r.Header.Set("X-Forwarded-For", "10.0.0.1")
		r.Header.Set("Cookie", "a=b")
		r.Header.Set(api.HeaderRequestID, "request-7")
		r.Header.Add(api.HeaderTask, "task-of-another")
	})
	if w.Code != 200 || len(u.calls) != 1 {
		t.Fatalf("%d %s after %d calls", w.Code, w.Body, len(u.calls))
	}
	got := u.calls[0]
	want := seen{Method: "POST", URL: "https://cp.example.com/base/v1/jobs/wf_1/steps", Auth: "Bearer " + token, Body: `{"steps":[]}`, Header: http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"},
		"Dayfly-Attempt": {"1"}, "Dayfly-Task": {"task-1"}, "Dayfly-Boot": {"0123"}, "X-Request-Id": {"request-7"},
	}}
	if id := w.Header().Get(api.HeaderRequestID); id != "request-7" {
		t.Errorf("the answer names the request %q", id)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("forwarded (-want +got):\n%s", d)
	}
}

func TestForward_EveryCallOfARunner(t *testing.T) {
	u := newUpstream()
	r := u.relay(t, relay.Config{})
	for _, name := range []string{"start", "spec", "heartbeat", "steps", "logs", "result"} {
		if w := call(t, r, name, "wf_1", ""); w.Code != 200 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if len(u.calls) != 6 {
		t.Errorf("%d calls forwarded, want 6", len(u.calls))
	}
}

func TestLines_AreToldOnceTheControlPlaneHasThem(t *testing.T) {
	u := newUpstream()
	var told []string
	r := u.relay(t, relay.Config{Lines: func(job string, lines []api.LogLine) {
		for _, l := range lines {
			told = append(told, job+" "+l.Text)
		}
	}})
	u.err = errors.New("away")
	const body = `{"first":1,"lines":[{"at":"2026-11-01T00:00:00Z","text":"one"},{"at":"2026-11-01T00:00:00Z","text":"two"}]}`
	call(t, r, "logs", "wf_1", body)
	u.err = nil
	call(t, r, "logs", "wf_1", body)
	call(t, r, "steps", "wf_1", body)
	if diff := cmp.Diff([]string{"wf_1 one", "wf_1 two"}, told); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestForward_KeepsUnknownFieldsOfAnAnswer(t *testing.T) {
	w := call(t, newUpstream().relay(t, relay.Config{}), "logs", "wf_1", "{}")
	want := `{"cancel":false,"from_the_future":{"a":[1]},"heartbeat_seconds":30,"hold_seconds":0,"remaining_seconds":60}`
	if got := w.Body.String(); got != want {
		t.Errorf("answer %s, want %s", got, want)
	}
}

func TestForward_PassesTheSpecOnByteForByte(t *testing.T) {
	u := newUpstream()
	u.answer = func(seen) (int, string) { return 200, `{ "workflow": "wf_1" , "variables": {"n": 1.0} }` }
	if got := call(t, u.relay(t, relay.Config{}), "spec", "wf_1", "").Body.String(); got != `{ "workflow": "wf_1" , "variables": {"n": 1.0} }` {
		t.Errorf("spec %s", got)
	}
}

func TestForward_PassesTheControlPlanesRefusalOn(t *testing.T) {
	for _, err := range []error{workflow.ErrOver, workflow.ErrAlreadyStarted, workflow.ErrNotReported, workflow.ErrRevoked, &api.LogGapError{Next: 7}} {
		u := newUpstream()
		want := api.ProblemFor(err)
		text, _ := json.Marshal(want)
		u.answer = func(seen) (int, string) { return want.Status, string(text) }
		u.header.Set("Retry-After", "3")
		w := call(t, u.relay(t, relay.Config{}), "result", "wf_1", "{}")
		if w.Code != want.Status || w.Body.String() != string(text) || w.Header().Get("Retry-After") != "3" {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
}

// A gateway's words must not end a run: a 403, a 401 or a 410 of its own are an outage.
func TestForward_AGatewaysAnswerIsAnOutage(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
	}{
		"403 of a firewall":         {403, `{"message":"Forbidden"}`},
		"401 of a proxy":            {401, `<html>`},
		"404 of a router":           {404, `{"code":"NotFound"}`},
		"410 of a strange place":    {410, ``},
		"502":                       {502, `bad gateway`},
		"503 without a code":        {503, ``},
		"redirect":                  {302, ``},
		"200 of a captive portal":   {200, `<html>welcome</html>`},
		"200 that is not an object": {200, `[]`},
		"200 that is null":          {200, `null`},
	} {
		u := newUpstream()
		u.answer = func(seen) (int, string) { return tc.status, tc.body }
		w := call(t, u.relay(t, relay.Config{}), "heartbeat", "wf_1", "{}")
		if got := code(t, w); w.Code != 503 || got != "busy" || w.Header().Get("Retry-After") != "5" {
			t.Errorf("%s: %d %s, retry after %q; want 503 busy", name, w.Code, got, w.Header().Get("Retry-After"))
		}
	}
}

func TestForward_AnUnreachableControlPlaneIsBusy(t *testing.T) {
	u := newUpstream()
	u.err = errors.New("dial tcp: connection refused " + token)
	w := call(t, u.relay(t, relay.Config{}), "result", "wf_1", "{}")
	if got := code(t, w); w.Code != 503 || got != "busy" || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "dial") {
		t.Errorf("%d %s: want 503 busy without the cause", w.Code, w.Body)
	}
}

func TestForward_AThrottlingGatewayIsObeyed(t *testing.T) {
	u := newUpstream()
	u.answer = func(seen) (int, string) { return 429, "slow" }
	u.header.Set("Retry-After", "17")
	w := call(t, u.relay(t, relay.Config{}), "logs", "wf_1", "{}")
	if got := code(t, w); w.Code != 429 || got != "too_many_requests" || w.Header().Get("Retry-After") != "17" {
		t.Errorf("%d %s, retry after %q", w.Code, got, w.Header().Get("Retry-After"))
	}
}

// Bad input: each is refused with its code, and nothing reaches the control plane.
func TestAdmit_RefusesWhatDoesNotFit(t *testing.T) {
	u := newUpstream()
	r := u.relay(t, relay.Config{})
	with := func(ticket string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+ticket) }
	}
	path := func(p string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = p } }
	later := time.Now().Add(time.Hour)
	good := seal(t, "wf_1", 1, later)
	for name, tc := range map[string]struct {
		change func(*http.Request)
		body   string
		status int
		code   string
	}{
		"no ticket":              {func(r *http.Request) { r.Header.Del("Authorization") }, "", 401, "unauthenticated"},
		"basic auth":             {func(r *http.Request) { r.SetBasicAuth("a", good) }, "", 401, "unauthenticated"},
		"empty ticket":           {with(""), "", 401, "unauthenticated"},
		"a bare token":           {with(token), "", 401, "unauthenticated"},
		"broken ticket":          {with(good[:len(good)-4] + "AAAA"), "", 401, "unauthenticated"},
		"expired ticket":         {with(seal(t, "wf_1", 1, time.Now().Add(-time.Second))), "", 401, "unauthenticated"},
		"ticket of another job":  {with(seal(t, "wf_2", 1, later)), "", 401, "unauthenticated"},
		"ticket of attempt 2":    {with(seal(t, "wf_1", 2, later)), "", 401, "unauthenticated"},
		"no attempt":             {func(r *http.Request) { r.Header.Del(api.HeaderAttempt) }, "", 401, "unauthenticated"},
		"attempt in other words": {func(r *http.Request) { r.Header.Set(api.HeaderAttempt, "01") }, "", 401, "unauthenticated"},
		"oversize body":          {nil, strings.Repeat("x", relay.MaxBody+1), 413, "too_large"},
		"wrong method":           {func(r *http.Request) { r.Method = "DELETE" }, "", 422, "invalid"},
		"a call of the pool":     {path("/v1/jobs/wf_1/lost"), "", 404, "not_found"},
		"a call of people":       {path("/v1/workflows/wf_1/cancel"), "", 404, "not_found"},
		"the document":           {path("/openapi.json"), "", 404, "not_found"},
		"traversal":              {path("/v1/jobs/../heartbeat"), "", 404, "not_found"},
		"traversal, longer":      {path("/v1/jobs/wf_1/../../claims"), "", 404, "not_found"},
		"escaped slash":          {func(r *http.Request) { r.URL.RawPath = "/v1/jobs/wf%5f1/heartbeat" }, "", 404, "not_found"},
		"query":                  {func(r *http.Request) { r.URL.RawQuery = "a=b" }, "", 404, "not_found"},
		"trailing slash":         {path("/v1/jobs/wf_1/heartbeat/"), "", 404, "not_found"},
	} {
		change := tc.change
		if change == nil {
			change = func(*http.Request) {}
		}
		w := call(t, r, "heartbeat", "wf_1", tc.body, change)
		if got := code(t, w); w.Code != tc.status || got != tc.code {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, got, tc.status, tc.code)
		}
	}
	if len(u.calls) != 0 {
		t.Errorf("%d calls reached the control plane", len(u.calls))
	}
}

func TestLog_ShowsNeitherTicketNorToken(t *testing.T) {
	u := newUpstream()
	r := u.relay(t, relay.Config{})
	call(t, r, "logs", "wf_1", "{}")
	call(t, r, "logs", "wf_1", "{}", func(r *http.Request) { r.Header.Set("Authorization", "Bearer broken-ticket") })
	u.err = errors.New("away")
	call(t, r, "logs", "wf_1", "{}")
	log := u.log.String()
	if strings.Count(log, "\n") < 3 || strings.Contains(log, token) || strings.Contains(log, "broken-ticket") || strings.Contains(log, "eyJ") {
		t.Errorf("log:\n%s", log)
	}
}

func TestLastHeard_IsTheLastCallThatTheControlPlaneTook(t *testing.T) {
	u := newUpstream()
	now := time.Now()
	r := u.relay(t, relay.Config{Now: func() time.Time { return now }})
	if _, ok := r.LastHeartbeat("wf_1", 1, "task-1"); ok {
		t.Error("heard of it before it spoke")
	}
	call(t, r, "heartbeat", "wf_1", "{}")
	first := now
	now = now.Add(time.Minute)
	u.err = errors.New("away")
	call(t, r, "heartbeat", "wf_1", "{}")
	if at, ok := r.LastHeartbeat("wf_1", 1, "task-1"); !ok || !at.Equal(first) {
		t.Errorf("heard at %s, %t; want %s", at, ok, first)
	}
	for _, other := range []struct {
		job     string
		attempt int
		task    string
	}{{"wf_2", 1, "task-1"}, {"wf_1", 2, "task-1"}, {"wf_1", 1, "task-2"}} {
		if _, ok := r.LastHeartbeat(other.job, other.attempt, other.task); ok {
			t.Errorf("%+v was not heard of", other)
		}
	}
	u.err = nil
	now = now.Add(2 * time.Hour)
	call(t, r, "heartbeat", "wf_2", "{}")
	if _, ok := r.LastHeartbeat("wf_1", 1, "task-1"); ok {
		t.Error("a call of two hours ago is remembered")
	}
}

// held runs a relay inside a bubble.
func held(t *testing.T, u *upstream, cfg relay.Config, story func(t *testing.T, r *relay.Relay, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		u.changed = make(chan struct{}) // of this bubble
		r := u.relay(t, cfg)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		story(t, r, func() { cancel(); synctest.Wait() })
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// beat sends a heartbeat in the background and says when and how it was answered.
type beat struct {
	after  time.Duration
	answer *httptest.ResponseRecorder
}

func beats(t *testing.T, r *relay.Relay, job string) <-chan beat {
	out := make(chan beat, 1)
	begun := time.Now()
	go func() {
		w := call(t, r, "heartbeat", job, "{}")
		out <- beat{time.Since(begun), w}
	}()
	return out
}

// R7: a heartbeat counts at once, and its answer waits.
func TestHold_ForwardsFirstAndAnswersAfterTheHold(t *testing.T) {
	u := newUpstream()
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		answer := beats(t, r, "wf_1")
		synctest.Wait()
		if len(u.made()) != 1 {
			t.Errorf("%d calls forwarded before any time passed, want 1", len(u.calls))
		}
		got := <-answer
		if c := control(t, got.answer); got.after != 20*time.Second || c.Cancel || c.HoldSeconds != 20 {
			t.Errorf("answered after %s with %+v", got.after, c)
		}
		if len(u.made()) != 1 {
			t.Errorf("%d calls forwarded, want 1", len(u.calls))
		}
	})
}

func TestHold_IsAnnouncedInEveryAnswerWithAControl(t *testing.T) {
	u := newUpstream()
	held(t, u, relay.Config{Hold: 5 * time.Second}, func(t *testing.T, r *relay.Relay, _ func()) {
		for _, name := range []string{"start", "heartbeat", "steps", "logs", "result"} {
			if c := control(t, call(t, r, name, "wf_1", "{}")); c.HoldSeconds != 5 || c.HeartbeatSeconds != 5 {
				t.Errorf("%s: hold %g and next heartbeat after %g, want 5 and 5", name, c.HoldSeconds, c.HeartbeatSeconds)
			}
		}
	})
}

// R7: a cancellation reaches the runner at once and not with its next heartbeat.
func TestHold_ACancellationAnswersAtOnce(t *testing.T) {
	u := newUpstream()
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		answer := beats(t, r, "wf_1")
		<-time.After(7 * time.Second)
		u.set(api.JobState{ID: "wf_1", Known: true, State: workflow.Running, Attempt: 1, Active: true, Started: true, Cancel: true})
		got := <-answer
		if c := control(t, got.answer); got.after != 7*time.Second || !c.Cancel || c.RemainingSeconds != 60 {
			t.Errorf("answered after %s with %+v", got.after, c)
		}
	})
}

func TestHold_NotWhenTheAnswerSaysCancelAlready(t *testing.T) {
	u := newUpstream()
	u.answer = func(seen) (int, string) { return 200, `{"cancel":true}` }
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		if got := <-beats(t, r, "wf_1"); got.after != 0 {
			t.Errorf("held for %s", got.after)
		}
	})
}

func TestHold_NotWhenRefused(t *testing.T) {
	u := newUpstream()
	u.err = errors.New("away")
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		if got := <-beats(t, r, "wf_1"); got.after != 0 || got.answer.Code != 503 {
			t.Errorf("held for %s, then %d", got.after, got.answer.Code)
		}
	})
}

// The end of a run is said by the control plane, which knows what it means for this boot.
func TestHold_AnEndIsAskedOfTheControlPlane(t *testing.T) {
	for name, tc := range map[string]struct {
		job    api.JobState
		within time.Duration
	}{
		"over":    {api.JobState{ID: "wf_1", Known: true, State: workflow.Failed, Attempt: 1}, 4 * time.Second},
		"unknown": {api.JobState{ID: "wf_1"}, 4 * time.Second},
		// Its end was missed; an active job is not news, so only the next question shows it.
		"another attempt": {api.JobState{ID: "wf_1", Known: true, State: workflow.Running, Attempt: 2, Active: true}, 15 * time.Second},
	} {
		u := newUpstream()
		gone, _ := json.Marshal(api.ProblemFor(workflow.ErrOver))
		u.answer = func(seen) (int, string) {
			if len(u.calls) > 1 {
				return 410, string(gone)
			}
			return 200, `{"cancel":false}`
		}
		held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
			answer := beats(t, r, "wf_1")
			<-time.After(3 * time.Second)
			u.set(tc.job)
			if got := <-answer; got.after > tc.within || code(t, got.answer) != "run_over" {
				t.Errorf("%s: answered after %s: %d %s", name, got.after, got.answer.Code, got.answer.Body)
			}
		})
	}
}

// A run that was given up for lost, but holds its slot, goes on: nobody hurries it, and nobody asks
// without end about it.
func TestHold_ALostHolderIsHeldLikeAnyOther(t *testing.T) {
	u := newUpstream()
	u.set(api.JobState{ID: "wf_1", Known: true, State: workflow.Failed, Attempt: 1, Active: true, Started: true})
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		if got := <-beats(t, r, "wf_1"); got.after != 20*time.Second || got.answer.Code != 200 {
			t.Errorf("answered after %s: %d", got.after, got.answer.Code)
		}
		if n := len(u.questions()); n > 4 {
			t.Errorf("asked %d times in 20 s", n)
		}
	})
}

func TestHold_ManyHeartbeatsAreOneQuestion(t *testing.T) {
	u := newUpstream()
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		var answers []<-chan beat
		for i := range 100 {
			answers = append(answers, beats(t, r, fmt.Sprintf("wf_%d", i)))
		}
		<-time.After(5 * time.Second)
		u.set(api.JobState{ID: "wf_42", Known: true, State: workflow.Running, Attempt: 1, Active: true, Cancel: true})
		for i, a := range answers {
			got := <-a
			want := 20 * time.Second
			if i == 42 {
				want = 5 * time.Second
			}
			if got.after != want {
				t.Errorf("wf_%d answered after %s, want %s", i, got.after, want)
			}
		}
		if n := len(u.questions()); n > 6 {
			t.Errorf("%d questions in 20 s for 100 jobs", n)
		}
	})
}

func TestHold_MoreThanOneQuestionHoldsAreAskedInTurn(t *testing.T) {
	u := newUpstream()
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		var answers []<-chan beat
		for i := range 250 {
			answers = append(answers, beats(t, r, fmt.Sprintf("wf_%03d", i)))
		}
		<-time.After(5 * time.Second)
		u.set(api.JobState{ID: "wf_249", Known: true, State: workflow.Running, Attempt: 1, Active: true, Cancel: true})
		if got := <-answers[249]; got.after > 6*time.Second {
			t.Errorf("the last job was told after %s", got.after-5*time.Second)
		}
		for _, q := range u.questions() {
			if len(q.IDs) > 100 {
				t.Fatalf("asked for %d jobs at once", len(q.IDs))
			}
		}
		for _, a := range answers[:249] {
			<-a
		}
	})
}

// Who joins while a question is out is asked for within a second, and a crowd does not mean a
// question each.
func TestHold_WhoJoinsLaterIsWatchedToo(t *testing.T) {
	u := newUpstream()
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		var answers []<-chan beat
		for i := range 50 {
			answers = append(answers, beats(t, r, fmt.Sprintf("wf_%d", i)))
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(1100 * time.Millisecond)
		u.set(api.JobState{ID: "wf_49", Known: true, State: workflow.Running, Attempt: 1, Active: true, Cancel: true})
		if got := <-answers[49]; got.after > 3*time.Second {
			t.Errorf("the last to join was told after %s", got.after)
		}
		if n := len(u.questions()); n > 10 {
			t.Errorf("%d questions in 6 s", n)
		}
		for _, a := range answers[:49] {
			<-a
		}
	})
}

func TestHold_GoesOnWhileTheControlPlaneCannotBeAsked(t *testing.T) {
	u := newUpstream()
	u.statErr = errors.New("away")
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		if got := <-beats(t, r, "wf_1"); got.after != 20*time.Second || got.answer.Code != 200 {
			t.Errorf("answered after %s: %d", got.after, got.answer.Code)
		}
		if n := len(u.questions()); n > 8 {
			t.Errorf("%d questions to a control plane that is away", n)
		}
	})
}

func TestHold_EndsWithTheRelay(t *testing.T) {
	u := newUpstream()
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, stop func()) {
		answer := beats(t, r, "wf_1")
		<-time.After(2 * time.Second)
		stop()
		got := <-answer
		if c := control(t, got.answer); got.after != 2*time.Second || c.Cancel || c.HoldSeconds != 0 {
			t.Errorf("answered after %s with %+v", got.after, c)
		}
		if got := <-beats(t, r, "wf_1"); got.after != 0 {
			t.Errorf("held for %s after the end", got.after)
		}
	})
}

func TestHold_EndsWhenTheRunnerLeaves(t *testing.T) {
	u := newUpstream()
	held(t, u, relay.Config{}, func(t *testing.T, r *relay.Relay, _ func()) {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan time.Duration, 1)
		begun := time.Now()
		go func() {
			call(t, r, "heartbeat", "wf_1", "{}", func(r *http.Request) { *r = *r.WithContext(ctx) })
			done <- time.Since(begun)
		}()
		<-time.After(4 * time.Second)
		leave()
		if took := <-done; took != 4*time.Second {
			t.Errorf("held for %s", took)
		}
	})
}

func TestNew_RefusesAnAddressThatIsNone(t *testing.T) {
	for _, url := range []string{"", "cp.example.com", "ftp://x", "http://", "https://u:p@cp", "https://cp?x=1", "://"} {
		if _, err := relay.New(ring, newUpstream(), relay.Config{URL: url}); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	for _, p := range []string{"/v1/jobs/wf_1/start", "/v1/jobs/wf_1/artifacts", "/v1/jobs/wf_1/bytes", "/v1/jobs/wf_1/bytes/files/a", "/v1/jobs/wf_1/input/", "/v1/jobs/../start", "/v1/jobs//spec", "/v1/jobs/a/b/logs", "/v1/claims", ""} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		job, name, ok := relay.ParsePath(path)
		if !ok {
			return
		}
		if "/v1/jobs/"+job+"/"+name != path || strings.ContainsAny(job, "/.%\\? ") || bytes.IndexByte([]byte(path), 0) >= 0 {
			t.Errorf("%q read as job %q, call %q", path, job, name)
		}
	})
}

// C5: a job's own way to the relay serves no other job, whatever ticket is shown.
func TestFor_ServesItsAttemptOnly(t *testing.T) {
	u := newUpstream()
	h := u.relay(t, relay.Config{Hold: -1}).For("wf-1", 1)
	if w := call(t, h, "start", "wf-1", "{}"); w.Code != http.StatusOK {
		t.Errorf("its own job: got %d %s", w.Code, w.Body)
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"another job with its ticket": call(t, h, "start", "wf-2", "{}"),
		"another attempt": call(t, h, "start", "wf-1", "{}", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+seal(t, "wf-1", 2, time.Now().Add(time.Hour)))
			r.Header.Set(api.HeaderAttempt, "2")
		}),
		"no ticket": call(t, h, "start", "wf-1", "{}", func(r *http.Request) { r.Header.Del("Authorization") }),
	} {
		if w.Code != http.StatusUnauthorized || code(t, w) != "unauthenticated" {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
	if n := len(u.made()); n != 1 {
		t.Errorf("%d calls reached the control plane, want 1", n)
	}
}
