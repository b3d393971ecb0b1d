package notifications

import (
	"context"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pulls"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	deliveryLease = 2 * time.Minute
	maxDeliveries = 20  // that one claim hands out
	maxResult     = 500 // bytes of the detail of a try
)

// backoff is how long a delivery waits after each of its tries.
var backoff = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour}

// nextTry is the time of the next try of a delivery that failed at a time; ok is false if it is given up. It is a
// pure function.
func nextTry(d record.Delivery, in api.DeliveryResult, now time.Time) (at time.Time, ok bool) {
	wait := max(backoff[min(max(d.Tries, 1), len(backoff))-1], api.Seconds(in.RetryAfterSeconds))
	at = now.Add(wait)
	return at, at.Before(d.Since.Add(record.DeliveryTried))
}

// over ends a delivery.
func over(d *record.Delivery, state, detail string, now time.Time) {
	d.State, d.Detail, d.Ended, d.Next = state, text.Cut(detail, maxResult), now, time.Time{}
}

// ClaimDeliveries hands out deliveries of the pool that are due.
func (p *Calls) ClaimDeliveries(ctx context.Context, who identity.Principal, in api.DeliveryClaim) (out api.DeliveriesClaimed, err error) {
	if err := who.NeedsPool("claim deliveries"); err != nil {
		return out, err
	}
	if in.Max < 1 || in.Max > maxDeliveries {
		return out, workflow.Invalid("max", "max lies between 1 and %d", maxDeliveries)
	}
	if in.Instance == "" || len(in.Instance) > 128 {
		return out, workflow.Invalid("instance", "a claim names its instance, in at most 128 bytes")
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		out = api.DeliveriesClaimed{Tasks: []api.DeliveryTask{}}
		var err error
		out.Short, err = p.claim(ctx, c, who, in, &out.Tasks)
		return err
	})
	if err != nil {
		return api.DeliveriesClaimed{}, err
	}
	if len(out.Tasks) > 0 {
		p.ledger.Log.Info("deliveries claimed", "pool", who.Pool, "instance", in.Instance, "deliveries", len(out.Tasks))
	}
	return out, nil
}

// claim adds the claim of deliveries to a change, and says whether there are no more.
func (p *Calls) claim(ctx context.Context, c *ledger.Change, who identity.Principal, in api.DeliveryClaim, tasks *[]api.DeliveryTask) (short bool, err error) {
	mark := record.DeliveriesKey(who.PoolID)
	was, _, err := ledger.Load[record.Deliveries](ctx, c, mark) // before the entries: see Deliver of the ledger
	if err != nil {
		return false, err
	}
	page, err := c.Range(ctx, store.Scan{Part: record.DuePart(who.PoolID), Limit: in.Max + 1})
	if err != nil {
		return false, err
	}
	var next time.Time // when the next one is due
	seen := false      // whether that one was read
	for i, r := range page.Records {
		id, err := record.Decode[record.Name](r)
		if err != nil {
			return false, err
		}
		d, ok, err := ledger.Load[record.Delivery](ctx, c, record.DeliveryKey(who.Organization, id.ID))
		if err != nil {
			return false, err
		}
		if !ok || d.Due != r.Key.Sort { // deleted by the store, or moved between the reads
			c.Add(store.Delete(r.Key, r.Version))
			continue
		}
		if seen = i == in.Max || c.Now.Before(d.Next); seen {
			next = earlier(next, d.Next)
			break
		}
		one, err := p.claimOne(ctx, c, &d)
		if err != nil {
			return false, err
		}
		if next = earlier(next, d.Next); one != nil {
			*tasks = append(*tasks, *one)
		}
	}
	if page.Next != "" && !seen {
		next = c.Now
	}
	if now := (record.Deliveries{Next: next}); now != was || len(c.Ops()) > 0 {
		c.Put(mark, now)
	}
	return next.IsZero() || next.After(c.Now), nil
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// claimOne adds the claim of a delivery that is due; nil where it is given up instead.
func (p *Calls) claimOne(ctx context.Context, c *ledger.Change, d *record.Delivery) (*api.DeliveryTask, error) {
	if d.Stands(c.Now) == api.DeliveryFailed {
		return nil, p.fail(ctx, c, d, tooLate(*d))
	}
	out, why, err := p.task(ctx, c, d)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return nil, p.fail(ctx, c, d, why)
	}
	d.Attempt, d.Tries, d.State, d.Next = d.Attempt+1, d.Tries+1, api.DeliveryClaimed, c.Now.Add(deliveryLease)
	c.PutDelivery(d)
	out.ID, out.Attempt, out.LeaseSeconds = d.ID, d.Attempt, deliveryLease.Seconds()
	return &out, nil
}

// fail gives a delivery up.
func (p *Calls) fail(ctx context.Context, c *ledger.Change, d *record.Delivery, why string) error {
	over(d, api.DeliveryFailed, why, c.Now)
	c.PutDelivery(d)
	return pulls.Shown(ctx, c, *d, nil)
}

// tooLate says why a delivery is given up after a day.
func tooLate(d record.Delivery) string {
	if d.Tries == 0 {
		return "pool " + d.Pool + " did not ask for it within a day"
	}
	return "it was not done within a day; the last try said: " + text.Cut(d.Detail, 300)
}

// task is the task of a delivery by the current settings; why says why there is none.
func (p *Calls) task(ctx context.Context, c *ledger.Change, d *record.Delivery) (out api.DeliveryTask, why string, err error) {
	switch {
	case d.Notice != nil:
		out.Send, why, err = sending(ctx, c, *d)
		return out, why, err
	case d.Pull != nil:
		out.Host, why, err = p.pulls.PullTask(ctx, c, d)
		return out, why, err
	}
	return out, "this version of the control plane does not know deliveries of kind " + text.Quote(d.Kind, 40), nil
}

// DeliveryDone records the result of a try. The result of an earlier try than the latest changes nothing.
func (p *Calls) DeliveryDone(ctx context.Context, who identity.Principal, id string, in api.DeliveryResult) error {
	if err := who.NeedsPool("report a delivery"); err != nil {
		return err
	}
	if err := checkResult(in); err != nil {
		return err
	}
	if in.IsDone {
		var err error
		if in, err = p.readFirst(ctx, who, id, in); err != nil {
			return err
		}
	}
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		d, ok, err := c.Delivery(ctx, who.Organization, id)
		if err != nil {
			return err
		}
		if !ok || d.PoolID != who.PoolID {
			return noDelivery(id)
		}
		if d.State != api.DeliveryClaimed || d.Attempt != in.Attempt {
			return nil // reported before, or another try has begun
		}
		noteTry(&d, in, c.Now)
		c.PutDelivery(&d)
		if !d.Ended.IsZero() {
			if err := pulls.Shown(ctx, c, d, in.Comment); err != nil {
				return err
			}
		}
		return mark(ctx, c, &d)
	})
}

func checkResult(in api.DeliveryResult) error {
	if len(in.Detail) > maxResult || in.RetryAfterSeconds < 0 || in.RetryAfterSeconds > (24*time.Hour).Seconds() || in.IsDone && in.IsPermanent {
		return workflow.Invalid("", "a result has at most %d bytes of detail, waits for at most a day, and is not both done and refused for good", maxResult)
	}
	return nil
}

// noteTry notes the result of a try: the delivery is over, or waits for its next try.
func noteTry(d *record.Delivery, in api.DeliveryResult, now time.Time) {
	d.Detail = in.Detail
	at, again := nextTry(*d, in, now)
	switch {
	case in.IsDone:
		over(d, api.DeliveryDone, in.Detail, now)
	case in.IsPermanent, !again:
		over(d, api.DeliveryFailed, in.Detail, now)
	default:
		d.State, d.Next = api.DeliveryWaiting, at
	}
}

// readFirst acts on a pull request before the delivery that read it is done: after a crash it is read again. It
// returns the result of the try.
func (p *Calls) readFirst(ctx context.Context, who identity.Principal, id string, in api.DeliveryResult) (api.DeliveryResult, error) {
	d, ok, err := p.ledger.View().Delivery(ctx, who.Organization, id)
	if err != nil || !ok || d.PoolID != who.PoolID || d.Kind != api.DeliverRead || d.Pull == nil || d.State != api.DeliveryClaimed || d.Attempt != in.Attempt {
		return in, err
	}
	return p.pulls.PullRead(ctx, d, in, d.Next.Add(-deliveryLease))
}

// mark notes when the next delivery of a pool is due after one of them has changed.
func mark(ctx context.Context, c *ledger.Change, d *record.Delivery) error {
	k := record.DeliveriesKey(d.PoolID)
	if err := c.Load(ctx, k); err != nil {
		return err
	}
	page, err := c.Range(ctx, store.Scan{Part: record.DuePart(d.PoolID), Limit: 2}) // one of them may be its own
	if err != nil {
		return err
	}
	next := d.Next
	for _, r := range page.Records {
		var nano int64
		if _, err := fmt.Sscanf(r.Key.Sort, "%020d/", &nano); err != nil {
			return fmt.Errorf("entry %s of a delivery has no time: %w", r.Key, err)
		}
		id, err := record.Decode[record.Name](r)
		if err != nil {
			return err
		}
		if id.ID != d.ID {
			next = earlier(next, time.Unix(0, nano).UTC())
		}
	}
	c.Put(k, record.Deliveries{Next: next})
	return nil
}

func noDelivery(id string) error {
	return workflow.Refuse(workflow.ErrNotFound, "id", "there is no delivery %q", text.Cut(id, 64))
}

// Deliveries lists the deliveries of the organization, the newest first; with a filter only those in a state, or for
// one notification or git host.
func (p *Calls) Deliveries(ctx context.Context, who identity.Principal, in api.DeliveryFilter) (api.Page[api.Delivery], error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "delivery.list", ""); err != nil {
		return api.Page[api.Delivery]{}, err
	}
	now := p.ledger.Now()
	scan := store.Scan{Part: record.DeliveryPart(who.Organization), Reverse: true, Limit: ledger.PageSize(in.Limit, 200)}
	return ledger.ListWhere(ctx, p.ledger, scan, in.Cursor, func(d record.Delivery) (bool, error) {
		return (in.State == "" || d.Stands(now) == in.State) && (in.For == "" || d.For == in.For), nil
	}, func(d record.Delivery, _ int64) api.Delivery { return viewDelivery(d, now) })
}

// FailedDeliveries are the newest failed deliveries, up to a limit; more says that there are others. It reads little,
// so that a page may ask every few seconds.
func (p *Calls) FailedDeliveries(ctx context.Context, who identity.Principal, limit int) (out []api.Delivery, more bool, err error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "delivery.list", ""); err != nil {
		return nil, false, err
	}
	page, err := p.ledger.Query(ctx, store.Index1, store.Scan{Part: record.UndoneIndex(who.Organization), Reverse: true, Limit: 5 * limit})
	if err != nil {
		return nil, false, err
	}
	now := p.ledger.Now()
	for _, r := range page.Records {
		d, err := record.Decode[record.Delivery](r)
		if err != nil {
			return nil, false, err
		}
		if d.Stands(now) != api.DeliveryFailed {
			continue
		}
		if len(out) == limit {
			return out, true, nil
		}
		out = append(out, viewDelivery(d, now))
	}
	return out, page.Next != "", nil
}

// viewDelivery is a delivery as people see it.
func viewDelivery(d record.Delivery, now time.Time) api.Delivery {
	out := api.Delivery{ID: d.ID, Kind: d.Kind, For: d.For, Pool: d.Pool, State: d.Stands(now), Attempts: d.Attempt, Detail: d.Detail, CreatedAt: d.Created}
	if n := d.Notice; n != nil {
		out.Event, out.Workflow, out.Workspace = n.Event, n.Workflow, n.Workspace
	}
	if about := d.Pull; about != nil {
		out.Repository, out.Number = about.Repository, about.Number
	}
	switch {
	case !d.Ended.IsZero():
		out.EndedAt = &d.Ended
	case out.State == api.DeliveryFailed:
		at := d.Since.Add(record.DeliveryTried)
		out.EndedAt, out.Detail = &at, tooLate(d)
	case out.State == api.DeliveryWaiting:
		out.NextAt = &d.Next
	}
	return out
}

// ReplayDelivery lets a delivery that has failed be tried again.
func (p *Calls) ReplayDelivery(ctx context.Context, who identity.Principal, id string) (out api.Delivery, err error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "delivery.replay", id); err != nil {
		return out, err
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		d, ok, err := c.Delivery(ctx, who.Organization, id)
		if err == nil && !ok {
			err = noDelivery(id)
		}
		if err != nil {
			return err
		}
		if s := d.Stands(c.Now); s != api.DeliveryFailed {
			return workflow.Refuse(workflow.ErrConflict, "id", "delivery %s is %s: only one that has failed is tried again", id, s)
		}
		name, err := wantedPool(ctx, c, d)
		if err != nil {
			return err
		}
		pool, err := catalog.Named(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		if d.Due != "" { // its pool did not ask for it
			c.RemoveOnce(record.DueKey(d.PoolID, d.Due))
			d.Due = ""
		}
		d.Detail = ""
		if err := c.Deliver(ctx, &d, pool); err != nil {
			return err
		}
		identity.Audit(c, who, "delivery.replay", id, "done", fmt.Sprintf("%s %s, after %s", d.Kind, d.For, text.Count(d.Attempt, "try")))
		out = viewDelivery(d, c.Now)
		return nil
	})
	return out, err
}
