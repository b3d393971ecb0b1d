package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Credentials are asked for again when a quarter of their life is left, at most renewBefore: before those
// who are lent them would ask for themselves (the SDKs do 5 to 15 minutes before the end).
const (
	renewBefore = 20 * time.Minute
	lastMoment  = 10 * time.Second // what expires within it is not given away any more
	askedAgain  = time.Minute      // credentials that were refused are asked for anew at most this often
)

// cache keeps credentials until they are due for renewal. It implements aws.CredentialsProvider.
// Callers at the same time wait for one request; a renewal that fails leaves the old ones in use until
// their end.
type cache struct {
	ask  func(context.Context) (aws.Credentials, error)
	now  func() time.Time
	turn chan struct{} // holds one token: whoever has it may touch the rest

	current aws.Credentials
	asked   time.Time // when current came
}

func newCache(now func() time.Time, ask func(context.Context) (aws.Credentials, error)) *cache {
	c := &cache{ask: ask, now: now, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// Retrieve implements aws.CredentialsProvider.
func (c *cache) Retrieve(ctx context.Context) (aws.Credentials, error) {
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-ctx.Done():
		return aws.Credentials{}, context.Cause(ctx)
	}
	now := c.now()
	if c.current.HasKeys() && !c.due(now) {
		return c.current, nil
	}
	got, err := c.ask(ctx)
	if err == nil && (!got.HasKeys() || got.CanExpire && !got.Expires.After(now)) {
		err = errors.New("the credentials that came are none, or have expired")
	}
	if err != nil {
		if c.current.HasKeys() && (!c.current.CanExpire || now.Before(c.current.Expires.Add(-lastMoment))) {
			return c.current, nil
		}
		return aws.Credentials{}, err
	}
	c.current, c.asked = got, now
	return got, nil
}

func (c *cache) due(now time.Time) bool {
	if !c.current.CanExpire {
		return false
	}
	before := min(renewBefore, c.current.Expires.Sub(c.asked)/4)
	return !now.Before(c.current.Expires.Add(-before))
}

// refused says that a service did not take the credentials: they are asked for anew, unless they are
// quite new. It does not wait.
func (c *cache) refused() {
	select {
	case <-c.turn:
	default:
		return // they are just being asked for
	}
	if c.now().Sub(c.asked) >= askedAgain {
		c.current = aws.Credentials{}
	}
	c.turn <- struct{}{}
}

// within bounds a request for credentials.
func within(d time.Duration, what string, ask func(context.Context) (aws.Credentials, error)) func(context.Context) (aws.Credentials, error) {
	return func(ctx context.Context) (aws.Credentials, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("%s did not come within %s", what, d))
		defer cancel()
		return ask(ctx)
	}
}
