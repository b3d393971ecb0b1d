package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/core"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/dayfly-dev/dayfly/functions/internal/batch"
	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/gateway"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/queue"
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

// unreadHide hides a message that is not a report. After the 800 receives of its queue, an hour later, it is a dead
// letter, of which an alarm tells; until then a newer function may read it.
const unreadHide = 5 * time.Second

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
func decode(raw []byte) (call *events.APIGatewayProxyRequest, reports []queue.Message, err error) {
	shape, _, err := boot.Shape(raw)
	if err != nil {
		return nil, nil, err
	}
	var method string
	_ = json.Unmarshal(shape["httpMethod"], &method)
	switch _, records := shape["Records"]; {
	case method != "" && !records:
		call = &events.APIGatewayProxyRequest{}
		err = json.Unmarshal(raw, call)
	case method == "" && records:
		reports, err = batch.Decode(raw)
	default:
		err = boot.WrongTrigger("the event is neither a REST API's proxy event nor a batch of SQS")
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
func (f *function) deliver(ctx context.Context, reports []queue.Message) events.SQSEventResponse {
	var again []queue.Message
	working, cancel := boot.Until(ctx, margin)
	defer cancel()
	for _, m := range reports {
		err := errNoTime
		if deadline, ok := working.Deadline(); !ok || time.Until(deadline) > forwardTime {
			err = f.relay.Deliver(working, m.Body)
		}
		if err == nil {
			continue
		}
		again = append(again, m)
		wait := max(relay.Later(m.Receives), api.RetryAfter(err))
		if errors.Is(err, relay.ErrUnread) {
			wait = unreadHide
		}
		f.log.WarnContext(ctx, "report not delivered", "message", m.ID, "receives", m.Receives, "retry", wait, "err", err)
		if err := f.queue.Hide(working, m.Receipt, wait); err != nil {
			f.log.WarnContext(ctx, "report comes again when the queue's own time is over", "message", m.ID, "err", err)
		}
	}
	f.log.InfoContext(ctx, "reports handled", "reports", len(reports), "again", len(again))
	return batch.Answer(again)
}

// errNoTime leaves a report to the next invocation: it must not be cut off half-way.
var errNoTime = errors.New("the invocation has no more time for it")
