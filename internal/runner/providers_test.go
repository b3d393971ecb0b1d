package runner_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/runner"
)

func TestAskMirror(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/m/registry.terraform.io/hashicorp/aws/6.3.0.json":
			_, _ = w.Write([]byte(`{"archives":{"` + providercache.Platform() + `":{"url":"x.zip"}}}`))
		case "/m/registry.terraform.io/hashicorp/aws/6.2.0.json":
			_, _ = w.Write([]byte(`{"archives":{"plan9_mips":{"url":"x.zip"}}}`))
		case "/m/registry.terraform.io/hashicorp/aws/6.1.0.json":
			_, _ = w.Write([]byte(`{"archives":` + strings.Repeat("[", 2<<20)))
		default:
			http.Error(w, "AccessDenied", http.StatusForbidden)
		}
	}))
	defer server.Close()
	for version, want := range map[string]bool{"6.3.0": true, "6.2.0": false, "6.1.0": false, "6.0.0": false} {
		got, err := runner.AskMirror(t.Context(), server.Client(), server.URL+"/m/", "registry.terraform.io/hashicorp/aws", version)
		if got != want || (err != nil) != (version == "6.1.0") {
			t.Errorf("%s: got %v, %v, want %v", version, got, err, want)
		}
	}
	if got, err := runner.AskMirror(t.Context(), server.Client(), "https://127.0.0.1:1/", "a/b/c", "1.0.0"); got || err == nil {
		t.Errorf("without a mirror: got %v, %v", got, err)
	}
}
