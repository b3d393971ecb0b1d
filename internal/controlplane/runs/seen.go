package runs

import (
	"cmp"
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const seenEvery = 20 * time.Second // how often an instance's record is written

// seenKeys are the records that seen reads, and the organization's own limit. A claim reads them with its own.
func (p *Calls) seenKeys(who identity.Principal, in api.Claim) []store.Key {
	keys := append(p.ledger.LimitKeys(who.Organization), record.RunnerKey(who.PoolID, in.Instance))
	if calls := p.ledger.PoolCallKeys(who.PoolID); len(calls) > 0 {
		keys = append(append(keys, calls...), record.SoleKey(who.PoolID))
	}
	return keys
}

// seen adds to the commit of a claim that the pool and its instance are alive. It refuses a second process of the
// instance, and a second instance if the pool allows only one: so neither gets a job, and no claim waits for a commit
// of its own. It returns the pool. A call without a version or a process does not change the record.
func seen(ctx context.Context, c *ledger.Change, who identity.Principal, in api.Claim) (record.Pool, error) {
	pool, ok, err := ledger.Load[record.Pool](ctx, c, record.PoolKey(who.Organization, who.PoolID))
	if err == nil && !ok {
		err = workflow.Refuse(workflow.ErrRevoked, "", "the pool of this token was deleted")
	}
	if err != nil {
		return pool, err
	}
	k := record.RunnerKey(pool.ID, in.Instance)
	me, known, err := ledger.Load[record.Runner](ctx, c, k)
	boot := cmp.Or(who.Process.Boot, me.Boot)
	if err != nil || known && c.Now.Sub(me.Last) < seenEvery && cmp.Or(in.Version, me.Version) == me.Version && boot == me.Boot {
		return pool, err
	}
	if a := rules.Occupy(me, who.Process, c.Now, catalog.Offline); a.Refused {
		return pool, workflow.Refuse(workflow.ErrInstanceTaken, "instance", "instance %q of pool %s: %s. Stop one of the two; if this one's data directory is a copy, start it with one of its own. If the other has ended, this one is admitted %s after that call", in.Instance, pool.Name, a.Why, catalog.Offline)
	}
	if !pool.Multiple {
		if err := onlyOne(ctx, c, pool, in.Instance); err != nil {
			return pool, err
		}
	}
	rec := record.Runner{Name: in.Instance, Version: cmp.Or(in.Version, me.Version), Boot: boot, First: c.Now, Last: c.Now}
	if known {
		rec.First = me.First
	}
	c.PutUntil(k, rec, c.Now.Add(api.RunnerKept))
	return pool, c.NotePoolCall(ctx, pool.ID)
}

// onlyOne lets only one instance of a pool poll. All instances write the same record, so if two begin at the same
// moment only one of them succeeds.
func onlyOne(ctx context.Context, c *ledger.Change, pool record.Pool, instance string) error {
	k := record.SoleKey(pool.ID)
	sole, _, err := ledger.Load[record.Sole](ctx, c, k)
	if err != nil {
		return err
	}
	if sole.Instance != instance && c.Now.Sub(sole.Last) < catalog.Offline {
		return workflow.Refuse(workflow.ErrInUse, "instance", "instance %q already polls pool %s, and the pool does not allow several; stop it, wait %s, or set allow_multiple_instances", sole.Instance, pool.Name, catalog.Offline)
	}
	c.Put(k, record.Sole{Instance: instance, Last: c.Now})
	return nil
}
