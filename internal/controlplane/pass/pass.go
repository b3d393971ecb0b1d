// Package pass is the control plane's own clock: it moves what time alone moves.
package pass

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/moves"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pools"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/controlplane/why"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Summary counts what one pass did.
type Summary struct {
	Looked, Moved, Failed int
	Left                  bool // something was left to the next pass
	UpSince               time.Time
}

// Calls answers the schedule.
type Calls struct {
	ledger *ledger.Ledger
	board  *moves.Board
	wakes  *wake.Wakes
	why    *why.Reader
	pools  *pools.Calls
}

// New returns the calls.
func New(ledger *ledger.Ledger, board *moves.Board, wakes *wake.Wakes, why *why.Reader, pools *pools.Calls) *Calls {
	return &Calls{ledger: ledger, board: board, wakes: wakes, why: why, pools: pools}
}

const (
	every   = time.Minute
	missed  = 2 * every        // a last pass older than this means that the control plane was away
	onePage = 200              // timers of one read
	most    = 5000             // workflows that one pass looks at
	longest = 45 * time.Second // and for how long
	margin  = 2 * time.Second  // that it leaves before the deadline of who makes it
)

// Pass moves what time alone moves: lapsed leases, silent runners, passed deadlines and queue
// time-outs, of every organization. It is bounded in records and in time, also by ctx's deadline, and
// says when it left something to the next one. It is harmless twice or twice at once. Run it once a minute.
func (p *Calls) Pass(ctx context.Context) (Summary, error) {
	var sum Summary
	began, budget := p.ledger.Now(), longest
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(deadline)-margin)
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
		if err := p.pools.RemoveClosed(ctx, org.Key.Sort); err != nil {
			failures = append(failures, err)
		}
	}
	return sum, errors.Join(failures...)
}

// markPass records that a pass runs and returns since when the control plane is up.
func (p *Calls) markPass(ctx context.Context) (time.Time, error) {
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
		if !ok || now.Sub(rec.Last) > missed {
			rec.UpSince = now
		}
		rec.Last = rules.Latest(rec.Last, now)
		up = rec.UpSince
		return []store.Op{store.Put(record.Encode(record.PassKey(), rec), r.Version(record.PassKey()))}, nil
	})
	return up, err
}

func (p *Calls) passOrg(ctx context.Context, org string, up, until time.Time, sum *Summary) error {
	var failures []error
	to := fmt.Sprintf("%015d0", p.ledger.Now().UnixMilli()) // behind every entry of this millisecond
	page := store.Page{}
	for {
		var err error
		page, err = p.ledger.Range(ctx, store.Scan{Part: record.TimerPart(org), To: to, Limit: onePage, After: page.Next})
		if err != nil {
			return ledger.OutOfStore(fmt.Errorf("read timers: %w", err))
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
				moved, err = p.passOne(ctx, org, t.ID, up)
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
		if page.Next == "" {
			return errors.Join(failures...)
		}
	}
}

// passOne looks at one workflow whose timer ran out.
func (p *Calls) passOne(ctx context.Context, org, id string, up time.Time) (moved bool, err error) {
	var pool string
	err = p.board.ChangeHot(ctx, func(ctx context.Context, c *moves.Change) error {
		moved = false
		w, err := c.Workflow(ctx, org, id)
		if err != nil {
			return err
		}
		pool = w.PoolID
		beat, err := c.Beat(id)
		if err != nil {
			return err
		}
		o := rules.Due(w, beat, up, c.Now)
		if !o.Slot && o.Event == "" {
			// Nothing is due; the timer moves to where something will be.
			return c.Rearm(w, beat, up)
		}
		if o.Event == workflow.OnQueueTimeout {
			waited, err := p.why.Pending(ctx, c, w)
			if err != nil {
				return err
			}
			o.Text += "; the last thing that it waited for was " + waited
		}
		out, err := rules.Elapsed(w, o)
		if err != nil {
			return err
		}
		moved = true
		// A heartbeat that came in meanwhile makes this decide again.
		if k := record.BeatKey(id); out.Moves() && c.Version(k) != store.Absent {
			c.Check(k)
		}
		return c.Apply(ctx, w, out)
	})
	if moved && err == nil {
		p.wakes.Ring(wake.StatesOf(pool))
	}
	return moved, err
}
