package boot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/queue"
)

// Outbox is a queue into which a function puts small messages: together they fit into one call. It does so without the
// SDK's client of SQS, with which and that of ECS the poller takes 10.2 MB at its start (see Caller).
type Outbox struct {
	caller Caller
	url    string
	name   string // the last part of the URL, for messages
}

// NewOutbox returns the queue with this URL. It makes no call.
func NewOutbox(cfg aws.Config, url string) *Outbox {
	return &Outbox{caller: NewCaller(cfg), url: url, name: url[strings.LastIndexByte(url, '/')+1:]}
}

// outgoing is an entry of SendMessageBatch. (SQS API reference.)
type outgoing struct {
	ID      string `json:"Id"`
	Body    string `json:"MessageBody"`
	Group   string `json:"MessageGroupId,omitempty"`
	Seconds int    `json:"DelaySeconds"`
}

// SendBatch sends up to queue.MaxBatch messages; see queue.Queue. It repeats a call whose answer is lost, so that
// messages may be there twice.
func (o *Outbox) SendBatch(ctx context.Context, messages []queue.Outgoing) []error {
	if err := queue.CheckBatch(messages); err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	errs := make([]error, len(messages))
	var entries []outgoing
	for i, m := range messages {
		if errs[i] = m.Check(); errs[i] != nil {
			continue
		}
		entries = append(entries, outgoing{
			ID: strconv.Itoa(i), Body: string(m.Body), Group: queue.GroupID(m.Group), Seconds: int((m.Delay + time.Second - 1) / time.Second),
		})
		errs[i] = fmt.Errorf("send to queue %s: its answer does not name the message", o.name)
	}
	if len(entries) == 0 {
		return errs
	}
	var out struct {
		Successful []struct{ ID string }
		Failed     []struct{ ID, Code, Message string }
	}
	err := o.ask(ctx, "SendMessageBatch", map[string]any{"QueueUrl": o.url, "Entries": entries}, &out)
	for _, e := range entries {
		i, _ := strconv.Atoi(e.ID)
		if err != nil {
			errs[i] = fmt.Errorf("send to queue %s: %w", o.name, err)
		}
		for _, s := range out.Successful {
			if s.ID == e.ID {
				errs[i] = nil
			}
		}
		for _, f := range out.Failed {
			if f.ID == e.ID {
				errs[i] = fmt.Errorf("send to queue %s: %s (%s)", o.name, f.Message, f.Code)
			}
		}
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	return errs
}

// Depth is how many messages wait or were received and not deleted: all but those that are delayed. SQS approximates
// it.
func (o *Outbox) Depth(ctx context.Context) (sum int, err error) {
	names := []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"}
	var out struct{ Attributes map[string]string }
	if err := o.ask(ctx, "GetQueueAttributes", map[string]any{"QueueUrl": o.url, "AttributeNames": names}, &out); err != nil {
		return 0, fmt.Errorf("count messages of queue %s: %w", o.name, err)
	}
	for _, name := range names {
		n, err := strconv.Atoi(out.Attributes[name])
		if err != nil {
			return 0, fmt.Errorf("count messages of queue %s: the answer has no %s", o.name, name)
		}
		sum += n
	}
	return sum, nil
}

// ask makes a call of SQS that may be repeated.
func (o *Outbox) ask(ctx context.Context, operation string, in, out any) error {
	answer, err := o.caller.ask(ctx, "SQS", "sqs", sqsHeader(operation), in)
	if err != nil {
		return fmt.Errorf("%s (%s): %w", awserr.Message(err), awserr.Of(err), err)
	}
	return json.Unmarshal(answer, out)
}

// sqsHeader names an operation. (Smithy, "AWS JSON 1.0 protocol".)
func sqsHeader(operation string) map[string]string {
	return map[string]string{"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS." + operation, "X-Amzn-Query-Mode": "true"}
}
