package boot_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// delivered is a queue of an SQS that checks signatures, on a clock that stands still until it is moved.
type delivered struct {
	server *awsim.Server
	client *awssqs.Client // of somebody else
	url    string
	cfg    aws.Config // of the function
	now    time.Time
}

func deliver(t *testing.T) *delivered {
	t.Helper()
	d := &delivered{now: time.Now()}
	table := sigv4.NewTable(nil)
	d.server = awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{
		"sqs": &fakesqs.Service{Now: func() time.Time { return d.now }},
	}})
	listener := httptest.NewServer(d.server)
	t.Cleanup(listener.Close)
	d.client = awssqs.NewFromConfig(awsim.ClientConfig(listener.URL, table.User("deployer")))
	made, err := d.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("jobs"), Attributes: map[string]string{"VisibilityTimeout": "3600"}})
	if err != nil {
		t.Fatal(err)
	}
	d.url = *made.QueueUrl
	if _, err := d.client.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &d.url, MessageBody: aws.String("a")}); err != nil {
		t.Fatal(err)
	}
	session := table.Session("dispatcher", "function", time.Hour)
	d.cfg, err = config(env(
		"AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", session.AccessKeyID, "AWS_SECRET_ACCESS_KEY", session.SecretAccessKey,
		"AWS_SESSION_TOKEN", session.SessionToken, "AWS_ENDPOINT_URL", "http://127.0.0.1:1", "AWS_ENDPOINT_URL_SQS", listener.URL+"/",
	))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// receive returns the receipt of what can be received, or "".
func (d *delivered) receive(t *testing.T) string {
	t.Helper()
	got, err := d.client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &d.url})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) == 0 {
		return ""
	}
	return *got.Messages[0].ReceiptHandle
}

func TestDeliveries_HideForWholeSeconds(t *testing.T) {
	d := deliver(t)
	receipt := d.receive(t)
	d.server.ForgetCalls()
	if err := boot.NewDeliveries(d.cfg, d.url).Hide(t.Context(), receipt, 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	calls := d.server.Calls()
	if len(calls) != 1 || calls[0].Operation != "ChangeMessageVisibility" || calls[0].Resource != d.url ||
		calls[0].Caller.ARN != "arn:aws:sts::123456789012:assumed-role/dispatcher/function" {
		t.Errorf("calls %+v, want one of the function's own about %s", calls, d.url)
	}
	d.now = d.now.Add(1900 * time.Millisecond)
	if d.receive(t) != "" {
		t.Error("the message came back before its time")
	}
	d.now = d.now.Add(200 * time.Millisecond)
	receipt = d.receive(t)
	if receipt == "" {
		t.Fatal("the message did not come back when its time was over")
	}
	if err := boot.NewDeliveries(d.cfg, d.url).Hide(t.Context(), receipt, 0); err != nil || d.receive(t) == "" {
		t.Errorf("a message that is given back at once stays away: %v", err)
	}
}

func TestDeliveries_AskAgainAfterWhatMayPass(t *testing.T) {
	throttle := &wire.Error{Status: 400, Code: "ThrottlingException", QueryCode: "RequestThrottled", Message: "Rate exceeded"}
	for _, c := range []struct {
		name  string
		fault wire.Fault
		calls int
		class awserr.Class // of the error
	}{
		{"throttled twice", wire.Fault{Times: 2, Before: wire.Fail(throttle)}, 3, awserr.None},
		{"throttled three times", wire.Fault{Times: 3, Before: wire.Fail(throttle)}, 3, awserr.Throttled},
		{"an error of the service", wire.Fault{Times: 1, Before: wire.Fail(&wire.Error{Status: 500, Code: "InternalFailure"})}, 2, awserr.None},
		{"a lost answer", wire.Fault{Times: 1, After: wire.Fail(wire.Drop)}, 2, awserr.None},
		{"answers lost to the end", wire.Fault{Times: 9, After: wire.Fail(wire.Drop)}, 3, awserr.Lost},
		{"refused", wire.Fault{Times: 9, Before: wire.Fail(&wire.Error{Status: 403, Code: "AccessDenied", Message: "not authorized"})}, 1, awserr.Denied},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := deliver(t)
			receipt := d.receive(t)
			d.server.ForgetCalls()
			c.fault.Service, c.fault.Operation = "sqs", "ChangeMessageVisibility"
			d.server.Inject(c.fault)
			err := boot.NewDeliveries(d.cfg, d.url).Hide(t.Context(), receipt, time.Minute)
			if awserr.Of(err) != c.class || err != nil && !strings.Contains(err.Error(), "queue jobs") {
				t.Errorf("error %v, want %q and which queue", err, c.class)
			}
			if n := len(d.server.Calls()); n != c.calls {
				t.Errorf("asked %d times, want %d", n, c.calls)
			}
		})
	}
}

// What is gone, or was never there, is asked for once, and the service's own word is told.
func TestDeliveries_WhatIsNotThere(t *testing.T) {
	d := deliver(t)
	receipt := d.receive(t)
	d.now = d.now.Add(2 * time.Hour) // it came back
	for name, c := range map[string]struct {
		url, receipt, code string
		length             time.Duration
	}{
		"a delivery that came back": {d.url, receipt, "MessageNotInflight", time.Minute},
		"no receipt":                {d.url, "none", "ReceiptHandleIsInvalid", time.Minute},
		"a queue that is not there": {d.url + "-other", receipt, "NonExistentQueue", time.Minute},
		"longer than a queue can":   {d.url, receipt, "", queue.MaxVisibility + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d.server.ForgetCalls()
			err := boot.NewDeliveries(d.cfg, c.url).Hide(t.Context(), c.receipt, c.length)
			if err == nil || awserr.Code(err) != c.code {
				t.Errorf("error %v with code %q, want %q", err, awserr.Code(err), c.code)
			}
			want := 1
			if c.code == "" {
				want = 0
			}
			if n := len(d.server.Calls()); n != want {
				t.Errorf("asked %d times, want %d", n, want)
			}
		})
	}
}

func TestDeliveries_EndWithTheirContext(t *testing.T) {
	d := deliver(t)
	receipt := d.receive(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.server.ForgetCalls()
	d.server.Inject(wire.Fault{Service: "sqs", Operation: "ChangeMessageVisibility", Before: func(wire.Call) error {
		cancel()
		return &wire.Error{Status: 500, Code: "InternalFailure"}
	}})
	if err := boot.NewDeliveries(d.cfg, d.url).Hide(ctx, receipt, time.Minute); err == nil {
		t.Error("no error")
	}
	if n := len(d.server.Calls()); n > 1 {
		t.Errorf("asked %d times, the last after the end", n)
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
