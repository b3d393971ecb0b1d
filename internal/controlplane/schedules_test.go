package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// schedule makes a schedule of all workspaces, every hour, without a spread, as changed.
func (w *world) schedule(change ...func(*api.Schedule)) api.Schedule {
	w.t.Helper()
	in := api.Schedule{Name: "hourly", Cron: "@hourly", Spread: "0s", Projects: []string{"global"}}
	for _, c := range change {
		c(&in)
	}
	out, _, err := w.plane.Schedules.Put(w.ctx(), w.admin, in)
	w.must(err)
	return out
}

// all are the workflows that were submitted, the oldest first. The audit trail does not lag, as the list may.
func (w *world) all() (out []api.Workflow) {
	w.t.Helper()
	for cursor := ""; ; {
		page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Action: "workflow.submit", Outcome: "done", Cursor: cursor, Limit: 200})
		w.must(err)
		for _, e := range page.Items {
			out = append(out, w.show(e.Target))
		}
		if cursor = page.Next; cursor == "" {
			slices.SortFunc(out, func(a, b api.Workflow) int { return a.SubmittedAt.Compare(b.SubmittedAt) })
			return out
		}
	}
}

// scheduled is what the schedule hourly does about a workspace.
func (w *world) scheduled(workspace string) api.ScheduledRun {
	w.t.Helper()
	page, err := w.plane.WorkspaceSchedules(w.ctx(), w.admin, workspace)
	w.must(err)
	if len(page.Items) != 1 {
		w.t.Fatalf("%d schedules: %+v", len(page.Items), page.Items)
	}
	return page.Items[0]
}

// endsAll claims everything and ends it well.
func (w *world) endsAll() {
	w.t.Helper()
	for _, job := range w.claim(50) {
		task := "task-" + job.ID
		w.launch(job, task)
		r := run(job, task, 'a')
		_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
		w.must(err)
		w.must(w.result(job, r, workflow.Succeeded))
	}
}

func TestSchedule_AThousandWorkspacesMakeNoBurst(t *testing.T) {
	w := newWorld(t, memory.New())
	const many = 1000
	for i := range many {
		w.workspace(fmt.Sprintf("net%d", i))
	}
	if got := w.schedule(func(s *api.Schedule) { s.Spread = "" }); got.SpreadOver != "10m0s" {
		t.Errorf("spread over %s", got.SpreadOver)
	}
	w.live(80 * time.Minute)
	of, minutes := map[string]int{}, map[time.Time]int{}
	for _, wf := range w.all() {
		of[wf.Workspace]++
		minutes[wf.SubmittedAt.Truncate(time.Minute)]++
		if wf.Type != workflow.InsightsScan || wf.SubmittedBy != "schedule/hourly" || wf.Trigger == nil || wf.Trigger.Kind != api.TriggerSchedule || wf.Trigger.Name != "hourly" {
			t.Fatalf("got %+v", wf)
		}
	}
	if len(of) != many {
		t.Errorf("%d workspaces were run", len(of))
	}
	for name, n := range of {
		if n != 1 {
			t.Errorf("%s was run %d times", name, n)
		}
	}
	for at, n := range minutes {
		if n > 160 || at.Minute() > 10 || at.Hour() != 13 {
			t.Errorf("%d at %s", n, at)
		}
	}
}

func TestSchedule_PassesAtOnceSubmitOnce(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		const many = 20
		for i := range many {
			w.workspace(fmt.Sprintf("net%d", i))
		}
		w.schedule()
		other := controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory})
		w.clock.advance(time.Hour)
		var group sync.WaitGroup
		for _, p := range []*controlplane.Plane{w.plane, other, w.plane} {
			group.Go(func() {
				if _, err := p.Pass(w.ctx()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		w.pass()
		if got := len(w.all()); got != many {
			t.Errorf("%d runs of %d workspaces", got, many)
		}
	})
}

// cut is a store that does not take the commits that it is told to lose.
type cut struct {
	store.Store
	lose func(op store.Op) bool
}

var errCut = errors.New("the process died")

func (c *cut) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if c.lose != nil && slices.ContainsFunc(ops, c.lose) {
		return errCut
	}
	return c.Store.Commit(ctx, id, ops...)
}

// A pass that dies between a submission and its note makes no second run, also if it dies there again and again.
func TestSchedule_ACrashBeforeTheNoteSubmitsOnce(t *testing.T) {
	st := &cut{Store: memory.New()}
	w := newWorld(t, st)
	w.workspace("net")
	w.schedule()
	st.lose = func(op store.Op) bool { return strings.HasPrefix(op.Key().Part, "planned/") }
	w.clock.advance(time.Hour)
	for range 5 {
		if _, err := w.plane.Pass(w.ctx()); !errors.Is(err, errCut) {
			t.Fatalf("the pass says %v", err)
		}
		w.clock.advance(time.Minute)
	}
	st.lose = nil
	w.live(3 * time.Minute)
	all := w.all()
	if len(all) != 1 {
		t.Fatalf("%d runs", len(all))
	}
	if got := w.scheduled("net"); got.Workflow != all[0].ID || got.Missed != 0 || got.Note != "" {
		t.Errorf("noted %+v", got)
	}
}

func TestSchedule_WhatWasMissedIsToldAndRunOnce(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		s := w.schedule()
		if want := time.Date(2026, 5, 4, 13, 0, 0, 0, time.UTC); s.NextAt == nil || !s.NextAt.Equal(want) || s.EditedBy != "admin" {
			t.Errorf("made %+v", s)
		}
		w.live(time.Hour + time.Minute)
		w.endsAll()
		w.clock.advance(5 * time.Hour) // 18:01
		w.polls()
		w.pass()
		w.live(2 * time.Minute)
		if got := len(w.all()); got != 2 {
			t.Fatalf("%d runs", got)
		}
		got := w.scheduled("net")
		if got.Missed != 4 || got.LastAt == nil || got.LastAt.Hour() != 18 || got.NextAt == nil || got.NextAt.Hour() != 19 || got.State != workflow.Pending || got.Note != "" {
			t.Errorf("got %+v", got)
		}
		page, err := w.plane.ScheduledRuns(w.ctx(), w.admin, "hourly", "", 0)
		w.must(err)
		if len(page.Items) != 1 || page.Items[0].Missed != 4 || page.Items[0].Workspace != "net" {
			t.Errorf("got %+v", page)
		}
	})
}

func TestSchedule_RunsOnceAfterThePoolIsEnabledAgain(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.schedule()
		disable := func(yes bool) {
			t.Helper()
			_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{IsDisabled: &yes})
			w.must(err)
		}
		disable(true)
		w.live(3*time.Hour + 10*time.Minute)
		if n := len(w.all()); n != 0 {
			t.Fatalf("%d runs", n)
		}
		if got := w.scheduled("net"); got.Note != "pool default is disabled" || got.LastAt != nil || got.NextAt == nil || got.NextAt.Hour() != 15 {
			t.Errorf("it says %+v", got)
		}
		disable(false)
		w.live(10 * time.Minute)
		if n := len(w.all()); n != 1 {
			t.Fatalf("%d runs", n)
		}
		if got := w.scheduled("net"); got.Note != "" || got.Missed != 2 || got.LastAt.Hour() != 15 {
			t.Errorf("it says %+v", got)
		}
	})
}

func TestSchedule_SkipsATimeWhileTheLastRunIsActive(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.schedule()
	w.live(2*time.Hour + time.Minute)
	all := w.all()
	if len(all) != 1 {
		t.Fatalf("%d runs", len(all))
	}
	if got := w.scheduled("net"); got.Note != "run "+all[0].ID+" of this schedule has not ended" || got.LastAt.Hour() != 14 || got.Workflow != all[0].ID {
		t.Errorf("it says %+v", got)
	}
	w.endsAll()
	w.live(time.Hour)
	if got := w.scheduled("net"); len(w.all()) != 2 || got.Note != "" || got.Missed != 0 {
		t.Errorf("%d runs, it says %+v", len(w.all()), got)
	}
}

func TestSchedule_ReportsARefusalAndRetriesNextTime(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { delete(ws.Commands, "insights_scan") })
	w.workspace("other")
	w.schedule()
	w.live(time.Hour + time.Minute)
	if got := w.scheduled("net"); !strings.Contains(got.Note, "add commands.insights_scan") || got.LastAt.Hour() != 13 || got.Workflow != "" {
		t.Errorf("it says %+v", got)
	}
	w.endsAll()
	w.workspace("net")
	w.live(time.Hour)
	if got := w.scheduled("net"); got.Note != "" || got.Workflow == "" || len(w.all()) != 3 {
		t.Errorf("it says %+v", got)
	}
}

func TestSchedule_PauseKeepsStateAndReportsMissedTimes(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.schedule()
	w.live(time.Hour + time.Minute)
	w.endsAll()
	if s := w.schedule(func(s *api.Schedule) { s.IsPaused = true }); s.NextAt != nil {
		t.Errorf("paused, it is next at %s", s.NextAt)
	}
	w.live(3 * time.Hour)
	if got := w.scheduled("net"); len(w.all()) != 1 || got.NextAt != nil || got.LastAt == nil {
		t.Errorf("paused, it says %+v, %d runs", got, len(w.all()))
	}
	w.schedule() // at 16:01
	w.live(30 * time.Minute)
	if n := len(w.all()); n != 1 {
		t.Errorf("what was missed in the pause was made up for: %d runs", n)
	}
	w.live(30 * time.Minute)
	if got := w.scheduled("net"); len(w.all()) != 2 || got.Missed != 3 || got.LastAt.Hour() != 17 {
		t.Errorf("it says %+v, %d runs", got, len(w.all()))
	}
}

func TestSchedule_OtherTimesCountFromThen(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.schedule(func(s *api.Schedule) { s.Cron = "0 20 * * *" })
	before, err := w.plane.Schedules.Show(w.ctx(), w.admin, "hourly")
	w.must(err)
	w.live(time.Hour)
	after := w.schedule(func(s *api.Schedule) { s.Cron, s.Description = "0 20 * * *", "the same times" })
	if !after.Since.Equal(*before.Since) {
		t.Error("another description has begun it anew")
	}
	w.schedule(func(s *api.Schedule) { s.Cron = "30 12 * * *" }) // at 13:00
	w.live(time.Hour)
	if n := len(w.all()); n != 0 {
		t.Errorf("%d runs of a time before it was set", n)
	}
	w.live(23 * time.Hour)
	if got := w.scheduled("net"); len(w.all()) != 1 || got.Missed != 0 {
		t.Errorf("it says %+v, %d runs", got, len(w.all()))
	}
}

func TestSchedule_MadeAgainIsAnother(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		first := w.schedule()
		w.live(time.Hour + time.Minute)
		old := w.scheduled("net")
		w.must(w.plane.Schedules.Delete(w.ctx(), w.admin, "hourly"))
		page, err := w.plane.WorkspaceSchedules(w.ctx(), w.admin, "net")
		w.must(err)
		if len(page.Items) != 0 {
			t.Errorf("deleted, there is %+v", page.Items)
		}
		w.endsAll()
		again := w.schedule()
		if !again.CreatedAt.After(*first.CreatedAt) {
			t.Errorf("made at %s again", again.CreatedAt)
		}
		if got := w.scheduled("net"); got.LastAt != nil || got.Workflow != "" {
			t.Errorf("it says %+v", got)
		}
		w.live(time.Hour)
		if got := w.scheduled("net"); len(w.all()) != 2 || got.Workflow == old.Workflow || got.Missed != 0 {
			t.Errorf("it says %+v", got)
		}
		gone, err := w.store.Range(w.ctx(), record.Under(record.OrganizationPart("default"), record.GoneSchedulesPrefix, 10))
		w.must(err)
		if len(gone.Records) != 0 {
			t.Errorf("what the deleted one left is still there: %v", gone.Records)
		}
	})
}

// A turn of another process notes once more what a deleted schedule has done, just as that is swept.
func TestSchedule_WhatADeletedOneLeftGoesAfterALostRace(t *testing.T) {
	st := &between{Store: memory.New()}
	w := newWorld(t, st)
	w.workspace("net")
	w.schedule()
	id := w.stored("hourly").ID
	w.live(time.Hour + time.Minute)
	w.must(w.plane.Schedules.Delete(w.ctx(), w.admin, "hourly"))
	k, raced := record.PlannedKey(id, w.idOf("net")), false
	st.beforeCommit = func(ops []store.Op) func() {
		if !slices.ContainsFunc(ops, func(op store.Op) bool { return op.IsDelete() && op.Key() == k }) {
			return nil
		}
		return func() { raced = true; stored(w, k, func(p *record.Planned) { p.Run = "wf_again" }) }
	}
	w.pass()
	w.pass()
	left, err := w.store.Range(w.ctx(), store.Scan{Part: record.PlannedPart(id), Limit: 10})
	w.must(err)
	if !raced || len(left.Records) != 0 {
		t.Errorf("raced %t, %d records are left", raced, len(left.Records))
	}
}

// The records of a schedule about a deleted workspace are deleted within a day.
func TestSchedule_PassesOverADeletedWorkspace(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.workspace("other")
	w.schedule()
	w.live(time.Hour + time.Minute)
	w.endsAll()
	page, err := w.plane.Workspace(w.ctx(), w.admin, "net")
	w.must(err)
	w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"))
	runs, err := w.plane.ScheduledRuns(w.ctx(), w.admin, "hourly", "", 0)
	w.must(err)
	if len(runs.Items) != 1 || runs.Items[0].Workspace != "other" {
		t.Errorf("got %+v", runs.Items)
	}
	for range 13 {
		w.live(time.Hour)
		w.endsAll()
	}
	if n := len(w.all()); n != 2+13 {
		t.Errorf("%d runs", n)
	}
	id := w.stored("hourly").ID
	for wsid, want := range map[string]int{page.ID: 0, w.idOf("other"): 1} {
		got, err := w.store.Get(w.ctx(), record.PlannedKey(id, wsid))
		w.must(err)
		if len(got) != want {
			t.Errorf("%d records of %s, want %d", len(got), wsid, want)
		}
	}
}

// stored is the record of a schedule.
func (w *world) stored(name string) (out record.Settings[api.Schedule]) {
	w.t.Helper()
	got, err := w.store.Get(w.ctx(), record.SettingsKey("default", kind.Schedule, name))
	w.must(err)
	w.must(record.DecodeInto(got[0], &out))
	return out
}

func (w *world) idOf(workspace string) string {
	w.t.Helper()
	ws, err := w.plane.Workspace(w.ctx(), w.admin, workspace)
	w.must(err)
	return ws.ID
}

// A night with 25 hours has the time once, and so has one with 23 that does not have it at all.
func TestSchedule_RunsOnceWhereTheClocksAreSet(t *testing.T) {
	for name, start := range map[string]time.Time{
		"forward": time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC), "back": time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.clock.advance(start.Sub(w.clock.now()))
			w.pass()
			w.workspace("net")
			w.schedule(func(s *api.Schedule) { s.Cron, s.TimeZone = "30 2 * * *", "Europe/Berlin" })
			for day := 1; day <= 3; day++ {
				w.live(24 * time.Hour)
				w.endsAll()
				if n := len(w.all()); n != day {
					t.Fatalf("%d runs after %d days", n, day)
				}
				if got := w.scheduled("net"); got.Missed != 0 {
					t.Errorf("day %d: %+v", day, got)
				}
			}
		})
	}
}
