package dispatcher

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dayfly-dev/dayfly/internal/wait"
)

// Pace decides when the next launch call may begin: at a rate, with one second's worth at once, that is halved when a call
// is throttled and grows a little with each call that is not. Time is a parameter. Its methods may be called concurrently.
type Pace struct {
	limit rate.Limit // calls per second while nothing is throttled
	calls *rate.Limiter

	mu     sync.Mutex
	halved time.Time
}

// The steps of a pace.
const (
	paceStep  = 1.0 / 50        // of the full rate, added with each call that is taken
	minPace   = 1.0 / 16        // of the full rate, below which it is not halved
	paceGrace = 1 * time.Second // after a halving: calls under way were made at the earlier rate
)

// NewPace returns a pace of so many calls per second; 0 means no limit. It begins with a second's worth, as AWS's own
// limits do: after an idle time a batch may be launched at once.
func NewPace(limit float64) *Pace {
	if limit <= 0 {
		return &Pace{limit: rate.Inf, calls: rate.NewLimiter(rate.Inf, 0)}
	}
	return &Pace{limit: rate.Limit(limit), calls: rate.NewLimiter(rate.Limit(limit), second(rate.Limit(limit)))}
}

// second is how many calls a second has, at least one.
func second(r rate.Limit) int { return int(max(1, r)) }

// Rate is the calls per second that it allows now.
func (p *Pace) Rate() float64 { return float64(p.calls.Limit()) }

// Take reserves the next call and says how long it must wait. If that is longer than maxWait, it reserves nothing,
// and ok is false.
func (p *Pace) Take(now time.Time, maxWait time.Duration) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := p.calls.ReserveN(now, 1)
	if wait = call.DelayFrom(now); wait > maxWait {
		call.CancelAt(now)
		return wait, false
	}
	return wait, true
}

// Answered counts the end of a call, which was throttled or not.
func (p *Pace) Answered(now time.Time, throttled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.calls.Limit()
	switch {
	case p.limit == rate.Inf, throttled && now.Sub(p.halved) < paceGrace, !throttled && r >= p.limit:
		return
	case throttled:
		p.halved, r = now, max(r/2, p.limit*minPace)
	default:
		r = min(p.limit, r+p.limit*paceStep)
	}
	p.calls.SetLimitAt(now, r)
	p.calls.SetBurstAt(now, second(r))
	if saved := p.calls.TokensAt(now); throttled && saved > 0 { // at a rate that was too high
		p.calls.ReserveN(now, int(math.Ceil(saved)))
	}
}

// slot waits for the slot of the next call. ok is false if less than margin would then remain until the deadline of
// ctx, or if ctx ends first; after says how long it would have been.
func (p *Pace) slot(ctx context.Context, now time.Time, margin time.Duration) (after time.Duration, ok bool) {
	maxWait := time.Duration(math.MaxInt64)
	if end, bounded := ctx.Deadline(); bounded {
		maxWait = time.Until(end) - margin
	}
	if after, ok = p.Take(now, maxWait); !ok {
		return after, false
	}
	_ = wait.For(ctx, after)
	return after, ctx.Err() == nil
}
