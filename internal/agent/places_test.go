package agent_test

import (
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func launched(ref string) dispatcher.Disposition {
	return dispatcher.Disposition{Delete: true, Job: "wf", Attempt: 1, Task: ref}
}

func living(ref string) launcher.Task {
	return launcher.Task{Ref: ref, Workflow: "wf", Attempt: 1, Phase: launcher.Running}
}

func TestPlaces_AreTakenFromTheClaimToTheEndOfTheTask(t *testing.T) {
	dropped := dispatcher.Disposition{Delete: true, Job: "wf", Attempt: 1, Why: "not wanted"}
	hidden := dispatcher.Disposition{Hide: time.Second, Job: "wf", Attempt: 1}
	for name, tc := range map[string]struct {
		story func(s agent.Places)
		free  int
	}{
		"claimed":                   {func(s agent.Places) {}, 1},
		"dropped":                   {func(s agent.Places) { s.Dispatched(dropped) }, 2},
		"refused for now":           {func(s agent.Places) { s.Dispatched(hidden) }, 1},
		"launched":                  {func(s agent.Places) { s.Dispatched(launched("t")) }, 1},
		"ended":                     {func(s agent.Places) { s.Dispatched(launched("t")); s.Ended(living("t")) }, 2},
		"ended before the answer":   {func(s agent.Places) { s.Ended(living("t")); s.Dispatched(launched("t")) }, 2},
		"another task ended":        {func(s agent.Places) { s.Dispatched(launched("t")); s.Ended(living("t2")) }, 1},
		"a duplicate is dropped":    {func(s agent.Places) { s.Dispatched(launched("t")); s.Dispatched(dropped) }, 1},
		"a duplicate comes first":   {func(s agent.Places) { s.Dispatched(dropped); s.Dispatched(launched("t")) }, 1},
		"a poisoned message":        {func(s agent.Places) { s.Dispatched(dispatcher.Disposition{Delete: true}) }, 1},
		"claimed again":             {func(s agent.Places) { s.Dispatched(dropped); s.Claimed("wf", 2) }, 1},
		"the list shows the task":   {func(s agent.Places) { s.Correct([]launcher.Task{living("t")}, noon.Add(time.Minute)) }, 1},
		"the list lacks the claim":  {func(s agent.Places) { s.Correct(nil, noon.Add(time.Minute)) }, 1},
		"the claim cannot be alive": {func(s agent.Places) { s.Correct(nil, noon.Add(2*time.Hour)) }, 2},
		"the list lacks the task":   {func(s agent.Places) { s.Dispatched(launched("t")); s.Correct(nil, noon.Add(time.Minute)) }, 2},
		"the list is too old":       {func(s agent.Places) { s.Dispatched(launched("t")); s.Correct(nil, noon) }, 1},
		"the list is not up to date": {func(s agent.Places) {
			s.Dispatched(launched("t"))
			s.Ended(living("t"))
			s.Correct([]launcher.Task{living("t")}, noon.Add(time.Minute))
		}, 2},
		"more is found than allowed": {func(s agent.Places) {
			s.Correct([]launcher.Task{
				{Ref: "a", Workflow: "a", Attempt: 1, Phase: launcher.Running}, {Ref: "b", Workflow: "b", Attempt: 1, Phase: launcher.Stopping},
				{Ref: "c", Workflow: "c", Attempt: 1, Phase: launcher.Stopped}, {Ref: "d", Workflow: "d", Attempt: 1, Phase: launcher.Starting},
			}, noon)
		}, -2},
	} {
		s := agent.NewPlaces(2, func() time.Time { return noon })
		s.Claimed("wf", 1)
		tc.story(s)
		if got := s.Free(); got != tc.free {
			t.Errorf("%s: %d free, want %d", name, got, tc.free)
		}
	}
}

func TestPlaces_SayWhenOneIsFreed(t *testing.T) {
	s := agent.NewPlaces(1, func() time.Time { return noon })
	s.Claimed("wf", 1)
	s.Dispatched(launched("t"))
	if s.Freed() {
		t.Error("freed while the task lives")
	}
	s.Ended(living("t"))
	if !s.Freed() {
		t.Error("not said that it is freed")
	}
}

func TestTakeStock_ReleasesOnlyWhatWasNeverLaunched(t *testing.T) {
	claimed := api.JobState{ID: "wf", Known: true, State: workflow.Claimed, Attempt: 2, Active: true}
	task := func(phase launcher.Phase, attempt int) []launcher.Task {
		return []launcher.Task{{Ref: "t", Workflow: "wf", Attempt: attempt, Phase: phase}}
	}
	with := func(change func(*api.JobState)) api.JobState { j := claimed; change(&j); return j }
	for name, tc := range map[string]struct {
		job     api.JobState
		tasks   []launcher.Task
		release bool
		task    string
	}{
		"claimed, nothing of it lives":       {claimed, nil, true, ""},
		"claimed, a task of it lives":        {claimed, task(launcher.Starting, 2), false, "t"},
		"claimed, a task of it has ended":    {claimed, task(launcher.Stopped, 2), false, ""},
		"claimed, an earlier attempt lives":  {claimed, task(launcher.Running, 1), true, ""},
		"claimed and launched, task unknown": {with(func(j *api.JobState) { j.Task = "gone" }), nil, false, ""},
		"running with its task":              {with(func(j *api.JobState) { j.State, j.Started, j.Task = workflow.Running, true, "t" }), task(launcher.Running, 2), false, "t"},
		"running, task unknown":              {with(func(j *api.JobState) { j.State, j.Started, j.Task = workflow.Running, true, "t" }), nil, false, ""},
		"over by now":                        {with(func(j *api.JobState) { j.State, j.Active = workflow.Cancelled, false }), nil, false, ""},
	} {
		got := agent.TakeStock([]api.JobState{tc.job}, tc.tasks)
		if len(got) != 1 || got[0].Release != tc.release || got[0].Task != tc.task || got[0].Why == "" {
			t.Errorf("%s: %+v, want release %t, task %q", name, got, tc.release, tc.task)
		}
	}
}
