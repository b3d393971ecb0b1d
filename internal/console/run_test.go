package console_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var planSum = strings.Repeat("4b", 32)

// guarded makes a workspace of terraform whose plans are approved.
func (s *site) guarded(name string, approval api.Approval) {
	s.t.Helper()
	_, _, err := s.plane.PutWorkspace(s.t.Context(), s.admin, api.Workspace{
		Name: name, RunSettings: api.RunSettings{Engine: api.EngineTerraform, Source: api.Source{Directory: "/src"}}, Approval: &approval,
	})
	s.must(err)
}

// preview runs the one preview that can be claimed; it leaves a plan that can be approved.
func (s *site) preview(changes api.Changes) api.Workflow {
	s.t.Helper()
	job, run := s.start()
	_, err := s.plane.Announce(s.t.Context(), job.Token, run, api.NewArtifacts{
		Artifacts: []api.NewArtifact{{Name: "plan/bundle.tar", Kind: api.ArtifactPlan, Size: 41000, SHA256: planSum}},
		Placed:    []string{"plan/bundle.tar"}, Place: &api.Place{Kind: api.PlaceDirectory},
	})
	s.must(err)
	s.end(job, run, api.Result{
		Outcome: workflow.Succeeded, Changes: &changes, State: &api.StateFound{Backend: "s3", Lineage: "l", Serial: 118},
		Plan: &api.PlanMade{Artifact: "plan/bundle.tar", Size: 41000, SHA256: planSum, Summary: strings.Repeat("b", 64), Values: strings.Repeat("c", 64)},
	})
	w, err := s.plane.Workflow(s.t.Context(), s.admin, job.ID)
	s.must(err)
	return w
}

// shows checks that a page has some texts and lacks others, which begin with "!".
func shows(t *testing.T, page string, texts ...string) {
	t.Helper()
	seen := plain(page)
	for _, one := range texts {
		if want, not := strings.CutPrefix(one, "!"); strings.Contains(seen, want) == not {
			t.Errorf("the page shows %q: %t\n%s", want, !not, seen)
		}
	}
}

// plain is the text of a page as people read it, with one space between words.
func plain(page string) string {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(" " + n.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestRun_EachStateSaysWhereItStandsAndWhatCanBeDone(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	w := s.submit("net", workflow.Update)
	path := "/runs/" + w.ID
	shows(t, s.get(path), "○ Pending. It waits for pool default", "It fails if it still waits in 2", "It has not started", "!Retry")
	job, run := s.start()
	shows(t, s.get(path), "● Running. Its runner gets ready.", "It is stopped if it still runs in 59m", "Its engine is interrupted")
	_, err := s.plane.Steps(t.Context(), job.Token, run, api.Steps{Steps: []api.Step{{Seq: 1, Name: "update", Status: workflow.StepRunning, StartedAt: time.Now()}}})
	s.must(err)
	shows(t, s.get(path), "● Running step update.")
	to, status, page := s.post(path+"/cancel", url.Values{"reason": {"wrong branch"}})
	if status != http.StatusSeeOther || to != path {
		t.Fatalf("%d %s %s", status, to, page)
	}
	shows(t, s.get(to), "The cancellation is recorded.", "◍ Cancelling.", "wrong branch", "!It has not started")
	s.end(job, run, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "exit code 2", Lock: &api.Lock{ID: "5e1f", Who: "bob"}})
	shows(t, s.get(path), "✗ Failed. Exit code 2.", "The end of its log has the cause.", "still held by bob", "dayfly state unlock net 5e1f", "It changes the resources of workspace net")
	to, _, _ = s.post(path+"/retry", url.Values{"key": {"k"}, "reason": {"fixed"}})
	if again, _, _ := s.post(path+"/retry", url.Values{"key": {"k"}, "reason": {"fixed"}}); again != to || to == "" {
		t.Errorf("a second click led to %s, not to %s", again, to)
	}
	shows(t, s.get(to), "This is the new run.", "Retry of "+w.ID, "as a retry of "+w.ID+": fixed")
	_, status, page = s.post(path+"/retry", url.Values{"key": {"k2"}, "reason": {strings.Repeat("x", 201)}})
	if shows(t, page, "a reason has at most 200 characters"); status != http.StatusUnprocessableEntity && status != http.StatusBadRequest || !strings.Contains(page, `value="xxx`) {
		t.Errorf("%d: the typed input is lost", status)
	}
}

// An approver of a plan sees the options of its run.
func TestRun_OptionsAreShownWithThePlan(t *testing.T) {
	s := newSite(t)
	s.guarded("net", api.Approval{Required: true})
	w, err := s.plane.Submit(t.Context(), s.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, Options: &api.Options{
		Targets: []string{"aws_eip.old[0]", "aws_eip.new"}, Variables: map[string]any{"size": 3},
	}})
	s.must(err)
	s.preview(api.Changes{Add: 1, Resources: []api.ResourceChange{{Address: "aws_eip.new", Action: "create"}}})
	shows(t, s.get("/runs/"+w.ID), "◇ Waiting for approval.", "Targets aws_eip.old[0], aws_eip.new", "Variables size=3", "!Refresh only")
}

func TestRun_APlanIsApprovedAsItWasShown(t *testing.T) {
	s := newSite(t)
	s.guarded("net", api.Approval{Required: true})
	w := s.submit("net", workflow.Update)
	s.preview(api.Changes{Add: 3, Destroy: 2, Replace: 1, Resources: []api.ResourceChange{
		{Address: "module.edge.aws_subnet.b", Action: "create"},
		{Address: "module.edge.aws_nat_gateway.main", Action: "replace", Forces: []string{"subnet_id"}, Changed: []string{"subnet_id", "tags"}},
		{Address: "aws_eip.old[0]", Action: "delete"},
	}})
	path := "/runs/" + w.ID
	page := s.get(path)
	shows(t, page, "◇ Waiting for approval. It would destroy 1 resource, replace 1 and add 2.", "Anyone with the operator role can approve it.",
		"The plan expires in 2d .", "replaced because of subnet_id; changes tags", "applies it in pool default at once", "s3, serial 118", "plan/bundle.tar 40.0 KiB", "!Retry")
	has(t, page, "data-done") // its log is complete, although the page looks for the decision
	for _, list := range []string{"/runs", "/workspaces"} {
		shows(t, s.get(list), "◇ to approve", "!succeeded<")
	}
	if i, j := strings.Index(page, "aws_eip.old"), strings.Index(page, "aws_subnet.b"); i < 0 || i > j {
		t.Error("destroyed resources do not come first")
	}
	_, status, page := s.post(path+"/approve", url.Values{"sha256": {strings.Repeat("c", 64)}, "comment": {"looks good"}})
	if shows(t, page, "Not done.", "look at it again"); status != http.StatusConflict || !strings.Contains(page, `value="looks good"`) {
		t.Errorf("%d: the typed input is lost", status)
	}
	to, status, page := s.post(path+"/approve", url.Values{"sha256": {planSum}, "comment": {"looks good"}})
	if status != http.StatusSeeOther {
		t.Fatal(page)
	}
	page = s.get(to)
	shows(t, page, "Your approval is recorded.", "✓ Succeeded.", "approved by admin: looks good", "another run applies it", "!Reject")
	w, err := s.plane.Workflow(t.Context(), s.admin, w.ID)
	s.must(err)
	shows(t, s.get("/runs/"+w.Review.Applies), "Applies plan of "+w.ID, "Plan · 1 to destroy, 1 to replace, 2 to add", "○ Pending. It waits for the next claim")
}

func TestHeading_OfARunThatFailed(t *testing.T) {
	w := api.Workflow{ID: "wf_1", Type: workflow.Deployment, Operation: workflow.Update, State: workflow.Failed}
	for want, of := range map[string]string{"Changes · 2 added before it failed": "wf_1", "Plan · 2 to add": "wf_0"} {
		if got := console.Heading(of, api.Changes{Add: 2}, w); got != want {
			t.Errorf("the changes of %s: got %q, want %q", of, got, want)
		}
	}
}

func TestRun_UnitsThatFailedComeFirst(t *testing.T) {
	units := make([]api.UnitResult, 0, 100)
	for i := range 100 {
		units = append(units, api.UnitResult{Unit: fmt.Sprintf("<b>u%02d", i), Result: "succeeded", Changes: &api.Changes{Add: 1}})
	}
	units[99].Result = "failed"
	page := rendered(t, console.RenderParts(api.Why{Workflow: api.Workflow{
		ID: "wf_1", Type: workflow.Deployment, Operation: workflow.Update, State: workflow.Failed, Result: &api.Result{Units: units},
	}}, time.Now())["page"])
	_, list, _ := strings.Cut(page, "<h2>Units · 100</h2>")
	list, rest, _ := strings.Cut(list, "</ul>")
	if first := "<code>&lt;b&gt;u99</code> <small>failed, 1 added</small>"; strings.Index(list, "<code>") != strings.Index(list, first) || !strings.Contains(list, "u58<") ||
		strings.Contains(list, "u59<") || !strings.Contains(rest, "and 40 more: <code>dayfly workflow show wf_1") {
		t.Errorf("got %s\n%s", list, rest)
	}
}

func TestRun_APullRequestsPlanWaitsForTheMerge(t *testing.T) {
	s := newSite(t)
	s.guarded("net", api.Approval{Required: true, AfterMerge: true})
	submit := func(kind string, op workflow.Operation) (path, id string) {
		by := runs.Triggered{Trigger: record.Trigger{Kind: kind, Name: "forge", Repository: "example/infra"}}
		w, err := s.plane.SubmitFor(t.Context(), s.admin, "", api.Submit{Workspace: "net", Operation: op}, by)
		s.must(err)
		s.preview(api.Changes{Add: 1})
		return "/runs/" + w.ID, w.ID
	}
	pull, pullID := submit(api.TriggerPullRequest, workflow.Preview)
	shows(t, s.get(pull), "After the merge, its approvals carry over", "sha256 4b4b4b4b…4b4b. After the merge, its approvals carry over", "!applies it in pool")
	to, status, page := s.post(pull+"/approve", url.Values{"sha256": {planSum}})
	if status != http.StatusSeeOther {
		t.Fatal(page)
	}
	shows(t, s.get(to), "Review · approved, waiting for the merge", "approved by admin", "waits for the merge", "Reject", "!Approve this plan", "!Applied by")
	push, pushID := submit(api.TriggerPush, workflow.Update)
	shows(t, s.get(push), "Review · approved", "Approvals were carried over from "+pullID, "approved by admin", "Applied by", "!"+strings.Repeat("c", 64))
	shows(t, s.get(pull), "Review · carried over", "Carried over to "+pushID, "!Reject")
}

func TestRun_AStalePlanIsRefusedWithTheSentence(t *testing.T) {
	s := newSite(t)
	s.guarded("net", api.Approval{Required: true})
	w := s.submit("net", workflow.Update)
	s.preview(api.Changes{Add: 1})
	s.guarded("net", api.Approval{Required: true, Expires: "24h"}) // requirements are not part of the plan
	ws, err := s.plane.Workspace(t.Context(), s.admin, "net")
	s.must(err)
	ws.EngineVersion = "1.12.0"
	_, _, err = s.plane.PutWorkspace(t.Context(), s.admin, ws)
	s.must(err)
	_, status, page := s.post("/runs/"+w.ID+"/approve", url.Values{"sha256": {planSum}})
	if shows(t, page, "the settings of the workspace were changed after preview "+w.ID+" was submitted"); status != http.StatusConflict {
		t.Errorf("it was answered with %d", status)
	}
	to, _, _ := s.post("/runs/"+w.ID+"/reject", url.Values{"sha256": {planSum}, "comment": {"stale"}})
	shows(t, s.get(to), "The plan is rejected.", "Review · rejected", "rejected by admin: stale", "a new preview makes a new one", "!Approve this plan")
}

func TestRun_OneThatStartsOrWasCancelledBeforeSaysSo(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	w := s.submit("net", workflow.Preview)
	_, err := s.plane.Claim(t.Context(), s.pool, api.Claim{Instance: "agent", Max: 1})
	s.must(err)
	shows(t, s.get("/runs/"+w.ID), "◔ Claimed. It waits for the dispatcher to launch it.", "Attempt 1 was claimed by agent", "If it does not start, it is claimed again in")
	to, _, _ := s.post("/runs/"+w.ID+"/cancel", url.Values{"reason": {"wrong branch"}})
	shows(t, s.get(to), "⊘ Cancelled by admin: wrong branch.", "!Cancel c", "Retry")
}

func TestRun_DestroysOfAllModulesStandFirstAndOpen(t *testing.T) {
	s := newSite(t)
	s.guarded("net", api.Approval{Required: true})
	w := s.submit("net", workflow.Update)
	c := api.Changes{Add: 286, Destroy: 20, Replace: 6, Resources: []api.ResourceChange{{Address: "aws_eip.a", Action: "update"}}}
	var want []string
	for i := range 300 {
		r := api.ResourceChange{Address: fmt.Sprintf("module.m%d.aws_subnet.s[%d]", i%12, i), Action: "create"}
		switch {
		case i%20 == 7 && i < 280:
			r.Action = "delete"
		case i%50 == 9:
			r.Action = "replace"
		}
		if r.Action != "create" {
			want = append(want, r.Address)
		}
		c.Resources = append(c.Resources, r)
	}
	s.preview(c)
	_, plan, _ := strings.Cut(s.get("/runs/"+w.ID), `data-part="plan"`)
	open, folded, _ := strings.Cut(plan, "<details")
	for _, address := range want {
		if !strings.Contains(open, ">"+address+"<") {
			t.Errorf("%s does not stand before the foldable part", address)
		}
	}
	if len(want) != 20 || strings.Contains(open, "aws_eip.a<") || !strings.Contains(folded, "aws_eip.a<") || strings.Contains(folded, "destroy") || strings.Contains(folded, "replace") {
		t.Errorf("of %d that are destroyed or replaced, some are folded too, or others stand with them: %s", len(want), plan)
	}
}

func TestRun_AViewerSeesTheCommandInsteadOfAButton(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	w := s.submit("net", workflow.Update)
	token, err := s.plane.CreateToken(t.Context(), s.admin, api.NewToken{Name: "eve", Role: api.RoleViewer})
	s.must(err)
	s.signIn(token.Value)
	page := s.get("/runs/" + w.ID)
	shows(t, page, "dayfly workflow cancel "+w.ID, "!It has not started, so")
	if _, status, _ := s.post("/runs/"+w.ID+"/cancel", nil); status != http.StatusForbidden {
		t.Errorf("a viewer's cancellation was answered with %d", status)
	}
}

func TestRun_APlanOfThousandResourcesIsFolded(t *testing.T) {
	s := newSite(t)
	s.guarded("net", api.Approval{Required: true})
	w := s.submit("net", workflow.Update)
	var c api.Changes
	for i := range 1000 {
		c.Resources = append(c.Resources, api.ResourceChange{Address: fmt.Sprintf("module.m%d.aws_subnet.s[%d]", i%40, i), Action: "create", Changed: []string{"tags", "cidr_block"}})
	}
	c.Add = 1000
	s.preview(c)
	page := s.get("/runs/" + w.ID)
	if n, open := strings.Count(page, "aws_subnet.s["), strings.Count(page, `class="module" open`); n != 1000 || open < 1 || open > 3 {
		t.Errorf("%d resources are there, %d modules are open", n, open)
	}
}

// hostile puts one text into each field of a run that somebody else may choose.
func hostile(text string) (api.Why, []api.Artifact) {
	at, code := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 1
	w := api.Workflow{
		ID: "wf_1", Workspace: "net", Type: workflow.Deployment, Operation: workflow.Preview, For: workflow.Update, State: workflow.Failed,
		Options: &api.Options{Targets: []string{text}, Variables: map[string]any{text: text}, Imports: []api.Import{{To: text, ID: text}}},
		Reason:  workflow.ReasonStepFailed, Detail: text, Message: text, SubmittedBy: text, Instance: text, Task: text, Attempt: 1,
		SubmittedAt: at, ClaimedAt: &at, StartedAt: &at, EndedAt: &at, Pool: "default",
		Steps: []api.Step{{Seq: 1, Name: "plan" + text, Status: workflow.StepFailed, StartedAt: at, Seconds: 1, ExitCode: &code, Text: "failed " + text}},
		Review: &api.Review{Status: api.ReviewWaiting, For: workflow.Update, SHA256: planSum, Why: []string{text}, NotBySubmitter: true, Submitters: api.PrincipalRefs{{ID: text, Name: text}}, Needed: 2,
			ExpiresAt: at, Votes: []api.Vote{{By: text, ByID: text, At: at, Comment: "said " + text}}},
		Result: &api.Result{
			Lock: &api.Lock{ID: text, Who: text, Operation: text}, State: &api.StateFound{Backend: text, Lineage: "l" + text, Workspace: "w" + text},
			Plan: &api.PlanMade{SHA256: planSum, Source: "s" + text},
			Changes: &api.Changes{Add: 1, Outputs: []api.OutputChange{{Name: text, Action: text}}, Resources: []api.ResourceChange{
				{Address: "aws_subnet." + text, Action: "x" + text, Changed: []string{text}, Forces: []string{"f" + text}, From: "from " + text},
			}},
		},
	}
	events := []api.Event{{Seq: 1, At: at, Kind: "launch_refused", Text: text, Actor: "a" + text}}
	return api.Why{Workflow: w, Waiting: text, Timeline: events}, []api.Artifact{{Name: text, Size: 1, SHA256: planSum}}
}

// shape is the elements of a page with the names of their attributes, without any text.
func shape(t *testing.T, page string) (out []string) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			continue
		}
		line := fmt.Sprint(n.Type, n.Data)
		for _, a := range n.Attr {
			line += " " + a.Key
		}
		out = append(out, line)
	}
	return out
}

func FuzzRun_ForeignTextBecomesNoMarkup(f *testing.F) {
	for _, text := range []string{"<script>alert(1)</script>", `" onload="x`, "'><img src=x>", "\u202egnp.exe", "--><svg>", "</textarea></title></style>", "a\x00b\xff", "&lt;b&gt;", strings.Repeat("<b>", 20_000)} {
		f.Add(text)
	}
	render := func(t *testing.T, text string) string {
		why, files := hostile(text)
		var b bytes.Buffer
		if err := console.RenderRun(why, files).Render(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = "x" + text + "x" // an empty field may leave out its element
		page := render(t, text)
		if diff := cmp.Diff(shape(t, render(t, "xharmlessx")), shape(t, page)); diff != "" {
			t.Errorf("the text %.200q became markup:\n%s", text, diff)
		}
		if strings.ContainsAny(page, "\u202e\u2066\u200b\x00") {
			t.Error("the page has characters that hide or reorder others")
		}
	})
}

func TestRun_FailingChecksAreNamed(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	w := s.ran("net", workflow.Update, api.Result{Outcome: workflow.Succeeded, Checks: &api.Checks{Failing: 12, Names: []string{"check.dns", "check.health"}}})
	shows(t, s.get("/runs/"+w.ID), "Checks 12 failing: check.dns, check.health and 10 more")
	s.shows("/workspaces/net", []string{"12 failing", `<a href="/runs/` + w.ID + `">run</a>`}, nil)
}

func TestRun_AScanSaysWhatTheStateHas(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	w := s.ran("net", workflow.Preview, api.Result{Outcome: workflow.Succeeded, Inventory: &api.Inventory{Resources: 5, Types: []api.InventoryCount{
		{Type: "aws_subnet", Count: 4}, {Type: "aws_vpc", Count: 1},
	}}})
	shows(t, s.get("/runs/"+w.ID), "In the state · 5 resources Type Resources aws_subnet 4 aws_vpc 1")
}
