package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakedynamodb "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
	fakelambda "github.com/dayfly-dev/dayfly/test/awsim/lambda"
	fakesecrets "github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

// TestBuild_OverAWS holds what build wires together to the services' own protocols: the admin token from
// Secrets Manager, records in DynamoDB, a wake by Lambda.
func TestBuild_OverAWS(t *testing.T) {
	woken := make(chan fakelambda.Invocation, 9)
	table := sigv4.NewTable(nil)
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{
		"dynamodb": &fakedynamodb.Service{}, "secretsmanager": &fakesecrets.Service{},
		"lambda": &fakelambda.Service{Invoke: func(_ context.Context, in fakelambda.Invocation) (fakelambda.Result, error) {
			in.Caller.AccessKeyID = ""
			woken <- in
			return fakelambda.Result{}, nil
		}},
	}})
	listener := httptest.NewServer(server)
	defer listener.Close()

	deployer := awsim.ClientConfig(listener.URL, table.User("deployer"))
	if err := dynamodbtest.Create(t.Context(), awsdynamodb.NewFromConfig(deployer), "dayfly", time.Minute); err != nil {
		t.Fatal(err)
	}
	secret, err := secretsmanager.NewFromConfig(deployer).CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{
		Name: aws.String("dayfly/admin"), SecretString: aws.String(adminToken), ClientRequestToken: aws.String(strings.Repeat("a", 32)),
	})
	if err != nil {
		t.Fatal(err)
	}
	key := table.Session("dayfly-controlplane", "function", time.Hour)
	env := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": key.AccessKeyID, "AWS_SECRET_ACCESS_KEY": key.SecretAccessKey,
		"AWS_SESSION_TOKEN": key.SessionToken, "AWS_ENDPOINT_URL": listener.URL,
		"DAYFLY_TABLE": "dayfly", "DAYFLY_ADMIN_TOKEN_SECRET": *secret.ARN,
		"DAYFLY_ORGANIZATION_LIMIT": "1",
	}
	w := &world{t: t}
	if w.f, err = build(func(name string) string { return env[name] }, &w.log); err != nil {
		t.Fatal(err)
	}

	w.ok("PATCH", "/v1/pools/default", adminToken, `{"wake_target":"arn:aws:lambda:us-east-1:123456789012:function:dayfly-wake-default"}`, nil)
	var made api.PoolToken
	w.ok("POST", "/v1/pools/default/token", adminToken, `{}`, &made)
	claim := func() (out api.Claimed) {
		w.ok("POST", "/v1/claims", made.Token, `{"instance":"dayfly-default","max":10}`, &out)
		return out
	}
	claim()
	w.workspace("net")
	wf := w.submit("net")
	want := fakelambda.Invocation{Name: "dayfly-wake-default", Payload: []byte("{}"), Async: true, Caller: key.Identity}
	want.Caller.AccessKeyID = ""
	if d := cmp.Diff(want, <-woken); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
	if out := claim(); len(out.Jobs) != 1 || out.Jobs[0].ID != wf.ID {
		t.Errorf("claimed %+v", out)
	}
	w.workspace("second")
	w.submit("second")
	if out := claim(); len(out.Jobs) != 0 || !strings.Contains(out.Note, "limit of 1 active") {
		t.Errorf("claimed %+v beyond the organization's limit", out)
	}
	if out, err := w.f.Handle(t.Context(), sample(t, "controlplane-pass")); out != nil || err != nil {
		t.Errorf("pass: %v, %v", out, err)
	}

	// What an administrator does after a restore of the table, twice.
	for _, want := range []api.Restored{{Workflows: 2}, {}} { // the one that was claimed has not started either
		out, err := w.f.Handle(t.Context(), []byte(`{"restored":true}`))
		if err != nil || out != want {
			t.Errorf("restored: %v, %v, want %v", out, err, want)
		}
	}
	if out := claim(); len(out.Jobs) != 0 {
		t.Errorf("claimed %+v after a restore", out)
	}

	// The sample names a token that nobody has.
	out, err := w.f.Handle(t.Context(), json.RawMessage(sample(t, "http-api-claim")))
	if answer, ok := out.(events.APIGatewayV2HTTPResponse); err != nil || !ok || answer.StatusCode != 401 {
		t.Errorf("%+v, %v", out, err)
	}
	for _, shown := range []string{adminToken, made.Token, key.SecretAccessKey} {
		if strings.Contains(w.log.String(), shown) {
			t.Error("a secret is in the log")
		}
	}
}

// The function of calls that wait has no right to the admin token, and needs none.
func TestBuild_LongPollsReadNoAdminToken(t *testing.T) {
	env := map[string]string{"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s", "DAYFLY_TABLE": "dayfly"}
	getenv := func(name string) string { return env[name] }
	if _, err := build(getenv, io.Discard); err == nil || !strings.Contains(err.Error(), "DAYFLY_ADMIN_TOKEN_SECRET") {
		t.Errorf("the other function: %v", err)
	}
	env["DAYFLY_MODE"] = "long-polls"
	f, err := build(getenv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f.ensureAdmin(t.Context()) // asks nobody
	if !f.ensured.Empty() || !f.again.IsZero() {
		t.Error("it tried to ensure the admin token")
	}
}
