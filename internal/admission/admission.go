// Package admission decides which calls of people are answered at all: it bounds the calls of a token and of an
// organization, and slows down callers that try many tokens. It counts in memory, for one process, and remembers
// tokens by their hashes only. It does not know the owner of a token: its caller passes the check that finds out.
package admission

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Rates bound the calls that a control plane takes from people. A zero is no bound. Each process counts for itself,
// in memory. Calls of pools and runners are never counted and wait for nothing here.
type Rates struct {
	Token        int // calls a second with one user token, after ten times as many at once
	Organization int // calls a second with all user tokens of an organization, after ten times as many at once
	Failures     int // failed sign-ins a second from one address, after sixty times as many at once
}

// DefaultRates are the defaults of the programs: far more than a person or a pipeline needs.
func DefaultRates() Rates { return Rates{Token: 50, Organization: 200, Failures: 1} }

const (
	callBurst    = 10 // seconds' worth of calls that may come at once
	failureBurst = 60
	// maxRecent bounds the entries of each kind that are remembered: tokens, organizations and addresses.
	maxRecent = 10_000
	// maxPatience is how long a try waits for those before it from the same address.
	maxPatience = 2 * time.Second
)

// limiter admits so many a second, after so many seconds' worth at once. A rate of zero is no bound.
func limiter(perSecond, seconds int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), perSecond*seconds)
}

// missing is how long it takes until a limiter admits one; 0 means that it does.
func missing(l *rate.Limiter, now time.Time) time.Duration {
	return time.Duration(max(1-l.TokensAt(now), 0) / float64(l.Limit()) * float64(time.Second))
}

// recent is a map that forgets entries that were not used lately. Full, it becomes the older half, and the half
// before that is dropped: so it holds at most twice maxRecent, and needs no cleaning.
type recent[K comparable, V any] struct {
	fresh      func() *V
	young, old map[K]*V
}

// get returns the value of a key, or nil.
func (r *recent[K, V]) get(k K) *V {
	v, ok := r.young[k]
	if !ok {
		if v, ok = r.old[k]; ok {
			r.put(k, v)
		}
	}
	return v
}

func (r *recent[K, V]) put(k K, v *V) {
	if r.young == nil || len(r.young) >= maxRecent {
		r.young, r.old = map[K]*V{}, r.young
	}
	r.young[k] = v
}

// of returns the value of a key, which is a fresh one at first.
func (r *recent[K, V]) of(k K) *V {
	v := r.get(k)
	if v == nil {
		v = r.fresh()
		r.put(k, v)
	}
	return v
}

func (r *recent[K, V]) drop(k K) {
	delete(r.young, k)
	delete(r.old, k)
}

// holder is the owner of a token that was valid when it was last shown.
type holder struct {
	organization string // of a user token; a pool's calls are not counted
	calls        *rate.Limiter
}

// sender is an address from which sign-ins failed.
type sender struct {
	failed *rate.Limiter
	slot   chan struct{}
}

// Gate decides for one process. Its methods may be called concurrently.
type Gate struct {
	rates Rates
	now   func() time.Time

	mu            sync.Mutex
	tokens        recent[[sha256.Size]byte, holder]
	organizations recent[string, rate.Limiter]
	addresses     recent[string, sender]
}

// New returns a gate with some rates, by a clock; nil means time.Now.
func New(rates Rates, now func() time.Time) *Gate {
	if now == nil {
		now = time.Now
	}
	g := &Gate{rates: rates, now: now}
	g.tokens.fresh = func() *holder { return &holder{calls: limiter(rates.Token, callBurst)} }
	g.organizations.fresh = func() *rate.Limiter { return limiter(rates.Organization, callBurst) }
	g.addresses.fresh = func() *sender {
		return &sender{failed: limiter(rates.Failures, failureBurst), slot: make(chan struct{}, 1)}
	}
	return g
}

type proof struct{}

// OnProof returns a context for which fn is called whenever Identify finds a token valid.
func OnProof(ctx context.Context, fn func()) context.Context {
	return context.WithValue(ctx, proof{}, fn)
}

// proven notes the end of an Identify.
func proven(ctx context.Context, err error) {
	if fn, ok := ctx.Value(proof{}).(func()); ok && err == nil {
		fn()
	}
}

// Identify finds the owner of a token, by a check that reads the store and returns the organization of a person, or
// "" for a caller that is not counted. A token that was valid lately is counted before it is checked, so that a
// caller beyond its rate costs no reads. Any other token is a sign-in from an address.
func (g *Gate) Identify(ctx context.Context, address, token string, check func(ctx context.Context, token string) (organization string, err error)) error {
	key := sha256.Sum256([]byte(token))
	if known, err := g.again(key); known {
		if err != nil {
			return err
		}
		_, err := check(ctx, token)
		proven(ctx, err)
		if failed(err) {
			g.mu.Lock()
			g.tokens.drop(key)
			g.mu.Unlock()
		}
		return err
	}
	organization := ""
	err := g.SignIn(ctx, address, func() (err error) {
		organization, err = check(ctx, token)
		return err
	})
	proven(ctx, err)
	if err == nil {
		err = g.first(key, organization)
	}
	return err
}

// SignIn lets a caller try to prove its identity. Once too many tries from its address failed, those from there are
// made one after the other, and a wrong one is answered with 429. So a flood costs little, and a caller with the
// right token gets in beside it. It counts addresses and never the name or the token that was tried, so that nobody
// can lock out the owner of that name or token.
func (g *Gate) SignIn(ctx context.Context, address string, try func() error) error {
	if g.rates.Failures == 0 {
		return try()
	}
	wait, slot := g.failures(address, 0)
	if wait == 0 {
		err := try()
		if failed(err) {
			g.failures(address, 1)
		}
		return err
	}
	refused := tooMany(wait, "too many sign-ins from your address failed; wait a moment and try again")
	patience := time.NewTimer(maxPatience)
	defer patience.Stop()
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-patience.C:
		return refused
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := try(); !failed(err) {
		return err
	}
	return refused
}

// failures counts failed tries from an address. It returns how long it takes until one more may fail, and the slot of
// the address, which one try at a time can take.
func (g *Gate) failures(address string, n int) (wait time.Duration, slot chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n == 0 && g.addresses.get(address) == nil {
		return 0, nil
	}
	s, now := g.addresses.of(address), g.now()
	wait = missing(s.failed, now)
	s.failed.AllowN(now, n)
	return wait, s.slot
}

// failed reports whether a sign-in proved that the caller is not the one it claims to be.
func failed(err error) bool {
	return errors.Is(err, workflow.ErrUnauthenticated) || errors.Is(err, workflow.ErrRevoked) || errors.Is(err, workflow.ErrForbidden)
}

// again counts a call with a token that was valid lately; known says whether it was.
func (g *Gate) again(key [sha256.Size]byte) (known bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.tokens.get(key)
	if h == nil {
		return false, nil
	}
	return true, g.count(h)
}

// first remembers a token that has just proved valid, and counts its first call.
func (g *Gate) first(key [sha256.Size]byte, organization string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.tokens.of(key)
	h.organization = organization
	return g.count(h)
}

// count counts a call of a person. A refused one takes nothing.
func (g *Gate) count(h *holder) error {
	if h.organization == "" {
		return nil
	}
	now, of := g.now(), g.organizations.of(h.organization)
	if wait := missing(h.calls, now); wait > 0 {
		return tooMany(wait, "this token makes more than %s a second; wait a moment, and make fewer at once", text.Count(g.rates.Token, "call"))
	}
	if wait := missing(of, now); wait > 0 {
		return tooMany(wait, "the people of organization %s make more than %s a second together; wait a moment", h.organization, text.Count(g.rates.Organization, "call"))
	}
	h.calls.AllowN(now, 1)
	of.AllowN(now, 1)
	return nil
}

func tooMany(wait time.Duration, format string, args ...any) error {
	return &workflow.Error{Kind: workflow.ErrTooMany, Message: fmt.Sprintf(format, args...), RetryAfter: wait}
}

// Address is the address of a request's sender: that of the connection, or on AWS the gateway's word, and never a
// header. Of an IPv6 address only the network counts, because its holder has all of it.
func Address(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
