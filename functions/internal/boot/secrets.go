package boot

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Secret is one secret, cached.
type Secret = client.Secret

// NewSecret returns a secret that fetch reads when it is first needed; for how long it is valid is not known. name is
// its name in errors. now may be nil.
func NewSecret(name string, now func() time.Time, fetch func(ctx context.Context) (string, error)) *Secret {
	return client.NewSecret(name, now, func(ctx context.Context) (redact.String, time.Duration, error) {
		text, err := fetch(ctx)
		return redact.New(text), 0, err
	})
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
