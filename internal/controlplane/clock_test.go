package controlplane_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A function is ended at its deadline: its pass stops before that and says so, and the next pass continues.
func TestPass_EndsBeforeItsDeadlineAndTheNextGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		const n = 3
		for i := range n {
			name := fmt.Sprintf("net%d", i)
			w.workspace(name)
			w.submit(name, workflow.Update)
		}
		w.clock.advance(workflow.QueueTimeout + time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // less than the margin
		defer cancel()
		sum, err := w.plane.Pass(ctx)
		w.must(err)
		if sum.Looked != 0 || !sum.More {
			t.Errorf("without time: %+v", sum)
		}
		sum, err = w.plane.Pass(t.Context())
		w.must(err)
		if sum.Moved != n || sum.More {
			t.Errorf("the next: %+v", sum)
		}
	})
}

// restart replaces the control plane by another process, one that makes all passes.
func (w *world) restart() {
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Alone: true})
}

// beats makes a run give a sign of life each minute, for some minutes, with a pass each minute.
func (w *world) beats(job api.Job, r api.Run, minutes int) {
	w.t.Helper()
	for range minutes {
		_, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{Step: "run"})
		w.must(err)
		w.live(time.Minute)
	}
}

// ends makes a run give a sign of life each minute until a workflow has ended, and counts the minutes.
func (w *world) ends(id string, job api.Job, r api.Run) int {
	w.t.Helper()
	for n := range 100 {
		if w.show(id).State != workflow.Running {
			return n
		}
		w.beats(job, r, 1)
	}
	w.t.Errorf("it runs on\n%s", w.story(id))
	return 100
}

// Incident: each process of a control plane in a crash loop made one pass and died. So there was a pass every few
// seconds, but never a process that took a heartbeat. Such time must not count.
func TestClock_ACrashLoopOfHoursFailsNobody(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.workspace("other")
		w.submit("net", workflow.Update)
		silent, _ := w.started()
		w.submit("other", workflow.Update)
		handed, r := w.started()
		w.lost(handed, r, 0)
		for range 3 * 60 / 5 {
			w.clock.advance(5 * time.Minute)
			w.restart()
			w.pass()
		}
		w.is(silent.ID, workflow.Running, "")
		w.is(handed.ID, workflow.Running, "")
		w.live(workflow.Silence - 2*time.Minute)
		w.is(silent.ID, workflow.Running, "")
		w.is(handed.ID, workflow.Running, "")
		w.live(3 * time.Minute)
		w.is(silent.ID, workflow.Failed, workflow.ReasonRunnerLost)
		w.is(handed.ID, workflow.Failed, workflow.ReasonResultMissing)
	})
}

// Before its first pass, a process does not count the time before its start either.
func TestClock_AProcessCountsFromItsFirstPass(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	remains := func() float64 {
		t.Helper()
		c, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		w.must(err)
		return c.RemainingSeconds
	}
	before := remains()
	for range 100 {
		w.clock.advance(time.Minute)
		w.restart()
		if got := remains(); math.Abs(got-before) > 1 {
			t.Fatalf("%.0f s remain before the first pass, were %.0f", got, before)
		}
		w.pass()
	}
	w.clock.advance(30 * time.Second)
	if got := remains(); math.Abs(got-before+30) > 1 {
		t.Errorf("%.0f s remain half a minute after a pass, were %.0f", got, before)
	}
}

// A step of the wall clock neither passes a deadline nor makes a run silent, and it does not hide a silent run.
func TestClock_AStepOfTheWallClockChangesNothing(t *testing.T) {
	for name, step := range map[string]time.Duration{
		"forward by a day": 24 * time.Hour, "back by an hour": -time.Hour, "back by the tolerance between clocks": -4 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.workspace("alive")
			w.workspace("silent")
			w.submit("alive", workflow.Update)
			alive, r := w.started()
			w.beats(alive, r, 10)
			w.submit("silent", workflow.Update)
			silent, _ := w.started()
			w.beats(alive, r, 5)
			w.clock.advance(step)
			w.beats(alive, r, 4)
			w.is(alive.ID, workflow.Running, "")
			w.is(silent.ID, workflow.Running, "")
			states, err := w.plane.States(w.ctx(), w.pool, api.StatesQuery{IDs: []string{alive.ID}})
			w.must(err)
			if left := states.Jobs[0].RemainingSeconds / 60; left < 39 || left > 46 {
				t.Errorf("%.0f minutes of an hour remain after 19", left)
			}
			// The minutes around the step may be left out.
			if n := w.ends(silent.ID, alive, r); n > 6 {
				t.Errorf("it is silent %d minutes too late", n-1)
			}
			w.is(silent.ID, workflow.Failed, workflow.ReasonRunnerLost)
			n := w.ends(alive.ID, alive, r)
			if w.is(alive.ID, workflow.Failed, workflow.ReasonDeadline); n < 35 || n > 47 {
				t.Errorf("its deadline passed %d minutes later", n)
			}
		})
	}
}

// Only time in which the control plane was running counts, however many processes make its passes.
func TestClock_TwoWhoPassAtOnceCountOnce(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		other := controlplane.New(w.store, controlplane.Config{Now: w.clock.now})
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		w.started()
		for range 9 {
			w.live(time.Minute)
			_, err := other.Pass(w.ctx())
			w.must(err)
		}
		w.is(wf.ID, workflow.Running, "")
		w.live(2 * time.Minute)
		w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
	})
}

// If a pool is cut off from the control plane, its runs are not silent for half an hour. A run of another pool is.
func TestSilence_OfAPoolThatWasCutOff(t *testing.T) {
	for name, tt := range map[string]struct {
		gone int // minutes
		lost bool
	}{"25 minutes": {25, false}, "50 minutes": {50, true}} {
		t.Run(name, func(t *testing.T) {
			everyStore(t, func(t *testing.T, w *world) {
				created, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("other")})
				w.must(err)
				far := &world{t: t, plane: w.plane, store: w.store, clock: w.clock, admin: w.admin}
				far.pool, err = w.plane.Authenticate(w.ctx(), created.Token)
				w.must(err)
				long := func(ws *api.Workspace) { ws.MaxRuntime = "5h" }
				w.workspace("near", long)
				w.workspace("far", long, func(ws *api.Workspace) { ws.Pool = "other" })
				w.submit("near", workflow.Update)
				near, _ := w.started()
				w.submit("far", workflow.Update)
				cut, r := far.started()
				w.live(time.Duration(tt.gone) * time.Minute) // the near pool polls
				w.is(near.ID, workflow.Failed, workflow.ReasonRunnerLost)
				if tt.lost {
					w.is(cut.ID, workflow.Failed, workflow.ReasonRunnerLost)
					return
				}
				w.is(cut.ID, workflow.Running, "")
				far.polls()
				w.live(time.Minute)
				far.beats(cut, r, 3)
				w.is(cut.ID, workflow.Running, "")
				far.live(workflow.Silence - 2*time.Minute)
				w.is(cut.ID, workflow.Running, "")
				far.live(3 * time.Minute)
				w.is(cut.ID, workflow.Failed, workflow.ReasonRunnerLost)
			})
		})
	}
}

// A pool whose calls come through only now and then keeps its runs during the minutes without a call.
func TestSilence_OfAPoolThatComesAndGoes(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.MaxRuntime = "10h" })
	wf := w.submit("net", workflow.Update)
	w.started()
	for range 7 { // one minute of each half hour is silence
		w.polls()
		for range 30 {
			w.clock.advance(time.Minute)
			w.pass()
		}
	}
	w.is(wf.ID, workflow.Running, "")
	w.live(5 * time.Minute)
	w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
}

// Any call of the run's holder is a sign of life.
func TestSilence_AnyCallOfTheRunEndsIt(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		calls := []func(n int) error{
			func(int) error { _, err := w.plane.Spec(w.ctx(), job.Token, r); return err },
			func(n int) error {
				_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{First: int64(n), Lines: []api.LogLine{{Text: "Still creating..."}}, Lost: true})
				return err
			},
			func(n int) error {
				_, err := w.plane.Steps(w.ctx(), job.Token, r, api.Steps{Steps: []api.Step{{Seq: n + 1, Name: "a", Status: workflow.StepRunning}}})
				return err
			},
			func(int) error {
				_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
				return err
			},
			func(int) error { _, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{}); return err },
		}
		for n, call := range calls {
			w.live(8 * time.Minute)
			w.must(call(n))
			w.is(wf.ID, workflow.Running, "")
		}
		// A sign of life that comes soon after another is not stored again, unless it reports a change.
		version := func() int64 {
			got, err := w.store.Get(w.ctx(), record.BeatKey(wf.ID))
			w.must(err)
			return got[0].Version
		}
		before := version()
		w.must(calls[0](0))
		w.must(calls[3](0))
		if got := version(); got != before {
			t.Errorf("the sign of life was written %d times more", got-before)
		}
		_, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{Step: "apply"})
		w.must(err)
		if got := version(); got != before+1 {
			t.Errorf("a heartbeat of another step was written %d times", got-before)
		}
	})
}

// After an outage the answers show the time of the service clock: each run has as long as before it.
func TestClock_WhatPeopleAndRunnersAreTold(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	wf := w.submit("net", workflow.Update)
	job, r := w.started()
	w.beats(job, r, 15)
	w.clock.advance(3 * time.Hour)
	w.pass()
	states, err := w.plane.States(w.ctx(), w.pool, api.StatesQuery{IDs: []string{wf.ID}})
	w.must(err)
	if s := states.Jobs[0]; s.SilentSeconds > 200 || s.RemainingSeconds < 42*60 || s.RemainingSeconds > 45*60 {
		t.Errorf("the pool gets %.0f s of silence, %.0f s remain", s.SilentSeconds, s.RemainingSeconds)
	}
	c, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
	w.must(err)
	if c.RemainingSeconds < 42*60 || c.RemainingSeconds > 45*60 {
		t.Errorf("the runner gets %.0f s as the remaining time", c.RemainingSeconds)
	}
	why, err := w.plane.Why(w.ctx(), w.admin, wf.ID)
	w.must(err)
	// 12:00, then 15 minutes, 3 hours, and the rest of the hour; the outage counts as one minute.
	if !strings.Contains(why.Next, "15:59:00 UTC (in 44m0s)") {
		t.Errorf("why = %q", why.Next)
	}
}

// After an outage the service clock stays behind the wall clock. A pass looks at a run when it may be silent, not
// each time.
func TestPass_LooksAtARunWhenSomethingMayBeDue(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.MaxRuntime = "10h" })
	w.submit("net", workflow.Update)
	job, r := w.started()
	w.clock.advance(5 * time.Hour)
	looked := 0
	for range 60 {
		_, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		w.must(err)
		w.clock.advance(time.Minute)
		sum, err := w.plane.Pass(w.ctx())
		w.must(err)
		looked += sum.Looked
	}
	if looked > 8 {
		t.Errorf("looked %d times in an hour at a run that reports", looked)
	}
}

func (w *world) timers() []string {
	w.t.Helper()
	var out []string
	for _, part := range record.TimerParts("default") {
		page, err := w.store.Range(w.ctx(), store.Scan{Part: part, Limit: 100})
		w.must(err)
		for _, r := range page.Records {
			out = append(out, r.Key.Sort)
		}
	}
	return out
}

// A timer that the run's record does not name is deleted, and its run goes on by its own.
func TestPass_DeletesATimerThatNobodyKnows(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	wf := w.submit("net", workflow.Update)
	job, r := w.started()
	due := record.Due(record.ServiceTimers, w.clock.t.Add(time.Minute).UnixMilli())
	w.must(w.store.Commit(w.ctx(), "left-over", store.Put(record.Encode(record.TimerKey("default", due, wf.ID), record.Name{ID: wf.ID}), store.Absent)))
	w.beats(job, r, 3)
	if keys := w.timers(); len(keys) != 1 {
		t.Errorf("timers %q", keys)
	}
	w.is(wf.ID, workflow.Running, "")
	w.live(workflow.Silence)
	w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost)
}

// A workflow's record has room for what the service clock adds: it stays under 1 KiB.
func TestClock_ItsStampsAreShort(t *testing.T) {
	at := time.Date(2026, 5, 4, 12, 0, 0, 123456789, time.UTC)
	task := "arn:aws:ecs:eu-central-1:123456789012:task/dayfly-pool-default-cluster/0123456789abcdef0123456789abcdef"
	w := record.Workflow{
		ID: "wf_1kjsg9h20wk7354ytqzb", Org: "default", Workspace: "network-production", WorkspaceID: "ws_1kjsg9h20bah27ze5rjb",
		PoolID: "pool_1kjpwd6m0jc4hss4gxrr", Type: workflow.Deployment, Op: workflow.Update, Size: "small", By: "admin",
		MaxRuntime: time.Hour, State: workflow.Running, Submitted: at, Since: at, Claimed: at, Started: at, HandedOver: at,
		Attempt: 1, Starts: 1, Instance: "dayfly-pool-default", Tasks: []record.Task{{Ref: task}}, Active: true, SlotHeld: true, Seq: 12,
		Holder:  record.Holder{Attempt: 1, Task: task, Boot: strings.Repeat("a", 32)},
		Service: record.Service{Deadline: at.UnixMilli(), HandedOver: at.UnixMilli()},
		Due:     record.Due(record.ServiceTimers, at.UnixMilli()) + "12",
	}
	if n := len(record.EncodeWorkflow(&w).Value); n > 1<<10 {
		t.Errorf("%d bytes", n)
	}
	w.PlanOf, w.Needs = w.ID, []string{api.StateS3, "plan"}
	w.HandedOver, w.Service.HandedOver = time.Time{}, 0 // until then
	if n := len(record.EncodeWorkflow(&w).Value); n > 1<<10 {
		t.Errorf("%d bytes of a run that applies a plan", n)
	}
}
