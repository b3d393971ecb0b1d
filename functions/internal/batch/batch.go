// Package batch reads batches of SQS, and makes the answer that names the messages that come again. It is pure.
package batch

import (
	"encoding/json"
	"strconv"

	"github.com/aws/aws-lambda-go/events"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/queue"
)

// Decode returns the messages of a batch, at least one. Anything else is an error, for which Lambda deletes nothing;
// so is a message without an id, which no answer can name.
func Decode(event []byte) ([]queue.Message, error) {
	var batch events.SQSEvent
	if err := json.Unmarshal(event, &batch); err != nil || len(batch.Records) == 0 {
		return nil, boot.WrongTrigger("the event is not a batch of SQS")
	}
	out := make([]queue.Message, 0, len(batch.Records))
	for _, r := range batch.Records {
		if r.EventSource != "aws:sqs" || r.MessageId == "" {
			return nil, boot.WrongTrigger("the event has a record that is not a message of SQS with an id")
		}
		receives, _ := strconv.Atoi(r.Attributes["ApproximateReceiveCount"]) // 0 where it does not say
		out = append(out, queue.Message{ID: r.MessageId, Body: []byte(r.Body), Receipt: r.ReceiptHandle, Receives: receives})
	}
	return out, nil
}

// Answer names messages of Decode that come again; Lambda deletes the others. It never holds an empty name, which
// Lambda would take for the whole batch.
func Answer(again []queue.Message) events.SQSEventResponse {
	out := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for _, m := range again {
		out.BatchItemFailures = append(out.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.ID})
	}
	return out
}
