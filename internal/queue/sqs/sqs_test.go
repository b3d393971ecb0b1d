package sqs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/queuetest"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

var _ queue.Queue = (*sqs.Queue)(nil)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// world is a fake AWS and a client of it.
type world struct {
	server  *awsim.Server
	service *fakesqs.Service
	client  *awssqs.Client
}

func start(t *testing.T) *world {
	t.Helper()
	table := sigv4.NewTable(nil)
	w := &world{service: &fakesqs.Service{}}
	w.server = awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"sqs": w.service}})
	http := httptest.NewServer(w.server)
	t.Cleanup(http.Close)
	w.client = awssqs.NewFromConfig(awsim.ClientConfig(http.URL, table.Session("dispatcher", "dispatcher", time.Hour)),
		func(o *awssqs.Options) { o.Retryer = aws.NopRetryer{} })
	return w
}

// open makes a queue with these attributes.
func open(t *testing.T, client *awssqs.Client, attributes map[string]string) (q *sqs.Queue, arn string) {
	t.Helper()
	out, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("queue-" + rand.Text()), Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = client.DeleteQueue(context.WithoutCancel(t.Context()), &awssqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
	})
	got, err := client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: out.QueueUrl, AttributeNames: []types.QueueAttributeName{"QueueArn"}})
	if err != nil {
		t.Fatal(err)
	}
	q, err = sqs.New(client, sqs.Config{URL: *out.QueueUrl})
	if err != nil {
		t.Fatal(err)
	}
	return q, got.Attributes["QueueArn"]
}

func visible(d time.Duration) string { return fmt.Sprint(int(d / time.Second)) }

func harness(client func(t *testing.T) *awssqs.Client) queuetest.Harness {
	return queuetest.Harness{
		Open: func(t *testing.T, visibility time.Duration) queue.Queue {
			q, _ := open(t, client(t), map[string]string{"VisibilityTimeout": visible(visibility)})
			return q
		},
		OpenDead: func(t *testing.T, visibility time.Duration, maxReceives int) (queue.Queue, queue.Queue) {
			c := client(t)
			dead, arn := open(t, c, map[string]string{"VisibilityTimeout": visible(visibility)})
			q, _ := open(t, c, map[string]string{
				"VisibilityTimeout": visible(visibility),
				"RedrivePolicy":     fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn, maxReceives),
			})
			return q, dead
		},
		Patience: queuetest.Visible + 5*time.Second,
		Parallel: true,
	}
}

func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped by -short: the suite waits for visibility time-outs in real time")
	}
	t.Parallel()
}

func TestConformance_OverTheFake(t *testing.T) {
	slow(t)
	queuetest.Run(t, harness(func(t *testing.T) *awssqs.Client { return start(t).client }))
}

// The worst that at-least-once allows.
func TestConformance_OverTheFakeWithDuplicates(t *testing.T) {
	slow(t)
	h := harness(nil)
	h.Open = func(t *testing.T, visibility time.Duration) queue.Queue {
		w := start(t)
		out, err := w.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("twice"), Attributes: map[string]string{"VisibilityTimeout": visible(visibility)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.service.Duplicate("twice", true); err != nil {
			t.Fatal(err)
		}
		q, err := sqs.New(w.client, sqs.Config{URL: *out.QueueUrl})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	h.OpenDead = nil
	queuetest.Run(t, h)
}

func TestSendBatch_WhatTheServiceRefusesFailsAlone(t *testing.T) {
	w := start(t)
	w.service.FailEntry = func(_, _, text string) *fakesqs.EntryFault {
		switch text {
		case "unlucky":
			return &fakesqs.EntryFault{Code: "InternalError", Message: "try again"}
		case "unwanted":
			return &fakesqs.EntryFault{Code: "InvalidMessageContents", Message: "no", SenderFault: true}
		case "no \x00": // LocalStack: such an answer would be tried again for ever
			return &fakesqs.EntryFault{Code: "InvalidMessageContents", Message: "no"}
		}
		return nil
	}
	q, _ := open(t, w.client, nil)
	errs := q.SendBatch(t.Context(), []queue.Outgoing{
		{Body: []byte("a"), Group: "g"}, {Body: []byte("unlucky"), Group: "g"}, {Body: []byte("no \x00"), Group: "g"}, {Body: []byte("unwanted"), Group: "g"}, {Body: []byte("b"), Group: "g"},
	})
	want := []error{nil, workflow.ErrBusy, workflow.ErrInvalid, workflow.ErrInvalid, nil}
	if len(errs) != len(want) {
		t.Fatalf("got %v", errs)
	}
	for i, err := range errs {
		if !errors.Is(err, want[i]) || want[i] == nil && err != nil {
			t.Errorf("message %d: got %v, want %v", i, err, want[i])
		}
	}
	if n, err := q.Depth(t.Context()); err != nil || n != 2 {
		t.Errorf("depth: got %d, %v; want 2", n, err)
	}
}

// Two calls: the answer of the second is lost. Its messages fail although they were taken.
func TestSendBatch_LostAnswer(t *testing.T) {
	w := start(t)
	q, _ := open(t, w.client, nil)
	calls := 0
	w.server.Inject(wire.Fault{Operation: "SendMessageBatch", After: func(wire.Call) error {
		if calls++; calls == 2 {
			return wire.Drop
		}
		return nil
	}})
	var batch []queue.Outgoing
	for range 6 {
		batch = append(batch, queue.Outgoing{Body: []byte(strings.Repeat("x", 256<<10)), Group: "g"}) // four fit into a call
	}
	errs := q.SendBatch(t.Context(), batch)
	for i, err := range errs {
		if lost := i >= 4; lost != errors.Is(err, workflow.ErrBusy) || !lost && err != nil {
			t.Errorf("message %d: got %v", i, err)
		}
	}
	if n, err := q.Depth(t.Context()); len(errs) != 6 || err != nil || n != 6 {
		t.Errorf("depth: got %d, %v; want 6", n, err)
	}
}

func TestHeld_CountsWhatWasReceivedAndNotWhatIsDelayed(t *testing.T) {
	q, _ := open(t, start(t).client, nil)
	if errs := q.SendBatch(t.Context(), []queue.Outgoing{{Body: []byte("a")}, {Body: []byte("b")}, {Body: []byte("c"), Delay: time.Minute}}); errs != nil {
		t.Fatal(errs)
	}
	for received := range 2 {
		if n, err := q.Held(t.Context()); n != 2 || err != nil {
			t.Errorf("%d received: %d held, %v; want two", received, n, err)
		}
		if m, err := q.Receive(t.Context(), 1, 0); err != nil || len(m) != 1 {
			t.Fatalf("got %v, %v", m, err)
		}
	}
}

func TestGroups_AreFairWhateverTheyAreCalled(t *testing.T) {
	q, _ := open(t, start(t).client, nil)
	for _, m := range []queue.Outgoing{
		{Body: []byte("loud-1"), Group: "über laut"}, {Body: []byte("loud-2"), Group: "über laut"},
		{Body: []byte("quiet"), Group: strings.Repeat("q", 200)}, {Body: []byte("none")},
	} {
		if err := q.Send(t.Context(), m.Body, m.Group); err != nil {
			t.Fatal(err)
		}
	}
	messages, err := q.Receive(t.Context(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range messages {
		got = append(got, string(m.Body))
	}
	if want := "loud-1 quiet none"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestErrors_AreClassifiedAndSayWhatToDo(t *testing.T) {
	w := start(t)
	q, _ := open(t, w.client, nil)
	for name, c := range map[string]struct {
		fault error
		want  error
		text  string
	}{
		"throttled":   {&wire.Error{Status: http.StatusBadRequest, Code: "ThrottlingException", QueryCode: "RequestThrottled", Message: "Rate exceeded"}, workflow.ErrBusy, "Rate exceeded"},
		"unavailable": {&wire.Error{Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable", Message: "later"}, workflow.ErrBusy, "later"},
		"broken":      {wire.Drop, workflow.ErrBusy, ""},
		"denied":      {&wire.Error{Status: http.StatusForbidden, Code: "AccessDeniedException", QueryCode: "AccessDenied", Message: "User: x is not authorized"}, workflow.ErrForbidden, "sqs:SendMessage"},
		"gone":        {&wire.Error{Code: "QueueDoesNotExist", QueryCode: "AWS.SimpleQueueService.NonExistentQueue", Message: "no"}, workflow.ErrNotFound, "check its URL"},
		"expired":     {&wire.Error{Status: http.StatusForbidden, Code: "ExpiredTokenException", QueryCode: "ExpiredToken", Message: "The security token included in the request is expired"}, workflow.ErrForbidden, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			defer w.server.Inject(wire.Fault{Service: "sqs", Before: wire.Fail(c.fault)})()
			err := q.Send(t.Context(), []byte("a"), "g")
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("send: got %v, want %v with %q", err, c.want, c.text)
			}
			if _, err := q.Depth(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("depth: got %v, want %v", err, c.want)
			}
			if _, err := q.Receive(t.Context(), 1, 0); !errors.Is(err, c.want) {
				t.Errorf("receive: got %v, want %v", err, c.want)
			}
			if errs := q.SendBatch(t.Context(), []queue.Outgoing{{Body: []byte("a")}, {Body: []byte("b")}}); len(errs) != 2 || !errors.Is(errs[0], c.want) || !errors.Is(errs[1], c.want) {
				t.Errorf("batch: got %v, want %v", errs, c.want)
			}
		})
	}
}

// A receipt of another day is stale, under any error code of SQS.
func TestReceipt_OfMoreThanTwelveHoursAgoIsStale(t *testing.T) {
	w := start(t)
	q, _ := open(t, w.client, nil)
	now := time.Now()
	w.service.Now = func() time.Time { return now }
	if err := q.Send(t.Context(), []byte("a"), "g"); err != nil {
		t.Fatal(err)
	}
	m, err := q.Receive(t.Context(), 1, 0)
	if err != nil || len(m) != 1 {
		t.Fatalf("got %v, %v", m, err)
	}
	now = now.Add(queue.MaxVisibility + time.Second)
	if err := q.Delete(t.Context(), m[0].Receipt); !errors.Is(err, queue.ErrStale) {
		t.Errorf("delete: got %v, want ErrStale", err)
	}
	if err := q.Hide(t.Context(), m[0].Receipt, time.Minute); !errors.Is(err, queue.ErrStale) {
		t.Errorf("hide: got %v, want ErrStale", err)
	}
	if n, err := q.Depth(t.Context()); err != nil || n != 1 {
		t.Errorf("depth: got %d, %v; want 1", n, err)
	}
}

func TestHide_LastsForWholeSeconds(t *testing.T) {
	w := start(t)
	now := time.Now()
	w.service.Now = func() time.Time { return now }
	q, _ := open(t, w.client, map[string]string{"VisibilityTimeout": "3600"})
	if err := q.Send(t.Context(), []byte("a"), "g"); err != nil {
		t.Fatal(err)
	}
	m, err := q.Receive(t.Context(), 1, 0)
	if err != nil || len(m) != 1 {
		t.Fatalf("got %v, %v", m, err)
	}
	if err := q.Hide(t.Context(), m[0].Receipt, 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 1} {
		now = now.Add([]time.Duration{1900 * time.Millisecond, 200 * time.Millisecond}[i])
		if m, err := q.Receive(t.Context(), 1, 0); err != nil || len(m) != want {
			t.Errorf("look %d: got %v, %v; want %d messages", i, m, err, want)
		}
	}
}

// An SQS that never answers ends a call with its time-out, not with the caller's patience.
func TestTimeout_EndsACallThatIsNotAnswered(t *testing.T) {
	w := start(t)
	url, err := w.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("slow")})
	if err != nil {
		t.Fatal(err)
	}
	q, err := sqs.New(w.client, sqs.Config{URL: *url.QueueUrl, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.server.Inject(wire.Fault{Operation: "GetQueueAttributes", Delay: time.Hour})
	if _, err := q.Depth(t.Context()); !errors.Is(err, workflow.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
}

func TestNew_BadConfigIsRefused(t *testing.T) {
	for name, c := range map[string]sqs.Config{
		"nothing": {}, "no address": {URL: "jobs"}, "no name": {URL: "https://sqs/"}, "negative": {URL: "https://sqs/1/jobs", Timeout: -1},
	} {
		if _, err := sqs.New(nil, c); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}
