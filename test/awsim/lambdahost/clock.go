package lambdahost

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Clock is the time of what a test does not want to wait for.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f when d has passed. stop reports whether it was in time to prevent that.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Now returns the time.
func (SystemClock) Now() time.Time { return time.Now() }

// AfterFunc calls f in a goroutine of its own after d.
func (SystemClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// ManualClock moves only when it is told to. Its methods may be called concurrently.
type ManualClock struct {
	mu      sync.Mutex
	now     time.Time
	timers  []*manualTimer
	changed chan struct{} // closed and replaced whenever a timer is set
}

type manualTimer struct {
	at time.Time
	f  func()
}

// NewManualClock returns a clock that stands at now.
func NewManualClock(now time.Time) *ManualClock {
	return &ManualClock{now: now, changed: make(chan struct{})}
}

// Now returns the time at which the clock stands.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc calls f from the Advance that passes d. A d of nothing has passed already.
func (c *ManualClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	if d <= 0 {
		go f()
		return func() bool { return false }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{at: c.now.Add(d), f: f}
	c.timers = append(c.timers, t)
	close(c.changed)
	c.changed = make(chan struct{})
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, t)
		if i < 0 {
			return false
		}
		c.timers = slices.Delete(c.timers, i, i+1)
		return true
	}
}

// Advance moves the clock and calls what became due, in order, before it returns.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		next := -1
		for i, t := range c.timers {
			if !t.at.After(end) && (next < 0 || t.at.Before(c.timers[next].at)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		t := c.timers[next]
		c.timers = slices.Delete(c.timers, next, next+1)
		c.now = t.at
		c.mu.Unlock()
		t.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

// AwaitTimer waits until something is due within d from now: what a test does before it
// advances the clock by d.
func (c *ManualClock) AwaitTimer(ctx context.Context, d time.Duration) error {
	for {
		c.mu.Lock()
		end, changed := c.now.Add(d), c.changed
		due := slices.ContainsFunc(c.timers, func(t *manualTimer) bool { return !t.at.After(end) })
		c.mu.Unlock()
		if due {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sleep waits for d on the clock, or for the end of ctx.
func sleep(ctx context.Context, c Clock, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	done := make(chan struct{})
	stop := c.AfterFunc(d, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		stop()
		return context.Cause(ctx)
	}
}
