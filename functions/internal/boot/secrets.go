package boot

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of how old a secret may be.
const (
	secretTTL = 5 * time.Minute // after that it is read again
	// secretFloor is the least time between two readings, so that a revoked token or a forged ticket does
	// not hammer Secrets Manager.
	secretFloor = 10 * time.Second
)

// Secret is one secret, cached. Its methods may be called concurrently: one call reads the secret at a
// time, and the others wait for it.
type Secret struct {
	name  string // for people
	fetch func(ctx context.Context) (string, error)
	now   func() time.Time

	reading chan struct{} // holds a token: who has it may read
	mu      sync.Mutex
	value   redact.String
	read    time.Time // when value was read
	tried   time.Time // when it was last tried to read it
	refused bool      // value was refused since it was read
}

// NewSecret returns a secret that fetch reads when it is first needed. name is its name in errors. now may
// be nil.
func NewSecret(name string, now func() time.Time, fetch func(ctx context.Context) (string, error)) *Secret {
	if now == nil {
		// Without the monotonic reading, which may stand still while a function is frozen.
		now = func() time.Time { return time.Now().Round(0) }
	}
	return &Secret{name: name, fetch: fetch, now: now, reading: make(chan struct{}, 1)}
}

// Get returns the value. It reads it again when it is older than five minutes or was refused. If that fails, it
// returns the earlier value if there is one, which may still be valid.
func (s *Secret) Get(ctx context.Context) (redact.String, error) {
	if v, ok := s.cached(); ok {
		return v, nil
	}
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return redact.String{}, context.Cause(ctx)
	}
	if v, ok := s.cached(); ok {
		return v, nil // another call read it in the meantime
	}
	text, err := s.fetch(ctx)
	text = strings.TrimSpace(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = s.now()
	switch {
	case err != nil && s.value.Empty():
		return redact.String{}, fmt.Errorf("read %s: %w", s.name, err)
	case err != nil:
		return s.value, nil // cached returns it until the floor is over
	case text == "":
		return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "", "the secret of %s is empty or binary: store text", s.name)
	}
	s.value, s.read, s.refused = redact.New(text), s.tried, false
	return s.value, nil
}

// cached returns the value while it need not, or must not yet, be read again.
func (s *Secret) cached() (redact.String, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	good := !s.refused && now.Sub(s.read) < secretTTL
	return s.value, !s.value.Empty() && (good || now.Sub(s.tried) < secretFloor)
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

// Keys are the keys of the tickets, from a secret in the form of ticket.FormatKeys. To replace a key, put
// the new one last. Five minutes later or more, move it to the front. Keep the old one for as long as its
// tickets live.
type Keys struct {
	secret *Secret

	mu   sync.Mutex
	text redact.String
	ring *ticket.Keyring
}

// NewKeys returns the keys in a secret. Load reads them.
func NewKeys(secret *Secret) *Keys { return &Keys{secret: secret} }

// Load reads the keys if they are not known or too old. Call it when an invocation begins.
func (k *Keys) Load(ctx context.Context) error {
	text, err := k.secret.Get(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring != nil && k.text == text {
		return nil
	}
	keys, err := ticket.ParseKeys([]byte(text.Reveal()))
	if err != nil {
		return fmt.Errorf("read the secret of the ticket keys: %w", err)
	}
	ring, err := ticket.NewKeyring(keys...)
	if err != nil {
		return fmt.Errorf("read the secret of the ticket keys: %w", err)
	}
	k.text, k.ring = text, ring
	return nil
}

func (k *Keys) current() (*ticket.Keyring, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring == nil {
		return nil, workflow.Refuse(workflow.ErrBusy, "", "the ticket keys are not read yet")
	}
	return k.ring, nil
}

// Seal makes a ticket with the first of the loaded keys.
func (k *Keys) Seal(c ticket.Claims) (string, error) {
	ring, err := k.current()
	if err != nil {
		return "", err
	}
	return ring.Seal(c)
}

// Open opens a ticket with the loaded keys. Call Know before it where a wrong refusal would do harm.
func (k *Keys) Open(sealed string, now time.Time) (ticket.Claims, error) {
	ring, err := k.current()
	if err != nil {
		return ticket.Claims{}, err
	}
	return ring.Open(sealed, now)
}

// Know reads the keys again if the loaded ones do not open a ticket: the ticket's key may be newer, and a runner
// whose ticket is refused ends its run. If they were read too recently to be read again, it returns a
// transient error. A ticket that the current keys do not open is not an error here: Open refuses it.
func (k *Keys) Know(ctx context.Context, sealed string, now time.Time) error {
	if err := k.Load(ctx); err != nil {
		return err
	}
	if _, err := k.Open(sealed, now); err == nil {
		return nil
	}
	again, after := k.secret.Refused()
	if again {
		return k.Load(ctx)
	}
	return &workflow.Error{
		Kind: workflow.ErrBusy, RetryAfter: after,
		Message: "the ticket does not open with the keys that were read a moment ago: try again",
	}
}
