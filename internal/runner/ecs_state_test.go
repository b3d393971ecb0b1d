package runner_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
)

// R15, R8: terraform's own S3 backend finds the run's role at the loopback endpoint, keeps the state in the
// bucket with its lock file, and takes the lock away again.
func TestECS_StateInS3AsTheRole(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it starts moto_server and terraform")
	}
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("terraform is not on this machine")
	}
	s3, err := url.Parse(*moto.Start(t).BaseEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	callers, wrote := map[string]int{}, map[string]int{}
	proxy := httputil.NewSingleHostReverseProxy(s3)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="), "/")
		mu.Lock()
		callers[key]++
		if r.Method == http.MethodPut || r.Method == http.MethodDelete {
			wrote[r.Method+" "+r.URL.Path]++
		}
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	call := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s3.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20300101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x") // moto looks no closer
		resp, err := http.DefaultClient.Do(req)
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

	spec, a, start := onECS(t, "")
	spec.Engine, spec.Commands, spec.Environment = api.EngineTerraform, nil, nil
	spec.State = api.State{Kind: api.StateS3, Bucket: "states", Region: "us-east-1", Endpoint: front.URL}
	if err := os.WriteFile(filepath.Join(spec.Source.Directory, "main.tf"), []byte(`resource "terraform_data" "a" { input = "kept" }`), 0o644); err != nil {
		t.Fatal(err)
	}
	a.runs(spec)
	k := start("DAYFLY_ENGINE_PATH=" + os.Getenv("PATH"))
	k.end(t, 0)
	if got := a.result(); got.Outcome != workflow.Succeeded || got.Lock != nil {
		t.Fatalf("got %+v: %s", got, a.text())
	}
	const key = "/states/default/network/terraform.tfstate"
	if status, body := call(http.MethodGet, key); status != http.StatusOK || !strings.Contains(body, "kept") {
		t.Errorf("the state: %d %s", status, body)
	}
	mu.Lock()
	defer mu.Unlock()
	if wrote["PUT "+key+".tflock"] == 0 || wrote["PUT "+key+".tflock"] != wrote["DELETE "+key+".tflock"] {
		t.Errorf("locked and unlocked: %v", wrote)
	}
	sessions := a.sts.Sessions()
	if len(sessions) != 1 || len(callers) != 1 || callers[sessions[0].Identity.AccessKeyID] == 0 {
		t.Errorf("calls by %v, and the role's session is %+v", callers, sessions)
	}
}
