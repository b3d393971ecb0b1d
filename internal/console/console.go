// Package console is the web pages of the control plane: running and waiting runs, plans, logs, pools. It calls the same
// functions as the API, with the authority of the person who signed in, and the same audit: nothing can be done here
// that the API cannot do. Pages are rendered on the server and work without script. It decides nothing about workflows
// and nothing about roles: that is for the rules.
package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Config says where and how the pages are served. The zero value works.
type Config struct {
	Log     *slog.Logger     // nil means no log
	Version string           // shown at the foot of each page; empty means "dev"
	Now     func() time.Time // nil means time.Now

	// Access.
	Organization string          // whose people sign in with an issuer; empty means "default"
	Gate         *admission.Gate // bounds people's requests, together with the API's if that has the same; nil bounds none
	Closed       string          // why no page is served; empty means that they are

	// Where browsers are.
	PublicURL string   // such as https://dayfly.example.com; empty means the address that a request has
	Base      string   // a path before each address that a proxy takes away, such as /api; empty means the path of PublicURL
	HTTPS     bool     // browsers come over TLS, although requests do not show it
	Hosts     []string // names under which the pages are served, without ports; none means any

	// Bounds of one request.
	Wait     time.Duration // the longest that it waits for lines of a log; 0 means 20 s
	Waiting  int           // how many of this process wait at once; 0 means 1,000. Others are told when to ask again
	Download int64         // bytes of a log that is downloaded; 0 means all. Lambda answers with at most 6 MB
}

const (
	defaultWait = 20 * time.Second
	maxWaiting  = 1000
	maxForm     = 64 << 10 // bytes of a form
)

// Console is the handler of the pages. Its methods may be called concurrently.
type Console struct {
	plane *controlplane.Plane
	cfg   Config
	mux   *http.ServeMux

	origins *http.CrossOriginProtection
	recent  recent
	links   links
	looks   looks
}

// New returns the pages over plane.
func New(plane *controlplane.Plane, cfg Config) *Console {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Version = cmp.Or(cfg.Version, "dev")
	cfg.Wait, cfg.Waiting = cmp.Or(cfg.Wait, defaultWait), cmp.Or(cfg.Waiting, maxWaiting)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Organization = cmp.Or(cfg.Organization, "default")
	if cfg.Gate == nil {
		cfg.Gate = admission.New(admission.Rates{}, nil)
	}
	cfg.PublicURL = strings.TrimRight(cfg.PublicURL, "/")
	c := &Console{plane: plane, mux: http.NewServeMux(), origins: http.NewCrossOriginProtection()}
	if u, err := url.Parse(cfg.PublicURL); err == nil && u.Host != "" {
		cfg.Base = cmp.Or(cfg.Base, u.Path)
		_ = c.origins.AddTrustedOrigin(u.Scheme + "://" + u.Host) // without it the pages are those of the address that a request has
	}
	c.cfg = cfg
	c.assetRoutes()
	c.signInRoutes()
	c.get("/{$}", home)
	c.get("/runs", runs)
	c.get("/workspaces", workspaces)
	c.get("/workspaces/{name}", workspace)
	c.post("/workspaces/{name}/runs", newRun, workspace)
	c.post("/workspaces/{name}/unlock", unlock, workspace)
	c.get("/pools", pools)
	c.mux.HandleFunc("GET /find", c.find)
	c.get("/runs/{id}", c.run)
	c.post("/runs/{id}/approve", decide(plane.Approve, "approved"), c.run)
	c.post("/runs/{id}/reject", decide(plane.Reject, "rejected"), c.run)
	c.post("/runs/{id}/cancel", c.cancel, c.run)
	c.post("/runs/{id}/retry", c.retry, c.run)
	c.mux.HandleFunc("GET /runs/{id}/live", c.live)
	c.mux.HandleFunc("GET /runs/{id}/log", c.download)
	return c
}

// CheckPublicURL refuses a value that cannot be a Config's PublicURL.
func CheckPublicURL(field, address string) error {
	u, err := url.Parse(address)
	here := err == nil && outbound.Loopback(u.Hostname())
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return workflow.Refuse(workflow.ErrInvalid, field, "want the address at which people reach the pages, such as https://dayfly.example.com")
	case u.Scheme == "http" && !here:
		return workflow.Refuse(workflow.ErrInvalid, field, "begins with https://: over http:// others could read along; http:// is only for this machine")
	}
	return nil
}

// Beside returns a handler that serves the API below its own addresses and the pages at all others.
func (c *Console) Beside(apiHandler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; p == "/healthz" || p == "/openapi.json" || p == "/v1" || strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, "/schemas/") {
			apiHandler.ServeHTTP(w, r)
			return
		}
		c.ServeHTTP(w, r)
	})
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store") // assets set their own
	if host := hostOf(r.Host); c.secure(r) && host != "localhost" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	defer c.recovered(w, r)
	if p := c.guard(r); p != nil {
		v := c.blank(r)
		v.title = p.Title
		c.write(w, r, document(v, failure(v, *p)), p.Status)
		return
	}
	c.mux.ServeHTTP(w, r)
}

// recovered turns a panic into a page: one broken page must not end the process that serves all others.
func (c *Console) recovered(w http.ResponseWriter, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	c.fail(w, r, c.blank(r), fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
}

// page reads the content of an address and returns its view.
type page func(r *http.Request, v *view) (templ.Component, error)

// action carries out a form, and returns the path to go on to and which of the notices to show there, if any.
type action func(r *http.Request, v *view) (to, notice string, err error)

// get serves a page at a pattern.
func (c *Console) get(pattern string, p page) {
	c.mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
		v, ok := c.enter(w, r)
		if !ok {
			return
		}
		v.notice = c.noticed(w, r)
		c.show(w, r, v, p, http.StatusOK)
	})
}

// post serves an action at a pattern. A refusal is shown on the page that the form stands on, which keeps the typed input.
func (c *Console) post(pattern string, do action, from page) {
	c.mux.HandleFunc("POST "+pattern, func(w http.ResponseWriter, r *http.Request) {
		v, ok := c.enter(w, r)
		if !ok {
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			c.fail(w, r, v, workflow.Refuse(workflow.ErrInvalid, "", "the form cannot be read, or is longer than %d bytes", maxForm))
			return
		}
		to, notice, err := do(r, v)
		if err == nil {
			c.goOn(w, r, to, notice)
			return
		}
		p := api.ProblemFor(err)
		if p.Status == http.StatusInternalServerError || from == nil {
			c.fail(w, r, v, err)
			return
		}
		v.wrong = p.Detail
		c.show(w, r, v, from, p.Status)
	})
}

// show writes a page.
func (c *Console) show(w http.ResponseWriter, r *http.Request, v *view, p page, status int) {
	content, err := p(r, v)
	if err != nil {
		c.fail(w, r, v, err)
		return
	}
	if r.Method == http.MethodPost || r.URL.Query().Has("still") {
		v.every = 0
	}
	c.write(w, r, document(v, content), status)
}

// write sends a component once it is whole, so that a failure on the way can still become a page of its own.
func (c *Console) write(w http.ResponseWriter, r *http.Request, content templ.Component, status int) {
	var b bytes.Buffer
	if err := content.Render(r.Context(), &b); err != nil {
		c.cfg.Log.ErrorContext(r.Context(), "page not rendered", "path", r.URL.Path, "err", err)
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// fail shows an error. Errors that are no refusals are in the log only.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, v *view, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // nobody waits for the answer
	}
	p := api.ProblemFor(err)
	if p.Status == http.StatusInternalServerError {
		c.cfg.Log.ErrorContext(r.Context(), "page failed", "path", r.URL.Path, "err", err)
	}
	sayWait(w, err)
	v.title, v.wrong = cmp.Or(v.title, p.Title), ""
	c.write(w, r, document(v, failure(v, p)), p.Status)
}

// sayWait tells a browser how long a refusal asks it to wait.
func sayWait(w http.ResponseWriter, err error) {
	if wait := api.RetryAfter(err); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
}

// notices are the sentences about finished actions, by the word in the cookie of the person who acted.
var notices = map[string]string{
	"signed-out": "You are signed out.",
	"approved":   "Your approval is recorded.",
	"rejected":   "The plan is rejected.",
	"cancelled":  "The cancellation is recorded.",
	"retried":    "This is the new run.",
	"unlocked":   "The workspace is unlocked: the next run may change its state.",
}
