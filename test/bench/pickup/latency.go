package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
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

// stated is what calls within a Region are assumed to take. AWS publishes next to none of these, so they are round
// numbers above what others have measured as medians:
//
//   - HTTP API: AWS says that 99 % of requests have less than 10 ms added, there and back together ("Building faster,
//     lower cost, better APIs", AWS Compute Blog, 2020).
//   - Send to SQS, receive, and invocation of a warm function: 16 ms, and 34 ms in nine of ten cases
//     (bitesizedserverless.com, "Serverless Messaging: Latency Compared", 2022). Here 10, 15 and 10.
//   - Asynchronous invocation: SNS to a function, which is one and more, took 73 ms there. Here 15, 50 and 10.
//   - DynamoDB: a write of one item 7.6 ms, a transaction of 5 items 25 ms, of 25 items 32 ms, from a function in
//     Node.js (github.com/alexdebrie/dynamodb-performance-testing, 2020). A claim has about ten. For reads there is
//     only AWS's "single-digit milliseconds".
//   - Cold start: the init of a Go function of 128 MB takes some 40 ms, and what comes before it is in no log. Here
//     150 ms and the real start of the process.
//   - RunTask, Secrets Manager: no measurement was found.
//
// New connections, and what a function gets of a processor, are the meter's.
var stated = latency{
	name: "as stated",
	lambda: lambdahost.Latency{
		ColdStart: 150 * time.Millisecond, // added to the process's own start, which is real
		Invoke:    10 * time.Millisecond,
		Async:     50 * time.Millisecond,
		Schedule:  time.Second,
	},
	gateway: 10 * time.Millisecond,
	queue:   15 * time.Millisecond,
	calls: map[string]time.Duration{
		"dynamodb.BatchGetItem":         5 * time.Millisecond,
		"dynamodb.GetItem":              5 * time.Millisecond,
		"dynamodb.Query":                5 * time.Millisecond,
		"dynamodb.PutItem":              8 * time.Millisecond,
		"dynamodb.UpdateItem":           8 * time.Millisecond,
		"dynamodb.DeleteItem":           8 * time.Millisecond,
		"dynamodb.TransactGetItems":     15 * time.Millisecond,
		"dynamodb.TransactWriteItems":   30 * time.Millisecond,
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

// fargateStart is what Fargate takes from the creation of a task to RUNNING, as in the event that AWS's documentation
// shows ("Amazon ECS task state change events": createdAt to startedAt, an image of nginx, 0.25 vCPU). That is one
// task, and no promise.
const fargateStart = 20400 * time.Millisecond
