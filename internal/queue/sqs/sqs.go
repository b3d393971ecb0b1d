// Package sqs is the queue on Amazon SQS: a standard queue, whose visibility time-out and dead letters
// are those of its own settings.
//
// # Consistency model
//
// The promises of SQS: every message at least once, in no order, its depth approximate. Groups are sent as
// message groups, which a standard queue serves fairly. A send whose answer was lost is repeated by the
// SDK and may then be there twice. A receive that its caller gave up may have been answered all the same:
// such a message comes back when its visibility time-out ends. An answer that arrived is always handed out, also when
// the context ended at that moment.
//
// Each workspace of each organization is a message group, so that many messages of one do not delay those of the others.
// SQS calls a group noisy that has more than 10 % of the messages in flight, and more than 30.
package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxCall is the limit of SQS for one call: the bytes of all bodies. (SQS API reference, SendMessageBatch.)
const maxCall = 1 << 20

// defaultTimeout is how long a call may take where Config says nothing.
const defaultTimeout = 15 * time.Second

// Config says which queue it is.
type Config struct {
	URL string // required
	// Timeout bounds one call with its repeats, beyond the wait of a receive; 0 means 15 s.
	Timeout time.Duration
}

// Queue is a queue.Queue in SQS.
type Queue struct {
	client  *awssqs.Client
	url     string
	name    string // the last part of the URL, for messages
	timeout time.Duration
}

// New returns the queue of a URL. It calls nobody.
func New(client *awssqs.Client, c Config) (*Queue, error) {
	name := c.URL[strings.LastIndexByte(c.URL, '/')+1:]
	if name == "" || !strings.Contains(c.URL, "://") {
		return nil, workflow.Refuse(workflow.ErrInvalid, "url", "a queue is named by its URL, such as https://sqs.us-east-1.amazonaws.com/123456789012/jobs, not %q", c.URL)
	}
	if c.Timeout < 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "timeout", "a time-out is not negative")
	}
	return &Queue{client: client, url: c.URL, name: name, timeout: cmp.Or(c.Timeout, defaultTimeout)}, nil
}

// Send implements queue.Queue.
func (q *Queue) Send(ctx context.Context, body []byte, group string) error {
	if err := queue.CheckBody(body); err != nil {
		return err
	}
	_, err := call(ctx, q, 0, "send to", "sqs:SendMessage", q.client.SendMessage,
		&awssqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String(string(body)), MessageGroupId: groupID(group)})
	return err
}

// call makes a call that may take as long as the queue's time-out and wait. op and permission are for its error.
func call[I, O any](ctx context.Context, q *Queue, wait time.Duration, op, permission string,
	do func(context.Context, *I, ...func(*awssqs.Options)) (*O, error), in *I) (*O, error) {
	bounded, cancel := context.WithTimeout(ctx, wait+q.timeout)
	defer cancel()
	out, err := do(bounded, in)
	if err != nil {
		return nil, q.failed(ctx, op, permission, err)
	}
	return out, nil
}

// SendBatch implements queue.Queue. Messages that are together too long for one call are sent in several;
// when one of those calls fails, the rest is not tried.
func (q *Queue) SendBatch(ctx context.Context, messages []queue.Outgoing) []error {
	if err := queue.CheckBatch(messages); err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	errs := make([]error, len(messages))
	var lost error
	for _, part := range split(messages, errs) {
		if lost == nil {
			lost = q.sendPart(ctx, messages, part, errs)
		}
		if lost != nil {
			for _, i := range part {
				errs[i] = lost
			}
		}
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// split arranges the messages that may be sent, by their index, into calls that are not too long. The others
// get their error.
func split(messages []queue.Outgoing, errs []error) [][]int {
	var parts [][]int
	size := maxCall
	for i, m := range messages {
		if errs[i] = m.Check(); errs[i] != nil {
			continue
		}
		if size += len(m.Body); size > maxCall {
			parts, size = append(parts, nil), len(m.Body)
		}
		last := len(parts) - 1
		parts[last] = append(parts[last], i)
	}
	return parts
}

// sendPart sends the messages of one call. It notes which of them were refused, and returns an error
// where the whole call failed.
func (q *Queue) sendPart(ctx context.Context, messages []queue.Outgoing, part []int, errs []error) error {
	in := &awssqs.SendMessageBatchInput{QueueUrl: &q.url}
	for _, i := range part {
		in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(messages[i].Body)), MessageGroupId: groupID(messages[i].Group),
			DelaySeconds: seconds(messages[i].Delay),
		})
		errs[i] = fmt.Errorf("send to queue %s: its answer does not name the message: %w", q.name, workflow.ErrBusy)
	}
	out, err := call(ctx, q, 0, "send to", "sqs:SendMessage", q.client.SendMessageBatch, in)
	if err != nil {
		return err
	}
	for _, s := range out.Successful {
		if i, ok := entry(s.Id, part); ok {
			errs[i] = nil
		}
	}
	for _, f := range out.Failed {
		if i, ok := entry(f.Id, part); ok {
			kind := workflow.ErrBusy
			if f.SenderFault {
				kind = workflow.ErrInvalid
			}
			errs[i] = fmt.Errorf("send to queue %s: %s (%s): %w", q.name, aws.ToString(f.Message), aws.ToString(f.Code), kind)
		}
	}
	return nil
}

// entry is the index that an entry's id names, if it is one of part.
func entry(id *string, part []int) (int, bool) {
	n, err := strconv.Atoi(aws.ToString(id))
	return n, err == nil && slices.Contains(part, n)
}

// groupID is the message group of a group; nil if there is none.
func groupID(group string) *string {
	if group == "" {
		return nil
	}
	return aws.String(queue.GroupID(group))
}

// Receive implements queue.Queue.
func (q *Queue) Receive(ctx context.Context, maxMessages int, wait time.Duration) ([]queue.Message, error) {
	if err := queue.CheckReceive(maxMessages, wait); err != nil {
		return nil, err
	}
	out, err := call(ctx, q, wait, "receive from", "sqs:ReceiveMessage", q.client.ReceiveMessage, &awssqs.ReceiveMessageInput{
		QueueUrl: &q.url, MaxNumberOfMessages: int32(maxMessages), WaitTimeSeconds: seconds(wait), //nolint:gosec // both were checked to be small
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount},
	})
	if err != nil {
		return nil, err
	}
	var messages []queue.Message
	for _, m := range out.Messages {
		n, err := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
		if err != nil {
			n = 1 // it was delivered at least now
		}
		messages = append(messages, queue.Message{ID: aws.ToString(m.MessageId), Body: []byte(aws.ToString(m.Body)), Receipt: aws.ToString(m.ReceiptHandle), Receives: n})
	}
	return messages, nil
}

// Hide implements queue.Queue. SQS counts whole seconds: a part of one is counted as one. A message that
// came back cannot be hidden any more, whether it was handed out again or not.
func (q *Queue) Hide(ctx context.Context, receipt string, d time.Duration) error {
	if err := queue.CheckHide(d); err != nil {
		return err
	}
	_, err := call(ctx, q, 0, "hide message of", "sqs:ChangeMessageVisibility", q.client.ChangeMessageVisibility,
		&awssqs.ChangeMessageVisibilityInput{QueueUrl: &q.url, ReceiptHandle: &receipt, VisibilityTimeout: seconds(d)})
	return err
}

// Delete implements queue.Queue. SQS takes a receipt of an earlier delivery without an error, and
// deletes nothing by it.
func (q *Queue) Delete(ctx context.Context, receipt string) error {
	_, err := call(ctx, q, 0, "delete message of", "sqs:DeleteMessage", q.client.DeleteMessage,
		&awssqs.DeleteMessageInput{QueueUrl: &q.url, ReceiptHandle: &receipt})
	return err
}

// Depth implements queue.Queue. SQS approximates it, and may be a minute late.
func (q *Queue) Depth(ctx context.Context) (int, error) {
	return q.count(ctx, types.QueueAttributeNameApproximateNumberOfMessages)
}

// Held is how many messages wait or were received and not deleted: all but those that are delayed. SQS approximates it
// too.
func (q *Queue) Held(ctx context.Context) (int, error) {
	return q.count(ctx, types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible)
}

// count adds up attributes that are numbers of messages.
func (q *Queue) count(ctx context.Context, names ...types.QueueAttributeName) (sum int, err error) {
	out, err := call(ctx, q, 0, "count messages of", "sqs:GetQueueAttributes", q.client.GetQueueAttributes,
		&awssqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: names})
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := strconv.Atoi(out.Attributes[string(name)])
		if err != nil {
			return 0, fmt.Errorf("count messages of queue %s: the answer has no %s: %w", q.name, name, workflow.ErrBusy)
		}
		sum += n
	}
	return sum, nil
}

// seconds rounds up: a message that is hidden for half a second must not come back at once.
func seconds(d time.Duration) int32 {
	return int32((d + time.Second - 1) / time.Second) //nolint:gosec // every duration here was checked to be at most 12 h
}

// failed classifies the error of a call. ctx is the caller's: when it ended, that is the error.
func (q *Queue) failed(ctx context.Context, op, permission string, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("%s queue %s: %w", op, q.name, ended)
	}
	if stale(err) {
		return fmt.Errorf("%s queue %s: %w", op, q.name, queue.ErrStale)
	}
	switch class := awserr.Of(err); {
	case class == awserr.NotFound:
		return workflow.Refuse(workflow.ErrNotFound, "queue", "there is no queue %s; check its URL, its account and its region", q.url)
	case class == awserr.Denied:
		return workflow.Refuse(workflow.ErrForbidden, "queue", "the queue %s may not be used: %s; its user needs the permission %s", q.name, awserr.Message(err), permission)
	case class.Transient():
		return fmt.Errorf("%s queue %s: %s (%s): %w", op, q.name, awserr.Message(err), class, workflow.ErrBusy)
	}
	return workflow.Refuse(workflow.ErrInvalid, "queue", "%s queue %s: %s", op, q.name, awserr.Message(err))
}

// stale reports whether an error says that a receipt no longer holds a message. SQS has a code only for a message that
// came back; for one that is gone, and for a receipt older than twelve hours, the text of a general error says so.
func stale(err error) bool {
	switch awserr.Code(err) {
	case "MessageNotInflight", "ReceiptHandleIsInvalid":
		return true
	case "InvalidParameterValue":
		said := awserr.Message(err)
		return strings.Contains(said, "Message does not exist or is not available for visibility timeout change") || strings.Contains(said, "The receipt handle has expired")
	}
	return false
}
