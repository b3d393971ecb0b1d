package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// planned makes the plan of the preview that waits.
func (w *world) planned(changes api.Changes, values ...string) string {
	w.t.Helper()
	job, runner := w.claim()
	sum := strings.Repeat("a", 64)
	k := record.ArtifactKey(job.ID, job.Attempt, "plan/bundle.tar")
	bundle := record.Artifact{Kind: api.ArtifactPlan, Size: 10, SHA256: sum, Place: api.Place{Kind: api.PlaceS3}, Recorded: time.Now(), Placed: time.Now()}
	if err := w.store.Commit(w.t.Context(), "placed"+job.ID, store.Put(record.Encode(k, bundle), store.Absent)); err != nil {
		w.t.Fatal(err)
	}
	_, err := runner.Result(w.t.Context(), api.Result{Outcome: workflow.Succeeded, Changes: &changes, Plan: &api.PlanMade{
		Artifact: "plan/bundle.tar", Size: 10, SHA256: sum, Summary: strings.Repeat("b", 64), Values: strings.Join(values, ""), Empty: changes.Add+changes.Destroy == 0,
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return job.ID
}

func TestCommand_APlanIsShownApprovedAndRejected(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "workspace.yaml")
	if err := os.WriteFile(file, []byte("name: net\nengine: terraform\napproval: {required: true, rules: [destroys]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("apply", "-f", file)
	asks := func(changes api.Changes, then func()) (id string, got answer) {
		t.Helper()
		ended := make(chan answer)
		go func() { ended <- w.run("run", "net", "--op", "update", "--yes") }()
		id = w.planned(changes)
		then()
		return id, <-ended
	}
	destroys := api.Changes{Add: 1, Destroy: 2, Replace: 1, Resources: []api.ResourceChange{
		{Address: "x.new", Action: "create"}, {Address: "x.gone", Action: "delete"}, {Address: "x.again", Action: "replace", Changed: []string{"size"}, Forces: []string{"zone"}},
	}, Outputs: []api.OutputChange{{Name: "ip", Action: "update"}}}
	id, got := asks(destroys, func() {})
	if got.code != cli.ExitAwaiting {
		t.Errorf("exit %d", got.code)
	}
	has(t, "run", got.stdout+got.stderr, "approvals are required", ", 1 output to change\n", "because of zone", "dayfly workflow approve "+id)
	if gone, again, made := strings.Index(got.stdout, "x.gone"), strings.Index(got.stdout, "x.again"), strings.Index(got.stdout, "x.new"); gone > again || again > made {
		t.Errorf("the order is\n%s", got.stdout)
	}
	has(t, "list", w.ok("workflow", "list", "--state", "awaiting_approval"), id)
	if plan := value[api.Plan](w, "workflow", "plan", id); plan.Review == nil || plan.Review.Status != api.ReviewWaiting {
		t.Errorf("%+v", plan.Review)
	}
	if got := w.run("workflow", "approve", id); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "sha256 aaaa") {
		t.Errorf("without --yes: %+v", got)
	}
	has(t, "approve", w.ok("workflow", "approve", id, "--yes", "--comment", "fine"), "applies the plan")
	has(t, "plan", w.ok("workflow", "plan", id), "approved", "fine")
	if got := w.run("workflow", "reject", id, "--yes"); got.code != cli.ExitRefused {
		t.Errorf("rejecting an approved plan: %+v", got)
	}
	_, runner := w.claim()
	if _, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Succeeded}); err != nil {
		t.Fatal(err)
	}
	id, _ = asks(destroys, func() {})
	w.ok("workflow", "reject", id, "--yes", "--comment", "no")
	has(t, "why", w.ok("why", id), "rejected by", "no")

	id, _ = asks(destroys, func() {})
	has(t, "cancel", w.ok("workflow", "cancel", id), "the plan of "+id+" is rejected")

	if _, got := asks(api.Changes{}, func() {}); got.code != cli.ExitOK || !strings.Contains(got.stdout, "without changes") {
		t.Errorf("nothing changes: %+v", got)
	}
	// Nobody wants this one approved: it is applied, and followed.
	_, got = asks(api.Changes{Add: 1}, func() {
		_, runner := w.claim()
		if _, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonPlanStale}); err != nil {
			t.Error(err)
		}
	})
	if got.code != cli.ExitFailed || !strings.Contains(got.stdout, "plan_stale") {
		t.Errorf("applied by rule: %+v", got)
	}

	// Another state waits as any plan does.
	if err := errors.Join(os.WriteFile(file, []byte(`{"version": 4, "serial": 1, "lineage": "0815"}`), 0o600), os.MkdirAll(filepath.Join(filepath.Dir(file), filepath.Dir(embedded.ArtifactsDir)), 0o700)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan answer)
	go func() { ended <- w.run("state", "push", "net", file, "--data", filepath.Dir(file), "--yes") }()
	id = w.planned(api.Changes{Add: 1})
	if got := <-ended; got.code != cli.ExitAwaiting || !strings.Contains(got.stdout, "dayfly workflow approve "+id) {
		t.Errorf("state push: %+v", got)
	}
}

func TestCommand_APullRequestsPlanWaitsForTheMerge(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "workspace.yaml")
	text := "name: net\nengine: terraform\nsource: {git: {url: 'https://forge.example/example/infra.git', ref: main}}\napproval: {required: true, after_merge: true}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("apply", "-f", file)
	has(t, "show", w.ok("workspace", "show", "net"), "required; of a pull request after the merge")
	who, err := w.plane.Authenticate(t.Context(), w.admin)
	if err != nil {
		t.Fatal(err)
	}
	submit := func(kind, commit string, op workflow.Operation) string {
		t.Helper()
		by := runs.Triggered{Trigger: record.Trigger{Kind: kind, Name: "forge", Repository: "example/infra", Commit: strings.Repeat(commit, 40)}}
		if _, err := w.plane.SubmitFor(t.Context(), who, "", api.Submit{Workspace: "net", Operation: op}, by); err != nil {
			t.Fatal(err)
		}
		return w.planned(api.Changes{Add: 1}, strings.Repeat("c", 64))
	}
	pull := submit(api.TriggerPullRequest, "1", workflow.Preview)
	has(t, "plan", w.ok("workflow", "plan", pull), "after the merge, its approvals carry over")
	if got := w.run("workflow", "approve", pull); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "this approves that plan, and after the merge, its approvals") {
		t.Errorf("without --yes: %+v", got)
	}
	has(t, "approve", w.ok("workflow", "approve", pull, "--yes"), "approved: after the merge, its approvals carry over")
	has(t, "plan", w.ok("workflow", "plan", pull), "approved, waiting for the merge")
	push := submit(api.TriggerPush, "2", workflow.Update)
	w.ok("workflow", "wait", push, "--for", "approval")
	w.ok("workflow", "wait", pull, "--for", "approval")
	has(t, "plan", w.ok("workflow", "plan", push), "approved", "votes from", pull)
	has(t, "plan", w.ok("workflow", "plan", pull), "carried over", "votes to", push)
	has(t, "why", w.ok("why", push), "carried over from "+pull)
}
