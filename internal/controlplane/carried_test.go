package controlplane_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var valuesSum = strings.Repeat("c", 64)

// valued gives a plan the digest of its values, and the commit that it was made of.
func valued(values, commit string) func(*api.Result) {
	return func(r *api.Result) { r.Plan.Values, r.Plan.Source = values, commit }
}

// triggers submits a run for a pull request or a push, for which the submitters answer.
func (w *world) triggers(kind string, op workflow.Operation, strangers bool, submitters ...string) api.Workflow {
	w.t.Helper()
	by := runs.Triggered{Trigger: record.Trigger{Kind: kind, Name: "forge", Repository: "Example/Infra", Commit: strings.Repeat("2", 40)}, Submitters: w.refs(submitters...), Strangers: strangers}
	if kind == api.TriggerPullRequest {
		by.Number, by.Repository, by.Commit = 17, "example/infra", strings.Repeat("1", 40)
	}
	wf, err := w.plane.SubmitFor(w.ctx(), controlplane.Principal{Organization: "default", ID: "prn_pipeline", Name: "pipeline", Audience: w.admin.Audience}, "", api.Submit{Workspace: "net", Operation: op}, by)
	w.must(err)
	return wf
}

// pulled is a pull request's preview with a plan that waits.
func (w *world) pulled(values string, submitters ...string) api.Workflow {
	w.t.Helper()
	made := w.triggers(api.TriggerPullRequest, workflow.Preview, false, submitters...)
	w.plans(one, valued(values, "c1"))
	w.reviewOf(made.ID, api.ReviewWaiting)
	return made
}

// merged is the preview that the push of the merged commit makes of its update.
func (w *world) merged(values string, submitters ...string) api.Workflow {
	w.t.Helper()
	made := w.triggers(api.TriggerPush, workflow.Update, false, submitters...)
	w.plans(one, valued(values, "c2"))
	return made
}

func (w *world) approves(who controlplane.Principal, id string) {
	w.t.Helper()
	_, err := w.plane.Approve(w.ctx(), who, id, seen)
	w.must(err)
}

func afterMerge() *api.Approval { return &api.Approval{Required: true, AfterMerge: true} }

// reviewed is guarded for a workspace whose source has pull requests.
func (w *world) reviewed(approval *api.Approval, change ...func(*api.Workspace)) {
	w.t.Helper()
	w.guarded(approval, append(change, func(ws *api.Workspace) {
		ws.Source = api.Source{Git: &api.GitSource{URL: "https://forge.example/example/infra.git", Ref: "main"}}
	})...)
}

func TestCarried_APullRequestIsApprovedMergedAndApplied(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.reviewed(afterMerge())
		ada, bob := w.person("ada"), w.person("bob")
		pull := w.pulled(valuesSum, "ada")
		w.approves(bob, pull.ID)
		waits := w.reviewOf(pull.ID, api.ReviewMerge)
		if waits.Applies != "" || len(waits.Votes) != 1 || !strings.Contains(w.story(pull.ID), "it waits for the merge") {
			t.Fatalf("%+v\n%s", waits, w.story(pull.ID))
		}
		_, err := w.plane.Approve(w.ctx(), ada, pull.ID, seen)
		wantErr(t, err, workflow.ErrConflict)
		if list, err := w.plane.Workflows(w.ctx(), bob, controlplane.Filter{State: "awaiting_approval"}); err != nil || len(list.Items) > 0 {
			t.Errorf("waiting for an approval: %+v, %v", list.Items, err)
		}
		if why, err := w.plane.Why(w.ctx(), bob, pull.ID); err != nil || !strings.Contains(why.Summary, "approved by bob, and waits for the merge") {
			t.Errorf("why: %+v, %v", why, err)
		}
		w.clock.advance(5 * record.Day) // longer than a plan waits for its approval
		push := w.merged(valuesSum, "mia")
		r := w.reviewOf(push.ID, api.ReviewApproved)
		if r.CarriedFrom != pull.ID || len(r.Votes) != 1 || r.Votes[0] != waits.Votes[0] {
			t.Errorf("%+v, and of the pull request %+v", r, waits)
		}
		const text = ", approved by bob, because all planned changes are equal"
		if story := w.story(push.ID); !strings.Contains(story, "carried over from "+pull.ID+text) {
			t.Errorf("the timeline does not say it:\n%s", story)
		}
		if from := w.reviewOf(pull.ID, api.ReviewCarried); from.CarriedTo != push.ID || !strings.Contains(w.story(pull.ID), "carried over to "+push.ID) {
			t.Errorf("%+v\n%s", from, w.story(pull.ID))
		}
		for id, want := range map[string]string{pull.ID: "its approvals were carried over to " + push.ID, push.ID: "its plan is approved by bob on " + pull.ID} {
			if why, err := w.plane.Why(w.ctx(), bob, id); err != nil || !strings.Contains(why.Summary, want) {
				t.Errorf("why %s: %+v, %v", id, why.Summary, err)
			}
		}
		_, err = w.plane.Reject(w.ctx(), ada, pull.ID, seen)
		wantErr(t, err, workflow.ErrConflict)
		job, run := w.started()
		if spec, err := w.plane.Spec(w.ctx(), job.Token, run); err != nil || job.ID != r.Applies || spec.Plan.Workflow != push.ID || spec.Plan.Source != "c2" {
			t.Errorf("%s applies %+v, %v", job.ID, spec.Plan, err)
		}
		w.must(w.result(job, run, workflow.Succeeded))
		again := w.merged(valuesSum, "mia") // approvals are used once
		w.reviewOf(again.ID, api.ReviewWaiting)
		if story := w.story(again.ID); strings.Contains(story, "carr") {
			t.Errorf("no approval is left, and the timeline says\n%s", story)
		}
	})
}

func TestCarried_OnlyWhereNothingElseChanged(t *testing.T) {
	other := strings.Repeat("d", 64)
	for name, tc := range map[string]struct {
		before func(w *world, pull string) // after the approval
		values string
		repo   string
		say    string
	}{
		"other changes":   {values: other, say: "none has the same planned changes"},
		"no digest":       {values: "", say: "none has the same planned changes"},
		"another setting": {before: func(w *world, _ string) { w.setting("A") }, values: valuesSum, say: "the settings of the workspace were changed since"},
		"rejected": {before: func(w *world, pull string) {
			_, err := w.plane.Reject(w.ctx(), w.admin, pull, seen)
			w.must(err)
		}, values: valuesSum},
		"cancelled": {before: func(w *world, pull string) {
			_, err := w.plane.Cancel(w.ctx(), w.admin, pull, api.WithReason{})
			w.must(err)
		}, values: valuesSum},
		"too late": {before: func(w *world, _ string) { w.clock.advance(15 * record.Day) }, values: valuesSum, say: "too old"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.reviewed(afterMerge())
			pull := w.pulled(valuesSum, "ada")
			w.approves(w.person("bob"), pull.ID)
			if tc.before != nil {
				tc.before(w, pull.ID)
			}
			push := w.merged(tc.values, "mia")
			if r := w.reviewOf(push.ID, api.ReviewWaiting); len(r.Votes) > 0 || r.CarriedFrom != "" {
				t.Errorf("%+v", r)
			}
			story := w.story(push.ID)
			if tc.say != "" && (!strings.Contains(story, tc.say) || strings.Count(story, "not_carried") != 1) || tc.say == "" && strings.Contains(story, "carr") {
				t.Errorf("it does not say once %q:\n%s", tc.say, story)
			}
			if r := w.show(pull.ID).Review; r.CarriedTo != "" || r.Status == api.ReviewCarried {
				t.Errorf("of the pull request: %+v", r)
			}
		})
	}
}

// setting changes what the workspace's runs do.
func (w *world) setting(value string) {
	w.reviewed(afterMerge(), func(ws *api.Workspace) { ws.Environment = map[string]string{"A": value} })
}

func TestCarried_OnlyToThePushOfThatRepository(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(afterMerge())
	bob := w.person("bob")
	pull := w.pulled(valuesSum, "ada")
	w.approves(bob, pull.ID)
	mine := w.asks(bob, workflow.Update) // a person's
	w.plans(one, valued(valuesSum, "c2"))
	w.reviewOf(mine.ID, api.ReviewWaiting)
	second := w.pulled(valuesSum, "ada") // another pull request
	if w.reviewOf(second.ID, api.ReviewWaiting).CarriedFrom != "" {
		t.Error("the approvals of one pull request count for another one")
	}
	other := runs.Triggered{Trigger: record.Trigger{Kind: api.TriggerPush, Name: "forge", Repository: "example/other"}}
	wf, err := w.plane.SubmitFor(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update}, other)
	w.must(err)
	w.plans(one, valued(valuesSum, "c2"))
	w.reviewOf(wf.ID, api.ReviewWaiting)
	push := w.merged(valuesSum, "mia")
	w.reviewOf(push.ID, api.ReviewApproved)
}

// Without after_merge, an approval applies the plan of a pull request at once, and is used up by that.
func TestCarried_AppliedBeforeTheMerge(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(required())
	pull := w.pulled(valuesSum, "ada")
	w.approves(w.person("bob"), pull.ID)
	w.reviewOf(pull.ID, api.ReviewApproved)
	job, run := w.started()
	w.must(w.result(job, run, workflow.Failed))
	push := w.merged(valuesSum, "mia")
	w.reviewOf(push.ID, api.ReviewWaiting)
	if story := w.story(push.ID); strings.Contains(story, "carr") {
		t.Errorf("\n%s", story)
	}
}

// Approvals that were not enough for the pull request are carried over as well, and wait for the rest.
func TestCarried_OneOfTwo(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(&api.Approval{Required: true, NotBySubmitter: true, AfterMerge: true})
	ada, bob, eve := w.person("ada"), w.person("bob"), w.person("eve")
	pull := w.triggers(api.TriggerPullRequest, workflow.Preview, true, "ada")
	w.plans(one, valued(valuesSum, "c1"))
	if r := w.reviewOf(pull.ID, api.ReviewWaiting); r.Needed != 2 || !strings.Contains(r.NeededWhy, "is not known here") || !strings.Contains(w.story(pull.ID), r.NeededWhy) {
		t.Fatalf("%+v\n%s", r, w.story(pull.ID))
	}
	_, err := w.plane.Approve(w.ctx(), ada, pull.ID, seen)
	wantErr(t, err, workflow.ErrForbidden)
	w.approves(bob, pull.ID)
	w.reviewOf(pull.ID, api.ReviewWaiting)
	push := w.merged(valuesSum, "mia")
	r := w.reviewOf(push.ID, api.ReviewWaiting)
	if r.CarriedFrom != pull.ID || r.Needed != 2 || len(r.Votes) != 1 {
		t.Fatalf("%+v", r)
	}
	w.reviewOf(pull.ID, api.ReviewCarried)
	if list, err := w.plane.Workflows(w.ctx(), bob, controlplane.Filter{State: "awaiting_approval"}); err != nil || len(list.Items) != 1 || list.Items[0].ID != push.ID {
		t.Errorf("waiting for an approval: %+v, %v", list.Items, err)
	}
	_, err = w.plane.Approve(w.ctx(), ada, push.ID, seen) // who opened the pull request
	wantErr(t, err, workflow.ErrForbidden)
	w.approves(eve, push.ID)
	w.reviewOf(push.ID, api.ReviewApproved)
}

// A pipeline's token names an account of the git host, which is not a principal: two others must look at what it submits.
func TestCarried_FromPipelineToPipeline(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(&api.Approval{Required: true, NotBySubmitter: true, AfterMerge: true})
	bob, eve := w.person("bob"), w.person("eve")
	pipeline := func(commit, actor string, protected bool) controlplane.Principal {
		who := w.as(api.RoleOperator)
		who.Name, who.Issuer = "forge/pipeline", "forge"
		who.Pipeline = &record.Pipeline{Host: "forge.example", Repository: "Example/infra", Commit: commit, ActorID: actor, Protected: protected}
		return who
	}
	head, merged := strings.Repeat("1", 40), strings.Repeat("2", 40)
	pull, err := w.plane.Submit(w.ctx(), pipeline(head, "7", false), "", api.Submit{Workspace: "net", Operation: workflow.Preview, Commit: head, Number: 17})
	w.must(err)
	w.plans(one, valued(valuesSum, head))
	if r := w.reviewOf(pull.ID, api.ReviewWaiting); r.Needed != 2 || !slices.Contains(r.Submitters.Names(), "forge.example/7") || !strings.HasPrefix(r.NeededWhy, "somebody who opened the pull request") {
		t.Fatalf("%+v", r)
	}
	w.approves(bob, pull.ID)
	w.approves(eve, pull.ID)
	w.reviewOf(pull.ID, api.ReviewMerge)
	push, err := w.plane.Submit(w.ctx(), pipeline(merged, "8", true), "", api.Submit{Workspace: "net", Operation: workflow.Update, Commit: merged})
	w.must(err)
	w.plans(one, valued(valuesSum, merged))
	r := w.reviewOf(push.ID, api.ReviewApproved)
	if r.CarriedFrom != pull.ID || len(r.Votes) != 2 || r.Needed != 2 || !slices.Contains(r.Submitters.Names(), "forge.example/8") {
		t.Errorf("%+v", r)
	}
	if next := w.show(r.Applies); next.Trigger == nil || next.Trigger.Kind != api.TriggerPush || next.Operation != workflow.Update {
		t.Errorf("%+v", next)
	}
}

// A retry is for those whom the run before was for.
func TestCarried_ARetryKeepsItsStrangers(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(&api.Approval{Required: true, NotBySubmitter: true, AfterMerge: true})
	first := w.triggers(api.TriggerPullRequest, workflow.Preview, true, "ada")
	w.plans(one, valued(valuesSum, "c1"))
	again, err := w.plane.Retry(w.ctx(), w.person("bob"), "", first.ID, api.WithReason{})
	w.must(err)
	w.plans(one, valued(valuesSum, "c1"))
	if r := w.reviewOf(again.ID, api.ReviewWaiting); r.Needed != 2 || !strings.HasPrefix(r.NeededWhy, "somebody who opened") || !slices.Contains(r.Submitters.Names(), "ada") {
		t.Errorf("%+v", r)
	}
}

func TestCarried_IncomparablePlanIsApprovedAfterMerge(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(afterMerge())
	bob := w.person("bob")
	pull := w.pulled("", "ada")
	_, err := w.plane.Approve(w.ctx(), bob, pull.ID, seen)
	if wantErr(t, err, workflow.ErrConflict); err == nil || !strings.Contains(err.Error(), "provisioners") {
		t.Errorf("it says %v", err)
	}
	w.asks(bob, workflow.Update)
	mine := w.plans(one)
	w.approves(bob, mine.ID)
	w.reviewOf(mine.ID, api.ReviewApproved)
}

// The plan of the merged commit cannot be applied where its bundle is not there. The approvals then stay where they are.
func TestCarried_StaysWhereThePlanCannotBeApplied(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(afterMerge())
	pull := w.pulled(valuesSum, "ada")
	w.approves(w.person("bob"), pull.ID)
	push := w.triggers(api.TriggerPush, workflow.Update, false)
	w.plans(one, valued(valuesSum, "c2"), func(r *api.Result) { r.Plan.SHA256 = summarySum })
	if r := w.reviewOf(push.ID, api.ReviewWaiting); len(r.Votes) > 0 || r.CarriedFrom != "" || !strings.Contains(w.story(push.ID), "plan_stale") {
		t.Errorf("%+v\n%s", r, w.story(push.ID))
	}
	w.reviewOf(pull.ID, api.ReviewMerge)
	w.reviewOf(w.merged(valuesSum).ID, api.ReviewApproved)
}

// The digest of the values may be guessed, so nobody is shown it.
func TestCarried_NobodySeesTheDigestOfTheValues(t *testing.T) {
	w := newWorld(t, memory.New())
	w.reviewed(afterMerge())
	pull := w.pulled(valuesSum, "ada")
	w.approves(w.person("bob"), pull.ID)
	push := w.merged(valuesSum, "mia")
	job, run := w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, run)
	w.must(err)
	all := []any{spec}
	for _, id := range []string{pull.ID, push.ID, job.ID} {
		plan, err := w.plane.Plan(w.ctx(), w.admin, id)
		w.must(err)
		why, err := w.plane.Why(w.ctx(), w.admin, id)
		w.must(err)
		all = append(all, plan, why, w.show(id), w.story(id))
	}
	audit, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{})
	w.must(err)
	raw, err := json.Marshal(append(all, audit))
	if w.must(err); strings.Contains(string(raw), valuesSum) {
		t.Errorf("the digest is in %s", raw)
	}
	if !strings.Contains(string(raw), "carried over from "+pull.ID) {
		t.Error("the audit trail does not have it")
	}
}
