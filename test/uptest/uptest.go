// Package uptest is `dayfly up` as tests use it: in the test's process or in one of its own, with its first admin, what
// they ask of it, and what it must not leave behind.
package uptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/test/built"
)

// World is the directories of an `up`, and its first admin.
type World struct {
	T      *testing.T
	Data   string // data directory
	Source string // an empty source for workspaces

	Up     *embedded.Up // nil: it is a process of its own
	URL    string
	Token  string // of its first admin
	Client *client.Client

	end func() // stops Up; nil: it does not run
}

// New makes the directories of a world in which nothing runs yet. Beside them is room for others.
func New(t *testing.T) *World {
	t.Helper()
	root := Directory(t)
	w := &World{T: t, Data: filepath.Join(root, "data"), Source: filepath.Join(root, "source")}
	if err := errors.Join(os.Mkdir(w.Source, 0o755), os.Chmod(w.Source, 0o755)); err != nil {
		t.Fatal(err)
	}
	return w
}

// As is the world for another test.
func (w World) As(t *testing.T) *World {
	w.T = t
	return &w
}

// Directory makes a directory that users of their own can pass through, as root's engines must.
func Directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Log is a log that the test shows.
func Log(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Open opens an `up` in this process, and runs it until Stop or the end of the test; also again, after Stop. Each change
// is made to what it is made of.
func (w *World) Open(cfg embedded.UpConfig, changes ...func(*embedded.UpConfig)) {
	w.T.Helper()
	for _, change := range changes {
		change(&cfg)
	}
	up, err := embedded.OpenUp(w.T.Context(), cfg)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Up, w.end = up, Running(w.T, "up", up.Run, up.Close)
	w.T.Cleanup(w.Stop)
	w.Serves(up.Server)
}

// Spawn starts a command that is an `up` on the world's data. It is killed at the end of the test, if it lives.
func (w *World) Spawn(cmd *exec.Cmd) *built.Up {
	w.T.Helper()
	up, err := built.StartUp(w.T.Context(), cmd, w.Data)
	if err != nil {
		w.T.Fatal(err)
	}
	up.EndWith(w.T)
	w.connect(up.URL, up.Token)
	return up
}

// Serves makes a server's first admin that of the world.
func (w *World) Serves(s *embedded.Server) {
	w.T.Helper()
	token, err := s.AdminToken()
	if err != nil {
		w.T.Fatal(err)
	}
	w.connect(s.URL(), token)
}

func (w *World) connect(url, token string) {
	w.URL, w.Token, w.Client = url, token, Person(w.T, url, token)
}

// Person is a client with a token.
func Person(t *testing.T, url, token string) *client.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	cl, err := client.New(client.Config{URL: url, HTTPClient: &http.Client{Transport: transport}, Token: func() redact.String { return redact.New(token) }})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// Running runs something until stop is called or the test ends, and closes it then.
func Running(t *testing.T, what string, run func(context.Context) error, closing func() error) (stop func()) {
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

// Stop ends the `up` of this process as SIGTERM does, if it runs. Nothing may go wrong in that, and nothing may be left.
func (w *World) Stop() {
	w.T.Helper()
	if w.end == nil {
		return
	}
	w.end()
	w.end = nil
	w.LeftNothing()
}

// LeftNothing reports processes of jobs, their directories, and what their runners left.
func (w *World) LeftNothing() {
	w.T.Helper()
	if left := ProcessesOf(w.T, w.Data); len(left) > 0 {
		w.T.Errorf("processes are left: %v", left)
	}
	for _, dir := range []string{embedded.JobsDir, embedded.ContainersDir, embedded.RelayDir} {
		left, err := filepath.Glob(filepath.Join(w.Data, dir, "spools", "*"))
		if err != nil {
			w.T.Error(err)
		}
		entries, err := os.ReadDir(filepath.Join(w.Data, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.T.Error(err)
		}
		for _, e := range entries {
			if e.IsDir() && e.Name() != "spools" {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
		if len(left) > 0 {
			w.T.Errorf("files are left: %v", left)
		}
	}
}

// ProcessesOf describes the processes, this one excepted, whose arguments or first environment name a path below dir:
// the runners and engines of a data directory do. Elsewhere than on Linux it finds none.
func ProcessesOf(t *testing.T, dir string) (found []string) {
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

// Eventually waits until cond holds.
func Eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	Grows(t, what, 1, func() int {
		if cond() {
			return 1
		}
		return 0
	})
}

// Grows waits until count has come to want. It may take as long as it takes, as long as there is more and more.
func Grows(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	over := time.NewTimer(built.Patience)
	defer over.Stop()
	again := time.NewTicker(15 * time.Millisecond)
	defer again.Stop()
	for before, n := 0, count(); n < want; n = count() {
		if n > before {
			before = n
			over.Reset(built.Patience)
		}
		select {
		case <-again.C:
		case <-over.C:
			t.Fatalf("waited %s in vain: %s (%d of %d)", built.Patience, what, n, want)
		}
	}
}
