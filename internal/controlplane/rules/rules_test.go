package rules_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// at is a time at which the service clock shows the same as the wall clock.
func at(t time.Time) rules.Time { return rules.Time{Now: t, Service: t} }

func boot(b string) string { return strings.Repeat(b, 32) }

// deployment is one in a state, as task t2 of its attempt 2 would have made it.
func deployment(state workflow.State) *record.Workflow {
	w := &record.Workflow{
		ID: "wf_1", Org: "default", Workspace: "net", PoolID: "pool_1", Type: workflow.Deployment, Op: workflow.Update,
		State: state, Submitted: now.Add(-time.Hour), MaxRuntime: time.Hour,
	}
	if state == workflow.Pending {
		return w
	}
	w.Attempt, w.Active, w.SlotHeld, w.Instance = 2, true, true, "one"
	w.Claimed, w.Lease = now.Add(-time.Minute), now.Add(time.Minute)
	w.Tasks = []record.Task{{Ref: "t2"}}
	if state == workflow.Claimed {
		return w
	}
	w.Lease = time.Time{}
	w.Starts, w.Started = 1, now.Add(-time.Minute)
	w.Holder = record.Holder{Attempt: 2, Task: "t2", Boot: boot("a")}
	if state.Terminal() {
		w.Ended = now.Add(-time.Second)
	}
	return w
}

func own(w *record.Workflow) api.Run {
	return api.Run{Workflow: w.ID, Attempt: w.Attempt, Task: "t2", Boot: boot("a")}
}

// reports is every report about an attempt, by a name.
func reports() map[string]func(w *record.Workflow) (rules.Outcome, error) {
	code := func(n int) *int { return &n }
	out := map[string]func(w *record.Workflow) (rules.Outcome, error){
		"queued":  func(w *record.Workflow) (rules.Outcome, error) { return rules.Queued(w, now), nil },
		"release": func(w *record.Workflow) (rules.Outcome, error) { return rules.Release(w, api.Release{Attempt: 2}) },
		"cancel":  func(w *record.Workflow) (rules.Outcome, error) { return rules.Cancel(w, "ann", "", now) },
		"claim":   func(w *record.Workflow) (rules.Outcome, error) { return rules.Claim(w, "one", "default", now) },
	}
	for _, kind := range []string{api.LaunchAccepted, api.LaunchProgress, api.LaunchRefused, api.LaunchFailed} {
		for _, task := range []string{"t2", "t3"} {
			out["launch "+kind+" "+task] = func(w *record.Workflow) (rules.Outcome, error) {
				return rules.Launch(w, api.Launch{Attempt: 2, Kind: kind, Task: task, Reason: workflow.ReasonCapacity}, now)
			}
		}
	}
	for _, task := range []string{"t2", "t3"} {
		for name, exit := range map[string]*int{"unknown": nil, "0": code(0), "1": code(1)} {
			out["lost "+task+" "+name] = func(w *record.Workflow) (rules.Outcome, error) {
				return rules.Lost(w, api.Lost{Attempt: 2, Task: task, ExitCode: exit}, at(now))
			}
		}
	}
	for _, o := range []workflow.State{workflow.Succeeded, workflow.Failed, workflow.Cancelled} {
		out["result "+string(o)] = func(w *record.Workflow) (rules.Outcome, error) {
			s, err := rules.Admit(w, own(w))
			if err != nil {
				return rules.Outcome{}, err
			}
			return rules.Result(w, s, own(w), api.Result{Outcome: o}, now)
		}
	}
	out["start"] = func(w *record.Workflow) (rules.Outcome, error) {
		s, err := rules.Admit(w, own(w))
		if err != nil {
			return rules.Outcome{}, err
		}
		return rules.Start(w, s, own(w), nil, rules.Permit{}, at(now))
	}
	return out
}

// For every report in every state: a move begins in the workflow's state, a workflow that has ended never moves, and
// a refusal tells the caller.
func TestReports_InEveryState(t *testing.T) {
	for _, state := range workflow.States() {
		for name, report := range reports() {
			w := deployment(state)
			out, err := report(w)
			switch {
			case err != nil:
				var refusal *workflow.Error
				if !errors.As(err, &refusal) {
					t.Errorf("%s of one that is %s: %v, which no caller can act on", name, state, err)
				}
			case w.State != state:
				t.Errorf("%s of one that is %s: the decision moved it to %s itself", name, state, w.State)
			case out.Moves() && out.Move.From != state:
				t.Errorf("%s of one that is %s moves it from %s", name, state, out.Move.From)
			case out.Moves() && state.Terminal():
				t.Errorf("%s moves one that is %s", name, state)
			case out.Moves() && len(out.Notes) == 0:
				t.Errorf("%s moves one that is %s and the timeline does not tell it", name, state)
			}
		}
	}
}

func TestLost_OnlyTheOwnTaskCountsOnceItRuns(t *testing.T) {
	zero, one := 0, 1
	for name, tt := range map[string]struct {
		state      workflow.State
		in         api.Lost
		to         workflow.State
		over, free bool
	}{
		"its task before a start":      {workflow.Claimed, api.Lost{Attempt: 2, Task: "t2"}, workflow.Pending, false, false},
		"one of two before a start":    {workflow.Claimed, api.Lost{Attempt: 2, Task: "t3"}, "", false, false},
		"its task":                     {workflow.Running, api.Lost{Attempt: 2, Task: "t2", ExitCode: &one}, workflow.Failed, false, false},
		"its task, result handed over": {workflow.Running, api.Lost{Attempt: 2, Task: "t2", ExitCode: &zero}, "", false, true},
		"another task":                 {workflow.Running, api.Lost{Attempt: 2, Task: "t3", ExitCode: &one}, "", false, false},
		"its task, given up before":    {workflow.Failed, api.Lost{Attempt: 2, Task: "t2", ExitCode: &one}, "", true, false},
		"another task of one given up": {workflow.Failed, api.Lost{Attempt: 2, Task: "t3", ExitCode: &zero}, "", false, false},
		"the attempt before":           {workflow.Running, api.Lost{Attempt: 1, Task: "t2", ExitCode: &one}, "", false, false},
	} {
		out, err := rules.Lost(deployment(tt.state), tt.in, at(now))
		if err != nil || out.Move.To != tt.to || out.Over != tt.over || out.Free != tt.free {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if out.Moves() && !out.Proven {
			t.Errorf("%s: a stop that was seen proves the end", name)
		}
	}
}

// L8: the launcher's cause is the reason, where it is one of a task's end. Spot is also told of a run whose runner knew
// only that it was told to stop.
func TestLost_NamesTheReasonOfTheEnd(t *testing.T) {
	for in, want := range map[workflow.Reason]workflow.Reason{
		workflow.ReasonNone: workflow.ReasonTaskStopped, workflow.ReasonOutOfMemory: workflow.ReasonOutOfMemory,
		workflow.ReasonSpotTaken: workflow.ReasonSpotTaken, workflow.ReasonRelayLost: workflow.ReasonRelayLost,
		workflow.ReasonDeadline: workflow.ReasonTaskStopped, "of_a_later_version": workflow.ReasonTaskStopped,
	} {
		out, err := rules.Lost(deployment(workflow.Running), api.Lost{Attempt: 2, Task: "t2", Reason: in}, at(now))
		if err != nil || out.Move.Reason != want || out.Move.To != workflow.Failed {
			t.Errorf("%q: got %+v, %v; want %s", in, out.Move, err, want)
		}
	}
	for was, want := range map[workflow.Reason]workflow.Reason{
		workflow.ReasonInterrupted: workflow.ReasonSpotTaken, workflow.ReasonStepFailed: workflow.ReasonStepFailed,
	} {
		w := deployment(workflow.Failed)
		w.Reason = was
		if out, err := rules.Lost(w, api.Lost{Attempt: 2, Task: "t2", Reason: workflow.ReasonSpotTaken, Text: "Spot"}, at(now)); err != nil || w.Reason != want || out.Moves() {
			t.Errorf("%s: got %s, %v, want %s", was, w.Reason, err, want)
		}
	}
}

func TestAdmit_OneBootHoldsTheRun(t *testing.T) {
	other := func(w *record.Workflow) api.Run { r := own(w); r.Boot = boot("b"); return r }
	older := func(w *record.Workflow) api.Run { r := own(w); r.Attempt = 1; return r }
	freed := func(w *record.Workflow) *record.Workflow { w.SlotHeld = false; return w }
	unstarted := func(w *record.Workflow) *record.Workflow { w.Holder = record.Holder{}; return w }
	for name, tt := range map[string]struct {
		w    *record.Workflow
		run  func(*record.Workflow) api.Run
		want rules.Standing
		err  error
	}{
		"claimed":                 {deployment(workflow.Claimed), own, rules.MayStart, nil},
		"running":                 {deployment(workflow.Running), own, rules.Holds, nil},
		"running, another boot":   {deployment(workflow.Running), other, 0, workflow.ErrAlreadyStarted},
		"running, attempt before": {deployment(workflow.Running), older, 0, workflow.ErrOver},
		"pending again":           {&record.Workflow{State: workflow.Pending, Attempt: 2}, own, 0, workflow.ErrOver},
		"given up, slot held":     {deployment(workflow.Failed), own, rules.Holds, nil},
		"ended":                   {freed(deployment(workflow.Succeeded)), own, rules.Ended, nil},
		"ended, another boot":     {deployment(workflow.Succeeded), other, 0, workflow.ErrAlreadyStarted},
		"cancelled before":        {unstarted(deployment(workflow.Cancelled)), own, 0, workflow.ErrOver},
	} {
		got, err := rules.Admit(tt.w, tt.run(tt.w))
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// Only a person may free a slot without proof of its run's end, and only if the run has ended: one that has not is
// cancelled.
func TestUnlock_FreesASlotAfterAnUnprovenEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		holder *record.Workflow
		id     string
		err    error
		says   string
	}{
		"lost":       {deployment(workflow.Failed), "wf_1", nil, ""},
		"cancelled":  {deployment(workflow.Cancelled), "wf_1", nil, ""},
		"claimed":    {deployment(workflow.Claimed), "wf_1", workflow.ErrInUse, "dayfly workflow cancel wf_1"},
		"running":    {deployment(workflow.Running), "wf_1", workflow.ErrInUse, "dayfly workflow cancel wf_1"},
		"free":       {nil, "wf_1", workflow.ErrConflict, "workspace net is free"},
		"other than": {deployment(workflow.Failed), "wf_0", workflow.ErrConflict, "now held by workflow wf_1, not by wf_0"},
	} {
		out, err := rules.Unlock("net", tt.holder, tt.id, "ann")
		if !errors.Is(err, tt.err) || out.Over != (tt.err == nil) || out.Moves() || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if err == nil && (len(out.Notes) != 1 || out.Notes[0].Actor != "ann" || out.Notes[0].Task != "t2" || !strings.HasPrefix(out.Notes[0].Text, "UNLOCKED by ann")) {
			t.Errorf("%s: the timeline is told %+v", name, out.Notes)
		}
	}
}

// An event is due at its time and not before. The timer is set to that time at the latest: on the wall clock for
// waiting workflows, on the service clock for started ones.
func TestDue_AtItsTime(t *testing.T) {
	const behind = 3 * time.Hour
	service := func(at time.Time) time.Time { return at.Add(-behind) }
	beat := record.Beat{At: now.Add(-time.Minute), Service: service(now.Add(-time.Minute))}
	run := func(state workflow.State, deadline, handed time.Time) *record.Workflow {
		w := deployment(state)
		w.MaxRuntime, w.HandedOver = deadline.Sub(w.Started), handed
		w.Service.Deadline = service(deadline).UnixMilli()
		if !handed.IsZero() {
			w.Service.HandedOver = service(handed).UnixMilli()
		}
		return w
	}
	hour, window := now.Add(time.Hour), deployment(workflow.Claimed)
	window.Lease = window.Claimed.Add(workflow.LaunchWindow)
	for name, tt := range map[string]struct {
		w    *record.Workflow
		at   time.Time
		want workflow.Event
		slot bool
	}{
		"queue time-out": {deployment(workflow.Pending), now.Add(-time.Hour).Add(workflow.QueueTimeout), workflow.OnQueueTimeout, false},
		"lease":          {deployment(workflow.Claimed), now.Add(time.Minute), workflow.OnLeaseLapsed, false},
		"launch window":  {window, window.Lease, workflow.OnLaunchWindow, false},
		"silence":        {run(workflow.Running, hour, time.Time{}), beat.At.Add(workflow.Silence), workflow.OnSilence, false},
		"missing result": {run(workflow.Running, hour, now), now.Add(workflow.ResultGrace), workflow.OnResultMissing, false},
		"deadline":       {run(workflow.Running, now, time.Time{}), now.Add(workflow.DeadlineGrace), workflow.OnDeadline, false},
		"slot of a lost": {run(workflow.Failed, hour, time.Time{}), hour.Add(workflow.DeadlineGrace), "", true},
	} {
		tt.w.Stuck = true // whether it is stuck is looked at before: see below
		early := tt.at.Add(-time.Nanosecond)
		if o := rules.Due(tt.w, beat, rules.Time{Now: early, Service: service(early)}); o != (rules.Overdue{}) {
			t.Errorf("%s: due before its time: %+v", name, o)
		}
		o := rules.Due(tt.w, beat, rules.Time{Now: tt.at, Service: service(tt.at)})
		if o.Event != tt.want || o.Slot != tt.slot {
			t.Errorf("%s: %+v", name, o)
		}
		want := rules.Timer{Service: service(tt.at)}
		if tt.w.State == workflow.Pending || tt.w.State == workflow.Claimed {
			want = rules.Timer{Wall: tt.at}
		}
		if got := rules.NextDue(tt.w, beat); got != want {
			t.Errorf("%s: the timer stands at %+v, want %+v", name, got, want)
		}
		if out, err := rules.Elapsed(tt.w, o); err != nil || out.Moves() == tt.slot || out.Over != tt.slot {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
}

// What waits is looked at after half an hour, once: whether it is stuck. A look that was put off comes later, and what is
// due otherwise comes first.
func TestDue_LooksAtLongWaits(t *testing.T) {
	since := now.Add(-time.Hour)
	for name, tt := range map[string]struct {
		change func(w *record.Workflow)
		at     time.Time // of the timer
		looks  bool      // then
	}{
		"pending":         {func(*record.Workflow) {}, since.Add(30 * time.Minute), true},
		"put off":         {func(w *record.Workflow) { w.Look = since.Add(2 * time.Hour) }, since.Add(2 * time.Hour), true},
		"found before":    {func(w *record.Workflow) { w.Stuck = true }, since.Add(workflow.QueueTimeout), false},
		"put off too far": {func(w *record.Workflow) { w.Look = since.Add(25 * time.Hour) }, since.Add(workflow.QueueTimeout), false},
		"queued again":    {func(w *record.Workflow) { w.Since = now }, now.Add(30 * time.Minute), true},
		"launch refused": {func(w *record.Workflow) {
			w.State, w.Claimed, w.Lease = workflow.Claimed, since, since.Add(50*time.Minute)
		}, since.Add(30 * time.Minute), true},
		"claim abandoned": {func(w *record.Workflow) {
			w.State, w.Claimed, w.Lease = workflow.Claimed, since, since.Add(20*time.Minute)
		}, since.Add(20 * time.Minute), false},
	} {
		w := deployment(workflow.Pending)
		w.Submitted, w.Since = since, since
		tt.change(w)
		if got := rules.NextDue(w, record.Beat{}); got != (rules.Timer{Wall: tt.at}) {
			t.Errorf("%s: the timer stands at %+v, want %v", name, got, tt.at)
		}
		if o := rules.Due(w, record.Beat{}, rules.Time{Now: tt.at.Add(-time.Nanosecond)}); o != (rules.Overdue{}) {
			t.Errorf("%s: due before its time: %+v", name, o)
		}
		if o := rules.Due(w, record.Beat{}, rules.Time{Now: tt.at}); o.Look != tt.looks || o.Look == (o.Event != "") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// Silence proves nothing about the engine; a run that time ends in any other way is over.
func TestElapsed_SilenceProvesNothing(t *testing.T) {
	out, err := rules.Elapsed(deployment(workflow.Running), rules.Overdue{Event: workflow.OnSilence, Text: "silent"})
	if err != nil || out.Proven || out.Move.Reason != workflow.ReasonRunnerLost || out.Detail != "silent" {
		t.Errorf("%+v, %v", out, err)
	}
	out, err = rules.Elapsed(deployment(workflow.Running), rules.Overdue{Event: workflow.OnDeadline, Text: "long"})
	if err != nil || !out.Proven || out.Move.Reason != workflow.ReasonDeadline {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestHold_IgnoresShortExtensions(t *testing.T) {
	for name, tt := range map[string]struct {
		old  time.Duration // the rest of the previous hold
		next time.Duration
		want bool
	}{
		"none before": {0, time.Second, true},
		"longer":      {10 * time.Second, time.Minute, true},
		"hardly":      {10 * time.Second, 12 * time.Second, false},
		"shorter":     {time.Minute, 10 * time.Second, false},
		"of the past": {-time.Minute, time.Second, true},
	} {
		old := record.Hold{Until: now.Add(tt.old)}
		until, keep := rules.Hold{Reason: workflow.ReasonQuota, For: tt.next}.Keep(old, now)
		if keep != tt.want || !until.Equal(now.Add(tt.next)) {
			t.Errorf("%s: %v until %s", name, keep, until)
		}
	}
}
