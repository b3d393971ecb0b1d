package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var (
	drift  = api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Drift: 2}}
	failed = api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "the quota of 40 is reached"}
	done   = api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 3, Replace: 1, Destroy: 1}}
)

// shows checks that a page has some texts, and others not.
func (s *site) shows(path string, want, not []string) string {
	s.t.Helper()
	page := s.get(path)
	for _, text := range want {
		if !strings.Contains(page, text) {
			s.t.Errorf("%s does not show %q:\n%s", path, text, page)
		}
	}
	for _, text := range not {
		if strings.Contains(page, text) {
			s.t.Errorf("%s shows %q", path, text)
		}
	}
	return page
}

func TestPages_EmptyOnesSayWhatToType(t *testing.T) {
	s := newSite(t)
	for path, want := range map[string]string{
		"/": "dayfly run ./DIR --op update", "/runs": "dayfly run ./DIR --op preview", "/workspaces": "dayfly run ./DIR --op preview", "/pools": "dayfly agent --help",
		"/runs?state=failed": "No such runs", "/workspaces?name=net": "No workspace has net in its name",
	} {
		s.shows(path, []string{want}, []string{"<table"})
	}
	s.workspace("net")
	s.shows("/", []string{"dayfly run net --op preview"}, nil)
	s.shows("/workspaces/net", []string{"It has not run yet", "Free: nothing changes its state", "none is required", "not known"}, nil)
}

func TestHome_SaysWhatNeedsSomebodyAndWhatRunsAndWaits(t *testing.T) {
	c := newClock()
	s := newSite(t, c.of)
	for _, name := range []string{"app", "billing", "dns", "fixed", "guarded", "web"} {
		s.workspace(name)
	}
	s.workspace("guarded", func(w *api.Workspace) {
		w.Engine, w.Commands, w.Approval = api.EngineTofu, nil, &api.Approval{Required: true, NotBySubmitter: true}
	})
	s.ran("billing", workflow.Update, failed)
	s.ran("fixed", workflow.Update, failed)
	s.ran("fixed", workflow.Update, done)
	s.ran("dns", "", drift)
	s.ran("web", "", drift)
	s.ran("web", workflow.Update, done)
	planned := done
	planned.Plan = &api.PlanMade{Artifact: "plan/bundle.tar", Size: 1, SHA256: strings.Repeat("a", 64), Summary: strings.Repeat("b", 64)}
	s.ran("guarded", workflow.Update, planned)
	s.submit("app", workflow.Update)
	job, run := s.start()
	_, err := s.plane.Heartbeat(t.Context(), job.Token, run, api.Heartbeat{Step: "apply"})
	s.must(err)
	s.submit("app", workflow.Destroy)

	page := s.shows("/", []string{
		"<h1>3 things need you</h1>", "1 to replace, 2 to add", "somebody else must approve it", "the quota of 40 is reached", "2 resources were changed outside the code",
		"Running · 1", "</span> apply</span>", "Waiting · 1", "waits for <a href=\"/runs/" + job.ID + "\">an earlier run</a>, which may change the same state", "Ended today · 5 succeeded, 2 failed",
	}, []string{">fixed<", ">web<"})
	s.as("vera", api.RoleViewer, nil)
	s.shows("/", []string{"an operator can approve it"}, []string{"somebody else must"})
	if a, f, d := strings.Index(page, "◇"), strings.Index(page, "✗"), strings.Index(page, "△"); a > f || f > d {
		t.Errorf("approvals, failures and drift stand at %d, %d, %d", a, f, d)
	}
	s.pass(c, 24*60)
	s.shows("/", nil, []string{"the quota of 40"})
}

// The count covers the runs that were read, and the page says so.
func TestHome_SaysOfHowManyItCounts(t *testing.T) {
	s := newSite(t, newClock().of)
	s.workspace("net")
	for range 205 {
		w := s.submit("net", workflow.Preview)
		_, err := s.plane.Cancel(t.Context(), s.admin, w.ID, api.WithReason{})
		s.must(err)
	}
	s.shows("/", []string{"Ended today · 200 cancelled, of the last 200"}, nil)
}

func TestRuns_FilterAndPagesAreInTheAddress(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	s.workspace("web")
	s.ran("web", workflow.Update, failed)
	for range 35 {
		s.ran("net", workflow.Preview, done)
	}
	page := s.shows("/runs", []string{`data-every="3"`, "1 to replace, 2 to add", "Further"}, []string{"the quota of 40"})
	next := regexp.MustCompile(`href="(/runs\?cursor=[^"]+)"`).FindStringSubmatch(page)
	if next == nil {
		t.Fatalf("no next page in %s", page)
	}
	s.shows("/runs?state=failed", []string{`href="/runs?state=failed&amp;still=1"`, `http-equiv="refresh"`}, nil)
	s.shows("/runs?state=failed&still=1", []string{"the quota of 40"}, []string{`http-equiv="refresh"`, "<noscript>"})
	s.shows(next[1], []string{`data-every="0"`, "the quota of 40", "To the beginning"}, []string{"Further"})
	for query, want := range map[string]string{
		"state=failed": "1 web", "operation=update&state=&pool=": "1 web", "workspace=net": "30 net", "since=24h&state=failed": "1 web", "pool=default&state=failed": "1 web",
		"since=2999-01-01T00:00:00Z": "0 ", "since=7d&workspace=web": "1 web",
	} {
		page := s.get("/runs?" + query)
		n, name, _ := strings.Cut(want, " ")
		rows := strings.Count(page, "<tr><td>")
		if fmt.Sprint(rows) != n || rows > 0 && !strings.Contains(page, "<b>"+name+"</b>") {
			t.Errorf("%s: %d rows, want %s", query, rows, want)
		}
	}
	s.shows("/runs?state=failed&operation=update", []string{`<option value="failed" selected>`, `<option value="update" selected>`}, nil)
	for query, want := range map[string]string{
		"state=asleep": "the state is pending", "operation=plan": "the operation is preview", "since=soon": "since is a time such as", "since=-2h": "since is a time such as",
		"workspace=none": "there is no workspace", "pool=none": "there is no pool", "cursor=AAAA": "is not a cursor of this list",
	} {
		s.shows("/runs?"+query, []string{want}, []string{"<tr><td>"})
	}
}

func TestWorkspaces_ShowLastRunDriftAndHolder(t *testing.T) {
	s := newSite(t)
	for i := range 32 {
		s.workspace(fmt.Sprintf("ws-%02d", i))
	}
	s.ran("ws-00", "", drift)
	s.submit("ws-01", workflow.Update)
	job, _ := s.start()
	s.submit("ws-01", workflow.Update)
	page := s.shows("/workspaces", []string{"2 resources", `<a href="/runs/` + job.ID + `">held</a>`, "1 run waiting", "global · command"}, []string{"ws-30"})
	next := regexp.MustCompile(`href="(/workspaces\?cursor=[^"]+)"`).FindStringSubmatch(page)
	s.shows(next[1], []string{"ws-30", "ws-31", "To the beginning"}, []string{"ws-00"})
	s.shows("/workspaces?name=S-3", []string{"ws-30", "ws-31"}, []string{"ws-03"})
}

func TestFind_LeadsToWhatIsNamed(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	s.workspace("net-2")
	for q, want := range map[string]string{
		"net": "/workspaces/net", " net ": "/workspaces/net", "ne": "/workspaces?name=ne", "wf_01k1": "/runs/wf_01k1", "": "/workspaces",
		"//evil.example": "/workspaces?name=%2F%2Fevil.example", "wf_/../x": "/runs/wf_%2F..%2Fx",
	} {
		res, _ := s.do(http.MethodGet, "/find?q="+url.QueryEscape(q), nil)
		if got := res.Header.Get("Location"); res.StatusCode != http.StatusSeeOther || got != want {
			t.Errorf("%q: got %s %s, want %s", q, res.Status, got, want)
		}
	}
}

func TestPools_ShowSlotsWaitingRefusalsAndRunners(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	s.workspace("web")
	_, err := s.plane.UpdatePool(t.Context(), s.admin, "default", api.PoolSettings{Concurrency: new(7)})
	s.must(err)
	s.submit("net", workflow.Update)
	claimed, err := s.plane.Claim(t.Context(), s.pool, api.Claim{Instance: "agent-1", Max: 1})
	s.must(err)
	job := claimed.Jobs[0]
	s.must(s.plane.Launch(t.Context(), s.pool, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchRefused, Reason: workflow.ReasonCapacity, Text: "none in zone a", RetrySeconds: 60}))
	s.submit("web", workflow.Preview)
	s.shows("/pools?explain=net", []string{
		"healthy", "1 of 7 in use", "1 run, the oldest submitted", "1 by capacity", "none in zone a", "<b>agent-1</b>", `href="/runs/` + job.ID + `"`, "all workspaces",
		"dayfly pool update default", `id="pool-default"`, "runs it", "it is the built-in pool",
	}, nil)
	s.shows("/pools?explain=none", []string{"there is no workspace"}, []string{"runs it"})
}

func TestPages_ARoleInOneProjectShowsItsWorkspacesOnly(t *testing.T) {
	s := newSite(t)
	_, err := s.plane.CreateProject(t.Context(), s.admin, "", api.ProjectSettings{Name: new("payments")})
	s.must(err)
	s.workspace("mine", func(w *api.Workspace) { w.Project = "payments" })
	s.workspace("secret-plans")
	s.ran("mine", workflow.Update, failed)
	theirs := s.ran("secret-plans", workflow.Update, failed)
	s.as("pat", "", map[string]string{"payments": api.RoleViewer})
	for _, path := range []string{"/", "/runs", "/workspaces"} {
		s.shows(path, []string{"mine"}, []string{"secret-plans"})
	}
	s.shows("/workspaces/mine", nil, []string{"<button class=\"first\">", "Unlock"})
	s.shows("/pools", []string{"default"}, []string{"all workspaces", "agent"})
	for _, path := range []string{"/workspaces/secret-plans", "/runs/" + theirs.ID} {
		if res, _ := s.do(http.MethodGet, path, nil); res.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	if to, _, _ := s.post("/workspaces/mine/runs", url.Values{"operation": {"preview"}}); to != "" {
		t.Errorf("a viewer made a run: %s", to)
	}
	page, err := s.plane.Workflows(t.Context(), s.admin, controlplane.Filter{Workspace: "mine"})
	if s.must(err); len(page.Items) != 1 {
		t.Errorf("%d runs", len(page.Items))
	}
}

// Nothing that somebody else has written becomes markup.
func TestPages_ForeignTextIsNoMarkup(t *testing.T) {
	s := newSite(t)
	const bad = `"><script>alert(1)</script>`
	s.workspace("net", func(w *api.Workspace) {
		w.Engine, w.Commands = api.EngineTofu, nil
		w.Description, w.Environment, w.Variables = bad, map[string]string{"A": bad}, map[string]any{"a": bad}
	})
	_, err := s.plane.UpdatePool(t.Context(), s.admin, "default", api.PoolSettings{Description: new(bad)})
	s.must(err)
	_, _, err = s.plane.Issuers.Put(t.Context(), s.admin, api.Issuer{Name: "idp", URL: "https://idp.example.com", Rules: []api.TrustRule{{Claims: map[string]string{"sub": "ann"}, Becomes: api.KindUser, Role: api.RoleViewer}}})
	s.must(err)
	s.speaks(api.NewToken{Name: "ann", Principal: "idp/" + bad, Role: api.RoleAdmin})
	for i := range 2 {
		w, err := s.plane.Submit(t.Context(), s.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, Message: bad})
		s.must(err)
		if i == 0 {
			job, run := s.start()
			s.end(job, run, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: bad,
				State: &api.StateFound{Backend: bad, Settings: strings.Repeat("a", 64), Workspace: bad, Lineage: bad}, Lock: &api.Lock{ID: bad, Who: bad, Operation: bad, Created: bad}})
			continue
		}
		claimed, err := s.plane.Claim(t.Context(), s.pool, api.Claim{Instance: "agent", Version: bad, Max: 1})
		s.must(err)
		s.must(s.plane.Launch(t.Context(), s.pool, w.ID, api.Launch{Attempt: claimed.Jobs[0].Attempt, Kind: api.LaunchRefused, Reason: workflow.ReasonQuota, Text: bad, RetrySeconds: 60}))
	}
	q := url.QueryEscape(bad)
	for _, path := range []string{
		"/", "/runs", "/workspaces", "/workspaces/net", "/pools", "/pools?explain=" + q, "/workspaces?name=" + q,
		"/runs?state=" + q, "/runs?operation=" + q, "/runs?workspace=" + q, "/runs?pool=" + q, "/runs?since=" + q, "/runs?cursor=" + q,
	} {
		s.shows(path, []string{"alert(1)"}, []string{"<script>"})
	}
	_, status, page := s.post("/workspaces/net/runs", url.Values{"operation": {bad}, "message": {bad}, "priority": {bad}, "max_runtime": {bad}, "state": {bad}, "take_over_from": {bad}})
	if status != http.StatusUnprocessableEntity && status != http.StatusBadRequest || strings.Contains(page, "<script>") || !strings.Contains(page, "Not done") {
		t.Errorf("%d %s", status, page)
	}
}

// The reads of a page do not grow with the number of runs.
func TestPages_ReadABoundedNumberOfRecords(t *testing.T) {
	// The clock stands still: a process keeps some reads for seconds, and a slow test would repeat them.
	now := func() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }
	s := newSite(t, func(rules *controlplane.Config, pages *console.Config) { rules.Now, pages.Now = now, now })
	for i := range 60 {
		s.workspace(fmt.Sprintf("ws-%02d", i))
	}
	s.submit("ws-00", workflow.Update) // it waits behind all others
	paths := []string{"/", "/runs", "/runs?state=failed", "/workspaces", "/workspaces/ws-00", "/pools"}
	cost := map[string]int64{}
	for _, behind := range []int{2500, 1500} {
		for i := range behind {
			w := s.submit(fmt.Sprintf("ws-%02d", i%60), workflow.Preview)
			_, err := s.plane.Cancel(t.Context(), s.admin, w.ID, api.WithReason{})
			s.must(err)
		}
		for _, path := range paths {
			before := s.reads.Load()
			s.get(path)
			n := s.reads.Load() - before
			if first, known := cost[path]; n > 60 || known && n > first {
				t.Errorf("%s costs %d reads, and cost %d before", path, n, first)
			}
			cost[path] = n
		}
	}
	t.Log(cost)
	s.shows("/", []string{"All that wait", "Of the newest 2,000 runs; older ones may wait too."}, nil)
}

// The reason of a wait costs several reads each; home asks for the first ten only.
func TestHome_AsksForWhatAFewRunsWait(t *testing.T) {
	s := newSite(t)
	var cost [2]int64
	for i := range cost {
		for n := range 40 {
			name := fmt.Sprintf("ws-%d-%02d", i, n)
			s.workspace(name)
			s.submit(name, workflow.Update)
		}
		before := s.reads.Load()
		page := s.get("/")
		cost[i] = s.reads.Load() - before
		has(t, page, "<b>ws-0-00</b>", "<b>ws-0-19</b>", "All that wait", fmt.Sprintf("Waiting · %d<", 40*(i+1)))
		hasNot(t, page, "<b>ws-0-20</b>", "older ones")
		if n := strings.Count(page, "waits for the next claim") + strings.Count(page, "waits for pool"); n != 10 {
			t.Errorf("of %d runs it gives the reason of the wait", n)
		}
	}
	if cost[1] > cost[0] || cost[0] > 250 {
		t.Errorf("home costs %d reads with 40 waiting runs, and %d with 80", cost[0], cost[1])
	}
}

// Failed deliveries are shown to people who may send them again.
func TestHome_ShowsDeliveriesThatFailed(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	_, _, err := s.plane.Notifications.Put(t.Context(), s.admin, api.Notification{Name: "ops", URL: "https://hooks.example.com", SecretRef: "file:hook"})
	s.must(err)
	for range 6 {
		s.ran("net", workflow.Preview, failed)
	}
	s.shows("/", nil, []string{"Deliveries that failed"})
	out, err := s.plane.ClaimDeliveries(t.Context(), s.pool, api.DeliveryClaim{Max: 20, Instance: "one"})
	s.must(err)
	for _, task := range out.Tasks[1:] {
		s.must(s.plane.DeliveryDone(t.Context(), s.pool, task.ID, api.DeliveryResult{Attempt: 1, IsPermanent: true, Detail: "it answered <410>"}))
	}
	s.must(s.plane.DeliveryDone(t.Context(), s.pool, out.Tasks[0].ID, api.DeliveryResult{Attempt: 1, IsDone: true}))
	want := []string{"Deliveries that failed · 5", "ops: failed net", "it answered &lt;410&gt;. Send it again: <code>dayfly delivery replay " + out.Tasks[5].ID}
	s.shows("/", want, []string{out.Tasks[0].ID})
	s.ran("net", workflow.Preview, failed)
	out, err = s.plane.ClaimDeliveries(t.Context(), s.pool, api.DeliveryClaim{Max: 20, Instance: "one"})
	s.must(err)
	s.must(s.plane.DeliveryDone(t.Context(), s.pool, out.Tasks[0].ID, api.DeliveryResult{Attempt: 1, IsPermanent: true}))
	s.shows("/", []string{"Deliveries that failed · more than 5"}, nil)
	s.as("olga", api.RoleOperator, nil)
	s.shows("/", nil, []string{"Deliveries that failed"})
}

// A delivery about a pull request names it.
func TestHome_SaysWhichPullRequestIsNotAnswered(t *testing.T) {
	s := newSite(t, func(c *controlplane.Config, _ *console.Config) {
		c.WebhookKey = func(context.Context) ([]byte, error) { return []byte("of the secrets of webhooks"), nil }
	})
	_, _, err := s.plane.GitHosts.Put(t.Context(), s.admin, api.GitHost{Name: "forge", Kind: api.HostGitHub, TokenRef: "file:git"})
	s.must(err)
	hook, err := s.plane.RotateWebhookSecret(t.Context(), s.admin, "forge")
	s.must(err)
	body, err := os.ReadFile("../githost/webhook/testdata/github-pull_request-opened.json")
	s.must(err)
	_, err = s.plane.Webhook(t.Context(), "default", "forge", http.Header{"X-Github-Event": {"pull_request"}, "X-Hub-Signature-256": {githosttest.Sign(hook.Secret, body)}}, body)
	s.must(err)
	out, err := s.plane.ClaimDeliveries(t.Context(), s.pool, api.DeliveryClaim{Max: 20, Instance: "one"})
	s.must(err)
	s.must(s.plane.DeliveryDone(t.Context(), s.pool, out.Tasks[0].ID, api.DeliveryResult{Attempt: 1, IsPermanent: true, Detail: "it answered 401"}))
	s.shows("/", []string{"Deliveries that failed · 1", "forge: pull_read Example/Infra#2"}, nil)
}
