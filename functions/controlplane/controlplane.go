package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/gateway"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// An HTTP API gives up after 30 s, a REST API after 29 s; a long poll answers within 20 s.
const (
	answerTime = 28 * time.Second
	margin     = time.Second // before the function's own time-out
)

// function handles the events.
type function struct {
	plane        *controlplane.Plane
	http         *httpadapter.HandlerAdapterV2 // of an HTTP API
	rest         *httpadapter.HandlerAdapter   // of a REST API, which alone can be private
	admin        *boot.Secret                  // nil: another function ensures it, and makes the passes
	organization string
	log          *slog.Logger

	// Of the admin token: the value that was last ensured, and when to try again after a failure. A process has one
	// invocation at a time.
	ensured redact.String
	again   time.Time
}

// Bounds of ensuring the admin token, so that a failure delays no answer for long or often.
const (
	adminTime  = 5 * time.Second
	adminAgain = time.Minute
)

// newFunction returns the function over a handler; staged is the one for addresses with a stage in them.
func newFunction(plane *controlplane.Plane, handler, staged http.Handler, admin *boot.Secret, organization string, log *slog.Logger) *function {
	return &function{plane: plane, http: httpadapter.NewV2(handler), rest: httpadapter.New(staged), admin: admin, organization: organization, log: log}
}

// Handle takes one event: a request, or the schedule's call for a pass.
func (f *function) Handle(ctx context.Context, raw json.RawMessage) (any, error) {
	boot.Began(ctx, f.log, "")
	event, err := decode(raw)
	if err != nil {
		return nil, err
	}
	ctx, cancel := boot.Until(ctx, margin)
	defer cancel()
	switch request := event.(type) {
	case *events.APIGatewayV2HTTPRequest:
		boot.Began(ctx, f.log, request.RequestContext.RequestID)
		return f.serve(ctx, *request)
	case *events.APIGatewayProxyRequest:
		boot.Began(ctx, f.log, request.RequestContext.RequestID)
		return f.serveREST(ctx, *request)
	}
	if f.admin == nil {
		return nil, boot.WrongTrigger("the event is not a call, and this function serves only calls that wait")
	}
	if event == nil {
		return nil, f.pass(ctx)
	}
	return f.restored(ctx)
}

// restored is the event {"restored": true}, with which an administrator of the account invokes the function after its table
// was restored. No caller of the API can make one: a gateway's events have the request inside.
type restored struct{}

// decode distinguishes the events of the function: a request of an HTTP API in payload format 2.0, one of a REST API
// in payload format 1.0, restored, or a schedule (EventBridge's own event, or an empty object), which is nil. It is a
// pure function.
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
func decode(raw []byte) (any, error) {
	shape, kind, err := boot.Shape(raw)
	if err != nil {
		return nil, err
	}
	var format, method string
	_ = json.Unmarshal(shape["version"], &format)
	_ = json.Unmarshal(shape["httpMethod"], &method)
	switch {
	case string(shape["restored"]) == "true" && len(shape) == 1:
		return restored{}, nil
	case len(shape) == 0, kind == boot.Scheduled:
		return nil, nil //nolint:nilnil // a schedule brings no request
	case format == "2.0" && shape["requestContext"] != nil:
		request := &events.APIGatewayV2HTTPRequest{}
		return request, json.Unmarshal(raw, request)
	case format == "" && method != "" && shape["requestContext"] != nil: // a REST API names no version
		request := &events.APIGatewayProxyRequest{}
		return request, json.Unmarshal(raw, request)
	}
	return nil, boot.WrongTrigger("the event is neither an API's of payload format 2.0 or 1.0 nor a schedule (its version is %.20q)", format)
}

// clean makes an event one that the adapter can take: without forged headers, with the id of the request,
// without the stage in its path, with its body decoded. It is a pure function: the event that it is given stays as it is.
func clean(in events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPRequest, error) {
	in.Headers = gateway.Headers(in.Headers)
	if id := strings.ToLower(api.HeaderRequestID); in.Headers[id] == "" && in.RequestContext.RequestID != "" {
		in.Headers[id] = in.RequestContext.RequestID // by which the gateway's own log names it
	}
	in.RawPath = gateway.Path(in.RawPath, in.RequestContext.Stage)
	var err error
	in.Body, err = gateway.Body(in.Body, in.IsBase64Encoded)
	in.IsBase64Encoded = false
	return in, err
}

// cleanREST is clean for an event of a REST API.
func cleanREST(in events.APIGatewayProxyRequest) (events.APIGatewayProxyRequest, error) {
	in, err := gateway.REST(in)
	// A REST API without binary media types passes on a compressed body as the base64 that it has in the answer.
	const accepts = "Accept-Encoding"
	maps.DeleteFunc(in.Headers, func(name, _ string) bool { return strings.EqualFold(name, accepts) })
	maps.DeleteFunc(in.MultiValueHeaders, func(name string, _ []string) bool { return strings.EqualFold(name, accepts) })
	for name, values := range in.MultiValueHeaders {
		if !strings.EqualFold(name, api.HeaderRequestID) {
			continue
		}
		if strings.Join(values, "") != "" {
			return in, err
		}
		delete(in.MultiValueHeaders, name)
	}
	if in.RequestContext.RequestID != "" {
		in.MultiValueHeaders[api.HeaderRequestID] = []string{in.RequestContext.RequestID}
	}
	return in, err
}

// serve answers a request of an HTTP API.
func (f *function) serve(ctx context.Context, request events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	ctx, cancel := f.begin(ctx)
	defer cancel()
	request, err := clean(request)
	if err != nil {
		return problem(err), nil
	}
	return f.http.ProxyWithContext(ctx, request)
}

// serveREST answers a request of a REST API.
func (f *function) serveREST(ctx context.Context, request events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	ctx, cancel := f.begin(ctx)
	defer cancel()
	request, err := cleanREST(request)
	if err != nil {
		return gateway.Refusal(err), nil
	}
	return f.rest.ProxyWithContext(ctx, request)
}

// begin bounds the time of an answer. The admin token is ensured once in each process before the first answer, so that a
// control plane that was just deployed can be used at once; later changes wait for a pass.
func (f *function) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	if f.ensured.Empty() {
		f.ensureAdmin(ctx)
	}
	return ctx, cancel
}

// pass makes the moves that are due to time.
func (f *function) pass(ctx context.Context) error {
	f.ensureAdmin(ctx)
	sum, err := f.plane.Pass(ctx)
	f.log.InfoContext(ctx, "pass done", "looked", sum.Looked, "moved", sum.Moved, "failed", sum.Failed, "deleted", sum.Deleted, "left", sum.More, "err", err)
	return err
}

// restored ends the runs and schedules that would go on by themselves in a restored table, and answers how many of
// each.
func (f *function) restored(ctx context.Context) (any, error) {
	out, err := f.plane.Restored(ctx)
	f.log.InfoContext(ctx, "records restored", "ended", out.String(), "err", err)
	return out, err
}

// ensureAdmin makes the token in the deployment's secret the admin token. If that fails, requests are answered all
// the same.
func (f *function) ensureAdmin(ctx context.Context) {
	if f.admin == nil || time.Now().Before(f.again) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, adminTime)
	defer cancel()
	token, err := f.admin.Get(ctx)
	if err == nil && token == f.ensured {
		return
	}
	if err == nil {
		err = f.plane.EnsureAdmin(ctx, f.organization, token)
	}
	switch {
	case err == nil:
		f.ensured = token
	case errors.Is(err, workflow.ErrRevoked): // on purpose; logged once in each process
		f.ensured = token
		f.log.WarnContext(ctx, "admin token of the deployment is not valid", "err", err)
	default:
		f.again = time.Now().Add(adminAgain)
		f.log.ErrorContext(ctx, "admin token of the deployment not ensured", "err", err)
	}
}

func problem(err error) events.APIGatewayV2HTTPResponse {
	p := api.ProblemFor(err)
	body, _ := json.Marshal(p) // of strings and numbers: it cannot fail
	return events.APIGatewayV2HTTPResponse{
		StatusCode: p.Status, Body: string(body),
		Headers: map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store"},
	}
}
