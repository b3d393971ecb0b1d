// Package clock is the control plane's clock: it makes the changes that time alone causes.
package clock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Summary counts what one pass did.
type Summary struct {
	Looked, Moved, Failed int
	Deleted               int  // records that were past their retention
	Left                  bool // something was left to the next pass
}

// Calls answers the caller that makes the passes.
type Calls struct {
	ledger  *ledger.Ledger
	catalog *catalog.Calls
	runs    *runs.Calls
}

// New returns the calls over a ledger.
func New(l *ledger.Ledger, c *catalog.Calls, r *runs.Calls) *Calls {
	return &Calls{ledger: l, catalog: c, runs: r}
}

const (
	onePage = 200              // timers of one read
	most    = 5000             // workflows that one pass looks at
	longest = 45 * time.Second // and for how long
	margin  = 2 * time.Second  // that it leaves before its caller's deadline
)

// Pass makes the changes that time alone causes: lapsed leases, silent runners, passed deadlines and queue time-outs,
// in every organization. It is bounded in records and in time, also by ctx's deadline, and says if it left something
// to the next pass. A second pass is harmless, also at the same time. Run it once a minute.
func (p *Calls) Pass(ctx context.Context) (Summary, error) {
	var sum Summary
	began, budget := p.ledger.Now(), longest
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(deadline)-margin)
	}
	service, err := p.ledger.Tick(ctx)
	if err != nil {
		return sum, err
	}
	orgs, err := p.ledger.Range(ctx, store.Scan{Part: "orgs", Limit: 1000})
	if err != nil {
		return sum, err
	}
	var failures []error
	for _, org := range orgs.Records {
		for _, due := range []store.Scan{
			{To: ranOut(p.ledger.Now())},
			{From: record.ServiceTimers, To: record.ServiceTimers + ranOut(service)},
		} {
			if err := p.passOrg(ctx, org.Key.Sort, due, service, began.Add(budget), &sum); err != nil {
				failures = append(failures, err)
			}
		}
		if err := p.sweep(ctx, org.Key.Sort, began.Add(budget), &sum); err != nil {
			failures = append(failures, err)
		}
		if err := p.catalog.RemoveClosed(ctx, org.Key.Sort); err != nil {
			failures = append(failures, err)
		}
	}
	return sum, errors.Join(failures...)
}

// ranOut is behind every timer of the millisecond of a time.
func ranOut(at time.Time) string { return fmt.Sprintf("%015d0", at.UnixMilli()) }

func (p *Calls) passOrg(ctx context.Context, org string, due store.Scan, service, until time.Time, sum *Summary) error {
	var failures []error
	due.Part, due.Limit = record.TimerPart(org), onePage
	page := store.Page{}
	for {
		var err error
		due.After = page.Next
		page, err = p.ledger.Range(ctx, due)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			if sum.Looked >= most || !p.ledger.Now().Before(until) {
				sum.Left = true
				return errors.Join(failures...)
			}
			sum.Looked++
			t, err := record.Decode[record.Name](r)
			moved := false
			if err == nil {
				moved, err = p.passOne(ctx, org, t.ID, r.Key, service)
			}
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				sum.Failed++
				failures = append(failures, fmt.Errorf("pass over %s: %w", r.Key.Sort, err))
			case moved:
				sum.Moved++
			}
		}
		if page.Next == "" || mutate.On(mutate.OneTimerPage) { // see package mutate
			return errors.Join(failures...)
		}
	}
}

// passOne looks at one workflow whose timer ran out.
func (p *Calls) passOne(ctx context.Context, org, id string, timer store.Key, service time.Time) (moved bool, err error) {
	var pool string
	err = p.ledger.ChangeHot(ctx, func(ctx context.Context, c *ledger.Change) error {
		moved = false
		w, err := c.Workflow(ctx, org, id)
		if err != nil {
			return err
		}
		pool = w.PoolID
		if timer != record.TimerKey(org, w.Timer, id) && timer != record.ServiceTimerKey(org, w.Service.Timer, id) {
			return c.Disarm(ctx, timer)
		}
		beat, err := c.Beat(id)
		if err != nil {
			return err
		}
		heard, _, err := ledger.Load[record.Heard](ctx, c, record.HeardKey(pool))
		if err != nil {
			return err
		}
		now := rules.Time{Now: c.Now, Service: service, Lag: rules.Lag(heard, service)}
		was := beat
		beat = rules.Stamp(w, beat, now)
		o := rules.Due(w, beat, now)
		if !o.Slot && o.Event == "" {
			// Nothing is due; the timer moves to the time when something will be.
			if beat != was {
				c.Put(record.BeatKey(id), beat)
			}
			c.Rearm(w, rules.Again(w, beat, now))
			return nil
		}
		if o.Event == workflow.OnQueueTimeout {
			waited, err := p.runs.WaitsFor(ctx, c, w)
			if err != nil {
				return err
			}
			o.Text += "; it last waited for " + waited
		}
		out, err := rules.Elapsed(w, o)
		if err != nil {
			return err
		}
		moved = true
		// If a heartbeat arrived meanwhile, this is decided again.
		if k := record.BeatKey(id); out.Moves() && c.Version(k) != store.Absent && !mutate.On(mutate.NoBeatCheck) { // see package mutate
			c.Check(k)
		}
		return c.Apply(ctx, w, out)
	})
	if moved && err == nil {
		p.ledger.Notify(ledger.StatesOf(pool))
	}
	return moved, err
}
