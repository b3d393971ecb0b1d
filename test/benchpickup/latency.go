package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/lambdahost"
)

// latency is what AWS takes and this machine does not.
type latency struct {
	name    string
	lambda  lambdahost.Latency
	gateway time.Duration            // of the control plane's API
	queue   time.Duration            // from a receive of the event source to its invocation
	calls   map[string]time.Duration // by service.Operation
}

// nothing adds nothing: what is left is the floor that this machine sets.
var nothing = latency{name: "none"}

// stated is what calls within a Region are assumed to take. No figure of AWS's own is published for these; they are
// round numbers above the medians that are commonly seen.
var stated = latency{
	name: "as stated",
	lambda: lambdahost.Latency{
		ColdStart: 150 * time.Millisecond, // beside the process's own start, which is real
		Invoke:    10 * time.Millisecond,
		Async:     50 * time.Millisecond,
		Schedule:  time.Second,
	},
	gateway: 10 * time.Millisecond,
	queue:   30 * time.Millisecond,
	calls: map[string]time.Duration{
		"dynamodb.BatchGetItem":         5 * time.Millisecond,
		"dynamodb.GetItem":              5 * time.Millisecond,
		"dynamodb.Query":                5 * time.Millisecond,
		"dynamodb.PutItem":              5 * time.Millisecond,
		"dynamodb.UpdateItem":           5 * time.Millisecond,
		"dynamodb.DeleteItem":           5 * time.Millisecond,
		"dynamodb.TransactGetItems":     10 * time.Millisecond,
		"dynamodb.TransactWriteItems":   10 * time.Millisecond,
		"ecs.RunTask":                   300 * time.Millisecond,
		"lambda.Invoke":                 15 * time.Millisecond,
		"secretsmanager.GetSecretValue": 20 * time.Millisecond,
		"sqs.SendMessageBatch":          10 * time.Millisecond,
		"sqs.SendMessage":               10 * time.Millisecond,
		"sqs.GetQueueAttributes":        10 * time.Millisecond,
		"sqs.DeleteMessageBatch":        10 * time.Millisecond,
		"sqs.ChangeMessageVisibility":   10 * time.Millisecond,
	},
}

func (l latency) String() string {
	if len(l.calls) == 0 {
		return fmt.Sprintf("%q: a floor, and no claim about AWS", l.name)
	}
	parts := []string{fmt.Sprintf("%q (assumptions): cold start %s and the real start of the process, invocation %s, HTTP API before it %s, asynchronous hand-over %s, schedule %s, SQS receive to invocation %s",
		l.name, l.lambda.ColdStart, l.lambda.Invoke, l.gateway, l.lambda.Async, l.lambda.Schedule, l.queue)}
	for _, name := range slices.Sorted(maps.Keys(l.calls)) {
		parts = append(parts, fmt.Sprintf("%s %s", name, l.calls[name]))
	}
	return strings.Join(parts, ", ")
}
