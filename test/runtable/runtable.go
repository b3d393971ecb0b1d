// Package runtable is a table of runs in all states and with all outcomes, for the tests of the texts about them.
// Each interface (console, command line, pull requests, notifications) keeps its texts of the same runs in a golden
// file, so that a change of words is easy to review.
package runtable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Noon is when each run of the table was submitted, and Now when its text is written.
var (
	Noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	Now  = Noon.Add(10 * time.Minute)
)

// Run is a run, with the reason for its state.
type Run struct {
	Name string
	Why  api.Why
}

// Golden compares the texts about all runs with a golden file, or updates it.
func Golden(t *testing.T, update bool, describe func(Run) string) {
	t.Helper()
	var b strings.Builder
	for _, r := range Runs() {
		b.WriteString("# " + r.Name + "\n" + strings.TrimRight(describe(r), "\n") + "\n\n")
	}
	Same(t, update, "runs.txt", b.String())
}

// Same compares a text with a golden file, or updates it.
func Same(t *testing.T, update bool, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if update {
		if err := os.MkdirAll("testdata", 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden) //nolint:gosec // a file of the repository
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not up to date (-want +got); -update updates it:\n%s", golden, diff)
	}
}

// Runs is the table.
func Runs() (all []Run) {
	add := func(name string, state workflow.State, op workflow.Operation, change func(*api.Why, *api.Workflow)) {
		why := api.Why{Since: Noon, Workflow: api.Workflow{
			ID: "wf_1", Workspace: "net", Pool: "default", Type: workflow.Deployment, Operation: op, State: state, SubmittedBy: "ci", SubmittedAt: Noon,
		}}
		w := &why.Workflow
		if state != workflow.Pending {
			w.Attempt, w.Instance, w.ClaimedAt = 1, "agent", after(60)
		}
		if state != workflow.Pending && state != workflow.Claimed {
			w.Task, w.StartedAt = "task-1", after(120)
		}
		if state.Terminal() {
			w.EndedAt = after(180)
		} else {
			why.NextAt = after(3600)
		}
		change(&why, w)
		all = append(all, Run{name, why})
	}
	result := func(change func(*api.Result)) func(*api.Why, *api.Workflow) {
		return func(_ *api.Why, w *api.Workflow) {
			w.Result = &api.Result{Outcome: w.State}
			if change(w.Result); w.Result.Changes != nil {
				counts := *w.Result.Changes
				counts.Resources, counts.Outputs, w.Changes = nil, nil, &counts
			}
		}
	}
	changes := func(c api.Changes) func(*api.Why, *api.Workflow) {
		return result(func(r *api.Result) { r.Changes = &c })
	}
	as := func(t workflow.Type, change func(*api.Why, *api.Workflow)) func(*api.Why, *api.Workflow) {
		return func(why *api.Why, w *api.Workflow) { w.Type = t; change(why, w) }
	}
	nothing := func(*api.Why, *api.Workflow) {}

	add("pending", workflow.Pending, workflow.Preview, func(why *api.Why, _ *api.Workflow) { why.Waiting = "the next claim of pool default" })
	add("pending behind another run", workflow.Pending, workflow.Update, func(why *api.Why, _ *api.Workflow) {
		why.Waiting, why.WaitingForWorkflow = "workflow wf_0, which may change the state of workspace net before it", "wf_0"
	})
	add("claimed", workflow.Claimed, workflow.Destroy, func(why *api.Why, _ *api.Workflow) { why.Code, why.Waiting = "start", "its task task-1 to start" })
	add("running", workflow.Running, workflow.Update, func(_ *api.Why, w *api.Workflow) {
		w.Step, w.Steps = "apply", []api.Step{
			{Seq: 1, Name: "init", Status: workflow.StepSucceeded, StartedAt: *after(120), Seconds: 0.02},
			{Seq: 2, Name: "plan", Status: workflow.StepSucceeded, StartedAt: *after(121), Seconds: 12, Text: "the plan\nof two lines"},
			{Seq: 3, Name: "hook", Status: workflow.StepSkipped, StartedAt: *after(133)},
			{Seq: 4, Name: "apply", Status: workflow.StepRunning, StartedAt: *after(134)},
		}
	})
	add("running, being cancelled", workflow.Running, workflow.Refresh, func(_ *api.Why, w *api.Workflow) { w.CancelRequested = true })
	add("cancelled", workflow.Cancelled, workflow.Update, func(_ *api.Why, w *api.Workflow) {
		w.Reason, w.Detail = workflow.ReasonCancelled, "cancelled by ann: wrong branch"
	})

	add("preview, nothing counted", workflow.Succeeded, workflow.Preview, nothing)
	add("preview, no changes", workflow.Succeeded, workflow.Preview, changes(api.Changes{}))
	add("preview, some changes", workflow.Succeeded, workflow.Preview, changes(api.Changes{Add: 3, Change: 1, Destroy: 2, Replace: 1, Drift: 2, Resources: []api.ResourceChange{
		{Action: "create", Address: "aws_subnet.a"},
		{Action: "update", Address: "module.a.aws_vpc.main", Changed: []string{"tags"}, Drifted: true},
		{Action: "delete", Address: "aws_eip.nat"},
		{Action: "replace", Address: "aws_db_instance.main", Forces: []string{"engine"}, Changed: []string{"engine", "storage", "tags"}, From: "aws_db_instance.was"},
		{Action: "drift", Address: "aws_route.r"},
		{Action: "forget", Address: "aws_route.s"},
		{Action: "import", Address: "aws_route.t", Imported: true},
	}, Outputs: []api.OutputChange{{Name: "subnet_id", Action: "update"}}}))
	add("preview, outputs only", workflow.Succeeded, workflow.Preview, changes(api.Changes{Outputs: []api.OutputChange{{Name: "a", Action: "create"}, {Name: "b", Action: "delete"}}}))
	add("preview, in the state only", workflow.Succeeded, workflow.Preview, changes(api.Changes{Import: 1, Move: 2, Forget: 1}))
	add("update", workflow.Succeeded, workflow.Update, result(func(r *api.Result) {
		r.Changes = &api.Changes{Add: 2, Change: 1, Destroy: 1, Replace: 1}
		r.Outputs = []api.Output{
			{Name: "address", Value: "10.0.0.1"}, {Name: "password", Sensitive: true}, {Name: "key", Value: "a\nb"}, {Name: "list", Value: []any{1.0, "x"}},
		}
	}))
	add("update as approved, retried", workflow.Succeeded, workflow.Update, func(why *api.Why, w *api.Workflow) {
		changes(api.Changes{Add: 1})(why, w)
		w.Applies, w.RetryOf, w.Message, w.Attempt = "wf_0", "wf_00", "add a subnet", 2
		w.Options = &api.Options{Targets: []string{"aws_subnet.a"}, VarFiles: []string{"prod.tfvars"}}
	})
	add("update with failing checks", workflow.Succeeded, workflow.Update, result(func(r *api.Result) {
		r.Changes, r.Checks = &api.Changes{Add: 1}, &api.Checks{Failing: 3, Names: []string{"check.health", "module.web.check.dns"}}
	}))
	add("destroy", workflow.Succeeded, workflow.Destroy, changes(api.Changes{Destroy: 4}))
	add("destroy with an excluded unit", workflow.Succeeded, workflow.Destroy, result(func(r *api.Result) {
		r.Changes = &api.Changes{Destroy: 1, Resources: []api.ResourceChange{{Action: "delete", Address: "app/aws_eip.nat"}}}
		r.Units = []api.UnitResult{{Unit: "app", Result: "succeeded", Changes: &api.Changes{Destroy: 1}, Outputs: 1}, {Unit: "net", Result: "excluded"}}
	}))
	cutOff := func(reason workflow.Reason, c api.Changes) func(*api.Why, *api.Workflow) {
		return func(why *api.Why, w *api.Workflow) { changes(c)(why, w); w.Reason = reason }
	}
	add("update that failed in its apply", workflow.Failed, workflow.Update, func(why *api.Why, w *api.Workflow) {
		cutOff(workflow.ReasonStepFailed, api.Changes{
			Add: 2, Import: 1, Drift: 1, Resources: []api.ResourceChange{{Action: "create", Address: "net/aws_subnet.a"}},
		})(why, w)
		w.Result.Units = []api.UnitResult{
			{Unit: "<b>net", Result: "succeeded", Changes: &api.Changes{Add: 2}, Planned: true},
			{Unit: "app", Result: "failed", Changes: &api.Changes{Import: 1}}, {Unit: "dns", Result: "early exit"},
		}
	})
	add("destroy that failed", workflow.Failed, workflow.Destroy, cutOff(workflow.ReasonStepFailed, api.Changes{Destroy: 2}))
	add("refresh that failed", workflow.Failed, workflow.Refresh, cutOff(workflow.ReasonStepFailed, api.Changes{Drift: 2}))
	add("update that was cancelled in its apply", workflow.Cancelled, workflow.Update, cutOff(workflow.ReasonCancelled, api.Changes{Move: 1, Forget: 1}))
	add("preview that a policy denied", workflow.Failed, workflow.Preview, cutOff(workflow.ReasonPolicyFailed, api.Changes{Add: 3}))
	add("state list", workflow.Succeeded, workflow.StateList, nothing)
	add("scan without drift", workflow.Succeeded, "", as(workflow.InsightsScan, result(func(r *api.Result) {
		r.Changes = &api.Changes{}
		r.Inventory = &api.Inventory{Resources: 4, Types: []api.InventoryCount{{Type: "aws_subnet", Count: 3}, {Type: "aws_vpc", Count: 1}}}
	})))
	add("scan with drift", workflow.Succeeded, "", as(workflow.InsightsScan, changes(api.Changes{Drift: 1})))
	add("policy evaluation", workflow.Failed, "", as(workflow.PolicyEvaluation, func(why *api.Why, w *api.Workflow) {
		w.Reason = workflow.ReasonPolicyFailed
		result(func(r *api.Result) {
			r.Policies = []api.PolicyResult{
				{Group: "network-rules", Enforcement: "waivable", Rules: 3, Denied: 1, Waived: 1, Warned: 2, Findings: []api.PolicyFinding{
					{Rule: "main.deny_public", Address: "aws_s3_bucket.logs", Message: "bucket logs is\npublic", Outcome: api.FindingDenied},
					{Rule: "main.deny_old", Message: "too old", Outcome: api.FindingWaived, Waiver: "old"},
					{Rule: "main.warn_tags", Message: "no tags", Outcome: api.FindingWarned},
				}, Waivers: []api.PolicyWaiver{{Name: "old", GivenBy: "ann", Until: Noon, Reason: "is moved"}}},
				{Group: "broken", Enforcement: "mandatory", Error: "rego: unexpected token"},
				{Group: "fine", Enforcement: "advisory", Rules: 1},
			}
		})(why, w)
	}))

	for _, r := range workflow.Reasons() {
		if r == workflow.ReasonCancelled {
			continue
		}
		add("failed: "+string(r), workflow.Failed, workflow.Update, func(_ *api.Why, w *api.Workflow) { w.Reason = r })
	}
	add("failed in a step", workflow.Failed, workflow.Preview, func(_ *api.Why, w *api.Workflow) {
		w.Reason, w.Detail = workflow.ReasonStepFailed, "plan failed with exit code 1: Error: Invalid value"
		w.Steps = []api.Step{{Seq: 1, Name: "plan", Status: workflow.StepFailed, StartedAt: *after(121), Seconds: 4, Text: "exit code 1"}}
	})
	add("failed before its start", workflow.Failed, workflow.Preview, func(_ *api.Why, w *api.Workflow) {
		w.Reason, w.Detail, w.StartedAt = workflow.ReasonLaunchFailed, "no such image\nat all", nil
	})
	add("lost, slot and state lock held", workflow.Failed, workflow.Update, func(why *api.Why, w *api.Workflow) {
		w.Reason, w.SlotHeld, why.NextAt = workflow.ReasonRunnerLost, true, after(7200)
		w.Result = &api.Result{Lock: &api.Lock{ID: "5e1f", Who: "ann@host", Operation: "OperationTypeApply"}}
	})

	review := func(change func(*api.Review)) func(*api.Why, *api.Workflow) {
		return func(why *api.Why, w *api.Workflow) {
			changes(api.Changes{Add: 1, Destroy: 1})(why, w)
			w.For, w.Review = workflow.Update, &api.Review{Status: api.ReviewWaiting, For: workflow.Update, SHA256: "9f86d081884c7d65", Needed: 1, ExpiresAt: *after(7200)}
			change(w.Review)
			w.ToApprove = w.Review.Status == api.ReviewWaiting
		}
	}
	votes := []api.Vote{{By: "ann", At: *after(240), Comment: "fine"}}
	add("plan waits for approvals", workflow.Succeeded, workflow.Preview, review(func(r *api.Review) {
		r.Why, r.Needed, r.NeededWhy, r.Votes = []string{"project pay: it destroys 1 resource"}, 2, "the authors are not known", votes
		r.NotBySubmitter, r.Submitters = true, api.PrincipalRefs{{ID: "prn_ci", Name: "ci"}, {ID: "prn_bob", Name: "bob"}}
	}))
	add("plan of a pull request waits for approval", workflow.Succeeded, workflow.Preview, review(func(r *api.Review) { r.AfterMerge = true }))
	for _, one := range []api.Review{
		{Status: api.ReviewApproved, Applies: "wf_2", CarriedFrom: "wf_0"}, {Status: api.ReviewRejected}, {Status: api.ReviewExpired}, {Status: api.ReviewEmpty},
		{Status: api.ReviewStale, Stale: "the state has moved"}, {Status: api.ReviewMerge}, {Status: api.ReviewCarried, CarriedTo: "wf_3"},
	} {
		add("plan is "+one.Status, workflow.Succeeded, workflow.Preview, review(func(r *api.Review) {
			r.Status, r.Applies, r.CarriedFrom, r.CarriedTo, r.Stale = one.Status, one.Applies, one.CarriedFrom, one.CarriedTo, one.Stale
			if r.Votes = votes; one.Status == api.ReviewRejected {
				r.Votes = []api.Vote{{By: "ann", At: *after(240), Reject: true}}
			}
		}))
	}
	return all
}

// Tree is a tree with a node in each state.
func Tree() api.Tree {
	return api.Tree{
		ID: "tree_1", Workspace: "net", Operation: workflow.Update, State: api.TreeRunning, Size: 7, SubmittedBy: "ci", SubmittedAt: Noon,
		Nodes: []api.TreeNode{
			{Workspace: "net", State: api.TreeSucceeded, Workflow: "wf_1"},
			{Workspace: "same", State: api.TreeSkipped, Note: "its inputs did not change"},
			{Workspace: "db", State: api.TreeRunning, Workflow: "wf_2", Note: api.TreeAwaits},
			{Workspace: "app", State: api.TreeRunning, Workflow: "wf_3"},
			{Workspace: "dns", State: api.TreeFailed, Workflow: "wf_4", Note: "its run failed (step_failed)"},
			{Workspace: "old", State: api.TreeCancelled, Workflow: "wf_5"},
			{Workspace: "web", State: api.TreeWaiting, WaitsFor: []string{"app", "db"}},
		},
	}
}

// after is a moment so many seconds after noon.
func after(seconds float64) *time.Time {
	at := Noon.Add(time.Duration(seconds * float64(time.Second)))
	return &at
}
