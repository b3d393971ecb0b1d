package sqs

import (
	"context"
	"fmt"
	"strconv"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Held is the number of all messages of the queue, those that are hidden included. SQS approximates it.
func (q *Queue) Held(ctx context.Context) (int, error) {
	call, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	names := []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}
	out, err := q.client.GetQueueAttributes(call, &awssqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: names})
	if err != nil {
		return 0, q.failed(ctx, "count messages of", "sqs:GetQueueAttributes", err)
	}
	sum := 0
	for _, name := range names {
		n, err := strconv.Atoi(out.Attributes[string(name)])
		if err != nil {
			return 0, fmt.Errorf("count messages of queue %s: the answer has no %s: %w", q.name, name, workflow.ErrBusy)
		}
		sum += n
	}
	return sum, nil
}
