package poolstack_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakeecs "github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
	"github.com/dayfly-dev/dayfly/test/poolstack"
)

// deployed is a stack whose poller and dispatcher are the built files, hosted as Lambda hosts them.
type deployed struct {
	*poolstack.Stack
	ecs  *fakeecs.Service
	host *lambdahost.Host

	mu    sync.Mutex
	lines []string
	ahead time.Duration // of the queue's clock
}

func deploy(t *testing.T, pairs ...string) *deployed {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds functions, which takes longer than -short allows")
	}
	built, err := bootstrap.Build(t.Context(), bootstrap.Config{Root: "../..", Out: t.TempDir(), NoZip: true, Version: "test"},
		"./functions/poller", "./functions/dispatcher")
	if err != nil {
		t.Fatal(err)
	}
	d := &deployed{}
	d.ecs, err = fakeecs.New(fakeecs.Config{Clusters: []string{"cluster"}, Runner: fakeecs.Func(fakeecs.UntilStopped)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.ecs.Close)
	definition := d.ecs.Define(fakeecs.Definition{Family: "runner", Containers: []fakeecs.Container{{Name: "runner", Image: "runner"}}})
	clock := func() time.Time { d.mu.Lock(); defer d.mu.Unlock(); return time.Now().Add(d.ahead) }
	d.Stack = poolstack.New(t, map[string]awsim.Service{"ecs": d.ecs, "sqs": &fakesqs.Service{Now: clock}})
	d.host = lambdahost.New(lambdahost.Config{Log: func(function, line string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lines = append(d.lines, function+": "+line)
	}})
	t.Cleanup(d.host.Close)
	variables := d.Variables(append(pairs, "DAYFLY_LOG_LEVEL", "info", "DAYFLY_POLLING_WINDOW", "0",
		"DAYFLY_CLUSTER", "cluster", "DAYFLY_TASK_DEFINITION", definition, "DAYFLY_CONTAINER", "runner",
		"DAYFLY_SUBNETS", "subnet-0000000000000000a,subnet-0000000000000000b", "DAYFLY_RELAY_URL", "https://status.example.com/status")...)
	for _, one := range built {
		d.put(t, one.Name, one.Bootstrap, variables)
	}
	wrong := d.Variables("DAYFLY_POLLING_WINDOW", "2m")
	delete(wrong, "DAYFLY_INSTANCE")
	d.put(t, "wrong", built[0].Bootstrap, wrong)
	return d
}

func (d *deployed) put(t *testing.T, name, file string, variables map[string]string) {
	t.Helper()
	if err := d.host.Put(lambdahost.Function{
		Name: name, Bootstrap: file, Timeout: time.Minute, Environment: variables,
		Credentials: lambdahost.Credentials{
			AccessKeyID: d.Credentials.AccessKeyID, SecretAccessKey: d.Credentials.SecretAccessKey, SessionToken: d.Credentials.SessionToken,
		},
	}); err != nil {
		t.Fatal(err)
	}
}

// log is what the functions wrote.
func (d *deployed) log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n")
}

// deliver hands up to ten waiting messages to the dispatcher, as an event source does, and reports whether
// there were any. What the function did not handle comes back at once: its time-out is not waited for.
func (d *deployed) deliver(t *testing.T) bool {
	t.Helper()
	var e events.SQSEvent
	for _, m := range d.Receive(t.Context(), d.Jobs) {
		e.Records = append(e.Records, events.SQSMessage{MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes, EventSource: "aws:sqs"})
	}
	if len(e.Records) == 0 {
		return false
	}
	payload, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.host.Invoke(t.Context(), "dispatcher", payload)
	if err != nil {
		t.Fatal(err)
	}
	var answer events.SQSEventResponse
	if got.FunctionError == "" {
		if err := json.Unmarshal(got.Payload, &answer); err != nil {
			t.Fatalf("answer %s: %v", got.Payload, err)
		}
	}
	for _, r := range e.Records {
		switch {
		case got.FunctionError != "":
			_, err = d.SQS.ChangeMessageVisibility(t.Context(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &d.Jobs, ReceiptHandle: &r.ReceiptHandle})
		case !slices.ContainsFunc(answer.BatchItemFailures, func(f events.SQSBatchItemFailure) bool { return f.ItemIdentifier == r.MessageId }):
			_, err = d.SQS.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &d.Jobs, ReceiptHandle: &r.ReceiptHandle})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// The built poller and dispatcher, killed in the middle of their work and at its end: every job has one
// task, and the control plane knows which.
func TestBinaries_KilledAtAnyPointEveryJobHasOneTask(t *testing.T) {
	d := deploy(t)
	ids := d.Submit(t.Context(), "net", 25)
	schedule, err := os.ReadFile(filepath.Join("..", "..", "events", "schedule.json"))
	if err != nil {
		t.Fatal(err)
	}
	// The first poller dies after it has queued everything and before it has reported that. The second finds nothing to
	// do.
	if err := d.host.Inject("poller", lambdahost.Fault{Moment: lambdahost.BeforeResponse}); err != nil {
		t.Fatal(err)
	}
	if got, err := d.host.Invoke(t.Context(), "poller", schedule); err != nil || got.FunctionError == "" {
		t.Fatalf("a poller that was killed: %+v, %v", got, err)
	}
	if got, err := d.host.Invoke(t.Context(), "poller", []byte("{}")); err != nil || got.FunctionError != "" {
		t.Fatalf("poller: %s, %v\n%s", got.Payload, err, d.log())
	}
	// The first dispatcher dies when its batch is launched and reported, a later one when a task of its batch is there and
	// nobody has heard of it.
	var calls atomic.Int32
	defer d.AWS.Inject(wire.Fault{Service: "ecs", Operation: "RunTask", After: func(wire.Call) error {
		if calls.Add(1) == 13 {
			d.host.Kill("dispatcher")
		}
		return nil
	}})()
	if err := d.host.Inject("dispatcher", lambdahost.Fault{Moment: lambdahost.BeforeResponse}); err != nil {
		t.Fatal(err)
	}
	until(t, d.log, "the queue is empty", func() bool { return !d.deliver(t) && d.Held(t.Context(), d.Jobs) == 0 })
	d.oneTaskEach(t, ids)
	if stats, n := d.host.Stats("dispatcher"), int(calls.Load()); stats.Died != 2 || n <= len(ids) {
		t.Errorf("%+v, %d launches of %d jobs: want two that died, and a launch that was repeated", stats, n, len(ids))
	}
	// One that cannot work says all that is wrong and does not begin.
	if got, err := d.host.Invoke(t.Context(), "wrong", []byte("{}")); err != nil || got.FunctionError == "" {
		t.Errorf("with a wrong environment: %+v, %v", got, err)
	}
	for _, want := range []string{
		`"msg":"poll ended"`, `"msg":"batch ended"`, "DAYFLY_INSTANCE: is missing", "DAYFLY_POLLING_WINDOW: 2m is not between",
	} {
		until(t, d.log, want+" is in the log", func() bool { return strings.Contains(d.log(), want) })
	}
	for _, secret := range []string{"dfp_", "dfj_"} {
		if log := d.log(); strings.Contains(log, secret) {
			t.Errorf("%s\nthe log shows a token that begins with %s", log, secret)
		}
	}
}

// oneTaskEach fails unless every job has one task, and the control plane knows which.
func (d *deployed) oneTaskEach(t *testing.T, ids []string) {
	t.Helper()
	tasks := d.ecs.Tasks()
	known := map[string]bool{}
	for _, id := range ids {
		st := d.State(t.Context(), id)
		if st.State != workflow.Claimed || st.Task == "" {
			t.Errorf("%s is %s with task %q", id, st.State, st.Task)
		}
		known[st.Task] = true
	}
	if len(tasks) != len(ids) || len(known) != len(ids) {
		t.Errorf("%s\n%d tasks, of which %d are known, for %d jobs", d.log(), len(tasks), len(known), len(ids))
	}
}

// A poller that launches, killed before its launches are answered, and another one when it has reported them.
func TestBinaries_KilledInADirectLaunchStartOneTask(t *testing.T) {
	d := deploy(t, "DAYFLY_DIRECT_LAUNCH", "true")
	var calls atomic.Int32
	var deadly atomic.Bool
	deadly.Store(true)
	defer d.AWS.Inject(wire.Fault{Service: "ecs", Operation: "RunTask", Before: func(wire.Call) error {
		calls.Add(1)
		return nil
	}, After: func(wire.Call) error {
		if deadly.Load() {
			d.host.Kill("poller") // the task is there, and nobody hears of it
		}
		return nil
	}})()
	ids := d.Submit(t.Context(), "net", 2)
	if got, err := d.host.Invoke(t.Context(), "poller", []byte("{}")); err != nil || got.FunctionError == "" {
		t.Fatalf("a poller that was killed: %+v, %v", got, err)
	}
	if n := len(d.ecs.Tasks()); n == 0 || d.Held(t.Context(), d.Jobs) != 2 {
		t.Fatalf("%d tasks, %d messages: it was not killed in a launch", n, d.Held(t.Context(), d.Jobs))
	}
	deadly.Store(false)
	ids = append(ids, d.Submit(t.Context(), "other", 2)...)
	if err := d.host.Inject("poller", lambdahost.Fault{Moment: lambdahost.BeforeResponse}); err != nil {
		t.Fatal(err)
	}
	if got, err := d.host.Invoke(t.Context(), "poller", []byte("{}")); err != nil || got.FunctionError == "" {
		t.Fatalf("a poller that was killed at its end: %+v, %v", got, err)
	}
	if d.deliver(t) {
		t.Error("a message came before its delay was over")
	}
	before := calls.Load()
	d.mu.Lock()
	d.ahead = 30 * time.Second
	d.mu.Unlock()
	until(t, d.log, "the queue is empty", func() bool { return !d.deliver(t) && d.Held(t.Context(), d.Jobs) == 0 })
	d.oneTaskEach(t, ids)
	if n := calls.Load() - before; n != 2 { // those whose launch nobody heard of
		t.Errorf("the dispatcher made %d launches, want 2", n)
	}
}

// patience is for a machine that is busy.
const patience = 4 * time.Minute

// until asks again and again until something is so.
func until(t *testing.T, log func() string, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%s later it is not so that %s", log(), patience, what)
		}
	}
}
