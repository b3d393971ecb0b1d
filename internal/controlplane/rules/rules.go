// Package rules decides about one workflow, by a report, a call or the passing of time, and says why. It does no I/O.
// Its functions are given a working copy of the record and the time. They set the fields of the copy that are about
// the run itself, and return everything else as an Outcome, which package ledger applies.
package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Outcome has the effects of a decision beyond the fields of the record. The zero value has none.
type Outcome struct {
	Notes []Note // for the timeline

	Move   workflow.Move // without a From there is no move
	Detail string        // of the move: a text for people beside its reason
	Proven bool          // of the move: no part of the run can act on the workspace's state any more

	// A decision may prove without a move that the run of an ended workflow is over, or that the workspace of a
	// running one is free while its result is on its way. These are apart from the move because a slot may be held
	// longer than the state lasts: the end of one need not be the end of the other.
	Over, Free bool

	Hold  *Hold // the pool is to claim nothing for a while
	LetGo bool  // the pool may claim again
}

// Note is an event for the timeline.
type Note struct {
	Kind, Text  string
	Task, Actor string // its task and its actor; empty if there is none
}

// Hold is why a pool is to claim nothing, and for how long.
type Hold struct {
	Reason workflow.Reason
	For    time.Duration
}

// Moves reports whether the workflow moves.
func (o *Outcome) Moves() bool { return o.Move.From != "" }

func (o *Outcome) note(kind, text string) { o.Notes = append(o.Notes, Note{Kind: kind, Text: text}) }

func (o *Outcome) noteTask(kind, text, task string) {
	o.Notes = append(o.Notes, Note{Kind: kind, Text: text, Task: task})
}

// next asks the table for a move. Only this sets a state, so a move that the table does not allow cannot happen.
func (o *Outcome) next(w *record.Workflow, on workflow.Event) error {
	var err error
	o.Move, err = workflow.Next(w.State, on, facts(w))
	return err
}

// facts are the conditions of the next move of a workflow.
func facts(w *record.Workflow) workflow.Facts {
	return workflow.Facts{
		Type: w.Type, CancelRequested: !w.CancelAt.IsZero(), Lapses: w.Lapses, Starts: w.Starts,
		Held: w.Held.Reason.Held(),
	}
}

// Claim gives a pending workflow to an instance of a pool: it raises the attempt. The tasks, the holder and the times
// of the previous attempt are dropped, so that a report about that attempt cannot be mistaken for one about this
// attempt. A run that changes state has the slot from here on: its task may start at any moment after this.
func Claim(w *record.Workflow, instance, pool string, now time.Time) (Outcome, error) {
	var out Outcome
	if err := out.next(w, workflow.OnClaim); err != nil {
		return out, err
	}
	w.Attempt++
	w.Claimed, w.Lease, w.Instance = now, now.Add(workflow.FirstLease), instance
	w.Tasks, w.Holder, w.HandedOver = nil, record.Holder{}, time.Time{}
	w.Service.Deadline, w.Service.HandedOver = 0, 0
	w.Held = record.Held{}
	w.SlotHeld = w.ChangesState()
	out.Notes = []Note{{Kind: "claimed", Text: fmt.Sprintf("attempt %d claimed by %s of pool %s", w.Attempt, instance, pool), Actor: instance}}
	return out, nil
}

// Cancel ends a workflow that waits, and asks a running one to end. It is idempotent. The reason may be empty.
func Cancel(w *record.Workflow, by, reason string, now time.Time) (Outcome, error) {
	var out Outcome
	if w.State == workflow.Cancelled || !w.CancelAt.IsZero() {
		return out, nil // asked for before
	}
	if err := out.next(w, workflow.OnCancel); err != nil {
		return out, workflow.Refuse(workflow.ErrConflict, "id", "workflow %s has ended (%s); there is nothing to cancel", w.ID, w.State)
	}
	w.CancelAt = now
	if out.Move.To == workflow.Running {
		out.Notes = []Note{{Kind: "cancel_requested", Text: "cancellation requested by " + by + Because(reason) + "; the runner interrupts the engine at its next heartbeat", Actor: by, Task: w.Holder.Task}}
		out.Move = workflow.Move{}
		return out, nil
	}
	out.Notes = []Note{{Kind: "cancelled", Text: "cancelled by " + by + " before it started" + Because(reason), Actor: by}}
	out.Detail, out.Proven = "cancelled by "+by+Because(reason), true
	return out, nil
}

// Unlock frees a workspace whose slot is held by a run that has ended, without a proof that its engine is over: only
// a person can know. holder is the workflow that holds the slot, nil if the slot is free; id is the workflow that the
// person was shown.
func Unlock(workspace string, holder *record.Workflow, id, by string) (out Outcome, err error) {
	switch {
	case holder == nil:
		return out, workflow.Refuse(workflow.ErrConflict, "", "workspace %s is free: no run holds it", workspace)
	case holder.ID != id:
		return out, workflow.Refuse(workflow.ErrConflict, "", "workspace %s is now held by workflow %s, not by %s: look again", workspace, holder.ID, text.Cut(id, 64))
	case !holder.State.Terminal():
		return out, workflow.Refuse(workflow.ErrInUse, "", "workspace %s is held by workflow %s, which is %s; cancel that (dayfly workflow cancel %s), or let it end", workspace, id, holder.State, id)
	}
	out.Notes = []Note{{Kind: "unlocked", Actor: by, Task: holder.Holder.Task, Text: fmt.Sprintf(
		"UNLOCKED by %s: workspace %s is free, though nothing proves that task %s is over; an engine that still runs there may change the state together with the next run",
		by, workspace, holder.Holder.Task)}}
	out.Over = true
	return out, nil
}

// JobState says where a workflow stands, for the pool that claimed it.
func JobState(w *record.Workflow, b record.Beat, t Time) api.JobState {
	s := api.JobState{
		ID: w.ID, Known: true, State: w.State, Attempt: w.Attempt, Instance: w.Instance, Active: w.Active,
		Started: w.Holder.Boot != "", Task: w.Holder.Task,
		// A lost run is reported as if it were running: it is not asked to stop.
		Cancel: !w.CancelAt.IsZero() && !w.State.Terminal(),
	}
	if s.Task == "" {
		for _, t := range w.Tasks { // of several placements, the latest
			if !t.Stopped {
				s.Task = t.Ref
			}
		}
	}
	if w.State == workflow.Claimed {
		s.PendingPlacement, s.LaunchText = w.Held.Placement, cmp.Or(w.Held.Text, string(w.Held.Reason))
	}
	if !w.Claimed.IsZero() {
		s.ClaimAge = t.Now.Sub(w.Claimed).Seconds()
	}
	if s.Started {
		s.SilentSeconds = max(t.Service.Sub(lastHeartbeat(w, b)), time.Microsecond).Seconds() // 0 would mean unknown
		s.RemainingSeconds = Deadline(w).Sub(t.Service).Seconds()
	}
	if s.Cancel {
		s.CancelAge = t.Now.Sub(w.CancelAt).Seconds()
	}
	return s
}

// Latest returns the latest of some times.
func Latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// Because formats a reason as the end of a sentence.
func Because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// Clock formats a time for people to read.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }

// Day is Clock with the day, for a time that may be days away.
func Day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
