// Package awsim is an AWS for tests: one HTTP handler that speaks the real protocols of the services it
// is given, so that real clients (the SDKs, the AWS CLI) talk to it with nothing but an endpoint changed.
// Requests are told apart by the service that they were signed for, and every signature is checked.
// It records the calls and injects faults into them. The services themselves are packages below this one,
// each an independent table of operations.
package awsim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// maxBody bounds a request; the largest that a real service takes is Lambda's, 6 MB.
const maxBody = 8 << 20

// Service is one AWS service.
type Service interface {
	// Operations are what it can do. The table is read once.
	Operations() map[string]wire.Handler
}

// speaker is a Service that speaks another protocol than wire.JSON.
type speaker interface{ Protocol() wire.Protocol }

// Config says what a server is made of.
type Config struct {
	// Credentials are those that count; the services that hand some out share the table. Required.
	Credentials *sigv4.Table
	// Services by signing name: ecs, sqs, secretsmanager, sts, lambda ...
	Services map[string]Service
	// Region is the one that requests must be signed for; "" means wire.Region.
	Region string
	// Allow judges a call before it is done, as IAM does: an error (see Denied) is the answer. Nil
	// allows every caller whose signature is right.
	Allow func(wire.Call) error
	// Now is the clock of the records; nil means time.Now.
	Now func() time.Time
}

// Record is one call as it ended.
type Record struct {
	Service   string
	Operation string
	Caller    wire.Identity
	Resource  string // what the input names: a queue URL, a secret, a cluster, a function, a role, BUCKET/KEY
	Began     time.Time
	Time      time.Time // when it ended
	Outcome   string    // "ok", "dropped" (the connection was broken) or the error's code
}

// Server is an http.Handler. Its methods may be called concurrently.
type Server struct {
	config   Config
	services map[string]service
	tasks    *TaskCredentials

	mu     sync.Mutex
	calls  []Record
	faults []*fault
}

type service struct {
	operations map[string]wire.Handler
	protocol   wire.Protocol
}

type fault struct {
	wire.Fault
	left int // strikes; negative means without end
}

// New makes a server.
func New(c Config) *Server {
	c.Region = cmp.Or(c.Region, wire.Region)
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{config: c, services: map[string]service{}, tasks: newTaskCredentials(c.Credentials, c.Now)}
	for name, from := range c.Services {
		one := service{operations: from.Operations(), protocol: wire.JSON{}}
		if other, ok := from.(speaker); ok {
			one.protocol = other.Protocol()
		}
		s.services[name] = one
	}
	return s
}

// Tasks is the server's credentials endpoint for tasks, which it also serves at its own address.
func (s *Server) Tasks() *TaskCredentials { return s.tasks }

// Authenticate checks the signature of a request for a service that is served elsewhere, such as
// execute-api, against the same credentials. It reads the body and puts it back.
func (s *Server) Authenticate(r *http.Request, service string) (wire.Identity, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return wire.Identity{}, fmt.Errorf("read the request: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return s.config.Credentials.Verify(r, body, s.config.Region, service)
}

// Inject adds a fault and returns what removes it again. Where several match a call, delays add up and
// the first error counts, in the order of injection.
func (s *Server) Inject(f wire.Fault) (remove func()) {
	one := &fault{Fault: f, left: f.Times}
	if f.Times == 0 {
		one.left = -1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, one)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		one.left = 0
	}
}

// Calls returns every call that ended since the last ForgetCalls, in the order in which they ended. A
// call whose signature was refused has no caller.
func (s *Server) Calls() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Record(nil), s.calls...)
}

// ForgetCalls empties the record.
func (s *Server) ForgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// TakeCalls is Calls and ForgetCalls in one.
func (s *Server) TakeCalls() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls
	s.calls = nil
	return out
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, taskPath) {
		s.tasks.ServeHTTP(w, r)
		return
	}
	began := s.config.Now()
	body, unread := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	scope, err := sigv4.ScopeOf(r)
	one, known := s.services[scope.Service]
	if unread != nil {
		err = &wire.Error{Status: http.StatusRequestEntityTooLarge, Code: "RequestEntityTooLargeException", QueryCode: "RequestEntityTooLarge", Message: "the body is too large or did not come whole"}
	}
	if !known {
		one.protocol = wire.JSON{}
		if err == nil {
			err = &wire.Error{Status: http.StatusForbidden, Code: "InvalidSignatureException", Message: fmt.Sprintf("Credential should be scoped to correct service: there is no %q here.", scope.Service)}
		}
	}
	call := wire.Call{Service: scope.Service, Region: scope.Region, Request: r}
	var out any
	if err == nil {
		out, err = s.serve(one, &call, body)
	}
	outcome := "ok"
	if err == nil {
		if err = one.protocol.Write(w, r, call.Operation, out); err == nil {
			s.record(call, began, outcome)
			return
		}
	}
	failure := failed(err)
	if failure == nil {
		s.record(call, began, "dropped")
		panic(http.ErrAbortHandler) // the way to break a connection
	}
	// Recorded first: who has the answer may look at once.
	s.record(call, began, failure.Code)
	one.protocol.Fail(w, r, failure)
}

func (s *Server) serve(one service, call *wire.Call, body []byte) (any, error) {
	r := call.Request
	operation, in, err := one.protocol.Read(r, body)
	if err != nil {
		return nil, err
	}
	call.Operation, call.Body = operation, in
	if call.Caller, err = s.config.Credentials.Verify(r, body, s.config.Region, call.Service); err != nil {
		return nil, err
	}
	do, ok := one.operations[operation]
	if !ok {
		return nil, &wire.Error{Status: http.StatusBadRequest, Code: "UnknownOperationException", QueryCode: "InvalidAction", Message: "The operation " + operation + " is not known here."}
	}
	if s.config.Allow != nil {
		if err := s.config.Allow(*call); err != nil {
			return nil, err
		}
	}
	struck := s.strike(*call)
	for _, f := range struck {
		if err := pause(r.Context(), f.Delay); err != nil {
			return nil, wire.Drop
		}
	}
	for _, f := range struck {
		if f.Before == nil {
			continue
		}
		if err := f.Before(*call); err != nil {
			return nil, err
		}
	}
	out, err := do(r.Context(), *call)
	for _, f := range struck {
		if f.After == nil {
			continue
		}
		if err := f.After(*call); err != nil {
			return nil, err
		}
	}
	return out, err
}

// strike takes the faults that match a call, and counts them.
func (s *Server) strike(c wire.Call) []wire.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var struck []wire.Fault
	kept := s.faults[:0]
	for _, f := range s.faults {
		if f.left != 0 && (f.Service == "" || f.Service == c.Service) && (f.Operation == "" || f.Operation == c.Operation) {
			struck = append(struck, f.Fault)
			if f.left > 0 {
				f.left--
			}
		}
		if f.left != 0 {
			kept = append(kept, f)
		}
	}
	clear(s.faults[len(kept):])
	s.faults = kept
	return struck
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// failed makes an error of AWS out of any other, and nil where the connection is to be broken.
func failed(err error) *wire.Error {
	var e *wire.Error
	switch {
	case errors.Is(err, wire.Drop), errors.Is(err, context.Canceled):
		return nil
	case errors.As(err, &e):
		return e
	}
	return &wire.Error{Status: http.StatusInternalServerError, Code: "InternalFailure", Message: err.Error()}
}

func (s *Server) record(c wire.Call, began time.Time, outcome string) {
	one := Record{Service: c.Service, Operation: c.Operation, Caller: c.Caller, Resource: resource(c), Began: began, Time: s.config.Now(), Outcome: outcome}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, one)
}

// resource finds the name of what a call is about.
func resource(c wire.Call) string {
	var in struct {
		QueueURL, QueueName, SecretID, Name, RoleArn, FunctionName string
		Cluster, Bucket, Key                                       string
	}
	if json.Unmarshal(c.Body, &in) != nil { // members' names are matched without regard to case
		return ""
	}
	if in.Bucket != "" {
		return strings.TrimSuffix(in.Bucket+"/"+in.Key, "/")
	}
	return cmp.Or(in.QueueURL, in.QueueName, in.SecretID, in.RoleArn, in.FunctionName, in.Cluster, in.Name)
}

// Denied is the answer of IAM to a caller without permission.
func Denied(c wire.Call, resource string) error {
	return &wire.Error{
		Status: http.StatusBadRequest, Code: "AccessDeniedException", QueryCode: "AccessDenied",
		Message: fmt.Sprintf("User: %s is not authorized to perform: %s:%s on resource: %s because no identity-based policy allows the %[2]s:%[3]s action", c.Caller.ARN, c.Service, c.Operation, resource),
	}
}
