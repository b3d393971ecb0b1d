package notifications

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pulls"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// EndRestored drops the pending events and deliveries of an organization whose records were restored. It counts them
// in out.
func (p *Calls) EndRestored(ctx context.Context, org, why string, out *api.Restored) error {
	for _, one := range []struct {
		scan store.Scan
		end  func(k store.Key) error
	}{
		// Deliveries are made of events, so events go first.
		{store.Scan{Part: record.OutboxPart(org), Limit: 100}, func(k store.Key) error { return p.dropEvent(ctx, k) }},
		{store.Scan{Part: record.DeliveryPart(org), Limit: 100}, func(k store.Key) error { return p.dropDelivery(ctx, org, k.Sort, why, out) }},
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

func (p *Calls) dropEvent(ctx context.Context, k store.Key) error {
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		err := c.Load(ctx, k)
		c.Remove(k)
		return err
	})
}

// dropDelivery gives up a delivery that is not over. It can be replayed.
func (p *Calls) dropDelivery(ctx context.Context, org, id, why string, out *api.Restored) error {
	dropped := 0
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		dropped = 0
		d, ok, err := c.Delivery(ctx, org, id)
		if err != nil || !ok || !d.Ended.IsZero() {
			return err
		}
		dropped = 1
		over(&d, api.DeliveryFailed, why, c.Now)
		c.PutDelivery(&d)
		return pulls.Unshow(ctx, c, d)
	})
	out.Deliveries += dropped
	return err
}
