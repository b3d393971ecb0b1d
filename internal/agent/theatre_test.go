package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// theatre is a launcher whose tasks are goroutines that speak the runner's protocol through the relay.
type theatre struct {
	mu           sync.Mutex
	wg           sync.WaitGroup
	tasks        map[string]*actor // by ref
	keys         map[string]string // request to ref
	acknowledged map[string]bool   // by ref: whose end nobody needs to be told
	changed      chan struct{}
	most         int // tasks that lived at once
	calls        int

	double  bool                                      // two boots of each task
	lose    func(n int) bool                          // whose answer is lost, though the task starts
	refuse  func(r launcher.Request) error            // instead of a launch
	engine  func(ctx context.Context, a *actor) error // what a started run does; nil returns at once
	effects map[string]int                            // engines that ran, by workflow
	beaten  map[string]int                            // heartbeats whose answer said nothing of a cancellation, by workflow
}

// actor is one task.
type actor struct {
	request launcher.Request
	task    launcher.Task
	stop    chan struct{} // closed by Stop
	kill    context.CancelFunc
	beats   chan api.Control // answers to heartbeats
}

func newTheatre() *theatre {
	return &theatre{tasks: map[string]*actor{}, keys: map[string]string{}, acknowledged: map[string]bool{}, effects: map[string]int{}, beaten: map[string]int{}, changed: make(chan struct{})}
}

func (th *theatre) Launch(_ context.Context, r launcher.Request) (launcher.Task, error) {
	th.mu.Lock()
	defer th.mu.Unlock()
	n := th.calls
	th.calls++
	if th.refuse != nil {
		if err := th.refuse(r); err != nil {
			return launcher.Task{}, err
		}
	}
	k := fmt.Sprintf("%s/%d/%s", r.Workflow, r.Attempt, r.Placement)
	if ref, ok := th.keys[k]; ok {
		return th.tasks[ref].task, nil
	}
	ref := fmt.Sprintf("act-%d", len(th.tasks))
	ctx, kill := context.WithCancel(context.Background())
	a := &actor{
		request: r, stop: make(chan struct{}), kill: kill, beats: make(chan api.Control, 1),
		task: launcher.Task{Ref: ref, Workflow: r.Workflow, Attempt: r.Attempt, Phase: launcher.Running, CreatedAt: time.Now()},
	}
	th.keys[k], th.tasks[ref] = ref, a
	live := 0
	for _, t := range th.tasks {
		if t.task.Phase != launcher.Stopped {
			live++
		}
	}
	th.most = max(th.most, live)
	boots := 1
	if th.double {
		boots = 2
	}
	var playing sync.WaitGroup
	codes := make([]int, boots)
	for b := range boots {
		playing.Go(func() { codes[b] = th.play(ctx, a, fmt.Sprintf("%016x%016x", len(ref)*100+n, b)) })
	}
	th.wg.Go(func() {
		playing.Wait()
		kill()
		th.mu.Lock()
		defer th.mu.Unlock()
		code := slices.Max(codes)
		a.task.Phase, a.task.ExitCode, a.task.Text = launcher.Stopped, &code, "the act is over"
		close(th.changed)
		th.changed = make(chan struct{})
	})
	if th.lose != nil && th.lose(n) {
		return launcher.Task{}, errors.New("the answer was lost")
	}
	return a.task, nil
}

// play is one boot of a task. It returns the exit code.
func (th *theatre) play(ctx context.Context, a *actor, boot string) int {
	relay := a.request.Relay
	hc, done := newHTTPClient()
	if socket, ok := strings.CutPrefix(relay, "unix://"); ok {
		relay = "http://relay"
		hc, done = newSocketClient(socket)
	}
	defer done()
	r, err := client.NewRunner(client.RunnerConfig{
		URL: relay, Credential: redact.New(a.request.Ticket), HTTPClient: hc,
		Run: api.Run{Workflow: a.request.Workflow, Attempt: a.request.Attempt, Task: a.task.Ref, Boot: boot},
	})
	if err != nil {
		return 1
	}
	for {
		_, err := r.Start(ctx)
		if err == nil {
			break
		}
		if client.RunOver(err) {
			return 0
		}
		select {
		case <-a.stop:
			return 1
		case <-ctx.Done():
			return 1
		case <-time.After(20 * time.Millisecond):
		}
	}
	th.mu.Lock()
	th.effects[a.request.Workflow]++
	th.mu.Unlock()

	beating, stopBeating := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() {
		for beating.Err() == nil {
			c, err := r.Heartbeat(beating, api.Heartbeat{Step: "act"})
			switch {
			case err != nil:
				select {
				case <-beating.Done():
				case <-time.After(20 * time.Millisecond):
				}
			case c.Cancel:
				select {
				case a.beats <- c:
				default:
				}
				return
			default:
				th.mu.Lock()
				th.beaten[a.request.Workflow]++
				th.mu.Unlock()
			}
		}
	})
	result := api.Result{Outcome: workflow.Succeeded}
	if th.engine != nil {
		switch err := th.engine(ctx, a); {
		case errors.Is(err, errCrash):
			stopBeating()
			beats.Wait()
			return 137
		case errors.Is(err, errCancelled):
			result = api.Result{Outcome: workflow.Cancelled, Reason: workflow.ReasonCancelled}
		case err != nil:
			result = api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonInterrupted, Detail: err.Error()}
		}
	}
	stopBeating()
	beats.Wait()
	for ctx.Err() == nil {
		if _, err := r.Result(ctx, result); err == nil || client.RunOver(err) {
			return 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return 1
}

var (
	errCrash     = errors.New("crash")
	errCancelled = errors.New("cancelled")
)

// quiet is how many heartbeats of a workflow were answered without a word of a cancellation.
func (th *theatre) quiet(workflow string) int {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.beaten[workflow]
}

func (th *theatre) snapshot() []launcher.Task {
	var out []launcher.Task
	for _, ref := range slices.Sorted(maps.Keys(th.tasks)) {
		if !th.acknowledged[ref] {
			out = append(out, th.tasks[ref].task)
		}
	}
	return out
}

func (th *theatre) List(context.Context) ([]launcher.Task, error) {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.snapshot(), nil
}

func (th *theatre) Describe(_ context.Context, refs ...string) ([]launcher.Task, error) {
	th.mu.Lock()
	defer th.mu.Unlock()
	var out []launcher.Task
	for _, ref := range refs {
		if a, ok := th.tasks[ref]; ok {
			out = append(out, a.task)
		}
	}
	return out, nil
}

func (th *theatre) Stop(_ context.Context, ref, _ string) error {
	th.mu.Lock()
	defer th.mu.Unlock()
	a, ok := th.tasks[ref]
	if !ok {
		return launcher.ErrNotFound
	}
	if a.task.Phase == launcher.Running {
		a.task.Phase = launcher.Stopping
		close(a.stop)
	}
	return nil
}

func (th *theatre) Acknowledge(ref string) {
	th.mu.Lock()
	defer th.mu.Unlock()
	th.acknowledged[ref] = true
}

// Watch says everything twice: at least once is all that is promised.
func (th *theatre) Watch(ctx context.Context, stopped func(context.Context, launcher.Task)) error {
	told := map[string]bool{}
	for {
		th.mu.Lock()
		changed, tasks := th.changed, th.snapshot()
		th.mu.Unlock()
		for _, t := range tasks {
			if t.Phase == launcher.Stopped && !told[t.Ref] {
				told[t.Ref] = true
				stopped(ctx, t)
				stopped(ctx, t)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// close asks every task to stop and waits until all have ended, or ctx has.
func (th *theatre) close(ctx context.Context) error {
	for {
		th.mu.Lock()
		changed, tasks := th.changed, th.snapshot()
		th.mu.Unlock()
		live := 0
		for _, t := range tasks {
			if t.Phase != launcher.Stopped {
				live++
				_ = th.Stop(ctx, t.Ref, "closing") // one that ended meanwhile is not there to stop
			}
		}
		if live == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d tasks live: %w", live, context.Cause(ctx))
		case <-changed:
		}
	}
}

// end kills what lives and waits for it.
func (th *theatre) end() {
	th.mu.Lock()
	for _, a := range th.tasks {
		a.kill()
	}
	th.mu.Unlock()
	th.wg.Wait()
}
