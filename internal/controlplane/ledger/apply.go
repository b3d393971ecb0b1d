package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Everything that depends on a workflow's state changes in the same commit: its place in the queue of its workspace
// and in the claimable index, its places in the limits, its timer and its timeline. So a reader never sees one
// without the other, and a commit that fails leaves nothing to repair.

// Note appends to a workflow's timeline.
func (c *Change) Note(w *record.Workflow, n rules.Note) {
	w.Seq++
	c.Create(record.EventKey(w.ID, w.Seq), api.Event{
		Seq: w.Seq, At: c.Now, Kind: n.Kind, Attempt: w.Attempt, Text: text.Middle(n.Text, 1000), Task: n.Task, Actor: n.Actor,
	})
}

// Apply applies a decision about a workflow.
func (c *Change) Apply(ctx context.Context, w *record.Workflow, out rules.Outcome) error {
	for _, n := range out.Notes {
		c.Note(w, n)
	}
	if err := c.hold(ctx, w, out); err != nil {
		return err
	}
	switch {
	case out.Moves():
		return c.move(ctx, w, out)
	case out.Over:
		return c.retire(ctx, w)
	case out.Free:
		return c.freeSlot(ctx, w)
	}
	return nil
}

// hold stops the pool of a workflow from claiming for a while, or ends that and wakes the pool.
func (c *Change) hold(ctx context.Context, w *record.Workflow, out rules.Outcome) error {
	if out.Hold == nil && !out.LetGo {
		return nil
	}
	k := record.HoldKey(w.PoolID)
	if err := c.Load(ctx, k); err != nil {
		return err
	}
	if out.LetGo {
		if c.Version(k) != store.Absent {
			c.Remove(k)
			c.Wake(w.PoolID)
		}
		return nil
	}
	old, _, err := Get[record.Hold](c.Read, k)
	if err != nil {
		return err
	}
	if until, keep := out.Hold.Keep(old, c.Now); keep {
		c.PutUntil(k, record.Hold{Reason: out.Hold.Reason, Until: until}, until.Add(time.Hour))
	}
	return nil
}

// move applies a move of the table to a workflow and to everything that depends on its state.
func (c *Change) move(ctx context.Context, w *record.Workflow, out rules.Outcome) error {
	m := out.Move
	if m.From != w.State {
		return fmt.Errorf("move of %s from %s, which is %s", w.ID, m.From, w.State)
	}
	w.State, w.Reason, w.Detail, w.Since = m.To, m.Reason, text.Middle(out.Detail, record.MaxDetail), c.Now
	if m.Lapse {
		w.Lapses++
	}
	switch m.To {
	case workflow.Pending:
		return c.requeue(ctx, w)
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		w.Ended = c.Now
		if event := endOf(w); event != "" {
			c.Emit(w.Org, record.OutboxEventOf(event, w, c.Now))
		}
		if m.From == workflow.Pending {
			return c.unqueue(ctx, w)
		}
		if w.ChangesState() && w.SlotHeld && !out.Proven {
			return nil // it stays active until its end is proven
		}
		return c.retire(ctx, w)
	case workflow.Claimed, workflow.Running:
	}
	return nil
}

// endOf is the event that the end of a workflow emits; empty if none.
func endOf(w *record.Workflow) string {
	switch {
	case w.State == workflow.Failed:
		return api.EventFailed
	case w.Trigger.Followed():
		return record.EventMoved
	}
	return ""
}

// Claim applies the decision that a pool claims a pending workflow, whose entry is under a key: the workflow leaves
// the claimable index, is the pool's from now on, and counts against the limits. It keeps its place in the queue of
// its workspace.
func (c *Change) Claim(ctx context.Context, w *record.Workflow, poolID, key string, out rules.Outcome) error {
	c.Keep(w)
	c.RemoveOnce(w.ClaimKey(key))
	w.PoolID = poolID
	if err := c.Apply(ctx, w, out); err != nil {
		return err
	}
	w.Active = true
	c.Add(store.Put(record.EncodeActive(w), store.Absent))
	for _, k := range limitsOf(w) {
		limit, err := c.Limit(ctx, k)
		if err != nil {
			return err
		}
		limit.Active++
	}
	return nil
}

// requeue makes a claimed or running workflow pending again. The workflow gives up its place in the queue of its
// workspace, because one that ranks before it may have come meanwhile.
func (c *Change) requeue(ctx context.Context, w *record.Workflow) error {
	w.SlotHeld = false
	w.Lease, w.Tasks, w.Instance, w.HandedOver = time.Time{}, nil, "", time.Time{}
	q, err := c.Queue(ctx, w.WorkspaceID)
	if err != nil {
		return err
	}
	leave(q, w)
	c.deactivate(w)
	return c.Promote(ctx, w.WorkspaceID, w)
}

// unqueue takes a pending workflow out of the claimable index, or out of the waiting list.
func (c *Change) unqueue(ctx context.Context, w *record.Workflow) error {
	waiting := w.WaitKey()
	q, err := c.Queue(ctx, w.WorkspaceID)
	if err != nil {
		return err
	}
	if err := c.Load(ctx, append(claimKeys(q, w), waiting)...); err != nil {
		return err
	}
	if _, ok := c.Read[waiting]; !ok {
		found, err := c.unplace(ctx, q, w)
		if err != nil {
			return err
		}
		if found {
			leave(q, w)
			return c.Promote(ctx, w.WorkspaceID)
		}
	}
	// It is in one of the two places. If it was found in neither, it is moving just now, and the commit fails.
	c.RemoveOnce(waiting)
	if w.ChangesState() {
		q.WaitC--
	} else {
		q.WaitO--
	}
	return nil
}

// retire makes a workflow inactive: it frees its places in the limits, and its slot or place for those that wait for
// it.
func (c *Change) retire(ctx context.Context, w *record.Workflow) error {
	c.deactivate(w)
	if w.ChangesState() && !w.SlotHeld {
		return nil // its slot was freed before
	}
	return c.freeSlot(ctx, w)
}

// freeSlot gives a workflow's slot or place to the next one that waits for it.
func (c *Change) freeSlot(ctx context.Context, w *record.Workflow) error {
	w.SlotHeld = false
	q, err := c.Queue(ctx, w.WorkspaceID)
	if err != nil {
		return err
	}
	leave(q, w)
	if q.Unsaved != "" && w.Op == workflow.StatePush && w.State == workflow.Succeeded {
		pushed := rules.Note{Kind: "saved", Text: "run " + w.ID + " has pushed a state, so other runs may change it again", Actor: w.By}
		if err := c.Decided(ctx, q, pushed); err != nil {
			return err
		}
	}
	return c.Promote(ctx, w.WorkspaceID)
}

// timer moves a workflow's entry in the timers to the time when the next thing is due.
func (c *Change) timer(w *record.Workflow) error {
	beat, err := c.Beat(w.ID)
	if err != nil {
		return err
	}
	c.arm(w, rules.NextDue(w, beat))
	return nil
}

// Rearm moves a timer that ran out early.
func (c *Change) Rearm(w *record.Workflow, next rules.Timer) {
	c.arm(w, next)
	c.timerSet = true
}

// Disarm deletes a timer that its workflow's record does not name. The workflow has moved since the timer was read,
// or the timer is an orphan: then no pass looks at it again.
func (c *Change) Disarm(ctx context.Context, timer store.Key) error {
	c.timerSet = true
	if err := c.Load(ctx, timer); err != nil {
		return err
	}
	c.Remove(timer)
	return nil
}

// arm writes the timer of a workflow and deletes the one before. The workflow's record names the entry, so that it
// can be deleted without a search when the workflow moves. The name has the version of the record that this commit
// writes, so it is never used again.
func (c *Change) arm(w *record.Workflow, next rules.Timer) {
	kind, at := record.LeaseTimers, next.Wall
	switch {
	case !next.Service.IsZero():
		kind, at = record.ServiceTimers, next.Service
	case w.State == workflow.Pending:
		kind = record.WaitTimers
	}
	due := ""
	if !at.IsZero() {
		due = record.Due(kind, at.UnixMilli()+1) // never before it is due
		if strings.HasPrefix(w.Due, due) {
			return
		}
		due += strconv.FormatInt(c.Version(record.WorkflowKey(w.ID))+1, 10)
	}
	if w.Due != "" {
		c.RemoveOnce(record.TimerKey(w.Org, w.Due, w.ID))
	}
	if w.Due = due; due != "" {
		c.Create(record.TimerKey(w.Org, due, w.ID), record.Name{ID: w.ID})
	}
}
