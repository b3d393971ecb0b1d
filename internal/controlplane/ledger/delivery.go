package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// A delivery is stored under its organization, and while it is not over it has an entry under its pool, at the time
// when it is due: for its next try, or because the lease of the try under way lapses. Each commit writes both. It is
// done at least once: a try whose result is lost is repeated, and receivers recognise a delivery by its id.

// Delivery reads a delivery into the change.
func (c *Change) Delivery(ctx context.Context, org, id string) (record.Delivery, bool, error) {
	if record.CheckID(id) != nil {
		return record.Delivery{}, false, nil //nolint:nilerr // an invalid id is that of no delivery
	}
	return Load[record.Delivery](ctx, c, record.DeliveryKey(org, id))
}

// PutDelivery writes a delivery, with its entry at the time when it is due next. One that is over has none.
func (c *Change) PutDelivery(d *record.Delivery) {
	if d.Due != "" {
		c.RemoveOnce(record.DueKey(d.PoolID, d.Due))
	}
	if d.Due = ""; !d.Next.IsZero() {
		// It has the version of the record that this commit writes, so it is never used again.
		d.Due = fmt.Sprintf("%s/%s/%d", record.At(d.Next), d.ID, c.Version(record.DeliveryKey(d.Org, d.ID))+1)
		entry := record.Encode(record.DueKey(d.PoolID, d.Due), record.Name{ID: d.ID})
		entry.Expires = d.Expires().Unix()
		c.Add(store.Put(entry, store.Absent))
	}
	c.Add(store.Put(record.EncodeDelivery(*d), c.Version(record.DeliveryKey(d.Org, d.ID))))
}

// Deliver makes a delivery due at once on the side of a pool, and wakes the pool.
func (c *Change) Deliver(ctx context.Context, d *record.Delivery, pool record.Pool) error {
	d.PoolID, d.Pool, d.Since, d.Tries, d.Ended = pool.ID, pool.Name, c.Now, 0, time.Time{}
	d.State, d.Next = api.DeliveryWaiting, c.Now
	c.PutDelivery(d)
	mark := record.DeliveriesKey(d.PoolID)
	if err := c.Load(ctx, mark, record.WakeKey(d.PoolID), record.WakeTargetKey(d.PoolID)); err != nil {
		return err
	}
	was, _, err := Get[record.Deliveries](c.Read, mark)
	if err != nil {
		return err
	}
	if was.Next.IsZero() || c.Now.Before(was.Next) {
		was.Next = c.Now
	}
	c.Put(mark, was) // in any case: a claim that has seen no delivery must not clear it
	c.Wake(d.PoolID)
	return nil
}
