package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of how old a secret may be.
const (
	secretTTL = 5 * time.Minute // after that it is read again, if nobody says for how long it is valid
	// secretFloor is the minimum time between two readings, so that a revoked token or a forged ticket does
	// not hammer the place that it is read from.
	secretFloor = 10 * time.Second
)

// Secret is one secret, cached. Its methods may be called concurrently: one call reads the secret at a
// time, and the others wait for it, unless the value that they have is known to be valid.
type Secret struct {
	name  string // for people
	fetch Fetch
	now   func() time.Time

	reading chan struct{} // holds a token: the call that has it may read
	mu      sync.Mutex
	value   redact.String
	renew   time.Time // when value is read again
	ends    time.Time // when value is no longer valid; zero: not known
	tried   time.Time // when it was last tried to read it
	refused bool      // value was refused since it was read
}

// Fetch reads a secret. lives is for how long it is valid; 0 means that this is not known.
type Fetch func(ctx context.Context) (value redact.String, lives time.Duration, err error)

// NewSecret returns a secret that fetch reads when it is first needed. name is its name in errors. now may
// be nil.
func NewSecret(name string, now func() time.Time, fetch Fetch) *Secret {
	if now == nil {
		// Without the monotonic reading, which may stand still while a function is frozen.
		now = func() time.Time { return time.Now().Round(0) }
	}
	return &Secret{name: name, fetch: fetch, now: now, reading: make(chan struct{}, 1)}
}

// Get returns the value. It reads it again when it was refused, when two thirds of its life are over, or, if its life
// is not known, after five minutes. If that fails, it returns the earlier value while that may still be valid.
func (s *Secret) Get(ctx context.Context) (redact.String, error) {
	if v, ok := s.cached(); ok {
		return v, nil
	}
	select {
	case s.reading <- struct{}{}:
	default:
		if v, ok := s.valid(); ok {
			return v, nil // another call reads a new one
		}
		select {
		case s.reading <- struct{}{}:
		case <-ctx.Done():
			return redact.String{}, context.Cause(ctx)
		}
	}
	defer func() { <-s.reading }()
	if v, ok := s.cached(); ok {
		return v, nil // another call read it in the meantime
	}
	value, lives, err := s.fetch(ctx)
	text := strings.TrimSpace(value.Reveal())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = s.now()
	if !s.ends.IsZero() && !s.tried.Before(s.ends) {
		s.value = redact.String{}
	}
	switch {
	case err != nil && s.value.Empty():
		return redact.String{}, fmt.Errorf("read %s: %w", s.name, err)
	case err != nil:
		return s.value, nil // cached returns it until the floor is over
	case text == "":
		return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "", "the secret of %s is empty or binary: store text", s.name)
	}
	s.value, s.refused, s.renew, s.ends = redact.New(text), false, s.tried.Add(secretTTL), time.Time{}
	if lives > 0 {
		// Not all at once, if many began at once.
		s.renew, s.ends = s.tried.Add(lives*2/3-rand.N(lives/10+1)), s.tried.Add(lives) //nolint:gosec // spreads load
	}
	return s.value, nil
}

// cached returns the value while it need not, or must not yet, be read again.
func (s *Secret) cached() (redact.String, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	over := !s.ends.IsZero() && !now.Before(s.ends)
	good := !s.refused && now.Before(s.renew)
	return s.value, !s.value.Empty() && !over && (good || now.Sub(s.tried) < secretFloor)
}

// valid returns the value if it is known to be valid.
func (s *Secret) valid() (redact.String, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, !s.value.Empty() && !s.refused && s.now().Before(s.ends)
}

// Refused says that the value was not accepted. The next Get reads it again, unless it was read too recently. Refused
// reports whether Get will do so; if not, after says how long to wait.
func (s *Secret) Refused() (again bool, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = true
	after = max(0, secretFloor-s.now().Sub(s.tried))
	return after == 0, after
}
