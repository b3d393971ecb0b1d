package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

func sample(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "events", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// world is a function over a store, with the secret of its deployment.
type world struct {
	t   *testing.T
	f   *function
	log strings.Builder

	mu     sync.Mutex
	now    time.Time // added to the rules' clock, and the age of what boot has cached
	secret string
	broken error
	reads  int
	woken  []string
}

func (w *world) Wake(_ context.Context, target string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, target)
	return nil
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

const adminToken = "0123456789abcdefghijklmnopqrstuvwxyzABCDEF"

func newWorld(t *testing.T, st store.Store) *world {
	t.Helper()
	w := &world{t: t, now: time.Now(), secret: adminToken}
	w.f = w.process(st)
	return w
}

// process is another execution environment of the function.
func (w *world) process(st store.Store) *function {
	log := slog.New(slog.NewJSONHandler(&w.log, nil))
	plane := controlplane.New(st, controlplane.Config{Now: w.clock, Waker: w})
	secret := boot.NewSecret("the admin token", w.clock, func(context.Context) (string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reads++
		return w.secret, w.broken
	})
	apiHandler := httpapi.New(plane, httpapi.Config{})
	pages := func(base string) http.Handler {
		return console.New(plane, console.Config{Base: base, HTTPS: true}).Beside(apiHandler)
	}
	return newFunction(plane, pages(""), pages("/api"), secret, "default", log)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// call makes a request out of a sample.
func (w *world) call(method, path, token, body string, change ...func(*events.APIGatewayV2HTTPRequest)) events.APIGatewayV2HTTPResponse {
	w.t.Helper()
	var e events.APIGatewayV2HTTPRequest
	w.must(json.Unmarshal(sample(w.t, "http-api-claim"), &e))
	e.RawPath, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.Method, e.Body = path, path, method, body
	e.Headers["authorization"] = "Bearer " + token
	for _, c := range change {
		c(&e)
	}
	return answered[events.APIGatewayV2HTTPResponse](w, e)
}

// answered gives the function an event, whose answer must be of the type that its API takes.
func answered[T any](w *world, event any) T {
	w.t.Helper()
	raw, err := json.Marshal(event)
	w.must(err)
	out, err := w.f.Handle(w.t.Context(), raw)
	w.must(err)
	answer, ok := out.(T)
	if !ok {
		w.t.Fatalf("answered %T, which the API calls malformed", out)
	}
	return answer
}

func (w *world) ok(method, path, token, body string, into any) {
	w.t.Helper()
	got := w.call(method, path, token, body)
	if got.StatusCode < 200 || got.StatusCode > 299 {
		w.t.Fatalf("%s %s: %d %s", method, path, got.StatusCode, got.Body)
	}
	if into != nil {
		w.must(json.Unmarshal([]byte(got.Body), into))
	}
}

func (w *world) workspace(name string) {
	w.t.Helper()
	w.ok("PUT", "/v1/workspaces/"+name, adminToken, fmt.Sprintf(`{"name":%q,"engine":"command","source":{"directory":"/src"},"commands":{"update":"true"},"state":{"kind":"source"}}`, name), nil)
}

func (w *world) submit(workspace string) api.Workflow {
	w.t.Helper()
	var wf api.Workflow
	w.ok("POST", "/v1/workflows", adminToken, fmt.Sprintf(`{"workspace":%q,"operation":"update"}`, workspace), &wf)
	return wf
}

// A control plane that was just deployed can be used at once, by whoever may read its secret.
func TestHandle_TheFirstRequestOfADeploymentIsServed(t *testing.T) {
	w := newWorld(t, memory.New())
	var pools api.Page[api.Pool]
	w.ok("GET", "/v1/pools", adminToken, "", &pools)
	if len(pools.Items) != 1 || pools.Items[0].Name != "default" {
		t.Errorf("pools %+v", pools.Items)
	}
	if got := w.call("GET", "/v1/pools", "dfu_"+strings.Repeat("x", 40), ""); got.StatusCode != 401 {
		t.Errorf("another token: %d %s", got.StatusCode, got.Body)
	}
	for range 3 {
		w.ok("GET", "/v1/pools", adminToken, "", nil)
	}
	if w.reads != 1 {
		t.Errorf("the secret was read %d times", w.reads)
	}
	if strings.Contains(w.log.String(), adminToken) {
		t.Error("the log shows the token")
	}
}

func TestHandle_ABurstOfSubmissionsIsOneWake(t *testing.T) {
	w := newWorld(t, memory.New())
	const target = "arn:aws:lambda:us-east-1:123456789012:function:dayfly-wake-default"
	w.ok("PATCH", "/v1/pools/default", adminToken, `{"wake_target":"`+target+`"}`, nil)
	var made api.PoolToken
	w.ok("POST", "/v1/pools/default/token", adminToken, `{}`, &made)
	claim := func() (out api.Claimed) {
		w.ok("POST", "/v1/claims", made.Token, `{"instance":"dayfly-default","max":10}`, &out)
		return out
	}
	claim() // clears the mark that the change of the pool set
	w.woken = nil
	for i := range 5 {
		w.workspace(fmt.Sprintf("net%d", i))
		w.submit(fmt.Sprintf("net%d", i))
	}
	if d := cmp.Diff([]string{target}, w.woken); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
	if out := claim(); len(out.Jobs) != 5 || !out.Short {
		t.Errorf("claimed %+v", out)
	}
}

func TestHandle_APassMovesWhatTimeMoves(t *testing.T) {
	for _, raw := range [][]byte{sample(t, "controlplane-pass"), []byte("{}")} {
		w := newWorld(t, memory.New())
		_, err := w.f.Handle(t.Context(), raw) // before anybody asked for anything
		w.must(err)
		w.workspace("net")
		wf := w.submit("net")
		w.advance(workflow.QueueTimeout + time.Minute)
		out, err := w.f.Handle(t.Context(), raw)
		if err != nil || out != nil {
			t.Errorf("%v, %v", out, err)
		}
		w.ok("GET", "/v1/workflows/"+wf.ID, adminToken, "", &wf)
		if wf.State != workflow.Failed || wf.Reason != workflow.ReasonExpiredInQueue {
			t.Errorf("workflow is %s (%s)", wf.State, wf.Reason)
		}
		tmpl, err := templates.Load("../../infra/transformed/controlplane.json")
		w.must(err)
		if n, err := tmpl.Counted("PassMetric", w.log.String()); err != nil || n != 2 {
			t.Errorf("the metric counts %d passes of 2 (%v): %s", n, err, w.log.String())
		}
	}
}

// The function of calls that wait has its own concurrency and no admin token: a pass in it would be a second one.
func TestHandle_TheFunctionOfLongPollsMakesNoPass(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	wf := w.submit("net")
	w.advance(workflow.QueueTimeout + time.Minute)
	polls := newFunction(w.f.plane, nil, nil, nil, "default", w.f.log)
	for _, raw := range [][]byte{sample(t, "controlplane-pass"), []byte("{}"), []byte(`{"restored":true}`)} {
		if out, err := polls.Handle(t.Context(), raw); err == nil || !strings.Contains(err.Error(), "set up wrongly") {
			t.Errorf("%s: %v, %v", raw, out, err)
		}
	}
	if w.ok("GET", "/v1/workflows/"+wf.ID, adminToken, "", &wf); wf.State != workflow.Pending {
		t.Errorf("workflow is %s", wf.State)
	}
}

// What a function does must be over before Lambda ends it.
func TestHandle_APassEndsWithItsInvocation(t *testing.T) {
	w := newWorld(t, memory.New())
	ctx, cancel := context.WithTimeout(t.Context(), margin) // nothing is left of it
	defer cancel()
	if _, err := w.f.Handle(ctx, sample(t, "controlplane-pass")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestAdmin_ANewSecretIsTakenUpByAPass(t *testing.T) {
	w := newWorld(t, memory.New())
	w.ok("GET", "/v1/pools", adminToken, "", nil)
	w.mu.Lock()
	w.secret = strings.ToUpper(adminToken) + "2"
	newer := w.secret
	w.mu.Unlock()
	w.advance(6 * time.Minute)
	_, err := w.f.Handle(t.Context(), []byte("{}"))
	w.must(err)
	w.ok("GET", "/v1/pools", newer, "", nil)
	w.ok("GET", "/v1/pools", adminToken, "", nil)
	w.advance(61 * time.Minute)
	w.ok("GET", "/v1/pools", newer, "", nil)
	if got := w.call("GET", "/v1/pools", adminToken, ""); got.StatusCode != 401 {
		t.Errorf("the old one after its hour: %d %s", got.StatusCode, got.Body)
	}
}

// Trouble with the secret is an error in the log, and nobody else's.
func TestAdmin_UnreadableSecretDoesNotStopService(t *testing.T) {
	st := memory.New()
	w := newWorld(t, st)
	w.ok("GET", "/v1/pools", adminToken, "", nil)
	w.mu.Lock()
	w.broken, w.reads = errors.New("access denied"), 0
	w.mu.Unlock()
	w.f = w.process(st)
	for range 3 {
		w.ok("GET", "/v1/pools", adminToken, "", nil)
	}
	if w.reads != 1 || strings.Count(w.log.String(), `"level":"ERROR"`) != 1 {
		t.Errorf("%d readings; log:\n%s", w.reads, w.log.String())
	}
}

func TestAdmin_ARevokedTokenStaysRevokedOverColdStarts(t *testing.T) {
	st := memory.New()
	w := newWorld(t, st)
	var own api.TokenValue
	w.ok("POST", "/v1/tokens", adminToken, `{"name":"me","role":"admin"}`, &own)
	var tokens api.Page[api.Token]
	w.ok("GET", "/v1/tokens", adminToken, "", &tokens)
	for _, token := range tokens.Items {
		if token.Name == "deployment" {
			w.ok("DELETE", "/v1/tokens/"+token.ID, adminToken, "", nil)
		}
	}
	w.f = w.process(st)
	w.ok("GET", "/v1/pools", own.Value, "", nil)
	if got := w.call("GET", "/v1/pools", adminToken, ""); got.StatusCode != 401 {
		t.Errorf("the revoked token: %d %s", got.StatusCode, got.Body)
	}
	if strings.Contains(w.log.String(), `"level":"ERROR"`) || strings.Count(w.log.String(), "not valid") != 1 {
		t.Errorf("log:\n%s", w.log.String())
	}
}

func TestHandle_Requests(t *testing.T) {
	w := newWorld(t, memory.New())
	encoded := func(e *events.APIGatewayV2HTTPRequest) {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(e.Body)), true
	}
	if got := w.call("POST", "/v1/pools", adminToken, `{"name":"other"}`, encoded); got.StatusCode != 201 && got.StatusCode != 200 {
		t.Errorf("base64: %d %s", got.StatusCode, got.Body)
	}
	broken := func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "%", true }
	if got := w.call("POST", "/v1/pools", adminToken, "", broken); got.StatusCode != 422 {
		t.Errorf("broken base64: %d %s", got.StatusCode, got.Body)
	}
	staged := func(e *events.APIGatewayV2HTTPRequest) {
		e.RequestContext.Stage, e.RawPath, e.RawQueryString = "live", "/live"+e.RawPath, "limit=1"
	}
	got := w.call("GET", "/v1/pools", adminToken, "", staged)
	var pools api.Page[api.Pool]
	w.must(json.Unmarshal([]byte(got.Body), &pools))
	if got.StatusCode != 200 || len(pools.Items) != 1 || pools.Next == "" {
		t.Errorf("with a stage and a query: %d %s", got.StatusCode, got.Body)
	}
	if got.Headers["X-Request-Id"] == "" {
		t.Errorf("the answer names no request: %v", got.Headers)
	}
	if got.Headers["Content-Type"] != "application/json" || got.Headers["Cache-Control"] != "no-store" {
		t.Errorf("headers %v", got.Headers)
	}
	if got := w.call("GET", "/nowhere", adminToken, ""); got.StatusCode != 404 {
		t.Errorf("nowhere: %d %s", got.StatusCode, got.Body)
	}
}

func TestClean(t *testing.T) {
	in := events.APIGatewayV2HTTPRequest{
		RawPath: "/live/v1/pools", Headers: map[string]string{"x-GoLambdaProxy-apigw-context": "{}", "a": "1"},
		RequestContext: events.APIGatewayV2HTTPRequestContext{Stage: "live"},
	}
	got, err := clean(in)
	if err != nil || got.RawPath != "/v1/pools" || len(got.Headers) != 1 || len(in.Headers) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	in.RequestContext.RequestID = "JKJaXmPLvHcESHA="
	for given, want := range map[string]string{"": "JKJaXmPLvHcESHA=", "run-7": "run-7"} {
		in.Headers = map[string]string{"x-request-id": given}
		if got, _ := clean(in); got.Headers["x-request-id"] != want {
			t.Errorf("request id %q became %q, want %q", given, got.Headers["x-request-id"], want)
		}
	}
	in.Headers = nil
	for path, want := range map[string]string{"/livefoo": "/livefoo", "/live": "/", "/v1/live": "/v1/live"} {
		in.RawPath = path
		if got, _ := clean(in); got.RawPath != want {
			t.Errorf("%s became %s, want %s", path, got.RawPath, want)
		}
	}
}

func TestDecode_TellsTheEventsApart(t *testing.T) {
	for name, want := range map[string]string{
		"http-api-claim": "request", "controlplane-pass": "pass", "rest-api-list": "request", "status-start": "request", "sqs-reports": "error", "ecs-task-stopped": "error",
	} {
		request, err := decode(sample(t, name))
		got := "error"
		switch {
		case err == nil && request != nil:
			got = "request"
		case err == nil:
			got = "pass"
		}
		if got != want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, want)
		}
	}
	for _, raw := range []string{
		"", "null", "[]", `{"version":"1.0","requestContext":{}}`, `{"version":"2.0"}`, `{"version":"2.0","requestContext":7}`,
		`{"restored":false}`, `{"restored":"true"}`, `{"restored":true,"body":"{}"}`, `{"httpMethod":"GET"}`, `{"httpMethod":"","requestContext":{}}`, `{"httpMethod":"GET","requestContext":7}`, `{"version":"1.0","httpMethod":"GET","requestContext":{}}`,
	} {
		if _, err := decode([]byte(raw)); err == nil {
			t.Errorf("%q was taken", raw)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"http-api-claim", "rest-api-list", "controlplane-pass"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "events", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		request, err := decode(raw)
		if err != nil || request == nil {
			return
		}
		switch request := request.(type) {
		case *events.APIGatewayV2HTTPRequest:
			before := request.RawPath
			if got, err := clean(*request); err == nil && got.IsBase64Encoded || request.RawPath != before {
				t.Errorf("%q became %+v", raw, got)
			}
		case *events.APIGatewayProxyRequest:
			before := request.Path
			if got, err := cleanREST(*request); err == nil && got.IsBase64Encoded || request.Path != before {
				t.Errorf("%q became %+v", raw, got)
			}
		case restored:
			if !strings.Contains(string(raw), "restored") {
				t.Errorf("%q ends what waits", raw)
			}
		default:
			t.Errorf("%q became a %T", raw, request)
		}
	})
}

func TestBuild(t *testing.T) {
	_, err := build(func(string) string { return "" }, &strings.Builder{})
	if err == nil {
		t.Fatal("an empty environment was taken")
	}
	for _, name := range []string{"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "DAYFLY_TABLE", "DAYFLY_ADMIN_TOKEN_SECRET"} {
		if !strings.Contains(err.Error(), name+":") {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
	env := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "ASIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "session",
		"DAYFLY_TABLE": "dayfly", "DAYFLY_ADMIN_TOKEN_SECRET": "arn:aws:secretsmanager:us-east-1:123456789012:secret:admin",
	}
	if f, err := build(func(name string) string { return env[name] }, &strings.Builder{}); err != nil || f == nil {
		t.Fatal(err)
	}
	env["DAYFLY_ORGANIZATION_LIMIT"] = "0"
	if _, err := build(func(name string) string { return env[name] }, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "DAYFLY_ORGANIZATION_LIMIT") {
		t.Errorf("a limit of nothing: %v", err)
	}
	env["DAYFLY_LOG_QUOTA"] = "much"
	if _, err := build(func(name string) string { return env[name] }, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), `DAYFLY_LOG_QUOTA: "much" is not a size of a log`) {
		t.Errorf("a quota of much: %v", err)
	}
}

var _ controlplane.Waker = (*waker)(nil)

// C17: whose sign-ins fail is known by the address that the gateway saw, and not by a header, which its caller writes.
func TestFunction_CountsFailedSignInsByGatewayAddress(t *testing.T) {
	w := newWorld(t, memory.New())
	from := func(address string, n int) int {
		return w.call("GET", "/v1/whoami", "dfu_wrong", "", func(e *events.APIGatewayV2HTTPRequest) {
			e.RequestContext.HTTP.SourceIP = address
			e.Headers["x-forwarded-for"] = fmt.Sprintf("203.0.113.%d", n)
		}).StatusCode
	}
	still := time.Now() // buckets do not fill
	limited := httpapi.New(w.f.plane, httpapi.Config{Gate: admission.New(admission.Rates{Failures: 1}, func() time.Time { return still })})
	w.f = newFunction(w.f.plane, limited, limited, w.f.admin, "default", w.f.log)
	for n := range 61 {
		want := 401
		if n == 60 {
			want = 429
		}
		if got := from("198.51.100.7", n); got != want {
			t.Fatalf("call %d: %d, want %d", n, got, want)
		}
	}
	if got := from("198.51.100.8", 0); got != 401 {
		t.Errorf("another address: %d, want 401", got)
	}
}
