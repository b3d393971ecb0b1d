package gateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/gateway"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/hosttest"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

var built string

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m, &built)) }

func newHost(t *testing.T) *lambdahost.Host {
	t.Helper()
	h := lambdahost.New(lambdahost.Config{Log: func(_, line string) { t.Log(line) }})
	t.Cleanup(h.Close)
	if err := h.Put(lambdahost.Function{Name: "fn", Bootstrap: built, Timeout: hosttest.Wait}); err != nil {
		t.Fatal(err)
	}
	return h
}

// api is a REST API before the function fn, and who may call it.
type api struct {
	*gateway.REST
	url   string
	table *sigv4.Table
	host  *lambdahost.Host
}

func newREST(t *testing.T, change ...func(*gateway.REST)) api {
	t.Helper()
	table := sigv4.NewTable(nil)
	h := newHost(t)
	g := &gateway.REST{Functions: h, Function: "fn", Stage: "prod", Authenticate: awsim.New(awsim.Config{Credentials: table}).Authenticate}
	for _, c := range change {
		c(g)
	}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return api{g, server.URL, table, h}
}

type reply struct {
	status int
	header http.Header
	body   string
}

func send(t *testing.T, r *http.Request) reply {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(hosttest.Context(t), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sign(t *testing.T, r *http.Request, body string, c sigv4.Credentials) *http.Request {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	who := aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken}
	if err := v4.NewSigner().SignHTTP(context.Background(), who, r, hex.EncodeToString(sum[:]), "execute-api", "us-east-1", time.Now()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestREST_TheFunctionLearnsWhoCalls(t *testing.T) {
	a := newREST(t)
	c := a.table.Session("runner", "0123456789abcdef", time.Hour)
	const body = `{"hello":"world"}`
	r := request(t, http.MethodPost, a.url+"/prod/v1/jobs/7/start?a=1&a=2&b=x%20y", body)
	r.Header.Add("X-Twice", "one")
	r.Header.Add("X-Twice", "two")
	got := send(t, sign(t, r, body, c))
	if got.status != 200 || got.header.Get("Content-Type") != "application/json" || !slices.Equal(got.header.Values("Set-Cookie"), []string{"a=1", "b=2"}) {
		t.Fatalf("answered %+v", got)
	}
	var e struct {
		Resource, Path, HTTPMethod, Body string
		Headers                          map[string]string
		MultiValueHeaders                map[string][]string
		QueryStringParameters            map[string]string
		MultiValueQueryStringParameters  map[string][]string
		PathParameters                   map[string]string
		IsBase64Encoded                  bool
		RequestContext                   struct {
			AccountID, Path, Stage, HTTPMethod, RequestID string
			Identity                                      struct{ UserARN, Caller, AccountID, AccessKey, User, SourceIP string }
		}
	}
	if err := json.Unmarshal([]byte(got.body), &e); err != nil {
		t.Fatal(err)
	}
	id := e.RequestContext.Identity
	if id.UserARN != "arn:aws:sts::123456789012:assumed-role/runner/0123456789abcdef" || id.AccountID != "123456789012" || id.AccessKey != c.AccessKeyID ||
		!strings.HasPrefix(id.Caller, "AROA") || !strings.HasSuffix(id.Caller, ":0123456789abcdef") || id.User != id.Caller || id.SourceIP != "127.0.0.1" {
		t.Errorf("identity %+v", id)
	}
	if e.Path != "/v1/jobs/7/start" || e.RequestContext.Path != "/prod/v1/jobs/7/start" || e.RequestContext.Stage != "prod" || e.HTTPMethod != "POST" ||
		e.Resource != "/{proxy+}" || e.PathParameters["proxy"] != "v1/jobs/7/start" {
		t.Errorf("event %+v", e)
	}
	if e.Body != body || e.IsBase64Encoded {
		t.Errorf("body %q, base64 %t", e.Body, e.IsBase64Encoded)
	}
	if e.Headers["X-Twice"] != "two" || !slices.Equal(e.MultiValueHeaders["X-Twice"], []string{"one", "two"}) ||
		e.QueryStringParameters["a"] != "2" || !slices.Equal(e.MultiValueQueryStringParameters["a"], []string{"1", "2"}) || e.QueryStringParameters["b"] != "x y" {
		t.Errorf("headers %v, query %v", e.MultiValueHeaders, e.MultiValueQueryStringParameters)
	}
	if got.header.Get("X-Amzn-Requestid") != e.RequestContext.RequestID {
		t.Errorf("request %s is %s to the function", got.header.Get("X-Amzn-Requestid"), e.RequestContext.RequestID)
	}
}

func TestREST_RefusesByItself(t *testing.T) {
	a := newREST(t, func(g *gateway.REST) {
		g.Allow = func(who wire.Identity, resource string) bool { return resource != "GET/forbidden" }
	})
	c := a.table.Session("runner", "task", time.Hour)
	tampered := sign(t, request(t, http.MethodPost, a.url+"/prod/x", "one"), "one", c)
	tampered.Body = io.NopCloser(bytes.NewReader([]byte("two")))
	unknown := c
	unknown.AccessKeyID = "ASIAUNKNOWN"
	for _, x := range []struct {
		name   string
		r      *http.Request
		status int
		kind   string
		text   string
	}{
		{"no signature", request(t, http.MethodGet, a.url+"/prod/x", ""), 403, "MissingAuthenticationTokenException", "Missing Authentication Token"},
		{"another body than was signed", tampered, 403, "", ""},
		{"a key that is not known", sign(t, request(t, http.MethodGet, a.url+"/prod/x", ""), "", unknown), 403, "", ""},
		{"a path that the policy forbids", sign(t, request(t, http.MethodGet, a.url+"/prod/forbidden", ""), "", c), 403, "AccessDeniedException", "is not authorized to perform: execute-api:Invoke on resource: arn:aws:execute-api:us-east-1:123456789012:local/prod/GET/forbidden"},
		{"another stage", sign(t, request(t, http.MethodGet, a.url+"/production/x", ""), "", c), 403, "ForbiddenException", "Forbidden"},
		{"a body above 10 MB", request(t, http.MethodPost, a.url+"/prod/x", strings.Repeat("x", gateway.MaxRequest+1)), 413, "RequestTooLargeException", "Request Too Long"},
	} {
		got := send(t, x.r)
		var m struct{ Message string }
		if err := json.Unmarshal([]byte(got.body), &m); err != nil {
			t.Errorf("%s: the answer %q: %v", x.name, got.body, err)
		}
		if got.status != x.status || x.kind != "" && got.header.Get("X-Amzn-Errortype") != x.kind || !strings.Contains(m.Message, x.text) || m.Message == "" {
			t.Errorf("%s: %d %s %s; want %d %s %s", x.name, got.status, got.header.Get("X-Amzn-Errortype"), got.body, x.status, x.kind, x.text)
		}
	}
	if n := a.host.Stats("fn").Invocations; n != 0 {
		t.Errorf("the function ran %d times", n)
	}
}

func TestREST_WhatTheFunctionAnswers(t *testing.T) {
	a := newREST(t)
	c := a.table.User("someone")
	for _, x := range []struct {
		path   string
		status int
		body   string
	}{
		{"/binary", 200, "\x00\x01\x02\xff"},
		{"/error", 502, `{"message":"Internal server error"}` + "\n"},
		{"/malformed", 502, `{"message":"Internal server error"}` + "\n"},
	} {
		got := send(t, sign(t, request(t, http.MethodGet, a.url+"/prod"+x.path, ""), "", c))
		if got.status != x.status || got.body != x.body {
			t.Errorf("%s: %d %q, want %d %q", x.path, got.status, got.body, x.status, x.body)
		}
	}
}

func TestREST_BinaryBodies(t *testing.T) {
	a := newREST(t, func(g *gateway.REST) { g.BinaryTypes = []string{"application/gzip"} })
	c := a.table.User("someone")
	for contentType, want := range map[string]struct {
		body   string
		base64 bool
	}{
		"application/gzip":         {"H4v/", true},
		"application/octet-stream": {"\x1f\ufffd", false},
	} {
		r := request(t, http.MethodPost, a.url+"/prod/x", "\x1f\x8b\xff")
		r.Header.Set("Content-Type", contentType)
		got := send(t, sign(t, r, "\x1f\x8b\xff", c))
		var e struct {
			Body            string
			IsBase64Encoded bool
		}
		if err := json.Unmarshal([]byte(got.body), &e); err != nil {
			t.Fatal(err)
		}
		if e.Body != want.body || e.IsBase64Encoded != want.base64 {
			t.Errorf("%s: the function saw %q, base64 %t; want %q, %t", contentType, e.Body, e.IsBase64Encoded, want.body, want.base64)
		}
	}
}

// A function that is too slow goes on after the gateway has answered for it.
func TestGateways_TimeOutByThemselves(t *testing.T) {
	p := hosttest.NewPartner(t)
	a := newREST(t, func(g *gateway.REST) { g.Timeout = 100 * time.Millisecond })
	r := request(t, http.MethodGet, a.url+"/prod/talk?address="+p.Address(), "")
	if got := send(t, sign(t, r, "", a.table.User("someone"))); got.status != 504 || got.body != `{"message":"Endpoint request timed out"}`+"\n" {
		t.Errorf("REST: %+v, want 504", got)
	}
	h := httptest.NewServer(&gateway.HTTP{Functions: a.host, Function: "fn", Timeout: 100 * time.Millisecond})
	defer h.Close()
	if got := send(t, request(t, http.MethodGet, h.URL+"/talk?address="+p.Address(), "")); got.status != 503 || got.body != `{"message":"Service Unavailable"}`+"\n" {
		t.Errorf("HTTP: %+v, want 503", got)
	}
	p.Hear().Reply(t, "done")
	p.Hear().Reply(t, "done")
	hosttest.Until(t, "both invocations are over", func() bool {
		all := a.host.Environments("fn")
		return len(all) > 0 && !slices.ContainsFunc(all, func(e lambdahost.Environment) bool { return e.State != lambdahost.Frozen })
	})
	if got := a.host.Stats("fn"); got.Invocations != 2 || got.Errors != 0 {
		t.Errorf("stats %+v, want two that ended well", got)
	}
}

func TestGateways_WhenLambdaRefuses(t *testing.T) {
	none := 0
	a := newREST(t)
	if err := a.host.Put(lambdahost.Function{Name: "fn", Bootstrap: built, ReservedConcurrency: &none}); err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(&gateway.HTTP{Functions: a.host, Function: "fn"})
	defer h.Close()
	if got := send(t, sign(t, request(t, http.MethodGet, a.url+"/prod/x", ""), "", a.table.User("someone"))); got.status != 500 {
		t.Errorf("REST: %+v, want 500", got)
	}
	if got := send(t, request(t, http.MethodGet, h.URL+"/x", "")); got.status != 503 {
		t.Errorf("HTTP: %+v, want 503", got)
	}
	const large = 7 << 20 // the gateway takes it, Lambda does not
	if got := send(t, request(t, http.MethodPost, h.URL+"/x", strings.Repeat("x", large))); got.status != 413 {
		t.Errorf("HTTP with 7 MB: %+v, want 413", got)
	}
}

func TestHTTP_Event(t *testing.T) {
	host := newHost(t)
	server := httptest.NewServer(&gateway.HTTP{Functions: host, Function: "fn"})
	defer server.Close()
	r := request(t, http.MethodPost, server.URL+"/cookies?a=1&a=2", `{"x":1}`)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Add("X-Twice", "one")
	r.Header.Add("X-Twice", "two")
	r.Header.Set("Cookie", "c=1; d=2")
	got := send(t, r)
	if got.status != 200 || !slices.Equal(got.header.Values("Set-Cookie"), []string{"a=1", "b=2"}) {
		t.Fatalf("answered %+v", got)
	}
	var e struct {
		Version, RawPath, RawQueryString, RouteKey, Body string
		Cookies                                          []string
		Headers, QueryStringParameters                   map[string]string
		IsBase64Encoded                                  bool
		RequestContext                                   struct {
			HTTP struct{ Method, Path, SourceIP string }
		}
	}
	if err := json.Unmarshal([]byte(got.body), &e); err != nil {
		t.Fatal(err)
	}
	if e.Version != "2.0" || e.RouteKey != "$default" || e.RawPath != "/cookies" || e.RawQueryString != "a=1&a=2" || e.QueryStringParameters["a"] != "1,2" ||
		e.Headers["x-twice"] != "one,two" || !slices.Equal(e.Cookies, []string{"c=1", "d=2"}) || e.Body != `{"x":1}` || e.IsBase64Encoded ||
		e.RequestContext.HTTP.Method != "POST" || e.RequestContext.HTTP.SourceIP != "127.0.0.1" {
		t.Errorf("event %s", got.body)
	}
	for _, x := range []struct {
		path   string
		status int
		body   string
	}{
		{"/binary", 200, "\x00\x01\x02\xff"},
		{"/error", 500, `{"message":"Internal Server Error"}` + "\n"},
		{"/malformed", 500, `{"message":"Internal Server Error"}` + "\n"},
		{"/plain", 200, "plain"},
	} {
		got := send(t, request(t, http.MethodGet, server.URL+x.path, ""))
		if got.status != x.status || got.body != x.body {
			t.Errorf("%s: %d %q, want %d %q", x.path, got.status, got.body, x.status, x.body)
		}
	}
}
