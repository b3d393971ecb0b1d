package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// watched is a launcher that hears of ends by itself.
type watched interface {
	launcher.Launcher
	launcher.Watcher
	launcher.Spooler
}

// twice starts every task two times, and tells of one of them only: in turn the first and the second.
type twice struct {
	watched
	n atomic.Int64

	mu     sync.Mutex
	refs   []string // of all tasks
	strays []string
}

func (l *twice) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	stray := r
	stray.Placement += "-again"
	early := l.n.Add(1)%2 == 0
	if early {
		l.stray(ctx, stray)
	}
	task, err := l.watched.Launch(ctx, r)
	if !early {
		l.stray(ctx, stray)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refs = append(l.refs, task.Ref)
	return task, err
}

func (l *twice) stray(ctx context.Context, r launcher.Request) {
	task, err := l.watched.Launch(ctx, r)
	if err != nil {
		return // it is counted at the end
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strays, l.refs = append(l.strays, task.Ref), append(l.refs, task.Ref)
}

func (l *twice) started() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.strays)
}

// many is more in a long hunt than in CI.
var many = flag.Int("workflows", 100, "how many workflows are run with every message and every task twice")

// C1, C2: each message comes twice and each task is started twice; what a workflow does is done once.
func TestExactlyOneStart_WithDuplicateMessagesAndTasks(t *testing.T) {
	t.Parallel()
	const workspaces = 50
	workflows := *many
	if testing.Short() {
		workflows = 100
	}
	product := ""
	if !testing.Short() {
		product = binary(t)
	}
	double := &twice{}
	w := start(t, func(c *embedded.UpConfig) {
		c.Agent.Settings.Concurrency = workspaces
		if !testing.Short() { // so many runs of a binary with the race detector take too long
			c.Agent.Runner = []string{product, "runner"}
		}
		c.Agent.WrapQueue = func(queue.Queue) queue.Queue {
			q, err := memory.New(memory.Config{Duplicate: true})
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		c.Agent.WrapLauncher = func(l launcher.Launcher) launcher.Launcher {
			inner, ok := l.(watched)
			if !ok {
				t.Fatal("the launcher hears of no ends")
			}
			double.watched = inner
			return double
		}
	})
	for i := range workspaces {
		w.put(fmt.Sprintf("ws-%d", i), map[string]string{"update": `echo "$DAYFLY_WORKFLOW_ID $DAYFLY_ATTEMPT" >>"$EFFECTS"`})
	}
	ids := make([]string, workflows)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(4)
	for i := range ids {
		group.Go(func() error {
			out, err := w.Client.Submit(ctx, api.Submit{Workspace: fmt.Sprintf("ws-%d", i%workspaces), Operation: workflow.Update})
			ids[i] = out.ID
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	uptest.Grows(t, "side effects", workflows, func() int { return len(w.lines()) })
	uptest.Eventually(t, "every workflow over and every slot free", func() bool {
		page, err := w.Client.Workflows(t.Context(), client.Filter{State: "active", Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Items) > 0 {
			return false
		}
		page, err = w.Client.Workflows(t.Context(), client.Filter{State: string(workflow.Pending), Limit: 1})
		return err == nil && len(page.Items) == 0
	})

	times := map[string]int{}
	for _, line := range w.lines() {
		times[line]++
	}
	ended := map[string]api.Workflow{}
	for filter := (client.Filter{Limit: 100}); ; {
		page, err := w.Client.Workflows(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, wf := range page.Items {
			ended[wf.ID] = wf
		}
		if filter.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	for _, id := range ids {
		got := ended[id]
		if got.State != workflow.Succeeded || got.SlotHeld || got.Attempt != 1 {
			w.wants(got, workflow.Succeeded, workflow.ReasonNone)
		}
		if n := times[id+" 1"]; n != 1 {
			t.Errorf("workflow %s was run %d times; timeline:\n%s", id, n, w.Timeline(id))
		}
	}
	if got := len(w.lines()); got != workflows {
		t.Errorf("got %d side effects of %d workflows", got, workflows)
	}
	// That nothing was done twice counts only if everything could have been. The second of two may be started when what
	// the first did is over.
	uptest.Eventually(t, "the second start of every task", func() bool { return double.started() >= workflows })
	pool, err := w.Client.Pool(t.Context(), "default")
	if err != nil || pool.Active != 0 {
		t.Errorf("the pool has %d active workflows, %v", pool.Active, err)
	}
	// Who was refused the start has gone by itself, and in peace.
	uptest.Eventually(t, "the end of every task", func() bool { return !slices.ContainsFunc(double.tasks(t), live) })
	for _, task := range double.tasks(t) {
		if task.ExitCode == nil || *task.ExitCode != 0 {
			t.Errorf("task %s of %s: %s", task.Ref, task.Workflow, task.Text)
		}
	}
}

func live(task launcher.Task) bool { return task.Phase != launcher.Stopped }

func (l *twice) tasks(t *testing.T) []launcher.Task {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	tasks, err := l.Describe(t.Context(), l.refs...)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}
