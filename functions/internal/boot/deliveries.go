package boot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/queue"
)

// Deliveries are the messages of a queue that Lambda gives to a function. Lambda receives and deletes them; the
// function only says how long a returned message stays hidden.
type Deliveries struct {
	caller Caller
	url    string
	name   string // the last part of the URL, for messages
}

// NewDeliveries returns the deliveries of the queue with this URL. It makes no call.
func NewDeliveries(cfg aws.Config, url string) *Deliveries {
	return &Deliveries{caller: NewCaller(cfg), url: url, name: url[strings.LastIndexByte(url, '/')+1:]}
}

// Hide sets how long from now a delivery stays hidden, rounded up to seconds; 0 returns it at once. It needs
// one call of SQS, ChangeMessageVisibility, which may be repeated: the last one counts, from when it is made. (SQS API
// reference.)
func (d *Deliveries) Hide(ctx context.Context, receipt string, length time.Duration) error {
	if err := queue.CheckHide(length); err != nil {
		return err
	}
	_, err := d.caller.ask(ctx, "SQS", "sqs", sqsHeader("ChangeMessageVisibility"), map[string]any{
		"QueueUrl": d.url, "ReceiptHandle": receipt, "VisibilityTimeout": int((length + time.Second - 1) / time.Second),
	})
	if err != nil {
		return fmt.Errorf("hide message of queue %s: %s (%s): %w", d.name, awserr.Message(err), awserr.Of(err), err)
	}
	return nil
}
