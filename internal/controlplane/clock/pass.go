// Package clock is the control plane's clock: it makes the changes that time alone causes.
package clock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/notifications"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/controlplane/schedules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/trees"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Summary counts the work of one pass.
type Summary struct {
	Looked, Moved, Failed int
	Deleted               int  // records that were past their retention
	More                  bool // work remains for the next pass
}

// Calls answers the caller that makes the passes.
type Calls struct {
	ledger        *ledger.Ledger
	catalog       *catalog.Calls
	runs          *runs.Calls
	schedules     *schedules.Calls
	trees         *trees.Calls
	notifications *notifications.Calls
	blobs         deleter // nil if the place of the blobs deletes them on its own
	forward       Forwarder
}

// deleter is a place of blobs that does not delete them on its own.
type deleter interface {
	DeleteAll(ctx context.Context, dir string) error
}

// New returns the calls over a ledger, and over blobs if there is a place for them. The audit trail is forwarded if
// there is a forwarder.
func New(l *ledger.Ledger, c *catalog.Calls, r *runs.Calls, s *schedules.Calls, t *trees.Calls, n *notifications.Calls, blobs blob.Store, f Forwarder) *Calls {
	own, _ := blobs.(deleter)
	return &Calls{ledger: l, catalog: c, runs: r, schedules: s, trees: t, notifications: n, blobs: own, forward: f}
}

const (
	onePage   = 25               // timers of one read: one read unit of DynamoDB
	maxLooked = 5000             // workflows that each part of a pass looks at
	maxPass   = 45 * time.Second // the time of both parts together
	margin    = 2 * time.Second  // between its end and its caller's deadline
)

// Pass makes the changes that time alone causes: lapsed leases, silent runners, passed deadlines and queue time-outs,
// in every organization. It is bounded in records and in time, also by ctx's deadline, and says if work remains for
// the next pass. A second pass is harmless, also at the same time. Run it once a minute.
//
// It has two parts. The urgent one is bounded by the active workflows: leases, runners, deadlines, limits. The other
// one is the queue time-outs of waiting workflows. The first part leaves a quarter of the time to the second, so that
// neither holds back the other.
func (p *Calls) Pass(ctx context.Context) (Summary, error) {
	began, budget := p.ledger.Now(), maxPass
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(deadline)-margin)
	}
	service, err := p.ledger.Tick(ctx)
	if err != nil {
		return Summary{}, err
	}
	now := &pass{Calls: p, service: service}
	from, err := p.places(ctx)
	if err != nil {
		return Summary{}, err
	}
	var next record.Places
	now.begin(began.Add(budget * 3 / 4))
	next.Urgent = now.all(ctx, from.Urgent, now.urgent)
	now.begin(began.Add(budget))
	next.Waits = now.all(ctx, from.Waits, now.waits)
	if next != from && ctx.Err() == nil {
		now.failed(p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
			err := c.Load(ctx, record.PlacesKey())
			c.Put(record.PlacesKey(), next)
			return err
		}))
	}
	if ctx.Err() != nil {
		now.failed(context.Cause(ctx))
	}
	return now.sum, errors.Join(now.failures...)
}

// places are where the last pass was cut short.
func (p *Calls) places(ctx context.Context) (out record.Places, err error) {
	r, err := p.ledger.Read(ctx, record.PlacesKey())
	if err == nil {
		err = r.Into(record.PlacesKey(), &out)
	}
	return out, err
}

// urgent are the rounds of an organization in the first part.
func (p *pass) urgent(org string) (rounds []round) {
	now := ranOut(p.ledger.Now())
	for _, part := range record.TimerParts(org) {
		rounds = append(rounds,
			p.timers(org, ofKind(part, record.LeaseTimers, now)),
			p.timers(org, ofKind(part, record.ServiceTimers, ranOut(p.service))))
	}
	return append(rounds,
		p.limits(org),
		func(ctx context.Context) round {
			p.failed(p.catalog.RemoveClosed(ctx, org))
			return nil
		},
		func(ctx context.Context) round {
			p.failed(p.notifications.Notify(ctx, org, p.until))
			return nil
		})
}

// waits are the rounds of an organization in the second part: they submit the runs of its schedules, advance its
// trees, end waiting workflows, delete expired records, and seal the audit trail.
func (p *pass) waits(org string) (rounds []round) {
	rounds = append(rounds, p.submits(org), p.advances(org, ""))
	for _, part := range record.TimerParts(org) {
		rounds = append(rounds, p.timers(org, ofKind(part, record.WaitTimers, ranOut(p.ledger.Now()))))
	}
	return append(rounds, func(ctx context.Context) round {
		var sum Summary
		p.failed(p.purge(ctx, org, p.until, &sum))
		p.purged(sum)
		return nil
	}, p.seals(org))
}

// submits submits the due runs of the schedules of an organization.
func (p *pass) submits(org string) round {
	return func(ctx context.Context) round {
		more, err := p.schedules.Round(ctx, org, p.until)
		if err != nil {
			p.failed(fmt.Errorf("schedules of %s: %w", org, err))
		}
		if !more || err != nil {
			return nil
		}
		return p.submits(org)
	}
}

// advances advances the trees of an organization, some in each round.
func (p *pass) advances(org, after string) round {
	return func(ctx context.Context) round {
		next, err := p.trees.AdvanceTrees(ctx, org, after, p.until)
		if err != nil {
			p.failed(fmt.Errorf("trees of %s: %w", org, err))
		}
		if next == "" {
			return nil
		}
		return p.advances(org, next)
	}
}

// ranOut sorts after every timer of the millisecond of a time.
func ranOut(at time.Time) string { return fmt.Sprintf("%015d0", at.UnixMilli()) }

// ofKind is the scan of the timers of one kind that ran out.
func ofKind(part, kind, ranOut string) store.Scan {
	return store.Scan{Part: part, From: kind, To: kind + ranOut}
}

// timers looks at one page of timers that ran out.
func (p *pass) timers(org string, due store.Scan) round {
	return func(ctx context.Context) round {
		due.Limit = onePage
		page, err := p.ledger.Range(ctx, due)
		if err != nil {
			p.failed(err)
			return nil
		}
		for _, r := range page.Records {
			if !p.take(ctx) {
				return nil
			}
			t, err := record.Decode[record.Name](r)
			moved := false
			if err == nil {
				moved, err = p.passOne(ctx, org, t.ID, r.Key, p.service)
			}
			if err != nil {
				err = fmt.Errorf("pass over %s: %w", r.Key.Sort, err)
			}
			p.looked(ctx, moved, err)
		}
		if page.Next == "" {
			return nil
		}
		due.After = page.Next
		return p.timers(org, due)
	}
}

// passOne looks at one workflow whose timer ran out.
func (p *Calls) passOne(ctx context.Context, org, id string, timer store.Key, service time.Time) (moved bool, err error) {
	var pool string
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		moved = false
		w, err := c.Workflow(ctx, org, id)
		if err != nil {
			return err
		}
		pool = w.PoolID
		if timer != record.TimerKey(w.Org, w.Due, w.ID) {
			return c.Disarm(ctx, timer)
		}
		beat, err := c.Beat(id)
		if err != nil {
			return err
		}
		lastCall := record.PoolCall{}
		if pool != "" { // one that was never claimed may have none
			if lastCall, _, err = ledger.Load[record.PoolCall](ctx, c, record.PoolCallKey(pool)); err != nil {
				return err
			}
		}
		now := rules.Time{Now: c.Now, Service: service, Lag: rules.Lag(lastCall, service)}
		o := rules.Due(w, beat, now)
		if o.Look {
			return p.look(ctx, c, w)
		}
		if !o.Slot && o.Event == "" {
			// Nothing is due; the timer moves to the time when something will be.
			c.Rearm(w, rules.Again(w, beat, now))
			return nil
		}
		moved = true
		return p.elapse(ctx, c, w, o)
	})
	if moved && err == nil {
		p.ledger.Notify(ledger.StatesOf(pool))
	}
	return moved, err
}

// elapse adds to a change the event of a timer that ran out.
func (p *Calls) elapse(ctx context.Context, c *ledger.Change, w *record.Workflow, o rules.Overdue) error {
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
	// If a heartbeat arrived meanwhile, this is decided again.
	if k := record.BeatKey(w.ID); out.Moves() && c.Version(k) != store.Absent {
		c.Check(k)
	}
	return c.Apply(ctx, w, out)
}
