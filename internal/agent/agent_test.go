package agent_test

import (
	"context"
	"crypto/tls"
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
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/redact"
	store "github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ports"
)

var _ agent.Upstream = (*client.Client)(nil)

const controlURL = "http://control.internal"

// newHTTPClient is an HTTP client that leaves nothing behind.
func newHTTPClient() (*http.Client, func()) {
	tr := &http.Transport{}
	return &http.Client{Transport: tr}, tr.CloseIdleConnections
}

// site is a real control plane behind its real API and client, with an agent and a theatre.
type site struct {
	t       *testing.T
	plane   *controlplane.Plane
	admin   controlplane.Principal
	client  *client.Client
	handler http.Handler
	theatre *theatre
	queue   *memory.Queue
	ring    *ticket.Keyring
	log     *safeLog
}

type safeLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safeLog) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeLog) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newSite(t *testing.T, q memory.Config) *site {
	t.Helper()
	s := &site{t: t, theatre: newTheatre(), log: &safeLog{}}
	s.plane = controlplane.New(store.New(), controlplane.Config{DefaultState: api.StateDirectory})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	adminToken, err := s.plane.Bootstrap(t.Context(), "default")
	must(err)
	s.admin, err = s.plane.Authenticate(t.Context(), adminToken)
	must(err)
	poolToken, err := s.plane.EnsurePoolToken(t.Context(), "default", "default", "agent")
	must(err)
	s.handler = httpapi.New(s.plane, httpapi.Config{})
	s.client, err = client.New(client.Config{
		URL: controlURL, Token: func() redact.String { return redact.New(poolToken) },
		HTTPClient: &http.Client{Transport: client.InMemory(s.handler)},
	})
	must(err)
	s.queue, err = memory.New(q)
	must(err)
	s.ring, err = ticket.NewKeyring(ticket.GenerateKey())
	must(err)
	_, err = s.plane.Pass(t.Context())
	must(err)
	t.Cleanup(func() {
		s.theatre.end()
		if t.Failed() {
			t.Logf("log:\n%s", s.log)
		}
		for _, secret := range []string{poolToken, adminToken, "dfj_", "eyJ"} {
			if strings.Contains(s.log.String(), secret) {
				t.Errorf("the log shows a secret: %s", secret)
			}
		}
	})
	return s
}

func (s *site) workspace(name string) {
	s.t.Helper()
	_, _, err := s.plane.PutWorkspace(s.t.Context(), s.admin, api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
			Commands: map[string]string{"preview": "true", "update": "true", "insights_scan": "true"},
		},
		MaxActive: 1000,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) submit(workspace string, op workflow.Operation) string {
	s.t.Helper()
	wf, err := s.plane.Submit(s.t.Context(), s.admin, "", api.Submit{Workspace: workspace, Operation: op})
	if err != nil {
		s.t.Fatal(err)
	}
	return wf.ID
}

func (s *site) get(id string) api.Workflow {
	s.t.Helper()
	wf, err := s.plane.Workflow(s.t.Context(), s.admin, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return wf
}

// until waits for something that other goroutines bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(4 * time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within minutes: %s", what)
		}
	}
}

func (s *site) awaitState(id string, want workflow.State) api.Workflow {
	s.t.Helper()
	until(s.t, "workflow "+id+" is "+string(want), func() bool { return s.get(id).State == want })
	return s.get(id)
}

func (s *site) config() agent.Config {
	return agent.Config{
		Upstream: s.client, ControlURL: controlURL, Transport: client.InMemory(s.handler),
		Launcher: s.theatre, CloseLauncher: s.theatre.close, Queue: s.queue, Keyring: s.ring, Instance: "agent-1", Concurrency: 8,
		StatusLoopInterval: 100 * time.Millisecond, ShutdownGrace: 4 * time.Minute,
		Log: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// run starts an agent. What it returns ends it and gives its error.
func (s *site) run(cfg agent.Config) (a *agent.Agent, end func() error) {
	s.t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	var once sync.Once
	var result error
	end = func() error {
		once.Do(func() { cancel(); result = <-ended })
		return result
	}
	s.t.Cleanup(func() { a.Abort(); _ = end() })
	return a, end
}

// The arrow: each message is delivered twice, each task boots twice, answers of launches are lost, ends
// are reported twice. Each engine runs exactly once, and every workflow succeeds.
func TestArrow_ExactlyOneStart(t *testing.T) {
	s := newSite(t, memory.Config{Duplicate: true})
	s.theatre.double = true
	s.theatre.lose = func(n int) bool { return n%5 == 2 }
	var ids []string
	for i := range 15 {
		name := fmt.Sprintf("ws-%d", i)
		s.workspace(name)
		for range 2 {
			ids = append(ids, s.submit(name, workflow.Update), s.submit(name, workflow.Preview))
		}
	}
	_, end := s.run(s.config())
	for _, id := range ids {
		if wf := s.awaitState(id, workflow.Succeeded); wf.Attempt != 1 {
			t.Errorf("workflow %s took %d attempts", id, wf.Attempt)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	for _, id := range ids {
		if n := s.theatre.effects[id]; n != 1 {
			t.Errorf("the engine of %s ran %d times", id, n)
		}
	}
	if s.theatre.most > 8 {
		t.Errorf("%d tasks at once with a concurrency of 8", s.theatre.most)
	}
}

// R7: a cancellation reaches a running engine at once, through the held heartbeat.
func TestRun_CancelReachesTheRunnerAtOnce(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	s.theatre.engine = func(ctx context.Context, a *actor) error {
		select {
		case <-a.beats:
			return errCancelled
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	id := s.submit("net", workflow.Update)
	_, end := s.run(s.config())
	s.awaitState(id, workflow.Running)
	before := s.theatre.quiet(id)
	if _, err := s.plane.Cancel(t.Context(), s.admin, id, api.WithReason{}); err != nil {
		t.Fatal(err)
	}
	s.awaitState(id, workflow.Cancelled)
	if after := s.theatre.quiet(id); after != before {
		t.Errorf("the cancellation waited for %d heartbeats to end", after-before)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// L6, L7: a task that dies without a result ends its run at once, with what the launcher says.
func TestRun_ReportsATaskThatDied(t *testing.T) {
	for _, watched := range []bool{true, false} {
		s := newSite(t, memory.Config{})
		s.workspace("net")
		s.theatre.engine = func(context.Context, *actor) error { return errCrash }
		id := s.submit("net", workflow.Update)
		cfg := s.config()
		if !watched {
			cfg.Launcher = struct{ launcher.Launcher }{s.theatre} // only the sweeps see it
		}
		_, end := s.run(cfg)
		if wf := s.awaitState(id, workflow.Failed); wf.Reason != workflow.ReasonTaskStopped || wf.SlotHeld {
			t.Errorf("watched %t: reason %s, slot held %t", watched, wf.Reason, wf.SlotHeld)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// The end of a task makes room for the next job, without waiting for a sweep.
func TestRun_ThePlaceOfAnEndedTaskIsFree(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	cfg := s.config()
	cfg.Concurrency, cfg.StatusLoopInterval = 1, time.Hour
	var ids []string
	for range 5 {
		ids = append(ids, s.submit("net", workflow.Preview))
	}
	_, end := s.run(cfg)
	for _, id := range ids {
		s.awaitState(id, workflow.Succeeded)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if s.theatre.most != 1 {
		t.Errorf("%d tasks at once, want 1", s.theatre.most)
	}
}

// Told to end, the agent interrupts what runs, and the results still get through.
func TestRun_ItsEndTakesTheResultsOfWhatRan(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.theatre.engine = func(ctx context.Context, a *actor) error {
		select {
		case <-a.stop:
			return errors.New("told to stop")
		case <-ctx.Done():
			return errCrash
		}
	}
	var ids []string
	for i := range 4 {
		name := fmt.Sprintf("ws-%d", i)
		s.workspace(name)
		ids = append(ids, s.submit(name, workflow.Update))
	}
	_, end := s.run(s.config())
	for _, id := range ids {
		s.awaitState(id, workflow.Running)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	for _, id := range ids {
		if wf := s.get(id); wf.State != workflow.Failed || wf.Reason != workflow.ReasonInterrupted || wf.SlotHeld {
			t.Errorf("%s: %s (%s), slot held %t; want its own result", id, wf.State, wf.Reason, wf.SlotHeld)
		}
	}
}

// Told to end, the agent gives back what it claimed and has not launched.
func TestRun_ItsEndReleasesWhatWasNotLaunched(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.theatre.refuse = func(launcher.Request) error {
		return &launcher.Refusal{Reason: workflow.ReasonCapacity, Text: "no room"}
	}
	s.workspace("net")
	id := s.submit("net", workflow.Preview)
	_, end := s.run(s.config())
	until(t, "the refusal is in the timeline", func() bool {
		page, err := s.plane.Timeline(t.Context(), s.admin, id, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Items {
			if strings.Contains(e.Text, "no room") {
				return true
			}
		}
		return false
	})
	if err := end(); err != nil {
		t.Error(err)
	}
	if wf := s.get(id); wf.State != workflow.Pending {
		t.Errorf("the workflow is %s, want it pending again", wf.State)
	}
}

// An agent that died between claim and launch: its successor gives the claims back at once.
func TestRun_ReleasesTheClaimsOfItsPredecessor(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	id := s.submit("net", workflow.Preview)
	if out, err := s.client.Claim(t.Context(), api.Claim{Instance: "agent-1", Max: 5}); err != nil || len(out.Jobs) != 1 {
		t.Fatalf("claimed %d, %v", len(out.Jobs), err)
	}
	_, end := s.run(s.config())
	if wf := s.awaitState(id, workflow.Succeeded); wf.Attempt != 2 {
		t.Errorf("attempt %d, want 2", wf.Attempt)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A task that outlived an agent is counted by its successor, and its result is taken.
func TestRun_AdoptsTheTasksOfItsPredecessor(t *testing.T) {
	s := newSite(t, memory.Config{})
	for _, name := range []string{"one", "two"} {
		s.workspace(name)
	}
	cfg := s.config()
	cfg.Concurrency = 1
	cfg.RelayListen = freePort(t)
	release := make(chan struct{})
	s.theatre.engine = func(ctx context.Context, _ *actor) error {
		select {
		case <-release:
		case <-ctx.Done():
			return errCrash
		}
		return nil
	}
	first := s.submit("one", workflow.Update)
	cfg.ShutdownGrace = time.Millisecond // as good as killed: the task does not hear of it
	a, end := s.run(cfg)
	s.awaitState(first, workflow.Running)
	a.Abort()
	if err := end(); err == nil {
		t.Error("the end left a task behind and said nothing")
	}
	second := s.submit("two", workflow.Update)
	cfg.ShutdownGrace = 0
	const full = "everything that may run at once"
	said := strings.Count(s.log.String(), full)
	_, end = s.run(cfg)
	until(t, "the successor polls", func() bool { return strings.Count(s.log.String(), full) > said })
	if wf := s.get(second); wf.State != workflow.Pending {
		t.Errorf("the second is %s although the first holds the only place", wf.State)
	}
	close(release)
	for _, id := range []string{first, second} {
		s.awaitState(id, workflow.Succeeded)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if s.theatre.most != 1 {
		t.Errorf("%d tasks at once", s.theatre.most)
	}
}

// An agent that died between a launch and the report of it left a task that may not start: only a reported
// one does. Its successor says so, and does not launch another.
func TestRun_ReportsTheTaskOfAClaimThatItAdopts(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	id := s.submit("net", workflow.Update)
	cfg := s.config()
	cfg.RelayListen = freePort(t)
	out, err := s.client.Claim(t.Context(), api.Claim{Instance: cfg.Instance, Max: 5})
	if err != nil || len(out.Jobs) != 1 {
		t.Fatalf("claimed %d, %v", len(out.Jobs), err)
	}
	job := out.Jobs[0]
	sealed, err := s.ring.Seal(ticket.Claims{Job: job.ID, Attempt: job.Attempt, Token: redact.New(job.Token), Expires: time.Now().Add(time.Hour), Group: "default/net", Organization: "default", WorkspaceID: job.Needs.WorkspaceID})
	if err != nil {
		t.Fatal(err)
	}
	task, err := s.theatre.Launch(t.Context(), launcher.Request{
		Needs: job.Needs, Workflow: job.ID, Placement: "default", Ticket: sealed, Relay: "http://" + cfg.RelayListen,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, end := s.run(cfg)
	wf := s.awaitState(id, workflow.Succeeded)
	if wf.Attempt != job.Attempt || wf.Task != task.Ref {
		t.Errorf("attempt %d ran as task %q, want attempt %d as %q", wf.Attempt, wf.Task, job.Attempt, task.Ref)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if s.theatre.calls != 1 {
		t.Errorf("%d launches, want the one of before", s.theatre.calls)
	}
}

func TestRun_ClosesTheLauncherWhileTheRelayStillServes(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	s.theatre.engine = func(ctx context.Context, a *actor) error {
		<-a.stop
		return errors.New("told to stop")
	}
	id := s.submit("net", workflow.Update)
	cfg := s.config()
	closed := 0
	cfg.CloseLauncher = func(ctx context.Context) error {
		closed++
		return s.theatre.close(ctx)
	}
	_, end := s.run(cfg)
	s.awaitState(id, workflow.Running)
	if err := end(); err != nil {
		t.Error(err)
	}
	if wf := s.get(id); wf.Reason != workflow.ReasonInterrupted || closed != 1 {
		t.Errorf("reason %s, closed %d times", wf.Reason, closed)
	}
}

func TestRun_AbortEndsTheWaitForATaskThatDoesNotEnd(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	s.theatre.engine = func(ctx context.Context, _ *actor) error { <-ctx.Done(); return errCrash }
	id := s.submit("net", workflow.Update)
	cfg := s.config()
	cfg.ShutdownGrace = time.Hour
	a, end := s.run(cfg)
	s.awaitState(id, workflow.Running)
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	until(t, "the task was asked to stop", func() bool {
		tasks, _ := s.theatre.List(t.Context())
		return tasks[0].Phase == launcher.Stopping
	})
	a.Abort()
	if err := <-ended; err == nil { // long before the hour is over
		t.Error("got nil; want an error that says what is left")
	}
}

// A drain lets end what runs, takes nothing more, and says for what it waits. What was claimed and not launched is given back
// at once.
func TestRun_ADrainWaitsForWhatRunsAndTakesNothingMore(t *testing.T) {
	for name, watched := range map[string]bool{"a launcher that tells of ends": true, "one that is asked": false} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, memory.Config{})
			release := map[string]chan struct{}{}
			var ids []string
			for _, workspace := range []string{"one", "two"} {
				s.workspace(workspace)
				id := s.submit(workspace, workflow.Update)
				release[id], ids = make(chan struct{}), append(ids, id)
			}
			s.theatre.engine = func(ctx context.Context, a *actor) error {
				select {
				case <-release[a.task.Workflow]:
				case <-a.stop:
					return errors.New("told to stop")
				case <-ctx.Done():
					return errCrash
				}
				return nil
			}
			s.theatre.refuse = func(r launcher.Request) error {
				if r.Workspace != "held" {
					return nil
				}
				return &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "not now"}
			}
			cfg := s.config()
			if !watched {
				cfg.Launcher = struct{ launcher.Launcher }{s.theatre}
			}
			waiting := make(chan []agent.Run, 10)
			cfg.Waiting = func(runs []agent.Run) { waiting <- runs }
			a, err := agent.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- a.Run(context.WithoutCancel(t.Context())) }()
			for _, id := range ids {
				s.awaitState(id, workflow.Running)
			}
			s.workspace("held")
			held := s.submit("held", workflow.Update)
			s.awaitState(held, workflow.Claimed)

			a.Drain()
			a.Drain()
			for i, left := range [][]string{ids, ids[1:]} {
				runs := <-waiting
				var got []string
				for _, r := range runs {
					got = append(got, r.Workflow)
					if r.Workspace != s.get(r.Workflow).Workspace || r.Operation != workflow.Update || r.Since.IsZero() {
						t.Errorf("it waits for %+v", r)
					}
				}
				if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(left))) {
					t.Errorf("it waits for %v, want %v", got, left)
				}
				if wf := s.get(held); wf.State != workflow.Pending {
					t.Errorf("what was not launched is %s, want it given back", wf.State)
				}
				late := s.submit("held", workflow.Preview)
				close(release[ids[i]])
				s.awaitState(ids[i], workflow.Succeeded)
				if wf := s.get(late); wf.State != workflow.Pending {
					t.Errorf("what was submitted during the drain is %s", wf.State)
				}
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRun_TheEndOfItsContextCutsADrainShort(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	s.theatre.engine = func(_ context.Context, a *actor) error { <-a.stop; return errors.New("told to stop") }
	id := s.submit("net", workflow.Update)
	cfg := s.config()
	waiting := make(chan []agent.Run, 10)
	cfg.Waiting = func(runs []agent.Run) { waiting <- runs }
	a, end := s.run(cfg)
	s.awaitState(id, workflow.Running)
	a.Drain()
	<-waiting
	if err := end(); err != nil {
		t.Error(err)
	}
	if wf := s.get(id); wf.Reason != workflow.ReasonInterrupted {
		t.Errorf("reason %s, want what was interrupted to say so itself", wf.Reason)
	}
}

// A control plane that is away when the agent starts, and comes later.
func TestRun_WaitsForTheControlPlane(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	id := s.submit("net", workflow.Preview)
	gate := &outage{Upstream: s.client, fails: 2}
	cfg := s.config()
	cfg.Upstream = gate
	_, end := s.run(cfg)
	s.awaitState(id, workflow.Succeeded)
	if err := end(); err != nil {
		t.Error(err)
	}
}

// outage fails the first questions.
type outage struct {
	agent.Upstream
	mu    sync.Mutex
	fails int
}

func (o *outage) Held(ctx context.Context, instance, cursor string) (api.Page[api.JobState], error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fails > 0 {
		o.fails--
		return api.Page[api.JobState]{}, workflow.ErrBusy
	}
	return o.Upstream.Held(ctx, instance, cursor)
}

// What listens for runners serves runners only.
func TestRelay_ServesNothingElse(t *testing.T) {
	s := newSite(t, memory.Config{})
	cfg := s.config()
	cfg.RelayListen = freePort(t)
	_, end := s.run(cfg)
	hc, done := newHTTPClient()
	defer done()
	var got *http.Response
	until(t, "the relay listens", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+cfg.RelayListen+"/v1/pools", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err = hc.Do(req)
		return err == nil
	})
	text, _ := io.ReadAll(got.Body)
	_ = got.Body.Close()
	if got.StatusCode != http.StatusNotFound || !strings.Contains(string(text), "not_found") {
		t.Errorf("%d %s", got.StatusCode, text)
	}
	done()
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestRun_SaysThatItsPortIsTaken(t *testing.T) {
	s := newSite(t, memory.Config{})
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	cfg := s.config()
	cfg.RelayListen = strings.TrimPrefix(taken.URL, "http://")
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil {
		t.Error("want an error")
	}
}

func TestNew_NamesEverythingThatIsMissing(t *testing.T) {
	_, err := agent.New(agent.Config{})
	if !errors.Is(err, workflow.ErrInvalid) {
		t.Fatal(err)
	}
	for _, what := range []string{"control plane", "launcher", "queue", "keyring", "instance"} {
		if !strings.Contains(err.Error(), what) {
			t.Errorf("%q is not named in %q", what, err)
		}
	}
}

// freePort is an address of this machine that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	address, err := ports.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// L9: a relay with a certificate speaks TLS, and only that.
func TestAgent_RelaySpeaksTLS(t *testing.T) {
	s := newSite(t, memory.Config{})
	relay := make(chan string, 1)
	s.theatre.refuse = func(r launcher.Request) error {
		select {
		case relay <- r.Relay:
		default:
		}
		return &launcher.Refusal{Reason: workflow.ReasonCapacity, Text: "nothing is launched here"}
	}
	lender := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate of this machine
	t.Cleanup(lender.Close)
	cfg := s.config()
	cfg.RelayTLS = &tls.Config{Certificates: lender.TLS.Certificates, MinVersion: tls.VersionTLS12}
	s.workspace("net")
	s.submit("net", workflow.Update)
	_, end := s.run(cfg)
	at := <-relay
	if !strings.HasPrefix(at, "https://127.0.0.1:") {
		t.Errorf("tasks are sent to %s", at)
	}
	status := func(hc *http.Client, url string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/jobs/wf/heartbeat", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := status(lender.Client(), at); got != http.StatusUnauthorized {
		t.Errorf("over TLS: %d, want that a ticket is missing", got)
	}
	plain, done := newHTTPClient()
	defer done()
	if got := status(plain, strings.Replace(at, "https", "http", 1)); got != http.StatusBadRequest {
		t.Errorf("without TLS: %d", got)
	}
	lender.Client().CloseIdleConnections()
	if err := end(); err != nil {
		t.Error(err)
	}
}
