// Package browser_test reads the console's pages with a real browser: a built `dayfly up`, Chromium without a window,
// and stories of people. What cannot be made by real runs quickly is made over the API, by a pool that is played.
package browser_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/built"
)

// patience is how long a story waits for what should come within a second or two.
const patience = 30 * time.Second

// binary builds the program that is tested, once.
var binary = sync.OnceValues(func() (string, error) {
	return built.Program(context.Background(), scratch, "cmd/dayfly")
})

// server is a `dayfly up` of its own, and its administrator.
type server struct {
	t    *testing.T
	dir  string // its home, its data and the sources of its workspaces
	addr string // host and port, the same after a restart
	*built.Up

	people *client.Client
	played *client.Client
	pace   float64 // how fast played steps pass, of 1; 0: at once
}

// up starts a server for one story.
func up(t *testing.T) *server {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "up-") //nolint:usetesting // users of engines must get into it
	s := &server{t: t, dir: dir, addr: freeAddress(t)}
	s.must(err)
	// Root's engines are users of their own, who must get to their sources.
	s.must(errors.Join(os.Chmod(dir, 0o711), os.Mkdir(filepath.Join(dir, "source"), 0o755), os.Mkdir(filepath.Join(dir, "home"), 0o700)))
	s.start()
	s.people = s.as(s.Token)
	return s
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// freeAddress is an address of this machine at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the process, and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	path, err := binary()
	s.must(err)
	data := filepath.Join(s.dir, "data")
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), path, "up", "--listen", s.addr, "--data", data, "--deploy-target", "process",
		"--source-root", filepath.Join(s.dir, "source"), "--concurrency", "4", "--token-rate", "0", "--organization-rate", "0")
	cmd.Dir = s.dir
	cmd.Env = []string{"HOME=" + filepath.Join(s.dir, "home"), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + scratch}
	s.Up, err = built.StartUp(s.t.Context(), cmd, data)
	s.must(err)
	s.EndWith(s.t)
}

// url is the address of a page.
func (s *server) url(path string) string { return "http://" + s.addr + path }

// as is a client of the API with a token.
func (s *server) as(token string) *client.Client {
	s.t.Helper()
	cl, err := s.Client(token)
	s.must(err)
	return cl
}

// person is the token of somebody with a role.
func (s *server) person(name, role string) string {
	s.t.Helper()
	tok, err := s.people.CreateToken(s.t.Context(), api.NewToken{Name: name, Role: role})
	s.must(err)
	return tok.Value
}

// commands makes a workspace whose preview is a script that this machine runs.
func (s *server) commands(name, script string, change ...func(*api.Workspace)) {
	s.t.Helper()
	dir := filepath.Join(s.dir, "source", name)
	s.must(os.MkdirAll(dir, 0o755))
	ws := api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: dir},
			Commands: map[string]string{"preview": script, "update": script},
		},
	}
	for _, c := range change {
		c(&ws)
	}
	_, _, err := s.people.PutWorkspace(s.t.Context(), ws)
	s.must(err)
}

// submit asks for a run and returns its id.
func (s *server) submit(workspace string, op workflow.Operation, change ...func(*api.Submit)) string {
	s.t.Helper()
	in := api.Submit{Workspace: workspace, Operation: op}
	for _, c := range change {
		c(&in)
	}
	w, err := s.people.Submit(s.t.Context(), in)
	s.must(err)
	return w.ID
}

// reaches waits until a run is in a state.
func (s *server) reaches(id string, state workflow.State) {
	s.t.Helper()
	var w api.Workflow
	eventually(s.t, fmt.Sprintf("%s is %s", id, state), func() bool {
		var err error
		w, err = s.people.Workflow(s.t.Context(), id)
		s.must(err)
		return w.State == state
	})
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("it did not come to this: %s", what)
		case <-tick.C:
		}
	}
}
