// Package wake tells those who wait that there may be something for them: what works for a pool, and
// calls of this process that wait. A wake is a shortcut only. It carries nothing and may be lost: whoever
// waits looks again by itself.
package wake

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// wakeEvery is how old a wake mark must be before another wake is sent for it: the one that set it
// may have been lost.
const wakeEvery = 2 * time.Second

// wakeTime bounds all that is done about the wakes of one commit. The caller waits for it, because a
// function is frozen as soon as it has answered.
const wakeTime = time.Second

// Waker wakes what works for a pool.
type Waker interface {
	// Wake starts the pool's target, as it was set by an admin, and does not wait for what that does.
	// It carries nothing. It may be called concurrently, and a target may be woken twice.
	Wake(ctx context.Context, target string) error
}

// Most bounds the pools that one commit wakes; the others wait for their schedule.
const Most = 10

// Wakes wakes. Its methods may be called concurrently.
type Wakes struct {
	ledger *ledger.Ledger
	waker  Waker
	log    *slog.Logger
	bell   bells
}

// New returns the wakes of a ledger. A nil waker means that pools find their work by themselves.
func New(l *ledger.Ledger, waker Waker, log *slog.Logger) *Wakes {
	return &Wakes{ledger: l, waker: waker, log: log}
}

// Owe marks that a wake is owed to pools, and wakes those whose mark it set. It is called after the
// commit that made work claimable; whatever fails here costs only the wait for the schedule, so
// it never fails the call that caused it.
func (w *Wakes) Owe(ctx context.Context, pools []string) {
	if len(pools) == 0 {
		return
	}
	slices.Sort(pools)
	pools = slices.Compact(pools)
	if len(pools) > Most {
		pools = pools[:Most]
	}
	for _, pool := range pools {
		w.bell.ring(pool)
	}
	// The work is there, whoever asked for it: a client that left does not take the wake along.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
	defer cancel()
	var targets []string
	for _, pool := range pools {
		if target := w.mark(ctx, pool); target != "" && w.waker != nil {
			targets = append(targets, target)
		}
	}
	var all sync.WaitGroup
	for _, target := range targets {
		all.Go(func() {
			if err := w.waker.Wake(ctx, target); err != nil {
				w.log.Warn("pool not woken; its schedule finds the work", "target", target, "err", err)
			}
		})
	}
	all.Wait()
}

// mark sets a pool's mark if it is clear or old, and says what is to be woken then.
func (w *Wakes) mark(ctx context.Context, pool string) (target string) {
	k, tk := record.WakeKey(pool), record.WakeTargetKey(pool)
	r, err := w.ledger.Read(ctx, k, tk)
	if err != nil {
		return ""
	}
	mark, _, err := ledger.Get[record.Wake](r, k)
	now := w.ledger.Now()
	if err != nil || !mark.At.IsZero() && now.Sub(mark.At) < wakeEvery {
		return ""
	}
	if w.ledger.Commit(ctx, []store.Op{store.Put(record.Encode(k, record.Wake{At: now}), r.Version(k))}) != nil {
		return ""
	}
	to, _, err := ledger.Get[record.WakeTarget](r, tk)
	if err != nil {
		w.log.Error("wake target not readable", "pool_id", pool, "err", err)
	}
	return to.Target
}

// wakeTarget is what a wake may start: a Lambda function whose name says that it is for that, by its
// name or its ARN, which may end in an alias or a version. The control plane's role may invoke no other,
// but a setting is to be refused where it is made, and not to fail where it is used.
var wakeTarget = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(arn:aws[a-z-]*:lambda:[a-z0-9-]{1,32}:[0-9]{12}:function:)?dayfly-wake-[A-Za-z0-9_-]{1,52}(:[A-Za-z0-9_$-]{1,128})?$`)
})

// SetTarget adds a pool's new wake target to a change; nil leaves it, and "" takes it away.
func (w *Wakes) SetTarget(ctx context.Context, c *ledger.Change, poolID string, target *string) error {
	if target == nil {
		return nil
	}
	if *target != "" && w.waker == nil {
		return workflow.Refuse(workflow.ErrUnsupported, "wake_target", "this control plane wakes nothing, so nothing would use a wake target: leave it out; agents of the pool find their work by polling")
	}
	if *target != "" && !wakeTarget().MatchString(*target) {
		return workflow.Refuse(workflow.ErrInvalid, "wake_target", "a wake target is the ARN or the name of a Lambda function whose name begins with dayfly-wake-")
	}
	k := record.WakeTargetKey(poolID)
	if err := c.Load(ctx, k); err != nil {
		return err
	}
	before, known, err := ledger.Get[record.WakeTarget](c.Read, k)
	switch {
	case err != nil:
		return err
	case *target == before.Target:
	case *target == "" && known:
		c.Remove(k, c.Version(k))
	default:
		c.Put(k, record.WakeTarget{Target: *target})
	}
	return nil
}

// Clear clears a pool's mark, of which r was just read, before the claim reads what there is. A clear mark stays as a record: to change one costs
// DynamoDB half of what it costs to delete one and to make it again, and a third of the time.
func (w *Wakes) Clear(ctx context.Context, pool string, r ledger.Read) {
	if k := record.WakeKey(pool); owed(r, k) {
		_ = w.ledger.Commit(ctx, []store.Op{store.Put(record.Encode(k, record.Wake{}), r.Version(k))})
	}
}

// Owed reports whether a wake is owed to a pool.
func (w *Wakes) Owed(ctx context.Context, pool string) bool {
	k := record.WakeKey(pool)
	r, err := w.ledger.Read(ctx, k)
	return err == nil && owed(r, k)
}

func owed(r ledger.Read, k store.Key) bool {
	mark, _, err := ledger.Get[record.Wake](r, k)
	return err == nil && !mark.At.IsZero()
}
