package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

var (
	_ dispatcher.Queue    = queue.Queue(nil)
	_ dispatcher.Launcher = launcher.Launcher(nil)
)

var sent = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a control plane and a launcher, both with faults on demand.
type world struct {
	mu       sync.Mutex
	now      time.Time
	states   map[string]api.JobState
	stateErr error
	reports  []api.Launch
	reported []string // the jobs of the reports
	// reportErr and launchErr are asked with the number of the call, from 0.
	reportErr func(n int) error
	launchErr func(n int, r launcher.Request) error
	asked     []string // placements, in the order in which they were asked for
	tasks     map[string]launcher.Task
	onLaunch  func(ctx context.Context)
	log       strings.Builder
}

func newWorld() *world {
	return &world{now: sent.Add(time.Second), tasks: map[string]launcher.Task{}, states: map[string]api.JobState{
		"wf_1": {ID: "wf_1", Known: true, State: workflow.Claimed, Attempt: 2, Active: true},
	}}
}

func (w *world) States(_ context.Context, in api.StatesQuery) (api.States, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out api.States
	for _, id := range in.IDs {
		s, ok := w.states[id]
		if !ok {
			s = api.JobState{ID: id}
		}
		out.Jobs = append(out.Jobs, s)
	}
	return out, w.stateErr
}

// reporter gives the world's Launch of an upstream; the other Launch is the launcher's.
type reporter struct{ *world }

func (w reporter) Launch(ctx context.Context, id string, in api.Launch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n := len(w.reports)
	w.reports, w.reported = append(w.reports, in), append(w.reported, id)
	if w.reportErr != nil {
		if err := w.reportErr(n); err != nil {
			return err
		}
	}
	job := w.states[id]
	job.PendingPlacement = in.Placement // of a refusal, what may have been taken; nothing after a launch
	job.Task = in.Task
	w.states[id] = job
	return nil
}

func (w *world) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	w.mu.Lock()
	n := len(w.asked)
	w.asked = append(w.asked, r.Placement)
	hook := w.onLaunch
	w.mu.Unlock()
	if hook != nil {
		hook(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := fmt.Sprintf("%s/%d/%s", r.Workflow, r.Attempt, r.Placement)
	task, ok := w.tasks[k]
	if !ok {
		task = launcher.Task{Ref: "task-" + k, Workflow: r.Workflow, Attempt: r.Attempt, Phase: launcher.Running}
	}
	if w.launchErr != nil {
		if err := w.launchErr(n, r); err != nil {
			if refusal, ok := errors.AsType[*launcher.Refusal](err); !ok || refusal.Unknown {
				w.tasks[k] = task // the answer was lost, the task was not
			}
			return launcher.Task{}, err
		}
	}
	w.tasks[k] = task
	return task, nil
}

func (w *world) dispatcher(t *testing.T, q dispatcher.Queue, cfg dispatcher.Config) *dispatcher.Dispatcher {
	t.Helper()
	cfg.Relay = func(string) string { return "http://127.0.0.1:7" }
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if cfg.Now == nil {
		cfg.Now = func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now }
	}
	d, err := dispatcher.New(q, w, reporter{w}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func message(t *testing.T, change ...func(*api.LaunchMessage)) queue.Message {
	t.Helper()
	m := api.LaunchMessage{
		Needs: task.Needs{
			Attempt: 2, Organization: "default", Workspace: "net", Pool: "main", Size: "medium", StateKind: api.StateDirectory, StateKey: "ws_net", MaxRuntimeSeconds: 1800,
		},
		Ticket: "sealed", Job: "wf_1", Type: workflow.Deployment, Operation: workflow.Update, SentAtMS: sent.UnixMilli(), LaunchSeconds: 3600,
	}
	for _, c := range change {
		c(&m)
	}
	body, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return queue.Message{ID: "m1", Body: body, Receipt: "r1", Receives: 1}
}

func three(api.LaunchMessage) []string { return []string{"a", "b", "c"} }

func refuse(reason workflow.Reason) error {
	return &launcher.Refusal{Reason: reason, Text: "not now: " + string(reason)}
}

func TestHandle_LaunchesReportsAndDeletes(t *testing.T) {
	w := newWorld()
	var got launcher.Request
	w.launchErr = func(_ int, r launcher.Request) error { got = r; return nil }
	out := w.dispatcher(t, nil, dispatcher.Config{}).Handle(t.Context(), message(t))
	want := dispatcher.Disposition{Delete: true, Why: "launched", Job: "wf_1", Attempt: 2, Task: "task-wf_1/2/default"}
	if d := cmp.Diff(want, out); d != "" {
		t.Errorf("disposition (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]api.Launch{{Attempt: 2, Kind: api.LaunchAccepted, Task: "task-wf_1/2/default"}}, w.reports); d != "" {
		t.Errorf("reports (-want +got):\n%s", d)
	}
	if d := cmp.Diff(launcher.Request{
		Needs: task.Needs{
			Attempt: 2, Organization: "default", Workspace: "net", Pool: "main", Size: "medium", StateKind: api.StateDirectory, StateKey: "ws_net", MaxRuntimeSeconds: 1800,
		},
		Workflow: "wf_1", Placement: "default", Ticket: "sealed", Relay: "http://127.0.0.1:7", States: task.StateDirs{Own: "default/ws_net", Required: true},
	}, got); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
	if strings.Contains(w.log.String(), "sealed") {
		t.Errorf("the ticket is in the log:\n%s", w.log.String())
	}
}

// L6: cancelled, superseded and finished jobs are not launched.
func TestHandle_DropsWhatIsNotWanted(t *testing.T) {
	for name, tc := range map[string]api.JobState{
		"cancelled while claimed": {ID: "wf_1", Known: true, State: workflow.Cancelled, Attempt: 2},
		"to be cancelled":         {ID: "wf_1", Known: true, State: workflow.Claimed, Attempt: 2, Active: true, Cancel: true},
		"its lease has lapsed":    {ID: "wf_1", Known: true, State: workflow.Pending, Attempt: 2},
		"a later attempt":         {ID: "wf_1", Known: true, State: workflow.Claimed, Attempt: 3, Active: true},
		"unknown":                 {ID: "wf_1"},
		"started":                 {ID: "wf_1", Known: true, State: workflow.Running, Attempt: 2, Active: true, Started: true},
		"over":                    {ID: "wf_1", Known: true, State: workflow.Succeeded, Attempt: 2, Started: true},
		"lost but holds its slot": {ID: "wf_1", Known: true, State: workflow.Failed, Attempt: 2, Active: true, Started: true},
		"an answer for another":   {ID: "wf_2", Known: true, State: workflow.Claimed, Attempt: 2, Active: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.states["wf_1"] = tc
			out := w.dispatcher(t, nil, dispatcher.Config{}).Handle(t.Context(), message(t))
			if !out.Delete || out.Why == "" || len(w.asked) != 0 || len(w.reports) != 0 {
				t.Errorf("%+v after %d launches, %d reports: want it deleted quietly", out, len(w.asked), len(w.reports))
			}
			if log := w.log.String(); !strings.Contains(log, "level=DEBUG") || strings.Contains(log, "level=INFO") {
				t.Errorf("log:\n%s\nwant the reason, at debug", log)
			}
		})
	}
}

func TestHandle_LaunchesNothingWhileTheStateIsUnknown(t *testing.T) {
	w := newWorld()
	w.stateErr = workflow.ErrBusy
	out := w.dispatcher(t, nil, dispatcher.Config{}).Handle(t.Context(), message(t))
	if out.Delete || out.Hide < time.Second || len(w.asked) != 0 {
		t.Errorf("%+v after %d launches: want it back later", out, len(w.asked))
	}
}

// L2: a poisoned message is dropped alone, loudly.
func TestHandle_DropsPoison(t *testing.T) {
	w := newWorld()
	out := w.dispatcher(t, nil, dispatcher.Config{}).Handle(t.Context(), queue.Message{ID: "m9", Body: []byte(`{"job":"dfj_x"`)})
	if !out.Delete || !out.Unread || len(w.reports) != 0 {
		t.Errorf("%+v: want it deleted", out)
	}
	if log := w.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "m9") || strings.Contains(log, "dfj_x") {
		t.Errorf("log:\n%s\nwant an error that names the message and does not show it", log)
	}
}

// L4: the answer of the first launch is lost; the same request finds the same task.
func TestHandle_RepeatsLostAnswerBeforeNextPlacement(t *testing.T) {
	w := newWorld()
	w.launchErr = func(n int, _ launcher.Request) error {
		if n == 0 {
			return errors.New("connection reset")
		}
		return nil
	}
	out := w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), message(t))
	if !out.Delete || out.Task != "task-wf_1/2/a" || len(w.tasks) != 1 {
		t.Errorf("%+v with tasks %v: want the one task", out, w.tasks)
	}
	if d := cmp.Diff([]string{"a", "a"}, w.asked); d != "" {
		t.Errorf("placements (-want +got):\n%s", d)
	}
}

func TestHandle_NextDeliveryFindsATaskOfALostAnswer(t *testing.T) {
	w := newWorld()
	lost := true
	w.launchErr = func(_ int, r launcher.Request) error {
		if r.Placement == "a" {
			return refuse(workflow.ReasonCapacity)
		}
		if lost {
			return &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "timed out", Unknown: true}
		}
		return nil
	}
	d := w.dispatcher(t, nil, dispatcher.Config{Placements: three})
	out := d.Handle(t.Context(), message(t))
	if out.Delete || out.Hide < time.Second {
		t.Errorf("%+v: want it back later", out)
	}
	if d := cmp.Diff([]string{"a", "b", "b", "b"}, w.asked); d != "" {
		t.Errorf("placements (-want +got):\n%s", d)
	}
	lost, w.asked = false, nil
	out = w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), message(t)) // another process
	if !out.Delete || out.Task != "task-wf_1/2/b" || len(w.tasks) != 1 {
		t.Errorf("%+v with tasks %v: want the one task at b", out, w.tasks)
	}
	if d := cmp.Diff([]string{"b"}, w.asked); d != "" {
		t.Errorf("placements of the second delivery (-want +got):\n%s", d)
	}
}

// A throttle after a lost answer says nothing about it, also in another process: the launcher is told that the
// request may have been taken, and no other placement is tried until it knows.
func TestHandle_TellsTheLauncherWhatIsUnsettled(t *testing.T) {
	w := newWorld()
	var unsettled []bool
	answer := "lost"
	w.launchErr = func(_ int, r launcher.Request) error {
		if r.Placement != "a" {
			t.Errorf("placement %s is tried while a task may live at a", r.Placement)
		}
		unsettled = append(unsettled, r.MayHaveStarted)
		switch answer {
		case "lost":
			return &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "timed out", Unknown: true}
		case "throttled":
			return &launcher.Refusal{Reason: workflow.ReasonThrottled, Text: "slow down", Unknown: r.MayHaveStarted}
		}
		return nil
	}
	for _, answer = range []string{"lost", "throttled", ""} {
		w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), message(t)) // another process each time
	}
	if d := cmp.Diff([]bool{false, true, true, true, true}, unsettled); d != "" || len(w.tasks) != 1 {
		t.Errorf("tasks %v; unsettled (-want +got):\n%s", w.tasks, d)
	}
}

// What is no matter of the place is not tried at the next one.
func TestHandle_OnlyCapacityAndQuotaTryNextPlacement(t *testing.T) {
	for reason, want := range map[workflow.Reason]int{
		workflow.ReasonCapacity: 3, workflow.ReasonQuota: 3, workflow.ReasonThrottled: 1, workflow.ReasonUnavailable: 1,
	} {
		w := newWorld()
		w.launchErr = func(int, launcher.Request) error { return refuse(reason) }
		w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), message(t))
		if len(w.asked) != want {
			t.Errorf("%s: %v are tried, want %d", reason, w.asked, want)
		}
	}
}

// L5: every placement is tried in turn; then the reason is visible and the message comes back.
func TestHandle_TransientRefusalReportsTheNextTry(t *testing.T) {
	w := newWorld()
	w.launchErr = func(_ int, r launcher.Request) error {
		return &launcher.Refusal{Reason: workflow.ReasonCapacity, Text: "no room in " + r.Placement}
	}
	d := w.dispatcher(t, nil, dispatcher.Config{Placements: three})
	out := d.Handle(t.Context(), message(t))
	if out.Delete || out.Hide < time.Second || out.Hide > 2*time.Minute {
		t.Errorf("%+v: want it back later", out)
	}
	if d := cmp.Diff([]string{"a", "b", "c"}, w.asked); d != "" {
		t.Errorf("placements (-want +got):\n%s", d)
	}
	refused := func(text, next string, retry float64) api.Launch {
		return api.Launch{
			Attempt: 2, Kind: api.LaunchRefused, Reason: workflow.ReasonCapacity, Text: text, Placement: next, RetrySeconds: retry,
		}
	}
	want := []api.Launch{ // what is tried next is on record before it is tried
		refused("no room in a", "b", 0), refused("no room in b", "c", 0),
		refused("no room in a; no room in b; no room in c", "", out.Hide.Seconds()),
	}
	if d := cmp.Diff(want, w.reports); d != "" {
		t.Errorf("reports (-want +got):\n%s", d)
	}
	if hold := d.Hold(); !hold.Equal(w.now.Add(out.Hide)) {
		t.Errorf("held until %s, want until the next try", hold)
	}
	w.launchErr = nil
	if out := d.Handle(t.Context(), message(t)); !out.Delete || !d.Hold().IsZero() {
		t.Errorf("%+v, held until %s: a launch that is taken ends the hold", out, d.Hold())
	}
}

func TestHandle_AThrottleHoldsNoClaims(t *testing.T) {
	w := newWorld()
	w.launchErr = func(int, launcher.Request) error { return refuse(workflow.ReasonThrottled) }
	d := w.dispatcher(t, nil, dispatcher.Config{})
	d.Handle(t.Context(), message(t))
	if !d.Hold().IsZero() {
		t.Error("a throttle says nothing about capacity")
	}
}

// L5: a permanent refusal ends the workflow with a sentence, at the first placement that says so.
func TestHandle_ReportsAPermanentRefusalOnce(t *testing.T) {
	w := newWorld()
	w.launchErr = func(int, launcher.Request) error {
		return &launcher.Refusal{Permanent: true, Reason: workflow.ReasonLaunchFailed, Text: strings.Repeat("ä", 900)}
	}
	out := w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), message(t))
	if !out.Delete || len(w.asked) != 1 || len(w.reports) != 1 {
		t.Fatalf("%+v after %d launches, %d reports: want one each", out, len(w.asked), len(w.reports))
	}
	r := w.reports[0]
	if r.Kind != api.LaunchFailed || r.Attempt != 2 || len(r.Text) != 1000 || strings.ContainsRune(r.Text, '�') {
		t.Errorf("report %+v: want a failure whose text fits", r)
	}
}

func TestHandle_UnreportedPermanentRefusalComesBack(t *testing.T) {
	w := newWorld()
	w.launchErr = func(int, launcher.Request) error { return &launcher.Refusal{Permanent: true, Text: "no"} }
	w.reportErr = func(int) error { return workflow.ErrBusy }
	if out := w.dispatcher(t, nil, dispatcher.Config{}).Handle(t.Context(), message(t)); out.Delete {
		t.Errorf("%+v: want it back until somebody heard of it", out)
	}
}

// The report of a launch is lost: the message comes back, and the same task is reported again.
func TestHandle_NextDeliveryReportsAnUnreportedLaunch(t *testing.T) {
	w := newWorld()
	w.reportErr = func(n int) error {
		if n == 0 {
			return workflow.ErrBusy
		}
		return nil
	}
	d := w.dispatcher(t, nil, dispatcher.Config{})
	out := d.Handle(t.Context(), message(t))
	if out.Delete || out.Hide > 10*time.Second {
		t.Errorf("%+v: want it back soon, the runner waits for the report", out)
	}
	out = d.Handle(t.Context(), message(t))
	if !out.Delete || len(w.tasks) != 1 || len(w.reports) != 2 || w.reports[0].Task != w.reports[1].Task {
		t.Errorf("%+v, tasks %v, reports %+v: want the one task reported twice", out, w.tasks, w.reports)
	}
}

func TestHandle_GivesUpAfterTheLaunchWindowAndNotBefore(t *testing.T) {
	w := newWorld()
	d := w.dispatcher(t, nil, dispatcher.Config{})
	w.now = sent.Add(time.Hour - time.Second)
	msg := message(t)
	msg.Receives = 100_000 // a number of deliveries says nothing
	w.launchErr = func(int, launcher.Request) error { return refuse(workflow.ReasonQuota) }
	if out := d.Handle(t.Context(), msg); out.Delete || out.Hide > time.Second {
		t.Errorf("a second before the end: %+v: want it back within the window", out)
	}
	w.now = sent.Add(time.Hour)
	w.asked = nil
	if out := d.Handle(t.Context(), msg); !out.Delete || len(w.asked) != 0 {
		t.Errorf("at the end: %+v after %d launches: want it dropped", out, len(w.asked))
	}
}

func TestHandle_BeginsNothingWhenToldToStop(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := w.dispatcher(t, nil, dispatcher.Config{}).Handle(ctx, message(t))
	if out.Delete || out.Hide != 0 || len(w.asked) != 0 {
		t.Errorf("%+v after %d launches: want it given back at once", out, len(w.asked))
	}
}

// Told to stop in the middle of a launch: the task that was started is still reported.
func TestHandle_ReportsALaunchAlthoughItWasToldToStop(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	w.onLaunch = func(context.Context) { cancel() }
	out := w.dispatcher(t, nil, dispatcher.Config{}).Handle(ctx, message(t))
	if !out.Delete || len(w.reports) != 1 || w.reports[0].Kind != api.LaunchAccepted {
		t.Errorf("%+v, reports %+v: want the launch reported", out, w.reports)
	}
}

func TestBackoff_GrowsWithAgeAndSpreads(t *testing.T) {
	m, err := api.DecodeLaunchMessage(message(t).Body)
	if err != nil {
		t.Fatal(err)
	}
	var before time.Duration
	for _, age := range []time.Duration{0, 10 * time.Second, time.Minute, 10 * time.Minute, 50 * time.Minute} {
		var sum time.Duration
		seen := map[time.Duration]bool{}
		for i := range 200 {
			m.Job = fmt.Sprintf("wf_%d", i)
			got := dispatcher.Backoff(m, sent.Add(age))
			if got < time.Second || got > 2*time.Minute {
				t.Fatalf("age %s: %s is out of bounds", age, got)
			}
			if again := dispatcher.Backoff(m, sent.Add(age)); again != got {
				t.Fatalf("age %s: %s, then %s", age, got, again)
			}
			seen[got] = true
			sum += got
		}
		if len(seen) < 100 {
			t.Errorf("age %s: only %d different times for 200 jobs", age, len(seen))
		}
		if mean := sum / 200; mean < before*9/10 { // the last two are at the cap
			t.Errorf("age %s: mean %s, less than %s before", age, mean, before)
		} else {
			before = mean
		}
	}
}

// Every message is delivered twice and some are poison: each job is launched, once.
func TestLoop_DuplicatesAreHarmlessAndPoisonIsIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		q, err := memory.New(memory.Config{Duplicate: true})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld()
		start := time.Now()
		for i := range n {
			id := fmt.Sprintf("wf_%d", i)
			w.states[id] = api.JobState{ID: id, Known: true, State: workflow.Claimed, Attempt: 2, Active: true}
			body := message(t, func(m *api.LaunchMessage) { m.Job, m.SentAtMS = id, start.UnixMilli() }).Body
			if err := q.Send(t.Context(), body, "default"); err != nil {
				t.Fatal(err)
			}
			if err := q.Send(t.Context(), []byte("poison"), "default"); err != nil {
				t.Fatal(err)
			}
		}
		w.launchErr = func(n int, _ launcher.Request) error {
			switch n % 5 {
			case 1:
				return refuse(workflow.ReasonThrottled)
			case 3:
				return errors.New("no answer")
			}
			return nil
		}
		w.reportErr = func(n int) error {
			if n%7 == 3 {
				return workflow.ErrBusy
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		d := w.dispatcher(t, q, dispatcher.Config{Workers: 7, Now: time.Now})
		ended := make(chan error, 1)
		go func() { ended <- d.Loop(ctx) }()
		time.AfterFunc(30*time.Minute, cancel)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if len(w.tasks) != n {
			t.Errorf("%d tasks for %d jobs", len(w.tasks), n)
		}
		told := map[string]bool{}
		for i, r := range w.reports {
			if r.Kind == api.LaunchAccepted && i%7 != 3 {
				told[w.reported[i]] = true
			}
		}
		if len(told) != n {
			t.Errorf("%d of %d launches reported", len(told), n)
		}
		if depth, err := q.Depth(t.Context()); err != nil || depth != 0 {
			t.Errorf("%d messages left, %v", depth, err)
		}
	})
}

// A launch that takes longer than the visibility time-out is not given to a second worker meanwhile.
func TestLoop_KeepsAMessageHiddenWhileItIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := memory.New(memory.Config{Visibility: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld()
		body := message(t, func(m *api.LaunchMessage) { m.SentAtMS = time.Now().UnixMilli() }).Body
		if err := q.Send(t.Context(), body, "default"); err != nil {
			t.Fatal(err)
		}
		w.onLaunch = func(ctx context.Context) {
			select {
			case <-time.After(5 * time.Minute):
			case <-ctx.Done():
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		d := w.dispatcher(t, q, dispatcher.Config{Visibility: 30 * time.Second, Now: time.Now})
		ended := make(chan error, 1)
		go func() { ended <- d.Loop(ctx) }()
		time.AfterFunc(6*time.Minute, cancel)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if len(w.asked) != 1 || len(w.reports) != 1 {
			t.Errorf("%d launches, %d reports: want one", len(w.asked), len(w.reports))
		}
	})
}

// failing is a queue that cannot be reached.
type failing struct {
	dispatcher.Queue
	receives int
}

func (f *failing) Receive(context.Context, int, time.Duration) ([]queue.Message, error) {
	f.receives++
	return nil, errors.New("queue is away")
}

func TestLoop_BacksOffWhileTheQueueIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q := newWorld(), &failing{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.dispatcher(t, q, dispatcher.Config{}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if q.receives < 10 || q.receives > 80 {
			t.Errorf("%d receives in an hour of outage", q.receives)
		}
	})
}

func TestLoop_TellsHowEachMessageEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := memory.New(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld()
		for _, job := range []string{"wf_1", "wf_gone"} {
			body := message(t, func(m *api.LaunchMessage) { m.Job, m.SentAtMS = job, time.Now().UnixMilli() }).Body
			if err := q.Send(t.Context(), body, "default"); err != nil {
				t.Fatal(err)
			}
		}
		got := make(chan dispatcher.Disposition, 9)
		ctx, cancel := context.WithCancel(t.Context())
		d := w.dispatcher(t, q, dispatcher.Config{Now: time.Now, Done: func(d dispatcher.Disposition) { got <- d }})
		ended := make(chan error, 1)
		go func() { ended <- d.Loop(ctx) }()
		tasks := map[string]string{}
		for range 2 {
			d := <-got
			tasks[d.Job] = d.Task
		}
		if d := cmp.Diff(map[string]string{"wf_1": "task-wf_1/2/default", "wf_gone": ""}, tasks); d != "" {
			t.Errorf("told (-want +got):\n%s", d)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The alarm over waiting launches reads this line.
func TestHandle_AMetricCountsRefusals(t *testing.T) {
	w := newWorld()
	w.now = sent.Add(901 * time.Second)
	w.launchErr = func(int, launcher.Request) error { return refuse(workflow.ReasonCapacity) }
	w.dispatcher(t, nil, dispatcher.Config{Log: slog.New(slog.NewJSONHandler(&w.log, nil))}).Handle(t.Context(), message(t))
	tmpl, err := templates.Load("../../infra/transformed/pool.json")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := tmpl.Counted("LaunchWaitMetric", w.log.String()); err != nil || n == 0 || !strings.Contains(w.log.String(), `"waited_s":901`) {
		t.Errorf("%d refusals (%v): %s", n, err, w.log.String())
	}
}
