package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// held is a workspace that upArg's launcher never launches.
const held = "held"

// refusing is a launcher that has no place for one workspace.
type refusing struct{ watched }

func (l refusing) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	if r.Workspace == held {
		return launcher.Task{}, &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "not now"}
	}
	return l.watched.Launch(ctx, r)
}

// playUp is what this binary does when it is started with upArg, a data directory, a source root and a runner:
// it is `up` until it is killed, and prints its address.
func playUp(ctx context.Context, data, sources, runner string, out io.Writer) error {
	three := settings(sources)
	three.Concurrency = 3
	up, err := embedded.OpenUp(ctx, embedded.UpConfig{
		Server: embedded.ServerConfig{Data: data, Listen: "127.0.0.1:0"},
		Agent: embedded.AgentConfig{
			Settings: three, Runner: []string{runner},
			WrapLauncher: func(l launcher.Launcher) launcher.Launcher {
				inner, ok := l.(watched)
				if !ok {
					return l
				}
				return refusing{inner}
			},
		},
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, built.Serving, up.URL())
	return errors.Join(up.Run(ctx), up.Close())
}

// spawnSelf starts this binary as an `up` that is a process of its own.
func (w *world) spawnSelf() *built.Up {
	w.T.Helper()
	self, err := os.Executable()
	if err != nil {
		w.T.Fatal(err)
	}
	return w.Spawn(exec.CommandContext(context.WithoutCancel(w.T.Context()), self, upArg, w.Data, w.Source, runnerBinary(w.T)))
}

// L9: the product, told to stop while workflows run, ends them, hears how they ended, and leaves no
// process and no file.
func TestStop_TheProgramEndsItsWorkOnSIGTERM(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the product")
	}
	t.Parallel()
	w := prepare(t)
	home, temp := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary(t), "up", "--listen", "127.0.0.1:0", "--data", w.Data, "--source-root", w.Source)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + temp}
	p := w.Spawn(cmd)
	w.put("one", map[string]string{"update": waiting, "insights_scan": waiting})
	w.put("two", map[string]string{"update": `: >"$SHARED/late"`})
	ids := []string{w.Update("one"), w.scan("one")}
	uptest.Eventually(t, "both engines", func() bool { return len(w.lines()) == 2 })
	if len(uptest.ProcessesOf(t, w.Data)) == 0 && runtime.GOOS == "linux" {
		t.Fatal("running engines are not found")
	}

	if err := p.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	w.LeftNothing()
	entries, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("a temporary file is left: %s", e.Name())
	}
	w.order("start 1", "start 1", "interrupted 1", "interrupted 1")

	w.open()
	for _, id := range ids {
		got := w.Workflow(id)
		w.wants(got, workflow.Failed, workflow.ReasonInterrupted)
		if got.SlotHeld || got.Attempt != 1 {
			t.Errorf("%s: attempt %d, slot held: %v", id, got.Attempt, got.SlotHeld)
		}
	}
	w.wants(w.Over(w.Update("two")), workflow.Succeeded, workflow.ReasonNone)
}

// L9: the same within a process, where goroutines can be counted.
func TestStop_LeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leak.None(t, before) }) // after everything else is closed
	w := start(t)
	w.put("one", map[string]string{"update": waiting, "preview": "true"})
	w.wants(w.Over(w.Submit(api.Submit{Workspace: "one", Operation: workflow.Preview})), workflow.Succeeded, workflow.ReasonNone)
	w.Update("one")
	w.said("start 1")
	w.Stop()
	w.order("start 1", "interrupted 1")
	w.open()
	page, err := w.Client.Workflows(t.Context(), client.Filter{State: string(workflow.Failed)})
	if err != nil || len(page.Items) != 1 || page.Items[0].Reason != workflow.ReasonInterrupted {
		t.Errorf("got %+v, %v, want one that was interrupted", page.Items, err)
	}
	w.Stop()
}

// L9, C3, C5: whatever `up` was at when it was killed, its runners and engines die with it, and the
// next one goes on as the rules say. Nothing is done twice that must not be.
func TestStop_KilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	w := prepare(t)
	p := w.spawnSelf()
	const effect = `echo "$DAYFLY_WORKFLOW_ID $DAYFLY_ATTEMPT" >>"$EFFECTS"
`
	const untilLetGo = `until [ -e "$SHARED/go-$DAYFLY_WORKFLOW_ID" ]; do sleep 0.05; done
`
	w.put("deployed", map[string]string{"update": effect + untilLetGo})
	w.put("scanned", map[string]string{"insights_scan": effect + `[ "$DAYFLY_ATTEMPT" -gt 1 ] || ` + untilLetGo})
	w.put(held, map[string]string{"update": effect})
	w.put("late", map[string]string{"update": effect})

	running := w.Update("deployed")
	scanned := w.scan("scanned")
	for _, id := range []string{running, scanned} {
		w.said(id + " 1")
	}
	claimed := w.Update(held)
	w.Until(claimed, "a refused launch", func(got api.Workflow) bool {
		return got.State == workflow.Claimed && strings.Contains(w.Timeline(claimed), "not now")
	})
	behind, late := w.Update("deployed"), w.Update("late")
	for _, id := range []string{behind, late} {
		if got := w.Workflow(id); got.State != workflow.Pending {
			t.Errorf("%s of %s is %s", id, got.Workspace, got.State)
		}
	}

	p.Kill()
	// Nobody has cleaned up yet: they die by themselves.
	uptest.Eventually(t, "the end of its processes", func() bool { return len(uptest.ProcessesOf(t, w.Data)) == 0 })

	w.letGo(behind)
	w.open()
	w.wants(w.Over(running), workflow.Failed, workflow.ReasonTaskStopped)
	for id, attempt := range map[string]int{scanned: 2, claimed: 2, behind: 1, late: 1} {
		got := w.Over(id)
		w.wants(got, workflow.Succeeded, workflow.ReasonNone)
		if got.Attempt != attempt {
			t.Errorf("%s of %s: got attempt %d, want %d; timeline:\n%s", id, got.Workspace, got.Attempt, attempt, w.Timeline(id))
		}
	}
	want := []string{running + " 1", scanned + " 1", scanned + " 2", claimed + " 2", behind + " 1", late + " 1"}
	got := w.lines()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got the side effects %q, want %q", got, want)
	}
}

// O15, R5: whatever an engine printed until its runner died with `up` is in the log after the next start, once and in
// order.
func TestStop_KilledInAnApplyLosesNoLineOfItsLog(t *testing.T) {
	t.Parallel()
	w := prepare(t)
	p := w.spawnSelf()
	const lines = 777
	w.put("one", map[string]string{"update": fmt.Sprintf(`for n in $(seq %d); do echo "line $n"; done
until [ -e "$SHARED/never" ]; do sleep 0.05; done
`, lines)})
	id := w.Update("one")
	w.Until(id, "its start", func(wf api.Workflow) bool { return wf.State == workflow.Running })
	spool := filepath.Join(w.Data, embedded.JobsDir, w.Workflow(id).Task, contract.SpoolName)
	uptest.Eventually(t, "the last line in the runner's file", func() bool {
		b, err := os.ReadFile(spool)
		return err == nil && bytes.Contains(b, fmt.Appendf(nil, "line %d", lines))
	})
	if before := strings.Count(w.Log(id, 1), "line "); before == lines {
		t.Log("all of it was sent before the kill") // which then shows nothing
	}
	p.Kill()

	w.open()
	got := w.Over(id)
	w.wants(got, workflow.Failed, workflow.ReasonTaskStopped)
	why, err := w.Client.Why(t.Context(), id)
	if err != nil || !strings.HasPrefix(got.Detail, "dayfly was stopped or killed while the run was in progress, and the run ended with it") || !strings.Contains(why.Next, "half changed, and lack what was made in its last 20 seconds: compare a preview (dayfly run one)") {
		t.Errorf("it failed with %q, and next is %q, %v", got.Detail, why.Next, err)
	}
	var want strings.Builder
	for n := range lines {
		_, _ = fmt.Fprintf(&want, "line %d\n", n+1)
	}
	if log := w.Log(id, 1); !strings.HasSuffix(log, want.String()) || strings.Count(log, "line ") != lines {
		t.Errorf("got %d lines, want %d; the log ends with %q", strings.Count(log, "line "), lines, log[max(0, len(log)-200):])
	}
}

// C10: the agent of dayfly up makes itself a new token where that of its pool was rotated.
func TestUp_GoesOnAfterTheTokenOfItsPoolWasRotated(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.put("good", map[string]string{"update": "true"})
	if _, err := w.Client.RotatePoolToken(t.Context(), "default", api.RotateToken{}); err != nil {
		t.Fatal(err)
	}
	w.Over(w.Update("good"))
}
