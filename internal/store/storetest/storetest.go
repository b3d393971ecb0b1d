// Package storetest holds every implementation of store.Store to the promises of package store. It
// asks for nothing beyond them: a Query may be stale, a commit may be answered busy or unknown,
// and the store that is opened may have been used before.
package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Run holds the stores that open returns to the contract. open is called once for each test, and
// closes its store with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	run(t, open, false)
}

// RunModest is Run where thousands of records take minutes, and for emulators that count bytes for
// more than they are: with a tenth of the records where there are thousands, and with text as the largest values.
func RunModest(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	run(t, open, true)
}

func run(t *testing.T, open func(t *testing.T) store.Store, modest bool) {
	t.Helper()
	groups := []struct {
		name  string
		tests []test
	}{
		{"Commit", commitTests},
		{"Get", getTests},
		{"Range", rangeTests},
		{"Query", queryTests},
		{"Concurrency", concurrencyTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, tt := range g.tests {
				t.Run(tt.name, func(t *testing.T) { tt.run(newFixture(t, open(t), modest)) })
			}
		})
	}
}

type test struct {
	name string
	run  func(f fixture)
}

// fixture is the environment of a test: a store that is used as a correct caller uses it, and names that
// nobody else uses.
type fixture struct {
	*testing.T
	store store.Store
	bare  store.Store // the same, each call as it is answered
	own   string
	// modest asks for less; see RunModest.
	modest bool
}

func newFixture(t *testing.T, s store.Store, modest bool) fixture {
	return fixture{T: t, store: caller{s}, bare: s, own: rand.Text()[:12], modest: modest}
}

// many is n, or a tenth of it.
func (f fixture) many(n int) int {
	if f.modest && n >= 10 {
		return n / 10
	}
	return n
}

// part returns a partition of this test's own.
func (f fixture) part(name string) string { return f.own + "/" + name }

func (f fixture) key(part, sort string) store.Key {
	return store.Key{Part: f.part(part), Sort: sort}
}

func newID() string { return rand.Text() }

// commit commits under a new id and wants it done.
func (f fixture) commit(ops ...store.Op) {
	f.Helper()
	if err := f.store.Commit(f.Context(), newID(), ops...); err != nil {
		f.Fatalf("commit: %v", err)
	}
}

// conflict commits under a new id and wants it to lose.
func (f fixture) conflict(ops ...store.Op) {
	f.Helper()
	if err := f.store.Commit(f.Context(), newID(), ops...); !errors.Is(err, store.ErrConflict) {
		f.Fatalf("got error %v, want ErrConflict", err)
	}
}

// create makes records that are known to be absent.
func (f fixture) create(records ...store.Record) {
	f.Helper()
	for len(records) > 0 {
		n := min(len(records), store.MaxOps)
		ops := make([]store.Op, n)
		for i, r := range records[:n] {
			ops[i] = store.Put(r, store.Absent)
		}
		f.commit(ops...)
		records = records[n:]
	}
}

func (f fixture) get(keys ...store.Key) []store.Record {
	f.Helper()
	got, err := f.store.Get(f.Context(), keys...)
	if err != nil {
		f.Fatalf("get: %v", err)
	}
	return got
}

func (f fixture) version(k store.Key) int64 {
	f.Helper()
	if got := f.get(k); len(got) == 1 {
		return got[0].Version
	}
	return store.Absent
}

// wantVersions wants each key to have the version beside it; 0 wants it absent.
func (f fixture) wantVersions(want map[store.Key]int64) {
	f.Helper()
	for k, v := range want {
		if got := f.version(k); got != v {
			f.Errorf("%s has version %d, want %d", k, got, v)
		}
	}
}

// list reads all pages of a scan.
func list(ctx context.Context, s store.Scan, read func(context.Context, store.Scan) (store.Page, error)) ([]store.Record, error) {
	var all []store.Record
	for {
		page, err := read(ctx, s)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Records...)
		switch {
		case len(page.Records) > s.Limit:
			return nil, fmt.Errorf("a page of %d records, the limit was %d", len(page.Records), s.Limit)
		case page.Next == "":
			return all, nil
		case len(page.Records) < s.Limit:
			return nil, fmt.Errorf("a page of %d records of %d has a Next", len(page.Records), s.Limit)
		case page.Next == s.After:
			return nil, errors.New("a page names itself as the next")
		}
		s.After = page.Next
	}
}

func (f fixture) rangeAll(s store.Scan) []store.Record {
	f.Helper()
	got, err := list(f.Context(), s, f.store.Range)
	if err != nil {
		f.Fatalf("range: %v", err)
	}
	return got
}

// eventually reads all pages of an index scan until they are as wanted, for an index may be stale.
func (f fixture) eventually(index store.Index, s store.Scan, want []store.Record) {
	f.Helper()
	var got []store.Record
	f.poll(func() (done bool) {
		var err error
		got, err = list(f.Context(), s, func(ctx context.Context, s store.Scan) (store.Page, error) {
			return f.store.Query(ctx, index, s)
		})
		if err != nil {
			f.Fatalf("query: %v", err)
		}
		return slices.EqualFunc(want, got, equal)
	}, func() string {
		return fmt.Sprintf("query of %s %+v stays wrong (-want +got):\n%s", index, s, same(want, got))
	})
}

// poll asks done until it says yes. It waits on the clock only where the store needs it.
func (f fixture) poll(done func() bool, complaint func() string) {
	f.Helper()
	const limit = 4 * time.Minute
	start := time.Now()
	for try := 0; ; try++ {
		if done() {
			return
		}
		if time.Since(start) > limit {
			f.Fatal(complaint())
		}
		wait(f.Context(), try)
	}
}

// wait lets others go on: at first without the clock, then for longer and longer.
func wait(ctx context.Context, try int) {
	if try < 50 {
		runtime.Gosched()
		return
	}
	timer := time.NewTimer(min(time.Duration(try-49)*time.Millisecond, 100*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// same returns how the records differ, or nothing. It asks cmp only for the words, because the
// suite compares many megabytes.
func same(want, got []store.Record) string {
	if slices.EqualFunc(want, got, equal) {
		return ""
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

func equal(a, b store.Record) bool {
	return a.Key == b.Key && a.Version == b.Version && a.Expires == b.Expires &&
		bytes.Equal(a.Value, b.Value) && maps.Equal(a.Indexes, b.Indexes)
}

func (f fixture) wantSame(want, got []store.Record) {
	f.Helper()
	if diff := same(want, got); diff != "" {
		f.Errorf("records differ (-want +got):\n%s", diff)
	}
}

// wantRefused wants an error that is none of the outcomes of a correct call.
func (f fixture) wantRefused(err error) {
	f.Helper()
	switch {
	case err == nil:
		f.Error("taken, want it refused")
	case isSentinel(err):
		f.Errorf("got %v, want an error that says that the call is wrong", err)
	}
}

func isSentinel(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrUnknown)
}

// caller is a store as a correct caller uses it: a busy call is tried again, and a commit whose
// outcome is unknown is repeated with the same id. It gives up once the outcome stays unknown: a store may no longer
// know it where the record was written many times since.
type caller struct{ store.Store }

func (c caller) again(ctx context.Context, do func() error) error {
	const maxTries, maxUnknown = 10_000, 100
	unknown := 0
	for try := 0; ; try++ {
		err := do()
		if errors.Is(err, store.ErrUnknown) {
			unknown++
		}
		if !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrUnknown) || ctx.Err() != nil || try == maxTries || unknown == maxUnknown {
			return err
		}
		wait(ctx, try)
	}
}

func (c caller) Get(ctx context.Context, keys ...store.Key) (r []store.Record, err error) {
	err = c.again(ctx, func() error {
		r, err = c.Store.Get(ctx, keys...)
		return err
	})
	return r, err
}

func (c caller) Range(ctx context.Context, s store.Scan) (p store.Page, err error) {
	err = c.again(ctx, func() error {
		p, err = c.Store.Range(ctx, s)
		return err
	})
	return p, err
}

func (c caller) Query(ctx context.Context, index store.Index, s store.Scan) (p store.Page, err error) {
	err = c.again(ctx, func() error {
		p, err = c.Store.Query(ctx, index, s)
		return err
	})
	return p, err
}

func (c caller) Commit(ctx context.Context, id string, ops ...store.Op) error {
	unknown := false
	err := c.again(ctx, func() error {
		err := c.Store.Commit(ctx, id, ops...)
		unknown = unknown || errors.Is(err, store.ErrUnknown)
		return err
	})
	// That a repeat wrote nothing, because it was too late or busy, says nothing of the first.
	if unknown && (errors.Is(err, store.ErrBusy) || err != nil && ctx.Err() != nil) {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	return err
}
