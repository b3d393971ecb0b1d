// Package sqssource is Lambda's event source mapping for an SQS queue: pollers that receive messages
// through the real client, gather batches, invoke a function and delete what it handled.
//
// What it keeps of the service: batch size and window, the batch's limit of 6 MB, maximum concurrency, partial failures with
// the rule that an answer which is not understood fails the whole batch, deletion only after
// success, and that nothing is done for a message that failed: it comes back when its visibility runs out, also when
// the function was throttled. There are no filters, no FIFO queues and no provisioned mode.
//
// https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
package sqssource

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
)

// Invoker runs a function; *lambdahost.Host is one.
type Invoker interface {
	Invoke(ctx context.Context, function string, payload []byte) (lambdahost.Result, error)
}

// Config is one mapping.
type Config struct {
	QueueURL        string
	Function        string
	FunctionTimeout time.Duration // compared with the queue's visibility timeout, as the service does; 0 means not
	BatchSize       int           // messages of an invocation, 1 to 10,000, above 10 only with a window; 0 means 10
	BatchWindow     time.Duration // how long a batch is gathered, up to 5 min; 0 means not at all
	// MaximumConcurrency is how many invocations go on at once, 2 to 1000; 0 means 5, the number of
	// pollers with which the service starts.
	MaximumConcurrency      int
	ReportBatchItemFailures bool
	PollWait                time.Duration // of a long poll, whole seconds; 0 means 20 s
	// Latency is added between a receive and its invocation: what AWS takes and this machine does not.
	Latency time.Duration
	// Observe is told of each batch when it is done with, one at a time; nil is not.
	Observe func(Batch)
}

// Batch is what became of one batch.
type Batch struct {
	Messages int
	Failed   int   // they come back
	Err      error // why there was no answer, or none that was understood; else nil
}

// Source is a mapping. Run it once.
type Source struct {
	cfg       Config
	queue     *sqs.Client
	functions Invoker
	arn       string // of the queue
	region    string

	mu sync.Mutex // of Observe
}

// New makes a mapping, or says what the service would have against it. It asks the queue for its attributes.
func New(ctx context.Context, queue *sqs.Client, functions Invoker, cfg Config) (*Source, error) {
	cfg.BatchSize, cfg.MaximumConcurrency = cmp.Or(cfg.BatchSize, 10), cmp.Or(cfg.MaximumConcurrency, 5)
	cfg.PollWait = cmp.Or(cfg.PollWait, 20*time.Second)
	switch {
	case cfg.BatchSize < 1 || cfg.BatchSize > 10000:
		return nil, fmt.Errorf("event source mapping of %s: batch size %d is not from 1 to 10000", cfg.Function, cfg.BatchSize)
	case cfg.BatchSize > 10 && cfg.BatchWindow < time.Second:
		return nil, fmt.Errorf("event source mapping of %s: a batch size of %d, above 10, needs a batch window of at least 1s", cfg.Function, cfg.BatchSize)
	case cfg.BatchWindow < 0 || cfg.BatchWindow > 5*time.Minute:
		return nil, fmt.Errorf("event source mapping of %s: batch window %s is not within 5m", cfg.Function, cfg.BatchWindow)
	case cfg.MaximumConcurrency < 2 || cfg.MaximumConcurrency > 1000:
		return nil, fmt.Errorf("event source mapping of %s: maximum concurrency %d is not from 2 to 1000", cfg.Function, cfg.MaximumConcurrency)
	}
	out, err := queue.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl:       &cfg.QueueURL,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn, types.QueueAttributeNameVisibilityTimeout},
	})
	if err != nil {
		return nil, fmt.Errorf("event source mapping of %s: read the attributes of its queue: %w", cfg.Function, err)
	}
	seconds, err := strconv.Atoi(out.Attributes[string(types.QueueAttributeNameVisibilityTimeout)])
	if err != nil {
		return nil, fmt.Errorf("event source mapping of %s: visibility timeout of its queue: %w", cfg.Function, err)
	}
	if visible := time.Duration(seconds) * time.Second; visible < cfg.FunctionTimeout {
		return nil, fmt.Errorf("event source mapping of %s: Queue visibility timeout: %s is less than Function timeout: %s", cfg.Function, visible, cfg.FunctionTimeout)
	}
	s := &Source{cfg: cfg, queue: queue, functions: functions, arn: out.Attributes[string(types.QueueAttributeNameQueueArn)]}
	if parts := strings.Split(s.arn, ":"); len(parts) == 6 {
		s.region = parts[3]
	}
	return s, nil
}

// Run polls until ctx ends, and returns its cause when every invocation is over. What those
// handled is still deleted.
func (s *Source) Run(ctx context.Context) error {
	var pollers sync.WaitGroup
	for range s.cfg.MaximumConcurrency {
		pollers.Go(func() {
			for ctx.Err() == nil {
				s.pass(ctx)
			}
		})
	}
	pollers.Wait()
	return context.Cause(ctx)
}

// pass is one batch, or one long poll that brought nothing.
func (s *Source) pass(ctx context.Context) {
	batch, err := s.gather(ctx)
	if err != nil && ctx.Err() == nil {
		s.observe(Batch{Err: fmt.Errorf("receive: %w", err)})
		pause(ctx, time.Second)
	}
	if len(batch) == 0 {
		return
	}
	pause(ctx, s.cfg.Latency)
	// A batch that was received is handled to its end, whatever ends the polling.
	ctx = context.WithoutCancel(ctx)
	if s.handle(ctx, batch) {
		pause(ctx, slowDown)
	}
}

// slowDown is how long a poller rests when its function was throttled.
const slowDown = 100 * time.Millisecond

// handle runs the function with a batch, or with its halves where it is too large for one event, and deletes what is
// done. It reports whether the function was throttled.
func (s *Source) handle(ctx context.Context, batch []types.Message) (throttled bool) {
	payload, err := s.event(batch)
	if err == nil && len(payload) > lambdahost.MaxSyncPayload && len(batch) > 1 {
		half := len(batch) / 2
		first, second := s.handle(ctx, batch[:half]), s.handle(ctx, batch[half:])
		return first || second
	}
	failed := func(string) bool { return true }
	if err == nil {
		failed, err = s.invoke(ctx, payload, batch)
	}
	var done []types.Message
	for _, m := range batch {
		if !failed(*m.MessageId) {
			done = append(done, m)
		}
	}
	lost := s.remove(ctx, done)
	s.observe(Batch{Messages: len(batch), Failed: len(batch) - len(done), Err: errors.Join(err, lost)})
	refused, ok := errors.AsType[*lambdahost.ServiceError](err)
	return ok && refused.Status == 429
}

func (s *Source) observe(b Batch) {
	if s.cfg.Observe == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Observe(b)
}

// gather receives until the batch is full, its window has passed or, without a window, once.
func (s *Source) gather(ctx context.Context) ([]types.Message, error) {
	var batch []types.Message
	var end time.Time
	wait := s.cfg.PollWait
	for {
		out, err := s.queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl:                    &s.cfg.QueueURL,
			MaxNumberOfMessages:         int32(min(10, s.cfg.BatchSize-len(batch))), //nolint:gosec // 1 to 10
			WaitTimeSeconds:             int32(wait / time.Second),                  //nolint:gosec // 0 to 20
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			MessageAttributeNames:       []string{"All"},
		})
		if err != nil {
			return batch, err
		}
		if len(out.Messages) > 0 && end.IsZero() {
			end = time.Now().Add(s.cfg.BatchWindow)
		}
		batch = append(batch, out.Messages...)
		left := time.Until(end)
		if len(batch) == 0 || len(batch) >= s.cfg.BatchSize || left <= 0 {
			return batch, nil
		}
		wait = min(left.Round(time.Second), s.cfg.PollWait)
	}
}

// record is one message in the function's event.
// https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
type record struct {
	MessageID         string               `json:"messageId"`
	ReceiptHandle     string               `json:"receiptHandle"`
	Body              string               `json:"body"`
	Attributes        map[string]string    `json:"attributes"`
	MessageAttributes map[string]attribute `json:"messageAttributes"`
	MD5OfBody         string               `json:"md5OfBody"`
	EventSource       string               `json:"eventSource"`
	EventSourceARN    string               `json:"eventSourceARN"`
	AWSRegion         string               `json:"awsRegion"`
}

type attribute struct {
	StringValue      *string  `json:"stringValue,omitempty"`
	BinaryValue      []byte   `json:"binaryValue,omitempty"`
	StringListValues []string `json:"stringListValues"`
	BinaryListValues [][]byte `json:"binaryListValues"`
	DataType         string   `json:"dataType"`
}

func (s *Source) event(batch []types.Message) ([]byte, error) {
	records := make([]record, 0, len(batch))
	for _, m := range batch {
		attributes := map[string]attribute{}
		for name, v := range m.MessageAttributes {
			attributes[name] = attribute{
				StringValue: v.StringValue, BinaryValue: v.BinaryValue, DataType: aws.ToString(v.DataType),
				StringListValues: []string{}, BinaryListValues: [][]byte{},
			}
		}
		records = append(records, record{
			MessageID: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: aws.ToString(m.Body),
			Attributes: m.Attributes, MessageAttributes: attributes, MD5OfBody: aws.ToString(m.MD5OfBody),
			EventSource: "aws:sqs", EventSourceARN: s.arn, AWSRegion: s.region,
		})
	}
	return json.Marshal(map[string]any{"Records": records})
}

// invoke runs the function with a batch and says which messages failed, and why if it was not the
// function that named them.
func (s *Source) invoke(ctx context.Context, payload []byte, batch []types.Message) (failed func(id string) bool, err error) {
	all := func(string) bool { return true }
	result, err := s.functions.Invoke(ctx, s.cfg.Function, payload)
	switch {
	case err != nil:
		return all, err
	case result.FunctionError != "":
		return all, fmt.Errorf("the function failed: %s", result.Payload)
	case !s.cfg.ReportBatchItemFailures:
		return func(string) bool { return false }, nil
	}
	ids := map[string]bool{}
	for _, m := range batch {
		ids[*m.MessageId] = true
	}
	named, err := failures(result.Payload, ids)
	if err != nil {
		return all, err
	}
	return func(id string) bool { return named[id] }, nil
}

// failures reads the answer of a function that reports failures. Nothing, null, an answer without a list, and an empty
// list mean that all is done. An error means that the whole batch failed: the answer is another object, or an
// identifier is empty, null, under another name, or not that of a message in the batch.
func failures(payload []byte, ids map[string]bool) (map[string]bool, error) {
	named := map[string]bool{}
	if len(bytes.TrimSpace(payload)) == 0 {
		return named, nil
	}
	var answer map[string]json.RawMessage // names of fields count as they are written
	if err := json.Unmarshal(payload, &answer); err != nil {
		return nil, fmt.Errorf("the answer is not understood: %w", err)
	}
	list := answer["batchItemFailures"]
	if list == nil {
		return named, nil
	}
	var items []map[string]any
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, fmt.Errorf("the answer is not understood: %w", err)
	}
	for i, item := range items {
		id, _ := item["itemIdentifier"].(string)
		if id == "" {
			return nil, fmt.Errorf("the answer is not understood: failure %d has no itemIdentifier", i+1)
		}
		if !ids[id] {
			return nil, fmt.Errorf("the answer is not understood: failure %d names %q, which is not a message of the batch", i+1, id)
		}
		named[id] = true
	}
	return named, nil
}

// remove deletes messages that are done, and tries those again that the queue did not take. What is left comes
// once more: at least once is all that is promised.
func (s *Source) remove(ctx context.Context, done []types.Message) error {
	var lost []error
	for part := range slices.Chunk(done, 10) {
		entries := make([]types.DeleteMessageBatchRequestEntry, 0, len(part))
		for i, m := range part {
			entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		for range 3 {
			out, err := s.queue.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &s.cfg.QueueURL, Entries: entries})
			if err != nil {
				lost = append(lost, fmt.Errorf("delete: %w", err))
				break
			}
			var again []types.DeleteMessageBatchRequestEntry
			for _, f := range out.Failed {
				i, err := strconv.Atoi(aws.ToString(f.Id))
				if err != nil || i < 0 || i >= len(part) {
					continue
				}
				again = append(again, types.DeleteMessageBatchRequestEntry{Id: f.Id, ReceiptHandle: part[i].ReceiptHandle})
			}
			if entries = again; len(entries) == 0 {
				break
			}
		}
	}
	return errors.Join(lost...)
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
