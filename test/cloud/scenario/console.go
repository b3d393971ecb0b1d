package scenario

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// consolePages is a person who reads the console and approves plans there: behind the HTTP API, and behind a private
// REST API, whose stage is in every address.
func consolePages(ctx context.Context, s *scene) {
	const name, printed = "pages", " to add, 0 to change, " // the engine prints that
	s.workspace(ctx, name, "network", s.password, func(w *api.Workspace) { w.Approval = &api.Approval{Required: true} })
	made, err := s.c.Client.CreateToken(ctx, api.NewToken{Name: "reader-of-pages", Role: api.RoleOperator})
	s.must(err)
	for _, door := range []struct{ what, operation, url, base, cookie string }{
		{"the HTTP API", "update", s.c.URL, "", "__Host-dayfly"},
		{"a private REST API", "destroy", s.c.PrivateURL, "/api", "dayfly"},
	} {
		preview := s.previewed(ctx, name, door.operation, "its plan waits, behind "+door.what)
		s.begin(name, "approve", "in its page, behind "+door.what)
		p := &person{scene: s, url: door.url, base: door.base}
		run := "/runs/" + preview.ID
		for _, path := range []string{"/", run, run + "/log"} {
			got := p.ask(ctx, http.MethodGet, path, nil)
			s.check(got.status == http.StatusSeeOther && strings.HasPrefix(got.to, door.base+"/signin") && !strings.Contains(got.body, name), "without a cookie %s is answered %d to %q: %s", path, got.status, got.to, got.body)
		}
		got := p.ask(ctx, http.MethodPost, "/signin", url.Values{"token": {made.Value}, "next": {run}})
		k := got.cookie
		if got.status != http.StatusSeeOther || k == nil {
			panic(giveUp("signing in is answered " + got.body))
		}
		s.check(got.to == door.base+run, "signing in leads to %s", got.to)
		s.check(k.Name == door.cookie && k.Secure && k.HttpOnly && k.SameSite == http.SameSiteLaxMode && k.Path == door.base+"/", "the cookie %s is for %s: Secure %t, HttpOnly %t", k.Name, k.Path, k.Secure, k.HttpOnly)

		review := url.Values{"sha256": {preview.Review.SHA256}, "comment": {"seen in the page"}}
		got = p.ask(ctx, http.MethodPost, run+"/approve", review)
		s.check(got.status == http.StatusSeeOther && strings.HasPrefix(got.to, door.base+"/signin"), "an approval without a cookie is answered %d to %q", got.status, got.to)
		p.cookie = k.Name + "=" + k.Value
		p.origin = "https://evil.example.com"
		got = p.ask(ctx, http.MethodPost, run+"/approve", review)
		s.check(got.status == http.StatusForbidden, "an approval from another site is answered %d", got.status)
		p.origin = ""
		w, err := s.c.Client.Workflow(ctx, preview.ID)
		s.must(err)
		s.check(w.Review.Status == api.ReviewWaiting, "after both its review is %s", w.Review.Status)

		got = p.ask(ctx, http.MethodGet, "/", nil)
		s.check(strings.Contains(got.body, door.base+run), "home does not link to the run: %s", got.body)
		got = p.ask(ctx, http.MethodGet, run, nil)
		s.check(got.status == http.StatusOK && strings.Contains(got.body, preview.ID), "the page of the run is answered %d: %s", got.status, got.body)
		_, lines, _ := strings.Cut(got.body, "data-lines")
		s.check(strings.Contains(lines, printed), "the page does not show the log: %s", got.body)
		log := p.ask(ctx, http.MethodGet, run+"/log", nil)
		s.check(log.status == http.StatusOK && strings.Contains(log.body, printed), "the downloaded log is answered %d: %s", log.status, log.body)
		form := regexp.MustCompile(`action="([^"]*/approve)"[\s\S]*?name="(sha256)" value="([^"]*)"`).FindStringSubmatch(got.body)
		if form == nil || !strings.HasPrefix(form[1], door.base+run) {
			panic(giveUp("the page has no form to approve: " + got.body))
		}
		got = p.ask(ctx, http.MethodPost, strings.TrimPrefix(form[1], door.base), url.Values{form[2]: {form[3]}, "comment": {"seen in the page"}})
		s.check(got.status == http.StatusSeeOther && got.to == door.base+run, "approving is answered %d to %q: %s", got.status, got.to, got.body)
		w, err = s.c.Client.Workflow(ctx, preview.ID)
		s.must(err)
		s.ends(ctx, w.Review.Applies, workflow.Succeeded, "", 1)

		p.ask(ctx, http.MethodPost, "/signout", url.Values{})
		got = p.ask(ctx, http.MethodGet, run, nil)
		s.check(got.status == http.StatusSeeOther && !strings.Contains(got.body, name), "after signing out the page is answered %d: %s", got.status, got.body)
		s.row.Wrong = append(s.row.Wrong, s.Tap.find("a person's session", k.Value)...)
	}
	s.row.Wrong = append(s.row.Wrong, s.Tap.find("a person's token", made.Value)...)
}

// person is somebody with a browser, which speaks TLS with the gateway and sends the cookie that it has.
type person struct {
	*scene
	url, base, cookie string
	origin            string // of the page with the form; "": one of these pages
}

type shown struct {
	status   int
	to, body string
	cookie   *http.Cookie // that it sets
}

// ask gets a path, or sends a form there.
func (p *person) ask(ctx context.Context, method, path string, form url.Values) (got shown) {
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(form.Encode()))
	p.must(err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", p.origin)
		if p.origin == "" {
			r.Header.Set("Origin", "https://"+r.URL.Host)
		}
	}
	if p.cookie != "" {
		r.Header.Set("Cookie", "other=1; "+p.cookie)
	}
	answer, err := http.DefaultTransport.RoundTrip(r) // which follows no redirect
	p.must(err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4<<20))
	p.must(err)
	got = shown{status: answer.StatusCode, to: answer.Header.Get("Location"), body: string(body)}
	if all := answer.Cookies(); len(all) > 0 {
		got.cookie = all[0]
	}
	return got
}
