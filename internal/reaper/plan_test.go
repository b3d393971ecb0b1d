package reaper_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func task(ref string, change ...func(*launcher.Task)) launcher.Task {
	t := launcher.Task{Ref: ref, Workflow: "wf", Attempt: 1, Phase: launcher.Running, CreatedAt: now.Add(-time.Hour)}
	for _, c := range change {
		c(&t)
	}
	return t
}

func stopped(t *launcher.Task)  { t.Phase = launcher.Stopped }
func stopping(t *launcher.Task) { t.Phase = launcher.Stopping }
func starting(t *launcher.Task) { t.Phase = launcher.Starting }
func young(t *launcher.Task)    { t.CreatedAt = now.Add(-time.Minute) }
func ahead(t *launcher.Task)    { t.CreatedAt = now.Add(time.Minute) } // a launcher whose clock is ahead

func running(task string, change ...func(*api.JobState)) api.JobState {
	j := api.JobState{ID: "wf", Known: true, State: workflow.Running, Attempt: 1, Active: true, Started: true, Task: task,
		ClaimAge: 3600, RemainingSeconds: 600}
	for _, c := range change {
		c(&j)
	}
	return j
}

func claimed(change ...func(*api.JobState)) api.JobState {
	j := api.JobState{ID: "wf", Known: true, State: workflow.Claimed, Attempt: 1, Active: true, ClaimAge: 60}
	for _, c := range change {
		c(&j)
	}
	return j
}

func over(s workflow.State) api.JobState {
	return api.JobState{ID: "wf", Known: true, State: s, Attempt: 1}
}

// world is a snapshot of one task and one job, in which every suspicion is old enough.
func world(job api.JobState, tasks ...launcher.Task) reaper.Snapshot {
	s := reaper.Snapshot{
		Before: tasks, After: tasks, Jobs: map[string]api.JobState{job.ID: job},
		Suspected: map[string]time.Time{}, Heartbeats: map[string]time.Time{},
		Asked: map[string]bool{}, Described: map[string]launcher.Task{},
	}
	for _, ref := range []string{"t", "t2"} {
		for _, what := range []string{"unwanted ", "lost ", "overstayed "} {
			s.Suspected[what+ref] = now.Add(-2 * time.Minute)
		}
	}
	for _, ref := range reaper.Suspects(s) {
		s.Asked[ref] = true
	}
	return s
}

func did(out reaper.Outcome) []string {
	got := []string{}
	for _, a := range out.Actions {
		got = append(got, string(a.Kind)+" "+a.Task.Ref)
	}
	return got
}

// L7: what a pass does about one task and one job. A "with" changes the snapshot.
func TestPlan_OneTaskOneJob(t *testing.T) {
	type change = func(*reaper.Snapshot)
	fresh := func(s *reaper.Snapshot) { s.Suspected = nil }
	since := func(d time.Duration) change {
		return func(s *reaper.Snapshot) {
			for k := range s.Suspected {
				s.Suspected[k] = now.Add(-d)
			}
		}
	}
	heard := func(ago time.Duration) change {
		return func(s *reaper.Snapshot) { s.Heartbeats["t"] = now.Add(-ago) }
	}
	absence := reaper.Policy{AbsenceProves: 10 * time.Minute}
	for name, tc := range map[string]struct {
		s      reaper.Snapshot
		with   change
		policy reaper.Policy
		want   []string
	}{
		// Everything as it should be.
		"running with its task":          {s: world(running("t"), task("t"))},
		"claimed with its task":          {s: world(claimed(), task("t"))},
		"claimed and reported":           {s: world(claimed(func(j *api.JobState) { j.Task = "t" }), task("t", starting))},
		"pending without a task":         {s: world(over(workflow.Pending))},
		"claimed without a task":         {s: world(claimed())},
		"over, and so is the task":       {s: world(over(workflow.Succeeded), task("t", stopped))},
		"given up for lost, but running": {s: world(running("t", func(j *api.JobState) { j.State = workflow.Failed }), task("t"))},

		// Orphans.
		"the job is over":                   {s: world(over(workflow.Failed), task("t")), want: []string{"stop t"}},
		"cancelled before the start":        {s: world(over(workflow.Cancelled), task("t", starting)), want: []string{"stop t"}},
		"cancel asked before the start":     {s: world(claimed(func(j *api.JobState) { j.Cancel = true }), task("t")), want: []string{"stop t"}},
		"pending again":                     {s: world(over(workflow.Pending), task("t")), want: []string{"stop t"}},
		"a later attempt runs":              {s: world(running("t2", func(j *api.JobState) { j.Attempt = 2 }), task("t"), task("t2", func(t *launcher.Task) { t.Attempt = 2 })), want: []string{"stop t"}},
		"a duplicate of the holder":         {s: world(running("t"), task("t"), task("t2")), want: []string{"stop t2"}},
		"the job is not known":              {s: world(api.JobState{ID: "wf"}, task("t")), want: []string{"stop t"}},
		"over, but the task is stopping":    {s: world(over(workflow.Failed), task("t", stopping))},
		"over, but the task is young":       {s: world(over(workflow.Failed), task("t", young))},
		"over, and born in the future":      {s: world(over(workflow.Failed), task("t", ahead))},
		"over, seen for the first time":     {s: world(over(workflow.Failed), task("t")), with: fresh},
		"over, seen a moment ago":           {s: world(over(workflow.Failed), task("t")), with: since(20 * time.Second)},
		"over, seen a minute ago":           {s: world(over(workflow.Failed), task("t")), with: since(time.Minute), want: []string{"stop t"}},
		"over, but heartbeats are taken":    {s: world(over(workflow.Failed), task("t")), with: heard(30 * time.Second)},
		"over, the last heartbeat is old":   {s: world(over(workflow.Failed), task("t")), with: heard(5 * time.Minute), want: []string{"stop t"}},
		"over, and stopped by the second":   {s: world(over(workflow.Failed), task("t")), with: func(s *reaper.Snapshot) { s.After = []launcher.Task{task("t", stopped)} }},
		"nobody asked about the job":        {s: world(over(workflow.Failed), task("t")), with: func(s *reaper.Snapshot) { s.Jobs = nil }},
		"not there before the job was seen": {s: world(over(workflow.Failed), task("t")), with: func(s *reaper.Snapshot) { s.Before = nil }},

		// Proven ends.
		"running, its task has ended":          {s: world(running("t"), task("t", stopped)), want: []string{"report t"}},
		"lost and holding, its task has ended": {s: world(running("t", func(j *api.JobState) { j.State = workflow.Failed }), task("t", stopped)), want: []string{"report t"}},
		"claimed, its task has ended":          {s: world(claimed(func(j *api.JobState) { j.Task = "t" }), task("t", stopped)), want: []string{"report t"}},
		"claimed, an unreported task ended":    {s: world(claimed(), task("t", stopped)), want: []string{"report t"}},
		"ended only at the second look":        {s: world(running("t"), task("t")), with: func(s *reaper.Snapshot) { s.After = []launcher.Task{task("t", stopped)} }, want: []string{"report t"}},
		"another placement has ended":          {s: world(running("t"), task("t"), task("t2", stopped))},
		"a task of an earlier attempt ended":   {s: world(claimed(func(j *api.JobState) { j.Attempt = 2 }), task("t", stopped))},
		"reported a minute ago":                {s: world(running("t"), task("t", stopped)), with: func(s *reaper.Snapshot) { s.Reported = map[string]time.Time{"t": now.Add(-time.Minute)} }},
		"reported ten minutes ago":             {s: world(running("t"), task("t", stopped)), with: func(s *reaper.Snapshot) { s.Reported = map[string]time.Time{"t": now.Add(-10 * time.Minute)} }, want: []string{"report t"}},

		// Lost: the launcher does not know the task.
		"absent, which proves nothing here": {s: world(running("t"))},
		"absent":                            {s: world(running("t")), policy: absence, want: []string{"report t"}},
		"absent for the first time":         {s: world(running("t")), policy: absence, with: fresh},
		"absent, but just claimed":          {s: world(running("t", func(j *api.JobState) { j.ClaimAge = 60 })), policy: absence},
		"absent, but it reports":            {s: world(running("t")), policy: absence, with: heard(10 * time.Second)},
		"absent, the witness not asked":     {s: world(running("t")), policy: absence, with: func(s *reaper.Snapshot) { s.Asked = nil }},
		"absent, the witness says running":  {s: world(running("t")), policy: absence, with: func(s *reaper.Snapshot) { s.Described["t"] = task("t") }},
		"absent, the witness says stopped":  {s: world(running("t")), with: func(s *reaper.Snapshot) { s.Described["t"] = task("t", stopped) }, want: []string{"report t"}},
		"claimed, reported, absent":         {s: world(claimed(func(j *api.JobState) { j.Task = "t" })), policy: absence},

		// Stuck.
		"past the deadline, within the grace":  {s: world(running("t", func(j *api.JobState) { j.RemainingSeconds = -150 }), task("t"))},
		"past the deadline and the grace":      {s: world(running("t", func(j *api.JobState) { j.RemainingSeconds = -181 }), task("t")), want: []string{"stop t"}},
		"overdue, though it reports":           {s: world(running("t", func(j *api.JobState) { j.RemainingSeconds = -999 }), task("t")), with: heard(time.Second), want: []string{"stop t"}},
		"overdue for the first time":           {s: world(running("t", func(j *api.JobState) { j.RemainingSeconds = -999 }), task("t")), with: fresh},
		"given up for lost, and overdue":       {s: world(running("t", func(j *api.JobState) { j.State = workflow.Failed; j.RemainingSeconds = -999 }), task("t")), want: []string{"stop t"}},
		"cancelled a while ago":                {s: world(running("t", func(j *api.JobState) { j.Cancel, j.CancelAge = true, 200 }), task("t"))},
		"cancelled too long ago":               {s: world(running("t", func(j *api.JobState) { j.Cancel, j.CancelAge = true, 301 }), task("t")), want: []string{"stop t"}},
		"silent, which the control plane ends": {s: world(running("t", func(j *api.JobState) { j.SilentSeconds = 3600 }), task("t"))},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.with != nil {
				tc.with(&tc.s)
			}
			out := reaper.Plan(tc.s, now, tc.policy)
			if tc.want == nil {
				tc.want = []string{}
			}
			if d := cmp.Diff(tc.want, did(out)); d != "" {
				t.Errorf("actions (-want +got):\n%s\n%+v", d, out)
			}
			for _, a := range append(out.Actions, out.Spared...) {
				if a.Why == "" {
					t.Errorf("no reason: %+v", a)
				}
			}
			if len(out.Refused) != 0 {
				t.Errorf("not believed: %v", out.Refused)
			}
		})
	}
}

// Two passes: the first only suspects, the second acts, and a contradiction between them starts anew.
func TestPlan_ActsOnlyOnASecondLook(t *testing.T) {
	var p reaper.Policy
	bad, good := world(over(workflow.Failed), task("t")), world(running("t"), task("t"))
	look := func(s reaper.Snapshot, before reaper.Outcome, at time.Time) reaper.Outcome {
		s.Suspected = before.Suspected
		return reaper.Plan(s, at, p)
	}
	first := look(bad, reaper.Outcome{}, now)
	second := look(bad, first, now.Add(30*time.Second))
	third := look(bad, second, now.Add(60*time.Second))
	if len(first.Actions) != 0 || len(second.Actions) != 0 || len(third.Actions) != 1 {
		t.Errorf("actions %v, %v, %v: want one, in the third pass", did(first), did(second), did(third))
	}
	cleared := look(bad, look(good, second, now.Add(45*time.Second)), now.Add(90*time.Second))
	if len(cleared.Actions) != 0 {
		t.Errorf("stopped although it was fine in between: %v", did(cleared))
	}
}

// many makes n jobs with their tasks.
func many(n int, job func(i int) api.JobState) reaper.Snapshot {
	s := reaper.Snapshot{Jobs: map[string]api.JobState{}, Suspected: map[string]time.Time{}, Asked: map[string]bool{}}
	for i := range n {
		id, ref := fmt.Sprintf("wf_%02d", i), fmt.Sprintf("t_%02d", i)
		j := job(i)
		j.ID = id
		if j.Started {
			j.Task = ref
		}
		s.Jobs[id] = j
		s.Before = append(s.Before, task(ref, func(t *launcher.Task) {
			t.Workflow = id
			t.CreatedAt = now.Add(-time.Hour + time.Duration(i)*time.Second)
		}))
		s.Suspected["unwanted "+ref], s.Suspected["lost "+ref] = now.Add(-time.Hour), now.Add(-time.Hour)
	}
	s.After = s.Before
	return s
}

// The reaper stood still between its last question and its decision: a list that lacked the task for half a
// minute must not look as if it had lacked it for as long as that took, nor the last heartbeat as old.
func TestPlan_StandingStillMakesASuspicionNoOlder(t *testing.T) {
	policy := reaper.Policy{AbsenceProves: 10 * time.Minute}
	suspicion := func(age time.Duration) reaper.Snapshot {
		s := world(running("t"))
		s.Begun = now.Add(-5 * time.Minute)
		s.Suspected = map[string]time.Time{"lost t": s.Begun.Add(-age)}
		return s
	}
	if got := did(reaper.Plan(suspicion(30*time.Second), now, policy)); len(got) != 0 {
		t.Errorf("after looks half a minute apart: %v, want nothing", got)
	}
	if got := did(reaper.Plan(suspicion(time.Minute), now, policy)); len(got) != 1 {
		t.Errorf("after looks a minute apart: %v, want the report", got)
	}
	reports := suspicion(time.Hour)
	reports.Heartbeats["t"] = reports.Begun.Add(-10 * time.Second)
	if got := did(reaper.Plan(reports, now, policy)); len(got) != 0 {
		t.Errorf("of a task that reported just before the look: %v, want nothing", got)
	}
}

func TestPlan_DoesNotBelieveThatEveryTaskVanished(t *testing.T) {
	s := many(6, func(int) api.JobState { return running("") })
	s.Before, s.After = nil, nil
	for _, ref := range reaper.Suspects(s) {
		s.Asked[ref] = true
	}
	out := reaper.Plan(s, now, reaper.Policy{AbsenceProves: time.Minute})
	if len(out.Actions) != 0 || len(out.Refused) != 1 {
		t.Errorf("actions %v, refused %v: want none, and why", did(out), out.Refused)
	}
}

func TestPlan_BelievesThatOneOfManyVanished(t *testing.T) {
	s := many(6, func(int) api.JobState { return running("") })
	s.Before, s.After = s.Before[1:], s.After[1:]
	s.Asked["t_00"] = true
	out := reaper.Plan(s, now, reaper.Policy{AbsenceProves: time.Minute})
	if d := cmp.Diff([]string{"report t_00"}, did(out)); d != "" {
		t.Errorf("actions (-want +got):\n%s", d)
	}
}

// The agent was pointed to another control plane: its tasks are no strangers' prey.
func TestPlan_DoesNotBelieveThatAllItsTasksAreStrangers(t *testing.T) {
	out := reaper.Plan(many(4, func(i int) api.JobState { return api.JobState{} }), now, reaper.Policy{})
	if len(out.Actions) != 0 || len(out.Refused) != 1 {
		t.Errorf("actions %v, refused %v: want none, and why", did(out), out.Refused)
	}
}

func TestPlan_CapsWhatOnePassDoesAndTakesTheOldestFirst(t *testing.T) {
	out := reaper.Plan(many(9, func(i int) api.JobState { return over(workflow.Failed) }), now, reaper.Policy{MaxActions: 3})
	if d := cmp.Diff([]string{"stop t_00", "stop t_01", "stop t_02"}, did(out)); d != "" {
		t.Errorf("actions (-want +got):\n%s", d)
	}
	if out.Deferred != 6 {
		t.Errorf("%d deferred, want 6", out.Deferred)
	}
}

func TestPlan_ReportsEndsBeforeItStopsAnything(t *testing.T) {
	s := many(6, func(i int) api.JobState {
		if i == 5 {
			return running("")
		}
		return over(workflow.Failed)
	})
	s.Before[5].Phase = launcher.Stopped
	out := reaper.Plan(s, now, reaper.Policy{MaxActions: 2})
	if d := cmp.Diff([]string{"report t_05", "stop t_00"}, did(out)); d != "" {
		t.Errorf("actions (-want +got):\n%s", d)
	}
}

// Whatever the combination of facts: a task that holds its run is stopped only when it has
// overstayed, a young task and a freshly heard one never for being unwanted, and only what is stopped
// is reported.
func TestPlan_NeverStopsAHolderThatIsOnTime(t *testing.T) {
	states := append(workflow.States(), "")
	bools := []bool{false, true}
	n := 0
	for _, state := range states {
		for _, known := range bools {
			for _, active := range bools {
				for _, started := range bools {
					for _, cancel := range bools {
						for _, holder := range []string{"", "t", "t2"} {
							for attempt := range 3 {
								for _, phase := range []launcher.Phase{launcher.Starting, launcher.Running, launcher.Stopping, launcher.Stopped} {
									for _, fresh := range bools {
										for _, heard := range bools {
											n++
											job := api.JobState{ID: "wf", Known: known, State: state, Attempt: attempt, Active: active, Started: started,
												Cancel: cancel, CancelAge: 10, Task: holder, ClaimAge: 3600, RemainingSeconds: 60}
											tk := task("t", func(t *launcher.Task) { t.Phase = phase })
											if fresh {
												young(&tk)
											}
											s := world(job, tk)
											if heard {
												s.Heartbeats["t"] = now
											}
											for _, a := range reaper.Plan(s, now, reaper.Policy{AbsenceProves: time.Minute}).Actions {
												holds := known && active && started && holder == "t"
												switch {
												case a.Kind == reaper.Stop && (holds || fresh || heard || phase == launcher.Stopped):
													t.Fatalf("stopped %+v\nof %+v (young %t, heard %t): %s", tk, job, fresh, heard, a.Why)
												case a.Kind == reaper.Report && a.Task.Ref == "t" && phase != launcher.Stopped:
													t.Fatalf("reported the end of %+v", tk)
												}
											}
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if n < 5000 {
		t.Errorf("only %d combinations", n)
	}
}
