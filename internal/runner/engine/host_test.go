package engine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// step is what a host was told of one step.
type step struct {
	Name   string
	Status workflow.StepStatus
	Text   string
}

// host runs the commands for real, and keeps what it was told.
type host struct {
	path string // PATH of the children
	env  []string

	mu     sync.Mutex
	log    bytes.Buffer
	steps  []step
	masked []string
	args   [][]string

	kept    map[string][]byte // artifacts, by kind and name
	keepErr error
	keeping func() // called while something is kept; nil: no call
	input   []byte // of Input

	asked  []api.StateRef    // whose these are
	others []api.OthersState // the answer

	policed  []engine.PolicyInputs // what policies were asked about
	policies func(on engine.PolicyInputs) ([]api.PolicyResult, error)

	hookEnv  []string // of ForHooks
	hookPlan []byte

	onExec func(c engine.Command) // called before each command
	onLine func(text string)      // called with each piece of the log, without colours
}

func (h *host) Step(ctx context.Context, name string, fn func(ctx context.Context) (string, error)) error {
	said, err := fn(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	s := step{name, workflow.StepSucceeded, said}
	if err != nil {
		s.Status, s.Text = workflow.StepFailed, err.Error()
	}
	h.steps = append(h.steps, s)
	return err
}

func (h *host) Skip(_ context.Context, name, text string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, step{name, workflow.StepSkipped, text})
	return nil
}

func (h *host) Exec(ctx context.Context, c engine.Command) (int, error) {
	h.mu.Lock()
	h.args = append(h.args, c.Args)
	h.mu.Unlock()
	if h.onExec != nil {
		h.onExec(c)
	}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = slices.Concat([]string{"PATH=" + h.path, "HOME=" + os.TempDir()}, h.env, c.Env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	if cmd.Stdout == nil {
		cmd.Stdout = stream{h}
	}
	if cmd.Stderr == nil {
		cmd.Stderr = stream{h}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return -1, context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func (h *host) WhoseStates(_ context.Context, states []api.StateRef) ([]api.OthersState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, states...)
	return h.others, nil
}

func (h *host) Logf(format string, args ...any) {
	said := fmt.Sprintf(format, args...)
	if !strings.HasPrefix(said, api.CommandLine) {
		said = api.RunnerLine + said
	}
	_, _ = stream{h}.Write([]byte(said + "\n"))
}

func (h *host) Mask(values ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.masked = append(h.masked, values...)
}

func (h *host) LogWriter() io.WriteCloser { return stream{h} }

// text returns the log without its colours.
func (h *host) text() string { return text.WithoutEscapes(h.coloured()) }

func (h *host) coloured() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.String()
}

// ran returns the second word of each command line.
func (h *host) ran() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var words []string
	for _, a := range h.args {
		words = append(words, a[1])
	}
	return words
}

type stream struct{ h *host }

func (s stream) Write(p []byte) (int, error) {
	s.h.mu.Lock()
	s.h.log.Write(p)
	f := s.h.onLine
	s.h.mu.Unlock()
	if f != nil {
		f(text.WithoutEscapes(string(p)))
	}
	return len(p), nil
}

func (stream) Close() error { return nil }

var _ engine.Host = (*host)(nil)

// job makes the directories of a run, and its root module of the given files.
func job(t *testing.T, name string, op workflow.Operation, files map[string]string) engine.Job {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := engine.Job{
		Spec: api.Spec{
			Workflow: "wf", Attempt: 1, Organization: "default", Workspace: "app",
			Type: workflow.Deployment, Operation: op, RunSettings: api.RunSettings{Engine: name}, State: api.State{Kind: api.StateDirectory, Key: "app"},
		},
		Root: filepath.Join(top, "work"), TempDir: filepath.Join(top, "temp"), StateDir: filepath.Join(top, "state"),
	}
	if op == "" {
		j.Spec.Type = workflow.InsightsScan
	}
	for _, dir := range []string{j.Root, j.TempDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put(t, j.Root, files)
	return j
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// again is the next run of the same workspace, on fresh directories.
func again(t *testing.T, j engine.Job, op workflow.Operation, files map[string]string) engine.Job {
	t.Helper()
	next := job(t, j.Spec.Engine, op, files)
	next.StateDir, next.EnginePath, next.Path = j.StateDir, j.EnginePath, j.Path
	next.Spec.State, next.Spec.Variables = j.Spec.State, j.Spec.Variables
	return next
}

// failure returns the Failure that Run must have ended with.
func failure(t *testing.T, err error) *engine.Failure {
	t.Helper()
	f, ok := errors.AsType[*engine.Failure](err)
	if !ok {
		t.Fatalf("got %v, want a failure", err)
	}
	return f
}

// fakeEngine writes a script that answers as terraform does, from a case of shell per command.
func fakeEngine(t *testing.T, path, version, cases string) {
	t.Helper()
	script := "#!/bin/sh\ncase \"$1\" in\nversion) echo '{\"terraform_version\":\"" + version + "\"}' ;;\n" + cases + "\n*) ;;\nesac\n"
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // a program must be executable
		t.Fatal(err)
	}
}

func lines(s ...string) string { return strings.Join(s, "\n") }

// Still implements Host: nothing of a test's engine is left when Exec returns.
func (h *host) EndProcesses(context.Context) error { return nil }

// ForHooks implements Host.
func (h *host) ForHooks(env []string, plan []byte) { h.hookEnv, h.hookPlan = env, plan }

// Keep implements Host: it reads twice, and keeps what it was given.
func (h *host) Keep(_ context.Context, name, kind string, from io.ReadSeeker) (int64, string, error) {
	if h.keeping != nil {
		h.keeping()
	}
	sum := sha256.New()
	size, err := io.Copy(sum, from)
	if err == nil {
		_, err = from.Seek(0, io.SeekStart)
	}
	data, readErr := io.ReadAll(from)
	if err = errors.Join(err, readErr, h.keepErr); err != nil {
		return 0, "", err
	}
	if h.kept == nil {
		h.kept = map[string][]byte{}
	}
	h.kept[kind+" "+name] = data
	return size, hex.EncodeToString(sum.Sum(nil)), nil
}

// Input implements Host.
func (h *host) Input(_ context.Context, to io.Writer) error {
	if h.input == nil {
		return errors.New("there is no input")
	}
	_, err := to.Write(h.input)
	return err
}

// Policies implements Host.
func (h *host) Policies(_ context.Context, on engine.PolicyInputs) ([]api.PolicyResult, error) {
	h.policed = append(h.policed, on)
	if h.policies == nil {
		return nil, nil
	}
	return h.policies(on)
}
