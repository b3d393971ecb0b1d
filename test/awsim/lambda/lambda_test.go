package lambda_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	awslambda "github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/lambda"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// start serves functions and returns a client and the invocations that were made.
func start(t *testing.T, invoke func(context.Context, lambda.Invocation) (lambda.Result, error)) *awslambda.Client {
	t.Helper()
	table := sigv4.NewTable(nil)
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"lambda": &lambda.Service{Invoke: invoke}}}))
	t.Cleanup(server.Close)
	return awslambda.NewFromConfig(awsim.ClientConfig(server.URL, table.User("control-plane")), func(o *awslambda.Options) { o.Retryer = aws.NopRetryer{} })
}

func TestInvoke_ReachesTheFunctionByEachOfItsNames(t *testing.T) {
	var got []lambda.Invocation
	client := start(t, func(_ context.Context, in lambda.Invocation) (lambda.Result, error) {
		in.Caller.AccessKeyID = ""
		got = append(got, in)
		return lambda.Result{RequestID: "request-1", Payload: []byte(`{"ok":true}`)}, nil
	})
	for _, name := range []string{
		"dayfly-wake-main", "dayfly-wake-main:live", "123456789012:function:dayfly-wake-main",
		"arn:aws:lambda:us-east-1:123456789012:function:dayfly-wake-main", "arn:aws:lambda:us-east-1:123456789012:function:dayfly-wake-main:$LATEST",
	} {
		got = nil
		out, err := client.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: &name, InvocationType: types.InvocationTypeEvent, Payload: []byte("{}")})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if id, ok := middleware.GetRequestIDMetadata(out.ResultMetadata); !ok || id != "request-1" {
			t.Errorf("%s: got the request id %q", name, id)
		}
		want := lambda.Invocation{Name: "dayfly-wake-main", Payload: []byte("{}"), Async: true}
		want.Caller.Account, want.Caller.ARN = "123456789012", "arn:aws:iam::123456789012:user/control-plane"
		if strings.HasSuffix(name, ":live") {
			want.Qualifier = "live"
		}
		if d := cmp.Diff([]lambda.Invocation{want}, got); d != "" || out.StatusCode != 202 || len(out.Payload) != 0 {
			t.Errorf("%s: status %d, payload %q (-want +got):\n%s", name, out.StatusCode, out.Payload, d)
		}
	}
	out, err := client.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: aws.String("f"), Qualifier: aws.String("2"), Payload: []byte(`{"a":1}`)})
	if err != nil || out.StatusCode != 200 || string(out.Payload) != `{"ok":true}` || out.FunctionError != nil {
		t.Errorf("got %+v, %v", out, err)
	}
	if last := got[len(got)-1]; last.Async || last.Qualifier != "2" || string(last.Payload) != `{"a":1}` {
		t.Errorf("got %+v", last)
	}
	before := len(got)
	if out, err := client.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: aws.String("f"), InvocationType: types.InvocationTypeDryRun}); err != nil || out.StatusCode != 204 || len(got) != before {
		t.Errorf("dry run: got %+v, %v", out, err)
	}
}

func TestInvoke_ErrorsAreLambdas(t *testing.T) {
	client := start(t, func(_ context.Context, in lambda.Invocation) (lambda.Result, error) {
		switch in.Name {
		case "broken":
			return lambda.Result{Payload: []byte(`{"errorMessage":"x"}`), Error: "Unhandled"}, nil
		case "busy":
			return lambda.Result{}, lambda.Throttled("ReservedFunctionConcurrentInvocationLimitExceeded")
		}
		return lambda.Result{}, lambda.NotFound(in.Name)
	})
	invoke := func(name, payload string, kind types.InvocationType) (*awslambda.InvokeOutput, error) {
		return client.Invoke(t.Context(), &awslambda.InvokeInput{FunctionName: &name, Payload: []byte(payload), InvocationType: kind})
	}
	if out, err := invoke("broken", "{}", "RequestResponse"); err != nil || aws.ToString(out.FunctionError) != "Unhandled" || string(out.Payload) != `{"errorMessage":"x"}` {
		t.Errorf("got %+v, %v; want an error of the function", out, err)
	}
	_, err := invoke("busy", "{}", "Event")
	if e, ok := errors.AsType[*types.TooManyRequestsException](err); !ok || e.Reason != types.ThrottleReasonReservedFunctionConcurrentInvocationLimitExceeded {
		t.Errorf("throttled: got %v", err)
	}
	_, err = invoke("none", "{}", "Event")
	if e, ok := errors.AsType[*types.ResourceNotFoundException](err); !ok || !strings.Contains(e.ErrorMessage(), "function:none") {
		t.Errorf("not found: got %v", err)
	}
	_, err = invoke("arn:aws:lambda:eu-west-1:123456789012:function:broken", "{}", "Event")
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); !ok {
		t.Errorf("in another region: got %v", err)
	}
	_, err = invoke("broken", "{", "Event")
	if _, ok := errors.AsType[*types.InvalidRequestContentException](err); !ok {
		t.Errorf("no JSON: got %v", err)
	}
	_, err = invoke("broken", `"`+strings.Repeat("x", 1<<20)+`"`, "Event")
	if e, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); !ok || e.ErrorCode() != "RequestEntityTooLargeException" {
		t.Errorf("too large: got %v", err)
	}
	if out, err := invoke("broken", `"`+strings.Repeat("x", 1<<20)+`"`, "RequestResponse"); err != nil || out.StatusCode != 200 {
		t.Errorf("what a call may carry: got %v", err)
	}
}
