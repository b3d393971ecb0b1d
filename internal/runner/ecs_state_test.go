package runner_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
)

// R15, R8: terraform's own S3 backend finds the run's role at the loopback endpoint, signs with it, keeps the state in
// the bucket with its lock file, and takes the lock away again.
func TestECS_StateInS3AsTheRole(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it starts terraform")
	}
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("terraform is not on this machine")
	}
	spec, a, start := onECS(t, "")
	address := strings.TrimSuffix(a.gateway, "/gateway")
	admin := awsim.SignedClient(awsim.ClientConfig(address, a.admin), "s3")
	call := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := admin.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // of a test
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if status, body := call(http.MethodPut, "/states"); status != http.StatusOK {
		t.Fatalf("make the bucket: %d %s", status, body)
	}
	spec.Engine, spec.Commands, spec.Environment = api.EngineTerraform, nil, nil
	spec.State = api.State{Kind: api.StateS3, Key: "network", Bucket: "states", Region: "us-east-1", Endpoint: address}
	if err := os.WriteFile(filepath.Join(spec.Source.Directory, "main.tf"), []byte(`resource "terraform_data" "a" { input = "kept" }`), 0o644); err != nil {
		t.Fatal(err)
	}
	a.runs(spec)
	a.aws.ForgetCalls()
	k := start("DAYFLY_ENGINE_PATH=" + os.Getenv("PATH"))
	k.end(t, 0)
	if got := a.result(); got.Outcome != workflow.Succeeded || got.Lock != nil {
		t.Fatalf("got %+v: %s", got, a.text())
	}
	callers, wrote := map[string]int{}, map[string]int{}
	for _, c := range a.aws.Calls() {
		if c.Service == "s3" {
			callers[c.Caller.AccessKeyID]++
			wrote[c.Operation+" "+c.Resource]++
		}
	}
	const key = "states/default/network/terraform.tfstate"
	if status, body := call(http.MethodGet, "/"+key); status != http.StatusOK || !strings.Contains(body, "kept") {
		t.Errorf("the state: %d %s", status, body)
	}
	if wrote["PutObject "+key+".tflock"] == 0 || wrote["PutObject "+key+".tflock"] != wrote["DeleteObject "+key+".tflock"] {
		t.Errorf("locked and unlocked: %v", wrote)
	}
	sessions := a.sts.Sessions()
	if len(sessions) != 1 || len(callers) != 1 || callers[sessions[0].Identity.AccessKeyID] == 0 {
		t.Errorf("calls by %v, and the role's session is %+v", callers, sessions)
	}
}

// R2: an archive in a bucket is read as the run's role, and refusals of S3 are told in words.
func TestECS_ArchiveInS3AsTheRole(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "net/hello", Mode: 0o644, Size: 5}), second(w.Write([]byte("there"))), w.Close()); err != nil {
		t.Fatal(err)
	}
	archive, sum := b.Bytes(), sha256.Sum256(b.Bytes())
	spec, a, start := onECS(t, "cat hello")
	address := strings.TrimSuffix(a.gateway, "/gateway")
	admin := awsim.SignedClient(awsim.ClientConfig(address, a.admin), "s3")
	put := func(path string, body []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := admin.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", path, resp, err)
		}
		_ = resp.Body.Close()
	}
	put("/code", nil)
	put("/code/net%20v1.tar", archive)
	spec.Source = api.Source{Archive: &api.ArchiveSource{URL: "s3://code/net%20v1.tar", SHA256: hex.EncodeToString(sum[:]), Path: "net"}}
	a.runs(spec)
	a.aws.ForgetCalls()
	start().end(t, 0)
	if got := a.result(); got.Outcome != workflow.Succeeded || !strings.Contains(a.text(), "there\n") {
		t.Fatalf("got %+v: %s", got, a.text())
	}
	sessions := a.sts.Sessions()
	if len(sessions) != 1 {
		t.Fatalf("%d sessions", len(sessions))
	}
	for _, c := range a.aws.Calls() {
		if c.Service == "s3" && (c.Operation != "GetObject" || c.Caller.AccessKeyID != sessions[0].Identity.AccessKeyID) {
			t.Errorf("a call of S3: %+v", c)
		}
	}
}

func TestECS_AnArchiveThatIsNotThereEndsTheRun(t *testing.T) {
	spec, a, start := onECS(t, "true")
	spec.Source = api.Source{Archive: &api.ArchiveSource{URL: "s3://code/none.tar", SHA256: strings.Repeat("a", 64)}}
	a.runs(spec)
	start().end(t, 0)
	if got := a.result(); got.Reason != workflow.ReasonSourceFailed || !strings.Contains(got.Detail, "there is no such object (NoSuchBucket)") {
		t.Errorf("got %+v", got)
	}
}

func second(_ any, err error) error { return err }
