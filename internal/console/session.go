package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// HeaderLive marks the requests of a page that looks for updates. They are not a person's, and get no redirect.
const HeaderLive = "Dayfly-Live"

// liveTrust is how long the requests of one session that look for updates are answered by one look into the store.
const liveTrust = 3 * time.Second

// guard refuses requests that no page of ours makes. The API is not behind it: its callers show a token.
func (c *Console) guard(r *http.Request) *api.Problem {
	refuse := func(status int, detail string) *api.Problem {
		return &api.Problem{Status: status, Title: http.StatusText(status), Detail: detail}
	}
	switch {
	case c.cfg.Closed != "":
		return refuse(http.StatusForbidden, c.cfg.Closed)
	case len(c.cfg.Hosts) > 0 && !slices.Contains(c.cfg.Hosts, hostOf(r.Host)):
		// Some site has let its name lead to this machine: its pages would read ours.
		return refuse(http.StatusMisdirectedRequest, "these pages are not served under this name; use the address that --public-url says, or that of this machine")
	case c.origins.Check(r) != nil:
		return refuse(http.StatusForbidden, "this request comes from another site; open the page here and do it there")
	}
	return nil
}

// hostOf is the name in a Host header, without the port.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// secure says whether the browser came over TLS: to us, or to a proxy in front of us.
func (c *Console) secure(r *http.Request) bool {
	return r.TLS != nil || c.cfg.HTTPS || strings.HasPrefix(c.cfg.PublicURL, "https://")
}

// address is where browsers reach a path of the console.
func (c *Console) address(r *http.Request, path string) string {
	if c.cfg.PublicURL != "" {
		return c.cfg.PublicURL + path
	}
	scheme := "http://"
	if c.secure(r) {
		scheme = "https://"
	}
	return scheme + r.Host + c.cfg.Base + path
}

// cookie makes a cookie that only this host gets back, and no script sees. An empty value deletes it.
func (c *Console) cookie(r *http.Request, name, value string) *http.Cookie {
	//nolint:gosec // Secure where the browser came over TLS; on this machine there may be none
	k := &http.Cookie{Name: c.cookieName(r, name), Value: value, Path: c.cfg.Base + "/", Secure: c.secure(r), HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if value == "" {
		k.MaxAge = -1
	}
	return k
}

// cookieName has the prefix by which a browser takes the cookie from this host alone, where that can be.
func (c *Console) cookieName(r *http.Request, name string) string {
	if c.secure(r) && c.cfg.Base == "" {
		return "__Host-" + name
	}
	return name
}

const sessionCookie = "dayfly"

// value returns the value of a request's cookie; empty if it has none.
func (c *Console) value(r *http.Request, name string) string {
	k, err := r.Cookie(c.cookieName(r, name))
	if err != nil {
		return ""
	}
	return k.Value
}

// enter makes the view of the signed-in person. If nobody is, it answers, and ok is false.
func (c *Console) enter(w http.ResponseWriter, r *http.Request) (v *view, ok bool) {
	v = c.blank(r)
	live := r.Header.Get(HeaderLive) != ""
	who, err := c.whose(r, live)
	switch {
	case err == nil:
		v.who = who
		return v, true
	case !errors.Is(err, workflow.ErrUnauthenticated) && !errors.Is(err, workflow.ErrRevoked):
		c.fail(w, r, v, err)
	case live:
		c.write(w, r, sessionOver(v), http.StatusUnauthorized)
	default:
		to := "/signin"
		if next := ownPath(v.url); next != "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			to += "?" + url.Values{"next": {next}}.Encode()
		}
		http.Redirect(w, r, string(v.to(to)), http.StatusSeeOther)
	}
	return v, false
}

// whose finds out whose session a request is of. Its calls are counted as those of a token are.
func (c *Console) whose(r *http.Request, live bool) (who controlplane.Principal, err error) {
	value := c.value(r, sessionCookie)
	if value == "" {
		return who, workflow.Refuse(workflow.ErrUnauthenticated, "", "sign in")
	}
	err = c.cfg.Gate.Identify(r.Context(), admission.Address(r.RemoteAddr), value, func(ctx context.Context, value string) (organization string, err error) {
		known := false
		if live {
			who, known = c.recent.get(value, c.cfg.Now())
		}
		if !known {
			who, err = c.plane.Session(ctx, value, !live)
			if err == nil {
				c.recent.put(value, who, c.cfg.Now())
			}
		}
		return who.Organization, err
	})
	return who, err
}

// ownPath returns where to go on to after signing in: a path of the console, or / in place of anything else. It is a
// pure function.
func ownPath(next string) string {
	const most = 2000
	u, err := url.Parse(next)
	if err != nil || len(next) > most || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.HasPrefix(u.Path, "//") || u.IsAbs() || u.Host != "" ||
		strings.ContainsFunc(next+u.Path, func(r rune) bool { return r == '\\' || r < ' ' || r == 0x7f }) || strings.HasPrefix(u.Path, "/sign") {
		return "/"
	}
	return next
}

// start begins a session with a token and ends the one that the browser had.
func (c *Console) start(w http.ResponseWriter, r *http.Request, token string) error {
	value, err := c.plane.SignIn(r.Context(), token)
	if err != nil {
		return err
	}
	if old := c.value(r, sessionCookie); old != "" {
		if err := c.end(r.Context(), old); err != nil {
			c.cfg.Log.WarnContext(r.Context(), "earlier session not ended", "err", err)
		}
	}
	http.SetCookie(w, c.cookie(r, sessionCookie, value))
	return nil
}

// end ends a session.
func (c *Console) end(ctx context.Context, value string) error {
	c.recent.end(value, c.cfg.Now())
	return c.plane.SignOut(ctx, value)
}

// signOut ends the session of the browser.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if err := c.end(r.Context(), c.value(r, sessionCookie)); err != nil {
		c.fail(w, r, c.blank(r), err)
		return
	}
	http.SetCookie(w, c.cookie(r, sessionCookie, ""))
	c.goOn(w, r, "/signin", "signed-out")
}

const (
	noticeCookie = "dayfly-notice"
	noticeLife   = time.Minute // in which the browser comes for it
)

// goOn sends the browser that acted on to a path, with a notice for that path alone: another tab of the same person
// must not take it, and no link can bring one.
func (c *Console) goOn(w http.ResponseWriter, r *http.Request, to, notice string) {
	if notice != "" {
		k := c.cookie(r, noticeCookie, notice+":"+to) //nolint:gosec // as all cookies here: see cookie
		k.MaxAge, k.SameSite = int(noticeLife.Seconds()), http.SameSiteStrictMode
		http.SetCookie(w, k)
	}
	http.Redirect(w, r, string(c.blank(r).to(to)), http.StatusSeeOther) //nolint:gosec // it begins with the path of one of our pages
}

// noticed takes the notice that was left for a page, if one was. A page that looks for updates does not take it.
func (c *Console) noticed(w http.ResponseWriter, r *http.Request) string {
	word, to, _ := strings.Cut(c.value(r, noticeCookie), ":")
	if to != r.URL.EscapedPath() || r.Method != http.MethodGet || r.Header.Get(HeaderLive) != "" {
		return ""
	}
	http.SetCookie(w, c.cookie(r, noticeCookie, ""))
	return notices[word]
}

// recent remembers for seconds the principal of a session, so that many pages that look for updates cost few reads.
type recent struct {
	mu    sync.Mutex
	known map[string]looked
}

type looked struct {
	who   controlplane.Principal
	ended bool // the session was ended here
	until time.Time
}

const maxRecent = 10_000 // sessions; a full map is cleared

func (s *recent) get(value string, now time.Time) (controlplane.Principal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.known[value]
	return l.who, ok && !l.ended && now.Before(l.until)
}

func (s *recent) put(value string, who controlplane.Principal, now time.Time) {
	s.set(value, looked{who: who, until: now.Add(liveTrust)}, now)
}

// end forgets a session. A look that began before does not bring it back.
func (s *recent) end(value string, now time.Time) {
	s.set(value, looked{ended: true, until: now.Add(time.Minute)}, now)
}

func (s *recent) set(value string, l looked, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.known[value]; was.ended && now.Before(was.until) {
		return
	}
	if s.known == nil || len(s.known) >= maxRecent {
		s.known = map[string]looked{}
	}
	s.known[value] = l
}
