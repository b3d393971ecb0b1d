package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/launches"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakeecs "github.com/dayfly-dev/dayfly/test/awsim/ecs"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
	"github.com/dayfly-dev/dayfly/test/poolstack"
)

// directWorld is a pool's stack whose poller launches, with a clock of its queue that is set by hand.
type directWorld struct {
	*poolstack.Stack
	ecs   *fakeecs.Service
	pairs []string

	mu    sync.Mutex
	now   time.Time
	calls []string // RunTask, as it was called
}

func newDirectWorld(t *testing.T) *directWorld {
	t.Helper()
	w := &directWorld{now: time.Now()}
	var err error
	w.ecs, err = fakeecs.New(fakeecs.Config{Clusters: []string{"cluster"}, Runner: fakeecs.Func(fakeecs.UntilStopped)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.ecs.Close)
	definition := w.ecs.Define(fakeecs.Definition{Family: "runner", Containers: []fakeecs.Container{{Name: "runner", Image: "runner"}}})
	clock := func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now }
	w.Stack = poolstack.New(t, map[string]awsim.Service{"ecs": w.ecs, "sqs": &fakesqs.Service{Now: clock}})
	w.pairs = []string{
		"DAYFLY_DIRECT_LAUNCH", "true", "DAYFLY_CLUSTER", "cluster", "DAYFLY_TASK_DEFINITION", definition, "DAYFLY_CONTAINER", "runner",
		"DAYFLY_SUBNETS", "subnet-0000000000000000a,subnet-0000000000000000b", "DAYFLY_SECURITY_GROUPS", "sg-00000000000000001",
		"DAYFLY_TASK_TAGS", "cost-center=4711", "DAYFLY_RELAY_URL", "https://status.example.com/status",
	}
	w.AWS.Inject(wire.Fault{Service: "ecs", Operation: "RunTask", Before: func(c wire.Call) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, string(c.Body))
		return nil
	}})
	return w
}

// dispatch lets the delay of the messages pass and hands them to a dispatcher that is told the same as the poller.
func (w *directWorld) dispatch(t *testing.T) (out []dispatcher.Disposition) {
	t.Helper()
	w.mu.Lock()
	w.now = w.now.Add(30 * time.Second)
	w.mu.Unlock()
	env := boot.Read(w.Env(w.pairs...))
	aws, tasks := env.AWS(), launches.Tasks(env)
	cfg := launches.Dispatcher(env, tasks, 1)
	upstream, err := boot.ControlPlane(env.URL("DAYFLY_SERVICE_URL", ""), boot.SecretsManager(aws, "the pool token", poolstack.TokenSecret))
	if err != nil {
		t.Fatal(err)
	}
	to, err := ecs.New(awsecs.NewFromConfig(aws), tasks)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatcher.New(nil, to, upstream, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range w.Receive(t.Context(), w.Jobs) {
		out = append(out, d.Handle(t.Context(), queue.Message{ID: *m.MessageId, Body: []byte(*m.Body), Receives: 1}))
	}
	return out
}

// Whatever becomes of a direct launch, its job has one task, which the control plane knows after its message was
// handled at the latest; and poller and dispatcher make the same call, byte for byte.
func TestHandle_ADirectLaunchAndItsMessageAreOneTask(t *testing.T) {
	once := func(err error) wire.Fault { return wire.Fault{Times: 1, Before: wire.Fail(err)} }
	for name, tc := range map[string]struct {
		fault    wire.Fault
		launched bool // by the poller, as far as the control plane knows
		calls    int  // of RunTask, by both together
	}{
		"it is taken":         {wire.Fault{Times: 1, Delay: time.Millisecond}, true, 1},
		"its answer is lost":  {wire.Fault{Times: 1, After: wire.Fail(wire.Drop)}, false, 2},
		"there is no room":    {once(&wire.Error{Status: 400, Code: "ClientException", Message: "Capacity is unavailable at this time. Please try again later or in a different availability zone"}), false, 2},
		"it is throttled":     {once(&wire.Error{Status: 400, Code: "ThrottlingException", Message: "Rate exceeded"}), false, 2},
		"it is not permitted": {once(&wire.Error{Status: 400, Code: "AccessDeniedException", Message: "not authorized to perform: iam:PassRole"}), false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDirectWorld(t)
			tc.fault.Service, tc.fault.Operation = "ecs", "RunTask"
			w.AWS.Inject(tc.fault)
			id := w.Submit(t.Context(), "net", 1)[0]
			if err := start(t, w.Env(w.pairs...)).handle(t.Context(), event(t, "wake.json")); err != nil {
				t.Fatal(err)
			}
			if got := w.State(t.Context(), id); got.State != workflow.Claimed || got.Task != "" != tc.launched {
				t.Errorf("after the poller: %s with task %q", got.State, got.Task)
			}
			if early := w.Receive(t.Context(), w.Jobs); len(early) != 0 {
				t.Fatalf("%d messages come at once", len(early))
			}
			out := w.dispatch(t)
			if len(out) != 1 || !out[0].Delete {
				t.Fatalf("of its message: %+v", out)
			}
			if got := w.State(t.Context(), id); got.State != workflow.Claimed || got.Task == "" || len(w.ecs.Tasks()) != 1 {
				t.Errorf("at the end: %s with task %q, of %d", got.State, got.Task, len(w.ecs.Tasks()))
			}
			if len(w.calls) != tc.calls {
				t.Errorf("%d calls of RunTask, want %d", len(w.calls), tc.calls)
			}
			for _, c := range w.calls {
				if c != w.calls[0] {
					t.Errorf("two different calls:\n%s\n%s", w.calls[0], c)
				}
			}
		})
	}
}

// What was cancelled after its claim is launched at most once, and not by the dispatcher.
func TestHandle_ACancelledDirectLaunchIsNotRepeated(t *testing.T) {
	w := newDirectWorld(t)
	id := w.Submit(t.Context(), "net", 1)[0]
	w.AWS.Inject(wire.Fault{Service: "ecs", Operation: "RunTask", Before: func(wire.Call) error {
		_, err := w.Plane.Cancel(context.Background(), w.Admin, id, api.WithReason{}) // between the claim and the launch
		return err
	}})
	if err := start(t, w.Env(w.pairs...)).handle(t.Context(), event(t, "wake.json")); err != nil {
		t.Fatal(err)
	}
	out := w.dispatch(t)
	if len(out) != 1 || !out[0].Delete || len(w.calls) != 1 || w.State(t.Context(), id).State != workflow.Cancelled {
		t.Errorf("%+v after %d calls, %s", out, len(w.calls), w.State(t.Context(), id).State)
	}
}

// A burst goes to the queue, but for the poller's share, and what comes while the queue is long goes there too.
func TestHandle_LaunchesItsShareOfABurst(t *testing.T) {
	w := newDirectWorld(t)
	ids := w.Submit(t.Context(), "net", 25)
	f := start(t, w.Env(w.pairs...))
	if err := f.handle(t.Context(), event(t, "wake.json")); err != nil {
		t.Fatal(err)
	}
	direct := len(w.ecs.Tasks())
	if direct < 2 || direct > 10 { // 2.5 a second of the pool's 20
		t.Errorf("%d launched directly", direct)
	}
	if got := queued(t, w.Stack); len(got) != len(ids)-direct {
		t.Errorf("%d wait in the queue, want the other %d", len(got), len(ids)-direct)
	}
	w.mu.Lock()
	w.now = w.now.Add(30 * time.Second)
	w.mu.Unlock()
	if got := queued(t, w.Stack); len(got) != direct {
		t.Errorf("%d come later, want %d", len(got), direct)
	}
}

func TestBuild_ReadsHowToLaunchOnlyWhereThePollerDoes(t *testing.T) {
	w := newDirectWorld(t)
	without := append(slices.Clone(w.pairs), "DAYFLY_CLUSTER", "", "DAYFLY_RELAY_URL", "nowhere")
	if _, err := build(w.Env(without...)); err == nil || !strings.Contains(err.Error(), "DAYFLY_CLUSTER") || !strings.Contains(err.Error(), "DAYFLY_RELAY_URL") {
		t.Errorf("%v: want what is missing named", err)
	}
	if _, err := build(w.Env(append(without, "DAYFLY_DIRECT_LAUNCH", "")...)); err != nil {
		t.Errorf("a stack without direct launches: %v", err)
	}
}
