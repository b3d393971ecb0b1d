package moves

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Note appends to a workflow's timeline.
func (c *Change) Note(w *record.Workflow, n rules.Note) {
	w.Seq++
	c.Create(record.EventKey(w.ID, w.Seq), api.Event{
		Seq: w.Seq, At: c.Now, Kind: n.Kind, Attempt: w.Attempt, Text: text.Middle(n.Text, 1000), Task: n.Task, Actor: n.Actor,
	})
}

// Apply does what was decided about a workflow.
func (c *Change) Apply(ctx context.Context, w *record.Workflow, out rules.Outcome) error {
	for _, n := range out.Notes {
		c.Note(w, n)
	}
	if err := c.hold(ctx, w, out); err != nil {
		return err
	}
	switch {
	case out.Moves():
		return c.move(ctx, w, out.Move, out.Detail, out.Proven)
	case out.Over:
		return c.retire(ctx, w)
	case out.Free:
		return c.freeLane(ctx, w)
	}
	return nil
}

// hold keeps the pool of a workflow from claiming for a while, or ends that: what waited for it is claimable
// then.
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
			c.Remove(k, c.Version(k))
			c.Wake(w.PoolID)
		}
		return nil
	}
	old, _, err := ledger.Get[record.Hold](c.Read, k)
	if err != nil {
		return err
	}
	if until, keep := out.Hold.Keep(old, c.Now); keep {
		r := record.Encode(k, record.Hold{Reason: out.Hold.Reason, Until: until})
		r.Expires = until.Add(time.Hour).Unix()
		c.Add(store.Put(r, c.Version(k)))
	}
	return nil
}

// move applies a move of the table to a workflow and everything that hangs on it. proven says
// that nothing of the run is left that could act on the workspace's state.
func (c *Change) move(ctx context.Context, w *record.Workflow, m workflow.Move, detail string, proven bool) error {
	if m.From != w.State {
		return fmt.Errorf("move of %s from %s, which is %s", w.ID, m.From, w.State)
	}
	w.State, w.Reason, w.Detail, w.Since = m.To, m.Reason, text.Middle(detail, record.MaxDetail), c.Now
	if m.Lapse {
		w.Lapses++
	}
	if m.To == workflow.Pending || m.To.Terminal() {
		if err := c.Prepare(ctx, w); err != nil {
			return err
		}
	}
	switch m.To {
	case workflow.Pending:
		return c.requeue(ctx, w)
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		w.Ended = c.Now
		if m.From == workflow.Pending {
			return c.unqueue(ctx, w)
		}
		if w.ChangesState() && w.SlotHeld && !proven && !mutate.On(mutate.EarlySlot) { // see package mutate
			return nil // it stays active until its end is proven
		}
		return c.retire(ctx, w)
	case workflow.Claimed, workflow.Running:
	}
	return nil
}

// requeue makes a claimed or running workflow pending again. It gives up its place in its lane: one that ranks before
// it may have come meanwhile.
func (c *Change) requeue(ctx context.Context, w *record.Workflow) error {
	w.SlotHeld = false
	w.Lease, w.Tasks, w.Instance, w.HandedOver = time.Time{}, nil, "", time.Time{}
	lane, err := c.Lane(w.WorkspaceID)
	if err != nil {
		return err
	}
	leave(lane, w)
	if err := c.deactivate(w); err != nil {
		return err
	}
	return c.Promote(ctx, w.WorkspaceID, w)
}

// unqueue takes a pending workflow out of the claimable index, or out of the waiting list.
func (c *Change) unqueue(ctx context.Context, w *record.Workflow) error {
	claimable, waiting := w.ClaimKey(), w.WaitKey()
	if err := c.Load(ctx, claimable, waiting); err != nil {
		return err
	}
	lane, err := c.Lane(w.WorkspaceID)
	if err != nil {
		return err
	}
	if _, ok := c.Read[claimable]; ok {
		c.Remove(claimable, ledger.Once)
		leave(lane, w)
		return c.Promote(ctx, w.WorkspaceID)
	}
	c.Remove(waiting, ledger.Once)
	if w.ChangesState() {
		lane.WaitC--
	} else {
		lane.WaitO--
	}
	return nil
}

// retire ends a workflow's being active: the limits, its slot or place, and whoever waits for it.
func (c *Change) retire(ctx context.Context, w *record.Workflow) error {
	if err := c.Prepare(ctx, w); err != nil {
		return err
	}
	if err := c.deactivate(w); err != nil {
		return err
	}
	if w.ChangesState() && !w.SlotHeld {
		return nil // its slot was freed before
	}
	return c.freeLane(ctx, w)
}

// freeLane gives a workflow's slot or place to whoever waits for it.
func (c *Change) freeLane(ctx context.Context, w *record.Workflow) error {
	if err := c.Prepare(ctx, w); err != nil {
		return err
	}
	w.SlotHeld = false
	lane, err := c.Lane(w.WorkspaceID)
	if err != nil {
		return err
	}
	leave(lane, w)
	return c.Promote(ctx, w.WorkspaceID)
}

func (c *Change) deactivate(w *record.Workflow) error {
	if !w.Active {
		return nil
	}
	w.Active = false
	c.Remove(record.ActiveKey(w.PoolID, w.ID), ledger.Once)
	for _, k := range []store.Key{record.OrganizationLimitKey(w.Org), record.PoolLimitKey(w.Org, w.PoolID)} {
		l, err := c.Limit(k)
		if err != nil {
			return err
		}
		l.Active--
		n := min(len(l.Cut), wake.Most)
		c.wake = append(c.wake, l.Cut[:n]...)
		l.Cut = slices.Clone(l.Cut[n:])
	}
	return nil
}

// Activate counts a workflow that was just claimed against the limits.
func (c *Change) Activate(w *record.Workflow) error {
	w.Active = true
	c.Create(record.ActiveKey(w.PoolID, w.ID), record.Active{Instance: w.Instance})
	for _, k := range []store.Key{record.OrganizationLimitKey(w.Org), record.PoolLimitKey(w.Org, w.PoolID)} {
		l, err := c.Limit(k)
		if err != nil {
			return err
		}
		l.Active++
	}
	return nil
}

// timer moves the entry of a workflow in the timers to where the next thing is due.
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
	c.rearmed = true
}

// Disarm deletes a timer that its workflow's record does not name: the record was written since by a version that does
// not know timers of that kind.
func (c *Change) Disarm(ctx context.Context, timer store.Key) error {
	c.rearmed = true
	if err := c.Load(ctx, timer); err != nil {
		return err
	}
	if v := c.Version(timer); v != store.Absent {
		c.Remove(timer, v)
	}
	return nil
}

func (c *Change) arm(w *record.Workflow, next rules.Timer) {
	for _, t := range []struct {
		key  func(org string, at int64, id string) store.Key
		was  *int64
		next time.Time
	}{{record.TimerKey, &w.Timer, next.Wall}, {record.ServiceTimerKey, &w.Service.Timer, next.Service}} {
		at := int64(0)
		if !t.next.IsZero() {
			at = t.next.UnixMilli() + 1
		}
		if at == *t.was {
			continue
		}
		if *t.was != 0 {
			c.Remove(t.key(w.Org, *t.was, w.ID), ledger.Once)
		}
		if at != 0 {
			c.Create(t.key(w.Org, at, w.ID), record.Name{ID: w.ID})
		}
		*t.was = at
	}
}
