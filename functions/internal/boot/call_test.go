package boot_test

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// A client of the SDK repeats what a Caller repeats, and as often.
func TestRepeating_AsksAgainAfterWhatMayPass(t *testing.T) {
	throttle := &wire.Error{Status: 400, Code: "ThrottlingException", QueryCode: "RequestThrottled", Message: "Rate exceeded"}
	for _, c := range []struct {
		name  string
		fault wire.Fault
		calls int
		want  error
	}{
		{"throttled twice", wire.Fault{Times: 2, Before: wire.Fail(throttle)}, 3, nil},
		{"throttled three times", wire.Fault{Times: 3, Before: wire.Fail(throttle)}, 3, workflow.ErrBusy},
		{"an error of the service", wire.Fault{Times: 1, Before: wire.Fail(&wire.Error{Status: 500, Code: "InternalFailure"})}, 2, nil},
		{"a lost answer", wire.Fault{Times: 1, After: wire.Fail(wire.Drop)}, 2, nil},
		{"answers lost to the end", wire.Fault{Times: 9, After: wire.Fail(wire.Drop)}, 3, workflow.ErrBusy},
		{"refused", wire.Fault{Times: 9, Before: wire.Fail(&wire.Error{Status: 403, Code: "AccessDenied", Message: "not authorized"})}, 1, workflow.ErrForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := sigv4.NewTable(nil)
			server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"sqs": &fakesqs.Service{}}})
			listener := httptest.NewServer(server)
			t.Cleanup(listener.Close)
			session := table.Session("dispatcher", "function", time.Hour)
			cfg, err := config(env(
				"AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", session.AccessKeyID, "AWS_SECRET_ACCESS_KEY", session.SecretAccessKey,
				"AWS_SESSION_TOKEN", session.SessionToken, "AWS_ENDPOINT_URL", "http://127.0.0.1:1", "AWS_ENDPOINT_URL_SQS", listener.URL+"/",
			))
			if err != nil {
				t.Fatal(err)
			}
			client := awssqs.NewFromConfig(boot.Repeating(cfg))
			name := "jobs"
			made, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name})
			if err != nil {
				t.Fatal(err)
			}
			queue, err := sqs.New(client, sqs.Config{URL: *made.QueueUrl})
			if err != nil {
				t.Fatal(err)
			}
			server.ForgetCalls()
			c.fault.Service, c.fault.Operation = "sqs", "GetQueueAttributes"
			server.Inject(c.fault)
			if _, err := queue.Held(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if n := len(server.Calls()); n != c.calls {
				t.Errorf("asked %d times, want %d", n, c.calls)
			}
		})
	}
}

func TestCaller_FindsTheEndpointOfAService(t *testing.T) {
	for _, c := range []struct {
		name, region, want string
		pairs              []string
	}{
		{name: "its own", want: "https://lambda.us-east-1.amazonaws.com"},
		{name: "in another region", region: "eu-central-1", want: "https://lambda.eu-central-1.amazonaws.com"},
		{name: "in China", region: "cn-north-1", want: "https://lambda.cn-north-1.amazonaws.com.cn"},
		{name: "of all services", pairs: []string{"AWS_ENDPOINT_URL", "http://all/"}, want: "http://all"},
		{name: "of this one", pairs: []string{"AWS_ENDPOINT_URL", "http://all", "AWS_ENDPOINT_URL_LAMBDA", "http://one/"}, want: "http://one"},
		{name: "of another one", pairs: []string{"AWS_ENDPOINT_URL_SQS", "http://one"}, want: "https://lambda.us-east-1.amazonaws.com"},
	} {
		cfg, err := config(env(append([]string{"AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "b"}, c.pairs...)...))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := boot.NewCaller(cfg).Endpoint(t.Context(), "Lambda", "lambda", c.region); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}
