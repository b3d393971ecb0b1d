package controlplane_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// policyGroup makes a waivable group that holds for the workspace net, as changed.
func (w *world) policyGroup(change ...func(*api.PolicyGroup)) api.PolicyGroup {
	w.t.Helper()
	in := groupOf(change...)
	out, _, err := w.plane.PolicyGroups.Put(w.ctx(), w.admin, in)
	w.must(err)
	return out
}

func groupOf(change ...func(*api.PolicyGroup)) api.PolicyGroup {
	in := api.PolicyGroup{Name: "rules", Enforcement: api.PolicyWaivable, Workspaces: []string{"net"}, Source: api.Source{Git: &api.GitSource{URL: "https://git.example.com/rules", Ref: "main", TokenRef: "file:rules"}}}
	for _, c := range change {
		c(&in)
	}
	return in
}

// waiver gives a waiver for net, as changed.
func (w *world) waiver(change ...func(*api.Waiver)) api.Waiver {
	w.t.Helper()
	out, _, err := w.plane.Waivers.Put(w.ctx(), w.admin, w.waiverOf(change...))
	w.must(err)
	return out
}

func (w *world) waiverOf(change ...func(*api.Waiver)) api.Waiver {
	in := api.Waiver{Name: "legacy", Group: "rules", Rule: "main.deny", Workspace: "net", Reason: "see OPS-1", Until: w.clock.now().Add(24 * time.Hour)}
	for _, c := range change {
		c(&in)
	}
	return in
}

// begins starts a job, and returns its spec.
func (w *world) begins(job api.Job, knows []string) (api.Spec, api.Run, error) {
	w.t.Helper()
	task := "task-" + job.ID + fmt.Sprint(job.Attempt)
	w.launch(job, task)
	r := run(job, task, 'a')
	out, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: knows})
	if err != nil {
		return api.Spec{}, r, err
	}
	return *out.Spec, r, nil
}

// fieldOf is the field that a refusal names.
func fieldOf(err error) string {
	e, ok := errors.AsType[*workflow.Error](err)
	if !ok || !errors.Is(err, workflow.ErrInvalid) && !errors.Is(err, workflow.ErrNotFound) {
		return "-"
	}
	return e.Field
}

// holds are the groups of a spec, each with its waivers.
func holds(s api.Spec) (out []string) {
	for _, p := range s.Policies {
		said := p.Group + " " + p.Enforcement
		for _, waiver := range p.Waivers {
			said += " " + waiver.Name
		}
		out = append(out, said)
	}
	return out
}

func TestPolicies_AreThoseThatHoldAtTheStartOfARun(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.workspace("other")
		w.policyGroup()
		w.waiver()
		w.waiver(func(in *api.Waiver) { in.Name, in.Until = "brief", w.clock.now().Add(time.Minute) })
		wf := w.submit("net", workflow.Preview)

		// A group that is made while the run waits counts, and so does a waiver that is given. One that ends does not.
		w.clock.advance(2 * time.Minute)
		w.policyGroup(func(g *api.PolicyGroup) {
			g.Name, g.Enforcement, g.Workspaces, g.Projects = "all", api.PolicyMandatory, nil, []string{"global"}
		})
		w.policyGroup(func(g *api.PolicyGroup) { g.Name, g.IsDisabled = "off", true })
		w.policyGroup(func(g *api.PolicyGroup) { g.Name, g.Workspaces = "others", []string{"other"} })
		w.waiver(func(in *api.Waiver) { in.Name, in.Address = "meanwhile", "aws_s3_bucket.logs" })

		job := w.claimOne()
		if d := cmp.Diff([]string{"file:rules"}, job.SecretRefs); d != "" {
			t.Errorf("the launch may hand over (-want +got):\n%s", d)
		}
		spec, r, err := w.begins(job, api.RunnerKnows())
		w.must(err)
		want := []string{"all mandatory", "rules waivable legacy meanwhile"}
		if d := cmp.Diff(want, holds(spec)); d != "" {
			t.Errorf("held to (-want +got):\n%s", d)
		}
		if got := spec.Policies[1].Waivers[0]; got.GivenBy != w.admin.Name || got.Reason != "see OPS-1" || got.Until.IsZero() {
			t.Errorf("the runner is told of the waiver: %+v", got)
		}
		// Whatever changes after the start, the same boot gets the same answer.
		w.must(w.plane.Waivers.Delete(w.ctx(), w.admin, "legacy"))
		w.must(w.plane.PolicyGroups.Delete(w.ctx(), w.admin, "all"))
		again, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		if d := cmp.Diff(want, holds(again)); d != "" {
			t.Errorf("asked again (-want +got):\n%s", d)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		w.is(wf.ID, workflow.Succeeded, "")
	})
}

// A run that was submitted when no group held is refused to a runner that would ignore them.
func TestStart_WithPoliciesNeedsARunnerThatKnowsThem(t *testing.T) {
	old := slices.DeleteFunc(api.RunnerKnows(), func(s string) bool { return s == api.KnowsPolicies })
	for name, c := range map[string]struct {
		before, after bool
		reason        workflow.Reason
	}{
		"made while it waits":    {false, true, workflow.ReasonRunnerTooOld},
		"deleted while it waits": {true, false, ""},
		"there from the start":   {true, true, workflow.ReasonRunnerTooOld},
		"none":                   {false, false, ""},
	} {
		w := newWorld(t, memory.New())
		w.workspace("net")
		if c.before {
			w.policyGroup()
		}
		wf := w.submit("net", workflow.Update)
		switch {
		case c.before && !c.after:
			w.must(w.plane.PolicyGroups.Delete(w.ctx(), w.admin, "rules"))
		case c.after && !c.before:
			w.policyGroup()
		}
		_, _, err := w.begins(w.claimOne(), old)
		if got := w.show(wf.ID); got.Reason != c.reason || (err != nil) != (c.reason != "") {
			t.Errorf("%s: %s (%s), %v", name, got.State, got.Reason, err)
		}
	}
}

func TestPolicies_AreNotForScansAndWorkOnTheState(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.Engine, ws.Commands = api.EngineTofu, nil })
	w.policyGroup()
	for _, in := range []api.Submit{
		{Workspace: "net", Type: workflow.InsightsScan}, {Workspace: "net", Operation: workflow.StateList},
	} {
		_, err := w.plane.Submit(w.ctx(), w.admin, "", in)
		w.must(err)
		spec, _, err := w.begins(w.claimOne(), api.RunnerKnows())
		w.must(err)
		if len(spec.Policies) > 0 {
			t.Errorf("%s %s is held to %v", in.Type, in.Operation, holds(spec))
		}
	}
}

func TestPolicyEvaluation_NeedsAReadableState(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.Engine, ws.Commands = api.EngineTofu, nil })
	w.workspace("script")
	w.policyGroup()
	_, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "script", Type: workflow.PolicyEvaluation})
	wantErr(t, err, workflow.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "terraform and tofu") {
		t.Errorf("the refusal is %v", err)
	}
	_, err = w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Type: workflow.PolicyEvaluation, Operation: workflow.Preview})
	wantErr(t, err, workflow.ErrInvalid)

	wf, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Type: workflow.PolicyEvaluation})
	w.must(err)
	job := w.claimOne()
	spec, r, err := w.begins(job, api.RunnerKnows())
	w.must(err)
	if d := cmp.Diff([]string{"rules waivable"}, holds(spec)); d != "" {
		t.Errorf("held to (-want +got):\n%s", d)
	}
	w.must(w.result(job, r, workflow.Succeeded))
	w.is(wf.ID, workflow.Succeeded, "")

	// A schedule submits it as it does a scan.
	w.schedule(func(s *api.Schedule) {
		s.Type, s.Projects, s.Workspaces = workflow.PolicyEvaluation, nil, []string{"net"}
	})
	w.live(61 * time.Minute)
	if all := w.all(); len(all) != 2 || all[1].Type != workflow.PolicyEvaluation {
		t.Errorf("submitted: %+v", all)
	}
}

func TestPolicyGroup_IsRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	for field, change := range map[string]func(*api.PolicyGroup){
		"description":          func(g *api.PolicyGroup) { g.Description = strings.Repeat("x", 1001) },
		"enforcement":          func(g *api.PolicyGroup) { g.Enforcement = "strict" },
		"enforcement, none":    func(g *api.PolicyGroup) { g.Enforcement = "" },
		"workspaces":           func(g *api.PolicyGroup) { g.Workspaces = nil },
		"workspaces, unknown":  func(g *api.PolicyGroup) { g.Workspaces = []string{"nte"} },
		"projects":             func(g *api.PolicyGroup) { g.Projects = []string{"live"} },
		"source":               func(g *api.PolicyGroup) { g.Source = api.Source{} },
		"source.git.url":       func(g *api.PolicyGroup) { g.Source.Git = &api.GitSource{URL: "http://example.com/x", Ref: "main"} },
		"source.git.token_ref": func(g *api.PolicyGroup) { g.Source.Git.TokenRef = "hunter2" },
		"name":                 func(g *api.PolicyGroup) { g.Name = "a b" },
		"source.directory":     func(g *api.PolicyGroup) { g.Source = api.Source{Directory: "rules"} },
	} {
		_, _, err := w.plane.PolicyGroups.Put(w.ctx(), w.admin, groupOf(change))
		field, _, _ = strings.Cut(field, ",")
		if got := fieldOf(err); got != field {
			t.Errorf("%s: %v names %q", field, err, got)
		}
	}
}

func TestWaiver_IsRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.policyGroup()
	w.policyGroup(func(g *api.PolicyGroup) { g.Name, g.Enforcement = "hard", api.PolicyMandatory })
	for field, change := range map[string]func(*api.Waiver){
		"rule":                func(in *api.Waiver) { in.Rule = "" },
		"rule, two words":     func(in *api.Waiver) { in.Rule = "main deny" },
		"address":             func(in *api.Waiver) { in.Address = strings.Repeat("x", 1001) },
		"reason":              func(in *api.Waiver) { in.Reason = "  " },
		"reason, long":        func(in *api.Waiver) { in.Reason = strings.Repeat("x", 501) },
		"until":               func(in *api.Waiver) { in.Until = w.clock.now() },
		"until, none":         func(in *api.Waiver) { in.Until = time.Time{} },
		"until, far":          func(in *api.Waiver) { in.Until = w.clock.now().Add(401 * 24 * time.Hour) },
		"workspace":           func(in *api.Waiver) { in.Workspace = "nte" },
		"group":               func(in *api.Waiver) { in.Group = "rlues" },
		"group, not to waive": func(in *api.Waiver) { in.Group = "hard" },
	} {
		_, _, err := w.plane.Waivers.Put(w.ctx(), w.admin, w.waiverOf(change))
		field, _, _ = strings.Cut(field, ",")
		if got := fieldOf(err); got != field {
			t.Errorf("%s: %v names %q", field, err, got)
		}
	}
	operator := w.as(api.RoleOperator)
	_, _, err := w.plane.Waivers.Put(w.ctx(), operator, w.waiverOf())
	wantErr(t, err, workflow.ErrForbidden)
	_, _, err = w.plane.PolicyGroups.Put(w.ctx(), operator, groupOf())
	wantErr(t, err, workflow.ErrForbidden)
	if page, err := w.plane.Waivers.List(w.ctx(), w.as(api.RoleViewer), "", 0); err != nil || len(page.Items) != 0 {
		t.Errorf("a viewer sees %+v, %v", page, err)
	}
}

func TestWaiver_CountsOnlyWhileItsGroupIsWaivable(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.policyGroup()
		given := w.waiver()
		if given.GivenBy != w.admin.Name {
			t.Errorf("given by %q", given.GivenBy)
		}
		started := func() []string {
			w.submit("net", workflow.Preview)
			job := w.claimOne()
			spec, r, err := w.begins(job, api.RunnerKnows())
			w.must(err)
			w.must(w.result(job, r, workflow.Succeeded))
			return holds(spec)
		}
		wantErr(t, w.plane.PolicyGroups.Delete(w.ctx(), w.admin, "rules"), workflow.ErrInUse)
		w.policyGroup(func(g *api.PolicyGroup) { g.Enforcement = api.PolicyMandatory })
		if d := cmp.Diff([]string{"rules mandatory"}, started()); d != "" {
			t.Errorf("mandatory (-want +got):\n%s", d)
		}
		w.policyGroup()
		if d := cmp.Diff([]string{"rules waivable legacy"}, started()); d != "" {
			t.Errorf("waivable again (-want +got):\n%s", d)
		}
		w.clock.advance(25 * time.Hour)
		if d := cmp.Diff([]string{"rules waivable"}, started()); d != "" {
			t.Errorf("after its time (-want +got):\n%s", d)
		}
		w.must(w.plane.PolicyGroups.Delete(w.ctx(), w.admin, "rules")) // its waiver is over
		if got := started(); got != nil {
			t.Errorf("after the group: %v", got)
		}
		for _, action := range []string{"waiver.apply", "policy_group.apply", "policy_group.delete"} {
			page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Action: action, Outcome: "done"})
			w.must(err)
			if len(page.Items) == 0 {
				t.Errorf("the audit trail has no %s", action)
			}
		}
	})
}

// A workspace that is made under the name of another one passes by no waiver of that.
func TestWaiver_KeepsItsWorkspaceFromBeingDeleted(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.workspace("other")
		w.policyGroup()
		w.waiver()
		err := w.plane.DeleteWorkspace(w.ctx(), w.admin, "net")
		wantErr(t, err, workflow.ErrInUse)
		if !strings.Contains(err.Error(), "such as legacy") {
			t.Errorf("got %v", err)
		}
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "other"))
		w.clock.advance(25 * time.Hour)
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"))
	})
}

func TestWaiver_RefusedIfWorkspaceIsDeletedMeanwhile(t *testing.T) {
	between := &once{Store: memory.New(), sort: "waiver/legacy"}
	w := newWorld(t, between)
	w.workspace("net")
	w.policyGroup()
	between.do = func() { w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net")) }
	_, _, err := w.plane.Waivers.Put(w.ctx(), w.admin, w.waiverOf())
	wantErr(t, err, workflow.ErrNotFound)

	w.workspace("net")
	between.sort, between.do = "workspace/net", func() { w.waiver() }
	wantErr(t, w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"), workflow.ErrInUse)
}

// The policies that a run reads are bounded in size.
func TestPolicies_OfAnOrganizationAreBounded(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.policyGroup()
	var err error
	n := 0
	for ; err == nil && n < 600; n++ {
		_, _, err = w.plane.Waivers.Put(w.ctx(), w.admin, w.waiverOf(func(in *api.Waiver) {
			in.Name, in.Reason, in.Address = fmt.Sprintf("w%d", n), strings.Repeat("x", 500), strings.Repeat("y", 900)
		}))
	}
	wantErr(t, err, workflow.ErrTooLarge)
	if n < 100 || n > 200 {
		t.Errorf("%d waivers of 1.5 kB fit", n)
	}
	records, err := w.store.Get(w.ctx(), record.PoliciesKey("default"))
	w.must(err)
	if len(records[0].Value) > 200<<10 {
		t.Errorf("the record has %d bytes", len(records[0].Value))
	}
	for i := range 49 {
		w.policyGroup(func(g *api.PolicyGroup) { g.Name, g.IsDisabled = fmt.Sprintf("off%d", i), true })
	}
	_, _, err = w.plane.PolicyGroups.Put(w.ctx(), w.admin, groupOf(func(g *api.PolicyGroup) { g.Name, g.IsDisabled = "more", true }))
	wantErr(t, err, workflow.ErrInvalid)
}

func TestResult_TellsWhatPoliciesFound(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		in := api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonPolicyFailed, Detail: "policy group rules denies it: main.deny: no", Policies: []api.PolicyResult{{
			Group: "rules", Enforcement: api.PolicyWaivable, Rules: 2, Denied: 1, Waived: 1,
			Findings: []api.PolicyFinding{
				{Rule: "main.deny", Message: "no", Outcome: api.FindingDenied}, {Rule: "main.old", Message: "no", Outcome: api.FindingWaived, Waiver: "legacy"},
			},
			Waivers: []api.PolicyWaiver{{Name: "legacy", Rule: "main.old", GivenBy: "anna", Reason: "see OPS-1"}},
		}}}
		_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: in})
		w.must(err)
		got := w.is(wf.ID, workflow.Failed, workflow.ReasonPolicyFailed)
		if d := cmp.Diff(in.Policies, got.Result.Policies); d != "" {
			t.Errorf("shown (-want +got):\n%s", d)
		}
		if story := w.story(wf.ID); !strings.Contains(story, "rules (waivable): 1 denied, 1 waived") {
			t.Errorf("the timeline does not show it:\n%s", story)
		}
		for action, want := range map[string]string{"policy.deny": "main.deny", "waiver.use": "legacy (rule main.old of group rules)"} {
			page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Action: action})
			w.must(err)
			if len(page.Items) != 1 || page.Items[0].Target != wf.ID || !strings.Contains(page.Items[0].Detail, want) {
				t.Errorf("%s: %+v", action, page.Items)
			}
		}
	})
}

func TestResult_RefusesWhatNoPoliciesSay(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Preview)
	job, r := w.started()
	for name, p := range map[string]api.PolicyResult{
		"no enforcement":   {Group: "rules"},
		"a negative count": {Group: "rules", Enforcement: api.PolicyAdvisory, Denied: -1},
		"another outcome":  {Group: "rules", Enforcement: api.PolicyAdvisory, Findings: []api.PolicyFinding{{Rule: "r", Message: "m", Outcome: "fine"}}},
		"too much":         {Group: "rules", Enforcement: api.PolicyAdvisory, Findings: []api.PolicyFinding{{Rule: "r", Message: strings.Repeat("m", 1001), Outcome: api.FindingDenied}}},
		"too many":         {Group: "rules", Enforcement: api.PolicyAdvisory, Findings: make([]api.PolicyFinding, 501)},
	} {
		_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, Policies: []api.PolicyResult{p}}})
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A submission reads the groups together with what it reads anyway.
func TestSubmit_ReadsPoliciesWithTheRest(t *testing.T) {
	st := &requests{Store: memory.New()}
	w := newWorld(t, st)
	w.workspace("net")
	w.policyGroup(func(g *api.PolicyGroup) { g.Workspaces, g.Projects = nil, []string{"global"} })
	for range 2 { // the first one learns the routes
		w.submit("net", workflow.Preview)
		w.claim(10)
	}
	if d := cmp.Diff("get commit", st.of(func() { w.submit("net", workflow.Preview) })); d != "" {
		t.Errorf("a submit (-want +got):\n%s", d)
	}
}
