package sqssource_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/hosttest"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/sqssource"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/sqs"
)

var built string

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m, &built)) }

// world is a queue, a host with the function fn, and what is between them.
type world struct {
	t       *testing.T
	client  *awssqs.Client
	url     string
	host    *lambdahost.Host
	batches chan sqssource.Batch
}

func newWorld(t *testing.T, change ...func(*lambdahost.Function)) *world {
	t.Helper()
	table := sigv4.NewTable(nil)
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"sqs": &sqs.Service{}}}))
	t.Cleanup(server.Close)
	w := &world{t: t, batches: make(chan sqssource.Batch, 100)}
	w.client = awssqs.NewFromConfig(awsim.ClientConfig(server.URL, table.User("lambda")))
	name := "jobs"
	out, err := w.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"VisibilityTimeout": "600"}})
	if err != nil {
		t.Fatal(err)
	}
	w.url = *out.QueueUrl
	w.host = lambdahost.New(lambdahost.Config{Log: func(_, line string) { t.Log(line) }})
	t.Cleanup(w.host.Close)
	f := lambdahost.Function{Name: "fn", Bootstrap: built, Timeout: hosttest.Wait}
	for _, c := range change {
		c(&f)
	}
	if err := w.host.Put(f); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) send(bodies ...string) {
	w.t.Helper()
	for part := range slices.Chunk(bodies, 10) {
		var entries []types.SendMessageBatchRequestEntry
		for i, b := range part {
			id := strconv.Itoa(i)
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &b})
		}
		if _, err := w.client.SendMessageBatch(w.t.Context(), &awssqs.SendMessageBatchInput{QueueUrl: &w.url, Entries: entries}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// run starts a mapping that the test's end stops.
func (w *world) run(cfg sqssource.Config) {
	w.t.Helper()
	cfg.QueueURL, cfg.Function = w.url, "fn"
	cfg.Observe = func(b sqssource.Batch) { w.batches <- b }
	s, err := sqssource.New(w.t.Context(), w.client, w.host, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel(over)
		if err := <-ended; !errors.Is(err, over) {
			w.t.Errorf("the mapping ended with %v", err)
		}
	})
}

func (w *world) batch() sqssource.Batch {
	w.t.Helper()
	select {
	case b := <-w.batches:
		return b
	case <-hosttest.Context(w.t).Done():
		w.t.Fatal("no batch was handled")
		return sqssource.Batch{}
	}
}

// left counts the messages that the queue still has, hidden ones included.
func (w *world) left() int {
	w.t.Helper()
	out, err := w.client.GetQueueAttributes(w.t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &w.url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		w.t.Fatal(err)
	}
	sum := 0
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		n, err := strconv.Atoi(out.Attributes[name])
		if err != nil {
			w.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func TestBatch_WhatBecomesOfItsMessages(t *testing.T) {
	for _, c := range []struct {
		name   string
		bodies []string
		report bool
		failed int
		err    string
	}{
		{"all succeed", []string{"ok", "ok", "ok"}, true, 0, ""},
		{"some fail", []string{"ok", "fail", "ok", "fail"}, true, 2, ""},
		{"an answer of null", []string{"null", "ok"}, true, 0, ""},
		{"a stranger is named", []string{"ok", "stranger"}, true, 2, "not a message of the batch"},
		{"an answer that is not a list", []string{"ok", "text"}, true, 2, "not understood"},
		{"an error", []string{"ok", "error no"}, true, 2, "the function failed"},
		{"failures that are not asked for", []string{"ok", "fail"}, false, 0, ""},
		{"an error where failures are not asked for", []string{"ok", "error no"}, false, 2, "the function failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.send(c.bodies...)
			w.run(sqssource.Config{ReportBatchItemFailures: c.report})
			b := w.batch()
			if b.Messages != len(c.bodies) || b.Failed != c.failed {
				t.Errorf("%d messages, %d failed; want %d, %d", b.Messages, b.Failed, len(c.bodies), c.failed)
			}
			if c.err == "" && b.Err != nil || c.err != "" && (b.Err == nil || !strings.Contains(b.Err.Error(), c.err)) {
				t.Errorf("error %v, want %q", b.Err, c.err)
			}
			if n := w.left(); n != c.failed {
				t.Errorf("the queue has %d messages, want the %d that failed", n, c.failed)
			}
		})
	}
}

func TestBatch_IsNoLargerThanSaid(t *testing.T) {
	w := newWorld(t)
	w.send("ok", "ok", "ok", "ok", "ok")
	w.run(sqssource.Config{BatchSize: 2})
	for sum := 0; sum < 5; {
		b := w.batch()
		if b.Messages > 2 {
			t.Errorf("a batch of %d, want 2 at most", b.Messages)
		}
		sum += b.Messages
	}
}

// A window gathers what one receive, of at most ten, does not bring.
func TestBatch_IsGatheredWithinItsWindow(t *testing.T) {
	w := newWorld(t)
	w.send(slices.Repeat([]string{"ok"}, 100)...) // two pollers cannot share them without one being full
	w.run(sqssource.Config{BatchSize: 40, BatchWindow: 5 * time.Minute, MaximumConcurrency: 2})
	if b := w.batch(); b.Messages != 40 || b.Err != nil {
		t.Errorf("the first batch is %+v, want 40 messages", b)
	}
}

// Messages that are too large for one event go in several.
func TestBatch_IsSplitWhereItIsTooLarge(t *testing.T) {
	w := newWorld(t)
	for range 8 {
		w.send("ok " + strings.Repeat("x", 1_000_000))
	}
	w.run(sqssource.Config{})
	for sum := 0; sum < 8; {
		b := w.batch()
		if b.Err != nil || b.Messages > 6 {
			t.Errorf("a batch of %d: %v", b.Messages, b.Err)
		}
		sum += b.Messages
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

func TestMaximumConcurrency_IsKept(t *testing.T) {
	w := newWorld(t)
	p := hosttest.NewPartner(t)
	w.send(slices.Repeat([]string{"talk " + p.Address()}, 4)...)
	w.run(sqssource.Config{BatchSize: 1, MaximumConcurrency: 2})
	first, second := p.Hear(), p.Hear()
	if n := len(w.host.Environments("fn")); n != 2 || !p.Silent() {
		t.Errorf("%d invocations at once, want 2", n)
	}
	first.Reply(t, "yes")
	third := p.Hear()
	if n := len(w.host.Environments("fn")); n != 2 {
		t.Errorf("%d environments for the third, want the warm one used again", n)
	}
	second.Reply(t, "yes")
	third.Reply(t, "yes")
	p.Hear().Reply(t, "yes")
	for range 4 {
		if b := w.batch(); b.Err != nil || b.Failed > 0 {
			t.Errorf("batch %+v", b)
		}
	}
}

func TestThrottle_LeavesTheMessages(t *testing.T) {
	none := 0
	w := newWorld(t, func(f *lambdahost.Function) { f.ReservedConcurrency = &none })
	w.send("ok")
	w.run(sqssource.Config{})
	b := w.batch()
	refused, ok := errors.AsType[*lambdahost.ServiceError](b.Err)
	if !ok || refused.Status != 429 || b.Failed != 1 || w.left() != 1 {
		t.Errorf("batch %+v, %d left; want a throttle, and the message where it was", b, w.left())
	}
}

func TestNew_RefusesWhatTheServiceRefuses(t *testing.T) {
	w := newWorld(t)
	for name, cfg := range map[string]sqssource.Config{
		"large batches without a window":        {BatchSize: 11},
		"one invocation at a time":              {MaximumConcurrency: 1},
		"a function slower than its visibility": {FunctionTimeout: 601 * time.Second},
		"a window above five minutes":           {BatchWindow: 6 * time.Minute},
	} {
		cfg.QueueURL, cfg.Function = w.url, "fn"
		if _, err := sqssource.New(t.Context(), w.client, w.host, cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
