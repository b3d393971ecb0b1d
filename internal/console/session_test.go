package console_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// moving is a clock that a test moves.
type moving struct {
	mu sync.Mutex
	by time.Duration
}

func (m *moving) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.by)
}

func (m *moving) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.by += d
}

// timed makes the clock of the rules and of the pages one that moves.
func (m *moving) timed(rules *controlplane.Config, pages *console.Config) {
	rules.Now, pages.Now = m.now, m.now
}

func live(r *http.Request) { r.Header.Set(console.HeaderLive, "1") }

// status asks for a page and returns the status and where it leads.
func (s *site) status(path string, change ...func(*http.Request)) (int, string) {
	s.t.Helper()
	res, _ := s.do(http.MethodGet, path, nil, change...)
	return res.StatusCode, res.Header.Get("Location")
}

// person signs somebody in with a token of their own and returns the token's id.
func (s *site) person(name, role string) string {
	s.t.Helper()
	made, err := s.plane.CreateToken(s.t.Context(), s.admin, api.NewToken{Name: name, Role: role})
	s.must(err)
	s.signIn(made.Value)
	return made.Token.ID
}

func TestEnter_ASessionThatIsIdleEnds(t *testing.T) {
	var clock moving
	s := newSite(t, clock.timed)
	for range 2 {
		clock.advance(55 * time.Minute)
		if got, _ := s.status("/", live); got != http.StatusOK {
			t.Fatalf("a page that looks for updates got %d", got)
		}
	}
	clock.advance(11 * time.Minute)
	if got, to := s.status("/"); got != http.StatusSeeOther || to != "/signin" {
		t.Errorf("got %d to %s", got, to)
	}
	if got, to := s.status("/runs/r1?attempt=2"); got != http.StatusSeeOther || to != "/signin?next="+url.QueryEscape("/runs/r1?attempt=2") {
		t.Errorf("got %d to %s", got, to)
	}
	res, page := s.do(http.MethodGet, "/", nil, live)
	if res.StatusCode != http.StatusUnauthorized || !strings.Contains(page, "session has ended") || strings.Contains(page, "<html") {
		t.Errorf("a live part got %s %s", res.Status, page)
	}
}

func TestEnter_ASessionEndsAfterTwelveHoursHoweverBusy(t *testing.T) {
	var clock moving
	s := newSite(t, clock.timed)
	for range 11 {
		clock.advance(time.Hour)
		s.get("/")
	}
	clock.advance(59 * time.Minute)
	s.get("/")
	clock.advance(2 * time.Minute)
	if got, _ := s.status("/"); got != http.StatusSeeOther {
		t.Errorf("got %d", got)
	}
}

func TestEnter_ARevokedTokenEndsItsSession(t *testing.T) {
	var clock moving
	s := newSite(t, clock.timed)
	id := s.person("ann", api.RoleOperator)
	s.get("/")
	s.must(s.plane.RevokeToken(t.Context(), s.admin, id))
	if got, _ := s.status("/"); got != http.StatusSeeOther {
		t.Errorf("a page got %d", got)
	}
	clock.advance(5 * time.Second)
	if got, _ := s.status("/", live); got != http.StatusUnauthorized {
		t.Errorf("a live part got %d", got)
	}
}

func TestEnter_ManyLiveRequestsAreOneLookIntoTheStore(t *testing.T) {
	var clock moving
	s := newSite(t, clock.timed)
	id := s.person("ann", api.RoleViewer)
	s.get("/")
	s.must(s.plane.RevokeToken(t.Context(), s.admin, id))
	if got, _ := s.status("/", live); got != http.StatusOK {
		t.Errorf("a live part right after got %d: each looks into the store", got)
	}
}

func TestSignOut_EndsTheSessionAtOnce(t *testing.T) {
	s := newSite(t)
	s.get("/")
	to, status, _ := s.post("/signout", nil)
	if status != http.StatusSeeOther || to != "/signin" {
		t.Fatalf("got %d to %s", status, to)
	}
	if got, _ := s.status("/", live); got != http.StatusUnauthorized {
		t.Errorf("a live part got %d", got)
	}
	s.cookie = nil
	if page := s.get(to); !strings.Contains(page, "You are signed out.") {
		t.Errorf("got %s", page)
	}
}

func TestSignIn_AlwaysBeginsANewSessionAndEndsTheOld(t *testing.T) {
	s := newSite(t)
	old := s.cookie
	s.signIn(s.token)
	if s.cookie.Value == old.Value {
		t.Error("the session is the same")
	}
	s.get("/")
	s.cookie = old
	if got, _ := s.status("/"); got != http.StatusSeeOther {
		t.Errorf("the old session got %d", got)
	}
	s.cookie = &http.Cookie{Name: "dayfly", Value: "dfw_" + strings.Repeat("A", 43)} // planted by somebody else
	res, _ := s.do(http.MethodPost, "/signin", url.Values{"token": {s.token}})
	if k := cookieOf(res, "dayfly"); k == nil || k.Value == s.cookie.Value {
		t.Errorf("got %v", k)
	}
}

func TestSignIn_RefusesWhatIsNoUserToken(t *testing.T) {
	s := newSite(t)
	pool, err := s.plane.EnsurePoolToken(t.Context(), "default", "default", "other")
	s.must(err)
	session := s.cookie.Value
	s.cookie = nil
	for token, want := range map[string]string{"": "paste a token", "dfu_wrong": "not known here", pool: "token of pool default", session: "not known here"} {
		res, page := s.do(http.MethodPost, "/signin", url.Values{"token": {token}})
		if res.StatusCode < 400 || !strings.Contains(page, want) || len(res.Cookies()) > 0 || token != "" && strings.Contains(page, token) {
			t.Errorf("%.4s: got %s, want %q in\n%s", token, res.Status, want, page)
		}
	}
}

func TestSignIn_FailedTriesShareTheLimitOfTheAPI(t *testing.T) {
	still := time.Now()
	s := newSite(t, func(_ *controlplane.Config, pages *console.Config) {
		pages.Gate = admission.New(admission.Rates{Failures: 1}, func() time.Time { return still })
	})
	session := s.cookie
	for n := range 61 {
		res, _ := s.do(http.MethodPost, "/signin", url.Values{"token": {"dfu_wrong"}})
		if want := map[bool]int{false: http.StatusUnauthorized, true: http.StatusTooManyRequests}[n == 60]; res.StatusCode != want {
			t.Fatalf("try %d: got %s", n, res.Status)
		}
		if after := res.Header.Get("Retry-After"); (after != "") != (n == 60) {
			t.Errorf("try %d: Retry-After is %q", n, after)
		}
	}
	s.cookie = session
	s.get("/")
	s.signIn(s.token)
}

func TestCookie_IsForThisHostAndNoScript(t *testing.T) {
	for name, tt := range map[string]struct {
		pages        console.Config
		cookie, path string
		secure       bool
	}{
		"loopback":      {console.Config{}, "dayfly", "/", false},
		"over TLS":      {console.Config{HTTPS: true}, "__Host-dayfly", "/", true},
		"behind":        {console.Config{PublicURL: "https://dayfly.example.com/"}, "__Host-dayfly", "/", true},
		"below a stage": {console.Config{HTTPS: true, Base: "/api"}, "dayfly", "/api/", true},
	} {
		s := newSite(t)
		c := console.New(s.plane, tt.pages)
		s.server.Config.Handler = c
		res, page := s.do(http.MethodPost, "/signin", url.Values{"token": {s.token}})
		k := cookieOf(res, tt.cookie)
		if k == nil || !k.HttpOnly || k.Secure != tt.secure || k.Path != tt.path || k.SameSite != http.SameSiteLaxMode || k.Domain != "" {
			t.Errorf("%s: got %v, %s %s", name, res.Header["Set-Cookie"], res.Status, page)
		}
		if got, want := res.Header.Get("Location"), path.Join(tt.path, "/")+map[bool]string{true: "/"}[tt.path != "/"]; got != want {
			t.Errorf("%s: goes on to %s, want %s", name, got, want)
		}
		if got := res.Header.Get("Strict-Transport-Security") != ""; got != tt.secure {
			t.Errorf("%s: HSTS is %t", name, got)
		}
	}
}

// A notice is for the person who acted, on the page that the action leads to, once.
func TestNotice_IsShownOnceToWhoActed(t *testing.T) {
	s := newSite(t, func(_ *controlplane.Config, pages *console.Config) { pages.Base = "/api" })
	s.guarded("net", api.Approval{Required: true})
	w := s.submit("net", workflow.Update)
	s.preview(api.Changes{Add: 1})
	const said = "Your approval is recorded."
	path := "/runs/" + w.ID
	res, page := s.do(http.MethodPost, path+"/approve", url.Values{"sha256": {planSum}})
	if k := s.notice; res.Header.Get("Location") != "/api"+path || k == nil || !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/api/" || k.MaxAge < 1 || k.MaxAge > 60 {
		t.Fatalf("%s goes on to %s with %v: %s", res.Status, res.Header.Get("Location"), k, page)
	}
	left := s.notice
	s.notice = nil
	for _, link := range []string{path + "?done=approved", "/signin?done=approved", "/?notice=approved"} {
		shows(t, s.get(link), "!"+said)
	}
	s.notice = left
	shows(t, s.get("/runs"), "!"+said) // another tab
	if _, page := s.do(http.MethodGet, path, nil, live); strings.Contains(page, said) {
		t.Error("a page that looks for updates takes the notice")
	}
	s.do(http.MethodHead, path, nil)
	shows(t, s.get(path), said)
	shows(t, s.get(path), "!"+said)
	s.notice = &http.Cookie{Name: left.Name, Value: "hacked:" + path}
	shows(t, s.get(path), "!hacked")
}

func TestGuard_RefusesOtherSitesAndNames(t *testing.T) {
	s := newSite(t, func(_ *controlplane.Config, pages *console.Config) {
		pages.Hosts = []string{"127.0.0.1", "localhost", "::1", "dayfly.example.com"}
		pages.PublicURL = "https://dayfly.example.com"
	})
	origin := func(o string) func(*http.Request) { return func(r *http.Request) { r.Header.Set("Origin", o) } }
	site := func(v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", v) } }
	for _, tt := range []struct {
		change func(*http.Request)
		want   int
	}{
		{origin("https://evil.example.com"), 403}, {origin("null"), 403}, {site("cross-site"), 403}, {site("same-site"), 403},
		{origin(s.server.URL), 303}, {origin("https://dayfly.example.com"), 303}, {site("same-origin"), 303},
	} {
		if res, _ := s.do(http.MethodPost, "/signin", url.Values{"token": {s.token}}, tt.change); res.StatusCode != tt.want {
			t.Errorf("got %s, want %d", res.Status, tt.want)
		}
	}
	for host, want := range map[string]int{
		"127.0.0.1:7331": 200, "localhost": 200, "[::1]:7331": 200, "[::1]": 200, "DAYFLY.example.com.": 200, "evil.example.com:7331": 421, "127.0.0.1.evil.example.com": 421, "": 421,
	} {
		req := func(r *http.Request) { r.Host = host }
		if host == "" {
			req = func(r *http.Request) { r.Host = "." }
		}
		if got, _ := s.status("/signin", req); got != want {
			t.Errorf("%q: got %d, want %d", host, got, want)
		}
	}
	s.server.Config.Handler = console.New(s.plane, console.Config{Closed: "start it with --public-url"})
	if res, page := s.do(http.MethodGet, "/", nil); res.StatusCode != http.StatusForbidden || !strings.Contains(page, "start it with --public-url") {
		t.Errorf("closed: got %s %s", res.Status, page)
	}
}

func TestCheckPublicURL(t *testing.T) {
	for address, good := range map[string]bool{
		"https://dayfly.example.com": true, "https://x.example.com:8443/api": true, "http://127.0.0.1:7331": true, "http://[::1]:1": true, "http://localhost": true,
		"http://dayfly.example.com": false, "dayfly.example.com": false, "https://": false, "https://u:p@x": false, "https://x?y": false, "https://x#y": false, "ftp://x": false, "%": false, "": false,
	} {
		if err := console.CheckPublicURL("--public-url", address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestOneTimeLink_WorksOnceWithinTenMinutes(t *testing.T) {
	var clock moving
	var log bytes.Buffer
	s := newSite(t, clock.timed, func(_ *controlplane.Config, pages *console.Config) {
		pages.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s.cookie = nil
	link := s.console.OneTimeLink(redact.New(s.token))
	code := strings.TrimPrefix(link, "/signin?once=")
	if len(code) < 43 {
		t.Fatalf("the code has %d characters", len(code))
	}
	for range 2 { // looking uses nothing up
		res, page := s.do(http.MethodGet, link, nil)
		if !strings.Contains(page, "Open the console") || res.Header.Get("Referrer-Policy") != "no-referrer" || res.Header.Get("Cache-Control") != "no-store" || len(res.Cookies()) > 0 {
			t.Errorf("got %v %s", res.Header, page)
		}
	}
	res, page := s.do(http.MethodPost, "/signin", url.Values{"once": {code}})
	s.cookie = cookieOf(res, "dayfly")
	if to := res.Header.Get("Location"); s.cookie == nil || to != "/" || strings.Contains(page, code) {
		t.Fatalf("got %s to %s", res.Status, to)
	}
	home := s.get("/")
	if !strings.Contains(home, "signed in as") || strings.Contains(home, code) || strings.Contains(home, s.cookie.Value) || strings.Contains(home, s.token) {
		t.Errorf("got %s", home)
	}
	s.cookie = nil
	again, page := s.do(http.MethodPost, "/signin", url.Values{"once": {code}})
	if again.StatusCode != http.StatusUnauthorized || len(again.Cookies()) > 0 || !strings.Contains(page, "this link was used before") {
		t.Errorf("again: got %s", again.Status)
	}
	if got, page := s.do(http.MethodGet, link, nil); got.StatusCode != http.StatusNotFound || strings.Contains(page, code) {
		t.Errorf("the page of a used link: %s %s", got.Status, page)
	}
	late := s.console.OneTimeLink(redact.New(s.token))
	clock.advance(11 * time.Minute)
	if res, _ := s.do(http.MethodPost, "/signin", url.Values{"once": {strings.TrimPrefix(late, "/signin?once=")}}); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("late: got %s", res.Status)
	}
	if text := log.String(); strings.Contains(text, code) || strings.Contains(text, "dfw_") || strings.Contains(text, "dfu_") {
		t.Errorf("the log holds a secret:\n%s", text)
	}
}

// withIssuer is a site whose people log in with an issuer.
func withIssuer(t *testing.T, change ...func(*controlplane.Config, *console.Config)) (*site, *provider.Provider) {
	t.Helper()
	p := provider.Start(t, "ES256")
	issuers, err := oidc.New(oidc.Config{Private: []string{"127.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, append(change, func(rules *controlplane.Config, _ *console.Config) { rules.Issuers = issuers })...)
	_, _, err = s.plane.Issuers.Put(t.Context(), s.admin, api.Issuer{
		Name: "idp", URL: p.URL, Login: &api.IssuerLogin{ClientID: p.ClientID},
		Rules: []api.TrustRule{{Claims: map[string]string{"sub": "alice"}, Becomes: api.KindUser, Role: api.RoleViewer}},
	})
	s.must(err)
	s.cookie = nil
	return s, p
}

// atIssuer begins a login and lets the issuer approve it; it returns the browser's cookies and the address that it is sent back to.
func (s *site) atIssuer(change func(url.Values)) (kept *http.Cookie, back string) {
	s.t.Helper()
	res, page := s.do(http.MethodGet, "/signin/oidc?issuer=idp&next=%2Fruns%3Fstate%3Dfailed", nil)
	kept = cookieOf(res, "dayfly-login")
	at, err := url.Parse(res.Header.Get("Location"))
	s.must(err)
	if kept == nil || at.Path != "/authorize" {
		s.t.Fatalf("got %s %s", res.Status, page)
	}
	q := at.Query()
	if change != nil {
		change(q)
	}
	at.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, at.String(), nil)
	s.must(err)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(req)
	s.must(err)
	s.must(answer.Body.Close())
	to, err := url.Parse(answer.Header.Get("Location"))
	s.must(err)
	return kept, to.RequestURI()
}

func TestOIDC_APersonSignsInWithAnIssuer(t *testing.T) {
	s, _ := withIssuer(t)
	if page := s.get("/signin"); !strings.Contains(page, "Sign in with idp") {
		t.Errorf("got %s", page)
	}
	kept, back := s.atIssuer(nil)
	if !kept.HttpOnly || kept.SameSite != http.SameSiteLaxMode || kept.MaxAge != 600 {
		t.Errorf("got %v", kept)
	}
	s.cookie = kept
	res, page := s.do(http.MethodGet, back, nil)
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/runs?state=failed" {
		t.Fatalf("got %s to %s\n%s", res.Status, res.Header.Get("Location"), page)
	}
	if dropped := cookieOf(res, "dayfly-login"); dropped == nil || dropped.MaxAge >= 0 {
		t.Errorf("the browser's cookies are still there: %v", dropped)
	}
	again, _ := s.do(http.MethodGet, back, nil) // as a thief of all of it would
	if again.StatusCode != http.StatusUnauthorized || cookieOf(again, "dayfly") != nil {
		t.Errorf("the same answer again: got %s", again.Status)
	}
	s.cookie = cookieOf(res, "dayfly")
	if home := s.get("/"); !strings.Contains(home, "signed in as idp/alice") {
		t.Errorf("got %s", home)
	}
}

func TestOIDC_TakesOnlyTheAnswerToItsOwnLogin(t *testing.T) {
	for name, tt := range map[string]struct {
		begin  func(url.Values)         // changes the request to the issuer
		answer func(back string) string // changes its answer
		none   bool                     // the browser keeps nothing
		late   time.Duration
		want   int
	}{
		"another state":  {answer: func(b string) string { return strings.Replace(b, "state=", "state=x", 1) }, want: 422},
		"no state":       {answer: func(string) string { return "/signin/callback?code=x" }, want: 422},
		"another nonce":  {begin: func(q url.Values) { q.Set("nonce", "old") }, want: 401},
		"another code":   {answer: func(b string) string { return strings.Replace(b, "code=", "code=x", 1) }, want: 401},
		"another issuer": {answer: func(b string) string { return strings.Replace(b, "iss=", "iss=x", 1) }, want: 401},
		"denied":         {begin: func(q url.Values) { q.Set("scope", "email") }, want: 401},
		"no cookie":      {none: true, want: 422},
		"too late":       {late: 11 * time.Minute, want: 422},
	} {
		var clock moving
		s, _ := withIssuer(t, func(_ *controlplane.Config, pages *console.Config) { pages.Now = clock.now })
		kept, back := s.atIssuer(tt.begin)
		if tt.answer != nil {
			back = tt.answer(back)
		}
		if s.cookie = kept; tt.none {
			s.cookie = nil
		}
		clock.advance(tt.late)
		res, page := s.do(http.MethodGet, back, nil)
		if res.StatusCode != tt.want || cookieOf(res, "dayfly") != nil || !strings.Contains(page, "Not done.") {
			t.Errorf("%s: got %s, want %d\n%s", name, res.Status, tt.want, page)
		}
	}
}

func TestOIDC_CallsNoPrivateAddressThatIsNotListed(t *testing.T) {
	s, p := withIssuer(t)
	strict := controlplane.New(s.store, controlplane.Config{})
	s.server.Config.Handler = console.New(strict, console.Config{})
	res, page := s.do(http.MethodGet, "/signin/oidc?issuer=idp", nil)
	if res.StatusCode < 400 || p.Asked("/.well-known/openid-configuration") != 0 {
		t.Errorf("got %s\n%s", res.Status, page)
	}
	if res, _ := s.do(http.MethodGet, "/signin/oidc?issuer=other", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("an issuer that is not there: %s", res.Status)
	}
}

func FuzzOwnPath_LeadsNowhereElse(f *testing.F) {
	for _, next := range []string{
		"/runs?state=failed", "//evil.example.com", "/\\evil.example.com", "https://evil.example.com", "/\t/evil.example.com", "javascript:alert(1)", "/%2f/evil", "/%5cevil", "/signin?next=/",
		"/.//evil.example.com", "/a/..//evil.example.com", "/%09/evil", "\\\\evil", "/runs#x", "/?a=\n", "",
	} {
		f.Add(next)
	}
	base, _ := url.Parse("https://dayfly.example.com/signin")
	f.Fuzz(func(t *testing.T, next string) {
		got := console.OwnPath(next)
		u, err := url.Parse(got)
		if err != nil || !strings.HasPrefix(got, "/") || strings.HasPrefix(got, "//") || strings.ContainsAny(got, "\\\r\n\t\x00") {
			t.Fatalf("%q became %q", next, got)
		}
		to := base.ResolveReference(u)
		if to.Host != base.Host || to.Scheme != base.Scheme || strings.HasPrefix(path.Clean(to.Path), "/sign") && strings.HasPrefix(u.Path, "/sign") {
			t.Errorf("%q leads to %s", next, to)
		}
	})
}
