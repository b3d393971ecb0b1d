package sqs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type fixture struct {
	*testing.T
	*awssqs.Client
	server  *awsim.Server
	service *sqs.Service
	url     string
}

// patience is how long a test waits for what should come at once: a machine that is busy may take longer.
const patience = 2 * time.Minute

// await asks until something is true.
func (f fixture) await(what string, ok func() bool) {
	f.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			f.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// start serves a queue "jobs" with these attributes.
func start(t *testing.T, attributes map[string]string) fixture {
	t.Helper()
	table := sigv4.NewTable(nil)
	f := fixture{T: t, service: &sqs.Service{}}
	f.server = awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"sqs": f.service}})
	server := httptest.NewServer(f.server)
	t.Cleanup(server.Close)
	f.Client = awssqs.NewFromConfig(awsim.ClientConfig(server.URL, table.User("test")), func(o *awssqs.Options) { o.RetryMaxAttempts = 1 })
	f.url = f.create("jobs", attributes)
	return f
}

func (f fixture) create(name string, attributes map[string]string) string {
	f.Helper()
	out, err := f.CreateQueue(f.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		f.Fatal(err)
	}
	return *out.QueueUrl
}

func (f fixture) send(url, body string) {
	f.Helper()
	if _, err := f.SendMessage(f.Context(), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}); err != nil {
		f.Fatal(err)
	}
}

func (f fixture) receive(url string, n, wait int32) []types.Message {
	f.Helper()
	out, err := f.ReceiveMessage(f.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: n, WaitTimeSeconds: wait, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}})
	if err != nil {
		f.Fatal(err)
	}
	return out.Messages
}

func (f fixture) attribute(url string, name types.QueueAttributeName) string {
	f.Helper()
	out, err := f.GetQueueAttributes(f.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{name}})
	if err != nil {
		f.Fatal(err)
	}
	return out.Attributes[string(name)]
}

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var e smithy.APIError
	if !errors.As(err, &e) || e.ErrorCode() != code {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

func TestHandles_OnlyTheLatestDeletesAndHides(t *testing.T) {
	f := start(t, map[string]string{"VisibilityTimeout": "600"})
	f.send(f.url, "a")
	first := f.receive(f.url, 1, 0)[0]
	if _, err := f.ChangeMessageVisibility(t.Context(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &f.url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0}); err != nil {
		t.Fatal(err)
	}
	_, err := f.ChangeMessageVisibility(t.Context(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &f.url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 10})
	wantCode(t, "hide what is not in flight", err, "AWS.SimpleQueueService.MessageNotInflight")
	if _, ok := errors.AsType[*types.MessageNotInflight](err); !ok {
		t.Errorf("got %T, want the SDK's own type", err)
	}
	second := f.receive(f.url, 1, 0)[0]
	if *first.MessageId != *second.MessageId || *first.ReceiptHandle == *second.ReceiptHandle || second.Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("got %v after %v, want the same message under another handle", second, first)
	}
	if _, err := f.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: first.ReceiptHandle}); err != nil {
		t.Errorf("delete with a stale handle: %v", err)
	}
	_, err = f.ChangeMessageVisibility(t.Context(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &f.url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0})
	wantCode(t, "hide with a stale handle", err, "InvalidParameterValue")
	if got := f.attribute(f.url, "ApproximateNumberOfMessagesNotVisible"); got != "1" {
		t.Errorf("in flight: got %s, want 1: the stale handle must not have deleted it", got)
	}
	_, err = f.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: aws.String("nonsense")})
	wantCode(t, "delete with nonsense", err, "ReceiptHandleIsInvalid")
	if _, err := f.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: second.ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	if got := f.attribute(f.url, "ApproximateNumberOfMessagesNotVisible"); got != "0" {
		t.Errorf("in flight: got %s, want 0", got)
	}
}

func TestReceive_LongPollThatWasGivenUpTakesNothing(t *testing.T) {
	f := start(t, map[string]string{"VisibilityTimeout": "600"})
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		arrived, done := make(chan struct{}), make(chan error)
		remove := f.server.Inject(wire.Fault{Operation: "ReceiveMessage", Before: func(wire.Call) error { close(arrived); return nil }})
		go func() {
			_, err := f.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &f.url, WaitTimeSeconds: 20})
			done <- err
		}()
		<-arrived
		remove()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("poll %d: got %v, want Canceled", i, err)
		}
		f.await("the poll to end with its client", func() bool {
			n := 0
			for _, c := range f.server.Calls() {
				if c.Operation == "ReceiveMessage" && c.Outcome == "dropped" {
					n++
				}
			}
			return n == i+1
		})
	}
	f.send(f.url, "a")
	if got := f.receive(f.url, 1, 0); len(got) != 1 || got[0].Attributes["ApproximateReceiveCount"] != "1" {
		t.Errorf("got %v, want the message for the first time", got)
	}
}

func TestReceive_LongPollIsAnsweredByAMessage(t *testing.T) {
	f := start(t, nil)
	done := make(chan []types.Message)
	go func() { done <- f.receive(f.url, 1, 20) }()
	f.send(f.url, "a")
	if got := <-done; len(got) != 1 {
		t.Errorf("got %v, want the message", got)
	}
}

func TestDelay_HidesAtFirst(t *testing.T) {
	f := start(t, nil)
	if _, err := f.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("a"), DelaySeconds: 1}); err != nil {
		t.Fatal(err)
	}
	if got := f.attribute(f.url, "ApproximateNumberOfMessagesDelayed"); got != "1" {
		t.Errorf("delayed: got %s, want 1", got)
	}
	if got := f.receive(f.url, 1, 20); len(got) != 1 || got[0].Attributes["ApproximateReceiveCount"] != "1" {
		t.Errorf("got %v, want the message for the first time", got)
	}
}

func TestRedrive_AfterTheReceivesAndBack(t *testing.T) {
	f := start(t, nil)
	dead := f.create("dead", nil)
	f.send(f.url, "poison")
	if _, err := f.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &f.url, Attributes: map[string]string{
		"VisibilityTimeout": "0", "RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:dead","maxReceiveCount":2}`,
	}}); err != nil {
		t.Fatal(err)
	}
	var first string
	for range 2 {
		first = *f.receive(f.url, 1, 0)[0].MessageId
	}
	if got := f.receive(f.url, 1, 0); len(got) != 0 {
		t.Errorf("got %v beyond the limit", got)
	}
	letter := f.receive(dead, 1, 0)
	if len(letter) != 1 || *letter[0].MessageId != first || letter[0].Attributes["DeadLetterQueueSourceArn"] != "arn:aws:sqs:us-east-1:123456789012:jobs" {
		t.Fatalf("got %v, want the dead letter %s of jobs", letter, first)
	}
	_, err := f.StartMessageMoveTask(t.Context(), &awssqs.StartMessageMoveTaskInput{SourceArn: aws.String("arn:aws:sqs:us-east-1:123456789012:jobs")})
	wantCode(t, "move from a queue without dead letters", err, "InvalidParameterValue")
	if _, err := f.ChangeMessageVisibility(t.Context(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &dead, ReceiptHandle: letter[0].ReceiptHandle, VisibilityTimeout: 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.StartMessageMoveTask(t.Context(), &awssqs.StartMessageMoveTaskInput{SourceArn: aws.String("arn:aws:sqs:us-east-1:123456789012:dead")}); err != nil {
		t.Fatal(err)
	}
	moves, err := f.ListMessageMoveTasks(t.Context(), &awssqs.ListMessageMoveTasksInput{SourceArn: aws.String("arn:aws:sqs:us-east-1:123456789012:dead")})
	if err != nil || len(moves.Results) != 1 || moves.Results[0].ApproximateNumberOfMessagesMoved != 1 {
		t.Errorf("moves: got %v, %v; want one of one message", moves, err)
	}
	back := f.receive(f.url, 1, 0)
	if len(back) != 1 || *back[0].MessageId == first || back[0].Attributes["ApproximateReceiveCount"] != "1" {
		t.Errorf("got %v, want a new message", back)
	}
}

func TestBatch_SomeFailAndTheRestIsDone(t *testing.T) {
	f := start(t, nil)
	f.service.FailEntry = func(operation, queue, text string) *sqs.EntryFault {
		if operation == "SendMessageBatch" && queue == "jobs" && text == "unlucky" {
			return &sqs.EntryFault{Code: "InternalError", Message: "try again"}
		}
		return nil
	}
	out, err := f.SendMessageBatch(t.Context(), &awssqs.SendMessageBatchInput{QueueUrl: &f.url, Entries: []types.SendMessageBatchRequestEntry{
		{Id: aws.String("1"), MessageBody: aws.String("good"), MessageGroupId: aws.String("tenant"), MessageAttributes: map[string]types.MessageAttributeValue{"k": {DataType: aws.String("String"), StringValue: aws.String("v")}}},
		{Id: aws.String("2"), MessageBody: aws.String("bad \x00")},
		{Id: aws.String("3"), MessageBody: aws.String("unlucky")},
		{Id: aws.String("4"), MessageBody: aws.String("late"), DelaySeconds: 901},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var done, failed []string
	for _, s := range out.Successful {
		done = append(done, *s.Id)
	}
	for _, e := range out.Failed {
		failed = append(failed, fmt.Sprint(*e.Id, *e.Code, e.SenderFault))
	}
	slices.Sort(failed)
	if want := []string{"1"}; !slices.Equal(done, want) {
		t.Errorf("done: got %v, want %v", done, want)
	}
	if want := []string{"2InvalidMessageContentstrue", "3InternalErrorfalse", "4InvalidParameterValuetrue"}; !slices.Equal(failed, want) {
		t.Errorf("failed: got %v, want %v", failed, want)
	}
	got := f.receive(f.url, 10, 0)
	if len(got) != 1 || *got[0].Body != "good" || got[0].Attributes["MessageGroupId"] != "tenant" {
		t.Errorf("got %v, want the good one of its group", got)
	}
}

func TestBatch_LimitsRefuseItWhole(t *testing.T) {
	f := start(t, nil)
	entries := func(n int, body string, id func(int) string) []types.SendMessageBatchRequestEntry {
		var out []types.SendMessageBatchRequestEntry
		for i := range n {
			out = append(out, types.SendMessageBatchRequestEntry{Id: aws.String(id(i)), MessageBody: &body})
		}
		return out
	}
	number := func(i int) string { return fmt.Sprint(i) }
	for code, e := range map[string][]types.SendMessageBatchRequestEntry{
		"AWS.SimpleQueueService.EmptyBatchRequest":            nil,
		"AWS.SimpleQueueService.TooManyEntriesInBatchRequest": entries(11, "a", number),
		"AWS.SimpleQueueService.BatchEntryIdsNotDistinct":     entries(2, "a", func(int) string { return "same" }),
		"AWS.SimpleQueueService.InvalidBatchEntryId":          entries(1, "a", func(int) string { return "no blanks" }),
		"AWS.SimpleQueueService.BatchRequestTooLong":          entries(5, strings.Repeat("x", 1<<18), number),
	} {
		in := &awssqs.SendMessageBatchInput{QueueUrl: &f.url, Entries: e}
		if e == nil {
			in.Entries = []types.SendMessageBatchRequestEntry{}
		}
		_, err := f.SendMessageBatch(t.Context(), in)
		wantCode(t, code, err, code)
	}
	if got := f.attribute(f.url, "ApproximateNumberOfMessages"); got != "0" {
		t.Errorf("%s messages were taken", got)
	}
}

func TestBatch_HandlesFailOneByOne(t *testing.T) {
	f := start(t, map[string]string{"VisibilityTimeout": "600"})
	f.send(f.url, "a")
	m := f.receive(f.url, 1, 0)[0]
	out, err := f.ChangeMessageVisibilityBatch(t.Context(), &awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &f.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
		{Id: aws.String("good"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 5},
		{Id: aws.String("bad"), ReceiptHandle: aws.String("nonsense"), VisibilityTimeout: 5},
	}})
	if err != nil || len(out.Successful) != 1 || *out.Successful[0].Id != "good" || len(out.Failed) != 1 || *out.Failed[0].Code != "ReceiptHandleIsInvalid" {
		t.Errorf("hide: got %+v, %v", out, err)
	}
	gone, err := f.DeleteMessageBatch(t.Context(), &awssqs.DeleteMessageBatchInput{QueueUrl: &f.url, Entries: []types.DeleteMessageBatchRequestEntry{
		{Id: aws.String("good"), ReceiptHandle: m.ReceiptHandle}, {Id: aws.String("bad"), ReceiptHandle: aws.String("nonsense")},
	}})
	if err != nil || len(gone.Successful) != 1 || len(gone.Failed) != 1 {
		t.Errorf("delete: got %+v, %v", gone, err)
	}
}

func TestDuplicate_ComesTwiceAlthoughDeleted(t *testing.T) {
	f := start(t, nil)
	if err := f.service.Duplicate("jobs", true); err != nil {
		t.Fatal(err)
	}
	f.send(f.url, "a")
	first := f.receive(f.url, 1, 0)[0]
	if _, err := f.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: first.ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	second := f.receive(f.url, 1, 0)
	if len(second) != 1 || *second[0].MessageId != *first.MessageId {
		t.Errorf("got %v, want message %s again", second, *first.MessageId)
	}
}

func TestLimits_AreSQSs(t *testing.T) {
	f := start(t, map[string]string{"VisibilityTimeout": "600"})
	body := strings.Repeat("x", 1<<20)
	f.send(f.url, body)
	_, err := f.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String(body + "x")})
	wantCode(t, "longer than 1 MiB", err, "InvalidParameterValue")
	_, err = f.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &f.url, MaxNumberOfMessages: 11})
	wantCode(t, "receive 11", err, "InvalidParameterValue")
	_, err = f.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &f.url, WaitTimeSeconds: 21})
	wantCode(t, "wait 21 s", err, "InvalidParameterValue")
	m := f.receive(f.url, 1, 0)[0]
	_, err = f.ChangeMessageVisibility(t.Context(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 12*3600 + 1})
	wantCode(t, "hide for more than 12 h", err, "InvalidParameterValue")
	_, err = f.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String("nowhere")})
	wantCode(t, "no such queue", err, "AWS.SimpleQueueService.NonExistentQueue")
	if _, ok := errors.AsType[*types.QueueDoesNotExist](err); !ok {
		t.Errorf("got %T, want the SDK's own type", err)
	}
	_, err = f.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("a"), MessageDeduplicationId: aws.String("d")})
	wantCode(t, "deduplication on a standard queue", err, "InvalidParameterValue")
	_, err = f.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &f.url, Attributes: map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:nowhere","maxReceiveCount":1}`}})
	wantCode(t, "dead letters to nowhere", err, "InvalidAttributeValue")
	_, err = f.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("both"), Attributes: map[string]string{"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"}})
	wantCode(t, "two encryptions at once", err, "InvalidAttributeName")
	key := f.create("key", map[string]string{"KmsMasterKeyId": "k"})
	out, err := f.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &key, AttributeNames: []types.QueueAttributeName{"SqsManagedSseEnabled"}})
	if err != nil || out.Attributes["SqsManagedSseEnabled"] != "false" {
		t.Errorf("a queue with a key: got %+v, %v", out, err)
	}
}

func TestPurge_EmptiesAndTakesAPause(t *testing.T) {
	f := start(t, nil)
	f.send(f.url, "a")
	if _, err := f.PurgeQueue(t.Context(), &awssqs.PurgeQueueInput{QueueUrl: &f.url}); err != nil {
		t.Fatal(err)
	}
	if got := f.receive(f.url, 1, 0); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
	_, err := f.PurgeQueue(t.Context(), &awssqs.PurgeQueueInput{QueueUrl: &f.url})
	wantCode(t, "again", err, "AWS.SimpleQueueService.PurgeQueueInProgress")
}

// (Amazon SQS API Reference, SendMessage.)
func TestGroups_HaveNamesOfPrintableCharacters(t *testing.T) {
	f := start(t, nil)
	body := "a"
	for group, want := range map[string]bool{
		"default/net": true, strings.Repeat("x", 128): true, "!~": true,
		strings.Repeat("x", 129): false, "default net": false, "größe": false, "a\n": false,
	} {
		_, err := f.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &body, MessageGroupId: &group})
		if want && err != nil {
			t.Errorf("%q: %v", group, err)
		}
		if !want {
			wantCode(t, group, err, "InvalidParameterValue")
		}
	}
}

func TestGroups_TakeTurns(t *testing.T) {
	f := start(t, nil)
	for _, m := range []string{"loud-1", "loud-2", "loud-3", "quiet-1"} {
		group, _, _ := strings.Cut(m, "-")
		if _, err := f.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &m, MessageGroupId: &group}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, m := range f.receive(f.url, 2, 0) {
		got = append(got, *m.Body)
	}
	if want := []string{"loud-1", "quiet-1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRetention_ForgetsOldMessages(t *testing.T) {
	f := start(t, map[string]string{"MessageRetentionPeriod": "60"})
	now := time.Now()
	f.service.Now = func() time.Time { return now }
	f.send(f.url, "a")
	now = now.Add(time.Minute)
	if got := f.receive(f.url, 1, 0); len(got) != 0 {
		t.Errorf("got %v after its retention", got)
	}
}

func TestHandles_ExpireAfterTwelveHours(t *testing.T) {
	f := start(t, map[string]string{"VisibilityTimeout": "30"})
	now := time.Now()
	f.service.Now = func() time.Time { return now }
	f.send(f.url, "a")
	m := f.receive(f.url, 1, 0)[0]
	now = now.Add(12*time.Hour + time.Second)
	_, err := f.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle})
	wantCode(t, "delete", err, "InvalidParameterValue")
	if again := f.receive(f.url, 1, 0); len(again) != 1 {
		t.Errorf("got %v, want the message again", again)
	}
}

// Receipt handles come back from clients: whatever comes, the service answers.
func FuzzReceiptHandle(f *testing.F) {
	service := &sqs.Service{}
	do := func(operation string, in map[string]any) (any, error) {
		body, err := json.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		return service.Operations()[operation](context.Background(), wire.Call{Service: "sqs", Operation: operation, Body: body})
	}
	out, err := do("CreateQueue", map[string]any{"QueueName": "jobs"})
	if err != nil {
		f.Fatal(err)
	}
	url := out.(map[string]any)["QueueUrl"]
	if _, err := do("SendMessage", map[string]any{"QueueUrl": url, "MessageBody": "a"}); err != nil {
		f.Fatal(err)
	}
	f.Add("")
	f.Add("am9icy8xLzE=")
	f.Add("am9icy8xLzA=")
	f.Fuzz(func(t *testing.T, handle string) {
		for operation, in := range map[string]map[string]any{
			"DeleteMessage":           {"QueueUrl": url, "ReceiptHandle": handle},
			"ChangeMessageVisibility": {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 1},
		} {
			_, err := do(operation, in)
			if _, ok := errors.AsType[*wire.Error](err); err != nil && !ok {
				t.Errorf("%s: got %v, want an error of AWS", operation, err)
			}
		}
		// It was never received, so no handle of it exists.
		out, err := do("GetQueueAttributes", map[string]any{"QueueUrl": url, "AttributeNames": []string{"ApproximateNumberOfMessages"}})
		if err != nil || out.(map[string]any)["Attributes"].(map[string]string)["ApproximateNumberOfMessages"] != "1" {
			t.Errorf("%q deleted a message that was never received: %v, %v", handle, out, err)
		}
	})
}
