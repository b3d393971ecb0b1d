package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/wait"
)

// Pace decides when the next launch call may begin: a token bucket of one second's worth, whose rate is halved when a
// call is throttled and grows a little with each call that is not. It is a value: each method returns the next pace, and
// time is a parameter. The zero Pace has no limit.
type Pace struct {
	most   float64 // calls per second while nothing is throttled
	rate   float64 // calls per second now
	tokens float64 // below zero: calls that are reserved and not yet due
	at     time.Time
	halved time.Time
}

// The steps of a pace.
const (
	paceStep   = 1.0 / 50        // of the full rate, added with each call that is taken
	paceLeast  = 1.0 / 16        // of the full rate, below which it is not halved
	paceSettle = 1 * time.Second // after a halving: calls under way were made at the earlier rate
)

// NewPace returns a pace of most calls per second; 0 means no limit. It begins with a second's worth, as AWS's own limits
// do: after an idle time a batch may be launched at once.
func NewPace(most float64) Pace { return Pace{most: most, rate: most, tokens: max(1, most)} }

// Rate is the calls per second that it allows now.
func (p Pace) Rate() float64 { return p.rate }

// fill adds the tokens since it was last filled.
func (p Pace) fill(now time.Time) Pace {
	if !p.at.IsZero() && now.After(p.at) {
		p.tokens = min(max(1, p.rate), p.tokens+now.Sub(p.at).Seconds()*p.rate)
	}
	if p.at.IsZero() || now.After(p.at) {
		p.at = now
	}
	return p
}

// Take reserves the next call and says how long it must wait. If that is longer than most, it reserves nothing, and ok is
// false.
func (p Pace) Take(now time.Time, most time.Duration) (next Pace, wait time.Duration, ok bool) {
	if p.most <= 0 {
		return p, 0, most >= 0
	}
	p = p.fill(now)
	if p.tokens < 1 {
		wait = time.Duration((1 - p.tokens) / p.rate * float64(time.Second))
	}
	if wait > most {
		return p, wait, false
	}
	p.tokens--
	return p, wait, true
}

// Throttled is the pace after a call that was throttled.
func (p Pace) Throttled(now time.Time) Pace {
	if p.most <= 0 || now.Sub(p.halved) < paceSettle && !p.halved.IsZero() {
		return p
	}
	p = p.fill(now)
	p.rate = max(p.rate/2, p.most*paceLeast)
	p.tokens = min(p.tokens, 0)
	p.halved = now
	return p
}

// Taken is the pace after a call that was not throttled.
func (p Pace) Taken(now time.Time) Pace {
	if p.most <= 0 || p.rate >= p.most {
		return p
	}
	p = p.fill(now)
	p.rate = min(p.most, p.rate+p.most*paceStep)
	return p
}

// pacer is the pace of one dispatcher.
type pacer struct {
	mu   sync.Mutex
	pace Pace
	now  func() time.Time
}

func (p *pacer) take(most time.Duration) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pace, wait, ok = p.pace.Take(p.now(), most)
	return wait, ok
}

func (p *pacer) answered(throttled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if throttled {
		p.pace = p.pace.Throttled(p.now())
	} else {
		p.pace = p.pace.Taken(p.now())
	}
}

// turn waits for the next call's turn. ok is false if less than margin would be left until the deadline of ctx then, or
// if ctx ends first; after says how long it would have been.
func (p *pacer) turn(ctx context.Context, margin time.Duration) (after time.Duration, ok bool) {
	most := time.Duration(1<<63 - 1)
	if end, bounded := ctx.Deadline(); bounded {
		most = time.Until(end) - margin
	}
	if after, ok = p.take(most); !ok {
		return after, false
	}
	_ = wait.For(ctx, after)
	return after, ctx.Err() == nil
}
