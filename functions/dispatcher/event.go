package main

import (
	"strconv"

	"github.com/aws/aws-lambda-go/events"

	"github.com/dayfly-dev/dayfly/internal/queue"
)

// messages translates an event.
func messages(event events.SQSEvent) []queue.Message {
	out := make([]queue.Message, 0, len(event.Records))
	for _, r := range event.Records {
		receives, _ := strconv.Atoi(r.Attributes["ApproximateReceiveCount"]) // 0 where it does not say
		out = append(out, queue.Message{ID: r.MessageId, Body: []byte(r.Body), Receipt: r.ReceiptHandle, Receives: receives})
	}
	return out
}

// response names the messages that go back. It never holds an empty name, which Lambda would take for the
// whole batch.
func response(back []string) events.SQSEventResponse {
	out := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for _, id := range back {
		out.BatchItemFailures = append(out.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
	}
	return out
}
