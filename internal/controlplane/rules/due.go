package rules

import (
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// NextDue says when time alone may next change something about a workflow; zero means never.
// What it needs beyond the record, the last sign of life and since when the control plane is up, can
// only make that later.
func NextDue(w *record.Workflow, beat, upSince time.Time) time.Time {
	switch w.State {
	case workflow.Pending:
		return w.Submitted.Add(workflow.QueueTimeout)
	case workflow.Claimed:
		return lapses(w)
	case workflow.Running:
		end := w.Deadline.Add(workflow.DeadlineGrace)
		quiet := Latest(beat, w.Started, upSince).Add(workflow.Silence)
		if !w.HandedOver.IsZero() {
			quiet = Latest(w.HandedOver, upSince).Add(workflow.ResultGrace)
		}
		if quiet.Before(end) {
			return quiet
		}
		return end
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		if w.SlotHeld {
			return w.Deadline.Add(workflow.DeadlineGrace)
		}
	}
	return time.Time{}
}

// lapses is when a claim ends by itself.
func lapses(w *record.Workflow) time.Time {
	if mutate.On(mutate.EarlyClaim) { // see package mutate
		return w.Claimed
	}
	return w.Lease
}

// Overdue is what is due now: an event, or the end of a slot that outlived its run. Neither means
// that nothing is due yet.
type Overdue struct {
	Event workflow.Event
	Slot  bool
	Text  string
}

// Due decides what time alone makes of a workflow. It is a pure function.
func Due(w *record.Workflow, beat, upSince, now time.Time) Overdue {
	switch w.State {
	case workflow.Pending:
		if !now.Before(w.Submitted.Add(workflow.QueueTimeout)) {
			return Overdue{Event: workflow.OnQueueTimeout, Text: fmt.Sprintf("it waited %s without being started", workflow.QueueTimeout)}
		}
	case workflow.Claimed:
		window := w.Claimed.Add(workflow.LaunchWindow)
		switch {
		case now.Before(lapses(w)):
		case w.Lease.Before(window):
			// Nobody worked on it up to the end of the window: the claim was simply left.
			return Overdue{Event: workflow.OnLeaseLapsed, Text: "its claim by " + w.Instance + " lapsed without a start" + Because(lastLaunch(w))}
		default:
			return Overdue{Event: workflow.OnLaunchWindow, Text: fmt.Sprintf("it could not be launched within %s%s", workflow.LaunchWindow, Because(lastLaunch(w)))}
		}
	case workflow.Running:
		quietFrom := Latest(beat, w.Started, upSince)
		switch {
		case !now.Before(w.Deadline.Add(workflow.DeadlineGrace)):
			return Overdue{Event: workflow.OnDeadline, Text: fmt.Sprintf("it ran longer than its max runtime of %s", w.MaxRuntime)}
		case !w.HandedOver.IsZero():
			if !now.Before(Latest(w.HandedOver, upSince).Add(workflow.ResultGrace)) {
				return Overdue{Event: workflow.OnResultMissing, Text: fmt.Sprintf("its task ended well, but no result came within %s", workflow.ResultGrace)}
			}
		case !now.Before(quietFrom.Add(workflow.Silence)):
			return Overdue{Event: workflow.OnSilence, Text: fmt.Sprintf("no sign of life from its runner for %s", workflow.Silence)}
		}
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		if w.SlotHeld && !now.Before(w.Deadline.Add(workflow.DeadlineGrace)) {
			return Overdue{Slot: true, Text: "its deadline and grace have passed: its runner has killed the engine by now; the workspace is free again"}
		}
	}
	return Overdue{}
}

// lastLaunch says what is known of the launch of a claim.
func lastLaunch(w *record.Workflow) string {
	if task := w.LiveTask(); task != "" {
		return "task " + task + " was launched and never asked for its start"
	}
	return w.Held.Text
}

// Elapsed says what is made of what is due, which must be something.
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
