package reaper_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A process that is new at every sweep still believes nothing at the first look.
func TestSweep_StopsAnOrphanAtTheSecondLookOfOneSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{jobs: []api.JobState{over(workflow.Cancelled)}, tasks: map[string]*launcher.Task{"t": ptr(task("t", old))}}
		began := time.Now()
		out, err := p.reaper(reaper.Config{}).Sweep(t.Context())
		if err != nil || len(out.Actions) != 1 || out.Actions[0].Kind != reaper.Stop {
			t.Fatalf("%+v, %v", out, err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the second look came after %s, want the minute that the policy says", took)
		}
		if d := cmp.Diff([]string{"stop t"}, p.took()); d != "" {
			t.Errorf("actions (-want +got):\n%s", d)
		}
	})
}

func TestSweep_WhatIsRightAtTheSecondLookIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{jobs: []api.JobState{over(workflow.Cancelled)}, tasks: map[string]*launcher.Task{"t": ptr(task("t", old))}}
		time.AfterFunc(30*time.Second, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.jobs[0] = running("t")
		})
		out, err := p.reaper(reaper.Config{}).Sweep(t.Context())
		if err != nil || len(out.Actions) != 0 || len(p.took()) != 0 {
			t.Errorf("%+v, %v; %v", out, err, p.took())
		}
	})
}

func TestSweep_WaitsOnlyWhereSomethingLooksWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := 1
		p := &place{jobs: []api.JobState{running("t")}, tasks: map[string]*launcher.Task{"t": ptr(task("t", stopped, func(t *launcher.Task) { t.ExitCode = &code }))}}
		began := time.Now()
		out, err := p.reaper(reaper.Config{}).Sweep(t.Context())
		if err != nil || len(out.Actions) != 1 || len(p.lost) != 1 {
			t.Errorf("%+v, %v", out, err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %s although a proven end needs no second look", took)
		}
	})
}

// A function is stopped at its deadline: it must not act on one look, nor be killed waiting.
func TestSweep_WithoutTimeForASecondLookDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{jobs: []api.JobState{over(workflow.Cancelled)}, tasks: map[string]*launcher.Task{"t": ptr(task("t", old))}}
		ctx, cancel := context.WithTimeout(t.Context(), 65*time.Second)
		defer cancel()
		began := time.Now()
		out, err := p.reaper(reaper.Config{}).Sweep(ctx)
		if err != nil || len(out.Actions) != 0 || len(p.took()) != 0 || time.Since(began) != 0 {
			t.Errorf("%+v, %v after %s", out, err, time.Since(began))
		}
		if !strings.Contains(p.log.String(), "no time for a second look") {
			t.Errorf("log:\n%s", p.log.String())
		}
	})
}

// Two sweeps at once see the same and do the same, which is harmless.
func TestSweep_TwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{jobs: []api.JobState{over(workflow.Failed)}, tasks: map[string]*launcher.Task{"t": ptr(task("t", old))}}
		done := make(chan error, 2)
		for range 2 {
			r := reaper.New(p, p, reaper.Config{})
			go func() {
				_, err := r.Sweep(t.Context())
				done <- err
			}()
		}
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
		for _, call := range p.took() {
			if call != "stop t" {
				t.Errorf("did %s", call)
			}
		}
	})
}

func TestSweep_ADryRunDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{jobs: []api.JobState{over(workflow.Cancelled)}, tasks: map[string]*launcher.Task{"t": ptr(task("t", old))}}
		out, err := p.reaper(reaper.Config{DryRun: true}).Sweep(t.Context())
		if err != nil || len(out.Actions) != 1 || len(p.took()) != 0 {
			t.Errorf("%+v, %v; %v", out, err, p.took())
		}
	})
}

// The relay may be elsewhere: a sign of life that the control plane took is one.
func TestPass_ATaskThatTheControlPlaneHeardOfIsNotLost(t *testing.T) {
	for silent, lost := range map[float64]bool{20: false, 600: true} {
		synctest.Test(t, func(t *testing.T) {
			p := &place{jobs: []api.JobState{running("gone", func(j *api.JobState) { j.ClaimAge, j.SilentSeconds = 3600, silent })}, tasks: map[string]*launcher.Task{}}
			_, err := p.reaper(reaper.Config{Policy: reaper.Policy{AbsenceProves: 10 * time.Minute}}).Sweep(t.Context())
			if err != nil || (len(p.lost) == 1) != lost {
				t.Errorf("silent for %g s: reported %v, %v", silent, p.lost, err)
			}
		})
	}
}

func TestEnded_ReportsOnceAndTellsWhenItCouldNot(t *testing.T) {
	code := 137
	end := task("t", stopped, func(t *launcher.Task) { t.ExitCode, t.Text = &code, "killed" })
	for name, c := range map[string]struct {
		task    launcher.Task
		fail    error
		again   bool
		reports int
	}{
		"an end":                 {end, nil, false, 1},
		"the control plane away": {end, workflow.Refuse(workflow.ErrBusy, "", "away"), true, 0},
		"of no interest":         {end, workflow.Refuse(workflow.ErrNotFound, "", "another pool's"), false, 0},
		"a task that runs":       {task("t"), nil, false, 0},
		"nobody's task":          {task("t", stopped, func(t *launcher.Task) { t.Workflow = "" }), nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &place{fail: map[string]error{"lost": c.fail}}
			r := p.reaper(reaper.Config{})
			err := r.Ended(t.Context(), c.task)
			if (err != nil) != c.again || len(p.lost) != c.reports {
				t.Errorf("%v, %d reports", err, len(p.lost))
			}
			if c.again && !errors.Is(err, c.fail) {
				t.Errorf("error %v does not say why", err)
			}
		})
	}
}
