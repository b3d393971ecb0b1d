package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// The session's cookie passes both kinds of gateway, in both directions, and a page links to addresses that exist there.
func TestHandle_PagesBehindAnHTTPAPI(t *testing.T) {
	w := newWorld(t, memory.New())
	browser := func(cookies ...string) func(*events.APIGatewayV2HTTPRequest) {
		return func(e *events.APIGatewayV2HTTPRequest) {
			delete(e.Headers, "authorization")
			e.Headers["content-type"] = "application/x-www-form-urlencoded"
			e.Headers["origin"] = "https://" + e.RequestContext.DomainName
			e.Cookies = cookies
		}
	}
	if got := w.call("GET", "/", "", "", browser()); got.StatusCode != 303 || got.Headers["Location"] != "/signin" {
		t.Fatalf("nobody: %d %v", got.StatusCode, got.Headers)
	}
	form := url.Values{"token": {adminToken}}.Encode()
	foreign := func(e *events.APIGatewayV2HTTPRequest) { e.Headers["origin"] = "https://evil.example.com" }
	if got := w.call("POST", "/signin", "", form, browser(), foreign); got.StatusCode != 403 || len(got.Cookies) > 0 {
		t.Errorf("from another site: %d", got.StatusCode)
	}
	got := w.call("POST", "/signin", "", form, browser())
	if got.StatusCode != 303 || got.Headers["Location"] != "/" || len(got.Cookies) != 1 || got.Headers["Set-Cookie"] != "" {
		t.Fatalf("sign in: %d %v %v %s", got.StatusCode, got.Headers, got.Cookies, got.Body)
	}
	k, err := http.ParseSetCookie(got.Cookies[0])
	w.must(err)
	if k.Name != "__Host-dayfly" || !k.Secure || !k.HttpOnly || k.Path != "/" {
		t.Errorf("the cookie is %s", got.Cookies[0])
	}
	home := w.call("GET", "/", "", "", browser("other=1", k.Name+"="+k.Value))
	if home.StatusCode != 200 || !strings.Contains(home.Body, `href="/assets/`) || home.Headers["Strict-Transport-Security"] == "" {
		t.Errorf("home: %d %v %s", home.StatusCode, home.Headers, home.Body)
	}
	if api := w.call("GET", "/v1/whoami", k.Value, ""); api.StatusCode != 401 {
		t.Errorf("the API takes a session for a token: %d", api.StatusCode)
	}
	if strings.Contains(w.log.String(), k.Value) || strings.Contains(w.log.String(), adminToken) {
		t.Error("the log holds a secret")
	}
}

func TestHandle_PagesBehindARESTAPI(t *testing.T) {
	w := newWorld(t, memory.New())
	browser := func(cookie string) func(*events.APIGatewayProxyRequest) {
		return func(e *events.APIGatewayProxyRequest) {
			delete(e.Headers, "Authorization")
			delete(e.MultiValueHeaders, "Authorization")
			e.MultiValueHeaders["Content-Type"] = []string{"application/x-www-form-urlencoded"}
			e.MultiValueHeaders["Origin"] = []string{"https://" + e.RequestContext.DomainName}
			if cookie != "" {
				e.MultiValueHeaders["Cookie"] = []string{cookie}
			}
		}
	}
	if got := w.rest("GET", "/runs/x", "", browser("")); got.StatusCode != 303 || got.MultiValueHeaders["Location"][0] != "/api/signin?next=%2Fruns%2Fx" {
		t.Fatalf("nobody: %d %v", got.StatusCode, got.MultiValueHeaders)
	}
	got := w.rest("POST", "/signin", url.Values{"token": {adminToken}, "next": {"/runs/x"}}.Encode(), browser(""))
	if got.StatusCode != 303 || got.MultiValueHeaders["Location"][0] != "/api/runs/x" || len(got.MultiValueHeaders["Set-Cookie"]) != 1 {
		t.Fatalf("sign in: %d %v %s", got.StatusCode, got.MultiValueHeaders, got.Body)
	}
	k, err := http.ParseSetCookie(got.MultiValueHeaders["Set-Cookie"][0])
	w.must(err)
	if k.Name != "dayfly" || !k.Secure || k.Path != "/api/" {
		t.Errorf("the cookie is %v", k)
	}
	home := w.rest("GET", "/", "", browser(k.Name+"="+k.Value))
	if home.StatusCode != 200 || !strings.Contains(home.Body, `href="/api/assets/`) || !strings.Contains(home.Body, `action="/api/signout"`) {
		t.Errorf("home: %d %s", home.StatusCode, home.Body)
	}
}
