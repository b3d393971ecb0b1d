package ledger

import (
	"context"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// A limit is a counter of active workflows: of an organization, or of a pool. It counts down late, never early. A
// claim adds to the counters in its commit. An end writes no counter, so that many ends at once do not race for one
// record: it makes an entry for each limit of which it frees a place. A later commit folds entries into the counter:
// it deletes them and subtracts them. So at any time counter − entries = active, and a claim that trusts the counter
// alone never exceeds a limit.
//
// A claim that finds no room notes that, and looks again after that (CutShort). An end looks for such notes after its
// commit. So one of the two sees the other: the claim finds the freed place, or the end wakes the claim's pool.

// maxFolded bounds the entries that one commit folds. With the limit's record it stays below store.MaxOps.
const maxFolded = 90

// place is a place in the limits of a pool and its organization.
type place struct{ org, pool string }

func limitsOf(w *record.Workflow) [2]store.Key {
	return [2]store.Key{record.OrganizationLimitKey(w.Org), record.PoolLimitKey(w.Org, w.PoolID)}
}

// deactivate frees the places of a workflow in its limits, once.
func (c *Change) deactivate(w *record.Workflow) {
	if !w.Active {
		return
	}
	w.Active = false
	c.RemoveOnce(record.ActiveKey(w.PoolID, w.ID))
	for _, limit := range limitsOf(w) {
		c.Create(record.FreedKey(limit, w.ID, w.Attempt), record.Freed{})
	}
	c.freed = append(c.freed, place{w.Org, w.PoolID})
}

// Limit reads a counter and makes it part of the change.
func (c *Change) Limit(ctx context.Context, k store.Key) (*record.Limit, error) {
	if limit := c.limits[k]; limit != nil {
		return limit, nil
	}
	limit, _, err := Load[record.Limit](ctx, c, k)
	if err != nil {
		return nil, err
	}
	c.limits[k] = &limit
	return &limit, nil
}

// Freed reads entries of a limit: up to perPart of each partition.
func (c *Change) Freed(ctx context.Context, limit store.Key, perPart int) (entries []store.Key, err error) {
	var scans []store.Scan
	for _, part := range record.FreedParts(limit) {
		scans = append(scans, store.Scan{Part: part, Limit: perPart})
	}
	pages, err := c.Ranges(ctx, scans...)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		for _, r := range page.Records {
			entries = append(entries, r.Key)
		}
	}
	return entries, nil
}

// maxCounted bounds the entries of one partition that are counted at once. Beyond that a limit is shown, and taken,
// as fuller than it is.
const maxCounted = 1000

// InUse is how many workflows are active under a limit. It grows only with the limit's version.
func (c *Change) InUse(ctx context.Context, limit store.Key) (int, error) {
	l, _, err := Load[record.Limit](ctx, c, limit)
	if err != nil || l.Active == 0 {
		return 0, err
	}
	// The entries are read after the counter: an entry that is folded meanwhile makes the answer too high, not too
	// low.
	entries, err := c.Freed(ctx, limit, maxCounted)
	return l.Active - len(entries), err
}

// Fold folds entries into the counter of a limit, in a commit of its own. It says how many, and whether there are
// more.
func (l *Ledger) Fold(ctx context.Context, limit store.Key) (n int, more bool, err error) {
	err = l.ChangeHot(ctx, Ahead{}, func(ctx context.Context, c *Change) error {
		counter, err := c.Limit(ctx, limit)
		if err != nil {
			return err
		}
		entries, err := c.Freed(ctx, limit, maxFolded)
		if err != nil {
			return err
		}
		n = min(len(entries), maxFolded)
		more, entries = n < len(entries), entries[:n]
		if n == 0 {
			return nil
		}
		for _, k := range entries {
			c.RemoveOnce(k)
		}
		counter.Active -= n
		return nil
	})
	return n, more, err
}

// CutShort notes that a limit cut the claim of a pool short, and reports whether it has room after all.
func (l *Ledger) CutShort(ctx context.Context, org, pool string, limit store.Key, maxActive int) (room bool, err error) {
	k := record.CutKey(org, pool)
	err = l.Change(ctx, func(ctx context.Context, c *Change) error {
		if err := c.Load(ctx, k); err != nil {
			return err
		}
		// It is written in any case: an end that has read the version before must not clear it.
		c.Put(k, record.Cut{At: c.Now, Organization: record.PoolOfLimit(limit) == ""})
		return nil
	})
	if err != nil {
		return false, err
	}
	// The entries are read before the counter: an entry that is folded meanwhile is seen in one of the two.
	c := l.View()
	entries, err := c.Freed(ctx, limit, maxFolded)
	if err != nil {
		return false, err
	}
	counter, _, err := Load[record.Limit](ctx, c, limit)
	return err == nil && counter.Active-len(entries) < maxActive, err
}

// WakeCut wakes pools of an organization whose claims were cut short.
func (l *Ledger) WakeCut(ctx context.Context, org string) {
	l.owe(ctx, l.waitFor(ctx, []place{{org: org}}, maxWoken), nil)
}

// waitFor returns the pools whose claims were cut short by the limits of the freed places: at most maxPools, those
// that were cut last. It clears their notes; of many ends at the same time one gets each of them. The other pools
// wait for the next end, or for their schedule. A place without a pool is of every pool.
func (l *Ledger) waitFor(ctx context.Context, freed []place, maxPools int) (pools []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
	defer cancel()
	type noted struct {
		rec store.Record
		cut record.Cut
	}
	for _, p := range freed {
		page, err := l.Range(ctx, store.Scan{Part: record.CutPart(p.org), Limit: 1000})
		if err != nil {
			return pools
		}
		var cut []noted
		for _, r := range page.Records {
			n, err := record.Decode[record.Cut](r)
			if err == nil && !n.At.IsZero() && (n.Organization || p.pool == "" || p.pool == r.Key.Sort) {
				cut = append(cut, noted{r, n})
			}
		}
		slices.SortFunc(cut, func(a, b noted) int { return b.cut.At.Compare(a.cut.At) })
		for _, one := range cut[:max(0, min(len(cut), maxPools-len(pools)))] {
			if l.Commit(ctx, []store.Op{store.Put(record.Encode(one.rec.Key, record.Cut{}), one.rec.Version)}) == nil {
				pools = append(pools, one.rec.Key.Sort)
			}
		}
	}
	return pools
}
