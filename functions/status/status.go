package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/core"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/gateway"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/relay"
)

// The API Gateway gives up after 29 s. A call is forwarded, and where it is a result that the control
// plane cannot take, then kept: both must be over by then.
const (
	answerTime  = 28 * time.Second
	forwardTime = 15 * time.Second
	queueTime   = 5 * time.Second
	margin      = 500 * time.Millisecond // before the function's own time-out
)

// hider hides a delivery for a while.
type hider interface {
	Hide(ctx context.Context, receipt string, d time.Duration) error
}

// function handles the events.
type function struct {
	relay *relay.Relay
	queue hider
	http  *httpadapter.HandlerAdapter
	log   *slog.Logger
}

func newFunction(r *relay.Relay, queue hider, log *slog.Logger) *function {
	return &function{relay: r, queue: queue, http: httpadapter.New(r), log: log}
}

// Handle takes one event: a call of a runner, or a batch of reports.
func (f *function) Handle(ctx context.Context, raw json.RawMessage) (any, error) {
	boot.Began(ctx, f.log, "")
	call, reports, err := decode(raw)
	switch {
	case err != nil:
		return nil, err
	case call != nil:
		boot.Began(ctx, f.log, call.RequestContext.RequestID)
		return f.serve(ctx, *call)
	}
	return f.deliver(ctx, reports), nil
}

// decode distinguishes the events of the function by their shape. It is a pure function.
func decode(raw []byte) (call *events.APIGatewayProxyRequest, reports []events.SQSMessage, err error) {
	var shape struct {
		Method  string `json:"httpMethod"`
		Records []struct {
			Source string `json:"eventSource"`
		} `json:"Records"`
	}
	unknown := errors.New("this is neither a REST API's proxy event nor a batch of SQS: the function's trigger is set up wrongly")
	if err := json.Unmarshal(raw, &shape); err != nil {
		return nil, nil, unknown
	}
	switch {
	case shape.Method != "" && len(shape.Records) == 0:
		call = &events.APIGatewayProxyRequest{}
		err = json.Unmarshal(raw, call)
	case shape.Method == "" && len(shape.Records) > 0 && shape.Records[0].Source == "aws:sqs":
		var batch events.SQSEvent
		err = json.Unmarshal(raw, &batch)
		reports = batch.Records
	default:
		err = unknown
	}
	return call, reports, err
}

// caller is the identity in the event: API Gateway has checked the signature.
func caller(req *http.Request) (relay.Identity, error) {
	gateway, ok := core.GetAPIGatewayContextFromContext(req.Context())
	if !ok {
		return relay.Identity{}, errors.New("the request did not come through the gateway")
	}
	if gateway.Identity.UserArn == "" {
		return relay.Identity{}, errors.New("the gateway does not name the caller: the API must have IAM authorization")
	}
	return relay.ParseCaller(gateway.Identity.UserArn)
}

// serve answers a runner's call.
func (f *function) serve(ctx context.Context, call events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	ctx, cancel := boot.Until(ctx, margin)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, answerTime)
	defer cancel()
	call, err := gateway.REST(call)
	if err != nil {
		return gateway.Refusal(err), nil
	}
	return f.http.ProxyWithContext(ctx, call)
}

// deliver takes kept results to the control plane, one after the other, and names those that must come again.
func (f *function) deliver(ctx context.Context, reports []events.SQSMessage) events.SQSEventResponse {
	out := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	working, cancel := boot.Until(ctx, margin)
	defer cancel()
	for _, m := range reports {
		err := errNoTime
		if deadline, ok := working.Deadline(); !ok || time.Until(deadline) > forwardTime {
			err = f.relay.Deliver(working, []byte(m.Body))
		}
		if err == nil {
			continue
		}
		out.BatchItemFailures = append(out.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
		receives, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
		wait := max(relay.Later(receives), api.RetryAfter(err))
		f.log.WarnContext(ctx, "report not delivered", "message", m.MessageId, "receives", receives, "retry", wait, "err", err)
		if err := f.queue.Hide(working, m.ReceiptHandle, wait); err != nil {
			f.log.WarnContext(ctx, "report comes again when the queue's own time is over", "message", m.MessageId, "err", err)
		}
	}
	f.log.InfoContext(ctx, "reports handled", "reports", len(reports), "again", len(out.BatchItemFailures))
	return out
}

// errNoTime leaves a report to the next invocation: it must not be cut off half-way.
var errNoTime = errors.New("the invocation has no more time for it")
