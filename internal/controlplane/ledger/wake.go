package ledger

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// A wake tells the poller of a pool that there may be work. It is only a shortcut: it carries nothing and may be
// lost, because a poller also looks again on its own.

// wakeEvery is how old a wake mark must be before another wake is sent for it: the earlier wake may have been lost.
const wakeEvery = 2 * time.Second

// wakeTime bounds everything that is done about the wakes of one commit. The caller waits for it, because a function
// is frozen as soon as it has answered.
const wakeTime = time.Second

// Waker wakes the poller of a pool.
type Waker interface {
	// Wake starts the pool's target, as an admin set it, and does not wait for the result. It carries nothing. It may
	// be called concurrently, and may wake a target twice.
	Wake(ctx context.Context, target string) error
}

// mostWoken bounds how many pools one commit wakes; the others wait for their schedule.
const mostWoken = 10

// owe marks that a wake is owed to pools, and wakes those whose mark it set. It is called after the commit that made
// work claimable. A failure here only means that the work waits for the schedule, so it never fails the call that
// caused it.
func (l *Ledger) owe(ctx context.Context, pools []string) {
	if len(pools) == 0 {
		return
	}
	slices.Sort(pools)
	pools = slices.Compact(pools)
	if len(pools) > mostWoken {
		pools = pools[:mostWoken]
	}
	for _, pool := range pools {
		l.Notify(pool)
	}
	// The work is there, whoever asked for it: if the client leaves, the wake is still sent.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
	defer cancel()
	var targets []string
	for _, pool := range pools {
		if target := l.mark(ctx, pool); target != "" && l.waker != nil {
			targets = append(targets, target)
		}
	}
	var all sync.WaitGroup
	for _, target := range targets {
		all.Go(func() {
			if err := l.waker.Wake(ctx, target); err != nil {
				l.Log.Warn("pool not woken; its schedule finds the work", "target", target, "err", err)
			}
		})
	}
	all.Wait()
}

// mark sets a pool's mark if it is clear or old, and says what to wake then.
func (l *Ledger) mark(ctx context.Context, pool string) (target string) {
	k, tk := record.WakeKey(pool), record.WakeTargetKey(pool)
	r, err := l.Read(ctx, k, tk)
	if err != nil {
		return ""
	}
	mark, _, err := Get[record.Wake](r, k)
	now := l.Now()
	if err != nil || !mark.At.IsZero() && now.Sub(mark.At) < wakeEvery {
		return ""
	}
	if l.Commit(ctx, []store.Op{store.Put(record.Encode(k, record.Wake{At: now}), r.Version(k))}) != nil {
		return ""
	}
	to, _, err := Get[record.WakeTarget](r, tk)
	if err != nil {
		l.Log.Error("wake target not readable", "pool_id", pool, "err", err)
	}
	return to.Target
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

func owed(r Read, k store.Key) bool {
	mark, _, err := Get[record.Wake](r, k)
	return err == nil && !mark.At.IsZero()
}
