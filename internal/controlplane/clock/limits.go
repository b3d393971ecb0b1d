package clock

import (
	"context"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// limits routes workspaces with outdated routes again, folds ended workflows into the counters of an organization,
// wakes the pools that wait for a place, and checks that the counters add up. A counter at zero has nothing to fold,
// so an organization in which nothing runs costs one read.
func (p *pass) limits(org string) round {
	return func(ctx context.Context) round {
		busy, rerouting, err := p.busy(ctx, org)
		if err != nil {
			p.failed(err)
			return nil
		}
		if rerouting {
			p.failed(p.catalog.RerouteOn(ctx, org, func(int) bool { return p.over(ctx) }))
		}
		if len(busy) == 0 {
			return nil
		}
		folded := 0
		for _, t := range busy {
			for more := true; more && !p.over(ctx); {
				var n int
				if n, more, err = p.ledger.Fold(ctx, t.limit); err != nil {
					p.failed(err)
					break
				}
				folded += n
			}
		}
		if folded > 0 {
			p.ledger.WakeCut(ctx, org)
		}
		if !p.over(ctx) {
			p.failed(p.check(ctx, org))
		}
		return nil
	}
}

// tally holds the counter of a limit and the numbers that it should match.
type tally struct {
	limit                  store.Key
	version                int64
	counted, freed, active int
}

// busy reads the counters of an organization that are not zero, and whether its workspaces are being routed again.
func (p *pass) busy(ctx context.Context, org string) (busy []tally, rerouting bool, err error) {
	for r, err := range p.ledger.View().All(ctx, store.Scan{Part: record.LimitPart(org), Limit: 1000}) {
		if err == nil && r.Key == record.ReroutingKey(org) {
			rerouting = true
		} else if err == nil {
			var l record.Limit
			if err = record.DecodeInto(r, &l); l.Active != 0 {
				busy = append(busy, tally{limit: r.Key, version: r.Version, counted: l.Active})
			}
		}
		if err != nil {
			return nil, false, err
		}
	}
	return busy, rerouting, nil
}

// maxChecked bounds the pools of an organization that are checked. Where more are busy, none is.
const maxChecked = 100

// check compares the counters of an organization with its active workflows. Its reads are not a snapshot. If it does
// not add up, it looks again: if nothing changed from look to look, then nothing changed while it read, because each
// claim, each end and each fold changes a counter or an entry. It only logs a difference. A counter that is too high
// holds work back, one that is too low exceeds a limit, and both come from a mistake that a person must see.
func (p *pass) check(ctx context.Context, org string) error {
	first, err := p.tally(ctx, org)
	if err != nil || len(first) > maxChecked {
		return err
	}
	wrong := func(t tally) bool { return t.counted-t.freed != t.active }
	if !slices.ContainsFunc(first, wrong) {
		return nil
	}
	second, err := p.tally(ctx, org)
	if err != nil || !slices.Equal(first, second) {
		return err
	}
	for _, t := range first {
		if wrong(t) {
			p.ledger.Log.Error("a limit does not match its active workflows", "organization", org, "limit", t.limit.Sort, "counted", t.counted, "freed", t.freed, "active", t.active)
		}
	}
	return nil
}

// tally reads the counters that are not zero, then the entries of places that were freed, the organization's first,
// then the active workflows.
func (p *pass) tally(ctx context.Context, org string) (all []tally, err error) {
	if all, _, err = p.busy(ctx, org); err != nil || len(all) > maxChecked {
		return all, err
	}
	c, sum := p.ledger.View(), 0
	for i := range all { // "org" sorts before "pool/..."
		entries, err := c.Freed(ctx, all[i].limit, 1000)
		if err != nil {
			return nil, err
		}
		all[i].freed = len(entries)
	}
	for i := range all {
		pool := record.PoolOfLimit(all[i].limit)
		if pool == "" {
			continue
		}
		for _, err := range c.All(ctx, store.Scan{Part: record.ActivePart(pool), Limit: 1000}) {
			if err != nil {
				return nil, err
			}
			all[i].active++
		}
		sum += all[i].active
	}
	if len(all) > 0 && all[0].limit == record.OrganizationLimitKey(org) {
		all[0].active = sum
	}
	return all, nil
}
