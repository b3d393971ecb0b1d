// Package storefault makes any store misbehave as far as its contract allows, by seed: commits that are
// busy, commits whose answer is lost, and an index that lags behind. It is for tests: code that works over
// it works over every store.
//
// # Consistency model
//
// Get, Range and the effect of a commit are the inner store's. A stale Query returns the index exactly
// as it was before some of the latest commits; two pages of one listing may be of two ages, and a
// later Query may be older than an earlier one. An index that is asked often enough without further
// commits catches up. One seed and one order of calls give one series of faults.
package storefault

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Faults are the chances, from 0 to 1, of each fault. The zero value makes none.
type Faults struct {
	Busy        float64 // a commit is answered ErrBusy and not applied
	LostRequest float64 // a commit is answered ErrUnknown and not applied
	LostAnswer  float64 // a commit is answered ErrUnknown after it was applied, or lost its race
	BusyRead    float64 // a Get, Range or Query is answered ErrBusy
	Stale       float64 // a Query is answered as of earlier commits
	Lag         int     // maximum of commits that a stale Query is behind; 0 means 64
}

// Counts says how often each fault was made.
type Counts struct {
	Busy, LostRequest, LostAnswer, BusyRead, Stale int
}

// Store is a store with faults. It is safe for concurrent use as far as the inner store is.
type Store struct {
	inner  store.Store
	faults Faults

	mu     sync.Mutex
	rnd    *rand.Rand
	off    bool
	counts Counts
	// recent are the latest commits that the index may not know of yet, oldest first: for each
	// the records as they were before it, nil where there was none.
	recent []map[store.Key]*store.Record
}

// New returns inner with faults that are on.
func New(inner store.Store, seed uint64, faults Faults) *Store {
	faults.Lag = cmp.Or(faults.Lag, 64)
	return &Store{
		inner: inner, faults: faults,
		rnd: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a series that can be repeated, not a secret
	}
}

// Switch turns the faults on or off. Off, the store is the inner one, and its index is up to date.
func (s *Store) Switch(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off, s.recent = !on, nil
}

// Made returns how often each fault was made.
func (s *Store) Made() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	if s.busyRead(ctx) {
		return nil, store.ErrBusy
	}
	return s.inner.Get(ctx, keys...)
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, scan store.Scan) (store.Page, error) {
	if s.busyRead(ctx) {
		return store.Page{}, store.ErrBusy
	}
	return s.inner.Range(ctx, scan)
}

// Query implements store.Store.
func (s *Store) Query(ctx context.Context, index store.Index, scan store.Scan) (store.Page, error) {
	if s.busyRead(ctx) {
		return store.Page{}, store.ErrBusy
	}
	if before := s.hidden(); before != nil && store.CheckScan(scan) == nil {
		return s.stale(ctx, index, scan, before)
	}
	return s.inner.Query(ctx, index, scan)
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if err := store.CheckCommit(id, ops); err != nil || ctx.Err() != nil {
		return s.inner.Commit(ctx, id, ops...) // as the inner store refuses it
	}
	fault, remember := s.drawCommit()
	if fault == lostRequest {
		return store.ErrUnknown
	}
	if fault == busy {
		return store.ErrBusy
	}
	var before map[store.Key]*store.Record
	if remember {
		before = s.images(ctx, ops)
	}
	err := s.inner.Commit(ctx, id, ops...)
	if before != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrBusy) {
		s.mu.Lock()
		s.recent = append(s.recent, before)
		s.recent = s.recent[max(0, len(s.recent)-s.faults.Lag):]
		s.mu.Unlock()
	}
	if fault == lostAnswer {
		return store.ErrUnknown
	}
	return err
}

type fault int

const (
	none fault = iota
	busy
	lostRequest
	lostAnswer
)

// drawCommit draws the fate of a commit, and says whether a Query may have to hide it.
func (s *Store) drawCommit() (f fault, remember bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return none, false
	}
	switch x := s.rnd.Float64(); {
	case x < s.faults.Busy:
		s.counts.Busy++
		f = busy
	case x < s.faults.Busy+s.faults.LostRequest:
		s.counts.LostRequest++
		f = lostRequest
	case x < s.faults.Busy+s.faults.LostRequest+s.faults.LostAnswer:
		s.counts.LostAnswer++
		f = lostAnswer
	}
	return f, s.faults.Stale > 0
}

func (s *Store) busyRead(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off || ctx.Err() != nil || s.rnd.Float64() >= s.faults.BusyRead {
		return false
	}
	s.counts.BusyRead++
	return true
}

// images reads the records that the operations are about to change. Any state that a record really had will do
// for an index that may be stale by any amount, so no lock is held between this and the commit.
func (s *Store) images(ctx context.Context, ops []store.Op) map[store.Key]*store.Record {
	before := map[store.Key]*store.Record{}
	var keys []store.Key
	for _, op := range ops {
		if !op.IsCheck() {
			keys, before[op.Key()] = append(keys, op.Key()), nil
		}
	}
	found, err := s.inner.Get(ctx, keys...)
	if err != nil {
		return nil // the index will not lag behind this commit
	}
	for _, r := range found {
		before[r.Key] = &r
	}
	return before
}

// hidden draws whether a Query is stale, and if so returns the records that it has to show as they
// were.
func (s *Store) hidden() map[store.Key]*store.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off || s.faults.Stale == 0 {
		return nil
	}
	stale, catchUp := s.rnd.Float64() < s.faults.Stale, s.rnd.Float64() < 0.25
	back := s.rnd.IntN(max(len(s.recent), 1)) + 1
	if len(s.recent) == 0 {
		return nil
	}
	var before map[store.Key]*store.Record
	if stale {
		s.counts.Stale++
		before = map[store.Key]*store.Record{}
		for _, images := range slices.Backward(s.recent[len(s.recent)-back:]) {
			for k, r := range images {
				before[k] = r // the oldest image of a record is the last to be set
			}
		}
	}
	if catchUp {
		s.recent = s.recent[(len(s.recent)+1)/2:]
	}
	return before
}

// stale answers a Query with some records as they were before.
func (s *Store) stale(ctx context.Context, index store.Index, scan store.Scan, before map[store.Key]*store.Record) (store.Page, error) {
	type placed struct {
		store.Record
		at string
	}
	var found []placed
	add := func(r store.Record) {
		found = append(found, placed{r, store.Place(r.Indexes[index], r.Key)})
	}
	// Enough of the index as it is: every record of the page that is not among those before.
	for rest := scan; ; {
		page, err := s.inner.Query(ctx, index, rest)
		if err != nil {
			return store.Page{}, err
		}
		for _, r := range page.Records {
			if _, changed := before[r.Key]; !changed {
				add(r)
			}
		}
		if rest.After = page.Next; page.Next == "" || len(found) >= scan.Limit {
			break
		}
	}
	low, high := scan.IndexBounds()
	for _, r := range before {
		if r == nil {
			continue
		}
		if e, ok := r.Indexes[index]; !ok || e.Part != scan.Part {
			continue
		}
		if at := store.Place(r.Indexes[index], r.Key); at >= low && (high == "" || at < high) {
			add(r.Clone())
		}
	}
	slices.SortFunc(found, func(a, b placed) int {
		if scan.Reverse {
			a, b = b, a
		}
		return strings.Compare(a.at, b.at)
	})
	var page store.Page
	for _, r := range found[:min(len(found), scan.Limit)] {
		page.Records = append(page.Records, r.Record)
	}
	if n := len(page.Records); n == scan.Limit {
		page.Next = found[n-1].at
	}
	return page, nil
}
