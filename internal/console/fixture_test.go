package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// site is a control plane in memory with its pages, and a person who is signed in as its administrator.
type site struct {
	t       *testing.T
	store   store.Store
	plane   *controlplane.Plane
	console *console.Console
	server  *httptest.Server
	admin   controlplane.Principal
	pool    controlplane.Principal
	token   string       // of the administrator
	cookie  *http.Cookie // of the person; nil: nobody is signed in
	notice  *http.Cookie // that the browser has until a page takes it; nil: none
	reads   *atomic.Int64
}

// counted is a store that counts its reads.
type counted struct {
	store.Store
	reads atomic.Int64
}

func (c *counted) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	c.reads.Add(1)
	return c.Store.Get(ctx, keys...)
}

func (c *counted) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	c.reads.Add(1)
	return c.Store.Range(ctx, s)
}

func (c *counted) Query(ctx context.Context, index store.Index, s store.Scan) (store.Page, error) {
	c.reads.Add(1)
	return c.Store.Query(ctx, index, s)
}

func newSite(t *testing.T, change ...func(*controlplane.Config, *console.Config)) *site {
	t.Helper()
	rules, pages := controlplane.Config{DefaultState: api.StateDirectory}, console.Config{}
	for _, c := range change {
		c(&rules, &pages)
	}
	st := &counted{Store: memory.New()}
	s := &site{t: t, store: st, reads: &st.reads, plane: controlplane.New(st, rules)}
	token, err := s.plane.Bootstrap(t.Context(), "default")
	s.must(err)
	s.admin, err = s.plane.Authenticate(t.Context(), token)
	s.must(err)
	poolToken, err := s.plane.EnsurePoolToken(t.Context(), "default", "default", "agent")
	s.must(err)
	s.pool, err = s.plane.Authenticate(t.Context(), poolToken)
	s.must(err)
	s.console = console.New(s.plane, pages)
	s.server = httptest.NewServer(s.console)
	t.Cleanup(s.server.Close)
	s.token = token
	s.signIn(token)
	return s
}

// signIn signs the person in by the form.
func (s *site) signIn(token string) {
	s.t.Helper()
	res, page := s.do(http.MethodPost, "/signin", url.Values{"token": {token}})
	if res.StatusCode != http.StatusSeeOther {
		s.t.Fatalf("sign in: %s\n%s", res.Status, page)
	}
	s.cookie = cookieOf(res, "dayfly")
}

// cookieOf returns a cookie that an answer sets, or nil.
func cookieOf(res *http.Response, name string) *http.Cookie {
	for _, k := range res.Cookies() {
		if k.Name == name {
			return k
		}
	}
	return nil
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// do sends a request as a browser does and does not follow redirects.
func (s *site) do(method, path string, form url.Values, change ...func(*http.Request)) (*http.Response, string) {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, body)
	s.must(err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Origin", s.server.URL)
	for _, k := range []*http.Cookie{s.cookie, s.notice} {
		if k != nil {
			req.AddCookie(k)
		}
	}
	for _, c := range change {
		c(req)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	s.must(err)
	defer res.Body.Close()
	if k := cookieOf(res, "dayfly-notice"); k != nil {
		if s.notice = k; k.MaxAge < 0 {
			s.notice = nil
		}
	}
	page, err := io.ReadAll(res.Body)
	s.must(err)
	return res, string(page)
}

// get fetches a page that is there.
func (s *site) get(path string) string {
	s.t.Helper()
	res, page := s.do(http.MethodGet, path, nil)
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s\n%s", path, res.Status, page)
	}
	return page
}

// post sends a form and returns where it leads, or the status and the page of a refusal.
func (s *site) post(path string, form url.Values) (to string, status int, page string) {
	s.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	res, page := s.do(http.MethodPost, path, form)
	return res.Header.Get("Location"), res.StatusCode, page
}

// workspace makes a workspace of plain commands.
func (s *site) workspace(name string, change ...func(*api.Workspace)) {
	s.t.Helper()
	w := api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
			Commands: map[string]string{"preview": "true", "update": "true", "refresh": "true", "destroy": "true", "insights_scan": "true"},
		},
	}
	for _, c := range change {
		c(&w)
	}
	_, _, err := s.plane.PutWorkspace(s.t.Context(), s.admin, w)
	s.must(err)
}

// as signs in somebody else, with a role in the organization, or with roles in projects.
func (s *site) as(name, role string, grants map[string]string) {
	s.t.Helper()
	s.speaks(api.NewToken{Name: name, Role: role, Grants: grants})
}

// speaks signs in the holder of a new token.
func (s *site) speaks(in api.NewToken) {
	s.t.Helper()
	made, err := s.plane.CreateToken(s.t.Context(), s.admin, in)
	s.must(err)
	s.cookie = nil // or the session that was there would end
	s.signIn(made.Value)
}

// clock is a time of a site that a test moves. It begins at noon.
type clock struct {
	noon, began time.Time
	ahead       time.Duration
}

func newClock() *clock {
	return &clock{noon: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), began: time.Now()}
}

func (c *clock) now() time.Time { return c.noon.Add(time.Since(c.began) + c.ahead) }

// of makes it the clock of a new site.
func (c *clock) of(rules *controlplane.Config, pages *console.Config) {
	rules.Now, pages.Now = c.now, c.now
}

// pass lets minutes go by, in which the pool calls and takes nothing. The person who was signed in signs in again.
func (s *site) pass(c *clock, minutes int) {
	s.t.Helper()
	for range minutes {
		c.ahead += time.Minute
		_, err := s.plane.Held(s.t.Context(), s.pool, "", "")
		s.must(err)
		_, err = s.plane.Pass(s.t.Context())
		s.must(err)
	}
	s.signIn(s.token)
}

// ran submits a run and lets it end; without an operation it is a scan.
func (s *site) ran(workspace string, op workflow.Operation, result api.Result) api.Workflow {
	s.t.Helper()
	in := api.Submit{Workspace: workspace, Operation: op}
	if op == "" {
		in.Type = workflow.InsightsScan
	}
	w, err := s.plane.Submit(s.t.Context(), s.admin, "", in)
	s.must(err)
	job, run := s.start()
	s.end(job, run, result)
	return w
}

// submit asks for a run.
func (s *site) submit(workspace string, op workflow.Operation) api.Workflow {
	s.t.Helper()
	w, err := s.plane.Submit(s.t.Context(), s.admin, "", api.Submit{Workspace: workspace, Operation: op})
	s.must(err)
	return w
}

// start claims and starts the one run that can be claimed.
func (s *site) start() (api.Job, api.Run) {
	s.t.Helper()
	ctx := s.t.Context()
	claimed, err := s.plane.Claim(ctx, s.pool, api.Claim{Instance: "agent", Max: 1})
	s.must(err)
	if len(claimed.Jobs) != 1 {
		s.t.Fatalf("%d jobs were claimed, want 1", len(claimed.Jobs))
	}
	job := claimed.Jobs[0]
	task := "task-" + job.ID
	s.must(s.plane.Launch(ctx, s.pool, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: task}))
	run := api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: task, Boot: strings.Repeat("a", 32)}
	_, err = s.plane.Start(ctx, job.Token, run, api.Start{Knows: api.RunnerKnows()})
	s.must(err)
	return job, run
}

// logs adds lines to the log of a run, from its first on.
func (s *site) logs(job api.Job, run api.Run, first int64, step string, lines ...string) {
	s.t.Helper()
	in := api.Logs{First: first}
	for _, l := range lines {
		in.Lines = append(in.Lines, api.LogLine{At: time.Now(), Step: step, Text: l})
	}
	_, err := s.plane.AppendLogs(s.t.Context(), job.Token, run, in)
	s.must(err)
}

// end reports the result of a run.
func (s *site) end(job api.Job, run api.Run, in api.Result) {
	s.t.Helper()
	_, err := s.plane.Result(s.t.Context(), job.Token, run, api.Handover{Result: in})
	s.must(err)
}

func TestHome_IsShownToWhoIsSignedInOnly(t *testing.T) {
	s := newSite(t)
	if page := s.get("/"); !strings.Contains(page, "<h1>Nothing needs you</h1>") {
		t.Errorf("got %s", page)
	}
	s.cookie = nil
	if res, _ := s.do(http.MethodGet, "/", nil); res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/signin" {
		t.Errorf("nobody got %s", res.Status)
	}
}

func TestRun_ShowsItsState(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	w := s.submit("net", workflow.Update)
	job, run := s.start()
	s.logs(job, run, 0, "run", "hello")
	if page := s.get("/runs/" + w.ID); !strings.Contains(page, "running") {
		t.Errorf("got %s", page)
	}
	s.end(job, run, api.Result{Outcome: workflow.Succeeded, LogEnd: 1})
	if page := s.get("/runs/" + w.ID); !strings.Contains(page, "succeeded") {
		t.Errorf("got %s", page)
	}
}
