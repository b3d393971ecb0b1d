package boot_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakesecrets "github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// secrets is a Secrets Manager that checks signatures, with one secret, and the configuration of a
// function that may read it.
func secrets(t *testing.T) (server *awsim.Server, cfg aws.Config, arn string) {
	t.Helper()
	table := sigv4.NewTable(nil)
	server = awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"secretsmanager": &fakesecrets.Service{}}})
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	made, err := secretsmanager.NewFromConfig(awsim.ClientConfig(listener.URL, table.User("deployer"))).CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{
		Name: aws.String("dayfly/pool"), SecretString: aws.String("a \"quoted\" <value>"), ClientRequestToken: aws.String(strings.Repeat("a", 32)),
	})
	if err != nil {
		t.Fatal(err)
	}
	session := table.Session("poller", "function", time.Hour)
	cfg, err = config(env(
		"AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", session.AccessKeyID, "AWS_SECRET_ACCESS_KEY", session.SecretAccessKey,
		"AWS_SESSION_TOKEN", session.SessionToken, "AWS_ENDPOINT_URL", "http://127.0.0.1:1", "AWS_ENDPOINT_URL_SECRETS_MANAGER", listener.URL+"/",
	))
	if err != nil {
		t.Fatal(err)
	}
	server.ForgetCalls()
	return server, cfg, *made.ARN
}

func TestSecretsManager_AsksAgainAfterWhatMayPass(t *testing.T) {
	throttle := &wire.Error{Status: 400, Code: "ThrottlingException", Message: "Rate exceeded"}
	for _, c := range []struct {
		name  string
		fault error
		times int
		calls int
		code  string // of the error; empty means none, and the value
	}{
		{"nothing is wrong", nil, 0, 1, ""},
		{"throttled twice", throttle, 2, 3, ""},
		{"throttled three times", throttle, 3, 3, "ThrottlingException"},
		{"an error of the service", &wire.Error{Status: 500, Code: "InternalServiceError"}, 1, 2, ""},
		{"a broken connection", wire.Drop, 1, 2, ""},
		{"refused", &wire.Error{Status: 400, Code: "AccessDeniedException", Message: "not authorized to perform: secretsmanager:GetSecretValue"}, 9, 1, "AccessDeniedException"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, cfg, arn := secrets(t)
			if c.fault != nil {
				server.Inject(wire.Fault{Service: "secretsmanager", Operation: "GetSecretValue", Times: c.times, Before: wire.Fail(c.fault)})
			}
			got, err := boot.SecretsManager(cfg, "the pool token", arn).Get(t.Context())
			refusal, refused := errors.AsType[smithy.APIError](err)
			switch {
			case c.code == "" && (err != nil || got.Reveal() != "a \"quoted\" <value>"):
				t.Errorf("read %q, %v", got.Reveal(), err)
			case c.code != "" && (!refused || refusal.ErrorCode() != c.code || !strings.Contains(err.Error(), "the pool token")):
				t.Errorf("error %v, want %s, and which secret it is", err, c.code)
			}
			calls := server.Calls()
			if len(calls) != c.calls {
				t.Errorf("asked %d times, want %d", len(calls), c.calls)
			}
			for _, call := range calls {
				if call.Caller.ARN != "arn:aws:sts::123456789012:assumed-role/poller/function" || call.Resource != arn {
					t.Errorf("call %+v, want the function's own for %s", call, arn)
				}
			}
		})
	}
}

func TestSecretsManager_ASecretThatIsNotThere(t *testing.T) {
	server, cfg, _ := secrets(t)
	_, err := boot.SecretsManager(cfg, "the ticket keys", "dayfly/other").Get(t.Context())
	if refusal, ok := errors.AsType[smithy.APIError](err); !ok || refusal.ErrorCode() != "ResourceNotFoundException" {
		t.Errorf("error %v, want ResourceNotFoundException", err)
	}
	if n := len(server.Calls()); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
}
