package runner_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	"github.com/dayfly-dev/dayfly/internal/runner"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/built"
)

// eaterImage makes an image with the real runner and an engine that takes memory without end.
func eaterImage(t *testing.T) string {
	t.Helper()
	dir, name := t.TempDir(), "dayfly-test-eater"
	var files []docker.File
	for pkg, to := range map[string]string{"runnerimage": "/runner", "internal/runner/testdata/eater": "/bin/sh"} {
		program, err := built.Program(t.Context(), dir, pkg)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, docker.File{From: program, To: to})
	}
	if err := docker.Build(t.Context(), "", docker.Image{Tag: name, Files: files, Entrypoint: []string{"/runner"}}); err != nil {
		t.Fatal(err)
	}
	return name
}

// L8: the kernel kills the engine, which has the most memory. Rarely it kills the runner too. Either way the run says why
// it failed, and its log has what came before.
func TestRun_AnEngineThatEatsTheMemoryOfItsContainer(t *testing.T) {
	if testing.Short() {
		t.Skip("a Docker engine is not used in short tests")
	}
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "unix", docker.DefaultSocket)
	if err != nil {
		t.Skipf("no Docker engine answers here: %v", err)
	}
	_ = c.Close()
	spec, _ := job(t, "eat")
	r := newRelay(t, spec)
	l, err := docker.New(docker.Config{
		Machine: launcher.Machine{Dir: t.TempDir(), Sources: runner.Sources{Roots: []string{"/"}}},
		Image:   eaterImage(t), Network: "host",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := l.End(ctx); err != nil {
			t.Error(err)
		}
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	task, err := l.Launch(t.Context(), launcher.Request{
		Needs:    contract.Needs{Attempt: spec.Attempt, Size: "256/512", SourceDirectory: spec.Source.Directory},
		Workflow: spec.Workflow, Ticket: ticket, Relay: r.url,
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := launchertest.AwaitStopped(t, l, task.Ref)
	reason, said := ended.Reason, r.text()
	if ended.ExitCode != nil && *ended.ExitCode == 0 { // the runner lived, as it nearly always does
		got := r.result()
		reason = got.Reason
		if got.Outcome != workflow.Failed || !strings.Contains(got.Detail, "memory ran out") || got.LogEnd != int64(len(r.lines)) {
			t.Errorf("got %s %q, and a log of %d lines, of which %d arrived", got.Outcome, got.Detail, got.LogEnd, len(r.lines))
		}
		if !strings.Contains(said, "ended by signal 9") {
			t.Errorf("got log %q, want how the engine ended", said)
		}
	} else if spool, err := l.Spool(task.Ref); err == nil { // the kernel had not freed the engine's memory yet, and took the runner too
		left, _ := io.ReadAll(spool)
		said += string(left)
		_ = spool.Close()
	}
	if reason != workflow.ReasonOutOfMemory {
		t.Errorf("got reason %q of %+v, want out_of_memory", reason, ended)
	}
	if !strings.Contains(said, "the engine is hungry") {
		t.Errorf("got log %q, want what the engine said", said)
	}
}
