package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/awsaccess"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// ownBucket makes a bucket of artifacts and gives the test's environment the AWS access of a person to it.
func ownBucket(t *testing.T) {
	t.Helper()
	table := sigv4.NewTable(nil)
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"s3": &s3.Service{}}, Allow: func(c wire.Call) error {
		if bytes.Contains(c.Body, []byte("denied")) {
			return awsim.Denied(c, "denied")
		}
		return nil
	}})
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	ann := table.User("ann")
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": ann.AccessKeyID, "AWS_SECRET_ACCESS_KEY": ann.SecretAccessKey, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "eu-west-1",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_S3": listener.URL,
	} {
		t.Setenv(name, value)
	}
	if err := awsim.MakeBucket(t.Context(), awsim.ClientConfig(listener.URL, ann), "artifacts"); err != nil {
		t.Fatal(err)
	}
}

func TestS3Places_AreReachedWithThePersonsOwnAccess(t *testing.T) {
	ownBucket(t)
	at := func(key string) api.Place {
		return api.Place{Kind: api.PlaceS3, Bucket: "artifacts", Region: "us-east-1", Key: key}
	}
	place := func(key, body, said string) error {
		sum := sha256.Sum256([]byte(said))
		return awsaccess.PlaceS3(t.Context(), at(key), strings.NewReader(body), int64(len(body)), hex.EncodeToString(sum[:]))
	}
	fetch := func(key, said string, to *bytes.Buffer) error {
		sum := sha256.Sum256([]byte(said))
		return awsaccess.FetchS3(t.Context(), api.Artifact{Size: int64(len(said)), SHA256: hex.EncodeToString(sum[:]), Place: at(key)}, to)
	}
	for _, key := range []string{"org/ws_1/push/a", "org/ws_1/push/a", "org/ws_1/push/b+=@,c"} {
		if err := place(key, `{"version":4}`, `{"version":4}`); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		var got bytes.Buffer
		if err := fetch(key, `{"version":4}`, &got); err != nil || got.String() != `{"version":4}` {
			t.Errorf("%s: got %q, %v", key, got.String(), err)
		}
	}
	if err := place("empty", "", ""); err != nil {
		t.Error(err)
	}
	for _, other := range []string{`{"version":5}`, `{}`, `{"version":4} `} {
		if err := fetch("org/ws_1/push/a", other, &bytes.Buffer{}); err == nil {
			t.Errorf("an unannounced object came as %s", other)
		}
	}
	if err := place("torn", "other bytes", "the bytes"); err == nil {
		t.Error("other bytes than those of the SHA-256 were taken")
	}
	if err := fetch("torn", "x", &bytes.Buffer{}); !errors.Is(err, workflow.ErrNotFound) {
		t.Errorf("a missing object: %v", err)
	}
	for right, err := range map[string]error{"s3:PutObject": place("denied", "x", "x"), "s3:GetObject": fetch("denied", "x", &bytes.Buffer{})} {
		if !errors.Is(err, workflow.ErrForbidden) || !strings.Contains(err.Error(), right) || !strings.Contains(err.Error(), "ArtifactReaders") {
			t.Errorf("without the right: %v", err)
		}
	}
}

func TestState_GoesToABucketAndComesFromIt(t *testing.T) {
	ownBucket(t)
	w := newWorld(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const state = `{"version": 4, "serial": 3, "lineage": "0815", "resources": []}`
	file := write("state", state)
	w.ok("apply", "-f", write("workspace.yaml", "name: net\nengine: terraform\nsource: {git: {url: 'https://git.example.com/net.git'}}\n"))
	for _, wrong := range [][]string{{"--bucket", "artifacts"}, {"--region", "us-east-1"}, {"--bucket", "artifacts", "--region", "us-east-1", "--data", dir}} {
		if got := w.run(append([]string{"state", "push", "net", file, "--yes"}, wrong...)...); got.code != cli.ExitUsage {
			t.Errorf("%v: got %+v", wrong, got)
		}
	}

	done := make(chan answer)
	submit := func(args ...string) (api.Job, *client.Runner) {
		go func() { done <- w.in(t.Context(), "", args...) }()
		return w.claim()
	}
	end := func(runner *client.Runner) answer {
		if _, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Succeeded}); err != nil {
			t.Fatal(err)
		}
		return <-done
	}
	_, runner := submit("state", "push", "net", file, "--yes", "--bucket", "artifacts", "--region", "us-east-1")
	input, err := runner.Input(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pushed := input.Artifact
	pushed.Place.Kind, pushed.Place.Bucket, pushed.Place.Region = api.PlaceS3, "artifacts", "us-east-1" // as the relay has it
	var got bytes.Buffer
	if err := awsaccess.FetchS3(t.Context(), pushed, &got); err != nil || got.String() != state {
		t.Errorf("the run finds %q, %v", got.String(), err)
	}
	if got := end(runner); got.code != cli.ExitOK {
		t.Errorf("push: got %+v", got)
	}

	w.ok("organization", "update", "--approval", "required")
	_, runner = submit("state", "push", "net", file, "--yes", "--bucket", "artifacts", "--region", "us-east-1")
	if got := end(runner); got.code != cli.ExitFailed || !strings.Contains(got.stderr, "has no plan that can be approved") {
		t.Errorf("a push that must be approved: got %+v", got)
	}

	to := filepath.Join(dir, "pulled")
	_, runner = submit("state", "pull", "net", "--to", to, "-o", "json")
	one := api.NewArtifact{Name: api.PlanDir + "terraform.tfstate", Kind: api.ArtifactState, Size: pushed.Size, SHA256: pushed.SHA256}
	taken, err := runner.Artifacts(t.Context(), api.NewArtifacts{
		Place: &api.Place{Kind: api.PlaceS3, Bucket: "artifacts", Region: "us-east-1"}, Artifacts: []api.NewArtifact{one}, Placed: []string{one.Name},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := awsaccess.PlaceS3(t.Context(), taken.Artifacts[0].Place, strings.NewReader(state), one.Size, one.SHA256); err != nil {
		t.Fatal(err)
	}
	answer := end(runner)
	var said api.Artifact
	if err := json.Unmarshal([]byte(answer.stdout), &said); err != nil || said.SHA256 != one.SHA256 || answer.code != cli.ExitOK {
		t.Errorf("pull: got %+v, %v", answer, err)
	}
	if kept, err := os.ReadFile(to); string(kept) != state { //nolint:gosec // G304: the test's own
		t.Errorf("pulled %q, %v", kept, err)
	}
}
