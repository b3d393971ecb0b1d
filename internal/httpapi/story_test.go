package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The real client drives one workflow from its workspace to its result against the real server,
// over a socket and in memory alike: every route is called once with what it takes.
func TestAPI_OneWorkflowFromSubmitToResult(t *testing.T) {
	t.Run("socket", func(t *testing.T) {
		w := newWorld(t)
		server := httptest.NewServer(w.handler)
		defer server.Close()
		story(t, w, server.URL, server.Client())
	})
	t.Run("in memory", func(t *testing.T) {
		w := newWorld(t)
		story(t, w, "http://control.test", &http.Client{Transport: client.InMemory(w.handler)})
	})
}

func story(t *testing.T, w *world, url string, hc *http.Client) {
	ctx := t.Context()
	as := func(token string) *client.Client {
		c, err := client.New(client.Config{URL: url, HTTPClient: hc, Token: func() redact.String { return redact.New(token) }})
		must(t, err)
		return c
	}
	person := as(w.admin)

	health, err := person.Health(ctx)
	must(t, err)
	equal(t, "health", health.Status, "ok")

	name, all := "prod", true
	made, err := person.CreatePool(ctx, api.PoolSettings{Name: &name, AssignedToAll: &all})
	must(t, err)
	stack := as(made.Token)
	who, err := stack.Whoami(ctx)
	must(t, err)
	equal(t, "pool of the token", who.Pool, "prod")

	in := api.Workspace{
		Name: "net", RunSettings: api.RunSettings{
			Engine: api.EngineCommand,
			Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true"},
		},
		Pool: "prod",
	}
	stored, outcome, err := person.PutWorkspace(ctx, in)
	must(t, err)
	equal(t, "outcome of the first", outcome, api.OutcomeCreated)
	stored.Description = "the network"
	stored, outcome, err = person.PutWorkspace(ctx, stored)
	must(t, err)
	equal(t, "outcome of the second", outcome, api.OutcomeChanged)
	stored.Environment = map[string]string{} // as a file may say it
	stored, outcome, err = person.PutWorkspace(ctx, stored)
	must(t, err)
	equal(t, "outcome of the third", outcome, api.OutcomeUnchanged)
	equal(t, "version after the third", stored.Version, 2)
	in.Version = 1
	_, _, err = person.PutWorkspace(ctx, in)
	is(t, "put over a newer version", err, workflow.ErrConflict)
	_, err = person.Workspace(ctx, "net")
	must(t, err)
	slot, err := person.Slot(ctx, "net")
	must(t, err)
	equal(t, "why it cannot be unlocked", slot.Refusal, "workspace net is free: no run holds it")
	_, err = person.Unlock(ctx, "net", api.Unlock{Workflow: "wf_1"})
	is(t, "unlock of a free workspace", err, workflow.ErrConflict)
	workspaces, err := person.Workspaces(ctx, "", 10)
	must(t, err)
	equal(t, "workspaces", len(workspaces.Items), 1)

	first, err := person.Submit(ctx, api.Submit{Workspace: "net", Operation: workflow.Preview})
	must(t, err)
	claimed, err := stack.Claim(ctx, api.Claim{Instance: "i1", Max: 5, WaitSeconds: 1})
	must(t, err)
	if len(claimed.Jobs) != 1 || claimed.Jobs[0].ID != first.ID {
		t.Fatalf("claimed %+v, want workflow %s", claimed, first.ID)
	}
	job := claimed.Jobs[0]
	must(t, stack.Queued(ctx, job.ID, api.Attempt{Attempt: job.Attempt}))
	must(t, stack.Release(ctx, job.ID, api.Release{Attempt: job.Attempt, Text: "no room"}))
	claimed, err = stack.Claim(ctx, api.Claim{Instance: "i1", Max: 5, WaitSeconds: 1})
	must(t, err)
	if len(claimed.Jobs) != 1 {
		t.Fatalf("claimed after release: %+v", claimed)
	}
	job = claimed.Jobs[0]
	held, err := stack.Held(ctx, "i1", "")
	must(t, err)
	equal(t, "held", len(held.Items), 1)

	run := api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: "task-1", Boot: strings.Repeat("0a", 16)}
	runnerOf := func(run api.Run, token string) *client.Runner {
		r, err := client.NewRunner(client.RunnerConfig{URL: url, HTTPClient: hc, Credential: redact.New(token), Run: run})
		must(t, err)
		return r
	}
	runner := runnerOf(run, job.Token)
	_, err = runner.Start(ctx)
	is(t, "start before the launch was reported", err, workflow.ErrNotReported)
	equal(t, "that is transient", client.Transient(err), true)
	must(t, stack.Launch(ctx, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: "task-1"}))
	_, err = runner.Spec(ctx)
	is(t, "spec before start", err, workflow.ErrNotStarted)
	control, err := runner.Start(ctx)
	must(t, err)
	if control.HeartbeatSeconds <= 0 || control.RemainingSeconds <= 0 {
		t.Errorf("control %+v", control)
	}
	other := run
	other.Boot = strings.Repeat("0b", 16)
	_, err = runnerOf(other, job.Token).Start(ctx)
	is(t, "start of another boot", err, workflow.ErrAlreadyStarted)
	equal(t, "that ends it", client.RunOver(err), true)
	_, err = runnerOf(run, "dfj_"+strings.Repeat("x", 43)).Start(ctx)
	is(t, "start with another token", err, workflow.ErrUnauthenticated)

	spec, err := runner.Spec(ctx)
	must(t, err)
	if control.Spec == nil || control.Spec.Commands["preview"] != "true" {
		t.Errorf("the spec with the start is %+v", control.Spec)
	}
	equal(t, "command of the spec", spec.Commands["preview"], "true")
	_, err = runner.Heartbeat(ctx, api.Heartbeat{Step: "preview"})
	must(t, err)
	_, err = runner.Steps(ctx, api.Steps{Steps: []api.Step{{Seq: 1, Name: "preview", Status: workflow.StepRunning, StartedAt: time.Now()}}})
	must(t, err)
	line := api.LogLine{At: time.Now(), Step: "preview", Text: "hello"}
	taken, err := runner.Logs(ctx, api.Logs{First: 0, Lines: []api.LogLine{line}})
	must(t, err)
	equal(t, "next line", taken.Next, 1)
	_, err = runner.Logs(ctx, api.Logs{First: 7, Lines: []api.LogLine{line}})
	var gap *api.LogGapError
	if !errors.As(err, &gap) || gap.Next != 1 {
		t.Errorf("logs after a gap: got %v, want a gap from line 1", err)
	}
	page, err := person.Logs(ctx, first.ID, 0, 0, 100, time.Second)
	must(t, err)
	if len(page.Lines) != 1 || page.Lines[0].Text != "hello" {
		t.Errorf("log %+v", page)
	}
	states, err := stack.States(ctx, api.StatesQuery{IDs: []string{job.ID}})
	must(t, err)
	equal(t, "state", states.Jobs[0].State, workflow.Running)

	cancelled, err := person.Cancel(ctx, first.ID, "wrong branch")
	must(t, err)
	equal(t, "cancel flag", cancelled.CancelRequested, true)
	beat, err := runner.Heartbeat(ctx, api.Heartbeat{})
	must(t, err)
	equal(t, "cancel in the heartbeat's answer", beat.Cancel, true)
	over, err := runner.HandOver(ctx, api.Handover{
		Result: api.Result{Outcome: workflow.Cancelled, Reason: workflow.ReasonCancelled, LogEnd: 2},
		Steps:  []api.Step{{Seq: 1, Name: "preview", Status: workflow.StepFailed, StartedAt: time.Now()}},
		Tail:   tailOf(t, 1, line),
	})
	must(t, err)
	equal(t, "next line after the result", over.Next, 2)
	must(t, stack.Lost(ctx, job.ID, api.Lost{Attempt: job.Attempt, Task: "task-1", ExitCode: new(int)}))

	shown, err := person.Workflow(ctx, first.ID)
	must(t, err)
	equal(t, "end", shown.State, workflow.Cancelled)
	again, err := person.Retry(ctx, first.ID, "right branch")
	must(t, err)
	equal(t, "retry of", again.RetryOf, first.ID)
	timeline, err := person.Timeline(ctx, first.ID, "", 3)
	must(t, err)
	equal(t, "first page of the timeline", len(timeline.Items), 3)
	why, err := person.Why(ctx, again.ID)
	must(t, err)
	if last := why.Timeline[len(why.Timeline)-1]; why.Summary == "" || !strings.HasSuffix(last.Text, "as a retry of "+first.ID+": right branch") {
		t.Errorf("why says nothing: %+v", why)
	}
	listed, err := person.Workflows(ctx, client.Filter{Workspace: "net", State: "cancelled"})
	must(t, err)
	equal(t, "cancelled workflows", len(listed.Items), 1)
	_, err = person.Cancel(ctx, again.ID, "")
	must(t, err)

	token, err := person.CreateToken(ctx, api.NewToken{Name: "ci", Role: api.RoleViewer})
	must(t, err)
	viewer := as(token.Value)
	_, err = viewer.Submit(ctx, api.Submit{Workspace: "net", Operation: workflow.Preview})
	is(t, "submit of a viewer", err, workflow.ErrForbidden)
	tokens, err := person.Tokens(ctx, "", 0)
	must(t, err)
	equal(t, "tokens", len(tokens.Items), 2)
	must(t, person.RevokeToken(ctx, token.Token.ID))
	_, err = viewer.Whoami(ctx)
	is(t, "call with a revoked token", err, workflow.ErrRevoked)
	audit, err := person.Audit(ctx, api.AuditFilter{Limit: 200})
	must(t, err)
	if len(audit.Items) == 0 {
		t.Error("nothing was audited")
	}

	must(t, person.DeleteWorkspace(ctx, "net"))
	text := "for production"
	pool, err := person.UpdatePool(ctx, "prod", api.PoolSettings{Description: &text})
	must(t, err)
	equal(t, "description", pool.Description, text)
	pool, err = person.Pool(ctx, "prod")
	must(t, err)
	equal(t, "pool", pool.Name, "prod")
	pools, err := person.Pools(ctx, "", 0)
	must(t, err)
	equal(t, "pools", len(pools.Items), 2)
	_, err = person.Runners(ctx, "prod")
	must(t, err)
	rotated, err := person.RotatePoolToken(ctx, "prod", api.RotateToken{})
	must(t, err)
	_, err = stack.Whoami(ctx)
	is(t, "call with the rotated token", err, workflow.ErrRevoked)
	_, err = as(rotated.Token).Whoami(ctx)
	must(t, err)
	must(t, person.DeletePool(ctx, "prod"))
	_, err = person.Pool(ctx, "prod")
	is(t, "deleted pool", err, workflow.ErrNotFound)
}

// Requests share nothing but the rules.
func TestAPI_ServesManyAtOnce(t *testing.T) {
	w := newWorld(t)
	c := w.client(t, w.admin)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			name := fmt.Sprintf("net%d", i)
			in := api.Workspace{Name: name, RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true"}}}
			stored, _, err := c.PutWorkspace(t.Context(), in)
			if err != nil || stored.Name != name {
				t.Errorf("put %s: got %q, %v", name, stored.Name, err)
			}
			if _, err := c.Workspace(t.Context(), "other"+name); !errors.Is(err, workflow.ErrNotFound) || !strings.Contains(err.Error(), name) {
				t.Errorf("show of a missing workspace: %v", err)
			}
		})
	}
	group.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// The read deadline is for a request's body. While a long poll waits there must be none on the
// connection: net/http reads ahead to see the client leave, and a deadline that passes there
// cancels the request.
func TestServer_NoReadDeadlineCutsALongPoll(t *testing.T) {
	w := newWorld(t)
	var seen []bool // per read of the store: whether the connection had a deadline
	conns := &watched{}
	w.store.onGet = func() { seen = append(seen, conns.deadline.Load()) }
	url := serve(t, w.handler, func(l net.Listener) net.Listener { conns.Listener = l; return conns })
	c, err := client.New(client.Config{URL: url, RetryCount: -1, Token: func() redact.String { return redact.New(w.pool) }})
	must(t, err)
	_, err = c.Claim(t.Context(), api.Claim{Instance: "i1", Max: 1})
	must(t, err)
	if len(seen) < 2 || !seen[0] || seen[len(seen)-1] {
		t.Errorf("deadline on the connection, per read of the store: %v; want one while the token is checked and none when the claim looks for work", seen)
	}
}

// watched knows whether the one connection of a test has a read deadline.
type watched struct {
	net.Listener
	deadline atomic.Bool
}

func (w *watched) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	return watchedConn{c, w}, err
}

type watchedConn struct {
	net.Conn
	of *watched
}

func (c watchedConn) SetReadDeadline(at time.Time) error {
	c.of.deadline.Store(!at.IsZero())
	return c.Conn.SetReadDeadline(at)
}

// A client that leaves ends its long poll at once.
func TestServer_LongPollEndsWithItsClient(t *testing.T) {
	w := newWorld(t)
	began, ended := make(chan struct{}), make(chan struct{})
	url := serve(t, http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		close(began)
		w.handler.ServeHTTP(answer, r)
		close(ended)
	}), func(l net.Listener) net.Listener { return l })
	c, err := client.New(client.Config{URL: url, RetryCount: -1, Token: func() redact.String { return redact.New(w.pool) }})
	must(t, err)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-began
		leave()
	}()
	start := time.Now()
	_, err = c.Claim(ctx, api.Claim{Instance: "i1", Max: 1, WaitSeconds: 20})
	is(t, "claim of a client that left", err, context.Canceled)
	<-ended
	if took := time.Since(start); took >= 20*time.Second {
		t.Errorf("the handler went on for %s", took)
	}
}

// serve runs the server that cmd runs, on a free port.
func serve(t *testing.T, h http.Handler, wrap func(net.Listener) net.Listener) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	server := httpapi.Server(h)
	done := make(chan error, 1)
	go func() { done <- server.Serve(wrap(listener)) }()
	t.Cleanup(func() {
		_ = server.Close()
		is(t, "serve", <-done, http.ErrServerClosed)
	})
	return "http://" + listener.Addr().String()
}

// tailOf is the end of a log.
func tailOf(t *testing.T, first int64, line api.LogLine) *api.LogTail {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(line.Append(nil))
	must(t, errors.Join(err, z.Close()))
	return &api.LogTail{First: first, Lines: b.Bytes()}
}
