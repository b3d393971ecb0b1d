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
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// upArg is what this binary is started with to play a dayfly up.
const upArg = "play-up"

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
	*uptest.World
	clock   *clock // of the control plane; passes are made by hand, with pass
	effects string // a file that every engine may append to; $EFFECTS for command workspaces
	shared  string // a directory that every engine may write to; $SHARED for command workspaces
}

// start opens an `up` in directories of its own and runs it until the test ends. Each change is made
// to what it is made of.
func start(t *testing.T, changes ...func(*embedded.UpConfig)) *world {
	t.Helper()
	w := prepare(t)
	w.open(changes...)
	return w
}

// prepare makes the directories of a world in which nothing runs yet.
func prepare(t *testing.T) *world {
	t.Helper()
	in := uptest.New(t)
	root := filepath.Dir(in.Data)
	w := &world{World: in, clock: &clock{}, shared: filepath.Join(root, "shared"), effects: filepath.Join(root, "effects")}
	if err := errors.Join(
		os.Mkdir(w.shared, 0o777), os.Chmod(w.shared, 0o777),
		os.WriteFile(w.effects, nil, 0o666), os.Chmod(w.effects, 0o666),
	); err != nil {
		t.Fatal(err)
	}
	return w
}

// config is what the world's `up` is made of.
func (w *world) config() embedded.UpConfig {
	w.T.Helper()
	log := uptest.Log(w.T)
	return embedded.UpConfig{
		Server: embedded.ServerConfig{Data: w.Data, Listen: "127.0.0.1:0", Now: w.clock.now, PassEvery: 24 * time.Hour, Log: log},
		Agent:  embedded.AgentConfig{Settings: settings(w.Source), Runner: []string{runnerBinary(w.T)}, ShutdownGrace: 10 * time.Second, Log: log},
	}
}

// open opens `up` on the world's data directory and runs it; also again, after Stop.
func (w *world) open(changes ...func(*embedded.UpConfig)) {
	w.T.Helper()
	w.Open(w.config(), changes...)
}

// settings are those of an agent that waits for nothing for long.
func settings(sources ...string) config.Config {
	s := config.Default()
	s.SourceRoots = sources
	s.PollingInterval, s.JobStatusLoopInterval = time.Second, 500*time.Millisecond
	s.RequestRetryWait, s.RequestRetryMaxWait, s.CircuitBreakerTimeout = 20*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond
	return s
}

// put registers a workspace of commands by operation.
func (w *world) put(name string, commands map[string]string, changes ...func(*api.Workspace)) {
	w.T.Helper()
	shared := func(in *api.Workspace) { in.Environment = map[string]string{"EFFECTS": w.effects, "SHARED": w.shared} }
	w.Put(name, commands, append([]func(*api.Workspace){shared}, changes...)...)
}

// scan submits an insights scan of a workspace and returns its id.
func (w *world) scan(workspace string) string {
	w.T.Helper()
	return w.Submit(api.Submit{Workspace: workspace, Type: workflow.InsightsScan})
}

// wants reports a workflow that ended otherwise.
func (w *world) wants(got api.Workflow, state workflow.State, reason workflow.Reason) {
	w.T.Helper()
	if got.State != state || got.Reason != reason {
		w.T.Errorf("%s of %s: got %s (%s): %s; want %s (%s); timeline:\n%s", got.ID, got.Workspace, got.State, got.Reason, got.Detail, state, reason, w.Timeline(got.ID))
	}
}

// pass makes the control plane do what time alone asks for.
func (w *world) pass() {
	w.T.Helper()
	if _, err := w.Up.Plane().Pass(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}

// minutes lets minutes go by on the control plane's clock, with a call of the pool and a pass after each.
func (w *world) minutes(n int) {
	w.T.Helper()
	plane, ctx := w.Up.Plane(), w.T.Context()
	token, err := plane.EnsurePoolToken(ctx, "default", "default", "minutes")
	if err != nil {
		w.T.Fatal(err)
	}
	pool, err := plane.Authenticate(ctx, token)
	if err != nil {
		w.T.Fatal(err)
	}
	for range n {
		w.clock.advance(time.Minute)
		if _, err := plane.Held(ctx, pool, "", ""); err != nil {
			w.T.Fatal(err)
		}
		w.pass()
	}
}

// lines are those of the file of side effects.
func (w *world) lines() []string {
	w.T.Helper()
	b, err := os.ReadFile(w.effects)
	if err != nil {
		w.T.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// has reports whether a side effect is there.
func (w *world) has(line string) bool {
	w.T.Helper()
	return slices.Contains(w.lines(), line)
}

// runnerPID is the process of a task's runner.
func (w *world) runnerPID(task string) int {
	w.T.Helper()
	files, err := filepath.Glob(filepath.Join(w.Data, embedded.JobsDir, "journal-*"))
	if err != nil {
		w.T.Fatal(err)
	}
	var record struct {
		Ref string `json:"ref"`
		PID int    `json:"pid"`
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			w.T.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			if err := json.Unmarshal(line, &record); err == nil && record.Ref == task && record.PID > 1 {
				return record.PID
			}
		}
	}
	w.T.Fatalf("no record of %s in %v", task, files)
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
