package workflow

import (
	"fmt"
	"strings"
)

// Event is something that happens to a workflow and may move it.
type Event string

// The events.
const (
	OnClaim         Event = "claim"          // a pool claims it
	OnRelease       Event = "release"        // the claimer gives it back
	OnLeaseLapsed   Event = "lease_lapsed"   // the claim's lease ran out
	OnTaskStopped   Event = "task_stopped"   // its task ended without handing over a result
	OnHandedOver    Event = "handed_over"    // its task ended with exit code 0
	OnLaunchFailed  Event = "launch_failed"  // the launcher refused for good
	OnLaunchWindow  Event = "launch_window"  // the launch window passed
	OnStart         Event = "start"          // a runner's start is granted
	OnRunnerTooOld  Event = "runner_too_old" // a runner asks for its start and lacks a feature that the run needs
	OnPlanStale     Event = "plan_stale"     // a runner asks for its start, and the plan that it is to apply does not fit any more
	OnNotApproved   Event = "not_approved"   // a runner asks for its start, and the run needs an approval that it does not have
	OnInputMissing  Event = "input_missing"  // a runner asks for its start, and an output of another workspace is missing that the run needs
	OnResult        Event = "result"         // the runner reports the end
	OnCancel        Event = "cancel"         // its cancellation is requested
	OnQueueTimeout  Event = "queue_timeout"  // pending for too long
	OnSilence       Event = "silence"        // no heartbeat for too long
	OnResultMissing Event = "result_missing" // the handed-over result did not come
	OnDeadline      Event = "deadline"       // max runtime and grace passed
)

// Events lists every event.
func Events() []Event {
	return []Event{
		OnClaim, OnRelease, OnLeaseLapsed, OnTaskStopped, OnHandedOver, OnLaunchFailed, OnLaunchWindow,
		OnStart, OnRunnerTooOld, OnPlanStale, OnNotApproved, OnInputMissing, OnResult, OnCancel, OnQueueTimeout, OnSilence, OnResultMissing, OnDeadline,
	}
}

// Facts are the inputs of a move besides the state and the event.
type Facts struct {
	Type            Type
	CancelRequested bool
	Lapses          int    // claims that lapsed before this event
	Starts          int    // starts so far, the present one included
	Held            bool   // the launch is held back by throttle, quota or capacity
	Outcome         State  // with OnResult: the outcome that the runner reports
	Reason          Reason // with OnResult: its reason
}

// Move is the effect of an event.
type Move struct {
	From, To State
	Reason   Reason
	Lapse    bool // this claim lapsed: count it
}

// rule is one row of the table. The first row that fits decides.
type rule struct {
	from   State
	on     Event
	when   string // the label of match in the diagram
	match  func(Facts) bool
	to     State
	reason Reason
	lapse  bool
}

func always(Facts) bool         { return true }
func cancelling(f Facts) bool   { return f.CancelRequested }
func lapsesRemain(f Facts) bool { return f.Lapses+1 < MaxLapses }

// repeatable says that running it again is harmless and was not tried too often: a deployment is never run again once
// it has started.
func repeatable(f Facts) bool { return f.Type != Deployment && f.Starts < MaxStarts }

func outcome(s State) func(Facts) bool {
	return func(f Facts) bool { return f.Outcome == s }
}

// rules is the one table of allowed moves. The diagram is drawn from it, and the control plane uses only this table.
var rules = []rule{
	{Pending, OnClaim, "", always, Claimed, ReasonNone, false},
	{Pending, OnCancel, "", always, Cancelled, ReasonCancelled, false},
	{Pending, OnQueueTimeout, "", always, Failed, ReasonExpiredInQueue, false},

	{Claimed, OnStart, "", always, Running, ReasonNone, false},
	{Claimed, OnRelease, "", always, Pending, ReasonNone, false},
	{Claimed, OnLeaseLapsed, "lapses remain", lapsesRemain, Pending, ReasonNone, true},
	{Claimed, OnLeaseLapsed, "fifth lapse", always, Failed, ReasonNeverStarted, true},
	{Claimed, OnTaskStopped, "lapses remain", lapsesRemain, Pending, ReasonNone, true},
	{Claimed, OnTaskStopped, "fifth lapse", always, Failed, ReasonNeverStarted, true},
	{Claimed, OnLaunchFailed, "", always, Failed, ReasonLaunchFailed, false},
	{Claimed, OnLaunchWindow, "held by throttle, quota or capacity", func(f Facts) bool { return f.Held }, Pending, ReasonNone, false},
	{Claimed, OnLaunchWindow, "else", always, Failed, ReasonLaunchWindow, false},
	{Claimed, OnRunnerTooOld, "", always, Failed, ReasonRunnerTooOld, false},
	{Claimed, OnPlanStale, "", always, Failed, ReasonPlanStale, false},
	{Claimed, OnNotApproved, "", always, Failed, ReasonNotApproved, false},
	{Claimed, OnInputMissing, "", always, Failed, ReasonInputMissing, false},
	{Claimed, OnCancel, "", always, Cancelled, ReasonCancelled, false},

	{Running, OnResult, "succeeded", outcome(Succeeded), Succeeded, ReasonNone, false},
	{Running, OnResult, "failed", outcome(Failed), Failed, ReasonNone, false},
	{Running, OnResult, "cancelled", outcome(Cancelled), Cancelled, ReasonNone, false},
	{Running, OnCancel, "sets the flag", always, Running, ReasonNone, false},
	{Running, OnHandedOver, "waits for the result", always, Running, ReasonNone, false},
	{Running, OnSilence, "cancel flag", cancelling, Cancelled, ReasonCancelled, false},
	{Running, OnSilence, "scan or evaluation, starts remain", repeatable, Pending, ReasonNone, false},
	{Running, OnSilence, "else", always, Failed, ReasonRunnerLost, false},
	{Running, OnTaskStopped, "cancel flag", cancelling, Cancelled, ReasonCancelled, false},
	{Running, OnTaskStopped, "scan or evaluation, starts remain", repeatable, Pending, ReasonNone, false},
	{Running, OnTaskStopped, "else", always, Failed, ReasonTaskStopped, false},
	{Running, OnResultMissing, "cancel flag", cancelling, Cancelled, ReasonCancelled, false},
	{Running, OnResultMissing, "scan or evaluation, starts remain", repeatable, Pending, ReasonNone, false},
	{Running, OnResultMissing, "else", always, Failed, ReasonResultMissing, false},
	{Running, OnDeadline, "cancel flag", cancelling, Cancelled, ReasonCancelled, false},
	{Running, OnDeadline, "else", always, Failed, ReasonDeadline, false},
}

// Next says what event does to a workflow in state from. If the table does not allow the event in that state it
// returns ErrConflict: another change came first, and this one does nothing.
func Next(from State, on Event, f Facts) (Move, error) {
	for _, r := range rules {
		if r.from != from || r.on != on || !r.match(f) {
			continue
		}
		m := Move{From: from, To: r.to, Reason: r.reason, Lapse: r.lapse}
		if on == OnResult {
			m.Reason = f.Reason
		}
		return m, nil
	}
	return Move{}, Refuse(ErrConflict, "", "a workflow that is %s does not take %s", from, on)
}

// Diagram draws the table as text, one line for each pair of states: the diagram of the
// documentation.
func Diagram() string {
	var b strings.Builder
	for _, from := range States() {
		for _, to := range States() {
			var labels []string
			for _, r := range rules {
				if r.from != from || r.to != to {
					continue
				}
				label := string(r.on)
				if r.when != "" {
					label += " (" + r.when + ")"
				}
				if r.reason != ReasonNone && string(r.reason) != string(r.on) {
					label += " [" + string(r.reason) + "]"
				}
				labels = append(labels, label)
			}
			if len(labels) > 0 {
				fmt.Fprintf(&b, "%-9s --> %-9s : %s\n", from, to, strings.Join(labels, "; "))
			}
		}
	}
	return b.String()
}
