package e2e_test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// engine is a command that holds a lock for as long as any of its processes lives, writes what it does
// to the file of side effects, and ends when it is let go. Only the system can release the lock: an engine that does
// not get it has met another engine of its workspace.
const engine = `umask 0
exec 9>>"$SHARED/lock-$DAYFLY_WORKSPACE"
flock -n 9 || { echo "overlap $DAYFLY_WORKFLOW_ID" >>"$EFFECTS"; exit 9; }
say() { echo "$1 $DAYFLY_WORKFLOW_ID" >>"$EFFECTS"; }
trap 'say interrupted; exit 130' INT
say start
until [ -e "$SHARED/go-$DAYFLY_WORKFLOW_ID" ]; do sleep 0.05; done
say end
`

// stubborn leaves something behind that holds the lock and does not hear: in its own session where
// the launcher can find it there too.
const stubborn = `umask 0
exec 9>>"$SHARED/lock-$DAYFLY_WORKSPACE"
flock -n 9 || { echo "overlap $DAYFLY_WORKFLOW_ID" >>"$EFFECTS"; exit 9; }
trap "" INT TERM HUP
$LEAVE sh -c 'while :; do sleep 0.1; done' </dev/null >/dev/null 2>&1 &
echo "start $DAYFLY_WORKFLOW_ID" >>"$EFFECTS"
until [ -e "$SHARED/go-$DAYFLY_WORKFLOW_ID" ]; do sleep 0.05; done
`

// slow takes its time to end when it is interrupted.
const slow = `umask 0
exec 9>>"$SHARED/lock-$DAYFLY_WORKSPACE"
flock -n 9 || { echo "overlap $DAYFLY_WORKFLOW_ID" >>"$EFFECTS"; exit 9; }
say() { echo "$1 $DAYFLY_WORKFLOW_ID" >>"$EFFECTS"; }
trap 'say interrupted; sleep 1; say end; exit 130' INT
say start
until [ -e "$SHARED/go-$DAYFLY_WORKFLOW_ID" ]; do sleep 0.05; done
say end
`

// letGo lets the engine of a workflow end.
func (w *world) letGo(id string) {
	w.T.Helper()
	if err := os.WriteFile(filepath.Join(w.shared, "go-"+id), nil, 0o644); err != nil {
		w.T.Fatal(err)
	}
}

// said waits for a side effect.
func (w *world) said(line string) {
	w.T.Helper()
	uptest.Eventually(w.T, line, func() bool { return w.has(line) })
}

// order checks that the side effects are these, in this order.
func (w *world) order(want ...string) {
	w.T.Helper()
	if got := w.lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.T.Errorf("got the side effects\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// kill ends the runner of a workflow in a way that it cannot prevent.
func (w *world) kill(id string) {
	w.T.Helper()
	if err := syscall.Kill(w.runnerPID(w.Workflow(id).Task), syscall.SIGKILL); err != nil {
		w.T.Fatal(err)
	}
}

// two submits two updates of a workspace and waits until the first is at work.
func (w *world) two(script string, changes ...func(*api.Workspace)) (first, second string) {
	w.T.Helper()
	if _, err := exec.LookPath("flock"); err != nil {
		w.T.Skip("flock(1), with which engines are told apart, is not on this machine")
	}
	leave := func(in *api.Workspace) {
		in.Environment["LEAVE"] = ""
		if os.Geteuid() == 0 { // the engine has a user of its own, by which all of it is found
			in.Environment["LEAVE"] = "setsid"
		}
	}
	w.put("one", map[string]string{"update": script}, append(changes, leave)...)
	first = w.Update("one")
	w.said("start " + first)
	second = w.Update("one")
	w.letGo(second)
	return first, second
}

// waits checks that a run has not begun, and that its workspace is held by the task of another.
func (w *world) waits(id, holder string) {
	w.T.Helper()
	if got := w.Workflow(id); got.State != workflow.Pending {
		w.T.Errorf("%s: got %s, want it to wait for %s; timeline:\n%s", id, got.State, holder, w.Timeline(id))
	}
	if w.has("start " + id) {
		w.T.Errorf("%s was started", id)
	}
	why, err := w.Client.Why(w.T.Context(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	if task := w.Workflow(holder).Task; task == "" || !strings.Contains(why.Waiting+why.Summary, task) {
		w.T.Errorf("why does not name the task %s: %+v", task, why)
	}
}

// C7: the next run starts when nothing of the killed runner's engine is left.
func TestOverlap_RunnerKilled(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"engine": engine, "what an engine left behind": stubborn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			first, second := w.two(script)
			w.waits(second, first)
			w.kill(first)
			w.wants(w.Over(first), workflow.Failed, workflow.ReasonTaskStopped)
			w.said("start " + second)
			if script == engine {
				w.wants(w.Over(second), workflow.Succeeded, workflow.ReasonNone)
				w.order("start "+first, "start "+second, "end "+second)
			} else {
				w.Over(second)
				w.order("start "+first, "start "+second)
			}
		})
	}
}

// C5, C7: a run that was given up for lost goes on, and keeps its workspace to its end.
func TestOverlap_RelayCutOffForElevenMinutes(t *testing.T) {
	t.Parallel()
	way := &road{}
	w := start(t, func(c *embedded.UpConfig) { c.Agent.WrapTransport = way.wrap })
	first, second := w.two(engine)
	way.close(func(r *http.Request) bool { return r.Header.Get(api.HeaderBoot) != "" })
	w.minutes(11)
	lost := w.Workflow(first)
	w.wants(lost, workflow.Failed, workflow.ReasonRunnerLost)
	if !lost.SlotHeld {
		t.Error("the workspace was given on while the engine ran")
	}
	w.waits(second, first)
	if w.has("interrupted " + first) {
		t.Error("the engine was stopped")
	}

	// It ends, and the relay cannot say so yet.
	w.letGo(first)
	w.said("end " + first)
	w.waits(second, first)
	way.open()
	w.wants(w.Over(first), workflow.Failed, workflow.ReasonRunnerLost)
	w.wants(w.Over(second), workflow.Succeeded, workflow.ReasonNone)
	w.order("start "+first, "end "+first, "start "+second, "end "+second)
	if text := w.Timeline(first); !strings.Contains(strings.ToLower(text), "late") {
		t.Errorf("the timeline says nothing of the late result:\n%s", text)
	}
}

// C4, C7: who is cancelled may take its time, and the next waits for its end.
func TestOverlap_CancelledWhileRunning(t *testing.T) {
	t.Parallel()
	w := start(t)
	first, second := w.two(slow)
	if _, err := w.Client.Cancel(t.Context(), first, ""); err != nil {
		t.Fatal(err)
	}
	w.said("interrupted " + first)
	w.waits(second, first)
	w.wants(w.Over(first), workflow.Cancelled, workflow.ReasonCancelled)
	w.wants(w.Over(second), workflow.Succeeded, workflow.ReasonNone)
	w.order("start "+first, "interrupted "+first, "end "+first, "start "+second, "end "+second)
}

// C5, C7: while the control plane is away nothing is stopped and nothing is given on.
func TestOverlap_ControlPlaneAway(t *testing.T) {
	t.Parallel()
	t.Run("the run ends by itself", func(t *testing.T) {
		t.Parallel()
		way := &road{}
		w := start(t, func(c *embedded.UpConfig) { c.Agent.WrapTransport = way.wrap })
		first, second := w.two(engine)
		way.close(everyCall)
		w.clock.advance(11 * time.Minute) // and no pass: the control plane was down
		w.pass()
		w.letGo(first)
		w.said("end " + first)
		w.waits(second, first)
		way.open()
		w.wants(w.Over(first), workflow.Succeeded, workflow.ReasonNone)
		w.wants(w.Over(second), workflow.Succeeded, workflow.ReasonNone)
		w.order("start "+first, "end "+first, "start "+second, "end "+second)
	})
	t.Run("its runner is killed", func(t *testing.T) {
		t.Parallel()
		way := &road{}
		w := start(t, func(c *embedded.UpConfig) { c.Agent.WrapTransport = way.wrap })
		first, second := w.two(stubborn)
		way.close(everyCall)
		w.clock.advance(11 * time.Minute)
		w.pass()
		pid := w.runnerPID(w.Workflow(first).Task)
		w.kill(first)
		uptest.Eventually(t, "the end of the runner", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
		w.waits(second, first)
		way.open()
		w.wants(w.Over(first), workflow.Failed, workflow.ReasonTaskStopped)
		w.Over(second)
		w.order("start "+first, "start "+second)
	})
}
