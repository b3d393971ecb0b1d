// Package wire is what the fake AWS services share: a call, who made it, an error in AWS's form, a
// fault to inject, and the protocols by which calls and answers cross the wire.
//
// A service knows no HTTP: it is a table of handlers by operation name, which the server of package
// awsim calls once it has checked the signature of the request.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Where everything in the fake lives.
const (
	Account = "123456789012"
	Region  = "us-east-1"
)

// Identity is who made a call.
type Identity struct {
	Account     string
	ARN         string // arn:aws:iam::ACCOUNT:user/NAME or arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION
	AccessKeyID string
	// Role is the ARN of a session's role, with its path, and RoleID the id that the role had when the session began.
	Role, RoleID string
}

// Call is one request to a service whose signature was checked.
type Call struct {
	Service   string // the signing name: sqs, ecs, secretsmanager, sts, lambda
	Operation string // RunTask, SendMessage ...
	Caller    Identity
	Region    string
	Body      []byte        // the input as JSON, whatever the protocol
	Request   *http.Request // its body is read already
}

// Handler does one operation. Its result is marshalled by the service's protocol; an *Error becomes
// the AWS error reply, Drop breaks the connection, and any other error is an InternalFailure. It may
// be called concurrently, and its context ends when the client goes away.
type Handler func(ctx context.Context, c Call) (any, error)

// Error is an error as AWS reports it.
type Error struct {
	Status  int    // the HTTP status; 0 means 400
	Code    string // the exception's name: ThrottlingException
	Message string
	// QueryCode is the code that the service had in its older query protocol, where that differs; a
	// JSON service that still reports it (SQS) sends it in x-amzn-query-error. Empty means Code.
	QueryCode string
	// Fields are further members of the reply, such as ConflictException's resourceIds.
	Fields map[string]any
	// Header is added to the reply, such as Retry-After.
	Header http.Header
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Drop stands for no answer: returned by a handler or a fault, it breaks the connection.
var Drop error = drop{}

type drop struct{}

func (drop) Error() string { return "wire: the connection is broken" }

// Fault is trouble to inject into calls that match it.
type Fault struct {
	Service   string // signing name; "" matches all
	Operation string // "" matches all
	Times     int    // calls that it strikes; 0 means every one, until it is removed
	// Before is asked instead of doing the call: an error (an *Error, or Drop) is the answer, and
	// the call is not done. Nil, or a nil result, lets the call through.
	Before func(Call) error
	// After is asked once the call is done: an error replaces the answer. Nil, or a nil result,
	// leaves the answer as it is.
	After func(Call) error
	// Delay is waited before the call is done, or until the client goes away.
	Delay time.Duration
}

// Fail returns a Before or After that always answers with err.
func Fail(err error) func(Call) error { return func(Call) error { return err } }

// Decode reads a call's input. An input that does not fit is a SerializationException, and so is a member that T
// does not have: AWS may read over it, or it means something that the fake does not do.
func Decode[T any](c Call) (T, error) {
	var in T
	if len(c.Body) == 0 {
		return in, nil
	}
	d := json.NewDecoder(bytes.NewReader(c.Body))
	d.DisallowUnknownFields()
	err := d.Decode(&in)
	if err == nil && d.More() {
		err = errors.New("the body goes on after its document")
	}
	if err == nil {
		return in, nil
	}
	message := err.Error()
	if name, unknown := strings.CutPrefix(message, "json: unknown field "); unknown {
		message = fmt.Sprintf("%s %s: AWS does not have the member %s, or this fake does not implement it.", c.Service, c.Operation, name)
	}
	return in, &Error{Status: http.StatusBadRequest, Code: "SerializationException", Message: message}
}

// Ignored is a member of an input that AWS has and that makes no difference in a fake, whatever it says.
type Ignored struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*Ignored) UnmarshalJSON([]byte) error { return nil }

// Time is a timestamp as the JSON protocols write it: seconds since 1970, to the millisecond.
type Time time.Time

// MarshalJSON implements json.Marshaler. The zero time is null.
func (t Time) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(time.Time(t).UnixMilli())/1000, 'f', -1, 64), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(data []byte) error {
	var seconds *float64
	if err := json.Unmarshal(data, &seconds); err != nil {
		return err
	}
	if seconds == nil {
		*t = Time{}
		return nil
	}
	*t = Time(time.UnixMilli(int64(*seconds * 1000)).UTC())
	return nil
}
