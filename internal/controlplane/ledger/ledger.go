// Package ledger makes every change: it reads records, collects the operations of one commit, keeps everything that
// depends on a workflow's state in step with it, commits, and wakes the pools for which work became claimable.
// Package rules makes the decisions about a workflow.
//
// Every change is one conditional commit that names the version of each record that the decision
// was made on. A commit that loses the race is decided again from fresh records; one whose answer
// was lost is repeated with the same id.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	commitTries  = 40                     // decisions made before a call gives up as busy
	firstWait    = time.Millisecond       // first mean wait after a lost race
	maxRetryWait = 100 * time.Millisecond // longest mean wait
	unknownTries = 10                     // repeats of one commit whose answer was lost

	// decidedFor is how long a decision may wait for its commit. Its records have the time of the decision, and the
	// pass seals lines of the audit trail that are older than five minutes: the remaining minutes are for a commit on
	// its way and for clocks that differ.
	decidedFor = 2 * time.Minute
)

// Config has the parts that a Ledger works with. Everything except Waker is required.
type Config struct {
	Now   func() time.Time // the control plane's clock
	Log   *slog.Logger
	Waker Waker // nil means that pools find their work by themselves
	Alone bool  // this process makes all passes, and has all waiting calls
	// Expires says that the store deletes expired records on its own. Then the records of runs are given their times;
	// otherwise these would only cost, because the pass finds the runs without them.
	Expires bool
}

// Ledger is a store as the control plane uses it. Its methods may be called concurrently.
type Ledger struct {
	Log          *slog.Logger // the calls over this ledger log here too
	StoreExpires bool         // see Config.Expires
	// OnEvent makes deliveries of the outbox events of an organization; it is called after a commit that emits some,
	// and may be called concurrently. Nil means that only the pass makes them.
	OnEvent func(ctx context.Context, org string) error

	store   store.Store
	now     func() time.Time
	waker   Waker
	alone   bool
	hot     chan struct{} // of capacity one: see ChangeHot
	clock   clock
	waiting waiting

	retention sync.Map // by organization: see Times
	links     links
}

// New returns a ledger over st.
func New(st store.Store, cfg Config) *Ledger {
	return &Ledger{
		Log: cfg.Log, store: st, now: cfg.Now, waker: cfg.Waker, alone: cfg.Alone, hot: make(chan struct{}, 1),
		clock: clock{first: cfg.Alone, known: map[store.Key]known{}}, StoreExpires: cfg.Expires,
	}
}

// Now is the control plane's clock, as it is stored: without a zone and a monotonic part.
func (l *Ledger) Now() time.Time { return l.now().UTC().Round(0) }

// Range reads a partition, consistently: see store.Store.
func (l *Ledger) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	return l.View().Range(ctx, s)
}

// Query reads an index, which may be stale: no decision is made on it.
func (l *Ledger) Query(ctx context.Context, index store.Index, s store.Scan) (store.Page, error) {
	page, err := l.store.Query(ctx, index, s)
	if err != nil {
		err = outOfStore(fmt.Errorf("read the index of %s: %w", s.Part, err))
	}
	return page, err
}

// Read fetches keys consistently. Together they are not a snapshot: the commit checks them.
func (l *Ledger) Read(ctx context.Context, keys ...store.Key) (Read, error) {
	c := l.View()
	err := c.Load(ctx, keys...)
	return c.Read, err
}

// ranger is a store that reads several ranges at the same time, because each read takes a while.
type ranger interface {
	Ranges(ctx context.Context, scans ...store.Scan) ([]store.Page, error)
}

// AtOnce is how many pieces of work a caller may do at the same time. In a store on this machine more than one brings
// nothing.
func (l *Ledger) AtOnce() int {
	if _, slow := l.store.(ranger); slow {
		return 8
	}
	return 1
}

// Workflow reads one workflow, with the version of its record.
func (l *Ledger) Workflow(ctx context.Context, org, id string) (w record.Workflow, version int64, err error) {
	if err := record.CheckID(id); err != nil {
		return w, 0, err
	}
	k := record.WorkflowKey(id)
	r, err := l.Read(ctx, k)
	if err != nil {
		return w, 0, err
	}
	w, ok, err := Get[record.Workflow](r, k)
	if err == nil && (!ok || w.Org != org) {
		err = NoWorkflow(id)
	}
	if err == nil {
		err = l.kept(ctx, &w)
	}
	if err != nil {
		return record.Workflow{}, 0, err
	}
	return w, r.Version(k), nil
}

// NoWorkflow refuses an id for which there is no workflow.
func NoWorkflow(id string) error {
	return workflow.Refuse(workflow.ErrNotFound, "id", "there is no workflow %s", id)
}

// decide makes a decision and commits it. Each time that it loses a race, it decides again from fresh records. The
// decision returns the operations; none means that nothing needs to change. It may be called many times and must have
// no effects of its own, except on variables that it sets anew each time.
func (l *Ledger) decide(ctx context.Context, decision func(ctx context.Context) ([]store.Op, error)) error {
	for try := range commitTries {
		if try > 0 {
			if err := pause(ctx, try); err != nil {
				return err
			}
		}
		began := l.Now()
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
		if l.isOld(began) {
			continue // decide again: see decidedFor
		}
		err = l.commit(ctx, ops, began)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrBusy):
			continue
		case errors.Is(err, store.ErrFull):
			// This is for a person, because only a person can make room.
			return busy("the disk with the control plane's records is full: nothing can be changed until there is room")
		case errors.Is(err, store.ErrUnknown):
			return busy("the store did not answer whether the change was made; ask again")
		default:
			return fmt.Errorf("commit: %w", err)
		}
	}
	return busy("too many changes at once; ask again")
}

// Commit applies operations once. If the answer does not arrive, it repeats the commit under the same id, so that the
// store recognises it.
func (l *Ledger) Commit(ctx context.Context, ops []store.Op) error {
	return l.commit(ctx, ops, l.Now())
}

// isOld reports whether a decision of that time is too old to be committed. It is an age, so a clock that was set
// back does not count.
func (l *Ledger) isOld(decided time.Time) bool { return l.Now().Sub(decided) > decidedFor }

// commit is Commit of a decision that was made at a time.
func (l *Ledger) commit(ctx context.Context, ops []store.Op, decided time.Time) error {
	id := record.Random(18)
	var err error
	for try := range unknownTries {
		if try > 0 {
			if waitErr := pause(ctx, try); waitErr != nil {
				return fmt.Errorf("%w: %w", store.ErrUnknown, waitErr)
			}
			if l.isOld(decided) {
				break
			}
		}
		if err = l.store.Commit(ctx, id, ops...); !errors.Is(err, store.ErrUnknown) {
			// Busy after a missing answer says nothing about the first try: that stays unknown.
			if try == 0 || !errors.Is(err, store.ErrBusy) {
				l.clock.wrote(ops)
				return err
			}
		}
	}
	return fmt.Errorf("%w: %w", store.ErrUnknown, err)
}

func busy(why string) error {
	return &workflow.Error{Kind: workflow.ErrBusy, Message: why, RetryAfter: time.Second}
}

// pause keeps racing calls apart, longer with each try.
func pause(ctx context.Context, try int) error {
	return wait.For(ctx, wait.Backoff(firstWait, maxRetryWait, try))
}

// outOfStore makes of a store's error one that a caller can act on. A read for a decision keeps the store's own
// error, because the decision is tried again.
func outOfStore(err error) error {
	if errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrUnknown) {
		return busy("the store is busy; ask again")
	}
	return err
}
