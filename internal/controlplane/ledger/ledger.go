// Package ledger reads records, collects what one commit changes, and commits it. It knows nothing of
// workflows.
//
// Every change is one conditional commit that names the version of each record that the decision
// was made on. A commit that loses the race is decided again from fresh records; one whose answer
// was lost is repeated with the same id.
package ledger

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

// Ledger is a store as the control plane uses it. Its methods may be called concurrently.
type Ledger struct {
	store store.Store
	now   func() time.Time
}

// New returns a ledger over st, with the control plane's clock.
func New(st store.Store, now func() time.Time) *Ledger { return &Ledger{store: st, now: now} }

// Now is the control plane's clock, as it is stored: without a zone and a monotonic part.
func (l *Ledger) Now() time.Time { return l.now().UTC().Round(0) }

// Range reads a partition, consistently: see store.Store.
func (l *Ledger) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	return l.store.Range(ctx, s)
}

// Query reads an index, which may be stale: nothing is decided on it.
func (l *Ledger) Query(ctx context.Context, index store.Index, s store.Scan) (store.Page, error) {
	return l.store.Query(ctx, index, s)
}

// Read fetches keys consistently. Together they are no snapshot: the commit checks them.
func (l *Ledger) Read(ctx context.Context, keys ...store.Key) (Read, error) {
	out := make(Read, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), store.MaxGet)
		records, err := l.store.Get(ctx, keys[:n]...)
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

// Decide makes a decision and commits it, again from fresh records as often as it loses a race.
// The decision returns the operations; none means that nothing needs to change. It may be called
// many times and must have no effect of its own but on variables that it sets anew each time.
func (l *Ledger) Decide(ctx context.Context, decision func(ctx context.Context) ([]store.Op, error)) error {
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
		err = l.Commit(ctx, ops)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrBusy):
			continue
		case errors.Is(err, store.ErrFull):
			return full()
		case errors.Is(err, store.ErrUnknown):
			return busy("the store did not answer whether the change was made; ask again")
		default:
			return fmt.Errorf("commit: %w", err)
		}
	}
	return busy("too many changes at once; ask again")
}

// Commit applies operations once, repeating one whose answer was lost under the same id, so that
// the store recognises it.
func (l *Ledger) Commit(ctx context.Context, ops []store.Op) error {
	id := record.Random(18)
	var err error
	for try := range unknownTries {
		if try > 0 {
			if waitErr := pause(ctx, try); waitErr != nil {
				return fmt.Errorf("%w: %w", store.ErrUnknown, waitErr)
			}
		}
		if err = l.store.Commit(ctx, id, ops...); !errors.Is(err, store.ErrUnknown) {
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

// full is for a person: nobody else makes room.
func full() error {
	return busy("there is no room left on the disk that holds the control plane's records: nothing can be changed until there is")
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

// OutOfStore turns what a store says of itself into what its caller can act on.
func OutOfStore(err error) error {
	if errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrUnknown) {
		return busy("the store is busy; ask again")
	}
	return err
}
