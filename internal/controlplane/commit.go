package controlplane

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	commitTries  = 40                     // decisions made before a call gives up as busy
	firstWait    = time.Millisecond       // first mean wait after a lost race
	mostWait     = 100 * time.Millisecond // longest mean wait
	unknownTries = 10                     // repeats of one commit whose answer was lost
)

// read fetches keys consistently. Together they are no snapshot: the commit checks them.
func (p *Plane) read(ctx context.Context, keys ...store.Key) (read, error) {
	out := make(read, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), store.MaxGet)
		records, err := p.store.Get(ctx, keys[:n]...)
		if err != nil {
			return nil, fmt.Errorf("read records: %w", err)
		}
		for _, r := range records {
			out[r.Key] = r
		}
		keys = keys[n:]
	}
	return out, nil
}

// decide makes a decision and commits it, again from fresh records as often as it loses a race.
// The decision returns the operations; none means that nothing needs to change. It may be called
// many times and must have no effect of its own but on variables that it sets anew each time.
func (p *Plane) decide(ctx context.Context, decision func(ctx context.Context) ([]store.Op, error)) error {
	for try := range commitTries {
		if try > 0 {
			if err := pause(ctx, try); err != nil {
				return err
			}
		}
		ops, err := decision(ctx)
		if errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		if len(ops) == 0 {
			return nil
		}
		err = p.commit(ctx, ops)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrBusy):
			continue
		case errors.Is(err, store.ErrUnknown):
			return busy("the store did not answer whether the change was made; ask again")
		default:
			return fmt.Errorf("commit: %w", err)
		}
	}
	return busy("too many changes at once; ask again")
}

// commit applies operations once, repeating one whose answer was lost under the same id, so that
// the store recognises it.
func (p *Plane) commit(ctx context.Context, ops []store.Op) error {
	id := record.Random(18)
	var err error
	for try := range unknownTries {
		if try > 0 {
			if waitErr := pause(ctx, try); waitErr != nil {
				return fmt.Errorf("%w: %w", store.ErrUnknown, waitErr)
			}
		}
		if err = p.store.Commit(ctx, id, ops...); !errors.Is(err, store.ErrUnknown) {
			// Busy after a lost answer says nothing of the first try: it stays unknown.
			if try == 0 || !errors.Is(err, store.ErrBusy) {
				return err
			}
		}
	}
	return fmt.Errorf("%w: %w", store.ErrUnknown, err)
}

func busy(why string) error {
	return &workflow.Error{Kind: workflow.ErrBusy, Message: why, RetryAfter: time.Second}
}

// pause waits with full jitter, longer with each try.
func pause(ctx context.Context, try int) error {
	mean := min(firstWait<<min(try, 10), mostWait)
	// Jitter keeps racers apart; it needs no secrecy.
	t := time.NewTimer(time.Duration(mathrand.Int64N(int64(2 * mean)))) //nolint:gosec // jitter
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Token prefixes make a leaked token recognisable.
const (
	userPrefix = "dfu_"
	poolPrefix = "dfp_"
	jobPrefix  = "dfj_"
)

// newToken makes a token of 256 random bits and returns it with the hash that is stored.
func newToken(prefix string) (value, hash string) {
	value = prefix + record.Random(32)
	return value, record.Hash(value)
}
