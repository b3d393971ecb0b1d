package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// judge is IAM: it allows what the policies of the deployed stacks allow, and remembers who asked for what.
type judge struct {
	mu     sync.Mutex
	stacks []*templates.Stack
	// network is that of tasks; closed says that it has no way out but its endpoints.
	network *templates.Stack
	closed  bool
	open    []string // roles of workspaces, which may do what they like
	// contexts are what requests of a role have beside what is asked for: the tags of its session and of its secrets.
	contexts map[string]map[string]string
	asked    map[string][]templates.Request // by the name of the role
	denied   []string
}

func newJudge() *judge {
	return &judge{asked: map[string][]templates.Request{}, contexts: map[string]map[string]string{}}
}

func (j *judge) add(s *templates.Stack) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stacks = append(j.stacks, s)
}

// enclose says in which network tasks are.
func (j *judge) enclose(network *templates.Stack, closed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.network, j.closed = network, closed
}

func (j *judge) all() []*templates.Stack {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.stacks)
}

// allow judges a call of a service.
func (j *judge) allow(call wire.Call) error {
	role := roleOf(call.Caller)
	if err := j.bucket(call, role); err != nil {
		return err
	}
	free := role == "" || j.isOpen(role) // a user, or the role of a workspace
	inside := isInside(call.Request)
	if free && !inside {
		return nil
	}
	requests, err := templates.Asks(Account, call.Service, call.Operation, call.Body)
	if err != nil {
		j.deny("%s: %v", role, err)
		return awsim.Denied(call, "")
	}
	if inside {
		asks := requests
		if len(asks) == 0 { // what IAM does not ask after, the policy of an endpoint does
			asks = []templates.Request{{Action: call.Service + ":" + call.Operation, Resource: "*"}}
		}
		if err := j.pass(call.Service, call.Caller, asks...); err != nil {
			return err
		}
	}
	if free {
		return nil
	}
	if call.Operation == "RunTask" {
		for _, s := range j.of(role) {
			requests = append(requests, s.PassedRoles()...)
		}
	}
	for _, s := range j.all() {
		requests = append(requests, s.KeyAsks(call.Service, call.Operation, call.Body)...)
	}
	for _, r := range requests {
		if more := j.context(role, call); more != nil {
			r.Context = more
		}
		if err := j.may(role, r); err == nil {
			continue
		}
		if call.Service == "sqs" && strings.HasPrefix(r.Action, "kms:") {
			return &wire.Error{Code: "KmsAccessDenied", QueryCode: "KMS.AccessDeniedException", Message: "The caller doesn't have the required KMS access: " + r.String()}
		}
		return awsim.Denied(call, r.Resource)
	}
	return nil
}

// context is what a call of a role is judged by beside what it asks for; nil of most roles.
func (j *judge) context(role string, call wire.Call) map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := maps.Clone(j.contexts[role])
	var in struct{ Query url.Values }
	if out != nil && json.Unmarshal(call.Body, &in) == nil && in.Query.Has("prefix") {
		out["s3:prefix"] = in.Query.Get("prefix")
	}
	return out
}

// bucket judges a call of S3 by the policy of its bucket, which holds for everybody.
func (j *judge) bucket(call wire.Call, role string) error {
	if call.Service != "s3" {
		return nil
	}
	var in struct {
		Bucket string
		Header http.Header
	}
	requests, err := templates.Asks(Account, call.Service, call.Operation, call.Body)
	if err == nil {
		err = json.Unmarshal(call.Body, &in)
	}
	if err != nil {
		return awsim.Denied(call, "")
	}
	context := map[string]string{"aws:securetransport": "true", "aws:principalarn": call.Caller.ARN} // tasks use HTTPS on AWS
	if role != "" {
		context["aws:principalarn"] = "arn:aws:iam::" + call.Caller.Account + ":role/" + role
	}
	for _, s := range j.of(role) {
		context["aws:principalarn"] = s.RoleARN(s.Role(role))
	}
	if v := in.Header.Get("If-None-Match"); v != "" {
		context["s3:if-none-match"] = v
	}
	j.mu.Lock()
	if isInside(call.Request) && j.network != nil {
		context["aws:sourcevpce"] = j.network.Outputs["S3EndpointId"]
	}
	j.mu.Unlock()
	for _, s := range j.all() {
		policy, err := s.Bucket(in.Bucket)
		if err != nil {
			j.deny("%v", err)
			return err
		}
		for _, r := range requests {
			r.Context = context
			if allowed, by := templates.Evaluate(policy, r); !allowed && by != "" {
				return &wire.Error{Code: "AccessDeniedException", QueryCode: "AccessDenied", Message: fmt.Sprintf(
					"User: %s is not authorized to perform: %s on resource: %q with an explicit deny in a resource-based policy (%s)", call.Caller.ARN, r.Action, r.Resource, by)}
			}
		}
	}
	return nil
}

// pass judges requests that come out of the tasks' network: through the endpoint that it has to the service, by the
// endpoint's policy.
func (j *judge) pass(service string, caller wire.Identity, requests ...templates.Request) error {
	j.mu.Lock()
	network, closed := j.network, j.closed
	j.mu.Unlock()
	if network == nil {
		return nil
	}
	policy, ok, err := network.Endpoint(service)
	switch {
	case err != nil:
		j.deny("%v", err)
		return err
	case !ok && closed:
		j.deny("no way leads from the tasks' network to %s", service)
		return wire.Drop
	case !ok:
		return nil
	}
	for _, r := range requests {
		r.Context = maps.Clone(r.Context)
		if r.Context == nil {
			r.Context = map[string]string{}
		}
		r.Context["aws:principalaccount"] = caller.Account
		if parts := strings.Split(r.Resource, ":"); len(parts) > 5 && parts[4] != "" { // a bucket's does not say
			r.Context["aws:resourceaccount"] = parts[4]
		}
		if ok, _ := templates.Evaluate(policy, r); !ok {
			j.deny("no policy of the network's endpoint to %s allows %s", service, r)
			return &wire.Error{Code: "AccessDeniedException", QueryCode: "AccessDenied", Message: fmt.Sprintf(
				"User: %s is not authorized to perform: %s on resource: %s because no VPC endpoint policy allows the %[2]s action", caller.ARN, r.Action, r.Resource)}
		}
	}
	return nil
}

type insideKey struct{}

// inside serves the calls of tasks, which come out of their network.
func inside(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), insideKey{}, true)))
	})
}

func isInside(r *http.Request) bool { return r != nil && r.Context().Value(insideKey{}) != nil }

// may judges one request of a role, given by its name or ARN.
func (j *judge) may(role string, r templates.Request) error {
	role = last(role, "/")
	j.note(role, r)
	for _, s := range j.of(role) {
		if ok, _ := templates.Evaluate(s.Statements(s.Role(role)), r); ok {
			return nil
		}
	}
	j.deny("%s may not %s", role, r)
	return fmt.Errorf("%s may not %s", role, r)
}

// of are the stacks that have the role.
func (j *judge) of(role string) (out []*templates.Stack) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.stacks {
		if s.Role(role) != "" {
			out = append(out, s)
		}
	}
	return out
}

func (j *judge) note(role string, r templates.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.ContainsFunc(j.asked[role], func(e templates.Request) bool { return e.String() == r.String() }) {
		j.asked[role] = append(j.asked[role], r)
	}
}

func (j *judge) deny(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(j.denied, text) {
		j.denied = append(j.denied, text)
	}
}

func (j *judge) denials() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.denied)
}

// askedOf is what was asked for, by the roles' names in a stack.
func (j *judge) askedOf(s *templates.Stack) map[string][]templates.Request {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string][]templates.Request{}
	for role, r := range j.asked {
		if logical := s.Role(role); logical != "" {
			out[logical] = slices.Clone(r)
		}
	}
	return out
}

func (j *judge) isOpen(role string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.open, role)
}

// roleOf is the name of the role that a caller is a session of; "" of a user.
func roleOf(who wire.Identity) string {
	_, rest, ok := strings.Cut(who.ARN, ":assumed-role/")
	if !ok {
		return ""
	}
	role, _, _ := strings.Cut(rest, "/")
	return role
}

// config is that of a client with these credentials.
func (c *Cloud) config(of sigv4.Credentials) aws.Config { return awsim.ClientConfig(c.AWSURL, of) }
