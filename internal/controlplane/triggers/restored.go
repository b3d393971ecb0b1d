package triggers

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const ofRestore = "the records were restored from an earlier copy"

// EndRestored keeps an organization whose records were restored from submitting and telling what nobody asks for now. It
// adds what it did to out.
func (p *Calls) EndRestored(ctx context.Context, org string, out *api.Restored) error {
	for _, one := range []struct {
		scan store.Scan
		end  func(k store.Key) error
	}{
		{store.Scan{Part: record.OpenTreePart(org), Limit: 100}, func(k store.Key) error { return p.endTree(ctx, org, k.Sort, out) }},
		{record.SettingsOf(org, kind.Schedule, 100), func(k store.Key) error { return p.resetSchedule(ctx, k, out) }},
		// Deliveries are made of news, so that goes first.
		{store.Scan{Part: record.NewsPart(org), Limit: 100}, func(k store.Key) error { return p.dropNews(ctx, k) }},
		{store.Scan{Part: record.DeliveryPart(org), Limit: 100}, func(k store.Key) error { return p.dropDelivery(ctx, org, k.Sort, out) }},
	} {
		for r, err := range p.ledger.View().All(ctx, one.scan) {
			if err == nil {
				err = one.end(r.Key)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// endTree cancels what waits in a tree. Its runs are ended, or go on, as all others.
func (p *Calls) endTree(ctx context.Context, org, id string, out *api.Restored) error {
	ended := 0
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		ended = 0
		k := record.RunTreeKey(org, id)
		t, ok, err := ledger.Load[record.RunTree](ctx, c, k)
		if err != nil || !ok || t.Over() || len(t.In(api.TreeWaiting)) == 0 {
			return err
		}
		for i := range t.Nodes {
			if n := &t.Nodes[i]; n.State == api.TreeWaiting {
				n.State, n.Note = api.TreeCancelled, ofRestore
			}
		}
		c.Put(k, t)
		ended = 1
		return nil
	})
	out.Trees += ended
	return err
}

// resetSchedule lets a schedule count from now: no time that has passed is made up for. One that changes states is paused,
// until somebody has looked at them.
func (p *Calls) resetSchedule(ctx context.Context, k store.Key, out *api.Restored) error {
	paused := 0
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		paused = 0
		s, ok, err := ledger.Load[schedule](ctx, c, k)
		if err != nil || !ok || s.V.IsPaused {
			return err
		}
		done, _, err := ledger.Load[record.Cycle](ctx, c, record.CycleKey(s.ID))
		if err != nil {
			return err
		}
		due, err := cycleOf(s, done, c.Now)
		if err != nil {
			return err
		}
		if workflow.ChangesState(s.V.Type, s.V.Operation) {
			s.V.IsPaused, paused = true, 1
		} else if !due.open() {
			return nil
		}
		s.V.ResumedAt = &c.Now
		c.Put(k, s)
		return nil
	})
	out.Schedules += paused
	return err
}

func (p *Calls) dropNews(ctx context.Context, k store.Key) error {
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		err := c.Load(ctx, k)
		c.Remove(k)
		return err
	})
}

// dropDelivery gives up a delivery that is not over. It can be replayed.
func (p *Calls) dropDelivery(ctx context.Context, org, id string, out *api.Restored) error {
	dropped := 0
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		dropped = 0
		d, ok, err := delivery(ctx, c, org, id)
		if err != nil || !ok || !d.Ended.IsZero() {
			return err
		}
		dropped = 1
		over(&d, api.DeliveryFailed, ofRestore, c.Now)
		write(c, &d)
		return unshow(ctx, c, d)
	})
	out.Deliveries += dropped
	return err
}

// unshow notes that a pull request is not shown by a delivery that was dropped. The next event of it shows it again.
func unshow(ctx context.Context, c *ledger.Change, d record.Delivery) error {
	if d.Kind != api.DeliverShow {
		return nil
	}
	k := record.PullKey(d.Org, d.Pull.HostID, d.Pull.Repository, d.Pull.Number)
	pull, ok, err := ledger.Load[record.Pull](ctx, c, k)
	if err != nil || !ok || pull.Showing != d.ID {
		return err
	}
	pull.Showing, pull.Stale = "", false
	c.PutUntil(k, pull, c.Now.Add(record.PullKept))
	return nil
}
