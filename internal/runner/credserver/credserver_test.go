package credserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/runner/credserver"
)

var lent = credserver.Credentials{AccessKeyID: "ASIAEXAMPLE", SecretAccessKey: "the-secret", SessionToken: "the-session", Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}

type hidden struct {
	mu     sync.Mutex
	values []string
}

func (h *hidden) add(values ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values = append(h.values, values...)
}

func (h *hidden) has(v string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.values, v)
}

func listen(t *testing.T, source func(context.Context) (credserver.Credentials, error)) (*credserver.Server, *hidden) {
	t.Helper()
	var h hidden
	l, err := credserver.Listen(t.Context(), credserver.Config{Source: source, Hide: h.add})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, &h
}

func fixed(context.Context) (credserver.Credentials, error) { return lent, nil }

// parts are the address and the token of an environment, of which there is nothing else.
func parts(t *testing.T, env []string) (address, token string) {
	t.Helper()
	for _, e := range env {
		name, v, _ := strings.Cut(e, "=")
		switch name {
		case "AWS_CONTAINER_CREDENTIALS_FULL_URI":
			address = v
		case "AWS_CONTAINER_AUTHORIZATION_TOKEN":
			token = v
		default:
			t.Errorf("the environment has %s", name)
		}
	}
	return address, token
}

func ask(t *testing.T, method, address string, change func(*http.Request)) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	change(req)
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

func withToken(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", token) }
}

func TestLender_LendsToWhoShowsTheToken(t *testing.T) {
	l, h := listen(t, fixed)
	env, end := l.Step()
	defer end()
	address, token := parts(t, env)
	status, body := ask(t, http.MethodGet, address, withToken(token))
	var got map[string]string
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	want := map[string]string{"AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "the-secret", "Token": "the-session", "Expiration": "2030-01-02T03:04:05Z"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, v := range []string{token, "the-secret", "the-session"} {
		if !h.has(v) {
			t.Errorf("%s was given away before it was hidden", v)
		}
	}
}

func TestLender_RefusesEverybodyElse(t *testing.T) {
	l, _ := listen(t, fixed)
	old, end := l.Step()
	_, ended := parts(t, old)
	end()
	env, stop := l.Step()
	defer stop()
	address, token := parts(t, env)
	for name, test := range map[string]struct {
		method, address string
		change          func(*http.Request)
		status          int
	}{
		"no token":         {http.MethodGet, address, func(*http.Request) {}, 403},
		"another token":    {http.MethodGet, address, withToken(strings.Repeat("A", len(token))), 403},
		"half a token":     {http.MethodGet, address, withToken(token[:10]), 403},
		"a longer token":   {http.MethodGet, address, withToken(token + "A"), 403},
		"as bearer":        {http.MethodGet, address, withToken("Bearer " + token), 403},
		"an ended step":    {http.MethodGet, address, withToken(ended), 403},
		"in the address":   {http.MethodGet, address + "?token=" + token, func(*http.Request) {}, 403},
		"a post":           {http.MethodPost, address, withToken(token), 405},
		"a put":            {http.MethodPut, address, withToken(token), 405},
		"another name":     {http.MethodGet, address, func(r *http.Request) { withToken(token)(r); r.Host = "evil.example.com" }, 403},
		"its name":         {http.MethodGet, address, func(r *http.Request) { withToken(token)(r); r.Host = "localhost:" + r.URL.Port() }, 403},
		"without its port": {http.MethodGet, address, func(r *http.Request) { withToken(token)(r); r.Host = "127.0.0.1" }, 403},
		"another path":     {http.MethodGet, address + "/x", withToken(token), 404},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := ask(t, test.method, test.address, test.change)
			if status != test.status {
				t.Errorf("got %d %s, want %d", status, body, test.status)
			}
			if strings.Contains(body, "the-se") || strings.Contains(body, "ASIA") {
				t.Errorf("it shows %s", body)
			}
		})
	}
}

// A step within another has a token of its own, and its end leaves the outer one.
func TestLender_EachStepHasItsToken(t *testing.T) {
	l, _ := listen(t, fixed)
	outer, endOuter := l.Step()
	inner, endInner := l.Step()
	address, a := parts(t, outer)
	_, b := parts(t, inner)
	if a == b {
		t.Fatal("two steps have the same token")
	}
	endInner()
	endInner()
	if status, _ := ask(t, http.MethodGet, address, withToken(a)); status != http.StatusOK {
		t.Errorf("the outer token is refused: %d", status)
	}
	if status, _ := ask(t, http.MethodGet, address, withToken(b)); status != http.StatusForbidden {
		t.Errorf("the inner token is taken: %d", status)
	}
	endOuter()
	if status, _ := ask(t, http.MethodGet, address, withToken(a)); status != http.StatusForbidden {
		t.Errorf("the outer token is taken after its end: %d", status)
	}
}

func TestLender_SaysWhenItCannotRenew(t *testing.T) {
	fail := true
	l, _ := listen(t, func(context.Context) (credserver.Credentials, error) {
		if fail {
			return credserver.Credentials{}, errors.New("sts said no to arn:aws:iam::123456789012:role/net")
		}
		return lent, nil
	})
	env, end := l.Step()
	defer end()
	address, token := parts(t, env)
	status, body := ask(t, http.MethodGet, address, withToken(token))
	if status != http.StatusServiceUnavailable || strings.Contains(body, "123456789012") {
		t.Errorf("got %d %s", status, body)
	}
	fail = false
	if status, _ := ask(t, http.MethodGet, address, withToken(token)); status != http.StatusOK {
		t.Errorf("it does not recover: %d", status)
	}
}

// Code that opens connections without end gets no more of them, and those that it lets go are usable.
func TestLender_BoundsItsConnections(t *testing.T) {
	l, _ := listen(t, fixed)
	env, end := l.Step()
	defer end()
	address, token := parts(t, env)
	host := strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/credentials")
	var d net.Dialer
	var open []net.Conn
	for range 70 {
		c, err := d.DialContext(t.Context(), "tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	for _, c := range open {
		_ = c.Close()
	}
	if status, _ := ask(t, http.MethodGet, address, withToken(token)); status != http.StatusOK {
		t.Errorf("got %d", status)
	}
}

func TestLender_CloseEndsTheAddress(t *testing.T) {
	l, _ := listen(t, fixed)
	env, _ := l.Step()
	address, _ := parts(t, env)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	if c, err := d.DialContext(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/credentials")); err == nil {
		_ = c.Close()
		t.Error("the address still answers")
	}
}
