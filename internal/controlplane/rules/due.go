package rules

import (
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Timer is the time at which the passing of time alone may next change a workflow, on the clock that counts for it.
// Both zero mean never.
type Timer struct{ Wall, Service time.Time }

// NextDue says when a workflow is to be looked at next. Records other than this one and the last sign of life can
// only make that later.
func NextDue(w *record.Workflow, b record.Beat) Timer { return nextDue(w, b, 0) }

// Again is NextDue for a workflow that was not due when it was looked at.
func Again(w *record.Workflow, b record.Beat, t Time) Timer { return nextDue(w, b, excused(b, t)) }

func nextDue(w *record.Workflow, b record.Beat, excused time.Duration) Timer {
	end := SlotEnds(w)
	switch w.State {
	case workflow.Pending:
		return Timer{Wall: orLook(w, w.Submitted.Add(workflow.QueueTimeout))}
	case workflow.Claimed:
		return Timer{Wall: orLook(w, lapses(w))}
	case workflow.Running:
		// A run that was handed over is not silent but over: only its result is still awaited.
		quiet := silentAt(w, b, excused)
		if !w.HandedOver.IsZero() {
			quiet = ResultDue(w)
		}
		if quiet.Before(end) {
			return Timer{Service: quiet}
		}
		return Timer{Service: end}
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		if w.SlotHeld {
			return Timer{Service: end}
		}
	}
	return Timer{}
}

// LooksAt is when a waiting workflow is next checked for being stuck. A check that finds it waiting for other runs
// postpones the next one.
func LooksAt(w *record.Workflow) time.Time { return Latest(w.Since.Add(workflow.Patience), w.Look) }

// orLook is the earlier of a time and of the next check whether a workflow is stuck, if there is still one to come.
func orLook(w *record.Workflow, at time.Time) time.Time {
	if look := LooksAt(w); !w.Stuck && look.Before(at) {
		return look
	}
	return at
}

// lapses is when a claim ends without a report.
func lapses(w *record.Workflow) time.Time {
	return w.Lease
}

// Overdue is the action that is due now: an event, the end of a slot that was held longer than its run, or a check
// whether the workflow is stuck, which does not move it. Without any of them, nothing is due yet.
type Overdue struct {
	Event workflow.Event
	Slot  bool
	Look  bool
	Text  string
}

// Due decides what the passing of time means for a workflow. It is a pure function.
func Due(w *record.Workflow, b record.Beat, t Time) Overdue {
	switch w.State {
	case workflow.Pending:
		if !t.Now.Before(w.Submitted.Add(workflow.QueueTimeout)) {
			return Overdue{Event: workflow.OnQueueTimeout, Text: fmt.Sprintf("it waited %s without being started", workflow.QueueTimeout)}
		}
		return Overdue{Look: looks(w, t)}
	case workflow.Claimed:
		window := w.Claimed.Add(workflow.LaunchWindow)
		switch {
		case t.Now.Before(lapses(w)):
			return Overdue{Look: looks(w, t)}
		case w.Lease.Before(window):
			// Nothing worked on it up to the end of the window: the claim was simply abandoned.
			return Overdue{Event: workflow.OnLeaseLapsed, Text: "its claim by " + w.Instance + " lapsed without a start" + Because(lastLaunch(w))}
		default:
			return Overdue{Event: workflow.OnLaunchWindow, Text: fmt.Sprintf("it could not be launched within %s%s", workflow.LaunchWindow, Because(lastLaunch(w)))}
		}
	case workflow.Running:
		switch {
		case !t.Service.Before(SlotEnds(w)):
			return Overdue{Event: workflow.OnDeadline, Text: fmt.Sprintf("it ran longer than its max runtime of %s", w.MaxRuntime)}
		case !w.HandedOver.IsZero():
			if !t.Service.Before(ResultDue(w)) {
				return Overdue{Event: workflow.OnResultMissing, Text: fmt.Sprintf("its task ended well, but no result came within %s", workflow.ResultGrace)}
			}
		case !t.Service.Before(silentAt(w, b, excused(b, t))):
			return Overdue{Event: workflow.OnSilence, Text: fmt.Sprintf("no sign of life from its runner for %s", workflow.Silence)}
		}
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		if w.SlotHeld && !t.Service.Before(SlotEnds(w)) {
			return Overdue{Slot: true, Text: "its deadline and grace have passed: its runner has killed the engine by now; the workspace is free again"}
		}
	}
	return Overdue{}
}

func looks(w *record.Workflow, t Time) bool { return !w.Stuck && !t.Now.Before(LooksAt(w)) }

// lastLaunch describes the last known launch of a claim.
func lastLaunch(w *record.Workflow) string {
	if task := w.LiveTask(); task != "" {
		return "task " + task + " was launched and never asked for its start"
	}
	return w.Held.Text
}

// Elapsed applies an Overdue, which must be an event or a slot.
func Elapsed(w *record.Workflow, o Overdue) (out Outcome, err error) {
	if o.Slot {
		out.note("slot_freed", o.Text)
		out.Over = true
		return out, nil
	}
	if err := out.next(w, o.Event); err != nil {
		return out, err
	}
	if out.Move.To.Terminal() {
		out.Detail = o.Text
	}
	out.note(string(o.Event), o.Text+dueNext(w, out.Move))
	// Silence proves nothing: a runner that cannot reach the control plane may still be working. A run that time ends
	// in any other way is over by then, by its own clock or because it never began.
	out.Proven = o.Event != workflow.OnSilence
	return out, nil
}

func dueNext(w *record.Workflow, m workflow.Move) string {
	switch {
	case m.To == workflow.Pending && m.From == workflow.Running:
		return "; it is run again"
	case m.To == workflow.Pending:
		return "; it waits to be claimed again"
	case w.ChangesState() && m.From == workflow.Running && m.Reason == workflow.ReasonRunnerLost:
		return "; a deployment is never run again by itself, and the workspace stays locked until its task is proven over"
	}
	return ""
}
