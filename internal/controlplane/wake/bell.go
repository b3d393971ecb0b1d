package wake

import (
	"context"
	"sync"
	"time"
)

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

// StartOf is the name under which the start of a workflow waits for the report of its launch.
func StartOf(id string) string { return "start/" + id }

// StatesOf is the name under which a pool waits for one of its jobs to end.
func StatesOf(poolID string) string { return "states/" + poolID }

// LogOf is the name under which readers of a log wait for lines.
func LogOf(id string) string { return "log/" + id }

// Ring wakes the calls of this process that wait under a name.
func (w *Wakes) Ring(name string) { w.bell.ring(name) }

// lookAgain is how often a waiting call looks by itself, for what other processes changed. On Lambda that is
// nearly everything, so it is half of what picking work up by long polls takes; a look is one small read.
const lookAgain = 500 * time.Millisecond

// Await calls look until it reports that there is something, the wait is over or ctx ends. It looks
// again at each ring of name and each lookAgain. The bell is taken before each look, so that no
// ring between look and wait is missed.
func (w *Wakes) Await(ctx context.Context, name string, wait time.Duration, look func(rung bool) (bool, error)) error {
	over := time.NewTimer(wait)
	defer over.Stop()
	rung := true
	for {
		ring, stop := w.bell.wait(name)
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
