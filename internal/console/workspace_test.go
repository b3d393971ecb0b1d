package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// key is the key of the form of a new run on a page.
func key(t *testing.T, page string) string {
	t.Helper()
	found := regexp.MustCompile(`name="key" value="([^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(found) == 0 {
		t.Fatalf("no key in %s", page)
	}
	return found[len(found)-1][1]
}

func (s *site) runsOf(workspace string) []api.Workflow {
	s.t.Helper()
	page, err := s.plane.Workflows(s.t.Context(), s.admin, controlplane.Filter{Workspace: workspace})
	s.must(err)
	return page.Items
}

func TestWorkspace_ShowsWhatIsKnownOfIt(t *testing.T) {
	s := newSite(t)
	s.workspace("net", func(w *api.Workspace) {
		w.Engine, w.Commands, w.Variables = api.EngineTofu, nil, map[string]any{"region": "eu-central-1"}
		w.Approval = &api.Approval{Required: true, Rules: []string{"destroys"}}
	})
	s.ran("net", workflow.Preview, api.Result{
		Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, State: &api.StateFound{Backend: "s3", Settings: strings.Repeat("a", 64), Workspace: "default", Lineage: "l-1", Serial: 7},
		Lock: &api.Lock{ID: "5e1f", Who: "ada@laptop"},
	})
	s.workspace("app")
	holder := s.submit("app", workflow.Refresh)
	s.start()
	s.submit("app", workflow.Refresh)
	s.shows("/workspaces/app", []string{"refresh</a> holds it", "Last sign of life", "Waiting · 1", "The first waits for <a href=\"/runs/" + holder.ID + "\">an earlier run</a>"}, []string{"Unlock the workspace", "More options", "It cannot be unlocked", "<b>app</b>"})
	page := s.shows("/workspaces/net", []string{
		"lineage l-1, serial 7", "the workspace: required for destroys", "variables.region", "eu-central-1", "dayfly apply -f FILE", "it is the built-in pool",
		"held by ada@laptop", "Free: nothing changes its state", "More options",
	}, nil)
	if strings.Count(page, `name="confirm"`) != 2 {
		t.Error("the lock and the new run are to be confirmed")
	}
	to, status, page := s.post("/workspaces/net/runs", url.Values{"operation": {"state_unlock"}, "lock_id": {"5e1f"}})
	if to != "" || !strings.Contains(page, "tick the box that confirms state unlock") {
		t.Errorf("without a confirmation: %d %s %s", status, to, page)
	}
	if res, _ := s.do(http.MethodGet, "/workspaces/none", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("no workspace: %s", res.Status)
	}
}

func TestWorkspace_ShowsItsSchedules(t *testing.T) {
	c := newClock()
	s := newSite(t, c.of)
	s.workspace("net")
	s.shows("/workspaces/net", nil, []string{"Schedules"})
	put := func(change func(*api.Schedule)) {
		t.Helper()
		in := api.Schedule{Name: "often", Cron: "*/5 * * * *", Spread: "0s", Workspaces: []string{"net"}}
		change(&in)
		_, _, err := s.plane.Schedules.Put(t.Context(), s.admin, in)
		s.must(err)
	}
	put(func(*api.Schedule) {})
	s.shows("/workspaces/net", []string{"Schedules", "<b>often</b>", "next", "in 4m", "no run yet"}, nil)
	s.pass(c, 6)
	found := s.runsOf("net")
	if len(found) != 1 {
		t.Fatalf("%d runs", len(found))
	}
	s.shows("/workspaces/net", []string{"/runs/" + found[0].ID + "\">last run</a>", "pending", "in 3m", "1m ago"}, []string{"no run yet"})
	s.pass(c, 5)
	s.shows("/workspaces/net", []string{"run " + found[0].ID + " of this schedule has not ended", "of this schedule"}, nil)
	_, err := s.plane.Cancel(t.Context(), s.admin, found[0].ID, api.WithReason{})
	s.must(err)
	c.ahead += 20 * time.Minute
	s.pass(c, 1)
	s.shows("/workspaces/net", []string{"3 times before the last one missed"}, []string{"has not ended"})
	put(func(in *api.Schedule) { in.IsPaused = true })
	s.shows("/workspaces/net", []string{"paused"}, nil)
}

func TestWorkspace_ReleasesTheLockThatItShows(t *testing.T) {
	s := newSite(t)
	s.workspace("net", func(w *api.Workspace) { w.Engine, w.Commands = api.EngineTofu, nil })
	s.ran("net", workflow.Update, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Lock: &api.Lock{ID: "5e1f"}})
	to, status, page := s.post("/workspaces/net/runs", url.Values{"operation": {"state_unlock"}, "lock_id": {"5e1f"}, "confirm": {"on"}})
	if got := s.runsOf("net"); len(got) != 2 || got[0].Operation != workflow.StateUnlock || to != "/runs/"+got[0].ID {
		t.Errorf("%d %s: %+v %s", status, to, got, page)
	}
}

func TestNewRun_IsMadeOnceHoweverOftenItIsSent(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	page := s.get("/workspaces/net")
	if !strings.Contains(page, `value="preview" checked`) {
		t.Error("preview is not the default")
	}
	form := url.Values{"key": {key(t, page)}, "operation": {"update"}, "message": {"add a subnet"}, "priority": {"5"}, "max_runtime": {"20m"}}
	to, status, page := s.post("/workspaces/net/runs", form)
	if to != "" || status != http.StatusUnprocessableEntity && status != http.StatusBadRequest || !strings.Contains(page, "tick the box") {
		t.Fatalf("not confirmed: %d %s", status, to)
	}
	for _, kept := range []string{`value="update" checked`, `value="add a subnet"`, `value="5"`, `value="20m"`} {
		if !strings.Contains(page, kept) {
			t.Errorf("the refused form does not keep %s", kept)
		}
	}
	form.Set("key", key(t, page))
	form.Set("confirm", "on")
	first, _, _ := s.post("/workspaces/net/runs", form)
	second, _, _ := s.post("/workspaces/net/runs", form)
	got := s.runsOf("net")
	if len(got) != 1 || first != "/runs/"+got[0].ID || second != first {
		t.Fatalf("%s and %s: %+v", first, second, got)
	}
	if w := got[0]; w.Operation != workflow.Update || w.Message != "add a subnet" || w.Priority != 5 || w.MaxRuntime != "20m0s" {
		t.Errorf("got %+v", w)
	}
	if to, _, _ := s.post("/workspaces/net/runs", url.Values{"key": {"another"}, "operation": {"scan"}}); to == "" || s.runsOf("net")[0].Type != workflow.InsightsScan {
		t.Error("no scan was made")
	}
	for _, wrong := range []url.Values{{"operation": {""}}, {"operation": {"plan"}}, {"operation": {"preview"}, "priority": {"high"}}, {"operation": {"destroy"}}, {"operation": {"preview"}, "max_runtime": {"long"}}} {
		if to, status, _ := s.post("/workspaces/net/runs", wrong); to != "" || status < 400 || status >= 500 {
			t.Errorf("%v: %d %s", wrong, status, to)
		}
	}
}

func TestUnlock_FreesAWorkspaceWhoseHolderIsLost(t *testing.T) {
	c := newClock()
	s := newSite(t, c.of)
	s.workspace("net")
	w := s.submit("net", workflow.Update)
	s.start()
	s.shows("/workspaces/net", []string{"holds it"}, []string{"Unlock the workspace", "It cannot be unlocked"})
	s.pass(c, 12) // of silence
	admin := s.cookie
	s.as("otto", api.RoleOperator, nil)
	s.shows("/workspaces/net", []string{"holds it", "Free at the latest"}, []string{"Unlock the workspace"})
	if to, status, _ := s.post("/workspaces/net/unlock", url.Values{"workflow": {w.ID}}); to != "" || status != http.StatusForbidden {
		t.Errorf("an operator: %d %s", status, to)
	}
	s.cookie = admin
	s.shows("/workspaces/net", []string{"Unlock the workspace", "known to be"}, nil)
	if to, _, page := s.post("/workspaces/net/unlock", url.Values{"workflow": {"wf_other"}}); to != "" || !strings.Contains(page, "Not done") {
		t.Errorf("another holder: %s", to)
	}
	to, _, _ := s.post("/workspaces/net/unlock", url.Values{"workflow": {w.ID}})
	if to != "/workspaces/net" {
		t.Fatalf("went on to %q", to)
	}
	s.shows(to, []string{"The workspace is unlocked", "Free: nothing changes its state", `<div data-part="locks"></div>`}, nil)
	events, err := s.plane.Audit(t.Context(), s.admin, api.AuditFilter{Action: "workspace.unlock", Outcome: "done"})
	s.must(err)
	if len(events.Items) != 1 || events.Items[0].Actor != "admin" || !strings.Contains(events.Items[0].Detail, w.ID) {
		t.Errorf("audit: %+v", events.Items)
	}
}

// A state that could not be written is to be pushed; an admin may give it up.
func TestUnlock_GivesUpAStateThatWasNotWritten(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	w := s.submit("net", workflow.Update)
	job, run := s.start()
	for _, in := range []api.NewArtifacts{
		{Artifacts: []api.NewArtifact{{Name: api.ErroredName, Kind: api.ArtifactState, Size: 3, SHA256: strings.Repeat("ab", 32)}}, Place: &api.Place{Kind: api.PlaceDirectory}},
		{Placed: []string{api.ErroredName}},
	} {
		_, err := s.plane.Announce(t.Context(), job.Token, run, in)
		s.must(err)
	}
	s.end(job, run, failed)
	s.submit("net", workflow.Update)
	says := []string{"could not write its state", "dayfly artifact get " + w.ID + " plan/errored.tfstate", "dayfly state push net errored.tfstate", "The first waits for the state that workflow " + w.ID}
	s.shows("/workspaces/net", append(says, "Give that state up", "makes the resources of run "+w.ID), []string{"holds it", "Unlock the workspace", "known to be gone: the next run"})
	admin := s.cookie
	s.as("otto", api.RoleOperator, nil)
	s.shows("/workspaces/net", says, []string{"Give that state up"})
	s.cookie = admin
	to, _, _ := s.post("/workspaces/net/unlock", url.Values{"workflow": {w.ID}})
	if to != "/workspaces/net" {
		t.Fatalf("went on to %q", to)
	}
	s.shows(to, []string{"The workspace is unlocked"}, []string{"could not write its state"})
	if next, _ := s.start(); next.ID == w.ID {
		t.Error("nothing runs after it")
	}
}
