package controlplane

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// wakeEvery is how old a wake mark must be before another wake is sent for it: the one that set it
// may have been lost.
const wakeEvery = 2 * time.Second

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
		if p.setWakeMark(ctx, pool) && p.cfg.Wake != nil {
			p.cfg.Wake(pool)
		}
	}
}

// setWakeMark sets a pool's mark if it is clear or old, and reports whether it did.
func (p *Plane) setWakeMark(ctx context.Context, pool string) bool {
	k := wakeKey(pool)
	r, err := p.read(ctx, k)
	if err != nil {
		return false
	}
	mark, ok, err := get[wakeRec](r, k)
	now := p.now()
	if err != nil || ok && now.Sub(mark.At) < wakeEvery {
		return false
	}
	return p.commit(ctx, []store.Op{store.Put(record(k, wakeRec{At: now}), r.version(k))}) == nil
}

// clearWakeMark clears a pool's mark, before the claim reads what there is.
func (p *Plane) clearWakeMark(ctx context.Context, pool string) {
	k := wakeKey(pool)
	if r, err := p.read(ctx, k); err == nil && r.version(k) != store.Absent {
		_ = p.commit(ctx, []store.Op{store.Delete(k, r.version(k))})
	}
}

// wakeMarked reports whether a wake is owed to a pool.
func (p *Plane) wakeMarked(ctx context.Context, pool string) bool {
	r, err := p.read(ctx, wakeKey(pool))
	return err == nil && r.version(wakeKey(pool)) != store.Absent
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

// lookAgain is how often a waiting call looks by itself, for what other processes changed.
const lookAgain = time.Second

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
