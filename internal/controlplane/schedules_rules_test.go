package controlplane_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// With required approvals an update is a preview that waits, and who changed the schedule last counts as its submitter.
func TestSchedule_AnUpdateUnderApprovalsWaits(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) {
		ws.Engine, ws.Commands, ws.Approval = api.EngineTerraform, nil, &api.Approval{Required: true, NotBySubmitter: true}
	})
	w.schedule(func(s *api.Schedule) { s.Type, s.Operation = workflow.Deployment, workflow.Update })
	w.live(time.Hour + time.Minute)
	all := w.all()
	if len(all) != 1 || all[0].Operation != workflow.Preview || all[0].For != workflow.Update {
		t.Fatalf("got %+v", all)
	}
	got, err := w.store.Get(w.ctx(), record.ReviewKey(all[0].ID))
	w.must(err)
	review, err := record.Decode[record.Review](got[0])
	w.must(err)
	if !slices.Contains(review.Submitters.Names(), "admin") || !slices.Contains(review.Submitters.Names(), "schedule/hourly") {
		t.Errorf("submitters are %v", review.Submitters)
	}
}

func TestSchedule_IsRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	for name, change := range map[string]func(*api.Schedule){
		"cron": func(s *api.Schedule) { s.Cron = "@reboot" }, "cron, never": func(s *api.Schedule) { s.Cron = "0 0 30 2 *" },
		"time_zone": func(s *api.Schedule) { s.TimeZone = "Mars" }, "spread": func(s *api.Schedule) { s.Spread = "31m" },
		"spread, no time": func(s *api.Schedule) { s.Spread = "often" }, "spread, negative": func(s *api.Schedule) { s.Spread = "-1m" },
		"workspaces": func(s *api.Schedule) { s.Projects = nil }, "workspaces, none": func(s *api.Schedule) { s.Workspaces = []string{"nte"} },
		"projects": func(s *api.Schedule) { s.Projects = []string{"live"} }, "type": func(s *api.Schedule) { s.Type = "audit" },
		"operation": func(s *api.Schedule) { s.Operation = workflow.Update }, "operation, none": func(s *api.Schedule) { s.Type = workflow.Deployment },
		"operation, of the state": func(s *api.Schedule) { s.Type, s.Operation = workflow.Deployment, workflow.StateUnlock },
		"description":             func(s *api.Schedule) { s.Description = strings.Repeat("x", 1001) }, "name": func(s *api.Schedule) { s.Name = "a b" },
	} {
		in := api.Schedule{Name: "hourly", Cron: "@hourly", Projects: []string{"global"}}
		change(&in)
		_, _, err := w.plane.Schedules.Put(w.ctx(), w.admin, in)
		field, _, _ := strings.Cut(name, ",")
		if e, ok := errors.AsType[*workflow.Error](err); !ok || e.Field != field || !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	made := w.schedule()
	stale := api.Schedule{Name: "hourly", Cron: "@daily", Projects: []string{"global"}, Version: made.Version + 1}
	_, _, err := w.plane.Schedules.Put(w.ctx(), w.admin, stale)
	wantErr(t, err, workflow.ErrConflict)
	if _, outcome, err := w.plane.Schedules.Put(w.ctx(), w.admin, made); err != nil || outcome != api.OutcomeUnchanged {
		t.Errorf("what it is: %s %v", outcome, err)
	}
	operator := controlplane.Principal{Organization: "default", Name: "otto", Audience: identity.User, Role: api.RoleOperator}
	_, _, err = w.plane.Schedules.Put(w.ctx(), operator, made)
	wantErr(t, err, workflow.ErrForbidden)
	wantErr(t, w.plane.Schedules.Delete(w.ctx(), operator, "hourly"), workflow.ErrForbidden)
	other := controlplane.Principal{Organization: "other", Name: "eve", Audience: identity.User, Role: api.RoleAdmin}
	_, err = w.plane.Schedules.Show(w.ctx(), other, "hourly")
	wantErr(t, err, workflow.ErrNotFound)
}

// A turn that is cut short gives the others theirs before it goes on.
func TestSchedule_ALongOneDoesNotHoldBackTheOthers(t *testing.T) {
	w := newWorld(t, memory.New())
	const many = 450
	for i := range many {
		w.workspace(fmt.Sprintf("net%d", i))
	}
	w.workspace("other")
	w.schedule(func(s *api.Schedule) { s.Name = "a" })
	w.schedule(func(s *api.Schedule) { s.Name, s.Projects, s.Workspaces = "b", nil, []string{"other"} })
	w.clock.advance(time.Hour)
	until := w.clock.now().Add(time.Hour)
	left, err := w.plane.Round(w.ctx(), "default", until)
	w.must(err)
	if n := len(w.all()); !left || n != 200 {
		t.Fatalf("left %t, %d runs", left, n)
	}
	left, err = w.plane.Round(w.ctx(), "default", until)
	w.must(err)
	if of := w.of("b"); !left || of != 1 {
		t.Fatalf("left %t, %d runs of the other", left, of)
	}
	for n := 0; left; n++ {
		if left, err = w.plane.Round(w.ctx(), "default", until); err != nil || n > 5 {
			t.Fatalf("%d more turns: %v", n, err)
		}
	}
	if n := w.of("a"); n != many+1 {
		t.Errorf("%d runs", n)
	}
	w.clock.advance(time.Minute)
	if left, err = w.plane.Round(w.ctx(), "default", w.clock.now()); err != nil || left {
		t.Errorf("with no time and nothing to do: %t %v", left, err)
	}
}

// of counts the runs of a schedule.
func (w *world) of(name string) (n int) {
	w.t.Helper()
	for _, wf := range w.all() {
		if wf.Trigger.Name == name {
			n++
		}
	}
	return n
}
