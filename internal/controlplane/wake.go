package controlplane

import (
	"context"
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

// owe marks that a wake is owed to pools, and wakes those whose mark it set. It is called after the
// commit that made work claimable; whatever fails here costs only the wait for the schedule, so
// it never fails the call that caused it.
func (p *Plane) owe(ctx context.Context, pools []string) {
	if len(pools) == 0 {
		return
	}
	slices.Sort(pools)
	pools = slices.Compact(pools)
	if len(pools) > maxWakes {
		pools = pools[:maxWakes]
	}
	for _, pool := range pools {
		p.bell.ring(pool)
	}
	// The work is there, whoever asked for it: a client that left does not take the wake along.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
	defer cancel()
	var targets []string
	for _, pool := range pools {
		target, set := p.setWakeMark(ctx, pool)
		if set && p.cfg.Wake != nil {
			p.cfg.Wake(pool)
		}
		if set && target != "" && p.cfg.Waker != nil {
			targets = append(targets, target)
		}
	}
	var all sync.WaitGroup
	for _, target := range targets {
		all.Go(func() {
			if err := p.cfg.Waker.Wake(ctx, target); err != nil {
				p.log.Warn("pool not woken; its schedule finds the work", "target", target, "err", err)
			}
		})
	}
	all.Wait()
}

// setWakeMark sets a pool's mark if it is clear or old, and reports whether it did, and what is to be
// woken then.
func (p *Plane) setWakeMark(ctx context.Context, pool string) (target string, set bool) {
	k, tk := record.WakeKey(pool), record.WakeTargetKey(pool)
	r, err := p.ledger.Read(ctx, k, tk)
	if err != nil {
		return "", false
	}
	mark, ok, err := ledger.Get[record.Wake](r, k)
	now := p.ledger.Now()
	if err != nil || ok && now.Sub(mark.At) < wakeEvery {
		return "", false
	}
	if p.ledger.Commit(ctx, []store.Op{store.Put(record.Encode(k, record.Wake{At: now}), r.Version(k))}) != nil {
		return "", false
	}
	to, _, err := ledger.Get[record.WakeTarget](r, tk)
	if err != nil {
		p.log.Error("wake target not readable", "pool_id", pool, "err", err)
	}
	return to.Target, true
}

// wakeTarget is what a wake may start: a Lambda function whose name says that it is for that, by its
// name or its ARN, which may end in an alias or a version. The control plane's role may invoke no other,
// but a setting is to be refused where it is made, and not to fail where it is used.
var wakeTarget = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(arn:aws[a-z-]*:lambda:[a-z0-9-]{1,32}:[0-9]{12}:function:)?dayfly-wake-[A-Za-z0-9_-]{1,52}(:[A-Za-z0-9_$-]{1,128})?$`)
})

// setWakeTarget adds a pool's new wake target to a change; nil leaves it, and "" takes it away.
func (c *change) setWakeTarget(ctx context.Context, poolID string, target *string) error {
	if target == nil {
		return nil
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

// clearWakeMark clears a pool's mark, before the claim reads what there is.
func (p *Plane) clearWakeMark(ctx context.Context, pool string) {
	k := record.WakeKey(pool)
	if r, err := p.ledger.Read(ctx, k); err == nil && r.Version(k) != store.Absent {
		_ = p.ledger.Commit(ctx, []store.Op{store.Delete(k, r.Version(k))})
	}
}

// wakeMarked reports whether a wake is owed to a pool.
func (p *Plane) wakeMarked(ctx context.Context, pool string) bool {
	r, err := p.ledger.Read(ctx, record.WakeKey(pool))
	return err == nil && r.Version(record.WakeKey(pool)) != store.Absent
}

// bells wake calls of this process that wait for something to change under a name. They are a
// shortcut only: every waiting call also looks again by itself.
type bells struct {
	mu      sync.Mutex
	waiting map[string]*waitGroup
}

type waitGroup struct {
	ch chan struct{}
	n  int
}

// wait returns a channel that is closed at the next ring of name, and a function that ends the
// waiting.
func (b *bells) wait(name string) (<-chan struct{}, func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string]*waitGroup{}
	}
	g := b.waiting[name]
	if g == nil {
		g = &waitGroup{ch: make(chan struct{})}
		b.waiting[name] = g
	}
	g.n++
	return g.ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if g.n--; g.n == 0 && b.waiting[name] == g {
			delete(b.waiting, name)
		}
	}
}

func (b *bells) ring(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.waiting[name]; g != nil {
		close(g.ch)
		delete(b.waiting, name)
	}
}

// lookAgain is how often a waiting call looks by itself, for what other processes changed. On Lambda that is
// nearly everything, so it is half of what picking work up by long polls takes; a look is one small read.
const lookAgain = 500 * time.Millisecond

// await calls look until it reports that there is something, the wait is over or ctx ends. It looks
// again at each ring of name and each lookAgain. The bell is taken before each look, so that no
// ring between look and wait is missed.
func (p *Plane) await(ctx context.Context, name string, wait time.Duration, look func(rung bool) (bool, error)) error {
	over := time.NewTimer(wait)
	defer over.Stop()
	rung := true
	for {
		ring, stop := p.bell.wait(name)
		found, err := look(rung)
		if found || err != nil || wait <= 0 {
			stop()
			return err
		}
		again := time.NewTimer(lookAgain)
		rung = false
		select {
		case <-ring:
			rung = true
		case <-again.C:
		case <-over.C:
			again.Stop()
			stop()
			return nil
		case <-ctx.Done():
			again.Stop()
			stop()
			return context.Cause(ctx)
		}
		again.Stop()
		stop()
	}
}
