package awsim_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/lambda"
	"github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/sts"
)

// foreign serves every service for clients that are not ours, and returns its address and the
// environment in which they find their credentials.
func foreign(t *testing.T) (server *awsim.Server, url string, env []string) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped by -short: it starts Python")
	}
	t.Parallel()
	table := sigv4.NewTable(nil)
	tokens := &sts.Service{Credentials: table}
	tokens.Trusts("arn:aws:iam::123456789012:role/dayfly/py", sts.Trust{Principals: []string{"arn:aws:iam::123456789012:root"}, ExternalID: "ws_1", AllowTags: true})
	server = awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{
		"s3": &s3.Service{}, "sqs": &sqs.Service{}, "secretsmanager": &secretsmanager.Service{}, "sts": tokens,
		"lambda": &lambda.Service{Invoke: func(_ context.Context, in lambda.Invocation) (lambda.Result, error) {
			switch in.Name {
			case "echo":
				return lambda.Result{Payload: in.Payload}, nil
			case "busy":
				return lambda.Result{}, lambda.Throttled("ReservedFunctionConcurrentInvocationLimitExceeded")
			}
			return lambda.Result{}, lambda.NotFound(in.Name)
		}},
	}})
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	c := table.User("foreign")
	none := filepath.Join(t.TempDir(), "none") // instead of the settings of the user who runs the test
	env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	return server, listener.URL, append(env,
		"AWS_ACCESS_KEY_ID="+c.AccessKeyID, "AWS_SECRET_ACCESS_KEY="+c.SecretAccessKey, "AWS_DEFAULT_REGION=us-east-1", "AWS_REGION=us-east-1",
		"AWS_CONFIG_FILE="+none, "AWS_SHARED_CREDENTIALS_FILE="+none, "AWS_EC2_METADATA_DISABLED=true", "AWS_PAGER=", "NO_PROXY=127.0.0.1")
}

func TestForeignClient_boto3(t *testing.T) {
	server, url, env := foreign(t)
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import boto3").Run(); err != nil {
		t.Skip("no foreign client to try: python3 has no boto3 here")
	}
	secure := httptest.NewTLSServer(server) // over which bodies come in chunks
	defer secure.Close()
	cmd := exec.CommandContext(t.Context(), "python3", "-W", "ignore", "testdata/clients.py", url, secure.URL)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%v\n%s", err, out)
	}
	// It was this server that it talked to.
	services := map[string]int{}
	for _, c := range server.Calls() {
		services[c.Service]++
	}
	for _, name := range []string{"s3", "sqs", "secretsmanager", "sts", "lambda"} {
		if services[name] == 0 {
			t.Errorf("no call of %s arrived: %v", name, services)
		}
	}
}

// fetched is what is at an address.
func fetched(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestForeignClient_CLI(t *testing.T) {
	_, url, env := foreign(t)
	settings := filepath.Join(t.TempDir(), "config") // without it, addresses are signed by an older version for us-east-1
	if err := os.WriteFile(settings, []byte("[default]\ns3 =\n  signature_version = s3v4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env = append(env, "AWS_CONFIG_FILE="+settings)
	if err := exec.CommandContext(t.Context(), "aws", "--version").Run(); err != nil {
		t.Skip("no foreign client to try: there is no AWS CLI on PATH")
	}
	try := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "aws", append([]string{"--endpoint-url", url, "--output", "text"}, args...)...) //nolint:gosec // a test's own words
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	cli := func(args ...string) string {
		t.Helper()
		out, err := try(args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	queue := cli("sqs", "create-queue", "--queue-name", "cli", "--query", "QueueUrl")
	cli("sqs", "send-message", "--queue-url", queue, "--message-body", "hello")
	if got := cli("sqs", "receive-message", "--queue-url", queue, "--query", "Messages[0].Body"); got != "hello" {
		t.Errorf("receive: got %q", got)
	}
	arn := cli("secretsmanager", "create-secret", "--name", "cli", "--secret-string", "one", "--query", "ARN")
	if got := cli("secretsmanager", "get-secret-value", "--secret-id", arn, "--query", "SecretString"); got != "one" {
		t.Errorf("secret: got %q", got)
	}
	cli("s3", "mb", "s3://cli")
	cli("s3", "cp", "foreign_test.go", "s3://cli/a/b.go", "--no-guess-mime-type")
	if got := cli("s3", "ls", "s3://cli/a"); got != "PRE a/" {
		t.Errorf("bucket: got %q", got)
	}
	if got := cli("s3", "cp", "s3://cli/a/b.go", "-"); !strings.HasPrefix(got, "package awsim_test\n") {
		t.Errorf("object: got %q", got)
	}
	if got := fetched(t, cli("s3", "presign", "s3://cli/a/b.go", "--expires-in", "60")); !strings.HasPrefix(got, "package awsim_test\n") {
		t.Errorf("a signed address: got %q", got)
	}
	if got := cli("sts", "get-caller-identity", "--query", "Arn"); got != "arn:aws:iam::123456789012:user/foreign" {
		t.Errorf("identity: got %q", got)
	}
	in, file := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(in, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := cli("lambda", "invoke", "--function-name", "echo", "--payload", "fileb://"+in, "--query", "StatusCode", file); got != "200" {
		t.Errorf("invoke: got %q", got)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != `{"a":1}` {
		t.Errorf("payload: got %q, %v", got, err)
	}
	if out, err := try("secretsmanager", "get-secret-value", "--secret-id", "none"); err == nil || !strings.Contains(out, "(ResourceNotFoundException)") {
		t.Errorf("got %q, %v; want ResourceNotFoundException", out, err)
	}
}
