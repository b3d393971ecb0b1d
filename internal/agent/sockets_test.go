package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// newSocketClient is newHTTPClient by way of a socket.
func newSocketClient(socket string) (*http.Client, func()) {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dir, err := os.Open(filepath.Dir(socket)) // whose path may be longer than an address; a container's is short
		if err != nil {
			return nil, err
		}
		defer func() { _ = dir.Close() }()
		return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)))
	}}
	return &http.Client{Transport: tr}, tr.CloseIdleConnections
}

// relayOf finds the socket of a task. What a runner finds in its container is its directory.
func (s *site) relayOf(id string) (path string) {
	s.theatre.mu.Lock()
	defer s.theatre.mu.Unlock()
	for _, a := range s.theatre.tasks {
		if a.request.Workflow == id {
			path = strings.TrimPrefix(a.request.Relay, "unix://")
		}
	}
	return path
}

// status calls the relay by a socket without a ticket that fits.
func status(t *testing.T, socket, job string) int {
	t.Helper()
	hc, done := newSocketClient(socket)
	defer done()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://relay/v1/jobs/"+job+"/heartbeat", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Dayfly-Attempt", "1")
	req.Header.Set("Authorization", "Bearer made-up")
	resp, err := hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// hold makes every engine wait until release is called.
func (s *site) hold() (release func()) {
	free := make(chan struct{})
	s.theatre.engine = func(ctx context.Context, _ *actor) error {
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return func() { close(free) }
}

// C5: each job has a way to the relay of its own, which nobody else gets at, and which goes with it.
func TestSockets_EachJobHasItsOwn(t *testing.T) {
	s := newSite(t, memory.Config{})
	release := s.hold()
	cfg := s.config()
	cfg.RelaySockets = filepath.Join(t.TempDir(), strings.Repeat("long", 20), "relay") // beyond what an address takes
	var ids []string
	for i := range 3 {
		name := fmt.Sprintf("ws-%d", i)
		s.workspace(name)
		ids = append(ids, s.submit(name, workflow.Update))
	}
	// Left by an agent that was killed, of a job that is over.
	stale := filepath.Join(cfg.RelaySockets, "wf-old-1")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	_, end := s.run(cfg)
	paths := map[string]bool{}
	for _, id := range ids {
		s.awaitState(id, workflow.Running)
		path := s.relayOf(id)
		paths[filepath.Dir(path)] = true
		if info, err := os.Stat(filepath.Dir(filepath.Dir(path))); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory of all sockets has mode %v, %v; want 0700", info.Mode(), err)
		}
	}
	if len(paths) != len(ids) {
		t.Errorf("%d jobs share directories %v", len(ids), paths)
	}
	for job, want := range map[string]int{ids[0]: http.StatusUnauthorized, ids[1]: http.StatusUnauthorized} {
		if got := status(t, s.relayOf(ids[0]), job); got != want {
			t.Errorf("job %s by the socket of %s: got %d, want %d", job, ids[0], got, want)
		}
	}
	release()
	for _, id := range ids {
		s.awaitState(id, workflow.Succeeded)
	}
	until(t, "no socket is left", func() bool {
		left, err := os.ReadDir(cfg.RelaySockets)
		return err == nil && len(left) == 0
	})
	if err := end(); err != nil {
		t.Error(err)
	}
}

// R8: a job that opens connections to its relay without end takes no more than its part of the agent's descriptors, and
// the log says so. Other jobs are served.
func TestSockets_LetInSoManyConnectionsOfAJob(t *testing.T) {
	s := newSite(t, memory.Config{})
	release := s.hold()
	cfg := s.config()
	cfg.RelaySockets = filepath.Join(t.TempDir(), "relay")
	var ids []string
	for _, name := range []string{"one", "two"} {
		s.workspace(name)
		ids = append(ids, s.submit(name, workflow.Update))
	}
	_, end := s.run(cfg)
	for _, id := range ids {
		s.awaitState(id, workflow.Running)
	}
	var open []net.Conn
	ask := func(c net.Conn) (answered bool) {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := bufio.NewReader(c).ReadByte()
		return err == nil
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", s.relayOf(ids[0]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: relay\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// The task of this test has a connection of its own, or none.
	for len(open) < agent.MaxConnections && !strings.Contains(s.log.String(), "no more connections") {
		c := dial()
		if !ask(c) {
			t.Fatalf("connection %d was not answered", len(open)+1)
		}
		open = append(open, c)
	}
	for range 3 * agent.MaxConnections {
		open = append(open, dial())
	}
	last := open[len(open)-1]
	_ = last.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection beyond the bound: %v, want no answer", err)
	}
	if text := s.log.String(); strings.Count(text, "no more connections") != 1 || !strings.Contains(text, ids[0]) {
		t.Errorf("the log does not say it once, with the job: %s", text)
	}
	if got := status(t, s.relayOf(ids[1]), ids[1]); got != http.StatusUnauthorized {
		t.Errorf("another job's relay answers %d", got)
	}
	for _, c := range open[:len(open)-1] {
		_ = c.Close()
	}
	if !ask(last) {
		t.Error("the last connection was not let in when the others had closed")
	}
	release()
	for _, id := range ids {
		s.awaitState(id, workflow.Succeeded)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A launch may take longer than the time between two looks at the tasks, in which its own is not yet.
func TestSockets_StayOpenDuringALaunch(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	cfg := s.config()
	cfg.RelaySockets = filepath.Join(t.TempDir(), "relay")
	cfg.StatusLoopInterval = time.Millisecond
	looks := make(chan struct{})
	cfg.Launcher = slow{s.theatre, looks}
	s.theatre.refuse = func(launcher.Request) error {
		for range 20 { // looks at the tasks, all during this launch
			<-looks
		}
		return nil
	}
	id := s.submit("net", workflow.Update)
	_, end := s.run(cfg)
	if wf := s.awaitState(id, workflow.Succeeded); wf.Attempt != 1 {
		t.Errorf("it took %d attempts", wf.Attempt)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// slow is a launcher in whose lists a task appears only when its launch is over.
type slow struct {
	*theatre
	looks chan struct{}
}

// Launch implements launcher.Launcher.
func (l slow) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	if err := l.refuse(r); err != nil {
		return launcher.Task{}, err
	}
	l.mu.Lock()
	l.theatre.refuse = nil
	l.mu.Unlock()
	return l.theatre.Launch(ctx, r)
}

// List implements launcher.Launcher.
func (l slow) List(ctx context.Context) ([]launcher.Task, error) {
	select {
	case l.looks <- struct{}{}:
	default:
	}
	return l.theatre.List(ctx)
}

// O2: a task that outlives its agent finds the next one by the same directory.
func TestSockets_OutliveTheAgent(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	hold, running := make(chan struct{}), make(chan struct{})
	s.theatre.engine = func(ctx context.Context, _ *actor) error {
		close(running)
		select {
		case <-hold:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cfg := s.config()
	cfg.RelaySockets = filepath.Join(t.TempDir(), "relay")
	cfg.ShutdownGrace = time.Millisecond
	cfg.Launcher = deaf{s.theatre} // its tasks go on, as after a kill
	id := s.submit("net", workflow.Update)
	_, end := s.run(cfg)
	<-running
	path := s.relayOf(id)
	if err := end(); err == nil {
		t.Error("a task went on, and nothing was said of it")
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Fatal("the socket is served by an agent that has ended")
	}
	cfg.Launcher, cfg.ShutdownGrace = s.theatre, s.config().ShutdownGrace // its result is taken shortly before it has ended
	_, end = s.run(cfg)
	close(hold)
	if wf := s.awaitState(id, workflow.Succeeded); wf.Attempt != 1 || s.theatre.effects[id] != 1 {
		t.Errorf("got attempt %d, engine ran %d times; want one of each", wf.Attempt, s.theatre.effects[id])
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// deaf is a launcher whose tasks do not hear that they are to stop.
type deaf struct{ *theatre }

// Stop implements launcher.Launcher.
func (deaf) Stop(context.Context, string, string) error { return nil }

var _ launcher.Watcher = deaf{}

func TestSockets_DirectoryThatCannotBeMadeEndsTheRun(t *testing.T) {
	s := newSite(t, memory.Config{})
	cfg := s.config()
	cfg.RelaySockets = "/proc/none/relay"
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want why it cannot work", err)
	}
}
