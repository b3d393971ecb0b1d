// Package e2e_test runs the whole product: `up` in this process, reached through the real client over
// a socket, with runners that are real processes. The test binary plays the runner: the launcher
// starts it again.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// upArg is what this binary is started with to play a dayfly up.
const upArg = "play-up"

// patience is how long a test waits for what should come within a second or two: a machine that is
// busy may take longer, and a test that hangs must end.
const patience = 4 * time.Minute

func TestMain(m *testing.M) {
	code := 0
	if played, err := play(os.Args[1:]); played {
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}
	code = m.Run()
	if err := removeBinaries(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// play is another program than a test, if the arguments ask for one.
func play(args []string) (played bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(args) == 4 && args[0] == upArg:
		return true, playUp(ctx, args[1], args[2], args[3], os.Stdout)
	}
	return false, nil
}

// clock is the control plane's clock: the real one, and ahead of it by what a test says.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// world is an `up` that runs, and its administrator.
type world struct {
	t     *testing.T
	up    *embedded.Up
	cl    *client.Client
	clock *clock // of the control plane; passes are made by hand, with pass

	data    string // data directory
	source  string // an empty source for command workspaces, below the source root
	effects string // a file that every engine may append to; $EFFECTS for command workspaces
	shared  string // a directory that every engine may write to; $SHARED for command workspaces

	end   func() // stops up, and says what went wrong
	ended bool
}

// directory makes a directory that users of their own can pass through, as root's engines must.
func directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start opens an `up` in directories of its own and runs it until the test ends. Each change is made
// to what it is made of.
func start(t *testing.T, changes ...func(*embedded.UpConfig)) *world {
	t.Helper()
	w := prepare(t)
	w.open(changes...)
	t.Cleanup(w.stop)
	return w
}

// prepare makes the directories of a world in which nothing runs yet.
func prepare(t *testing.T) *world {
	t.Helper()
	root := directory(t)
	w := &world{
		t: t, clock: &clock{}, data: filepath.Join(root, "data"), source: filepath.Join(root, "source"),
		shared: filepath.Join(root, "shared"), effects: filepath.Join(root, "effects"), ended: true,
	}
	for dir, mode := range map[string]os.FileMode{w.source: 0o755, w.shared: 0o777} {
		if err := errors.Join(os.Mkdir(dir, mode), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(w.effects, nil, 0o666), os.Chmod(w.effects, 0o666)); err != nil {
		t.Fatal(err)
	}
	return w
}

// config is what the world's `up` is made of.
func (w *world) config() embedded.UpConfig {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return embedded.UpConfig{
		Server: embedded.ServerConfig{Data: w.data, Listen: "127.0.0.1:0", Now: w.clock.now, PassEvery: 24 * time.Hour, Log: log},
		Agent:  embedded.AgentConfig{Settings: settings(w.source), Runner: []string{runnerBinary(w.t)}, ShutdownGrace: 10 * time.Second, Log: log},
	}
}

// open opens `up` on the world's data directory and runs it; also again, after stop.
func (w *world) open(changes ...func(*embedded.UpConfig)) {
	w.t.Helper()
	cfg := w.config()
	for _, change := range changes {
		change(&cfg)
	}
	up, err := embedded.OpenUp(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.up, w.ended = up, false
	w.end = running(w.t, "up", up.Run, up.Close)
	w.cl = person(w.t, up.Server)
}

// running runs something until stop is called or the test ends, and closes it then.
func running(t *testing.T, what string, run func(context.Context) error, closing func() error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run %s: %v", what, err)
		}
		if err := closing(); err != nil {
			t.Errorf("close %s: %v", what, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// settings are those of an agent that waits for nothing for long.
func settings(sources ...string) config.Config {
	s := config.Default()
	s.SourceRoots = sources
	s.PollingInterval, s.JobStatusLoopInterval = time.Second, 500*time.Millisecond
	s.RequestRetryWait, s.RequestRetryMaxWait, s.CircuitBreakerTimeout = 20*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond
	return s
}

// person is a client of a server, as its administrator.
func person(t *testing.T, s *embedded.Server) *client.Client {
	t.Helper()
	token, err := s.AdminToken()
	if err != nil {
		t.Fatal(err)
	}
	return personWith(t, s.URL(), token)
}

// personWith is a client with a token.
func personWith(t *testing.T, url, token string) *client.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	cl, err := client.New(client.Config{URL: url, HTTPClient: &http.Client{Transport: transport}, Token: func() redact.String { return redact.New(token) }})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// stop ends the world as SIGTERM does, once. Nothing may go wrong in that, and no process and no file
// of a job may be left.
func (w *world) stop() {
	w.t.Helper()
	if w.ended {
		return
	}
	w.ended = true
	w.end()
	w.leftNothing()
}

// leftNothing reports processes and files of jobs.
func (w *world) leftNothing() {
	w.t.Helper()
	if left := processesOf(w.t, w.data); len(left) > 0 {
		w.t.Errorf("processes are left: %v", left)
	}
	for _, name := range jobDirs(w.t, w.data) {
		w.t.Errorf("the directory of a job is left: %s", name)
	}
}

// jobDirs are the directories of jobs, and what their runners left.
func jobDirs(t *testing.T, data string) (names []string) {
	t.Helper()
	for _, pattern := range []string{"task-*", "spools/*"} {
		found, err := filepath.Glob(filepath.Join(data, embedded.JobsDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// processesOf describes the processes, this one excepted, whose arguments or first environment name a
// path below dir: the runners and engines of a data directory do. Elsewhere than on Linux it finds
// none.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, name := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(filepath.Join("/proc", e.Name(), name)) // gone, or not ours to see
			if err == nil && bytes.Contains(b, []byte(dir+"/")) {
				args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
				found = append(found, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
				break
			}
		}
	}
	return found
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	grows(t, what, 1, func() int {
		if cond() {
			return 1
		}
		return 0
	})
}

// grows waits until count has come to want. It may take as long as it takes, as long as there is more and more.
func grows(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	over := time.NewTimer(patience)
	defer over.Stop()
	again := time.NewTicker(15 * time.Millisecond)
	defer again.Stop()
	for before, n := 0, count(); n < want; n = count() {
		if n > before {
			before = n
			over.Reset(patience)
		}
		select {
		case <-again.C:
		case <-over.C:
			t.Fatalf("waited %s in vain: %s (%d of %d)", patience, what, n, want)
		}
	}
}

// put registers a workspace of commands by operation.
func (w *world) put(name string, commands map[string]string, changes ...func(*api.Workspace)) {
	w.t.Helper()
	in := api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: w.source}, Commands: commands,
			Environment: map[string]string{"EFFECTS": w.effects, "SHARED": w.shared},
		},
	}
	for _, change := range changes {
		change(&in)
	}
	if _, _, err := w.cl.PutWorkspace(w.t.Context(), in); err != nil {
		w.t.Fatal(err)
	}
}

// update submits an update of a workspace and returns its id.
func (w *world) update(workspace string) string {
	w.t.Helper()
	return w.submit(api.Submit{Workspace: workspace, Operation: workflow.Update})
}

// scan submits an insights scan of a workspace and returns its id.
func (w *world) scan(workspace string) string {
	w.t.Helper()
	return w.submit(api.Submit{Workspace: workspace, Type: workflow.InsightsScan})
}

func (w *world) submit(in api.Submit) string {
	w.t.Helper()
	out, err := w.cl.Submit(w.t.Context(), in)
	if err != nil {
		w.t.Fatal(err)
	}
	return out.ID
}

// workflow shows a workflow.
func (w *world) workflow(id string) api.Workflow {
	w.t.Helper()
	out, err := w.cl.Workflow(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// until waits until a workflow is as cond wants it.
func (w *world) until(id, what string, cond func(api.Workflow) bool) (got api.Workflow) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("it is %s, %s: %s; timeline:\n%s", got.State, got.Reason, got.Detail, w.timeline(id))
		}
	}()
	eventually(w.t, what, func() bool {
		got = w.workflow(id)
		return cond(got)
	})
	return got
}

// over waits until a workflow has ended and holds no slot.
func (w *world) over(id string) api.Workflow {
	w.t.Helper()
	return w.until(id, "the end of workflow "+id, func(wf api.Workflow) bool { return wf.State.Terminal() && !wf.SlotHeld })
}

// wants reports a workflow that ended otherwise.
func (w *world) wants(got api.Workflow, state workflow.State, reason workflow.Reason) {
	w.t.Helper()
	if got.State != state || got.Reason != reason {
		w.t.Errorf("%s of %s: got %s (%s): %s; want %s (%s); timeline:\n%s", got.ID, got.Workspace, got.State, got.Reason, got.Detail, state, reason, w.timeline(got.ID))
	}
}

// timeline is what happened to a workflow, as text.
func (w *world) timeline(id string) string {
	page, err := w.cl.Timeline(context.WithoutCancel(w.t.Context()), id, "", 0)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range page.Items {
		_, _ = fmt.Fprintf(&b, "  %s %s: %s\n", e.At.Format("15:04:05.000"), e.Kind, e.Text)
	}
	return b.String()
}

// log is the whole log of an attempt (0: the latest), which has ended.
func (w *world) log(id string, attempt int) string {
	w.t.Helper()
	var b strings.Builder
	for offset := int64(0); ; {
		page, err := w.cl.Logs(w.t.Context(), id, attempt, offset, 0, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, l := range page.Lines {
			b.WriteString(l.Text)
			if !l.More {
				b.WriteString("\n")
			}
		}
		if len(page.Lines) == 0 {
			return b.String()
		}
		offset = page.Next
	}
}

// pass makes the control plane do what time alone asks for.
func (w *world) pass() {
	w.t.Helper()
	if _, err := w.up.Plane().Pass(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// minutes lets minutes go by on the control plane's clock, with a call of the pool and a pass after each.
func (w *world) minutes(n int) {
	w.t.Helper()
	plane, ctx := w.up.Plane(), w.t.Context()
	token, err := plane.EnsurePoolToken(ctx, "default", "default", "minutes")
	if err != nil {
		w.t.Fatal(err)
	}
	pool, err := plane.Authenticate(ctx, token)
	if err != nil {
		w.t.Fatal(err)
	}
	for range n {
		w.clock.advance(time.Minute)
		if _, err := plane.Held(ctx, pool, "", ""); err != nil {
			w.t.Fatal(err)
		}
		w.pass()
	}
}

// lines are those of the file of side effects.
func (w *world) lines() []string {
	w.t.Helper()
	b, err := os.ReadFile(w.effects)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// has reports whether a side effect is there.
func (w *world) has(line string) bool {
	w.t.Helper()
	return slices.Contains(w.lines(), line)
}

// runnerPID is the process of a task's runner.
func (w *world) runnerPID(task string) int {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.data, embedded.JobsDir, "journal-*"))
	if err != nil {
		w.t.Fatal(err)
	}
	var record struct {
		Ref string `json:"ref"`
		PID int    `json:"pid"`
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			if err := json.Unmarshal(line, &record); err == nil && record.Ref == task && record.PID > 1 {
				return record.PID
			}
		}
	}
	w.t.Fatalf("no record of %s in %v", task, files)
	return 0
}

// road is a way to the control plane that can be closed, for all calls or for some.
type road struct {
	http.RoundTripper
	closed atomic.Pointer[func(*http.Request) bool] // nil: open
}

func (r *road) wrap(next http.RoundTripper) http.RoundTripper {
	r.RoundTripper = next
	return r
}

// close fails the calls that which picks, from now on; under way are those that were let through.
func (r *road) close(which func(*http.Request) bool) { r.closed.Store(&which) }
func (r *road) open()                                { r.closed.Store(nil) }

func everyCall(*http.Request) bool { return true }

func (r *road) RoundTrip(req *http.Request) (*http.Response, error) {
	if which := r.closed.Load(); which != nil && (*which)(req) {
		if req.Body != nil {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
		}
		return nil, errors.New("the road is closed")
	}
	return r.RoundTripper.RoundTrip(req)
}
