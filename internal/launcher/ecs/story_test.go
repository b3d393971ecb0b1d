package ecs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	fake "github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// obedient is a container that ends when it is asked to.
func obedient(ctx context.Context, _ fake.Spec, terminate <-chan struct{}) int {
	select {
	case <-terminate:
		return 3
	case <-ctx.Done():
		return 0
	}
}

func played(t *testing.T, c fake.Config) (*world, *ecs.Launcher) {
	t.Helper()
	if c.Runner == nil {
		c.Runner = fake.Func(obedient)
	}
	c.Limits.NoRates = true
	w := newWorld(t, c, time.Second)
	return w, w.launcher(t, config())
}

func (w *world) one(t *testing.T) fake.Task {
	t.Helper()
	tasks := w.service.Tasks()
	if len(tasks) != 1 {
		t.Fatalf("got %d tasks, want one: %+v", len(tasks), tasks)
	}
	return tasks[0]
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain until %s", what)
}

func TestLaunch_ALostAnswerIsTheSameTaskAgain(t *testing.T) {
	for name, fault := range map[string]wire.Fault{
		"broken off, done":        {After: wire.Fail(wire.Drop)},
		"broken off, not done":    {Before: wire.Fail(wire.Drop)},
		"status 500, done":        {After: wire.Fail(&wire.Error{Status: 500, Code: "ServerException"})},
		"status 500, not done":    {Before: wire.Fail(&wire.Error{Status: 500, Code: "ServerException"})},
		"status 503, done":        {After: wire.Fail(&wire.Error{Status: 503, Code: "ServiceUnavailable"})},
		"a throttle that is none": {After: wire.Fail(&wire.Error{Status: 502, Code: "UnknownError"})},
	} {
		t.Run(name, func(t *testing.T) {
			w, l := played(t, fake.Config{})
			fault.Service, fault.Operation, fault.Times = "ecs", "RunTask", 1
			w.server.Inject(fault)
			_, err := l.Launch(t.Context(), request())
			if got, ok := errors.AsType[*launcher.Refusal](err); !ok || !got.Unknown {
				t.Fatalf("got %v, want a refusal that is unknown", err)
			}
			task, err := l.Launch(t.Context(), request())
			if err != nil {
				t.Fatal(err)
			}
			if only := w.one(t); only.ARN != task.Ref {
				t.Errorf("got %s, want the only task, %s", task.Ref, only.ARN)
			}
		})
	}
}

func TestLaunch_AnotherTicketOfTheAttemptAdoptsItsTask(t *testing.T) {
	w, l := played(t, fake.Config{Times: fake.Times{Hidden: time.Hour}})
	first, err := l.Launch(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	again := request()
	again.Ticket = "sealed.another.time"
	second, err := w.launcher(t, config()).Launch(t.Context(), again) // which ECS does not show yet
	if err != nil || second.Ref != first.Ref || second.Workflow != "wf-1" || second.Attempt != 2 {
		t.Errorf("got %+v, %v; want task %s", second, err, first.Ref)
	}
	w.one(t)
}

func TestLaunch_CarriesWhatTheTaskIsKnownBy(t *testing.T) {
	w, _ := played(t, fake.Config{})
	c := config()
	c.Tags = map[string]string{"cost-center": "4711"}
	l := w.launcher(t, c)
	r := request()
	r.Placement, r.Size = "spot/subnet-c", "512/3072"
	if _, err := l.Launch(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got := w.one(t)
	got.ARN, got.LastStatus, got.CreatedAt, got.StartedAt = "", "", time.Time{}, time.Time{}
	want := fake.Task{
		Cluster: "dayfly", Family: "dayfly-runner", StartedBy: "prod", ClientToken: ecs.ClientToken(r), Subnet: "subnet-c", Provider: "FARGATE_SPOT",
		CPU: "512", Memory: "3072", DesiredStatus: "RUNNING",
		Env: map[string]string{"DAYFLY_JOB": "wf-1", "DAYFLY_ATTEMPT": "2", "DAYFLY_TICKET": r.Ticket, "DAYFLY_RELAY": r.Relay},
		Tags: map[string]string{
			"dayfly:job": "wf-1", "dayfly:attempt": "2", "dayfly:pool": "prod", "dayfly:workspace": "network _prod_", "dayfly:organization": "acme",
			"aws:ecs:clusterName": "dayfly", "cost-center": "4711",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the task differs (-want +got):\n%s", diff)
	}
}

func TestList_ReadsEveryPageAndOnlyItsOwn(t *testing.T) {
	w, l := played(t, fake.Config{})
	foreign := config()
	foreign.Pool = "staging"
	other := w.launcher(t, foreign)
	want := map[string]launcher.Phase{}
	var refs []string
	for i := range 230 {
		r := request()
		r.Workflow = fmt.Sprint("wf-", i)
		from := l
		if i%10 == 9 {
			from = other
		}
		task, err := from.Launch(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, task.Ref)
		if from == l {
			want[task.Ref] = launcher.Running
		}
	}
	for _, ref := range refs[:5] {
		if err := l.Stop(t.Context(), ref, "enough"); err != nil {
			t.Fatal(err)
		}
		want[ref] = launcher.Stopped
	}
	phases := func(tasks []launcher.Task, err error) map[string]launcher.Phase {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]launcher.Phase{}
		for _, task := range tasks {
			if _, twice := got[task.Ref]; twice {
				t.Errorf("task %s is there twice", task.Ref)
			}
			got[task.Ref] = task.Phase
		}
		return got
	}
	await(t, "all are where they go", func() bool { return cmp.Equal(want, phases(l.List(t.Context()))) })

	calls := 0
	w.server.Inject(wire.Fault{Operation: "DescribeTasks", Before: func(wire.Call) error { calls++; return nil }})
	if diff := cmp.Diff(want, phases(l.Describe(t.Context(), refs...))); diff != "" {
		t.Errorf("described tasks differ (-want +got):\n%s", diff)
	}
	if calls != 3 {
		t.Errorf("got %d calls to describe %d tasks, want 3", calls, len(refs))
	}
}

func TestDescribe_LeavesOutWhatIsNotThere(t *testing.T) {
	w, l := played(t, fake.Config{})
	task, err := l.Launch(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := strings.Replace(task.Ref, "/dayfly/", "/other/", 1)
	absent := task.Ref[:len(task.Ref)-4] + "0000"
	got, err := l.Describe(t.Context(), "task-that-never-was", elsewhere, absent, task.Ref+"0", "arn:aws:ecs:us-east-1:123456789012:task/"+strings.Repeat("0", 32), task.Ref, "")
	if err != nil || len(got) != 1 || got[0].Ref != task.Ref {
		t.Errorf("got %+v, %v; want the one task", got, err)
	}
	remove := w.server.Inject(wire.Fault{Operation: "DescribeTasks", Before: func(wire.Call) error { t.Error("ECS is asked about nonsense alone"); return nil }})
	if got, err := l.Describe(t.Context(), "nonsense"); err != nil || len(got) != 0 {
		t.Errorf("nonsense alone: got %v, %v", got, err)
	}
	remove()
	for name, fault := range map[string]error{
		"throttled": &wire.Error{Code: "ThrottlingException"}, "denied": &wire.Error{Code: "AccessDeniedException"}, "broken off": wire.Drop,
	} {
		remove := w.server.Inject(wire.Fault{Operation: "DescribeTasks", Before: wire.Fail(fault)})
		if got, err := l.Describe(t.Context(), task.Ref); err == nil {
			t.Errorf("%s: got %v, want an error: absence would be taken for an end", name, got)
		}
		if got, err := l.List(t.Context()); err == nil {
			t.Errorf("%s: got list %v, want an error", name, got)
		}
		remove()
	}
}

func TestDescribe_WhatECSCouldNotSeeIsNotAbsent(t *testing.T) {
	_, l := newService(t, config(), func(string, int) (int, string) {
		return 200, `{"tasks":[],"failures":[{"arn":"` + arnOne + `","reason":"AGENT"}]}`
	})
	if got, err := l.Describe(t.Context(), arnOne); err == nil || !strings.Contains(err.Error(), "AGENT") {
		t.Errorf("got %v, %v; want an error", got, err)
	}
}

func TestDescribe_KnowsATaskByItsTags(t *testing.T) {
	_, l := newService(t, config(), func(string, int) (int, string) {
		return 200, `{"tasks":[{"taskArn":"` + arnOne + `","lastStatus":"RUNNING","startedBy":"prod","tags":[{"key":"dayfly:job","value":"wf-7"},{"key":"dayfly:attempt","value":"3"}]},` +
			`{"taskArn":"` + arnTwo + `","lastStatus":"RUNNING","startedBy":"prod"}]}`
	})
	got, err := l.Describe(t.Context(), arnOne, arnTwo)
	if err != nil || len(got) != 1 || got[0].Ref != arnOne || got[0].Workflow != "wf-7" || got[0].Attempt != 3 {
		t.Errorf("got %+v, %v; want the tagged task, and not the one that nobody can name", got, err)
	}
}

func TestStop(t *testing.T) {
	w, l := played(t, fake.Config{})
	task, err := l.Launch(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ä", 300)
	for range 2 {
		if err := l.Stop(t.Context(), task.Ref, long); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.one(t).StoppedReason; got != long[:2*255] {
		t.Errorf("got reason %q, want the first 255 characters", got)
	}
	for name, ref := range map[string]string{
		"unknown": task.Ref[:len(task.Ref)-4] + "0000", "no task": "x", "another cluster's": strings.Replace(task.Ref, "/dayfly/", "/other/", 1),
	} {
		if err := l.Stop(t.Context(), ref, "x"); !errors.Is(err, launcher.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", name, err)
		}
	}
	w.server.Inject(wire.Fault{Operation: "StopTask", Before: wire.Fail(&wire.Error{Code: "ThrottlingException", Message: "Rate exceeded"})})
	if err := l.Stop(t.Context(), task.Ref, "x"); err == nil || errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("throttled: got %v, want an error that is not ErrNotFound", err)
	}
}

// TestEvents_SayWhatDescribeSays compares each event with the task, over the ends that a task can have.
func TestEvents_SayWhatDescribeSays(t *testing.T) {
	type seen struct {
		task    launcher.Task
		version int64
	}
	var mu sync.Mutex
	events := map[string][]seen{}
	w, l := played(t, fake.Config{Events: func(body []byte) {
		task, version, err := ecs.ParseEvent(body)
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		mu.Lock()
		defer mu.Unlock()
		events[task.Ref] = append(events[task.Ref], seen{task, version})
	}})
	w.service.SetFate(func(task fake.Task) fake.Fate {
		if task.Env["DAYFLY_JOB"] == "wf-unset" {
			return fake.Fate{FailToStart: "ResourceInitializationError: no secret"}
		}
		return fake.Fate{}
	})
	for name, tc := range map[string]struct {
		end  func(ref string)
		text string
	}{
		"stopped": {func(ref string) { _ = l.Stop(t.Context(), ref, "enough") }, "it was told to stop; enough; the runner ended with exit code 3"},
		"spot":    {func(ref string) { w.service.InterruptSpot(ref) }, "AWS took its Spot capacity back; Your Spot Task was interrupted."},
		"retired": {func(ref string) { w.service.Retire(ref) }, "AWS stopped it to maintain the machine that it ran on; ECS is performing maintenance on the underlying infrastructure hosting the task."},
		"host":    {func(ref string) { w.service.LoseHost(ref) }, "the machine that it ran on failed; The underlying host of the task is unhealthy."},
		"unset":   {func(string) {}, "the resources of the task could not be set up: check the execution role, and that the subnet reaches the registry, Secrets Manager and CloudWatch Logs; ResourceInitializationError: no secret"},
	} {
		r := request()
		r.Workflow = "wf-" + name
		task, err := l.Launch(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		describe := func() launcher.Task {
			got, err := l.Describe(t.Context(), task.Ref)
			if err != nil || len(got) != 1 {
				t.Fatalf("%s: got %v, %v", name, got, err)
			}
			return got[0]
		}
		await(t, "it runs", func() bool { return describe().Phase != launcher.Starting })
		tc.end(task.Ref)
		await(t, "it has stopped", func() bool { return describe().Phase == launcher.Stopped })
		ended := func() (out []seen) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(events[task.Ref])
		}
		await(t, "its end is told", func() bool { all := ended(); return len(all) > 0 && all[len(all)-1].task.Phase == launcher.Stopped })
		all := ended()
		for i, e := range all[:len(all)-1] {
			if e.task.Phase == launcher.Stopped {
				t.Errorf("%s: event %d of %d says that it has ended: %+v", name, i+1, len(all), e)
			}
		}
		last := describe()
		got := all[len(all)-1].task
		got.CreatedAt, last.CreatedAt = got.CreatedAt.Truncate(time.Millisecond), last.CreatedAt.Truncate(time.Millisecond)
		if diff := cmp.Diff(last, got); diff != "" || last.Text != tc.text {
			t.Errorf("%s: got text %q, want %q; the last event differs from the task (-task +event):\n%s", name, last.Text, tc.text, diff)
		}
	}
}

// upstream wants every job until its launch is reported.
type upstream struct {
	mu       sync.Mutex
	launched map[string][]string // by job: tasks that were reported
	failed   map[string]string
	pending  map[string]string // by job: the placement that may have been taken
}

func (u *upstream) States(_ context.Context, in api.StatesQuery) (api.States, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out api.States
	for _, id := range in.IDs {
		out.Jobs = append(out.Jobs, api.JobState{ID: id, Known: true, Attempt: 1, Active: true, State: workflow.Claimed, PendingPlacement: u.pending[id]})
	}
	return out, nil
}

func (u *upstream) Launch(_ context.Context, id string, in api.Launch) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch in.Kind {
	case api.LaunchAccepted:
		u.launched[id] = append(u.launched[id], in.Task)
	case api.LaunchFailed:
		u.failed[id] = in.Text
	case api.LaunchRefused:
		u.pending[id] = in.Placement
	}
	return nil
}

// TestDispatcher_OneTaskPerAttemptWhateverECSAnswers strikes every second RunTask with trouble: answers that
// are lost before or after the call, throttles, wrapped ones, missing capacity, expired credentials. Each
// message is handled twice at the end, as a queue may deliver it. There is one task per job, it is the
// one that was reported, and nothing ends a job.
func TestDispatcher_OneTaskPerAttemptWhateverECSAnswers(t *testing.T) {
	w, _ := played(t, fake.Config{})
	c := config()
	c.Spot = ecs.SpotReads
	l := w.launcher(t, c)
	w.service.SetMissing(fake.Capacity{Provider: "FARGATE_SPOT", Subnet: "subnet-a"}, fake.Capacity{Provider: "FARGATE_SPOT", Subnet: "subnet-b", AsFailure: true})
	random := rand.New(rand.NewPCG(7, 11)) //nolint:gosec // the same trouble each time
	var mu sync.Mutex
	draw := func(answers ...error) func(wire.Call) error {
		return func(wire.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if random.IntN(4) > 0 {
				return nil
			}
			return answers[random.IntN(len(answers))]
		}
	}
	lost := []error{wire.Drop, &wire.Error{Status: 500, Code: "ServerException"}, &wire.Error{Status: 503, Code: "ServiceUnavailable"}}
	w.server.Inject(wire.Fault{Operation: "RunTask", After: draw(lost...), Before: draw(append(lost,
		&wire.Error{Code: "ThrottlingException", Message: "Rate exceeded"},
		&wire.Error{Code: "InvalidParameterException", Message: "Rate exceeded (ErrorCode: Throttling)"},
		&wire.Error{Code: "ExpiredTokenException", Message: "expired"},
	)...)})

	up := &upstream{launched: map[string][]string{}, failed: map[string]string{}, pending: map[string]string{}}
	q, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatcher.New(q, l, up, dispatcher.Config{Placements: c.Placements, Relay: func(string) string { return "https://relay.example" }})
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 60
	for i := range jobs {
		m := api.LaunchMessage{
			Needs:  task.Needs{Attempt: 1, Organization: "acme", Workspace: "network", Pool: "prod", StateKind: "s3", MaxRuntimeSeconds: 3600},
			Ticket: "sealed", Job: fmt.Sprint("wf-", i), Type: workflow.Deployment, Operation: workflow.Preview, ReadsState: true,
			SentAtMS: time.Now().UnixMilli(), LaunchSeconds: 3600,
		}
		if i%2 == 1 {
			m.Operation, m.ReadsState = workflow.Update, false
		}
		body, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for tries := 0; ; tries++ {
			if out := d.Handle(t.Context(), queue.Message{ID: m.Job, Body: body}); out.Delete {
				break
			}
			if tries == 100 {
				t.Fatalf("job %s is not launched", m.Job)
			}
		}
		d.Handle(t.Context(), queue.Message{ID: m.Job, Body: body}) // again: a queue delivers at least once
	}
	if len(up.failed) > 0 {
		t.Errorf("jobs were ended: %v", up.failed)
	}
	tasks := map[string][]string{}
	spot := 0
	for _, task := range w.service.Tasks() {
		job := task.Env["DAYFLY_JOB"]
		tasks[job] = append(tasks[job], task.ARN)
		if task.Provider == "FARGATE_SPOT" {
			spot++
			if !strings.HasSuffix(task.Subnet, "-c") {
				t.Errorf("task of %s is on Spot in %s, where there is none", job, task.Subnet)
			}
		}
	}
	for i := range jobs {
		job := fmt.Sprint("wf-", i)
		if got := tasks[job]; len(got) != 1 || slices.ContainsFunc(up.launched[job], func(ref string) bool { return ref != got[0] }) || len(up.launched[job]) == 0 {
			t.Errorf("job %s: tasks %v, reported %v; want one, and that one", job, got, up.launched[job])
		}
	}
	if spot == 0 || spot > jobs/2 {
		t.Errorf("%d tasks of %d jobs are on Spot, want previews only", spot, jobs)
	}
}
