package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Credentials are renewed when a quarter of their life remains, at most renewBefore. The SDKs of the engine, to which
// they are served, ask for new ones 5 to 15 minutes before the end, and then find them renewed.
//
// The SDK's own cache (aws.CredentialsCache) has one window for all: credentials that live shorter than it would be
// asked for at each call. It also drops the old ones when a renewal fails, and reads the machine's clock only.
const (
	renewBefore = 20 * time.Minute
	lastMoment  = 10 * time.Second // credentials that expire within it are not given away
	askedAgain  = time.Minute      // credentials that were refused are asked for again at most this often
)

// cache keeps credentials until they are due for renewal. It implements aws.CredentialsProvider.
// Callers at the same time wait for one request; after a failed renewal the old ones stay in use until their end.
type cache struct {
	ask  func(context.Context) (aws.Credentials, error)
	now  func() time.Time
	slot chan struct{} // holds one token: its holder may touch the rest

	current aws.Credentials
	asked   time.Time // when current came
}

func newCache(now func() time.Time, ask func(context.Context) (aws.Credentials, error)) *cache {
	c := &cache{ask: ask, now: now, slot: make(chan struct{}, 1)}
	c.slot <- struct{}{}
	return c
}

// Retrieve implements aws.CredentialsProvider.
func (c *cache) Retrieve(ctx context.Context) (aws.Credentials, error) {
	select {
	case <-c.slot:
		defer func() { c.slot <- struct{}{} }()
	case <-ctx.Done():
		return aws.Credentials{}, context.Cause(ctx)
	}
	now := c.now()
	if c.current.HasKeys() && !c.due(now) {
		return c.current, nil
	}
	got, err := c.ask(ctx)
	if err == nil && (!got.HasKeys() || got.CanExpire && !got.Expires.After(now)) {
		err = errors.New("the answer holds no credentials, or they have expired")
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

// refused says that a service did not accept the credentials. They are asked for again, unless they came within
// askedAgain. It does not wait.
func (c *cache) refused() {
	select {
	case <-c.slot:
	default:
		return // a request for them is under way
	}
	if c.now().Sub(c.asked) >= askedAgain {
		c.current = aws.Credentials{}
	}
	c.slot <- struct{}{}
}

// within bounds a request for credentials.
func within(d time.Duration, name string, ask func(context.Context) (aws.Credentials, error)) func(context.Context) (aws.Credentials, error) {
	return func(ctx context.Context) (aws.Credentials, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("%s did not come within %s", name, d))
		defer cancel()
		return ask(ctx)
	}
}
