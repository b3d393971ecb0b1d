package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// world is the API over real rules and a store whose failures a test can order.
type world struct {
	handler http.Handler // only with statuses that the document lists
	all     http.Handler // with any
	plane   *controlplane.Plane
	store   *ordered
	admin   string // tokens
	pool    string
	log     *bytes.Buffer
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{store: &ordered{Store: memory.New()}, log: &bytes.Buffer{}}
	w.plane = controlplane.New(w.store, controlplane.Config{ReportWait: time.Millisecond, WebhookKey: func(context.Context) ([]byte, error) { return []byte("of the secrets of webhooks"), nil }})
	var err error
	if w.admin, err = w.plane.Bootstrap(t.Context(), "default"); err != nil {
		t.Fatalf("bootstrap: %v", err)
	}
	if w.pool, err = w.plane.EnsurePoolToken(t.Context(), "default", "default", "test"); err != nil {
		t.Fatalf("pool token: %v", err)
	}
	w.all = httpapi.New(w.plane, httpapi.Config{
		Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	w.handler = documented(t, w.all)
	return w
}

// listed has the statuses that the API's document lists, by routes.
var listed struct {
	sync.Once
	statuses map[string][]string
}

// documented is a handler of the API each of whose answers must have a status that its document lists.
func documented(t testing.TB, all http.Handler) http.Handler {
	listed.Do(func() {
		listed.statuses = map[string][]string{}
		for _, o := range operations(t, &world{handler: all}) {
			listed.statuses[o.method+" "+o.path] = slices.Sorted(maps.Keys(o.Responses))
		}
	})
	routes := http.NewServeMux()
	for pattern := range listed.statuses {
		routes.Handle(pattern, all)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := routes.Handler(r)
		seen := &status{ResponseWriter: w}
		all.ServeHTTP(seen, r)
		if want := listed.statuses[pattern]; want != nil && !slices.Contains(want, strconv.Itoa(seen.code)) {
			t.Errorf("%s answered %d, and its document lists %s", pattern, seen.code, want)
		}
	})
}

// status is a writer of an answer that keeps its status.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// client returns a real client of the API, without a socket.
func (w *world) client(t testing.TB, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{
		URL: "http://control.test", HTTPClient: &http.Client{Transport: client.InMemory(w.handler)},
		Token:      func() redact.String { return redact.New(token) },
		RetryCount: -1,
	})
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	return c
}

// ordered is a store that fails as a test orders.
type ordered struct {
	store.Store
	fail    error // every read, from now on
	panics  bool
	abort   bool
	onGet   func() // nil for nothing
	commits atomic.Int64
}

func (o *ordered) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	if o.onGet != nil {
		o.onGet()
	}
	if o.abort {
		panic(http.ErrAbortHandler)
	}
	if o.panics {
		panic("the store broke with dfu_secret in it")
	}
	if o.fail != nil {
		return nil, fmt.Errorf("read records: %w", o.fail)
	}
	return o.Store.Get(ctx, keys...)
}

func (o *ordered) Commit(ctx context.Context, id string, ops ...store.Op) error {
	o.commits.Add(1)
	return o.Store.Commit(ctx, id, ops...)
}

// request is one raw request.
type request struct {
	method, path string
	token        string
	header       map[string]string
	body         string
	ctx          context.Context // nil means the test's
}

func (w *world) send(t testing.TB, in request) *httptest.ResponseRecorder {
	t.Helper()
	ctx := in.ctx
	if ctx == nil {
		ctx = t.Context()
	}
	r := httptest.NewRequestWithContext(ctx, in.method, in.path, strings.NewReader(in.body))
	if in.token != "" {
		r.Header.Set("Authorization", "Bearer "+in.token)
	}
	for name, value := range in.header {
		r.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	return answer
}

// problemOf checks that an answer is a well-formed problem and returns it.
func problemOf(t testing.TB, answer *httptest.ResponseRecorder) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil {
		t.Fatalf("answer %d is not a problem: %v: %s", answer.Code, err, answer.Body)
	}
	want := "application/problem+json"
	if p.OAuth != "" { // of POST /v1/token
		want = "application/json"
	}
	if got := answer.Header().Get("Content-Type"); got != want {
		t.Errorf("media type %q, want %q", got, want)
	}
	if got, want := answer.Header().Get("Cache-Control"), "no-store"; got != want {
		t.Errorf("Cache-Control %q, want %q", got, want)
	}
	if p.Status != answer.Code || p.Code == "" || p.Detail == "" || p.Title == "" {
		t.Errorf("answer %d: incomplete problem %+v", answer.Code, p)
	}
	return p
}

// document is what the tests look at of the API's document.
type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas   map[string]schema   `json:"schemas"`
		Responses map[string]response `json:"responses"`
		Examples  map[string]struct {
			Value json.RawMessage `json:"value"`
		} `json:"examples"`
	} `json:"components"`
}

// schema is one schema of the document.
type schema struct {
	Ref         string            `json:"$ref"`
	Description string            `json:"description"`
	Type        any               `json:"type"`
	Enum        []any             `json:"enum"`
	Words       []any             `json:"x-extensible-enum"`
	Examples    []any             `json:"examples"`
	Properties  map[string]schema `json:"properties"`
}

// response is one response of the document.
type response struct {
	Ref     string                     `json:"$ref"`
	Headers map[string]json.RawMessage `json:"headers"`
	Content map[string]content         `json:"content"`
}

// content is a body of the document.
type content struct {
	Example  json.RawMessage `json:"example"`
	Examples map[string]struct {
		Ref string `json:"$ref"`
	} `json:"examples"`
}

// operation is one operation of the document.
type operation struct {
	method, path string
	body         string                // the example of its body
	ID           string                `json:"operationId"`
	Summary      string                `json:"summary"`
	Description  string                `json:"description"`
	Tags         []string              `json:"tags"`
	Security     []map[string][]string `json:"security"`
	Responses    map[string]response   `json:"responses"`
	RequestBody  *response             `json:"requestBody"`
	Parameters   []struct {
		Name        string `json:"name"`
		In          string `json:"in"`
		Description string `json:"description"`
		Required    bool   `json:"required"`
		Schema      schema `json:"schema"`
	} `json:"parameters"`
}

// audience returns "", "user", "pool", "job" or "user pool".
func (o operation) audience() string {
	var all []string
	for _, s := range o.Security {
		all = append(all, slices.Sorted(maps.Keys(s))...)
	}
	return strings.Join(all, " ")
}

// request returns a request that is well-formed but for its token, made of the document's examples.
func (o operation) request() request {
	r := request{method: o.method, path: o.path, body: o.body, header: map[string]string{}}
	const form = "application/x-www-form-urlencoded"
	if o.RequestBody != nil && o.RequestBody.Content[form].Examples != nil {
		values, fields := url.Values{}, map[string]any{}
		_ = json.Unmarshal([]byte(o.body), &fields) // without fields the call is refused
		for name, value := range fields {
			values.Set(name, fmt.Sprint(value))
		}
		r.body, r.header["Content-Type"] = values.Encode(), form
	}
	for _, p := range o.Parameters {
		if !p.Required {
			continue
		}
		value := fmt.Sprint(append(p.Schema.Examples, "no example")[0])
		if p.In == "path" {
			r.path = strings.ReplaceAll(r.path, "{"+p.Name+"}", value)
		} else {
			r.header[p.Name] = value
		}
	}
	return r
}

// operations reads the operations of the served document.
func operations(t testing.TB, w *world) []operation {
	t.Helper()
	all, _ := readDocument(t, w)
	return all
}

// readDocument reads the served document; its operations come with the examples of their bodies.
func readDocument(t testing.TB, w *world) ([]operation, document) {
	t.Helper()
	answer := w.send(t, request{method: http.MethodGet, path: "/openapi.json"})
	if answer.Code != http.StatusOK {
		t.Fatalf("document answered %d: %s", answer.Code, answer.Body)
	}
	var doc document
	if err := json.Unmarshal(answer.Body.Bytes(), &doc); err != nil {
		t.Fatalf("document: %v", err)
	}
	var all []operation
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			o := doc.Paths[path][method]
			o.method, o.path = strings.ToUpper(method), path
			if o.RequestBody != nil {
				for _, c := range o.RequestBody.Content {
					o.body = string(doc.exampleOf(c))
				}
			}
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		t.Fatal("the document has no operation")
	}
	return all, doc
}

// exampleOf returns the example of a body; nil if there is none.
func (d document) exampleOf(c content) json.RawMessage {
	for _, named := range c.Examples {
		return d.Components.Examples[strings.TrimPrefix(named.Ref, "#/components/examples/")].Value
	}
	return c.Example
}
