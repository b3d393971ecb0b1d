package controlplane_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var (
	bundleSum  = strings.Repeat("a", 64)
	summarySum = strings.Repeat("b", 64)
	seen       = api.Decision{SHA256: bundleSum}
)

// person makes an operator.
func (w *world) person(name string) controlplane.Principal {
	w.t.Helper()
	return w.another(api.NewToken{Name: name, Principal: w.principal(name).Name, Role: api.RoleOperator})
}

// another is who a new token speaks for.
func (w *world) another(in api.NewToken) controlplane.Principal {
	w.t.Helper()
	tok, err := w.plane.CreateToken(w.ctx(), w.admin, in)
	w.must(err)
	who, err := w.plane.Authenticate(w.ctx(), tok.Value)
	w.must(err)
	return who
}

// principal is the principal with a name, which is made unless there is one.
func (w *world) principal(name string) api.PrincipalRef {
	w.t.Helper()
	made, err := w.plane.CreatePrincipal(w.ctx(), w.admin, api.NewPrincipal{Name: name})
	if errors.Is(err, workflow.ErrExists) {
		all, err := w.plane.Principals(w.ctx(), w.admin, "", 200)
		w.must(err)
		return all.Items[slices.IndexFunc(all.Items, func(p api.Principal) bool { return p.Name == name })].PrincipalRef
	}
	w.must(err)
	return made.PrincipalRef
}

// refs are the principals with some names.
func (w *world) refs(names ...string) (out api.PrincipalRefs) {
	for _, name := range names {
		out = append(out, w.principal(name))
	}
	return out
}

// guarded applies a workspace of terraform that requires approvals, or does not.
func (w *world) guarded(approval *api.Approval, change ...func(*api.Workspace)) {
	w.t.Helper()
	w.workspace("net", append([]func(*api.Workspace){func(ws *api.Workspace) {
		ws.Engine, ws.Commands, ws.Approval = api.EngineTerraform, nil, approval
	}}, change...)...)
}

func required() *api.Approval { return &api.Approval{Required: true} }

// asks submits a run of the workspace.
func (w *world) asks(who controlplane.Principal, op workflow.Operation) api.Workflow {
	w.t.Helper()
	wf, err := w.plane.Submit(w.ctx(), who, "", api.Submit{Workspace: "net", Operation: op, Message: "why"})
	w.must(err)
	return wf
}

// plans runs the one preview that can be claimed; its plan is placed, and has the changes.
func (w *world) plans(changes api.Changes, more ...func(*api.Result)) api.Workflow {
	w.t.Helper()
	job, r := w.started()
	w.placed(job, time.Now())
	in := api.Result{Outcome: workflow.Succeeded, Changes: &changes, Plan: &api.PlanMade{
		Artifact: "plan/bundle.tar", Size: 10, SHA256: bundleSum, Summary: summarySum, Source: "c1", Empty: changes.Add+changes.Change+changes.Destroy == 0,
	}}
	for _, m := range more {
		m(&in)
	}
	_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: in})
	w.must(err)
	return w.show(job.ID)
}

// placed records the bundle of a job's plan, as its runner does.
func (w *world) placed(job api.Job, at time.Time) {
	w.t.Helper()
	k := record.ArtifactKey(job.ID, job.Attempt, "plan/bundle.tar")
	w.commit("placed"+job.ID, store.Put(record.Encode(k, record.Artifact{
		Kind: api.ArtifactPlan, Size: 10, SHA256: bundleSum, Place: api.Place{Kind: api.PlaceDirectory}, Recorded: at, Placed: at,
	}), store.Absent))
}

// reviewOf checks where the review of a preview stands.
func (w *world) reviewOf(id, status string) api.Review {
	w.t.Helper()
	wf := w.show(id)
	if wf.Review == nil || wf.Review.Status != status {
		w.t.Fatalf("the review is %+v, want %s\n%s", wf.Review, status, w.story(id))
	}
	return *wf.Review
}

// starts claims and starts what can be claimed, and returns how the start was answered.
func (w *world) starts() (api.Job, error) {
	w.t.Helper()
	job := w.claimOne()
	w.launch(job, "task-"+job.ID)
	_, err := w.plane.Start(w.ctx(), job.Token, run(job, "task-"+job.ID, 'a'), api.Start{Knows: api.RunnerKnows()})
	return job, err
}

var one = api.Changes{Add: 1}

func TestApproval_AnUpdateIsPlannedApprovedAndApplied(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.guarded(required())
		ada, bob := w.person("ada"), w.person("bob")
		made, err := w.plane.Submit(w.ctx(), ada, "key", api.Submit{Workspace: "net", Operation: workflow.Update, Priority: new(7), Message: "why", MaxRuntime: "20m"})
		w.must(err)
		again, err := w.plane.Submit(w.ctx(), ada, "key", api.Submit{Workspace: "net", Operation: workflow.Update, Priority: new(7), Message: "why", MaxRuntime: "20m"})
		w.must(err)
		if made.Operation != workflow.Preview || made.For != workflow.Update || again.ID != made.ID {
			t.Fatalf("submitted %+v, then %s", made, again.ID)
		}
		if _, err := w.plane.Approve(w.ctx(), bob, made.ID, seen); err == nil {
			t.Error("a plan was approved before it was made")
		}
		preview := w.plans(one)
		if preview.SlotHeld || preview.Review == nil || preview.Review.Status != api.ReviewWaiting || len(preview.Review.Why) != 1 {
			t.Fatalf("%+v", preview.Review)
		}
		list, err := w.plane.Workflows(w.ctx(), bob, controlplane.Filter{State: "awaiting_approval", Workspace: "net"})
		if w.must(err); len(list.Items) != 1 || list.Items[0].ID != made.ID || list.Items[0].Review == nil || list.Items[0].Review.Status != api.ReviewWaiting {
			t.Errorf("waiting: %+v", list.Items)
		}
		why, err := w.plane.Why(w.ctx(), bob, made.ID)
		if w.must(err); why.Code != "approval" || !strings.Contains(why.Next, "dayfly workflow approve "+made.ID) || !strings.Contains(why.Next, preview.Review.ExpiresAt.Format("2006-01-02 15:04:05")) {
			t.Errorf("why: %+v", why)
		}
		_, err = w.plane.Approve(w.ctx(), bob, made.ID, api.Decision{SHA256: summarySum})
		wantErr(t, err, workflow.ErrConflict)
		for range 2 { // the same decision again changes nothing
			_, err = w.plane.Approve(w.ctx(), bob, made.ID, seen)
			w.must(err)
		}
		next := w.show(w.reviewOf(made.ID, api.ReviewApproved).Applies)
		if next.Operation != workflow.Update || next.Applies != made.ID || next.Priority != 7 || next.Message != "why" || next.MaxRuntime != "20m0s" || next.SubmittedBy != "bob" {
			t.Errorf("the run that applies it is %+v", next)
		}
		_, err = w.plane.Reject(w.ctx(), ada, made.ID, seen)
		wantErr(t, err, workflow.ErrConflict)
		if list, err := w.plane.Workflows(w.ctx(), bob, controlplane.Filter{State: "awaiting_approval"}); err != nil || len(list.Items) > 0 {
			t.Errorf("still waiting: %+v, %v", list.Items, err)
		}
		job, r := w.started()
		spec, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		if job.ID != next.ID || spec.Plan == nil || spec.Plan.Workflow != made.ID || spec.Plan.SHA256 != bundleSum || spec.For != "" || spec.Workflow != next.ID || !slices.Contains(spec.Needs(), "plan") {
			t.Errorf("the spec is %+v", spec)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		for _, id := range []string{made.ID, next.ID} {
			if story := w.story(id); !strings.Contains(story, made.ID) && !strings.Contains(story, next.ID) {
				t.Errorf("the timeline of %s names no other run:\n%s", id, story)
			}
			plan, err := w.plane.Plan(w.ctx(), ada, id)
			if w.must(err); plan.Workflow != made.ID || plan.Changes.Add != 1 || plan.Review == nil {
				t.Errorf("plan of %s: %+v", id, plan)
			}
		}
	})
}

// onState is a result of a run that found the state at a serial.
func onState(serial int64) func(*api.Result) {
	return func(in *api.Result) { in.State = &api.StateFound{Backend: "local", Lineage: "l", Serial: serial} }
}

// applies starts what can be claimed, which leaves the state at a serial.
func (w *world) applies(serial int64) {
	w.t.Helper()
	job, r := w.started()
	in := api.Result{Outcome: workflow.Succeeded, Changes: &one}
	onState(serial)(&in)
	_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: in})
	w.must(err)
}

func TestApproval_APlanIsStaleOnceTheStateHasMoved(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.guarded(required())
		ada, bob := w.person("ada"), w.person("bob")
		awaiting := func() (ids []string) {
			list, err := w.plane.Workflows(w.ctx(), bob, controlplane.Filter{State: "awaiting_approval"})
			w.must(err)
			for _, one := range list.Items {
				ids = append(ids, one.ID)
			}
			return ids
		}
		isStale := func(id, says string) {
			t.Helper()
			if r := w.reviewOf(id, api.ReviewStale); !strings.Contains(r.Stale, says) || w.show(id).ToApprove {
				t.Errorf("it says %q, want %q", r.Stale, says)
			}
			_, err := w.plane.Approve(w.ctx(), bob, id, seen)
			wantErr(t, err, workflow.ErrConflict)
			if !strings.Contains(err.Error(), "plan_stale: ") || !strings.Contains(err.Error(), "dayfly workflow retry "+id) {
				t.Errorf("approve: %v", err)
			}
			why, err := w.plane.Why(w.ctx(), bob, id)
			if w.must(err); !strings.Contains(why.Summary, says) || !strings.Contains(why.Next, "dayfly workflow retry "+id) || why.Code != "" {
				t.Errorf("why: %+v", why)
			}
		}
		w.asks(ada, workflow.Update)
		first := w.plans(one, onState(3)).ID
		w.asks(ada, workflow.Update)
		second := w.plans(one, onState(3)).ID
		w.approves(bob, first)
		if got := awaiting(); !slices.Equal(got, []string{second}) {
			t.Errorf("awaiting: %q", got)
		}
		w.applies(4)
		isStale(second, "its serial was 3, and is 4")
		if got := awaiting(); got != nil {
			t.Errorf("awaiting: %q", got)
		}
		list, err := w.plane.Workflows(w.ctx(), bob, controlplane.Filter{Workspace: "net"})
		w.must(err)
		for _, one := range list.Items {
			if one.ID == second && one.Review.Status != api.ReviewStale || one.ToApprove {
				t.Errorf("in the list: %+v", one.Review)
			}
		}

		// One that was made beside the run which moved the state, and ended after it.
		w.asks(ada, workflow.Update)
		slow := w.plans(one, onState(3)).ID
		isStale(slow, "its serial was 3, and is 4")
		if story := w.story(slow); !strings.Contains(story, "plan_stale") {
			t.Errorf("its timeline:\n%s", story)
		}

		// Planned again it can be approved, and a run that is approved does not start once the state has moved.
		again, err := w.plane.Retry(w.ctx(), ada, "", second, api.WithReason{})
		w.must(err)
		w.plans(one, onState(4))
		w.asks(ada, workflow.Preview)
		beside, r := w.started()
		w.approves(bob, again.ID)
		next := w.reviewOf(again.ID, api.ReviewApproved).Applies
		in := api.Result{Outcome: workflow.Succeeded}
		onState(5)(&in)
		_, err = w.plane.Result(w.ctx(), beside.Token, r, api.Handover{Result: in})
		w.must(err)
		if job, err := w.starts(); job.ID != next || err == nil {
			t.Errorf("%s started: %v", job.ID, err)
		}
		if got := w.show(next); got.Reason != workflow.ReasonPlanStale || !strings.Contains(got.Detail, "its serial was 4, and is 5") {
			t.Errorf("the run ended as %s: %s", got.Reason, got.Detail)
		}
	})
}

// A plan that was made to be applied without an approval is not applied either.
func TestApproval_AStalePlanIsNotAppliedByARule(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(requiring("destroys"))
	ada := w.person("ada")
	w.asks(ada, workflow.Update)
	w.reviewOf(w.plans(one, onState(7)).ID, api.ReviewApproved)
	w.applies(8)
	w.asks(ada, workflow.Update)
	w.reviewOf(w.plans(one, onState(7)).ID, api.ReviewStale)
}

func TestApproval_WhatIsAskedForBecomesAPreview(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(required())
	ada := w.person("ada")
	for op, want := range map[workflow.Operation]workflow.Operation{
		workflow.Update: workflow.Update, workflow.Destroy: workflow.Destroy, workflow.Refresh: workflow.Refresh,
		workflow.StatePush: workflow.StatePush, workflow.Preview: workflow.Update, workflow.StateList: "", workflow.StatePull: "",
	} {
		in := api.Submit{Workspace: "net", Operation: op}
		if op == workflow.StatePush {
			in.Push = &api.PushedState{SHA256: bundleSum, Size: 3, Force: true}
		}
		wf, err := w.plane.Submit(w.ctx(), ada, "", in)
		w.must(err)
		if wf.For != want || want != "" && wf.Operation != workflow.Preview || want == "" && wf.Operation != op {
			t.Errorf("%s became %s for %q", op, wf.Operation, wf.For)
		}
		_, err = w.plane.Cancel(w.ctx(), ada, wf.ID, api.WithReason{})
		w.must(err)
		retried, err := w.plane.Retry(w.ctx(), ada, "", wf.ID, api.WithReason{})
		w.must(err)
		if retried.For != wf.For || retried.Operation != wf.Operation {
			t.Errorf("the retry of %s is %s for %q", op, retried.Operation, retried.For)
		}
		job := w.claimOne()
		_, err = w.plane.Cancel(w.ctx(), ada, job.ID, api.WithReason{})
		w.must(err)
	}
	w.workspace("own", func(ws *api.Workspace) { ws.Approval = required() })
	_, err := w.plane.Submit(w.ctx(), ada, "", api.Submit{Workspace: "own", Operation: workflow.Update})
	wantErr(t, err, workflow.ErrInvalid)
	if wf, err := w.plane.Submit(w.ctx(), ada, "", api.Submit{Workspace: "own", Operation: workflow.Preview}); err != nil || wf.For != "" {
		t.Errorf("%+v, %v", wf, err)
	}
}

func TestApproval_ARetriedPreviewStaysOne(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(required())
	ada := w.person("ada")
	w.asks(ada, workflow.Destroy)
	first := w.plans(one)
	w.guarded(nil) // nothing is required any more
	again, err := w.plane.Retry(w.ctx(), ada, "", first.ID, api.WithReason{})
	w.must(err)
	if again.Operation != workflow.Preview || again.For != workflow.Destroy {
		t.Fatalf("the retry is %s for %q", again.Operation, again.For)
	}
	w.plans(one)
	r := w.reviewOf(again.ID, api.ReviewApproved)
	if len(r.Votes) != 1 || r.Votes[0].By != "rule" {
		t.Errorf("approved by %+v", r.Votes)
	}
	next, err := w.starts()
	w.must(err)
	if next.ID != r.Applies || next.Operation != workflow.Destroy {
		t.Errorf("started %+v", next)
	}
}

func TestApproval_WhatAPlanNeeds(t *testing.T) {
	destroys := &api.Approval{Required: true, Rules: []string{"destroys"}}
	for name, tc := range map[string]struct {
		approval *api.Approval
		op       workflow.Operation
		changes  api.Changes
		more     func(*api.Result)
		want     string // "": no review
	}{
		"nothing changes":             {required(), workflow.Update, api.Changes{}, nil, api.ReviewEmpty},
		"nothing is wanted":           {destroys, workflow.Update, one, nil, api.ReviewApproved},
		"nothing is wanted or asked":  {destroys, workflow.Preview, one, nil, api.ReviewWaiting},
		"it destroys":                 {destroys, workflow.Update, api.Changes{Destroy: 1}, nil, api.ReviewWaiting},
		"an older runner leaves none": {required(), workflow.Update, one, func(r *api.Result) { r.Plan = nil }, ""},
		"a failed preview has none":   {required(), workflow.Update, one, func(r *api.Result) { r.Outcome, r.Reason = workflow.Failed, workflow.ReasonStepFailed }, ""},
		"another bundle was placed":   {destroys, workflow.Update, one, func(r *api.Result) { r.Plan.SHA256 = summarySum }, api.ReviewWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.guarded(tc.approval)
			made := w.asks(w.person("ada"), tc.op)
			more := tc.more
			if more == nil {
				more = func(*api.Result) {}
			}
			got := w.plans(tc.changes, more)
			if tc.want == "" {
				if got.Review != nil {
					t.Errorf("review %+v", got.Review)
				}
				return
			}
			r := w.reviewOf(made.ID, tc.want)
			if (r.Applies != "") != (tc.want == api.ReviewApproved) {
				t.Errorf("applied by %q", r.Applies)
			}
		})
	}
}

func TestApproval_NotBySubmitter(t *testing.T) {
	w := newWorld(t, memory.New())
	ada, bob, eve := w.person("ada"), w.person("bob"), w.person("eve")
	git := func(ws *api.Workspace) {
		ws.Source = api.Source{Git: &api.GitSource{URL: "https://example.com/a.git", Ref: "main"}}
	}
	apply := func(commit string, approvers ...controlplane.Principal) {
		t.Helper()
		made := w.asks(ada, workflow.Update)
		w.plans(one, func(r *api.Result) { r.Plan.Source = commit })
		for _, not := range []controlplane.Principal{ada, w.admin} { // who submitted it, and who changed the workspace
			_, err := w.plane.Approve(w.ctx(), not, made.ID, seen)
			wantErr(t, err, workflow.ErrForbidden)
		}
		for i, who := range approvers {
			if r := w.reviewOf(made.ID, api.ReviewWaiting); r.Needed != len(approvers) || len(r.Votes) != i {
				t.Fatalf("%+v", r)
			}
			_, err := w.plane.Approve(w.ctx(), who, made.ID, seen)
			w.must(err)
		}
		w.reviewOf(made.ID, api.ReviewApproved)
		job, r := w.started()
		w.must(w.result(job, r, workflow.Succeeded))
	}
	w.guarded(&api.Approval{Required: true, NotBySubmitter: true}, git)
	apply("c1", bob, eve) // the authors of the new commits are not known
	apply("c1", bob)
	apply("c2", eve, bob)
	w.guarded(&api.Approval{Required: true, NotBySubmitter: true}, func(ws *api.Workspace) { ws.Source.Directory = "/src" })
	apply("", bob)
}

func TestApproval_WhatChangedMeanwhileRefusesIt(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world, id string)
		want   error
		say    string
	}{
		"a setting": {func(w *world, _ string) {
			w.guarded(required(), func(ws *api.Workspace) { ws.Environment = map[string]string{"A": "b"} })
		}, workflow.ErrConflict, "plan_stale"},
		"the workspace": {func(w *world, _ string) { w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net")) }, workflow.ErrConflict, "plan_stale"},
		"time":          {func(w *world, _ string) { w.clock.advance(72 * time.Hour) }, workflow.ErrConflict, "nobody approved"},
		"a shorter expiry": {func(w *world, _ string) {
			w.guarded(&api.Approval{Required: true, Expires: "1h"})
			w.clock.advance(2 * time.Hour)
		}, workflow.ErrConflict, "nobody approved"},
		"not by submitter": {func(w *world, _ string) { w.guarded(&api.Approval{Required: true, NotBySubmitter: true}) }, workflow.ErrForbidden, "somebody else"},
		"a rejection": {func(w *world, id string) {
			_, err := w.plane.Reject(w.ctx(), w.admin, id, api.Decision{SHA256: bundleSum, Comment: "no"})
			w.must(err)
		}, workflow.ErrConflict, "was rejected by "},
		"the pool, by its project": {func(w *world, _ string) {
			w.project(record.GlobalProject, "", w.newPool("blue").PoolID)
		}, workflow.ErrConflict, "plan_stale: the plan lies on the side of another pool than blue"},
		"the pool, by the default": {func(w *world, _ string) { w.defaultPool(w.newPool("blue").PoolID) }, workflow.ErrConflict, "plan_stale: the plan lies on the side of another pool than blue"},
		"only a name":              {func(w *world, _ string) { w.guarded(required(), func(ws *api.Workspace) { ws.Description = "new" }) }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.guarded(required())
			who := w.as(api.RoleAdmin)
			made := w.asks(who, workflow.Update)
			w.plans(one)
			tc.change(w, made.ID)
			_, err := w.plane.Approve(w.ctx(), who, made.ID, seen)
			if tc.want == nil {
				w.must(err)
				return
			}
			if wantErr(t, err, tc.want); err == nil || !strings.Contains(err.Error(), tc.say) {
				t.Errorf("it says %v, want %q", err, tc.say)
			}
			if r := w.show(made.ID).Review; r.Applies != "" || slices.ContainsFunc(r.Votes, func(v api.Vote) bool { return !v.Reject }) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A level requires more after the decision was made and before its commit: it is decided again.
func TestApproval_LevelsAreCheckedInItsCommit(t *testing.T) {
	stricter := &api.Approval{Required: true, NotBySubmitter: true}
	for name, change := range map[string]func(w *world) error{
		"the organization": func(w *world) error {
			_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{Approval: stricter})
			return err
		},
		"a project": func(w *world) error {
			_, err := w.plane.UpdateProject(w.ctx(), w.admin, record.GlobalProject, api.ProjectSettings{Approval: stricter})
			return err
		},
		"the workspace": func(w *world) error { w.guarded(stricter); return nil },
	} {
		t.Run(name+", and somebody approves", func(t *testing.T) {
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			w.guarded(required())
			ada := w.person("ada")
			made := w.asks(ada, workflow.Update)
			w.plans(one)
			st.beforeCommit = writing(record.ReviewKey(made.ID), api.ReviewApproved, func() { w.must(change(w)) })
			_, err := w.plane.Approve(w.ctx(), ada, made.ID, seen)
			wantErr(t, err, workflow.ErrForbidden)
			w.reviewOf(made.ID, api.ReviewWaiting)
		})
		t.Run(name+", and no rule wanted an approval", func(t *testing.T) {
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			w.guarded(requiring("destroys"))
			made := w.asks(w.person("ada"), workflow.Update)
			st.beforeCommit = writing(record.ReviewKey(made.ID), api.ReviewApproved, func() { w.must(change(w)) })
			w.plans(one)
			if w.reviewOf(made.ID, api.ReviewWaiting); st.beforeCommit != nil {
				t.Error("nothing changed meanwhile")
			}
		})
	}
}

func TestApproval_TheStartIsRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	ada := w.person("ada")
	w.guarded(nil)
	direct := w.asks(ada, workflow.Update)
	w.guarded(required())
	_, err := w.starts()
	wantErr(t, err, workflow.ErrOver)
	w.is(direct.ID, workflow.Failed, workflow.ReasonNotApproved)
	again, err := w.plane.Retry(w.ctx(), ada, "", direct.ID, api.WithReason{})
	if w.must(err); again.For != workflow.Update {
		t.Fatalf("the retry is %+v", again)
	}
	w.plans(one)
	_, err = w.plane.Approve(w.ctx(), ada, again.ID, seen)
	w.must(err)
	w.guarded(required(), func(ws *api.Workspace) { ws.Variables = map[string]any{"a": 1} })
	job, err := w.starts()
	wantErr(t, err, workflow.ErrOver)
	w.is(job.ID, workflow.Failed, workflow.ReasonPlanStale)
	if slot, err := w.plane.Slot(w.ctx(), ada, "net"); err != nil || slot.Holder != nil {
		t.Errorf("the workspace is held: %+v, %v", slot, err)
	}
}

func TestApproval_OnlyWhoHasThePlanClaimsIt(t *testing.T) {
	w := newWorld(t, memory.New())
	yes := true
	_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{AllowMultipleInstances: &yes})
	w.must(err)
	w.guarded(required())
	ada := w.person("ada")
	made := w.asks(ada, workflow.Update)
	w.plans(one)
	_, err = w.plane.Approve(w.ctx(), ada, made.ID, seen)
	w.must(err)
	out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "two", Max: 5})
	if w.must(err); len(out.Jobs) > 0 {
		t.Errorf("another instance claimed %+v", out.Jobs)
	}
	why, err := w.plane.Why(w.ctx(), ada, w.show(made.ID).Review.Applies)
	if w.must(err); !strings.Contains(why.Waiting, "instance one of pool default") {
		t.Errorf("it waits for %s", why.Waiting)
	}
	w.claimOne()
}

func TestRace_DecisionsAboutAPlan(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		ada, bob := w.person("ada"), w.person("bob")
		approve := func(who controlplane.Principal, id string) func() error {
			return func() error { _, err := w.plane.Approve(w.ctx(), who, id, seen); return err }
		}
		for round := range 4 {
			w.guarded(required())
			made := w.asks(ada, workflow.Update)
			w.plans(one)
			race(approve(ada, made.ID), approve(bob, made.ID), approve(bob, made.ID), func() error {
				_, err := w.plane.Reject(w.ctx(), w.admin, made.ID, seen)
				return err
			}, func() error {
				if round%2 == 0 {
					return nil
				}
				w.guarded(required(), func(ws *api.Workspace) { ws.Environment = map[string]string{"A": "b"} })
				return nil
			})
			list, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{Workspace: "net", Limit: 100})
			w.must(err)
			applies := 0
			for _, wf := range list.Items {
				if wf.Applies == made.ID {
					applies++
				}
			}
			r := w.show(made.ID).Review
			if len(r.Votes) > 1 || (r.Applies != "") != (r.Status == api.ReviewApproved) || applies > 1 {
				t.Fatalf("%d runs apply it: %+v", applies, r)
			}
			if r.Applies == "" {
				continue
			}
			job, err := w.starts()
			if stale := round%2 == 1; (err != nil) && !stale || job.ID != r.Applies {
				t.Fatalf("start of %s: %v", job.ID, err)
			}
			if err == nil {
				w.must(w.result(job, run(job, "task-"+job.ID, 'a'), workflow.Succeeded))
			}
		}
	})
}

// A preview frees its place in the commit that makes the run which applies its plan.
func TestApproval_ImmediateApplyKeepsTheQueueIntact(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		single := func(ws *api.Workspace) { ws.MaxActive = 1 }
		w.guarded(nil, single)
		blocker, first := w.asks(w.admin, workflow.Preview), w.asks(w.admin, workflow.Update)
		w.guarded(&api.Approval{Required: true, Rules: []string{"destroys"}}, single)
		planned, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, Priority: new(50)})
		w.must(err)
		_, err = w.plane.Cancel(w.ctx(), w.admin, blocker.ID, api.WithReason{})
		w.must(err)
		w.plans(one) // its end makes the first one claimable, which the run that applies the plan overtakes
		job, err := w.starts()
		w.must(err)
		if job.ID != w.reviewOf(planned.ID, api.ReviewApproved).Applies {
			t.Fatalf("started %s", job.ID)
		}
		w.must(w.result(job, run(job, "task-"+job.ID, 'a'), workflow.Succeeded))
		job, err = w.starts()
		if wantErr(t, err, workflow.ErrOver); job.ID != first.ID {
			t.Errorf("started %s", job.ID)
		}
		next := w.asks(w.admin, workflow.Preview)
		if job := w.claimOne(); job.ID != next.ID {
			t.Errorf("claimed %s, want %s", job.ID, next.ID)
		}
	})
}

func TestResult_APlanIsCheckedAndAskedFor(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(required())
	w.asks(w.admin, workflow.Update)
	job, r := w.started()
	good := api.PlanMade{Artifact: "plan/bundle.tar", Size: 1, SHA256: bundleSum, Summary: summarySum}
	for name, change := range map[string]func(*api.Result){
		"a name of the code's":   func(in *api.Result) { in.Plan.Artifact = "files/bundle.tar" },
		"a hash in upper case":   func(in *api.Result) { in.Plan.SHA256 = strings.ToUpper(bundleSum) },
		"no hash of the summary": func(in *api.Result) { in.Plan.Summary = "" },
		"no bytes":               func(in *api.Result) { in.Plan.Size = 0 },
		"a negative count":       func(in *api.Result) { in.Changes = &api.Changes{Destroy: -1} },
		"too many resources":     func(in *api.Result) { in.Changes = &api.Changes{Resources: make([]api.ResourceChange, 1001)} },
		"a long name": func(in *api.Result) {
			in.Changes = &api.Changes{Resources: []api.ResourceChange{{Changed: []string{strings.Repeat("a", 256)}}}}
		},
	} {
		plan := good
		in := api.Result{Outcome: workflow.Succeeded, Plan: &plan}
		change(&in)
		if _, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: in}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	w.must(w.result(job, r, workflow.Succeeded))
	w.asks(w.admin, workflow.StateList)
	job, r = w.started()
	_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, Plan: &good}})
	wantErr(t, err, workflow.ErrInvalid)
}

func TestSubmit_AStateToPushIsNamed(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(nil)
	w.workspace("own")
	good := api.PushedState{SHA256: bundleSum, Size: 3}
	for name, tc := range map[string]struct {
		in    api.Submit
		field string
	}{
		"no state":       {api.Submit{Workspace: "net", Operation: workflow.StatePush}, "push"},
		"another run":    {api.Submit{Workspace: "net", Operation: workflow.Update, Push: &good}, "push"},
		"no hash":        {api.Submit{Workspace: "net", Operation: workflow.StatePush, Push: &api.PushedState{SHA256: "x", Size: 3}}, "push.sha256"},
		"no bytes":       {api.Submit{Workspace: "net", Operation: workflow.StatePush, Push: &api.PushedState{SHA256: bundleSum}}, "push.size"},
		"commands: push": {api.Submit{Workspace: "own", Operation: workflow.StatePush, Push: &good}, "operation"},
		"commands: pull": {api.Submit{Workspace: "own", Operation: workflow.StatePull}, "operation"},
	} {
		_, err := w.plane.Submit(w.ctx(), w.admin, "", tc.in)
		if refusal, ok := errors.AsType[*workflow.Error](err); !ok || refusal.Field != tc.field {
			t.Errorf("%s: %v, want it to be about %s", name, err, tc.field)
		}
	}
	in := api.Submit{Workspace: "net", Operation: workflow.StatePush, Push: &good}
	first, err := w.plane.Submit(w.ctx(), w.admin, "key", in)
	w.must(err)
	other := good
	other.Force = true
	in.Push = &other
	_, err = w.plane.Submit(w.ctx(), w.admin, "key", in)
	wantErr(t, err, workflow.ErrKeyReused)
	job, r := w.started()
	if wf := w.show(first.ID); !wf.SlotHeld {
		t.Error("it does not hold the slot")
	}
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	if w.must(err); spec.Push == nil || *spec.Push != good {
		t.Errorf("push is %+v", spec.Push)
	}
	w.must(w.result(job, r, workflow.Failed))
	again, err := w.plane.Retry(w.ctx(), w.admin, "", first.ID, api.WithReason{})
	w.must(err)
	job, r = w.started()
	if spec, err = w.plane.Spec(w.ctx(), job.Token, r); err != nil || job.ID != again.ID || spec.Push == nil || *spec.Push != good {
		t.Errorf("the retry pushes %+v: %v", spec.Push, err)
	}
}

func TestApproval_CancellingAWaitingPreviewWithdrawsIt(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(required())
	ada, bob := w.person("ada"), w.person("bob")
	made := w.asks(ada, workflow.Update)
	w.plans(one)
	w.reviewOf(made.ID, api.ReviewWaiting)
	got, err := w.plane.Cancel(w.ctx(), ada, made.ID, api.WithReason{})
	w.must(err)
	r := w.reviewOf(made.ID, api.ReviewRejected)
	if got.State != workflow.Succeeded || len(r.Votes) != 1 || r.Votes[0].By != "ada" || r.Votes[0].Comment != "cancelled" {
		t.Errorf("the preview is %s, its votes are %+v", got.State, r.Votes)
	}
	if _, err := w.plane.Approve(w.ctx(), bob, made.ID, seen); !errors.Is(err, workflow.ErrConflict) {
		t.Errorf("a withdrawn plan was approved: %v", err)
	}
	if _, err := w.plane.Cancel(w.ctx(), ada, made.ID, api.WithReason{}); !errors.Is(err, workflow.ErrConflict) {
		t.Errorf("it was cancelled twice: %v", err)
	}
}

func TestApproval_APlanWaitsNoLongerThanItsBundleIsKept(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(&api.Approval{Required: true, Expires: "168h"})
	_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{ArtifactRetention: new(7)})
	w.must(err)
	ada, bob := w.person("ada"), w.person("bob")
	made := w.asks(ada, workflow.Update)
	w.clock.advance(20 * time.Hour) // it waits for its start
	w.plans(one)
	if r := w.reviewOf(made.ID, api.ReviewWaiting); !r.ExpiresAt.Equal(made.SubmittedAt.Add(7 * record.Day)) {
		t.Errorf("it may be approved until %s, and its bundle is kept for 7 days from %s", r.ExpiresAt, made.SubmittedAt)
	}
	w.clock.advance(6*record.Day + 4*time.Hour)
	if _, err := w.plane.Approve(w.ctx(), bob, made.ID, seen); !errors.Is(err, workflow.ErrConflict) {
		t.Errorf("a plan was approved whose bundle is not kept any longer: %v", err)
	}
}

// A runner that does not know plans of Pulumi gets none, and the review says what they leave open.
func TestApproval_OfPulumiSaysWhatItLeavesOpen(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(required(), func(ws *api.Workspace) { ws.Engine, ws.State = api.EnginePulumi, &api.State{Workspace: "dev"} })
	made := w.asks(w.person("ada"), workflow.Destroy)
	if preview := w.plans(one, func(r *api.Result) { r.Plan.Loose = true }); made.For != workflow.Destroy || !strings.Contains(preview.Review.Unfixed, "goes beyond this plan") {
		t.Errorf("submitted for %s, review %+v", made.For, preview.Review)
	}
	_, err := w.plane.Approve(w.ctx(), w.person("bob"), made.ID, seen)
	w.must(err)
	job, r := w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	if w.must(err); spec.Plan == nil || !slices.Contains(spec.Needs(), "plan_pulumi") {
		t.Errorf("the spec is %+v", spec)
	}
}
