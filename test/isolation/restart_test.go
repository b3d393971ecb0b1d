package isolation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// playUp is this binary as a dayfly that may be killed. It says where it serves, and ends when it is
// told to, or when the test has gone.
func playUp(args []string) int {
	target, data, source, runner := args[0], args[1], args[2], args[3]
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	net.DefaultResolver = resolver()
	up, err := embedded.OpenUp(ctx, upConfig(target, data, source, runner, log))
	if err != nil {
		log.Error("not opened", "err", err)
		return 2
	}
	_, _ = fmt.Fprintf(os.Stdout, built.Serving, up.URL())
	if err := errors.Join(up.Run(ctx), up.Close()); err != nil {
		log.Error("ended badly", "err", err)
		return 1
	}
	return 0
}

// spawn starts a dayfly on the site's data in a process of its own. It inherits open files.
func (s *site) spawn(target string, open ...*os.File) *built.Up {
	s.T.Helper()
	cmd := exec.CommandContext(s.T.Context(), os.Args[0], upArg, target, s.Data, s.Source, s.runner)
	cmd.ExtraFiles = open
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		s.T.Fatal(err)
	}
	return s.Spawn(cmd)
}

// stateDir is the directory that the commands of a workspace keep.
func (s *site) stateDir(workspace string) string {
	s.T.Helper()
	ws, err := s.Client.Workspace(s.T.Context(), workspace)
	if err != nil {
		s.T.Fatal(err)
	}
	return filepath.Join(s.Data, embedded.StateDir, "default", ws.ID)
}

// effects is how often the command of a workspace ran.
func (s *site) effects(workspace string) int {
	s.T.Helper()
	b, err := os.ReadFile(filepath.Join(s.stateDir(workspace), "effects"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.T.Fatal(err)
	}
	return strings.Count(string(b), "ran\n")
}

// The moments of a kill: how long after the submission, from before the claim until after the end.
var moments = []time.Duration{
	0, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond,
	500 * time.Millisecond, 800 * time.Millisecond, 1200 * time.Millisecond, 2 * time.Second,
}

// C3, O2: dayfly is killed and started again at ten moments of a job's life. Container jobs go on and
// report. Whatever the moment, nothing is done twice, and every workflow ends.
func TestRestart_ContainerJobsGoOn(t *testing.T) { restarts(t, config.TargetDocker) }

// The same of jobs that are processes: those that had started are failed, and not done again.
func TestRestart_ProcessJobsAreNotDoneTwice(t *testing.T) { restarts(t, config.TargetProcess) }

func restarts(t *testing.T, target string) {
	needs(t, target)
	s := newSite(t)
	d := s.spawn(target)
	for i, moment := range moments {
		name := fmt.Sprintf("ws-%d", i)
		s.put(name, "once 700ms", func(w *api.Workspace) { w.State = &api.State{Kind: api.StateDirectory} })
		id := s.Update(name)
		timer := time.NewTimer(moment)
		<-timer.C
		before := s.effects(name)
		d.Kill()
		d = s.spawn(target)
		wf, n := s.Over(id), s.effects(name)
		t.Logf("killed after %s, when it had run %d times: %s (%s), attempt %d, ran %d times", moment, before, wf.State, wf.Reason, wf.Attempt, n)
		switch {
		case n > 1:
			t.Errorf("%s ran %d times", name, n)
		case wf.State == workflow.Succeeded && n != 1:
			t.Errorf("%s succeeded and ran %d times", name, n)
		case wf.State != workflow.Succeeded && target == config.TargetDocker:
			t.Errorf("%s is %s (%s: %s), want that it went on", name, wf.State, wf.Reason, wf.Detail)
		case wf.State != workflow.Succeeded && wf.Reason != workflow.ReasonTaskStopped:
			t.Errorf("%s is %s (%s: %s), want success or the stop of its task", name, wf.State, wf.Reason, wf.Detail)
		}
	}
	if err := d.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	s.LeftNothing()
}

// O15: the log of a container that was killed is whole up to then.
func TestRestart_LogOfAKilledContainerIsWhole(t *testing.T) {
	needs(t, config.TargetDocker)
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("the docker command, which kills the container, is not on this machine")
	}
	s := newSite(t)
	s.open(config.TargetDocker)
	const lines = 777
	s.put("net", fmt.Sprintf("count %d", lines))
	id := s.Update("net")
	uptest.Eventually(t, "its start", func() bool { return s.Workflow(id).State == workflow.Running })
	spool := filepath.Join(s.Data, embedded.ContainersDir, s.Workflow(id).Task, contract.SpoolName)
	uptest.Eventually(t, "the last line in the runner's file", func() bool {
		b, err := os.ReadFile(spool)
		return err == nil && bytes.Contains(b, fmt.Appendf(nil, "line %d", lines))
	})
	container, err := exec.CommandContext(t.Context(), "docker", "ps", "-q", "--filter", "label=dev.dayfly.job="+id).Output()
	if err == nil {
		err = exec.CommandContext(t.Context(), "docker", "kill", strings.TrimSpace(string(container))).Run()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Over(id)
	var want strings.Builder
	for n := range lines {
		_, _ = fmt.Fprintf(&want, "line %d\n", n+1)
	}
	if got := s.Log(id, 0); !strings.HasSuffix(got, want.String()) || strings.Count(got, "line ") != lines {
		t.Errorf("got %d lines, want %d", strings.Count(got, "line "), lines)
	}
}
