package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// C16, R8: each route is for one audience, and says so to every other.
func TestRoutes_RefuseMissingAndForeignTokens(t *testing.T) {
	w := newWorld(t)
	unknown := strings.Repeat("x", 43)
	for _, o := range operations(t, w) {
		if o.audience() == "" {
			continue
		}
		tests := []struct {
			name, token string
			status      int
			code        string
		}{
			{"none", "", http.StatusUnauthorized, "unauthenticated"},
			{"of nobody", "garbage", http.StatusUnauthorized, "unauthenticated"},
			{"unknown user", "dfu_" + unknown, http.StatusUnauthorized, "unauthenticated"},
			{"unknown pool", "dfp_" + unknown, http.StatusUnauthorized, "unauthenticated"},
			{"unknown job", "dfj_" + unknown, http.StatusUnauthorized, "unauthenticated"},
			{"endless", strings.Repeat("a", 5000), http.StatusUnauthorized, "unauthenticated"},
		}
		foreign := func(name, token string, status int, code string) {
			tests = append(tests, struct {
				name, token string
				status      int
				code        string
			}{name, token, status, code})
		}
		switch o.audience() {
		case "user":
			foreign("pool", w.pool, http.StatusForbidden, "forbidden")
		case "pool":
			foreign("user", w.admin, http.StatusForbidden, "forbidden")
		case "job":
			foreign("pool", w.pool, http.StatusUnauthorized, "unauthenticated")
			foreign("user", w.admin, http.StatusUnauthorized, "unauthenticated")
		}
		for _, test := range tests {
			before := w.store.commits.Load()
			in := o.request()
			in.token = test.token
			answer := w.send(t, in)
			p := problemOf(t, answer)
			if p.Status != test.status || p.Code != test.code {
				t.Errorf("%s with a token %s: got %d %s (%s), want %d %s", o.ID, test.name, p.Status, p.Code, p.Detail, test.status, test.code)
			}
			if test.status == http.StatusUnauthorized && answer.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s with a token %s: no WWW-Authenticate", o.ID, test.name)
			}
			// A known caller's refusal is audited. A stranger's is not: strangers must not be able to fill the store.
			audited := int64(0)
			if test.status == http.StatusForbidden {
				audited = 1
			}
			if made := w.store.commits.Load() - before; made != audited {
				t.Errorf("%s with a token %s: the refusal made %d commits, want %d", o.ID, test.name, made, audited)
			}
		}
	}
}

// Who may not call a route learns nothing of what is wrong with the request.
func TestRoutes_CheckTheTokenBeforeTheBody(t *testing.T) {
	w := newWorld(t)
	answer := w.send(t, request{method: http.MethodPost, path: "/v1/pools", body: `{"nonsense":1}`})
	if p := problemOf(t, answer); p.Code != "unauthenticated" {
		t.Errorf("got %s, want unauthenticated", p.Code)
	}
}

func TestRoutes_TakeTheSchemeInAnyCase(t *testing.T) {
	w := newWorld(t)
	for _, scheme := range []string{"bearer", "BEARER", "Bearer "} {
		answer := w.send(t, request{method: http.MethodGet, path: "/v1/whoami", header: map[string]string{"Authorization": scheme + " " + w.admin}})
		if answer.Code != http.StatusOK {
			t.Errorf("scheme %q: got %d %s", scheme, answer.Code, answer.Body)
		}
	}
	answer := w.send(t, request{method: http.MethodGet, path: "/v1/whoami", header: map[string]string{"Authorization": "Basic " + w.admin}})
	if p := problemOf(t, answer); p.Code != "unauthenticated" {
		t.Errorf("scheme Basic: got %s, want unauthenticated", p.Code)
	}
}

func TestWhoami_AnswersPeopleAndPools(t *testing.T) {
	w := newWorld(t)
	person, err := w.client(t, w.admin).Whoami(t.Context())
	if err != nil || person.Audience != "user" || person.Role != "admin" || person.Organization != "default" {
		t.Errorf("person: got %+v, %v", person, err)
	}
	pool, err := w.client(t, w.pool).Whoami(t.Context())
	if err != nil || pool.Audience != "pool" || pool.Pool != "default" {
		t.Errorf("pool: got %+v, %v", pool, err)
	}
}
