package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	socketName = "relay.sock"
	// longSocket is the longest socket address that every system takes.
	longSocket = 100
)

// sockets give each job its own way to the relay: a Unix socket in its own directory, which its container mounts
// and which serves this attempt only. The directory survives a restart of the agent, the socket in it is made
// again. A socket lives as long as a task of its attempt.
type sockets struct {
	dir   string
	serve func(job string, attempt int) *http.Server
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	open   map[attempt]*socket
	swept  bool
	closed bool
	wg     sync.WaitGroup
}

type socket struct {
	server *http.Server
	path   string
	since  time.Time
	tasks  map[string]bool // that use it
	begun  int             // launches in progress: their tasks are not in a list yet
}

func newSockets(dir string, serve func(job string, attempt int) *http.Server, now func() time.Time, log *slog.Logger) (*sockets, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for relay sockets: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // only we pass through it: containers mount the directories inside
		return nil, fmt.Errorf("close directory for relay sockets: %w", err)
	}
	return &sockets{dir: dir, serve: serve, log: log, now: now, open: map[attempt]*socket{}}, nil
}

// ensure returns the socket of an attempt, which it opens if it is not open. The lock is held.
func (s *sockets) ensure(ctx context.Context, a attempt) (*socket, error) {
	if have := s.open[a]; have != nil {
		have.since = s.now()
		return have, nil
	}
	if s.closed {
		return nil, errors.New("the agent is stopping")
	}
	dir := filepath.Join(s.dir, name(a))
	if filepath.Dir(dir) != filepath.Clean(s.dir) {
		return nil, fmt.Errorf("job %q has no name for a directory", a.job)
	}
	listener, err := listenIn(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("open relay socket of job %s: %w", a.job, err)
	}
	made := &socket{server: s.serve(a.job, a.n), path: filepath.Join(dir, socketName), since: s.now(), tasks: map[string]bool{}}
	s.open[a] = made
	s.wg.Go(func() {
		if err := made.server.Serve(netutil.LimitListener(listener, MaxConnections)); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("relay socket no longer served", "job_id", a.job, "attempt", a.n, "err", err)
		}
	})
	return made, nil
}

func name(a attempt) string { return a.job + "-" + strconv.Itoa(a.n) }

// listenIn makes the directory of a socket and the socket in it. A process that has the directory may connect; the
// directory around it is closed to all others.
func listenIn(ctx context.Context, dir string) (net.Listener, error) {
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // see above
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // also where the umask took bits away
		return nil, err
	}
	path := filepath.Join(dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	address := path
	if len(path) > longSocket {
		// An address must be short; a path by the directory's descriptor always is.
		d, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		defer func() { _ = d.Close() }()
		address = fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "unix", address)
	if err != nil {
		return nil, err
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // the next agent may have made its own
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // see above
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// ended closes the socket of a task, unless another task of the attempt uses it too.
func (s *sockets) ended(t launcher.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := attempt{t.Workflow, t.Attempt}
	have := s.open[a]
	if have == nil || !have.tasks[t.Ref] {
		return
	}
	if delete(have.tasks, t.Ref); len(have.tasks) == 0 && have.begun == 0 {
		s.shut(a)
	}
}

// begin opens the socket of an attempt for a launch. It stays open until end is called with the task, or with
// "" if there is none, although no task is known to use it.
func (s *sockets) begin(ctx context.Context, a attempt) (path string, end func(task string), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.ensure(ctx, a)
	if err != nil {
		return "", nil, err
	}
	have.begun++
	return have.path, func(task string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		have.begun--
		have.since = s.now()
		if task != "" {
			have.tasks[task] = true
		}
	}, nil
}

// correct opens the sockets of living tasks, as after a restart, and closes those that no task uses.
func (s *sockets) correct(ctx context.Context, tasks []launcher.Task, begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := map[attempt]bool{}
	for _, t := range tasks {
		if t.Phase == launcher.Stopped {
			continue
		}
		a := attempt{t.Workflow, t.Attempt}
		live[a] = true
		if have, err := s.ensure(ctx, a); err == nil {
			have.tasks[t.Ref] = true
		} else if ctx.Err() == nil {
			s.log.Warn("relay socket not opened; trying again", "job_id", a.job, "attempt", a.n, "err", err)
		}
	}
	for a, have := range s.open {
		if !live[a] && have.begun == 0 && have.since.Before(begun) {
			s.shut(a)
		}
	}
	if s.swept {
		return
	}
	// Remove the sockets of an earlier agent whose tasks have ended since.
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.log.Warn("relay sockets not listed", "err", err)
		return
	}
	s.swept = true
	used := map[string]bool{}
	for a := range s.open {
		used[name(a)] = true
	}
	for _, e := range entries {
		if !used[e.Name()] {
			s.remove(e.Name())
		}
	}
}

// shut closes a socket at once: nothing waits for an answer any more. The lock is held.
func (s *sockets) shut(a attempt) {
	_ = s.open[a].server.Close()
	delete(s.open, a)
	s.remove(name(a))
}

func (s *sockets) remove(name string) {
	if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
		s.log.Warn("relay socket not removed", "name", name, "err", err)
	}
}

// close lets the last answers go out, and leaves the directories: tasks may outlive the agent.
func (s *sockets) close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	all := make([]*http.Server, 0, len(s.open))
	for _, have := range s.open {
		all = append(all, have.server)
	}
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, server := range all {
		closing.Go(func() { shut(ctx, server) })
	}
	closing.Wait()
	s.wg.Wait()
}

// socketed is a launcher whose tasks each reach the relay by their own socket.
type socketed struct {
	launcher.Launcher
	sockets *sockets
}

// Launch implements launcher.Launcher.
func (l socketed) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	a := attempt{r.Workflow, r.Attempt}
	path, end, err := l.sockets.begin(context.WithoutCancel(ctx), a)
	if err != nil {
		return launcher.Task{}, &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: err.Error()}
	}
	r.Relay = "unix://" + path
	task, err := l.Launcher.Launch(ctx, r)
	if err == nil && task.Phase != launcher.Stopped {
		end(task.Ref)
	} else {
		end("") // the next list of the tasks closes it, unless the answer was lost and the task lives
	}
	return task, err
}
