package httpapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// Bad input is answered with the right status and a stable code, says what to do, and changes
// nothing.
func TestRequests_MistakesAreNamed(t *testing.T) {
	w := newWorld(t)
	post := func(path, body string) request {
		return request{method: http.MethodPost, path: path, token: w.admin, body: body}
	}
	typed := func(r request, media string) request {
		r.header = map[string]string{"Content-Type": media}
		return r
	}
	required, unknown := "this field is required", "there is no field of this name"
	tests := []struct {
		name   string
		in     request
		status int
		code   string
		errors []api.FieldError
	}{
		{"no body", post("/v1/tokens", ""), 400, "invalid", nil},
		{"not JSON", post("/v1/tokens", "{"), 400, "invalid", []api.FieldError{{Field: "body", Message: "unexpected end of JSON input"}}},
		{"two values", post("/v1/tokens", `{"name":"a","role":"admin"} {}`), 400, "invalid", []api.FieldError{{Field: "body", Message: "invalid character '{' after top-level value"}}},
		{"no object", post("/v1/tokens", `[]`), 422, "invalid", []api.FieldError{{Field: "body", Message: "expected object"}}},
		{"null", post("/v1/tokens", `null`), 422, "invalid", []api.FieldError{{Field: "body", Message: "expected object"}}},
		{"wrong type", post("/v1/tokens", `{"name":7,"role":"admin"}`), 422, "invalid", []api.FieldError{{Field: "name", Message: "expected string"}}},
		{"out of range", post("/v1/tokens", `{"name":"ci","role":"admin","expires_seconds":-1}`), 422, "invalid", []api.FieldError{{Field: "expires_seconds", Message: "expected number >= 0"}}},
		{"beyond an integer", post("/v1/tokens", `{"name":"ci","role":"admin","expires_seconds":1e300}`), 422, "invalid", []api.FieldError{{Field: "expires_seconds", Message: "expected number <= 3.1536e+07"}}},
		{"beyond an integer without bounds", request{method: http.MethodPost, path: "/v1/jobs/w1/lost", token: w.pool, body: `{"attempt":1e300,"task":"t"}`}, 422, "invalid", []api.FieldError{{Field: "body", Message: "attempt: expected an integer of at most 64 bits"}}},
		{"a fraction", post("/v1/tokens", `{"name":"ci","role":"admin","expires_seconds":531.5}`), 422, "invalid", []api.FieldError{{Field: "expires_seconds", Message: "expected integer"}}},
		{"not in the list", post("/v1/tokens", `{"name":"ci","role":"root"}`), 422, "invalid", []api.FieldError{{Field: "role", Message: `expected value to be one of "viewer, operator, admin"`}}},
		{"several", post("/v1/tokens", `{"title":"ci","zeta":1}`), 422, "invalid", []api.FieldError{{Field: "name", Message: required}, {Field: "title", Message: unknown}, {Field: "zeta", Message: unknown}}},
		{"within a list", request{method: http.MethodPut, path: "/v1/workspaces/net", token: w.admin, body: `{"name":"net","engine":"tofu","source":{"git":{"ref":"x","depth":1}},"secrets":[{"ref":"env:A"},{"env":"A"}]}`}, 422, "invalid", []api.FieldError{
			{Field: "secrets[1].ref", Message: required}, {Field: "source.git.depth", Message: unknown}, {Field: "source.git.url", Message: required}}},
		{"another case", post("/v1/tokens", `{"NAME":"ci","role":"admin"}`), 422, "invalid", []api.FieldError{{Field: "body", Message: "NAME: write it as name"}}},
		{"two cases", post("/v1/tokens", `{"name":"ci","role":"viewer","Role":"admin"}`), 422, "invalid", []api.FieldError{{Field: "body", Message: "Role: write it as role"}}},
		{"a member twice", post("/v1/tokens", `{"name":"ci","role":"viewer","grants":{"a":"viewer","a":"admin"}}`), 422, "invalid", []api.FieldError{{Field: "body", Message: "grants.a stands twice"}}},
		{"not UTF-8", post("/v1/tokens", "{\"name\":\"c\xff\",\"role\":\"viewer\"}"), 422, "invalid", []api.FieldError{{Field: "body", Message: "it is not UTF-8"}}},
		{"of a runner in another case", request{method: http.MethodPost, path: "/v1/jobs/w1/lost", token: w.pool, body: `{"attempt":1,"Attempt":2,"task":"t"}`}, 422, "invalid", []api.FieldError{{Field: "body", Message: "Attempt: write it as attempt"}}},
		{"query without a value", request{method: http.MethodGet, path: "/v1/workflows?workspace=", token: w.admin}, 422, "invalid", []api.FieldError{{Field: "query.workspace", Message: `the parameter "workspace" has no value: give it one, or leave it out`}}},
		{"query twice", request{method: http.MethodGet, path: "/v1/workflows?workspace=a&workspace=b", token: w.admin}, 422, "invalid", []api.FieldError{{Field: "query.workspace", Message: `the parameter "workspace" stands 2 times in the address: name it once`}}},
		{"unknown query", request{method: http.MethodGet, path: "/v1/pools?limt=3", token: w.admin}, 422, "invalid", []api.FieldError{{Field: "query.limt", Message: "unknown query parameter"}}},
		{"query out of range", request{method: http.MethodGet, path: "/v1/pools?limit=1000", token: w.admin}, 422, "invalid", []api.FieldError{{Field: "query.limit", Message: "expected number <= 200"}}},
		{"query of no number", request{method: http.MethodGet, path: "/v1/pools?limit=ten", token: w.admin}, 422, "invalid", []api.FieldError{{Field: "query.limit", Message: "invalid integer"}}},
		{"state of no list", request{method: http.MethodGet, path: "/v1/workflows?state=done", token: w.admin}, 422, "invalid", []api.FieldError{{Field: "query.state", Message: `expected value to be one of "pending, claimed, running, succeeded, failed, cancelled, active, awaiting_approval"`}}},
		{"name of the address", request{method: http.MethodPut, path: "/v1/workspaces/net", token: w.admin, body: `{"name":"abc","engine":"command","source":{"directory":"/src"},"commands":{"preview":"true"}}`}, 422, "invalid", []api.FieldError{{Field: "name", Message: `the name in the body, "abc", is not the one in the address, "net"`}}},
		{"text", typed(post("/v1/tokens", `{"name":"ci","role":"viewer"}`), "text/plain"), 415, "invalid_media_type", nil},
		{"form", typed(post("/v1/tokens", "name=ci&role=admin"), "application/x-www-form-urlencoded"), 415, "invalid_media_type", nil},
		{"odd media type", typed(post("/v1/tokens", `{"name":"ci","role":"viewer"}`), ";+"), 415, "invalid_media_type", nil},
		{"oversize", post("/v1/tokens", `{"name":"`+strings.Repeat("a", 64<<10)+`"}`), 413, "too_large", nil},
		{"oversize workspace", request{method: http.MethodPut, path: "/v1/workspaces/net", token: w.admin, body: `{"name":"` + strings.Repeat("a", 1<<20) + `"}`}, 413, "too_large", nil},
		{"compressed", request{method: http.MethodPost, path: "/v1/tokens", token: w.admin, header: map[string]string{"Content-Encoding": "gzip"}, body: "\x1f\x8b"}, 415, "invalid_media_type", nil},
		{"unknown pool", request{method: http.MethodGet, path: "/v1/workflows?pool=nobody", token: w.admin}, 404, "not_found", []api.FieldError{{Field: "pool", Message: `there is no pool "nobody"`}}},
		{"unknown default pool", request{method: http.MethodPatch, path: "/v1/organization", token: w.admin, body: `{"default_pool":"nobody"}`}, 404, "not_found", []api.FieldError{{Field: "pool", Message: `there is no pool "nobody"`}}},
		{"no route", request{method: http.MethodGet, path: "/v2/pools", token: w.admin}, 404, "no_route", nil},
		{"no such method", request{method: http.MethodPut, path: "/v1/pools", token: w.admin}, 405, "method_not_allowed", nil},
		{"run without headers", request{method: http.MethodPost, path: "/v1/jobs/w1/start", token: "dfj_" + strings.Repeat("a", 43)}, 422, "invalid", []api.FieldError{
			{Field: "header.Dayfly-Attempt", Message: "required header parameter is missing"}, {Field: "header.Dayfly-Boot", Message: "required header parameter is missing"}, {Field: "header.Dayfly-Task", Message: "required header parameter is missing"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := w.store.commits.Load()
			p := problemOf(t, w.send(t, test.in))
			if p.Status != test.status || p.Code != test.code {
				t.Errorf("got %d %s (%s), want %d %s", p.Status, p.Code, p.Detail, test.status, test.code)
			}
			if diff := cmp.Diff(p.Errors, test.errors); diff != "" {
				t.Errorf("errors: got -, want +\n%s", diff)
			}
			if got := w.store.commits.Load(); got != before {
				t.Errorf("it made %d commits", got-before)
			}
		})
	}
}

// What JSON and HTTP take for the same is the same: an integer by its value, a media type in any case.
func TestRequests_AreReadAsTheirStandardsSay(t *testing.T) {
	w := newWorld(t)
	for name, in := range map[string]request{
		"zero fraction": {body: `{"name":"a","role":"viewer","expires_seconds":531.0}`},
		"exponent":      {body: `{"name":"b","role":"viewer","expires_seconds":5.31e2}`},
		"media type":    {body: `{"name":"c","role":"viewer","expires_seconds":531}`, header: map[string]string{"Content-Type": "Application/JSON ; Charset=UTF-8", "Content-Encoding": "Identity"}},
	} {
		in.method, in.path, in.token = http.MethodPost, "/v1/tokens", w.admin
		var made api.TokenValue
		answer := w.send(t, in)
		if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil || answer.Code != http.StatusCreated || made.Token.ExpiresAt == nil || time.Until(*made.Token.ExpiresAt) > 531*time.Second {
			t.Errorf("%s: answered %d: %s", name, answer.Code, answer.Body)
		}
	}
}

// A client of OAuth looks at the field error, whatever refused its request for a token.
func TestToken_RefusalsAreThoseOfOAuth(t *testing.T) {
	w := newWorld(t)
	form := func(body string, header ...string) request {
		in := request{method: http.MethodPost, path: "/v1/token", body: body, header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}
		if len(header) > 0 {
			in.header[header[0]] = header[1]
		}
		return in
	}
	asked := form("")
	asked.path += "?x=1"
	client := form("grant_type=client_credentials&client_id=svc_none&client_secret=wrong")
	for name, test := range map[string]struct {
		in     request
		status int
		want   string
	}{
		"no body":      {form(""), 400, "invalid_request"},
		"no grant":     {form("x=1"), 400, "unsupported_grant_type"},
		"broken body":  {form("grant_type=%zz"), 400, "invalid_request"},
		"media type":   {form("{}", "Content-Type", "application/json"), 400, "invalid_request"},
		"odd type":     {form("{}", "Content-Type", ";+"), 400, "invalid_request"},
		"unlike case":  {form("grant_type=x", "Content-Type", "Application/X-WWW-Form-Urlencoded"), 400, "unsupported_grant_type"},
		"compressed":   {form("\x1f\x8b", "Content-Encoding", "gzip"), 415, "invalid_request"},
		"too large":    {form(strings.Repeat("a", 64<<10) + "="), 413, "invalid_request"},
		"a query":      {asked, 400, "invalid_request"},
		"no client":    {client, 401, "invalid_client"},
		"store fails":  {client, 500, "server_error"},
		"store panics": {client, 500, "server_error"},
		"busy":         {client, 503, "temporarily_unavailable"},
	} {
		w.store.fail = map[string]error{"store fails": io.ErrUnexpectedEOF, "busy": store.ErrBusy}[name]
		w.store.panics = name == "store panics"
		answer := w.send(t, test.in)
		var got api.Problem
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != test.status || got.Status != test.status || got.OAuth != test.want || got.Description == "" || got.Code == "" ||
			answer.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: answered %d as %q: %s", name, answer.Code, answer.Header().Get("Content-Type"), answer.Body)
		}
		if basic := strings.HasPrefix(answer.Header().Get("WWW-Authenticate"), "Basic"); basic != (test.status == http.StatusUnauthorized) || (answer.Header().Get("Retry-After") != "") != (test.status == http.StatusServiceUnavailable) {
			t.Errorf("%s: headers %v", name, answer.Header())
		}
	}
}

// A mistake in a value must not bring the value back: it may be a secret in the wrong place.
func TestRequests_ValuesAreNotRepeated(t *testing.T) {
	w := newWorld(t)
	answer := w.send(t, request{method: http.MethodPost, path: "/v1/tokens", token: w.admin, body: `{"name":"ci","role":"hunter2","password":"hunter2"}`})
	if problemOf(t, answer); strings.Contains(answer.Body.String(), "hunter2") {
		t.Errorf("the answer repeats the value: %s", answer.Body)
	}
}

func TestRequests_ManyMistakesMakeAShortAnswer(t *testing.T) {
	w := newWorld(t)
	body := `{"first":0,"lines":[` + strings.TrimSuffix(strings.Repeat(`{"x":1},`, 4000), ",") + `]}`
	answer := w.send(t, request{method: http.MethodPost, path: "/v1/jobs/w1/logs", token: "dfj_" + strings.Repeat("a", 43), body: body})
	if p := problemOf(t, answer); p.Status != http.StatusUnprocessableEntity || answer.Body.Len() > 4<<10 {
		t.Errorf("got %d with %d bytes", p.Status, answer.Body.Len())
	}
}

// A method that is not allowed names those that are.
func TestRoutes_AllowedMethodsAreNamed(t *testing.T) {
	answer := newWorld(t).send(t, request{method: http.MethodPut, path: "/v1/pools"})
	problemOf(t, answer)
	if got, want := answer.Header().Get("Allow"), "GET, HEAD, POST"; got != want {
		t.Errorf("Allow: got %q, want %q", got, want)
	}
}

func TestConfig_MaxBodyBoundsEveryRoute(t *testing.T) {
	handler := documented(t, httpapi.New(controlplane.New(memory.New(), controlplane.Config{}), httpapi.Config{MaxBody: 10}))
	w := &world{handler: handler}
	token := "dfj_" + strings.Repeat("a", 43)
	for path, body := range map[string]string{"/v1/jobs/w1/result": `{"outcome":"failed"}`, "/v1/jobs/w1/heartbeat": `{"step":"plan"}`} {
		p := problemOf(t, w.send(t, request{method: http.MethodPost, path: path, token: token, body: body}))
		if p.Code != "too_large" {
			t.Errorf("%s: got %s, want too_large", path, p.Code)
		}
	}
}

type brokenBody struct{ err error }

func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }

type timeout struct{ error }

func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// A body that does not arrive is the sender's trouble and no failure of the control plane.
func TestRequests_UnreadableBodyIsNoFailureOfOurs(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		err    error
		status int
		code   string
	}{
		{io.ErrUnexpectedEOF, http.StatusBadRequest, "invalid"},
		{timeout{errors.New("too slow")}, http.StatusRequestTimeout, "request_timeout"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/pools", brokenBody{test.err})
		r.Header.Set("Authorization", "Bearer "+w.admin)
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		if p := problemOf(t, answer); p.Status != test.status || p.Code != test.code {
			t.Errorf("%v: got %d %s, want %d %s", test.err, p.Status, p.Code, test.status, test.code)
		}
	}
}

// A runner of a later version may say more than this control plane knows: a result that was refused for that
// would be lost. Pool stacks and people are told.
func TestAPI_OnlyOfRunnersUnknownFieldsArePassedOver(t *testing.T) {
	w := newWorld(t)
	runner := map[string]string{"Dayfly-Attempt": "1", "Dayfly-Task": "t", "Dayfly-Boot": strings.Repeat("a", 32)}
	for name, test := range map[string]struct {
		in   request
		want int
	}{
		// What it says is read, and then its token is not the one.
		"runner": {request{method: http.MethodPost, path: "/v1/jobs/w1/result?later=1", token: "dfj_" + strings.Repeat("a", 43), header: runner,
			body: `{"outcome":"failed","reason":"step_failed","log_end":0,"later":1,"changes":{"add":0,"change":0,"destroy":0,"later":{"x":1}}}`}, http.StatusUnauthorized},
		"runner, a wrong value": {request{method: http.MethodPost, path: "/v1/jobs/w1/result", token: "dfj_" + strings.Repeat("a", 43), header: runner,
			body: `{"outcome":"unheard of","log_end":0}`}, http.StatusUnprocessableEntity},
		"pool":         {request{method: http.MethodPost, path: "/v1/claims", token: w.pool, body: `{"instance":"a","max":1,"later":1}`}, http.StatusUnprocessableEntity},
		"pool's query": {request{method: http.MethodGet, path: "/v1/claims?later=1", token: w.pool}, http.StatusUnprocessableEntity},
		"person":       {request{method: http.MethodPost, path: "/v1/tokens", token: w.admin, body: `{"name":"a","role":"viewer","later":1}`}, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			if p := problemOf(t, w.send(t, test.in)); p.Status != test.want {
				t.Errorf("got %d %s (%s), want %d", p.Status, p.Code, p.Detail, test.want)
			}
		})
	}
}
