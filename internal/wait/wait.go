// Package wait waits for a time to pass or for a context to end.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d. If ctx ends first, or has already ended, it returns the cause.
func For(ctx context.Context, d time.Duration) error { return Until(ctx, d, nil) }

// Until is For, except that a value in wake, or its closing, ends it early and without an error. wake may be nil.
func Until(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	case <-wake:
	}
	return nil
}

// Backoff is how long to wait before the n-th repeat: a random time, so that callers that failed together do not all
// repeat at the same time. Its mean is first for n = 0, doubles with n, and never exceeds limit.
func Backoff(first, limit time.Duration, n int) time.Duration {
	mean := min(first<<min(n, 20), limit)
	return rand.N(2 * mean) //nolint:gosec // not a secret
}
