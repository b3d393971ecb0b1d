package awssm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/awssm"
	"github.com/dayfly-dev/dayfly/internal/secrets/secretstest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
	"github.com/dayfly-dev/dayfly/test/awsim/ssm"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// reader reads parameters as the runner does.
func reader(cfg aws.Config) awssm.Parameters {
	client := awsssm.NewFromConfig(cfg, func(o *awsssm.Options) { o.Retryer = aws.NopRetryer{} })
	return func(ctx context.Context, region, arn string) (string, error) {
		in := &awsssm.GetParameterInput{Name: &arn, WithDecryption: aws.Bool(true)}
		out, err := client.GetParameter(ctx, in, func(o *awsssm.Options) { o.Region = region })
		if err != nil {
			return "", err
		}
		return *out.Parameter.Value, nil
	}
}

// putParameter keeps a value, encrypted, and returns the parameter's ARN.
func putParameter(t *testing.T, admin aws.Config, name, value string) string {
	t.Helper()
	if err := ssm.Put(t.Context(), awsim.SignedClient(admin, "ssm"), *admin.BaseEndpoint, name, value); err != nil {
		t.Fatal(err)
	}
	return ssm.Prefix + "/" + strings.TrimPrefix(name, "/")
}

func TestParameterConformance_OverTheFake(t *testing.T) {
	secretstest.Run(t, func(t *testing.T) secretstest.Subject {
		w := start(t)
		return parameters(w.parameters, w.resolver, "/app/", putParameter(t, w.parameters, "/other/secret", "a value that must not show"))
	})
}

func TestParameterConformance_OverMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it starts moto_server")
	}
	client := moto.Start(t)
	n := 0
	secretstest.Run(t, func(*testing.T) secretstest.Subject {
		n++
		return parameters(client, awssm.New(nil, reader(client)), fmt.Sprintf("/space-%d/", n), "")
	})
}

func parameters(admin aws.Config, resolver *awssm.Resolver, below, forbidden string) secretstest.Subject {
	return secretstest.Subject{
		Resolver: resolver, TextOnly: true, MaxValue: 4096,
		Put:     func(t *testing.T, name, value string) string { return putParameter(t, admin, below+name, value) },
		Missing: ssm.Prefix + below + "missing", Forbidden: forbidden, Malformed: malformed,
	}
}

// R6: each error says what to do, and holds no value.
func TestParameter_AKeyAndErrors(t *testing.T) {
	w := start(t)
	ref := putParameter(t, w.parameters, "document", `{"password":"must not show"}`)
	if got, err := w.resolver.Resolve(t.Context(), ref+"#password"); err != nil || got.Reveal() != "must not show" || got.Document() == "" {
		t.Errorf("got %q, %v", got.Reveal(), err)
	}
	for name, c := range map[string]struct {
		ref   string
		fault error
		want  error
		text  string
	}{
		"missing key": {ref + "#user", nil, workflow.ErrNotFound, "no such key"},
		"denied":      {ssm.Prefix + "/other/x", nil, workflow.ErrForbidden, "needs ssm:GetParameter"},
		"throttled":   {ref, &wire.Error{Code: "ThrottlingException", Message: "Rate exceeded"}, secrets.ErrUnavailable, "Rate exceeded"},
		"answer lost": {ref, wire.Drop, secrets.ErrUnavailable, ""},
		"otherwise":   {ref, &wire.Error{Code: "InvalidKeyId", Message: "no such key of KMS"}, workflow.ErrInvalid, "no such key of KMS"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.fault != nil {
				defer w.server.Inject(wire.Fault{Operation: "GetParameter", After: wire.Fail(c.fault)})()
			}
			_, err := w.resolver.Resolve(t.Context(), c.ref)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "must not show") {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}
