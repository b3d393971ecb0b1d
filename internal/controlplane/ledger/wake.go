package ledger

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// A wake notifies the poller of a pool that there may be work. It is only a shortcut: it has no content and may be
// lost, because a poller also looks again on its own.

// wakeEvery is how old a wake mark must be before another wake is sent for it: the earlier wake may have been lost.
const wakeEvery = 2 * time.Second

// wakeTime bounds everything that is done about the wakes of one commit until they are on their way. The caller waits
// for that, because a function is frozen as soon as it has answered.
const wakeTime = time.Second

// Waker wakes the poller of a pool.
type Waker interface {
	// Wake starts the pool's target, as an admin set it. It returns as soon as the wake is on its way, and waits
	// neither for an answer nor for the result. The wake has no content. Wake may be called concurrently, and may
	// wake a target twice.
	Wake(ctx context.Context, target string) error
}

// maxWoken bounds how many pools one commit wakes; the others wait for their schedule.
const maxWoken = 10

// mark sets in the commit itself the marks that the change has read and that are clear or old. Of many changes that
// do so at the same moment one gets through, so owe sets the marks of a change that lost a race.
func (c *Change) mark() {
	if !c.ledger.marks() {
		return
	}
	for _, pool := range c.wake {
		k := record.WakeKey(pool)
		if _, done := c.marked[pool]; done || !c.asked[k] || !isDue(c.Read, pool, c.Now) {
			continue
		}
		c.Put(k, record.Wake{At: c.Now})
		if c.marked == nil {
			c.marked = map[string]string{}
		}
		c.marked[pool] = c.ledger.target(c.Read, pool)
	}
}

// isDue reports whether a pool's mark is clear, or so old that its wake may have been lost.
func isDue(r Read, pool string, now time.Time) bool {
	mark, _, err := Get[record.Wake](r, record.WakeKey(pool))
	return err == nil && (mark.At.IsZero() || now.Sub(mark.At) >= wakeEvery)
}

// target is the target that a wake of a pool starts; "" if it has none.
func (l *Ledger) target(r Read, pool string) string {
	to, _, err := Get[record.WakeTarget](r, record.WakeTargetKey(pool))
	if err != nil {
		l.Log.Error("wake target not readable", "pool_id", pool, "err", err)
	}
	return to.Target
}

// owe marks that a wake is owed to pools, and wakes those whose mark it set, or the commit did (marked, with their
// targets). It is called after the commit that made work claimable. A failure here only means that the work waits for
// the schedule, so it never fails the call that caused it.
func (l *Ledger) owe(ctx context.Context, pools []string, marked map[string]string) {
	if len(pools) == 0 {
		return
	}
	slices.Sort(pools)
	pools = slices.Compact(pools)
	if len(pools) > maxWoken {
		pools = pools[:maxWoken]
	}
	for _, pool := range pools {
		l.Notify(pool)
	}
	if !l.marks() {
		return
	}
	// The work is there: the wake is sent even if the client has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
	defer cancel()
	unmarked := slices.DeleteFunc(pools, func(pool string) bool { _, ok := marked[pool]; return ok })
	targets := append(slices.Collect(maps.Values(marked)), l.markNow(ctx, unmarked)...)
	if l.waker == nil {
		return
	}
	var all sync.WaitGroup
	for _, target := range targets {
		if target == "" {
			continue
		}
		all.Go(func() {
			if err := l.waker.Wake(ctx, target); err != nil {
				l.Log.Warn("pool not woken; its schedule finds the work", "target", target, "err", err)
			}
		})
	}
	all.Wait()
}

// marks reports whether wakes are marked at all: in a process that wakes nobody else, every claim that could see a
// mark is notified, or looks anyway when it begins.
func (l *Ledger) marks() bool { return !l.alone || l.waker != nil }

// markNow sets the marks of pools that are clear or old, and returns the targets to wake then.
func (l *Ledger) markNow(ctx context.Context, pools []string) (targets []string) {
	var keys []store.Key
	for _, pool := range pools {
		keys = append(keys, record.WakeKey(pool), record.WakeTargetKey(pool))
	}
	r, err := l.Read(ctx, keys...)
	if err != nil {
		return nil
	}
	now := l.Now()
	for _, pool := range pools {
		k := record.WakeKey(pool)
		if isDue(r, pool, now) && l.Commit(ctx, []store.Op{store.Put(record.Encode(k, record.Wake{At: now}), r.Version(k))}) == nil {
			targets = append(targets, l.target(r, pool))
		}
	}
	return targets
}

// ClearOwed clears a pool's mark, which r has just read, before the claim reads the work. A clear mark stays as a
// record: in DynamoDB a change costs half of a delete and a create, and a third of the time.
func (l *Ledger) ClearOwed(ctx context.Context, pool string, r Read) {
	if k := record.WakeKey(pool); owed(r, k) {
		_ = l.Commit(ctx, []store.Op{store.Put(record.Encode(k, record.Wake{}), r.Version(k))})
	}
}

// Owed reports whether a wake is owed to a pool.
func (l *Ledger) Owed(ctx context.Context, pool string) bool {
	k := record.WakeKey(pool)
	r, err := l.Read(ctx, k)
	return err == nil && owed(r, k)
}

// IsOwed is Owed for a mark that was read.
func IsOwed(r Read, pool string) bool { return owed(r, record.WakeKey(pool)) }

func owed(r Read, k store.Key) bool {
	mark, _, err := Get[record.Wake](r, k)
	return err == nil && !mark.At.IsZero()
}
