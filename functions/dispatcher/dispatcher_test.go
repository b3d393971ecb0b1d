package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.uber.org/goleak"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/launches"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakeecs "github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
	"github.com/dayfly-dev/dayfly/test/poolstack"
)

const (
	subnetA = "subnet-0000000000000000a"
	subnetB = "subnet-0000000000000000b"
)

// world is a pool's stack with an ECS whose tasks live until they are told to end.
type world struct {
	*poolstack.Stack
	ecs        *fakeecs.Service
	definition string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	tasks, err := fakeecs.New(fakeecs.Config{
		Runner:   fakeecs.Func(fakeecs.UntilStopped),
		Clusters: []string{"cluster"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tasks.Close)
	w := &world{ecs: tasks}
	w.definition = tasks.Define(fakeecs.Definition{Family: "runner", Containers: []fakeecs.Container{{Name: "runner", Image: "runner"}}})
	w.Stack = poolstack.New(t, map[string]awsim.Service{"ecs": tasks})
	return w
}

// process is a function, freshly started.
func (w *world) process(t *testing.T, pairs ...string) *function {
	t.Helper()
	f, err := build(w.env(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (w *world) env(pairs ...string) func(string) string {
	return w.Env(append([]string{
		"DAYFLY_CLUSTER", "cluster", "DAYFLY_TASK_DEFINITION", w.definition, "DAYFLY_CONTAINER", "runner",
		"DAYFLY_SUBNETS", subnetA + "," + subnetB, "DAYFLY_SECURITY_GROUPS", "sg-00000000000000001",
		"DAYFLY_RELAY_URL", "https://status.example.com/status",
	}, pairs...)...)
}

// claimed submits and claims n jobs and writes their launch messages.
func (w *world) claimed(t *testing.T, n int, change ...func(*api.LaunchMessage)) (jobs []api.Job, bodies []string) {
	t.Helper()
	w.Submit(t.Context(), "net", n)
	got, err := w.Plane.Claim(t.Context(), w.Pool, api.Claim{Instance: "stack", Max: n})
	if err != nil || len(got.Jobs) != n {
		t.Fatalf("claimed %d of %d jobs: %v", len(got.Jobs), n, err)
	}
	for _, job := range got.Jobs {
		sealed, err := w.Keyring.Seal(ticket.Claims{Job: job.ID, Attempt: job.Attempt, Token: redact.New(job.Token), Expires: time.Now().Add(time.Hour), Group: "default/net", Organization: "default", WorkspaceID: "ws_1"})
		if err != nil {
			t.Fatal(err)
		}
		m := api.NewLaunchMessage(job, sealed, time.Now())
		for _, c := range change {
			c(&m)
		}
		body, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, string(body))
	}
	return got.Jobs, bodies
}

// take receives what waits in the queue, as the event that Lambda makes of it.
func (w *world) take(t *testing.T, bodies ...string) events.SQSEvent {
	t.Helper()
	for _, b := range bodies {
		w.Send(t.Context(), w.Jobs, b)
	}
	var e events.SQSEvent
	for _, m := range w.Receive(t.Context(), w.Jobs) {
		e.Records = append(e.Records, events.SQSMessage{
			MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes,
			EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:jobs", EventSource: "aws:sqs", AWSRegion: "us-east-1",
		})
	}
	return e
}

func encoded(t *testing.T, e events.SQSEvent) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// invoke hands an event to a function and deletes what it did not give back, as Lambda does.
func (w *world) invoke(ctx context.Context, t *testing.T, f *function, e events.SQSEvent) (back []string) {
	t.Helper()
	got, err := f.handle(ctx, encoded(t, e))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range got.BatchItemFailures {
		back = append(back, one.ItemIdentifier)
	}
	for _, r := range e.Records {
		if slices.Contains(back, r.MessageId) {
			continue
		}
		if _, err := w.SQS.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &w.Jobs, ReceiptHandle: &r.ReceiptHandle}); err != nil {
			t.Fatal(err)
		}
	}
	return back
}

// counts says how many messages wait, and how many there are with those that are hidden.
func (w *world) counts(t *testing.T) (waiting, held int) {
	t.Helper()
	q, err := sqs.New(w.SQS, sqs.Config{URL: w.Jobs})
	if err != nil {
		t.Fatal(err)
	}
	if waiting, err = q.Depth(t.Context()); err != nil {
		t.Fatal(err)
	}
	return waiting, w.Held(t.Context(), w.Jobs)
}

func (w *world) calls(operation string) (n int) {
	for _, c := range w.AWS.Calls() {
		if c.Operation == operation {
			n++
		}
	}
	return n
}

func TestBuild_TellsEveryMistakeAtOnce(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		pairs []string
		want  []string
	}{
		"missing": {
			[]string{"DAYFLY_CLUSTER", "", "DAYFLY_SUBNETS", "", "DAYFLY_RELAY_URL", "", "DAYFLY_LAUNCH_RATE", "21", "DAYFLY_LAUNCH_CONCURRENCY", "0", "DAYFLY_SPOT", "maybe", "DAYFLY_MODE", "launches"},
			[]string{"DAYFLY_CLUSTER", "DAYFLY_SUBNETS", "DAYFLY_RELAY_URL", "DAYFLY_LAUNCH_RATE", "DAYFLY_LAUNCH_CONCURRENCY", "DAYFLY_SPOT"},
		},
		"no such thing": {
			[]string{"DAYFLY_SUBNETS", "net-1", "DAYFLY_TASK_DEFINITION", "a b", "DAYFLY_RELAY_URL", "status"},
			[]string{"DAYFLY_SUBNETS", "DAYFLY_TASK_DEFINITION", "DAYFLY_RELAY_URL"},
		},
		"no such mode": {[]string{"DAYFLY_MODE", "both"}, []string{"DAYFLY_MODE"}},
		"no tags":      {[]string{"DAYFLY_TASK_TAGS", "team=a,team=b,cost"}, []string{"DAYFLY_TASK_TAGS", "DAYFLY_TASK_TAGS"}},
		"odd tags":     {[]string{"DAYFLY_TASK_TAGS", "dayfly:job=1"}, []string{"DAYFLY_TASK_TAGS"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := build(w.env(tc.pairs...))
			var mistakes workflow.Mistakes
			if !errors.As(err, &mistakes) || len(mistakes) != len(tc.want) {
				t.Fatalf("%v\nwant %d mistakes", err, len(tc.want))
			}
			for _, name := range tc.want {
				if !slices.ContainsFunc(mistakes, func(m string) bool { return strings.HasPrefix(m, name+": ") }) {
					t.Errorf("%s is not among them:\n%v", name, err)
				}
			}
		})
	}
	if _, err := build(w.env("DAYFLY_MODE", "dead-letters", "DAYFLY_RELAY_URL", "", "DAYFLY_SECURITY_GROUPS", "")); err != nil {
		t.Errorf("dead letters need no relay: %v", err)
	}
}

// L2: each message of a batch has its own fate.
func TestHandle_LaunchesWhatIsWantedBesidePoison(t *testing.T) {
	w := newWorld(t)
	jobs, bodies := w.claimed(t, 4)
	if _, err := w.Plane.Cancel(t.Context(), w.Admin, jobs[3].ID, api.WithReason{}); err != nil {
		t.Fatal(err)
	}
	e := w.take(t, append(bodies, "poison", bodies[0])...)
	poison := e.Records[slices.IndexFunc(e.Records, func(r events.SQSMessage) bool { return r.Body == "poison" })].MessageId
	if back := w.invoke(t.Context(), t, w.process(t, "DAYFLY_TASK_TAGS", "cost-center=4711, team=a=b"), e); !slices.Equal(back, []string{poison}) {
		t.Errorf("%v goes back; want the one that cannot be read, until it is a dead letter", back)
	}
	tasks := w.ecs.Tasks()
	if len(tasks) != 3 {
		t.Fatalf("%d tasks for 3 jobs that are wanted", len(tasks))
	}
	for _, job := range jobs[:3] {
		if st := w.State(t.Context(), job.ID); !slices.ContainsFunc(tasks, func(t fakeecs.Task) bool { return t.ARN == st.Task }) {
			t.Errorf("job %s is known to run as %q", job.ID, st.Task)
		}
	}
	for _, task := range tasks {
		if task.Tags["cost-center"] != "4711" || task.Tags["team"] != "a=b" {
			t.Errorf("its tags are %v", task.Tags)
		}
		env, err := json.Marshal(task.Env)
		if err != nil || strings.Contains(string(env), "dfj_") {
			t.Errorf("a job token is in the environment %s, %v", env, err)
		}
	}
	if waiting, held := w.counts(t); waiting != 0 || held != 1 {
		t.Errorf("%d messages wait, %d are held; want poison hidden", waiting, held)
	}
}

// An answer without an error would have Lambda delete what it did not name.
func TestHandle_RefusesWhatIsNoBatch(t *testing.T) {
	w := newWorld(t)
	_, bodies := w.claimed(t, 2)
	e := w.take(t, bodies...)
	e.Records[1].MessageId = "" // it could not be named
	for _, pairs := range [][]string{nil, {"DAYFLY_MODE", "dead-letters", "DAYFLY_RELAY_URL", ""}} {
		f := w.process(t, pairs...)
		for _, raw := range []string{"{}", "null", `{"Records":[]}`, `{"Records":[{"messageId":"a","eventSource":"aws:sns"}]}`, string(encoded(t, e))} {
			if _, err := f.handle(t.Context(), json.RawMessage(raw)); err == nil || !strings.Contains(err.Error(), "set up wrongly") {
				t.Errorf("%s of %.80s: %v", f.mode, raw, err)
			}
		}
	}
	if n := w.calls("RunTask"); n != 0 {
		t.Errorf("%d launches", n)
	}
}

func TestHandle_RefusedLaunchIsRequeuedWithItsReason(t *testing.T) {
	w := newWorld(t)
	jobs, bodies := w.claimed(t, 1)
	w.ecs.SetMissing(fakeecs.Capacity{})
	f := w.process(t)
	e := w.take(t, bodies...)
	if back := w.invoke(t.Context(), t, f, e); !slices.Equal(back, []string{e.Records[0].MessageId}) {
		t.Errorf("%v goes back", back)
	}
	if waiting, held := w.counts(t); waiting != 0 || held != 1 {
		t.Errorf("%d messages wait, %d are held; want it hidden", waiting, held)
	}
	st := w.State(t.Context(), jobs[0].ID)
	if st.State != workflow.Claimed || !strings.Contains(strings.ToLower(st.LaunchText), "capacity") || st.PendingPlacement != "" {
		t.Errorf("state %+v", st)
	}
	w.Submit(t.Context(), "net", 1)
	got, err := w.Plane.Claim(t.Context(), w.Pool, api.Claim{Instance: "stack", Max: 1})
	if err != nil || len(got.Jobs) != 0 || got.RetryAfterSeconds <= 0 {
		t.Errorf("a claim of this pool: %+v, %v", got, err)
	}
	w.ecs.SetMissing()
	if back := w.invoke(t.Context(), t, f, e); len(back) != 0 || len(w.ecs.Tasks()) != 1 { // the next delivery
		t.Errorf("%v goes back, %d tasks", back, len(w.ecs.Tasks()))
	}
}

// order is in which order the subnets are tried for a message.
func order(t *testing.T, w *world, body string) (first, second string) {
	t.Helper()
	m, err := api.DecodeLaunchMessage([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	names := read(boot.Read(w.env())).launches.Placements(m)
	if strings.Contains(names[0], subnetA) {
		return subnetA, subnetB
	}
	return subnetB, subnetA
}

// L4, L5: the answer for the second subnet is lost, and with it the process. The next one repeats that very
// launch, although the first subnet has room again: there is one task.
func TestHandle_LostAnswerIsRetriedInTheSameSubnet(t *testing.T) {
	w := newWorld(t)
	_, bodies := w.claimed(t, 1, func(m *api.LaunchMessage) { m.ReadsState, m.Operation = false, workflow.Update })
	e := w.take(t, bodies...)
	first, second := order(t, w, bodies[0])
	w.ecs.SetMissing(fakeecs.Capacity{Subnet: first})
	stop := w.AWS.Inject(wire.Fault{Service: "ecs", Operation: "RunTask", After: func(c wire.Call) error {
		if strings.Contains(string(c.Body), second) {
			return wire.Drop
		}
		return nil
	}})
	if back := w.invoke(t.Context(), t, w.process(t), e); len(back) != 1 {
		t.Fatalf("%v goes back", back)
	}
	if tasks := w.ecs.Tasks(); len(tasks) != 1 || tasks[0].Subnet != second {
		t.Fatalf("tasks after the lost answer: %+v", tasks)
	}
	stop()
	w.ecs.SetMissing()
	if back := w.invoke(t.Context(), t, w.process(t), e); len(back) != 0 {
		t.Errorf("%v goes back", back)
	}
	if tasks := w.ecs.Tasks(); len(tasks) != 1 || tasks[0].Subnet != second {
		t.Errorf("tasks in the end: %+v", tasks)
	}
}

// L3: ECS hides throttles in another error; one never ends a workflow.
func TestHandle_AWrappedThrottleGoesBack(t *testing.T) {
	w := newWorld(t)
	jobs, bodies := w.claimed(t, 1)
	e := w.take(t, bodies...)
	w.AWS.Inject(wire.Fault{Service: "ecs", Operation: "RunTask", Times: 1, Before: wire.Fail(
		&wire.Error{Code: "InvalidParameterException", Message: "Rate exceeded (ErrorCode: Throttling)"})})
	f := w.process(t)
	if back := w.invoke(t.Context(), t, f, e); len(back) != 1 || w.calls("RunTask") != 1 {
		t.Errorf("%v goes back after %d calls; a throttle ends the round", back, w.calls("RunTask"))
	}
	if st := w.State(t.Context(), jobs[0].ID); st.State != workflow.Claimed {
		t.Errorf("the workflow is %s", st.State)
	}
	if back := w.invoke(t.Context(), t, f, e); len(back) != 0 || len(w.ecs.Tasks()) != 1 {
		t.Errorf("%v goes back, %d tasks", back, len(w.ecs.Tasks()))
	}
}

// A launch for which there is no time is given back at once, for another invocation; a message that needs none is
// deleted. The log says no more than that.
func TestHandle_BeginsNoLaunchShortlyBeforeItsEnd(t *testing.T) {
	w := newWorld(t)
	jobs, bodies := w.claimed(t, 4)
	if _, err := w.Plane.Cancel(t.Context(), w.Admin, jobs[3].ID, api.WithReason{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), endMargin+launches.Margin-time.Second)
	defer cancel()
	var log strings.Builder
	f := w.process(t)
	f.log = slog.New(slog.NewTextHandler(&log, nil))
	if back := w.invoke(ctx, t, f, w.take(t, bodies...)); len(back) != 3 || w.calls("RunTask") != 0 {
		t.Errorf("%d messages go back after %d calls", len(back), w.calls("RunTask"))
	}
	if waiting, held := w.counts(t); waiting != 3 || held != 3 {
		t.Errorf("%d messages wait for another invocation, %d are held", waiting, held)
	}
	if !strings.Contains(log.String(), "launches put off") || strings.Contains(log.String(), "batch given back") || !strings.Contains(log.String(), "deleted=1 returned=3") {
		t.Errorf("log:\n%s", log.String())
	}
	f = w.process(t, "DAYFLY_MODE", "dead-letters", "DAYFLY_RELAY_URL", "")
	log.Reset()
	f.log = slog.New(slog.NewTextHandler(&log, nil))
	if w.invoke(ctx, t, f, w.take(t)); strings.Contains(log.String(), "launches put off") {
		t.Errorf("a handler of dead letters, which launches nothing, logged:\n%s", log.String())
	}
}

func aged(m *api.LaunchMessage) { m.SentAtMS -= (20 * time.Minute).Milliseconds() }

func TestHandle_DeadLetterEndsARunUnlessATaskMayLive(t *testing.T) {
	w := newWorld(t)
	jobs, bodies := w.claimed(t, 2, aged)
	// The first was launched by a dispatcher that died before it could say so.
	e := w.take(t, bodies[0])
	launching, cancel := context.WithCancel(t.Context())
	stop := w.AWS.Inject(wire.Fault{Service: "ecs", Operation: "RunTask", After: func(wire.Call) error { cancel(); return wire.Drop }})
	if _, err := w.process(t).handle(launching, encoded(t, e)); err != nil {
		t.Fatal(err)
	}
	stop()
	if len(w.ecs.Tasks()) != 1 {
		t.Fatalf("%d tasks", len(w.ecs.Tasks()))
	}
	f := w.process(t, "DAYFLY_MODE", "dead-letters", "DAYFLY_RELAY_URL", "")
	id := e.Records[0].MessageId
	e = w.take(t, bodies[1], "poison") // and the first, which was given back at once
	if back := w.invoke(t.Context(), t, f, e); len(e.Records) != 3 || !slices.Equal(back, []string{id}) {
		t.Errorf("%v goes back; want the one whose task lives", back)
	}
	if st := w.State(t.Context(), jobs[0].ID); st.State != workflow.Claimed {
		t.Errorf("the one whose task lives is %s", st.State)
	}
	if got := end(t, w, jobs[1].ID); got.State != workflow.Failed || got.Reason != workflow.ReasonLaunchFailed || !strings.Contains(got.Detail, "the dispatcher died while it handled the launch message") {
		t.Errorf("the other: %s, %s: %s", got.State, got.Reason, got.Detail)
	}
	if w.calls("RunTask") != 1 {
		t.Errorf("%d launches", w.calls("RunTask"))
	}
}

func end(t *testing.T, w *world, id string) api.Workflow {
	t.Helper()
	got, err := w.Plane.Workflow(t.Context(), w.Admin, id)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A function is frozen when its handler has returned: nothing may be left that would go on.
func TestHandle_LeavesNothingRunning(t *testing.T) {
	w := newWorld(t)
	_, bodies := w.claimed(t, 5)
	f := w.process(t)
	e := w.take(t, bodies...)
	w.ecs.SetMissing(fakeecs.Capacity{Subnet: subnetA}) // some go to their second subnet
	before := goleak.IgnoreCurrent()
	w.invoke(t.Context(), t, f, e)
	if n := len(w.ecs.Tasks()); n != 5 {
		t.Errorf("%d tasks", n)
	}
	w.ecs.Close() // the tasks, which are elsewhere
	leak.None(t, before,
		// Connections that are kept open, here and on the other side.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
	)
}
