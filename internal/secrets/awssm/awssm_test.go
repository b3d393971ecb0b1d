package awssm_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/awssm"
	"github.com/dayfly-dev/dayfly/internal/secrets/secretstest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
	fakesm "github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/ssm"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

var _ secrets.Resolver = (*awssm.Resolver)(nil)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const prefix = "arn:aws:secretsmanager:us-east-1:123456789012:secret:"

// world is a fake AWS in which the role "runner" reads secrets, but for those below "other/".
type world struct {
	*testing.T
	server     *awsim.Server
	service    *fakesm.Service
	admin      *secretsmanager.Client
	parameters aws.Config // of the admin
	resolver   *awssm.Resolver
}

func start(t *testing.T) *world {
	t.Helper()
	table := sigv4.NewTable(nil)
	w := &world{T: t, service: &fakesm.Service{}}
	runner := table.Session("runner", "task", time.Hour)
	w.server = awsim.New(awsim.Config{
		Credentials: table, Services: map[string]awsim.Service{"secretsmanager": w.service, "ssm": &ssm.Service{}},
		Allow: func(c wire.Call) error {
			reads := c.Operation == "GetSecretValue" || c.Operation == "GetParameter"
			if c.Caller == runner.Identity && (!reads || strings.Contains(string(c.Body), "secret:other/") || strings.Contains(string(c.Body), "parameter/other/")) {
				return awsim.Denied(c, prefix+"other/x")
			}
			return nil
		},
	})
	server := httptest.NewServer(w.server)
	t.Cleanup(server.Close)
	w.parameters = awsim.ClientConfig(server.URL, table.User("admin"))
	w.admin = secretsmanager.NewFromConfig(awsim.ClientConfig(server.URL, table.User("admin")))
	w.resolver = awssm.New(
		secretsmanager.NewFromConfig(awsim.ClientConfig(server.URL, runner), func(o *secretsmanager.Options) { o.Retryer = aws.NopRetryer{} }),
		reader(awsim.ClientConfig(server.URL, runner)),
	)
	return w
}

// put keeps a value, binary where it is not text, and returns the secret's ARN and the version's id.
func put(t *testing.T, client *secretsmanager.Client, name, value string) (arn, version string) {
	t.Helper()
	var text *string
	var binary []byte
	if utf8.ValidString(value) {
		text = &value
	} else {
		binary = []byte(value)
	}
	made, err := client.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: text, SecretBinary: binary})
	if err == nil {
		t.Cleanup(func() {
			_, _ = client.DeleteSecret(context.WithoutCancel(t.Context()), &secretsmanager.DeleteSecretInput{SecretId: made.ARN, ForceDeleteWithoutRecovery: aws.Bool(true)})
		})
		return *made.ARN, *made.VersionId
	}
	if _, exists := errors.AsType[*types.ResourceExistsException](err); !exists {
		t.Fatal(err)
	}
	again, err := client.PutSecretValue(t.Context(), &secretsmanager.PutSecretValueInput{SecretId: &name, SecretString: text, SecretBinary: binary})
	if err != nil {
		t.Fatal(err)
	}
	return *again.ARN, *again.VersionId
}

var malformed = []string{
	"arn:", "arn:aws:s3:::bucket", prefix, prefix + "#key", prefix + "name#", prefix + "name:key:stage:version:more",
	prefix + "name:key#key", prefix + "no blanks", "arn:aws:secretsmanager::123456789012:secret:name", "arn:aws:secretsmanager:us-east-1:1:secret:name",
	"arn:aws:secretsmanager:us-east-1:123456789012:rotation:name", "arn:aws:ssm:us-east-1:123456789012:document/name", "arn:aws:ssm:us-east-1:123456789012:parameter/",
	"arn:aws:ssm:us-east-1:123456789012:parameter/name:1", "awssm:" + prefix + "name", "arn:aws:secretsmanager:us.evil/:123456789012:secret:name",
}

func TestConformance_OverTheFake(t *testing.T) {
	secretstest.Run(t, func(t *testing.T) secretstest.Subject {
		w := start(t)
		forbidden, _ := put(t, w.admin, "other/secret", "a value that must not show")
		return secretstest.Subject{
			Resolver: w.resolver,
			Put: func(t *testing.T, name, value string) string {
				arn, _ := put(t, w.admin, name, value)
				return arn
			},
			Missing: prefix + "missing-AbCdEf", Forbidden: forbidden, Malformed: malformed,
		}
	})
}

func TestConformance_OverMoto(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it starts moto_server")
	}
	client := secretsmanager.NewFromConfig(moto.Start(t), func(o *secretsmanager.Options) { o.Retryer = aws.NopRetryer{} })
	secretstest.Run(t, func(t *testing.T) secretstest.Subject {
		space := "space-" + rand.Text() + "/"
		there, _ := put(t, client, space+"there", "x")
		return secretstest.Subject{
			Resolver: awssm.New(client, nil),
			Put: func(t *testing.T, name, value string) string {
				arn, _ := put(t, client, space+name, value)
				return arn
			},
			Missing: strings.Replace(there, space+"there", space+"missing", 1), Malformed: malformed,
		}
	})
	t.Run("versions", func(t *testing.T) { versions(t, client, awssm.New(client, nil)) })
}

func TestVersions(t *testing.T) {
	w := start(t)
	versions(t, w.admin, w.resolver)
}

// versions rotates a secret and reads each of its versions in every way.
func versions(t *testing.T, client *secretsmanager.Client, resolver *awssm.Resolver) {
	t.Helper()
	name := "rotating-" + rand.Text()
	arn, first := put(t, client, name, `{"user":"one"}`)
	_, second := put(t, client, name, `{"user":"two"}`)
	for ref, want := range map[string]string{
		arn:                            `{"user":"two"}`,
		arn + "#user":                  "two",
		arn + ":user":                  "two",
		arn + ":user::":                "two",
		arn + "::AWSPREVIOUS:":         `{"user":"one"}`,
		arn + ":user:AWSPREVIOUS":      "one",
		arn + ":user::" + first:        "one",
		arn + ":user:AWSCURRENT:":      "two",
		arn[:len(arn)-7] + "#user":     "two", // without the random end
		arn + "::AWSCURRENT:" + second: `{"user":"two"}`,
	} {
		got, err := resolver.Resolve(t.Context(), ref)
		if err != nil || got.Reveal() != want {
			t.Errorf("%s: got %q, %v; want %q", ref, got.Reveal(), err, want)
		}
	}
	for _, ref := range []string{arn + "::AWSPENDING", arn + ":::" + strings.Repeat("0", 32)} {
		if _, err := resolver.Resolve(t.Context(), ref); !errors.Is(err, workflow.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", ref, err)
		}
	}
}

func TestKey_ValuesOfEachKind(t *testing.T) {
	w := start(t)
	arn, _ := put(t, w.admin, "document", `{"text":"a \"quoted\"\nline ✓","empty":"","number":12345678901234567890.50,"yes":true,"object":{"a": [1]},"nothing":null,"odd key: #1":"x"}`)
	for key, want := range map[string]string{
		"text": "a \"quoted\"\nline ✓", "empty": "", "number": "12345678901234567890.50", "yes": "true", "object": `{"a": [1]}`, "odd key: #1": "x",
	} {
		if got, err := w.resolver.Resolve(t.Context(), arn+"#"+key); err != nil || got.Reveal() != want {
			t.Errorf("%s: got %q, %v; want %q", key, got.Reveal(), err, want)
		}
	}
}

// R6: each error says what to do, and holds no value.
func TestErrors_AreSentencesWithoutTheValue(t *testing.T) {
	w := start(t)
	const value = "a-value-that-must-not-show"
	document, _ := put(t, w.admin, "document", `{"password":"`+value+`","nothing":null}`)
	text, _ := put(t, w.admin, "text", value+" is no JSON")
	array, _ := put(t, w.admin, "array", `["`+value+`"]`)
	broken, _ := put(t, w.admin, "broken", `{"password":"`+value+`"`)
	binary, _ := put(t, w.admin, "binary", "\xff"+value)
	deleted, _ := put(t, w.admin, "deleted", value)
	if _, err := w.admin.DeleteSecret(t.Context(), &secretsmanager.DeleteSecretInput{SecretId: &deleted}); err != nil {
		t.Fatal(err)
	}
	made, err := w.admin.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: aws.String("void")})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(code, message string) error { return &wire.Error{Code: code, Message: message} }
	for name, c := range map[string]struct {
		ref   string
		fault error
		want  error
		text  string
	}{
		"missing key":       {document + "#user", nil, workflow.ErrNotFound, `it has no such key`},
		"null":              {document + "#nothing", nil, workflow.ErrNotFound, "null"},
		"no JSON":           {text + "#password", nil, workflow.ErrInvalid, "not a JSON object"},
		"an array":          {array + "#password", nil, workflow.ErrInvalid, "not a JSON object"},
		"cut JSON":          {broken + "#password", nil, workflow.ErrInvalid, "not a JSON object"},
		"key of binary":     {binary + "#password", nil, workflow.ErrInvalid, "it is binary"},
		"marked":            {deleted, nil, workflow.ErrNotFound, "marked for deletion"},
		"without a value":   {*made.ARN, nil, workflow.ErrNotFound, "has no value yet"},
		"denied":            {prefix + "other/x-AbCdEf", nil, workflow.ErrForbidden, "needs secretsmanager:GetSecretValue"},
		"key of KMS":        {document, refused("DecryptionFailure", "Secrets Manager can't decrypt the protected secret text using the provided KMS key."), workflow.ErrForbidden, "kms:Decrypt"},
		"throttled":         {document, refused("ThrottlingException", "Rate exceeded"), secrets.ErrUnavailable, "Rate exceeded"},
		"internal":          {document, &wire.Error{Status: http.StatusInternalServerError, Code: "InternalServiceError", Message: "An error occurred on the server side."}, secrets.ErrUnavailable, "server side"},
		"answer lost":       {document, wire.Drop, secrets.ErrUnavailable, ""},
		"refused otherwise": {document, refused("InvalidRequestException", "no"), workflow.ErrInvalid, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.fault != nil {
				defer w.server.Inject(wire.Fault{Operation: "GetSecretValue", After: wire.Fail(c.fault)})()
			}
			got, err := w.resolver.Resolve(t.Context(), c.ref)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want %v with %q", err, c.want, c.text)
			}
			if !got.Empty() || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), value) {
				t.Errorf("a value shows: %v, %#v", got, err)
			}
		})
	}
}

func TestParseRef(t *testing.T) {
	for s, want := range map[string]awssm.Ref{
		prefix + "a/b-AbCdEf":  {ARN: prefix + "a/b-AbCdEf", Region: "us-east-1"},
		prefix + "a#k:1#2":     {ARN: prefix + "a", Region: "us-east-1", Key: "k:1#2"},
		prefix + "a:k":         {ARN: prefix + "a", Region: "us-east-1", Key: "k"},
		prefix + "a:k:s:v":     {ARN: prefix + "a", Region: "us-east-1", Key: "k", Stage: "s", Version: "v"},
		prefix + "a:::v":       {ARN: prefix + "a", Region: "us-east-1", Version: "v"},
		prefix + "rds!db-1-Ab": {ARN: prefix + "rds!db-1-Ab", Region: "us-east-1"},
		ssm.Prefix + "/a/b#k":  {ARN: ssm.Prefix + "/a/b", Parameter: true, Region: "us-east-1", Key: "k"},
		"arn:aws-us-gov:secretsmanager:us-gov-west-1:123456789012:secret:a": {ARN: "arn:aws-us-gov:secretsmanager:us-gov-west-1:123456789012:secret:a", Region: "us-gov-west-1"},
	} {
		got, err := awssm.ParseRef(s)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", s, err, d)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add(prefix + "a#k")
	f.Add(prefix + "a:k:s:v")
	f.Add(ssm.Prefix + "/a/b#k")
	for _, s := range malformed {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := awssm.ParseRef(s)
		if err != nil {
			if len(s) > 60 && strings.Contains(err.Error(), s) {
				t.Errorf("the error repeats the reference: %v", err)
			}
			return
		}
		if !strings.HasPrefix(s, ref.ARN) || ref.Region == "" || strings.ContainsAny(ref.Region, "/.@:#") {
			t.Errorf("%q was read as %+v", s, ref)
		}
		back := ref.ARN + ":" + ref.Key + ":" + ref.Stage + ":" + ref.Version
		switch {
		case strings.Contains(s, "#"):
			back = ref.ARN + "#" + ref.Key
		case ref.Parameter:
			back = ref.ARN
		}
		if again, err := awssm.ParseRef(back); err != nil || again != ref {
			t.Errorf("%q: %+v is written %q and read as %+v, %v", s, ref, back, again, err)
		}
	})
}
