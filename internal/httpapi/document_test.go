package httpapi_test

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The document in the repository is the one that is served, so that a change of the interface
// shows in a review.
func TestDocument_IsTheOneInTheRepository(t *testing.T) {
	golden := filepath.Join("..", "..", "docs", "openapi.json")
	answer := newWorld(t).send(t, request{method: http.MethodGet, path: "/openapi.json"})
	if *update {
		if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, answer.Body.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(answer.Body.Bytes(), want) {
		t.Errorf("docs/openapi.json is not what the code says; run: go test ./internal/httpapi -run TestDocument -update")
	}
}

func TestDocument_DescribesEveryOperation(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	for _, o := range operations(t, w) {
		if o.ID == "" || seen[o.ID] {
			t.Errorf("%s %s: id %q is empty or not the only one", o.method, o.path, o.ID)
		}
		seen[o.ID] = true
		if o.Summary == "" || len(o.Tags) != 1 {
			t.Errorf("%s: summary %q, tags %v", o.ID, o.Summary, o.Tags)
		}
		want := []string{"422", "500", "503"}
		if o.audience() != "" {
			want = append(want, "401", "403", "429")
		}
		if o.RequestBody != nil {
			want = append(want, "400", "408", "413", "415")
		}
		if strings.Contains(o.path, "{") {
			want = append(want, "404")
		}
		for _, status := range want {
			if !bytes.Contains(o.Responses[status], []byte("#/components/responses/")) {
				t.Errorf("%s: answer %s is not described as a problem", o.ID, status)
			}
		}
		if o.audience() == "" && o.path != "/healthz" {
			t.Errorf("%s is open to everybody", o.ID)
		}
		for _, p := range o.Parameters {
			if p.Description == "" {
				t.Errorf("%s: parameter %s is not described", o.ID, p.Name)
			}
		}
	}
}

// The answers of the API are our types and nothing else.
func TestDocument_HasNoTypeOfTheLibrary(t *testing.T) {
	text := newWorld(t).send(t, request{method: http.MethodGet, path: "/openapi.json"}).Body.String()
	for _, foreign := range []string{"ErrorModel", "ErrorDetail", "$schema"} {
		if strings.Contains(text, foreign) {
			t.Errorf("the document holds %s", foreign)
		}
	}
}
