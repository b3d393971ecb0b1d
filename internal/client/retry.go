package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sony/gobreaker/v2"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// policy says how often and how patiently a call is repeated.
type policy struct {
	repeats int
	first   time.Duration // wait before the first repeat, doubled for each next
	maxWait time.Duration // between two; a longer Retry-After ends the trying
}

// brief is for calls that somebody waits for.
var brief = policy{repeats: 3, first: 200 * time.Millisecond, maxWait: 5 * time.Second}

// once is for calls whose repeat could do something twice.
var once = policy{}

// repeat calls try until it succeeds, its error is not transient, or the policy or the time of a call is used up.
// held is how long the control plane may hold each request. No repeat is made that the deadline would cut off while
// it is held.
func (c *Client) repeat(ctx context.Context, p policy, held time.Duration, try func(ctx context.Context, n int) error) error {
	if c.limit > 0 {
		limited, cancel := context.WithTimeout(ctx, c.limit+held)
		defer cancel()
		ctx = limited
	}
	waits := backoff.ExponentialBackOff{InitialInterval: p.first, RandomizationFactor: 0.25, Multiplier: 2, MaxInterval: p.maxWait}
	waits.Reset()
	for n := 0; ; n++ {
		err := try(ctx, n)
		if err == nil || n >= p.repeats || !Transient(err) {
			return err
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return context.Cause(ctx) // its caller gave up, whatever the answer was
		}
		pause := waits.NextBackOff()
		if after := api.RetryAfter(err); after > p.maxWait {
			return err
		} else if after > 0 {
			pause = max(pause, after)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause+held {
			return err
		}
		if ended := wait.For(ctx, pause); ended != nil {
			return fmt.Errorf("%w; not tried again: %w", err, ended)
		}
	}
}

// breaker guards polling: after some claims in a row that failed, each with all its repeats,
// nothing is asked for a while.
type breaker struct {
	policy  policy
	circuit *gobreaker.CircuitBreaker[api.Claimed]
	until   atomic.Pointer[time.Time] // when it may be asked again
}

func newBreaker(cfg Config) *breaker {
	maxWait := cmp.Or(cfg.RetryMaxWait, 2*time.Minute)
	b := &breaker{policy: policy{
		repeats: max(cmp.Or(cfg.RetryCount, 2), 0),
		first:   min(cmp.Or(cfg.RetryWait, 20*time.Second), maxWait),
		maxWait: maxWait,
	}}
	failures := uint32(max(cmp.Or(cfg.BreakerFailures, 2), 1)) //nolint:gosec // a count that people write
	timeout := cmp.Or(cfg.BreakerTimeout, 10*time.Minute)
	b.circuit = gobreaker.NewCircuitBreaker[api.Claimed](gobreaker.Settings{
		Name:        "claims",
		Timeout:     timeout,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failures },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				until := time.Now().Add(timeout)
				b.until.Store(&until)
			}
		},
		// A refusal proves that the control plane is there.
		IsSuccessful: func(err error) bool { return err == nil || !Transient(err) },
		// A caller that gave up proves nothing, and one that is told to slow down is told for how long.
		IsExcluded: func(err error) bool {
			return errors.Is(err, context.Canceled) || errors.Is(err, workflow.ErrTooMany)
		},
	})
	return b
}

func (b *breaker) claim(try func() (api.Claimed, error)) (api.Claimed, error) {
	claimed, err := b.circuit.Execute(try)
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		wait := time.Second
		if until := b.until.Load(); until != nil {
			wait = max(wait, time.Until(*until))
		}
		return claimed, fmt.Errorf("claim jobs: %w", &workflow.Error{
			Kind: workflow.ErrBusy, RetryAfter: wait,
			Message: fmt.Sprintf("claims pause for %s because the last ones failed", wait.Round(time.Second)),
		})
	}
	return claimed, err
}
