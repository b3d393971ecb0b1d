package upgrade_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ports"
	"github.com/dayfly-dev/dayfly/test/built"
)

// previous is the commit of the version before the one under test; raise it with each release.
const previous = "a9a8b977e938ce1b41167cc31a93bfc883156438"

// soon is for how long a live test waits for what is to happen at once.
const soon = 4 * time.Minute

// The binaries of two versions work together, in every pair and in place: a control plane is replaced while
// a job of an older agent runs, an agent is replaced over the records of the older one, and the control plane
// is put back.
func TestLive_VersionsWorkTogetherAndAreReplacedInPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("two versions are built in the long run only")
	}
	before, after := binaries(t)
	l := newLive(t)
	release := reserveUsers(t)

	// The older pair at work: one run is in its middle, another waits behind it for the same workspace.
	server := l.server(before)
	agent := l.agent(before)
	l.workspace("first")
	l.workspace("second")
	guarded := api.Workspace{Name: "guarded", Engine: api.EngineTerraform, Source: api.Source{Directory: filepath.Join(l.srcs, "first")}, State: &api.State{Kind: api.StateDirectory}}
	if _, _, err := l.client.PutWorkspace(t.Context(), guarded); err != nil {
		t.Fatal(err)
	}
	running, waiting := l.submit("first"), l.submit("first")
	l.await(running, workflow.Running)

	// The control plane is replaced, over the same data. The older agent's job goes on and its result arrives;
	// then the older agent works for the newer control plane.
	server.stop()
	server = l.server(after)
	if wf := l.show(running); wf.State != workflow.Running || wf.Attempt != 1 {
		t.Fatalf("after the control plane was replaced the run is %s, attempt %d; want it running, attempt 1", wf.State, wf.Attempt)
	}
	l.open("first")
	l.await(running, workflow.Succeeded)
	l.await(waiting, workflow.Succeeded)
	if log := l.log(running); !strings.Contains(log, "first ended") || !strings.Contains(log, "first began") {
		t.Errorf("the log of the run has a hole: %q", log)
	}
	t.Log("proven: a newer control plane over an older one's data, a run across its replacement, an older agent with it")

	// A workspace that is registered by now has a place for its state that an older runner does not know: it refuses
	// the run, whose state would be another one, and a newer one runs it.
	l.workspace("new")
	l.open("new")
	if wf := l.await(l.submit("new"), workflow.Failed); wf.Reason != workflow.ReasonRunnerTooOld {
		t.Errorf("a new workspace on the older agent ended for %q, want runner_too_old", wf.Reason)
	}
	// Nor does it know how to leave a plan that can be approved: a preview without one would look like any other.
	guarded.Approval = &api.Approval{Required: true}
	if _, _, err := l.client.PutWorkspace(t.Context(), guarded); err != nil {
		t.Fatal(err)
	}
	if wf := l.await(l.submit("guarded"), workflow.Failed); wf.Operation != workflow.Preview || wf.Reason != workflow.ReasonRunnerTooOld || !strings.Contains(wf.Detail, `"plan"`) {
		t.Errorf("the older agent made the plan of a %s, which ended for %q: %s", wf.Operation, wf.Reason, wf.Detail)
	}

	// The agent is killed in the middle of a job and a newer one takes its place: it finds the older one's
	// records, proves the end of its task, and the slot is free.
	running, waiting = l.submit("second"), l.submit("second")
	l.await(running, workflow.Running)
	agent.kill()
	release()
	agent = l.agent(after)
	if wf := l.await(running, workflow.Failed); wf.Reason != workflow.ReasonTaskStopped {
		t.Errorf("the run of the killed agent ended for %q, want task_stopped", wf.Reason)
	}
	l.open("second")
	l.await(waiting, workflow.Succeeded)
	l.await(l.submit("new"), workflow.Succeeded)
	t.Log("proven: a newer agent over an older one's data")

	// And back: an older control plane over what the newer one has written, with the newer agent.
	l.workspace("third")
	running = l.submit("third")
	l.await(running, workflow.Running)
	server.stop()
	l.back()
	server = l.server(before)
	l.open("third")
	l.await(running, workflow.Succeeded)
	l.workspace("fourth")
	l.open("fourth")
	l.await(l.submit("fourth"), workflow.Succeeded)
	t.Log("proven: an older control plane over a newer one's data, a newer agent with it")
	agent.stop()
	server.stop()
}

// R15, R16: the state of a workspace that the previous version has run is found again where it is, also where it
// named no place; nothing is planned on an empty one, and what a deleted workspace left is not adopted.
func TestLive_StateOfThePreviousVersionIsFoundAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("two versions are built in the long run only")
	}
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("terraform is not on this machine")
	}
	before, after := binaries(t)
	l := newLive(t)
	up := func(binary string) *process {
		p := l.run(binary, nil, "up", "--data", l.data, "--listen", l.address, "--deploy-target", "process", "--source-root", l.srcs)
		l.until("the control plane answers", func() bool {
			_, err := l.client.Whoami(t.Context())
			return err == nil
		})
		return p
	}
	register := func(name string, state *api.State, backend string) {
		t.Helper()
		dir := filepath.Join(l.srcs, name)
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a source is not secret
			t.Fatal(err)
		}
		code := "resource \"terraform_data\" \"one\" {}\n" + backend
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(code), 0o644); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
		_, _, err := l.client.PutWorkspace(t.Context(), api.Workspace{Name: name, Engine: api.EngineTerraform, Source: api.Source{Directory: dir}, State: state})
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, op workflow.Operation, want workflow.State) api.Workflow {
		t.Helper()
		wf, err := l.client.Submit(t.Context(), api.Submit{Workspace: name, Operation: op})
		if err != nil {
			t.Fatal(err)
		}
		return l.await(wf.ID, want)
	}
	const declared = "terraform {\n  backend \"http\" {\n    address = \"http://127.0.0.1:1/state\"\n  }\n}\n"
	workspaces := map[string]*api.State{"unsaid": nil, "said": {Kind: api.StateDirectory}}
	release := reserveUsers(t)
	old := up(before)
	for name, state := range workspaces {
		register(name, state, "")
		run(name, workflow.Update, workflow.Succeeded)
	}
	register("declares", nil, declared) // whose state that version kept in its directory all the same
	run("declares", workflow.Update, workflow.Succeeded)
	register("gone", nil, "")
	run("gone", workflow.Update, workflow.Succeeded)
	if err := l.client.DeleteWorkspace(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	old.stop()
	release()

	now := up(after)
	for name, state := range workspaces {
		for range 2 { // as it is, and with its file applied once more
			wf := run(name, workflow.Update, workflow.Succeeded)
			if c := wf.Result.Changes; c.Add+c.Change+c.Destroy != 0 {
				t.Errorf("%s: %+v, want no changes: the state was not found\n%s", name, c, l.log(wf.ID))
			}
			register(name, state, "")
		}
	}
	for _, name := range []string{"declares", "gone"} {
		backend := ""
		if name == "declares" {
			backend = declared
		}
		register(name, nil, backend)
		wf := run(name, workflow.Preview, workflow.Failed)
		if wf.Reason != workflow.ReasonStateElsewhere {
			t.Errorf("%s: %s %q, want state_elsewhere", name, wf.Reason, wf.Detail)
		}
	}
	// A place that was emptied meanwhile is not taken for a new one.
	if err := os.RemoveAll(filepath.Join(l.data, "state", "default", "unsaid")); err != nil {
		t.Fatal(err)
	}
	if wf := run("unsaid", workflow.Update, workflow.Failed); wf.Reason != workflow.ReasonStateElsewhere {
		t.Errorf("with its state gone: %s %q, want state_elsewhere", wf.Reason, wf.Detail)
	}
	now.stop()
}

// binaries builds the previous version and this one, or skips.
func binaries(t *testing.T) (before, after string) {
	t.Helper()
	root := command(t, "git", "rev-parse", "--show-toplevel")
	if root.err != nil {
		t.Skipf("the previous version is built from the history, and this is not a git clone: %v", root.err)
	}
	top := strings.TrimSpace(root.out.String())
	if has := command(t, "git", "-C", top, "cat-file", "-e", previous+"^{commit}"); has.err != nil {
		t.Skipf("the commit of the previous version, %s, is not in this clone (a shallow one?)", previous)
	}
	tree, dir := t.TempDir(), reachable(t)
	// An archive, because a work tree would have to be taken out of the repository again.
	archive := command(t, "git", "-C", top, "archive", "--format=tar", previous)
	if archive.err != nil {
		t.Fatalf("git archive: %v", archive.err)
	}
	unpack(t, &archive.out, tree)
	before = filepath.Join(dir, "before")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", before, "./cmd/dayfly")
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	after, err := built.Program(t.Context(), dir, "cmd/dayfly")
	if err != nil {
		t.Fatal(err)
	}
	return before, after
}

type ran struct {
	out bytes.Buffer
	err error
}

func command(t *testing.T, name string, args ...string) *ran {
	t.Helper()
	r := &ran{}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &r.out, &stderr
	if err := cmd.Run(); err != nil {
		r.err = errors.Join(err, errors.New(strings.TrimSpace(stderr.String())))
	}
	return r
}

func unpack(t *testing.T, from io.Reader, to string) {
	t.Helper()
	root, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // a directory
	for archive := tar.NewReader(from); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			var text []byte
			if text, err = io.ReadAll(archive); err == nil {
				if err = root.MkdirAll(filepath.Dir(h.Name), 0o755); err == nil {
					err = root.WriteFile(h.Name, text, 0o644)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// reachable is a directory that root's engines, which are other users, can pass through.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil { //nolint:gosec // see above
			t.Fatal(err)
		}
	}
	return dir
}

// reserveUsers keeps the launchers of other tests from the engine users of root that the version before takes without a
// lock: they would kill its processes with their own. It waits for those that have such a user now.
func reserveUsers(t *testing.T) (release func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		return func() {}
	}
	const dir, first, most = "/var/run/dayfly/engine-users", 200_000, 50 // it takes them in turn
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var locks []*os.File
	release = func() {
		for _, f := range locks {
			_ = f.Close()
		}
		locks = nil
	}
	t.Cleanup(release)
	for uid := first; uid < first+most; uid++ {
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(uid)), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			locks = append(locks, f)
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return release
}

// live is one installation: a control plane at one address over one data directory, and an agent over
// another.
type live struct {
	t                *testing.T
	address          string
	data, work, srcs string
	client           *client.Client
	token            string // of the pool
}

func newLive(t *testing.T) *live {
	t.Helper()
	address, err := ports.Free(t.Context()) // of one control plane after the other
	if err != nil {
		t.Fatal(err)
	}
	l := &live{t: t, address: address, data: reachable(t), work: reachable(t), srcs: reachable(t)}
	l.client, err = client.New(client.Config{
		URL: "http://" + l.address, HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Token: func() redact.String {
			text, err := os.ReadFile(filepath.Join(l.data, "private", "admin-token"))
			if errors.Is(err, fs.ErrNotExist) { // of the version before
				text, err = os.ReadFile(filepath.Join(l.data, "admin-token"))
			}
			if err != nil {
				return redact.String{}
			}
			return redact.New(strings.TrimSpace(string(text)))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// back makes the data directory of the control plane one of the version before, as docs/operations.md says.
func (l *live) back() {
	l.t.Helper()
	entries, err := os.ReadDir(filepath.Join(l.data, "private"))
	for _, e := range entries {
		err = errors.Join(err, os.Rename(filepath.Join(l.data, "private", e.Name()), filepath.Join(l.data, e.Name())))
	}
	if err != nil || len(entries) == 0 {
		l.t.Fatalf("%d files moved back: %v", len(entries), err)
	}
}

// server starts a control plane and waits until it answers.
func (l *live) server(binary string) *process {
	l.t.Helper()
	p := l.run(binary, nil, "server", "--data", l.data, "--listen", l.address)
	l.until("the control plane answers", func() bool {
		_, err := l.client.Whoami(l.t.Context())
		return err == nil
	})
	return p
}

// agent starts an agent; it waits for nothing.
func (l *live) agent(binary string) *process {
	l.t.Helper()
	if l.token == "" {
		got, err := l.client.RotatePoolToken(l.t.Context(), "default", api.RotateToken{})
		if err != nil {
			l.t.Fatal(err)
		}
		l.token = got.Token
	}
	return l.run(binary, []string{
		"DAYFLY_TOKEN=" + l.token, "DAYFLY_SERVICE_URL=http://" + l.address, "DAYFLY_DEPLOY_TARGET=process",
		"DAYFLY_POLLING_INTERVAL=1s", "DAYFLY_JOB_STATUS_LOOP_INTERVAL=1s",
		// The control plane is away for a moment: an agent that pauses for minutes then is not what is tested.
		"DAYFLY_REQUEST_RETRY_WAIT=100ms", "DAYFLY_CIRCUIT_BREAKER_FAILURES=1000",
	}, "agent", "--data", l.work, "--source-root", l.srcs)
}

// workspace registers a command that runs until its gate is opened.
func (l *live) workspace(name string) {
	l.t.Helper()
	dir := filepath.Join(l.srcs, name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a source is not secret
		l.t.Fatal(err)
	}
	_, _, err := l.client.PutWorkspace(l.t.Context(), api.Workspace{
		Name: name, Engine: api.EngineCommand, Source: api.Source{Directory: dir}, State: &api.State{Kind: api.StateDirectory},
		Commands: map[string]string{"update": "echo " + name + " began; while [ ! -e '" + dir + "/gate' ]; do sleep 0.1; done; echo " + name + " ended"},
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *live) open(name string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.srcs, name, "gate"), nil, 0o644); err != nil { //nolint:gosec // as above
		l.t.Fatal(err)
	}
}

func (l *live) submit(name string) string {
	l.t.Helper()
	wf, err := l.client.Submit(l.t.Context(), api.Submit{Workspace: name, Operation: workflow.Update})
	if err != nil {
		l.t.Fatal(err)
	}
	return wf.ID
}

func (l *live) show(id string) api.Workflow {
	l.t.Helper()
	wf, err := l.client.Workflow(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return wf
}

func (l *live) log(id string) string {
	l.t.Helper()
	page, err := l.client.Logs(l.t.Context(), id, 0, 0, 0, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	var b strings.Builder
	for _, line := range page.Lines {
		b.WriteString(line.Text + "\n")
	}
	return b.String()
}

// await waits until a workflow is in a state; one that has ended otherwise fails the test.
func (l *live) await(id string, want workflow.State) (wf api.Workflow) {
	l.t.Helper()
	l.until("workflow "+id+" is "+string(want), func() bool {
		wf = l.show(id)
		if wf.State.Terminal() && wf.State != want {
			l.t.Fatalf("workflow of %s is %s (%s: %s), want %s\n%s", wf.Workspace, wf.State, wf.Reason, wf.Detail, want, l.log(id))
		}
		return wf.State == want
	})
	return wf
}

func (l *live) until(what string, is func() bool) {
	l.t.Helper()
	end, tick := time.NewTimer(soon), time.NewTicker(50*time.Millisecond)
	defer end.Stop()
	defer tick.Stop()
	for !is() {
		select {
		case <-end.C:
			l.t.Fatalf("not within %s: %s", soon, what)
		case <-tick.C:
		}
	}
}

// process is a running dayfly.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	name string
	log  *output
	done chan struct{}
	once sync.Once
}

func (l *live) run(binary string, env []string, args ...string) *process {
	l.t.Helper()
	p := &process{t: l.t, name: filepath.Base(binary) + " " + args[0], log: &output{}, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(l.t.Context()), binary, args...) //nolint:gosec // what was just built
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.work}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.WaitDelay = soon
	if err := p.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended shows in its log
	}()
	l.t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		if l.t.Failed() {
			l.t.Logf("%s:\n%s", p.name, p.log)
		}
	})
	return p
}

func (p *process) stop() { p.end(syscall.SIGTERM) }
func (p *process) kill() { p.end(syscall.SIGKILL) }

// end sends a signal and waits for the end.
func (p *process) end(signal os.Signal) {
	p.t.Helper()
	p.once.Do(func() {
		_ = p.cmd.Process.Signal(signal) // it may have ended
		late := time.NewTimer(soon)
		defer late.Stop()
		select {
		case <-p.done:
		case <-late.C:
			_ = p.cmd.Process.Kill()
			<-p.done
			p.t.Errorf("%s did not end within %s of %s", p.name, soon, signal)
		}
	})
}

// output is a log that is read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
