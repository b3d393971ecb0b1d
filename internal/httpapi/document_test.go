package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/kind"
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

// D4: editors check files with the schemas of the repository and of a control plane.
func TestDocument_SchemasAreThoseOfTheCode(t *testing.T) {
	if httpapi.AgentSchemaPath != config.SchemaPath {
		t.Errorf("settings files name %s, and it is served at %s", config.SchemaPath, httpapi.AgentSchemaPath)
	}
	type schema struct {
		file string
		made func() ([]byte, error)
	}
	schemas := map[string]schema{httpapi.AgentSchemaPath: {"agent.json", config.Schema}}
	for _, k := range kind.All() {
		schemas[httpapi.SchemaPath(k)] = schema{filepath.Join("..", "..", "docs", "schemas", k.Dashed()+".json"), func() ([]byte, error) { return httpapi.Schema(k) }}
	}
	for path, schema := range schemas {
		want, err := schema.made()
		if *update {
			err = errors.Join(err, os.WriteFile(schema.file, want, 0o644)) //nolint:gosec // a document of the repository
		}
		kept, failed := os.ReadFile(schema.file)
		if err = errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(kept, want) {
			t.Errorf("%s is not what the code says; run: go test ./internal/httpapi -run TestDocument -update", schema.file)
		}
		answer := newWorld(t).send(t, request{method: http.MethodGet, path: path})
		if got := answer.Header().Get("Content-Type"); answer.Code != http.StatusOK || got != "application/schema+json" || !*update && !bytes.Equal(answer.Body.Bytes(), want) {
			t.Errorf("%s: %d %s, or it is another one", path, answer.Code, got)
		}
	}
}

// Who reads the document often gets it once, and then hears that it is still the same.
func TestDocument_IsTaggedAndCompressed(t *testing.T) {
	w := newWorld(t)
	get := func(accept, known string) *httptest.ResponseRecorder {
		return w.send(t, request{method: http.MethodGet, path: "/openapi.json", header: map[string]string{"Accept-Encoding": accept, "If-None-Match": known}})
	}
	plain := get("", "")
	tags := map[string]bool{}
	for accept, zipped := range map[string]bool{"": false, "br, gzip;q=0.5": true, "GZIP": true, "gzip;q=0": false, "gzip; q=0.00, br": false} {
		answer := get(accept, "")
		text, header := io.Reader(answer.Body), answer.Header()
		if header.Get("Content-Encoding") == "gzip" {
			var err error
			if text, err = gzip.NewReader(answer.Body); err != nil {
				t.Fatal(err)
			}
		}
		got, err := io.ReadAll(text)
		tag := header.Get("ETag")
		if tags[tag] = true; err != nil || !bytes.Equal(got, plain.Body.Bytes()) || (header.Get("Content-Encoding") == "gzip") != zipped ||
			!strings.HasPrefix(tag, `"`) || header.Get("Vary") != "Accept-Encoding" || header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%q: %v, %d bytes with %v", accept, err, len(got), header)
		}
		if again := get(accept, `"other", `+tag); again.Code != http.StatusNotModified || again.Body.Len() > 0 || again.Header().Get("ETag") != tag {
			t.Errorf("%q again: answered %d with %d bytes", accept, again.Code, again.Body.Len())
		}
	}
	if len(tags) != 2 {
		t.Errorf("the tags are %v, want one for each of the two", tags)
	}
}

func TestDocument_DescribesEveryOperation(t *testing.T) {
	all, doc := readDocument(t, newWorld(t))
	seen := map[string]bool{}
	for _, o := range all {
		if o.ID == "" || seen[o.ID] {
			t.Errorf("%s %s: id %q is empty or not the only one", o.method, o.path, o.ID)
		}
		seen[o.ID] = true
		if o.Summary == "" || o.Description == "" || len(o.Tags) != 1 {
			t.Errorf("%s: summary %q, description %q, tags %v", o.ID, o.Summary, o.Description, o.Tags)
		}
		if o.RequestBody != nil && !hasExample(o.body) {
			t.Errorf("%s: the request has no whole example: %s", o.ID, o.body)
		}
		for status, answer := range o.Responses {
			if answer.Ref == "" && answer.Headers["X-Request-Id"] == nil {
				t.Errorf("%s: answer %s names no X-Request-Id", o.ID, status)
			}
			for media, c := range answer.Content {
				if got := string(doc.exampleOf(c)); !hasExample(got) {
					t.Errorf("%s: answer %s has no whole example of %s: %s", o.ID, status, media, got)
				}
			}
		}
		want := []string{"422", "500", "503"}
		if o.audience() != "" {
			want = append(want, "401", "403", "429")
		}
		if o.RequestBody != nil {
			want = append(want, "400", "408", "413", "415")
		}
		if strings.Contains(o.path, "{") && o.audience() != "" { // who has no token is not told what there is
			want = append(want, "404")
		}
		for _, status := range want {
			if !strings.HasPrefix(o.Responses[status].Ref, "#/components/responses/") {
				t.Errorf("%s: answer %s is not described as a problem", o.ID, status)
			}
		}
		if o.audience() == "" && !slices.Contains([]string{"/healthz", "/v1/token", "/v1/login", "/v1/webhooks/{organization}/{git_host}"}, o.path) {
			t.Errorf("%s is open to everybody", o.ID)
		}
		for _, p := range o.Parameters {
			if p.Description == "" {
				t.Errorf("%s: parameter %s is not described", o.ID, p.Name)
			}
		}
	}
}

// hasExample reports whether an example is there and no value of it is missing.
func hasExample(text string) bool { return text != "" && !strings.Contains(text, "null") }

// otherwiseNamed are properties that share their name with an enum and are none: free text, an ARN, a name, and lists
// that later versions may make longer.
var otherwiseNamed = []string{"Event.kind", "Why.code", "Lock.operation", "WithReason.reason", "Workspace.role", "ServicePrincipalSettings.role", "NewServicePrincipal.role", "TokenRequest.audience", "Problem.type", "Problem.status", "Delivery.for", "WebhookTaken.reason", "Pipelines.host", "Pipeline.host",
	"ModuleCredential.host", "InventoryCount.type", "Waiver.reason", "PolicyWaiver.reason"}

func TestDocument_DescribesEveryProperty(t *testing.T) {
	_, doc := readDocument(t, newWorld(t))
	enums := map[string]bool{}
	for _, s := range doc.Components.Schemas {
		for name, p := range s.Properties {
			enums[name] = enums[name] || len(p.Enum)+len(p.Words) > 0
		}
	}
	for schema, s := range doc.Components.Schemas {
		for name, p := range s.Properties {
			name, is := schema+"."+name, enums[name]
			if p.Description == "" {
				t.Errorf("%s has no description", name)
			}
			if is && p.Ref == "" && len(p.Enum)+len(p.Words) == 0 && !slices.Contains(otherwiseNamed, name) {
				t.Errorf("%s has no enum", name)
			}
		}
	}
}

func TestDocument_DescribesEveryRefusal(t *testing.T) {
	_, doc := readDocument(t, newWorld(t))
	for name, answer := range doc.Components.Responses {
		waits := name == "ServiceUnavailable" || name == "TooManyRequests" || name == "TokenRefusedForNow"
		if answer.Headers["X-Request-Id"] == nil || (answer.Headers["Retry-After"] != nil) != waits {
			t.Errorf("%s has the headers %s", name, slices.Sorted(maps.Keys(answer.Headers)))
		}
		media := "application/problem+json"
		if strings.HasPrefix(name, "TokenRefused") {
			media = "application/json"
		}
		if got := string(answer.Content[media].Example); !hasExample(got) || !strings.Contains(got, `"code"`) {
			t.Errorf("%s has the example %s", name, got)
		}
	}
}

// Each example is taken by the operation that it is for, and the role that the document names is the one that is
// needed.
func TestDocument_ExamplesAreTaken(t *testing.T) {
	for _, o := range operations(t, newWorld(t)) {
		w := newWorld(t)
		in := o.request()
		try := func(token string) int {
			in.token = token
			answer := w.send(t, in)
			switch answer.Code {
			case http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusInternalServerError:
				t.Errorf("%s refuses its example %s: %s", o.ID, in.body, answer.Body)
			}
			return answer.Code
		}
		switch o.audience() {
		case "user":
			enough := false
			for _, role := range []string{"viewer", "operator", "admin"} {
				token, err := w.client(t, w.admin).CreateToken(t.Context(), api.NewToken{Name: role, Principal: api.FirstAdmin, Role: role})
				if err != nil {
					t.Fatal(err)
				}
				enough = enough || strings.Contains(o.Description, role)
				if got := try(token.Value) != http.StatusForbidden; got != enough {
					t.Errorf("%s: a token of role %s is let in: %t; the document says: %s", o.ID, role, got, o.Description)
				}
			}
		case "job":
			try("dfj_" + strings.Repeat("a", 43))
		default:
			var cancel context.CancelFunc
			in.ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond) // a claim is a long poll
			try(w.pool)
			cancel()
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
