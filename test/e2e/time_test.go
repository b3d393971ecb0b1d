package e2e_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ports"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// deaf is a launcher that does not notice how tasks end, while it is deaf: what has stopped seems to
// run.
type deaf struct {
	watched
	hears atomic.Bool
}

func (l *deaf) heard(tasks []launcher.Task, err error) ([]launcher.Task, error) {
	if l.hears.Load() {
		return tasks, err
	}
	for i := range tasks {
		tasks[i].Phase, tasks[i].ExitCode, tasks[i].Text = launcher.Running, nil, ""
	}
	return tasks, err
}

func (l *deaf) List(ctx context.Context) ([]launcher.Task, error) {
	return l.heard(l.watched.List(ctx))
}

func (l *deaf) Describe(ctx context.Context, refs ...string) ([]launcher.Task, error) {
	return l.heard(l.watched.Describe(ctx, refs...))
}

func (l *deaf) Watch(ctx context.Context, stopped func(context.Context, launcher.Task)) error {
	return l.watched.Watch(ctx, func(ctx context.Context, t launcher.Task) {
		if l.hears.Load() {
			stopped(ctx, t)
		}
	})
}

func (l *deaf) wrap(t *testing.T) func(*embedded.UpConfig) {
	return func(c *embedded.UpConfig) {
		c.Agent.WrapLauncher = func(inner launcher.Launcher) launcher.Launcher {
			w, ok := inner.(watched)
			if !ok {
				t.Fatal("the launcher hears of no ends")
			}
			l.watched = w
			return l
		}
	}
}

// A second attempt ends by itself; a first one waits for its end.
const secondAttempt = `say() { echo "$1 $DAYFLY_ATTEMPT" >>"$EFFECTS"; }
say start
[ "$DAYFLY_ATTEMPT" -gt 1 ] || sleep 1000
say end
`

// waiting says that it has started, and on an interrupt that it was interrupted.
const waiting = `say() { echo "$1 $DAYFLY_ATTEMPT" >>"$EFFECTS"; }
trap 'say interrupted; exit 130' INT
say start
while :; do sleep 0.1; done
`

// C3, C5: what only reads is run again when its runner dies, whether its end is seen or only its
// silence is heard.
func TestTime_ScanOfADeadRunnerRunsAgain(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{true, false} {
		t.Run(map[bool]string{true: "its end is seen", false: "its silence is heard"}[seen], func(t *testing.T) {
			t.Parallel()
			l := &deaf{}
			l.hears.Store(seen)
			w := start(t, l.wrap(t))
			w.put("one", map[string]string{"insights_scan": secondAttempt})
			id := w.scan("one")
			w.said("start 1")
			w.kill(id)
			if !seen {
				w.minutes(9)
				if got := w.Workflow(id); got.State != workflow.Running {
					t.Errorf("after 9 minutes it is %s", got.State)
				}
				w.minutes(2)
			}
			got := w.Over(id)
			w.wants(got, workflow.Succeeded, workflow.ReasonNone)
			if got.Attempt != 2 {
				t.Errorf("got attempt %d", got.Attempt)
			}
			w.order("start 1", "start 2", "end 2")
			l.hears.Store(true)
		})
	}
}

// C3, C5: a deployment is never run again once it has started.
func TestTime_DeadDeploymentFailsAndIsNotRunAgain(t *testing.T) {
	t.Parallel()
	t.Run("its end is seen", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		w.put("one", map[string]string{"update": waiting})
		id := w.Update("one")
		w.said("start 1")
		w.kill(id)
		w.wants(w.Over(id), workflow.Failed, workflow.ReasonTaskStopped)
		w.minutes(30)
		w.stays(id, "start 1")
	})
	t.Run("its silence is heard", func(t *testing.T) {
		t.Parallel()
		l := &deaf{}
		w := start(t, l.wrap(t))
		w.put("one", map[string]string{"update": waiting})
		id := w.Update("one")
		w.said("start 1")
		w.kill(id)
		w.minutes(9)
		if got := w.Workflow(id); got.State != workflow.Running {
			t.Errorf("after 9 minutes it is %s", got.State)
		}
		w.minutes(2)
		got := w.Workflow(id)
		w.wants(got, workflow.Failed, workflow.ReasonRunnerLost)
		if !got.SlotHeld {
			t.Error("the workspace is free although nothing proves the end of its task")
		}
		w.minutes(30)
		if !w.Workflow(id).SlotHeld {
			t.Error("the workspace is free half an hour later, and nothing proves the end of its task")
		}
		l.hears.Store(true)
		w.wants(w.Over(id), workflow.Failed, workflow.ReasonRunnerLost)
		w.stays(id, "start 1")
	})
}

// stays checks that an ended deployment had one attempt and that its side effects are these.
func (w *world) stays(id string, want ...string) {
	w.T.Helper()
	// Another run of the workspace goes through, and brings nothing of the first one back.
	w.put("one", map[string]string{"update": `echo next >>"$EFFECTS"`})
	w.wants(w.Over(w.Update("one")), workflow.Succeeded, workflow.ReasonNone)
	if got := w.Workflow(id); got.Attempt != 1 || got.State != workflow.Failed {
		w.T.Errorf("it is %s, attempt %d", got.State, got.Attempt)
	}
	w.order(append(want, "next")...)
}

// C5: a control plane that was away is not deaf ears of its runners. It really is away: its process
// part ends and begins again, while agent and runner go on.
func TestTime_RunsSurviveControlPlaneOutage(t *testing.T) {
	t.Parallel()
	w := prepare(t)
	c := w.config()
	open := func(listen string) (s *embedded.Server, stop func()) {
		t.Helper()
		c.Server.Listen = listen
		s, err := embedded.OpenServer(t.Context(), c.Server)
		if err != nil {
			t.Fatal(err)
		}
		return s, uptest.Running(t, "the control plane", s.Run, s.Close)
	}
	address, err := ports.Free(t.Context()) // it comes back there
	if err != nil {
		t.Fatal(err)
	}
	s, stopServer := open(address)
	pool, err := s.Plane().EnsurePoolToken(t.Context(), "default", "default", "test")
	if err != nil {
		t.Fatal(err)
	}
	c.Agent.Settings.WorkingDirectory = filepath.Join(filepath.Dir(w.Data), "agent")
	c.Agent.Settings.ServiceURL, c.Agent.Settings.Token = s.URL(), redact.New(pool)
	a, err := embedded.OpenAgent(t.Context(), c.Agent)
	if err != nil {
		t.Fatal(err)
	}
	stopAgent := uptest.Running(t, "the agent", a.Run, a.Close)
	w.Serves(s)
	state := func(in *api.Workspace) { in.State = &api.State{Kind: api.StateDirectory} }
	const untilTold = `echo "start $DAYFLY_WORKFLOW_ID" >>"$EFFECTS"
until [ -e "$SHARED/go-$DAYFLY_WORKFLOW_ID" ]; do sleep 0.05; done
`
	w.put("one", map[string]string{"update": untilTold, "insights_scan": untilTold}, state)
	w.put("two", map[string]string{"update": untilTold}, state)
	ids := []string{w.Update("one"), w.scan("one"), w.Update("two")}
	for _, id := range ids {
		w.said("start " + id)
	}

	stopServer()
	w.clock.advance(11 * time.Minute)
	w.letGo(ids[2]) // one ends meanwhile, and keeps its result
	s, stopServer = open(address)
	w.Serves(s)
	for range 9 { // a pass for each minute: silence is counted from here
		if _, err := s.Plane().Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if got := w.Workflow(id); got.State != workflow.Running && got.State != workflow.Succeeded {
				t.Fatalf("%s is %s (%s): %s", id, got.State, got.Reason, got.Detail)
			}
		}
		w.clock.advance(time.Minute)
	}
	w.letGo(ids[0])
	w.letGo(ids[1])
	for _, id := range ids {
		got := w.Over(id)
		w.wants(got, workflow.Succeeded, workflow.ReasonNone)
		if got.Attempt != 1 {
			t.Errorf("%s: got attempt %d", id, got.Attempt)
		}
	}
	stopAgent()
	stopServer()
}

// C6: the runner ends what runs too long, gently.
func TestTime_DeadlineInterruptsTheEngine(t *testing.T) {
	t.Parallel()
	w := start(t)
	// On a busy machine the time may be up before there is an engine: it gets more, until there is one.
	for most := 2 * time.Second; ; most *= 4 {
		w.put("one", map[string]string{"update": waiting}, func(in *api.Workspace) { in.MaxRuntime = most.String() })
		got := w.Over(w.Update("one"))
		w.wants(got, workflow.Failed, workflow.ReasonDeadline)
		if ran := got.EndedAt.Sub(*got.StartedAt); ran < most/2 { // the runner's time began when it asked
			t.Errorf("it was ended after %s of %s", ran, most)
		}
		if w.has("start 1") || most > built.Patience {
			break
		}
	}
	w.order("start 1", "interrupted 1")
}

// C4: who is cancelled while it runs gets an interrupt, and ends as cancelled.
func TestTime_CancelInterruptsTheEngine(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.put("one", map[string]string{"update": waiting, "insights_scan": waiting})
	for _, id := range []string{w.Update("one"), w.scan("one")} {
		w.Until(id, "the start of "+id, func(got api.Workflow) bool { return got.State == workflow.Running })
	}
	uptest.Eventually(t, "both engines", func() bool { return len(w.lines()) == 2 })
	page, err := w.Client.Workflows(t.Context(), client.Filter{State: string(workflow.Running)})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("got %d running, %v", len(page.Items), err)
	}
	for _, wf := range page.Items {
		if _, err := w.Client.Cancel(t.Context(), wf.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, wf := range page.Items {
		got := w.Over(wf.ID)
		w.wants(got, workflow.Cancelled, workflow.ReasonCancelled)
		if got.Attempt != 1 {
			t.Errorf("%s: got attempt %d", wf.ID, got.Attempt)
		}
	}
	w.order("start 1", "start 1", "interrupted 1", "interrupted 1")
}
