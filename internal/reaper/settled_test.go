package reaper_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// An end is settled when it is reported, or when the control plane, asked after the end was seen, has no active run at
// the task's attempt. Whatever may still be needed is not.
func TestPlan_SettlesTheEndsOnWhichNoRunCounts(t *testing.T) {
	late := world(over(workflow.Succeeded), task("t"))
	late.After = []launcher.Task{task("t", stopped)}
	unheld := world(running("x"), task("t", stopped))
	unheld.Jobs = nil
	for name, c := range map[string]struct {
		s    reaper.Snapshot
		want []string
	}{
		"its run is over":                    {world(over(workflow.Succeeded), task("t", stopped)), []string{"t"}},
		"its run is not held":                {unheld, []string{"t"}},
		"its run is at another attempt":      {world(running("t2", func(j *api.JobState) { j.Attempt = 2 }), task("t", stopped)), []string{"t"}},
		"its run waits for it":               {world(running("t"), task("t", stopped)), nil},
		"its run has not begun":              {world(claimed(), task("t", stopped)), nil},
		"it lives":                           {world(over(workflow.Succeeded), task("t")), nil},
		"it ended after the run was seen so": {late, nil},
	} {
		var got []string
		for _, t := range reaper.Plan(c.s, now, reaper.Policy{}).Acknowledged {
			got = append(got, t.Ref)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// A launcher does not list what is settled, and knows it when it is asked: many such runs are not lost ones.
func TestPlan_TasksThatAreKnownByNameHaveNotVanished(t *testing.T) {
	s := many(6, func(int) api.JobState { return running("") })
	s.Described = map[string]launcher.Task{}
	for _, ended := range s.Before[:5] {
		ended.Phase = launcher.Stopped
		s.Described[ended.Ref], s.Asked[ended.Ref] = ended, true
	}
	s.Before, s.After = s.Before[5:], s.After[5:]
	out := reaper.Plan(s, now, reaper.Policy{AbsenceProves: time.Minute})
	if d := cmp.Diff([]string{"report t_00", "report t_01", "report t_02", "report t_03", "report t_04"}, did(out)); d != "" || len(out.Refused) != 0 {
		t.Errorf("refused %v, actions (-want +got):\n%s", out.Refused, d)
	}
}

func TestSettled_OnceTheControlPlaneKnows(t *testing.T) {
	for name, c := range map[string]struct {
		lost error
		want int
	}{
		"it took the report":        {nil, 1},
		"it will never take it":     {workflow.ErrOver, 1},
		"it could not take it now":  {workflow.ErrBusy, 0},
		"nobody knows what it took": {errors.New("the answer was lost"), 0},
	} {
		p := &place{fail: map[string]error{"lost": c.lost}}
		told := 0
		r := p.reaper(reaper.Config{Acknowledged: func(launcher.Task) { told++ }})
		if err := r.Ended(t.Context(), task("t", stopped)); (err == nil) != (c.want > 0) || told != c.want {
			t.Errorf("%s: got %v, settled %d times, want %d", name, err, told, c.want)
		}
	}
	p := &place{jobs: []api.JobState{over(workflow.Failed)}, tasks: map[string]*launcher.Task{"t": ptr(task("t", stopped))}}
	for dry, want := range map[bool]int{false: 1, true: 0} {
		told := 0
		if _, err := p.reaper(reaper.Config{DryRun: dry, Acknowledged: func(launcher.Task) { told++ }}).Pass(t.Context()); err != nil || told != want {
			t.Errorf("dry run %t: got %v, settled %d times, want %d", dry, err, told, want)
		}
	}
}
