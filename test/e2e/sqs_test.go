package e2e_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// C1, L1: the launch queue is SQS at its worst: each message comes twice, some of a batch are refused,
// answers of sends and deletes are lost, calls are throttled. Every workflow is done, and done once.
func TestExactlyOneStart_OverSQSAtItsWorst(t *testing.T) {
	t.Parallel()
	const workspaces = 8
	workflows := 80
	if testing.Short() {
		workflows = 24
	}
	table, service := sigv4.NewTable(nil), &fakesqs.Service{}
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"sqs": service}})
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	cl := awssqs.NewFromConfig(awsim.ClientConfig(listener.URL, table.Session("agent", "agent", time.Hour)), func(o *awssqs.Options) { o.Retryer = aws.NopRetryer{} })
	made, err := cl.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("jobs"), Attributes: map[string]string{"VisibilityTimeout": "5"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Duplicate("jobs", true); err != nil {
		t.Fatal(err)
	}
	var entries, refused atomic.Int64
	service.FailEntry = func(operation, _, _ string) *fakesqs.EntryFault {
		if n := entries.Add(1); operation == "SendMessageBatch" && n%7 == 0 && n < 70 {
			refused.Add(1)
			return &fakesqs.EntryFault{Code: "InternalError", Message: "We encountered an internal error. Please try again."}
		}
		return nil
	}
	q, err := sqs.New(cl, sqs.Config{URL: *made.QueueUrl})
	if err != nil {
		t.Fatal(err)
	}
	received := &deliveries{Queue: q, of: map[string]int{}}
	w := start(t, func(c *embedded.UpConfig) {
		c.Agent.Settings.Concurrency = workspaces
		c.Agent.WrapQueue = func(queue.Queue) queue.Queue { return received }
	})
	// Only now: the agent asks its queue when it begins.
	throttle := &wire.Error{Code: "ThrottlingException", QueryCode: "RequestThrottled", Message: "Rate exceeded"}
	for _, f := range []wire.Fault{
		{Operation: "SendMessageBatch", Times: 2, After: wire.Fail(wire.Drop)},
		{Operation: "SendMessageBatch", Times: 1, Before: wire.Fail(throttle)},
		{Operation: "DeleteMessage", Times: 10, After: wire.Fail(wire.Drop)},
		{Operation: "DeleteMessage", Times: 5, Before: wire.Fail(throttle)},
		{Operation: "ReceiveMessage", Times: 2, After: wire.Fail(wire.Drop)},
	} {
		server.Inject(f)
	}
	for i := range workspaces {
		w.put(fmt.Sprintf("ws-%d", i), map[string]string{"update": `echo "$DAYFLY_WORKFLOW_ID $DAYFLY_ATTEMPT" >>"$EFFECTS"`})
	}
	ids := make([]string, workflows)
	for i := range ids {
		ids[i] = w.Submit(api.Submit{Workspace: fmt.Sprintf("ws-%d", i%workspaces), Operation: workflow.Update})
	}
	uptest.Grows(t, "side effects", workflows, func() int { return len(w.lines()) })
	for _, id := range ids {
		w.wants(w.Over(id), workflow.Succeeded, workflow.ReasonNone)
	}
	times := map[string]int{}
	for _, line := range w.lines() {
		id, _, _ := strings.Cut(line, " ")
		times[id]++
	}
	for _, id := range ids {
		if times[id] != 1 {
			t.Errorf("workflow %s was done %d times; timeline:\n%s", id, times[id], w.Timeline(id))
		}
	}
	// That nothing was done twice counts only if the trouble was there.
	trouble := map[string]int{}
	for _, c := range server.Calls() {
		if c.Outcome != "ok" {
			trouble[c.Operation+" "+c.Outcome]++
		}
	}
	for _, want := range []string{"SendMessageBatch dropped", "SendMessageBatch ThrottlingException", "DeleteMessage dropped", "DeleteMessage ThrottlingException", "ReceiveMessage dropped"} {
		if trouble[want] == 0 {
			t.Errorf("no %s: %v", want, trouble)
		}
	}
	if refused.Load() == 0 || received.twice() == 0 {
		t.Errorf("%d entries were refused, and %d messages came twice", refused.Load(), received.twice())
	}
}

// deliveries is a queue that counts how often each message came.
type deliveries struct {
	queue.Queue

	mu sync.Mutex
	of map[string]int // by its body
}

func (d *deliveries) Receive(ctx context.Context, most int, wait time.Duration) ([]queue.Message, error) {
	got, err := d.Queue.Receive(ctx, most, wait)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range got {
		d.of[string(one.Body)]++
	}
	return got, err
}

// twice is how many messages came more than once.
func (d *deliveries) twice() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, times := range d.of {
		if times > 1 {
			n++
		}
	}
	return n
}
