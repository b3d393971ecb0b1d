// Package lambda is the Invoke operation of a fake AWS Lambda. What a function does is somebody else's:
// a hook that runs it, or queues its event, and says how that went.
//
// Source: the Lambda API reference, Invoke.
package lambda

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Bounds of a payload in bytes.
const (
	maxSync  = 6 << 20
	maxAsync = 1 << 20
)

// Invocation is one call of a function.
type Invocation struct {
	Name      string // without account and region
	Qualifier string // a version or an alias; "" means $LATEST
	Payload   []byte // JSON
	Async     bool   // queued and not waited for
	Caller    wire.Identity
}

// Result is what a function answered; of an asynchronous call there is none.
type Result struct {
	RequestID string // "" makes one
	Payload   []byte
	Error     string // "Unhandled" where the payload describes an error of the function; else ""
}

// Service is Lambda.
type Service struct {
	// Invoke runs a function, or for an asynchronous call takes its event. NotFound and Throttled are
	// errors for it to return; it may be called concurrently.
	Invoke func(ctx context.Context, in Invocation) (Result, error)
}

// NotFound is the error of a function that does not exist.
func NotFound(name string) error {
	return &wire.Error{
		Status: http.StatusNotFound, Code: "ResourceNotFoundException", Fields: map[string]any{"Type": "User"},
		Message: fmt.Sprintf("Function not found: arn:aws:lambda:%s:%s:function:%s", wire.Region, wire.Account, name),
	}
}

// Throttled is the error of a function that may not run now. reason is one of the API's, such as
// ReservedFunctionConcurrentInvocationLimitExceeded.
func Throttled(reason string) error {
	return &wire.Error{
		Status: http.StatusTooManyRequests, Code: "TooManyRequestsException", Message: "Rate Exceeded.",
		Fields: map[string]any{"Type": "User", "Reason": reason}, Header: http.Header{"Retry-After": {"1"}},
	}
}

// Protocol implements what the server asks.
func (*Service) Protocol() wire.Protocol { return rest{} }

// Operations implements awsim.Service.
func (s *Service) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{"Invoke": s.invoke}
}

type input struct {
	FunctionName   string
	Qualifier      string
	InvocationType string
	Payload        []byte
}

type output struct {
	status int
	Result
}

// named takes a function's name in each of its forms apart: NAME, ACCOUNT:function:NAME, an ARN, each
// with or without :QUALIFIER.
var named = regexp.MustCompile(`^(?:arn:aws[a-z-]*:lambda:([a-z0-9-]+):)?(?:([0-9]{12}):)?(?:function:)?([A-Za-z0-9_-]{1,64})(?::(\$LATEST|[A-Za-z0-9_-]+))?$`)

func (s *Service) invoke(ctx context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[input](c)
	if err != nil {
		return nil, err
	}
	parts := named.FindStringSubmatch(in.FunctionName)
	if parts == nil {
		return nil, &wire.Error{Status: http.StatusBadRequest, Code: "ValidationException", Message: fmt.Sprintf("1 validation error detected: Value '%s' at 'functionName' failed to satisfy constraint", in.FunctionName)}
	}
	call := Invocation{Name: parts[3], Qualifier: parts[4], Payload: in.Payload, Caller: c.Caller, Async: in.InvocationType == "Event"}
	if in.Qualifier != "" {
		if call.Qualifier != "" && call.Qualifier != in.Qualifier {
			return nil, invalid("InvalidParameterValueException", "The derived qualifier from the function name does not match the specified qualifier.")
		}
		call.Qualifier = in.Qualifier
	}
	if call.Qualifier == "$LATEST" {
		call.Qualifier = ""
	}
	if parts[1] != "" && parts[1] != wire.Region || parts[2] != "" && parts[2] != wire.Account {
		return nil, NotFound(call.Name)
	}
	limit := maxSync
	if call.Async {
		limit = maxAsync
	}
	switch {
	case len(call.Payload) > limit:
		return nil, &wire.Error{Status: http.StatusRequestEntityTooLarge, Code: "RequestEntityTooLargeException", Message: fmt.Sprintf("%d byte payload is too large for the %s invocation type (limit %d bytes)", len(call.Payload), in.InvocationType, limit), Fields: map[string]any{"Type": "User"}}
	case len(call.Payload) > 0 && !json.Valid(call.Payload):
		return nil, invalid("InvalidRequestContentException", "Could not parse request body into json.")
	}
	switch in.InvocationType {
	case "Event", "RequestResponse":
	case "DryRun":
		return output{status: http.StatusNoContent}, nil
	default:
		return nil, invalid("InvalidParameterValueException", "The invocation type is RequestResponse, Event or DryRun.")
	}
	result, err := s.Invoke(ctx, call)
	if err != nil {
		return nil, err
	}
	if call.Async {
		return output{status: http.StatusAccepted, Result: Result{RequestID: result.RequestID}}, nil
	}
	return output{http.StatusOK, result}, nil
}

func invalid(code, message string) error {
	return &wire.Error{Status: http.StatusBadRequest, Code: code, Message: message, Fields: map[string]any{"Type": "User"}}
}

// rest is restJson for the one operation.
type rest struct{}

const prefix, suffix = "/2015-03-31/functions/", "/invocations"

// Read implements wire.Protocol.
func (rest) Read(r *http.Request, body []byte) (string, []byte, error) {
	path := r.URL.EscapedPath()
	if r.Method != http.MethodPost || !strings.HasPrefix(path, prefix) || !strings.HasSuffix(path, suffix) || len(path) < len(prefix)+len(suffix) {
		return "", nil, &wire.Error{Status: http.StatusNotFound, Code: "UnknownOperationException", Message: "only Invoke is known here, not " + r.Method + " " + path}
	}
	name, err := url.PathUnescape(path[len(prefix) : len(path)-len(suffix)])
	if err != nil {
		return "", nil, invalid("ValidationException", "the function's name is not escaped as it should be")
	}
	in := input{FunctionName: name, Qualifier: r.URL.Query().Get("Qualifier"), InvocationType: r.Header.Get("X-Amz-Invocation-Type"), Payload: body}
	if in.InvocationType == "" {
		in.InvocationType = "RequestResponse"
	}
	text, err := json.Marshal(in)
	if err != nil {
		return "", nil, fmt.Errorf("marshal the input: %w", err)
	}
	return "Invoke", text, nil
}

// Write implements wire.Protocol.
func (rest) Write(w http.ResponseWriter, _ *http.Request, _ string, out any) error {
	o, ok := out.(output)
	if !ok {
		return fmt.Errorf("an invocation has no result of the type %T", out)
	}
	if o.Error != "" {
		w.Header().Set("X-Amz-Function-Error", o.Error)
	}
	w.Header().Set("X-Amz-Executed-Version", "$LATEST")
	if o.RequestID != "" {
		w.Header().Set("X-Amzn-RequestId", o.RequestID)
	}
	if o.status == http.StatusNoContent { // which has no body and no length
		w.Header().Set("X-Amzn-RequestId", wire.RequestID())
		w.WriteHeader(o.status)
		return nil
	}
	wire.Send(w, o.status, "application/json", o.Payload)
	return nil
}

// Fail implements wire.Protocol.
func (rest) Fail(w http.ResponseWriter, _ *http.Request, e *wire.Error) { wire.RESTError(w, e) }
