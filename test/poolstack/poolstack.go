// Package poolstack is what surrounds the functions of a pool's stack, in one process: a control plane
// over its real handler, and SQS and Secrets Manager in the fake AWS, all over HTTP. A test gives the
// functions its environment and looks at what became of the world.
package poolstack

import (
	"context"
	"maps"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
)

// Stack is one pool's surroundings. Its fields are there to be looked at and called.
type Stack struct {
	t     testing.TB
	Plane *controlplane.Plane
	Admin controlplane.Principal
	Pool  controlplane.Principal
	AWS   *awsim.Server
	SQS   *awssqs.Client
	Jobs  string // URL of the queue of launches

	Secrets *Secrets
	Keyring *ticket.Keyring

	// Credentials are those of every function.
	Credentials  sigv4.Credentials
	url, control string
}

// The names of the secrets.
const (
	TokenSecret = "pool-token"
	KeysSecret  = "ticket-keys"
)

// New starts the surroundings; services are further ones of the fake AWS, by signing name.
func New(t testing.TB, services map[string]awsim.Service) *Stack {
	t.Helper()
	s := &Stack{t: t, Secrets: &Secrets{values: map[string]string{}}}
	s.Plane = controlplane.New(memory.New(), controlplane.Config{})
	admin, err := s.Plane.Bootstrap(t.Context(), "default")
	s.must(err)
	s.Admin, err = s.Plane.Authenticate(t.Context(), admin)
	s.must(err)
	s.RotateToken()
	_, err = s.Plane.Pass(t.Context())
	s.must(err)
	control := httptest.NewServer(httpapi.New(s.Plane, httpapi.Config{}))
	t.Cleanup(control.Close)
	s.control = control.URL

	key := ticket.GenerateKey()
	s.Keyring, err = ticket.NewKeyring(key)
	s.must(err)
	keys, err := ticket.FormatKeys(key)
	s.must(err)
	s.Secrets.Set(KeysSecret, string(keys))

	table := sigv4.NewTable(nil)
	all := map[string]awsim.Service{"sqs": &fakesqs.Service{}, "secretsmanager": s.Secrets}
	maps.Copy(all, services)
	s.AWS = awsim.New(awsim.Config{Credentials: table, Services: all})
	server := httptest.NewServer(s.AWS)
	t.Cleanup(server.Close)
	s.url, s.Credentials = server.URL, table.Session("function", "function", time.Hour)
	s.SQS = awssqs.NewFromConfig(awsim.ClientConfig(server.URL, s.Credentials))
	s.Jobs = s.Queue("jobs")
	return s
}

func (s *Stack) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// RotateToken gives the pool a new token, puts it into its secret, and ends those before.
func (s *Stack) RotateToken() {
	s.t.Helper()
	token, err := s.Plane.EnsurePoolToken(s.t.Context(), "default", "default", "stack")
	s.must(err)
	s.Pool, err = s.Plane.Authenticate(s.t.Context(), token)
	s.must(err)
	s.Secrets.Set(TokenSecret, token)
}

// Queue makes a queue whose deliveries are hidden for longer than any test takes.
func (s *Stack) Queue(name string) (url string) {
	s.t.Helper()
	out, err := s.SQS.CreateQueue(s.t.Context(), &awssqs.CreateQueueInput{
		QueueName: &name, Attributes: map[string]string{"VisibilityTimeout": "900"},
	})
	s.must(err)
	return *out.QueueUrl
}

// Env is the environment of a function as it sees it: Variables, and what Lambda sets.
func (s *Stack) Env(pairs ...string) func(string) string {
	m := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": s.Credentials.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY": s.Credentials.SecretAccessKey, "AWS_SESSION_TOKEN": s.Credentials.SessionToken,
	}
	maps.Copy(m, s.Variables(pairs...))
	return func(name string) string { return m[name] }
}

// Variables are those that a template gives to a function: what all read, then pairs of names and values. A
// pair with an empty value takes a variable away.
func (s *Stack) Variables(pairs ...string) map[string]string {
	m := map[string]string{
		"AWS_ENDPOINT_URL":   s.url,
		"DAYFLY_SERVICE_URL": s.control, "DAYFLY_INSTANCE": "stack", "DAYFLY_POOL": "default", "DAYFLY_LOG_LEVEL": "error",
		"DAYFLY_POOL_TOKEN_SECRET": TokenSecret, "DAYFLY_TICKET_KEYS_SECRET": KeysSecret, "DAYFLY_JOBS_QUEUE_URL": s.Jobs,
	}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// Submit asks for n previews of a workspace of its own and returns their ids.
func (s *Stack) Submit(ctx context.Context, workspace string, n int) []string {
	s.t.Helper()
	_, _, err := s.Plane.PutWorkspace(ctx, s.Admin, api.Workspace{
		Name: workspace, RunSettings: api.RunSettings{
			Engine:   api.EngineCommand,
			Source:   api.Source{Git: &api.GitSource{URL: "https://git.example.com/a.git"}},
			Commands: map[string]string{"preview": "true", "update": "true"},
		},
		MaxActive: 1000,
	})
	s.must(err)
	var ids []string
	for range n {
		wf, err := s.Plane.Submit(ctx, s.Admin, "", api.Submit{Workspace: workspace, Operation: workflow.Preview})
		s.must(err)
		ids = append(ids, wf.ID)
	}
	return ids
}

// State is where a workflow stands, as its pool sees it.
func (s *Stack) State(ctx context.Context, id string) api.JobState {
	s.t.Helper()
	out, err := s.Plane.States(ctx, s.Pool, api.StatesQuery{IDs: []string{id}})
	s.must(err)
	return out.Jobs[0]
}

// Receive takes up to ten messages out of a queue.
func (s *Stack) Receive(ctx context.Context, url string) []types.Message {
	s.t.Helper()
	out, err := s.SQS.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: 10, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	s.must(err)
	return out.Messages
}

// Send puts a message into a queue.
func (s *Stack) Send(ctx context.Context, url, body string) {
	s.t.Helper()
	_, err := s.SQS.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(body)})
	s.must(err)
}

// Held is how many messages a queue has, with those that are hidden or delayed.
func (s *Stack) Held(ctx context.Context, url string) (n int) {
	s.t.Helper()
	out, err := s.SQS.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}})
	s.must(err)
	for _, v := range out.Attributes {
		one, err := strconv.Atoi(v)
		s.must(err)
		n += one
	}
	return n
}
