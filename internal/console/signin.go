package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	linkLife    = 10 * time.Minute // of a one-time link
	loginLife   = 10 * time.Minute // in which a person logs in with an issuer
	loginCookie = "dayfly-login"
)

func (c *Console) signInRoutes() {
	open := func(pattern string, handle http.HandlerFunc) {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Referrer-Policy", "no-referrer") // addresses here can hold a code
			handle(w, r)
		})
	}
	open("GET /signin", func(w http.ResponseWriter, r *http.Request) { c.askIn(w, r, nil) })
	open("POST /signin", c.signIn)
	open("GET /signin/oidc", c.toIssuer)
	open("GET /signin/callback", c.fromIssuer)
	open("POST /signout", c.signOut)
}

// askIn shows how to sign in, and why the last try was refused.
func (c *Console) askIn(w http.ResponseWriter, r *http.Request, refused error) {
	v := c.blank(r)
	v.title, v.notice = "Sign in", c.noticed(w, r)
	in, status := signInForm{next: ownPath(r.FormValue("next"))}, http.StatusOK
	if refused != nil {
		p := api.ProblemFor(refused)
		if status = p.Status; status == http.StatusInternalServerError {
			c.fail(w, r, v, refused)
			return
		}
		v.wrong = p.Detail
		sayWait(w, refused)
	} else if code := r.URL.Query().Get("once"); code != "" {
		if in.once = code; !c.links.has(code, c.cfg.Now()) {
			in.once, v.wrong, status = "", errUsed.Error(), http.StatusNotFound
		}
	}
	c.show(w, r, v, func(r *http.Request, v *view) (templ.Component, error) {
		options, err := c.plane.LoginOptions(r.Context(), c.cfg.Organization)
		in.issuers = options.Issuers
		return signInPage(v, in), err
	}, status)
}

// signInForm is the content of the page of sign-in.
type signInForm struct {
	issuers []api.LoginOption
	next    string
	once    string // code of a one-time link
}

// oidcPath is the address at which a login with an issuer begins.
func (f signInForm) oidcPath(issuer string) string {
	return "/signin/oidc?" + url.Values{"issuer": {issuer}, "next": {f.next}}.Encode()
}

var errUsed = workflow.Refuse(workflow.ErrUnauthenticated, "once", "this link was used before, or it has expired; dayfly up prints a new one when it starts")

// signIn begins a session with a token that was typed in, or with the code of a one-time link.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		c.askIn(w, r, workflow.Refuse(workflow.ErrInvalid, "", "the form cannot be read"))
		return
	}
	c.admit(w, r, r.PostForm.Get("next"), func() (string, error) {
		if code := r.PostForm.Get("once"); code != "" {
			token, ok := c.links.take(code, c.cfg.Now())
			if !ok {
				return "", errUsed
			}
			return token.Reveal(), nil
		}
		token := strings.TrimSpace(r.PostForm.Get("token"))
		if token == "" {
			return "", workflow.Refuse(workflow.ErrInvalid, "token", "paste a token: dayfly token create makes one")
		}
		return token, nil
	})
}

// admit begins a session with the token that prove returns, and goes on to a page. Failed tries of an address count
// together with those at the API.
func (c *Console) admit(w http.ResponseWriter, r *http.Request, next string, prove func() (token string, err error)) {
	err := c.cfg.Gate.SignIn(r.Context(), admission.Address(r.RemoteAddr), func() error {
		token, err := prove()
		if err != nil {
			return err
		}
		return c.start(w, r, token)
	})
	if err != nil {
		c.askIn(w, r, err)
		return
	}
	http.Redirect(w, r, string(c.blank(r).to(ownPath(next))), http.StatusSeeOther)
}

// login is the cookie of a browser while its person logs in with an issuer.
type login struct {
	Issuer string      `json:"issuer"`
	Next   string      `json:"next"`
	Until  time.Time   `json:"until"`
	Ticket oidc.Ticket `json:"ticket"`
}

// toIssuer sends the browser to an issuer.
func (c *Console) toIssuer(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	in := login{Issuer: q.Get("issuer"), Next: ownPath(q.Get("next")), Until: c.cfg.Now().Add(loginLife), Ticket: oidc.NewTicket()}
	flow, err := c.plane.LoginWith(r.Context(), c.cfg.Organization, in.Issuer)
	var to string
	if err == nil {
		to, err = flow.Authorize(c.address(r, "/signin/callback"), in.Ticket)
	}
	if err != nil {
		c.askIn(w, r, c.noLogin(r, in.Issuer, err))
		return
	}
	kept, _ := json.Marshal(in)                                               // of text and a time: it cannot fail
	k := c.cookie(r, loginCookie, base64.RawURLEncoding.EncodeToString(kept)) //nolint:gosec // as all cookies here: see cookie
	k.MaxAge = int(loginLife.Seconds())
	http.SetCookie(w, k)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// fromIssuer takes the answer that an issuer sent the browser back with. The browser's cookie for it serves once.
func (c *Console) fromIssuer(w http.ResponseWriter, r *http.Request) {
	var in login
	kept, err := base64.RawURLEncoding.DecodeString(c.value(r, loginCookie))
	http.SetCookie(w, c.cookie(r, loginCookie, ""))
	answer := r.URL.Query()
	if err != nil || json.Unmarshal(kept, &in) != nil || !c.cfg.Now().Before(in.Until) || in.Ticket.State == "" ||
		subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(in.Ticket.State)) != 1 {
		c.askIn(w, r, workflow.Refuse(workflow.ErrInvalid, "state", "this is not the answer to a login that this browser began, or it came too late; begin again"))
		return
	}
	c.admit(w, r, in.Next, func() (string, error) {
		ctx := r.Context()
		flow, err := c.plane.LoginWith(ctx, c.cfg.Organization, in.Issuer)
		if err != nil {
			return "", c.noLogin(r, in.Issuer, err)
		}
		token, err := flow.Redeem(ctx, answer, c.address(r, "/signin/callback"), in.Ticket)
		if err != nil {
			return "", c.noLogin(r, in.Issuer, err)
		}
		out, err := c.plane.IssueToken(ctx, api.TokenRequest{
			GrantType: api.GrantExchange, Audience: api.OrganizationPrefix + c.cfg.Organization, SubjectToken: token.Reveal(), SubjectTokenType: api.TokenTypeID,
			RequestedTokenType: api.TokenTypePrefix + api.KindUser, Expiration: int(api.MaxLifetime.Seconds()),
		})
		return out.AccessToken, err
	})
}

// noLogin words a failure of an issuer. Errors that are no refusals are in the log only.
func (c *Console) noLogin(r *http.Request, issuer string, err error) error {
	if _, ours := errors.AsType[*workflow.Error](err); ours {
		return err
	}
	c.cfg.Log.WarnContext(r.Context(), "login with an issuer failed", "issuer", issuer, "err", err)
	if said, ok := errors.AsType[*oidc.Refusal](err); ok {
		return workflow.Refuse(workflow.ErrUnauthenticated, "", "%v", said)
	}
	return workflow.Refuse(workflow.ErrUnauthenticated, "", "the login with %s did not succeed; begin again. The control plane's log says why", issuer)
}

// links are the one-time links that wait to be used. They are kept in memory only: a restart ends them.
type links struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]link
}

type link struct {
	token redact.String
	until time.Time
}

// OneTimeLink returns the path of a link that signs in with a token: once, within ten minutes.
func (c *Console) OneTimeLink(token redact.String) string {
	code, now := rand.Text()+rand.Text(), c.cfg.Now()
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	maps.DeleteFunc(c.links.open, func(_ [sha256.Size]byte, l link) bool { return !now.Before(l.until) })
	if c.links.open == nil {
		c.links.open = map[[sha256.Size]byte]link{}
	}
	c.links.open[sha256.Sum256([]byte(code))] = link{token, now.Add(linkLife)}
	return "/signin?once=" + code
}

// has says whether a code is good, and leaves it so.
func (l *links) has(code string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.open[sha256.Sum256([]byte(code))].until)
}

// take returns the token of a code, once.
func (l *links) take(code string, now time.Time) (redact.String, bool) {
	key := sha256.Sum256([]byte(code))
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.open[key]
	delete(l.open, key)
	return one.token, now.Before(one.until)
}
