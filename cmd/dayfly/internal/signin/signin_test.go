package signin_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/signin"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// stage is an issuer that answers as a test says. The strict one is in test/issuer; this one lies.
type stage struct {
	*httptest.Server
	found  map[string]any // in place of its metadata
	tokens []http.HandlerFunc
	asked  []url.Values
	device map[string]any
}

func newStage(t *testing.T) *stage {
	s := &stage{found: map[string]any{}, device: map[string]any{
		"device_code": "d", "user_code": "ABCD", "verification_uri": "https://issuer.example.com/go", "expires_in": 60, "interval": 2,
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		found := map[string]any{
			"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize?tenant=a", "token_endpoint": s.URL + "/token", "device_authorization_endpoint": s.URL + "/device",
		}
		maps.Copy(found, s.found)
		say(w, http.StatusOK, found)
	})
	mux.HandleFunc("/device", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, s.device) })
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		n := min(len(s.asked), len(s.tokens)-1)
		s.asked = append(s.asked, r.PostForm)
		s.tokens[n](w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refusing(code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		say(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": "because"})
	}
}

// giving answers with a token of these claims, for the right client unless they say otherwise.
func (s *stage) giving(with map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		claims := map[string]any{"iss": s.URL, "aud": []string{"x", "cli"}, "nonce": "?"}
		maps.Copy(claims, with)
		text, _ := json.Marshal(claims)
		say(w, http.StatusOK, map[string]string{"access_token": "a", "refresh_token": "r", "id_token": "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString(text) + ".c2ln"})
	}
}

func (s *stage) config(open func(ctx context.Context, url string) error) signin.Config {
	return signin.Config{Issuer: s.URL, ClientID: "cli", Scopes: []string{"email"}, Say: func(string, ...any) {}, Open: open}
}

// back is a browser that the issuer sends back at once with these parameters.
func back(t *testing.T, visits ...func(q url.Values) url.Values) func(context.Context, string) error {
	return func(ctx context.Context, address string) error {
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		for _, visit := range visits {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Query().Get("redirect_uri")+"?"+visit(u.Query()).Encode(), http.NoBody)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			_ = response.Body.Close()
			if h := response.Header; h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("Content-Security-Policy"), "'none'") {
				t.Errorf("the page has headers %v", h)
			}
		}
		return nil
	}
}

func right(q url.Values) url.Values { return url.Values{"code": {"c"}, "state": {q.Get("state")}} }

func TestBrowser_TakesOnlyTheAnswerToItsOwnLogin(t *testing.T) {
	stray := func(url.Values) url.Values { return url.Values{"code": {"stolen"}, "state": {"other"}} }
	nonce := ""
	for name, tt := range map[string]struct {
		change func(s *stage)
		visits []func(url.Values) url.Values
		want   string // part of the refusal; empty: a token
	}{
		"the right one after a stray one": {nil, []func(url.Values) url.Values{stray, right}, ""},
		"two at once":                     {nil, []func(url.Values) url.Values{right, right}, ""},
		"denied": {nil, []func(url.Values) url.Values{func(q url.Values) url.Values {
			return url.Values{"error": {"access_denied"}, "error_description": {"no"}, "state": {q.Get("state")}}
		}}, "access_denied: no"},
		"of another issuer": {nil, []func(url.Values) url.Values{func(q url.Values) url.Values {
			v := right(q)
			v.Set("iss", "https://evil.example.com")
			return v
		}}, "another issuer"},
		"another nonce":    {func(s *stage) { s.tokens = []http.HandlerFunc{s.giving(map[string]any{"nonce": "old"})} }, []func(url.Values) url.Values{right}, "another nonce"},
		"another audience": {func(s *stage) { s.tokens = []http.HandlerFunc{s.giving(map[string]any{"aud": "other"})} }, []func(url.Values) url.Values{right}, "another client"},
		"another iss":      {func(s *stage) { s.tokens = []http.HandlerFunc{s.giving(map[string]any{"iss": "https://x"})} }, []func(url.Values) url.Values{right}, "another issuer"},
		"a used code":      {func(s *stage) { s.tokens = []http.HandlerFunc{refusing("invalid_grant")} }, []func(url.Values) url.Values{right}, "invalid_grant: because"},
		"no id_token": {func(s *stage) {
			s.tokens = []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
				say(w, http.StatusOK, map[string]string{"access_token": "a"})
			}}
		}, []func(url.Values) url.Values{right}, "openid"},
	} {
		s := newStage(t)
		var seen url.Values
		s.tokens = []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) { s.giving(map[string]any{"nonce": nonce})(w, r) }}
		if tt.change != nil {
			tt.change(s)
		}
		visits := append([]func(url.Values) url.Values{}, tt.visits...)
		visits[0] = func(q url.Values) url.Values { nonce, seen = q.Get("nonce"), q; return tt.visits[0](q) }
		token, err := signin.Browser(t.Context(), s.config(back(t, visits...)))
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "eyJ") {
				t.Errorf("%s: got %v, want %q", name, err, tt.want)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(token.Reveal(), "eyJ") {
			t.Errorf("%s: got %v", name, err)
		}
		verifier := s.asked[0].Get("code_verifier")
		if seen.Get("tenant") != "a" || seen.Get("scope") != "openid email" || seen.Get("code_challenge_method") != "S256" || len(verifier) < 43 || strings.Contains(seen.Encode(), verifier) {
			t.Errorf("%s: it asked with %v", name, seen)
		}
	}
}

func TestBegin_NothingGoesOverANetworkInTheClear(t *testing.T) {
	for name, found := range map[string]map[string]any{
		"says that it is":       {"issuer": "https://other.example.com"},
		"token endpoint":        {"token_endpoint": "http://issuer.example.com/token"},
		"at which people log":   {"authorization_endpoint": "http://issuer.example.com/authorize"},
		"must begin with https": {"authorization_endpoint": "file:///etc/passwd"},
		"PKCE":                  {"code_challenge_methods_supported": []string{"plain"}},
	} {
		s := newStage(t)
		s.found = found
		_, err := signin.Browser(t.Context(), s.config(func(context.Context, string) error { t.Error("a browser was opened"); return nil }))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
	if _, err := signin.Device(t.Context(), signin.Config{Issuer: "http://issuer.example.com", ClientID: "cli"}); err == nil || !strings.Contains(err.Error(), "https://") {
		t.Errorf("an issuer in the clear: got %v", err)
	}
}

func TestBrowser_ALoginThatNobodyMakesEnds(t *testing.T) {
	s := newStage(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	_, err := signin.Browser(ctx, s.config(func(context.Context, string) error { cancel(enough); return errors.New("no display") }))
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}

func TestDevice_PollsAsTheIssuerSays(t *testing.T) {
	down := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	for name, tt := range map[string]struct {
		answers []http.HandlerFunc
		pauses  string
		want    string
	}{
		"at once":   {nil, "[2s]", ""},
		"pending":   {[]http.HandlerFunc{refusing("authorization_pending")}, "[2s 2s]", ""},
		"slow down": {[]http.HandlerFunc{refusing("slow_down"), refusing("authorization_pending")}, "[2s 7s 7s]", ""},
		"away":      {[]http.HandlerFunc{down, down}, "[2s 4s 8s]", ""},
		"denied":    {[]http.HandlerFunc{refusing("access_denied")}, "[2s]", "access_denied"},
		"expired":   {[]http.HandlerFunc{refusing("expired_token")}, "[2s]", "nobody entered the code"},
	} {
		s := newStage(t)
		s.tokens = append(slices.Clone(tt.answers), s.giving(nil))
		var pauses []time.Duration
		cfg := s.config(nil)
		cfg.Wait = func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }
		var said strings.Builder
		cfg.Say = func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }
		token, err := signin.Device(t.Context(), cfg)
		if tt.want == "" && (err != nil || token == redact.String{}) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if got := fmt.Sprint(pauses); got != tt.pauses {
			t.Errorf("%s: got pauses %s, want %s", name, got, tt.pauses)
		}
		if !strings.Contains(said.String(), "ABCD") || !strings.Contains(said.String(), "https://issuer.example.com/go") {
			t.Errorf("%s: it said %s", name, said.String())
		}
	}
	s := newStage(t)
	s.found = map[string]any{"device_authorization_endpoint": ""}
	if _, err := signin.Device(t.Context(), s.config(nil)); err == nil || !strings.Contains(err.Error(), "without --device") {
		t.Errorf("an issuer without device codes: got %v", err)
	}
}
