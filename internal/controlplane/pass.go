package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	passEvery  = time.Minute
	passMissed = 2 * passEvery    // a last pass older than this means that the control plane was away
	passPage   = 200              // timers of one read
	passMost   = 5000             // workflows that one pass looks at
	passBudget = 45 * time.Second // and for how long
	passMargin = 2 * time.Second  // that it leaves before the deadline of who makes it
)

// nextDue says when time alone may next change something about a workflow; zero means never.
// What it needs beyond the record, the last sign of life and since when the control plane is up, can
// only make that later.
func nextDue(w *record.Workflow, beat, upSince time.Time) time.Time {
	switch w.State {
	case workflow.Pending:
		return w.Submitted.Add(workflow.QueueTimeout)
	case workflow.Claimed:
		return lapses(w)
	case workflow.Running:
		end := w.Deadline.Add(workflow.DeadlineGrace)
		quiet := latest(beat, w.Started, upSince).Add(workflow.Silence)
		if !w.HandedOver.IsZero() {
			quiet = latest(w.HandedOver, upSince).Add(workflow.ResultGrace)
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

// overdue is what is due now: an event, or the end of a slot that outlived its run. Neither means
// that nothing is due yet.
type overdue struct {
	event workflow.Event
	slot  bool
	text  string
}

// due decides what time alone makes of a workflow. It is a pure function.
func due(w *record.Workflow, beat, upSince, now time.Time) overdue {
	switch w.State {
	case workflow.Pending:
		if !now.Before(w.Submitted.Add(workflow.QueueTimeout)) {
			return overdue{event: workflow.OnQueueTimeout, text: fmt.Sprintf("it waited %s without being started", workflow.QueueTimeout)}
		}
	case workflow.Claimed:
		window := w.Claimed.Add(workflow.LaunchWindow)
		switch {
		case now.Before(lapses(w)):
		case w.Lease.Before(window):
			// Nobody worked on it up to the end of the window: the claim was simply left.
			return overdue{event: workflow.OnLeaseLapsed, text: "its claim by " + w.Instance + " lapsed without a start" + because(lastLaunch(w))}
		default:
			return overdue{event: workflow.OnLaunchWindow, text: fmt.Sprintf("it could not be launched within %s%s", workflow.LaunchWindow, because(lastLaunch(w)))}
		}
	case workflow.Running:
		quietFrom := latest(beat, w.Started, upSince)
		switch {
		case !now.Before(w.Deadline.Add(workflow.DeadlineGrace)):
			return overdue{event: workflow.OnDeadline, text: fmt.Sprintf("it ran longer than its max runtime of %s", w.MaxRuntime)}
		case !w.HandedOver.IsZero():
			if !now.Before(latest(w.HandedOver, upSince).Add(workflow.ResultGrace)) {
				return overdue{event: workflow.OnResultMissing, text: fmt.Sprintf("its task ended well, but no result came within %s", workflow.ResultGrace)}
			}
		case !now.Before(quietFrom.Add(workflow.Silence)):
			return overdue{event: workflow.OnSilence, text: fmt.Sprintf("no sign of life from its runner for %s", workflow.Silence)}
		}
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		if w.SlotHeld && !now.Before(w.Deadline.Add(workflow.DeadlineGrace)) {
			return overdue{slot: true, text: "its deadline and grace have passed: its runner has killed the engine by now; the workspace is free again"}
		}
	}
	return overdue{}
}

// lastLaunch says what is known of the launch of a claim.
func lastLaunch(w *record.Workflow) string {
	if task := w.LiveTask(); task != "" {
		return "task " + task + " was launched and never asked for its start"
	}
	return w.Held.Text
}

// Pass moves what time alone moves: lapsed leases, silent runners, passed deadlines and queue
// time-outs, of every organization. It is bounded in records and in time, also by ctx's deadline, and
// says when it left something to the next one. It is harmless twice or twice at once. Run it once a minute.
func (p *Plane) Pass(ctx context.Context) (PassSummary, error) {
	var sum PassSummary
	began, budget := p.ledger.Now(), passBudget
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(deadline)-passMargin)
	}
	up, err := p.markPass(ctx)
	if err != nil {
		return sum, err
	}
	sum.UpSince = up
	orgs, err := p.ledger.Range(ctx, store.Scan{Part: "orgs", Limit: 1000})
	if err != nil {
		return sum, ledger.OutOfStore(fmt.Errorf("read organizations: %w", err))
	}
	var failures []error
	for _, org := range orgs.Records {
		if err := p.passOrg(ctx, org.Key.Sort, up, began.Add(budget), &sum); err != nil {
			failures = append(failures, err)
		}
	}
	return sum, errors.Join(failures...)
}

// markPass records that a pass runs and returns since when the control plane is up.
func (p *Plane) markPass(ctx context.Context) (time.Time, error) {
	var up time.Time
	err := p.ledger.Decide(ctx, func(ctx context.Context) ([]store.Op, error) {
		r, err := p.ledger.Read(ctx, record.PassKey())
		if err != nil {
			return nil, err
		}
		rec, ok, err := ledger.Get[record.Pass](r, record.PassKey())
		if err != nil {
			return nil, err
		}
		now := p.ledger.Now()
		if !ok || now.Sub(rec.Last) > passMissed {
			rec.UpSince = now
		}
		rec.Last = latest(rec.Last, now)
		up = rec.UpSince
		return []store.Op{store.Put(record.Encode(record.PassKey(), rec), r.Version(record.PassKey()))}, nil
	})
	return up, err
}

func (p *Plane) passOrg(ctx context.Context, org string, up, until time.Time, sum *PassSummary) error {
	var failures []error
	to := fmt.Sprintf("%015d0", p.ledger.Now().UnixMilli()) // behind every entry of this millisecond
	page := store.Page{}
	for {
		var err error
		page, err = p.ledger.Range(ctx, store.Scan{Part: record.TimerPart(org), To: to, Limit: passPage, After: page.Next})
		if err != nil {
			return ledger.OutOfStore(fmt.Errorf("read timers: %w", err))
		}
		for _, r := range page.Records {
			if sum.Looked >= passMost || !p.ledger.Now().Before(until) {
				sum.Left = true
				return errors.Join(failures...)
			}
			t, err := record.Decode[record.Name](r)
			if err != nil {
				return err
			}
			sum.Looked++
			moved, err := p.passOne(ctx, org, t.ID, up)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				sum.Failed++
				failures = append(failures, fmt.Errorf("pass over %s: %w", t.ID, err))
			case moved:
				sum.Moved++
			}
		}
		if page.Next == "" {
			return errors.Join(failures...)
		}
	}
}

// passOne looks at one workflow whose timer ran out.
func (p *Plane) passOne(ctx context.Context, org, id string, up time.Time) (moved bool, err error) {
	var pool string
	err = p.changeHot(ctx, func(ctx context.Context, c *change) error {
		moved = false
		w, err := c.workflow(ctx, org, id)
		if err != nil {
			return err
		}
		pool = w.PoolID
		beat, err := c.beat(id)
		if err != nil {
			return err
		}
		o := due(w, beat, up, c.Now)
		switch {
		case o.slot:
			c.event(w, "slot_freed", o.text)
			moved = true
			return c.retire(ctx, w)
		case o.event == "":
			// Nothing is due; the timer moves to where something will be.
			return c.rearm(w, beat, up)
		}
		m, err := workflow.Next(w.State, o.event, facts(w))
		if err != nil {
			return err
		}
		if o.event == workflow.OnQueueTimeout {
			f, err := c.whyFacts(ctx, w)
			if err != nil {
				return err
			}
			_, waited := waitsPending(w, f)
			o.text += "; the last thing that it waited for was " + waited
		}
		moved = true
		// A heartbeat that came in meanwhile makes this decide again.
		if k := record.BeatKey(id); c.Version(k) != store.Absent {
			c.Check(k)
		}
		detail := ""
		if m.To.Terminal() {
			detail = o.text
		}
		c.event(w, string(o.event), o.text+dueNext(w, m))
		return c.move(ctx, w, m, detail, o.event != workflow.OnSilence)
	})
	if moved && err == nil {
		p.wakes.Ring("states/" + pool)
	}
	return moved, err
}

// rearm moves a timer that ran out early.
func (c *change) rearm(w *record.Workflow, beat, up time.Time) error {
	next := nextDue(w, beat, up)
	if next.IsZero() {
		return nil
	}
	at := next.UnixMilli() + 1
	if at == w.Timer {
		return nil
	}
	c.Remove(record.TimerKey(w.Org, w.Timer, w.ID), ledger.Once)
	c.Create(record.TimerKey(w.Org, at, w.ID), record.Name{ID: w.ID})
	w.Timer = at
	c.rearmed = true
	return nil
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
