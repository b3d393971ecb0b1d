package ecs

import (
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Limits are those of the account. The zero value means AWS's own rates and no quota.
type Limits struct {
	// NoRates lets every call through.
	NoRates bool
	// VCPU is how many processors may run at once, on demand and on Spot each; 0 means any number. A new
	// account of AWS has 6.
	VCPU int
	// Wrapped is how a launch beyond Fargate's rate is refused: in an InvalidParameterException that only
	// its text gives away, else plainly.
	Wrapped bool
}

// bucket holds up to burst tokens and gains rate each second. (ECS developer guide, "Request throttling for
// the Amazon ECS API" and "AWS Fargate throttling quotas".)
type bucket struct {
	burst, rate float64
	tokens      float64
	at          time.Time
}

func (b *bucket) fill(now time.Time) {
	if b.at.IsZero() {
		b.tokens = b.burst
	} else {
		b.tokens = min(b.burst, b.tokens+b.rate*max(0, now.Sub(b.at).Seconds()))
	}
	b.at = now
}

type buckets struct {
	limits Limits
	now    func() time.Time

	runCalls *bucket            // of Fargate
	launches map[string]*bucket // by capacity provider
	modify   *bucket            // RunTask and StopTask
	read     *bucket            // DescribeTasks, ListTasks
	tag      *bucket
	register *bucket
}

func newBuckets(l Limits, now func() time.Time) buckets {
	of := func(burst, rate float64) *bucket { return &bucket{burst: burst, rate: rate} }
	return buckets{
		limits: l, now: now, runCalls: of(20, 20), modify: of(100, 40), read: of(100, 20), tag: of(20, 10), register: of(20, 1),
		launches: map[string]*bucket{providerFargate: of(100, 20), providerSpot: of(100, 20)},
	}
}

// take takes n tokens out of each bucket, or none out of any, and reports whether it did.
func (b *buckets) take(n float64, from ...*bucket) bool {
	if b.limits.NoRates {
		return true
	}
	now := b.now()
	for _, one := range from {
		one.fill(now)
		if one.tokens < n-1e-9 {
			return false
		}
	}
	for _, one := range from {
		one.tokens -= n
	}
	return true
}

func throttled() error {
	return &wire.Error{Code: "ThrottlingException", Message: "Rate exceeded"}
}

// throttledLaunch is the same, of the launches behind the call.
func (b *buckets) throttledLaunch() error {
	if b.limits.Wrapped {
		return invalid("Error creating network interface: Rate exceeded (Service: AmazonEC2; Status Code: 400; ErrorCode: Throttling; Request ID: %s)", wire.RequestID())
	}
	return throttled()
}
