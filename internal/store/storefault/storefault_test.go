package storefault_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/store/storefault"
	"github.com/dayfly-dev/dayfly/internal/store/storetest"
)

var all = storefault.Faults{Busy: 0.1, LostRequest: 0.1, LostAnswer: 0.2, BusyRead: 0.05, Stale: 0.5}

// A correct caller sees every promise kept, in spite of all faults.
func TestStore_ConformanceOverMemory(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if testing.Short() {
		seeds = seeds[:1]
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			var made storefault.Counts
			storetest.Run(t, func(t *testing.T) store.Store {
				s := storefault.New(memory.New(), seed, all)
				t.Cleanup(func() { add(&made, s.Made()) })
				return s
			})
			wantEach(t, made)
		})
	}
}

func TestStore_ConformanceOverSQLite(t *testing.T) {
	var made storefault.Counts
	storetest.Run(t, func(t *testing.T) store.Store {
		inner, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "data"), sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		s := storefault.New(inner, 4, all)
		t.Cleanup(func() {
			add(&made, s.Made())
			if err := inner.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
	wantEach(t, made)
}

func add(sum *storefault.Counts, c storefault.Counts) {
	sum.Busy += c.Busy
	sum.LostRequest += c.LostRequest
	sum.LostAnswer += c.LostAnswer
	sum.BusyRead += c.BusyRead
	sum.Stale += c.Stale
}

func wantEach(t *testing.T, c storefault.Counts) {
	t.Helper()
	if min(c.Busy, c.LostRequest, c.LostAnswer, c.BusyRead, c.Stale) < 10 {
		t.Errorf("faults were made %+v times, want each often", c)
	}
}

func record(sort, value string) store.Record {
	return store.Record{Key: store.Key{Part: "p", Sort: sort}, Value: []byte(value)}
}

func TestCommit_FaultsAreWhatTheySay(t *testing.T) {
	for name, tt := range map[string]struct {
		faults  storefault.Faults
		want    error
		applied bool
	}{
		"no fault":     {storefault.Faults{}, nil, true},
		"busy":         {storefault.Faults{Busy: 1}, store.ErrBusy, false},
		"lost request": {storefault.Faults{LostRequest: 1}, store.ErrUnknown, false},
		"lost answer":  {storefault.Faults{LostAnswer: 1}, store.ErrUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			inner := memory.New()
			s := storefault.New(inner, 1, tt.faults)
			op := store.Put(record("a", "x"), store.Absent)
			if err := s.Commit(t.Context(), "one", op); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			got, err := inner.Get(t.Context(), op.Key())
			if err != nil || (len(got) == 1) != tt.applied {
				t.Errorf("got %v (%v), want it applied: %v", got, err, tt.applied)
			}
			// Switched off, the repeat is done, once.
			s.Switch(false)
			if err := s.Commit(t.Context(), "one", op); err != nil {
				t.Errorf("repeat: %v", err)
			}
			if got, err := s.Get(t.Context(), op.Key()); err != nil || len(got) != 1 || got[0].Version != 1 {
				t.Errorf("after the repeat: %v (%v)", got, err)
			}
			s.Switch(true)
			if err := s.Commit(t.Context(), "two", store.Put(record("b", "x"), store.Absent)); !errors.Is(err, tt.want) {
				t.Errorf("switched on again: got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestReads_AreBusy(t *testing.T) {
	s := storefault.New(memory.New(), 1, storefault.Faults{BusyRead: 1})
	scan := store.Scan{Part: "p", Limit: 1}
	_, get := s.Get(t.Context(), store.Key{Part: "p", Sort: "a"})
	_, ranged := s.Range(t.Context(), scan)
	_, query := s.Query(t.Context(), store.Index1, scan)
	for _, err := range []error{get, ranged, query} {
		if !errors.Is(err, store.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
	}
	if err := s.Commit(t.Context(), "one", store.Put(record("a", "x"), store.Absent)); err != nil {
		t.Errorf("commit: %v", err)
	}
}

// history is every state that the records ever had, so that a stale answer can be held against them.
type history []map[store.Key]store.Record

// query is what an index page is in one state, straight from the words of the contract.
func query(state map[store.Key]store.Record, index store.Index, scan store.Scan) []store.Record {
	var records []store.Record
	for _, r := range state {
		e, ok := r.Indexes[index]
		if !ok || e.Part != scan.Part {
			continue
		}
		covered := (scan.From == "" || e.Sort >= scan.From) && (scan.To == "" || e.Sort < scan.To)
		if scan.Reverse {
			covered = (scan.From == "" || e.Sort <= scan.From) && (scan.To == "" || e.Sort > scan.To)
		}
		if covered {
			records = append(records, r)
		}
	}
	slices.SortFunc(records, func(a, b store.Record) int {
		if scan.Reverse {
			a, b = b, a
		}
		return slices.Compare([]string{a.Indexes[index].Sort, a.Key.Part, a.Key.Sort}, []string{b.Indexes[index].Sort, b.Key.Part, b.Key.Sort})
	})
	return records[:min(len(records), scan.Limit)]
}

func same(a, b []store.Record) bool {
	return slices.EqualFunc(a, b, func(a, b store.Record) bool {
		return a.Key == b.Key && a.Version == b.Version && bytes.Equal(a.Value, b.Value) && maps.Equal(a.Indexes, b.Indexes)
	})
}

// A stale answer is not an invention: it is the index of some commits ago, page limits, bounds
// and order included.
func TestQuery_StaleAnswerIsAnEarlierState(t *testing.T) {
	const lag = 6
	s := storefault.New(memory.New(), 7, storefault.Faults{Stale: 0.7, Lag: lag})
	rnd := rand.New(rand.NewPCG(7, 7))
	past := history{{}}
	older := 0
	for i := range 600 {
		now := maps.Clone(past[len(past)-1])
		var ops []store.Op
		for _, n := range rnd.Perm(12)[:1+rnd.IntN(3)] {
			r := record(fmt.Sprint(n), fmt.Sprint(i))
			before, there := now[r.Key]
			if there && rnd.IntN(3) == 0 {
				ops = append(ops, store.Delete(r.Key, before.Version))
				delete(now, r.Key)
				continue
			}
			if rnd.IntN(5) > 0 {
				r.Indexes = map[store.Index]store.Entry{store.Index1: {Part: fmt.Sprint("i", rnd.IntN(2)), Sort: fmt.Sprint(rnd.IntN(6))}}
			}
			ops = append(ops, store.Put(r, before.Version))
			r.Version = before.Version + 1
			now[r.Key] = r
		}
		if err := s.Commit(t.Context(), fmt.Sprint(i), ops...); err != nil {
			t.Fatal(err)
		}
		past = append(past, now)
		for range 3 {
			scan := store.Scan{Part: "i0", Limit: 1 + rnd.IntN(8), Reverse: rnd.IntN(2) == 0}
			if rnd.IntN(2) == 0 {
				scan.From = fmt.Sprint(rnd.IntN(6))
			}
			if rnd.IntN(3) == 0 {
				scan.To = fmt.Sprint(rnd.IntN(6))
			}
			page, err := s.Query(t.Context(), store.Index1, scan)
			if err != nil {
				t.Fatal(err)
			}
			age := slices.IndexFunc(past[max(0, len(past)-1-lag):], func(state map[store.Key]store.Record) bool {
				return same(query(state, store.Index1, scan), page.Records)
			})
			if age < 0 {
				t.Fatalf("commit %d: the answer to %+v is none of the last %d states:\n%v", i, scan, lag, page.Records)
			}
			if !same(query(now, store.Index1, scan), page.Records) {
				older++
			}
			if (page.Next != "") != (len(page.Records) == scan.Limit) {
				t.Fatalf("a page of %d records with limit %d has the Next %q", len(page.Records), scan.Limit, page.Next)
			}
		}
	}
	if older < 200 {
		t.Errorf("%d of 1800 answers were stale, want many", older)
	}
	// Left alone, the index catches up.
	now := query(past[len(past)-1], store.Index1, store.Scan{Part: "i0", Limit: 100})
	for range 200 {
		if _, err := s.Query(t.Context(), store.Index1, store.Scan{Part: "i0", Limit: 100}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Query(t.Context(), store.Index1, store.Scan{Part: "i0", Limit: 100})
	if diff := cmp.Diff(now, page.Records, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("the index did not catch up (%v): %s", err, diff)
	}
}

func TestQuery_IsFreshWhenSwitchedOff(t *testing.T) {
	s := storefault.New(memory.New(), 1, storefault.Faults{Stale: 1})
	r := record("a", "x")
	r.Indexes = map[store.Index]store.Entry{store.Index1: {Part: "i", Sort: "s"}}
	if err := s.Commit(t.Context(), "one", store.Put(r, store.Absent)); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		page, err := s.Query(t.Context(), store.Index1, store.Scan{Part: "i", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Records)
	}
	if got := count(); got != 0 {
		t.Errorf("a query that is always stale shows %d records of the latest commit", got)
	}
	s.Switch(false)
	if got := count(); got != 1 {
		t.Errorf("switched off, it shows %d records, want 1", got)
	}
}

// run plays one series of calls and returns the answer of each.
func run(t *testing.T, seed uint64) string {
	t.Helper()
	s := storefault.New(memory.New(), seed, all)
	var b strings.Builder
	for i := range 300 {
		r := record(fmt.Sprint(i), "x")
		r.Indexes = map[store.Index]store.Entry{store.Index1: {Part: "i", Sort: r.Key.Sort}}
		err := s.Commit(t.Context(), fmt.Sprint(i), store.Put(r, store.Absent))
		page, err2 := s.Query(t.Context(), store.Index1, store.Scan{Part: "i", Limit: 1000})
		fmt.Fprintln(&b, err, len(page.Records), err2)
	}
	return b.String()
}

func TestStore_OneSeedIsOneSeries(t *testing.T) {
	if a, b := run(t, 5), run(t, 5); a != b {
		t.Error("one seed made two series")
	}
	if a, b := run(t, 5), run(t, 6); a == b {
		t.Error("two seeds made one series")
	}
}
