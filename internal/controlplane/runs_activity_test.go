package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestActivities_SayWhatGoesOnInEachWorkspace(t *testing.T) {
	w := newWorld(t, memory.New())
	for _, name := range []string{"dns", "net-a", "net-b", "web"} {
		w.workspace(name)
	}
	scan := func(name string, drift int) {
		t.Helper()
		w.submit(name, "")
		job, r := w.started()
		_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Drift: drift}}})
		w.must(err)
	}
	scan("dns", 0)
	scan("net-a", 3)
	scan("net-b", 2)
	w.submit("net-b", workflow.Update) // its changes resolve the drift
	job, r := w.started()
	w.must(w.result(job, r, workflow.Succeeded))
	holder := w.submit("net-a", workflow.Update)
	w.claimOne()
	behind := w.submit("net-a", workflow.Destroy)

	type row struct {
		name, last, holder string
		waiting, drift     int // drift -1: nothing is known
	}
	var got []row
	for cursor, more := "", true; more; {
		page, err := w.plane.Activities(w.ctx(), w.admin, "", cursor, 3)
		w.must(err)
		for _, a := range page.Items {
			one := row{a.Workspace, "", a.Holder, a.Waiting, -1}
			if a.Last != nil {
				one.last = a.Last.ID
			}
			if a.Drift != nil {
				one.drift = a.Drift.Resources
			}
			got = append(got, one)
		}
		cursor, more = page.Next, page.Next != ""
	}
	want := []row{{"dns", got[0].last, "", 0, 0}, {"net-a", behind.ID, holder.ID, 1, 3}, {"net-b", job.ID, "", 0, -1}, {"web", "", "", 0, -1}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" || got[0].last == "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if page, err := w.plane.Activities(w.ctx(), w.admin, "T-", "", 0); err != nil || len(page.Items) != 2 {
		t.Errorf("named t-: %+v, %v", page.Items, err)
	}
}

func TestActivity_SaysWhereTheStateIsAndWhatIsRequired(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.Approval = &api.Approval{Required: true, Rules: []string{"destroys"}} })
	w.submit("net", workflow.Preview)
	job, r := w.started()
	found := &api.StateFound{Backend: "s3", Workspace: "default", Lineage: "l-1", Serial: 7}
	w.ended(job, r, found)
	got, err := w.plane.Activity(w.ctx(), w.admin, "net")
	w.must(err)
	if got.State == nil || got.State.Serial != 7 || fmt.Sprint(got.Approvals) != "[the workspace: required for destroys]" {
		t.Errorf("got %+v", got)
	}
	_, err = w.plane.Activity(w.ctx(), w.admin, "none")
	wantErr(t, err, workflow.ErrNotFound)
}

func TestPool_SaysWhatWaitsAndWhichLaunchesWereRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.workspace("web")
	w.submit("net", workflow.Update)
	w.submit("net", workflow.Update) // behind the first: not for the pool to claim yet
	job := w.claim(1)[0]
	w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchRefused, Reason: workflow.ReasonCapacity, Text: "none in zone a", RetrySeconds: 60}))
	first := w.submit("web", workflow.Preview)
	w.submit("web", workflow.Update)
	got, err := w.plane.Pool(w.ctx(), w.admin, "default")
	w.must(err)
	if got.Pending != 2 || got.OldestPending == nil || !got.OldestPending.Equal(first.SubmittedAt) {
		t.Errorf("%d are pending, the oldest since %v; want 2 since %v", got.Pending, got.OldestPending, first.SubmittedAt)
	}
	if len(got.Refused) != 1 || got.Refused[0].Reason != workflow.ReasonCapacity || got.Refused[0].Count != 1 || got.Refused[0].Text != "none in zone a" || got.Refused[0].RetryAt.IsZero() {
		t.Errorf("refused: %+v", got.Refused)
	}
}

func TestResult_RefusesImpossibleChecksAndNames(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Preview)
	job, r := w.started()
	for name, checks := range map[string]api.Checks{
		"a negative count":     {Failing: -1},
		"more names than fail": {Failing: 1, Names: []string{"check.a", "check.b"}},
		"too many names":       {Failing: 11, Names: make([]string, 11)},
		"a long name":          {Failing: 1, Names: []string{strings.Repeat("c", 256)}},
	} {
		if _, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, Checks: &checks}}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for _, names := range [][]string{make([]string, 51), {strings.Repeat("o", 256)}} {
		if _, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, OmittedOutputs: names}}); err == nil {
			t.Errorf("%d names of omitted outputs are taken", len(names))
		}
	}
	slim := api.Result{Outcome: workflow.Succeeded, Checks: &api.Checks{Failing: 2, Names: []string{"check.a", "check.b"}}}.Slim()
	if diff := cmp.Diff(&api.Checks{Failing: 2}, slim.Checks); diff != "" {
		t.Errorf("slim (-want +got):\n%s", diff)
	}
}

// The checks of a workspace are those of its last scan or change: a preview shows what might be.
func TestActivity_HasTheFailingChecksOfTheLastResult(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	for i, tc := range []struct {
		op      workflow.Operation // empty: a scan
		outcome workflow.State
		failing int
		want    string
	}{
		{workflow.Preview, workflow.Succeeded, 3, ""},
		{workflow.Update, workflow.Succeeded, 2, "own 2"},
		{workflow.Preview, workflow.Succeeded, 3, "earlier 2"},
		{workflow.Update, workflow.Failed, 0, "earlier 2"},
		{"", workflow.Succeeded, 1, "own 1"},
		{workflow.Update, workflow.Succeeded, 0, ""},
	} {
		w.submit("net", tc.op)
		job, r := w.started()
		in := api.Result{Outcome: tc.outcome}
		if tc.outcome == workflow.Failed {
			in.Reason = workflow.ReasonStepFailed
		}
		if tc.failing > 0 {
			in.Checks = &api.Checks{Failing: tc.failing, Names: []string{"check.health"}}
		}
		_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: in})
		w.must(err)
		activity, err := w.plane.Activity(w.ctx(), w.admin, "net")
		w.must(err)
		got := ""
		if c := activity.Checks; c != nil {
			got = fmt.Sprintf("%s %d", map[bool]string{true: "own", false: "earlier"}[c.Workflow == job.ID], c.Failing)
		}
		if got != tc.want {
			t.Errorf("%d: got %q, want %q", i, got, tc.want)
		}
		shown, err := w.plane.Workflow(w.ctx(), w.admin, job.ID)
		w.must(err)
		if diff := cmp.Diff(in.Checks, shown.Result.Checks); diff != "" {
			t.Errorf("%d: result (-want +got):\n%s", i, diff)
		}
	}
}
