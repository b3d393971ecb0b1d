package store_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
)

var sorts = []string{"\x00", "\x00\x00", "\x00\x01", "\x00\x02", "\x00\xff", "\x01", "a", "a\x00", "a\x00\x01", "a\x00\xff", "a\x01", "ab", "\xff"}

func TestPlace_OrdersByEntryThenByKey(t *testing.T) {
	type spot struct{ sort, keyPart, keySort string }
	var spots []spot
	for _, a := range sorts {
		for _, b := range sorts {
			for _, c := range sorts {
				spots = append(spots, spot{a, b, c})
			}
		}
	}
	place := func(s spot) string {
		return store.Place(store.Entry{Part: "p", Sort: s.sort}, store.Key{Part: s.keyPart, Sort: s.keySort})
	}
	for i := 1; i < len(spots); i++ {
		if a, b := place(spots[i-1]), place(spots[i]); a >= b {
			t.Fatalf("place %q of %q is not before %q of %q", a, spots[i-1], b, spots[i])
		}
	}
}

func TestScan_BoundsCoverWhatTheContractSays(t *testing.T) {
	within := func(at, low, high string) bool { return at >= low && (high == "" || at < high) }
	key := store.Key{Part: "p\x00", Sort: "k"}
	for _, from := range append(sorts, "") {
		for _, to := range append(sorts, "") {
			for _, sort := range sorts {
				for _, reverse := range []bool{false, true} {
					want := (from == "" || sort >= from) && (to == "" || sort < to)
					if reverse {
						want = (from == "" || sort <= from) && (to == "" || sort > to)
					}
					s := store.Scan{Part: "p", From: from, To: to, Reverse: reverse, Limit: 1}
					if low, high := s.Bounds(); within(sort, low, high) != want {
						t.Errorf("%+v: bounds %q to %q cover %q: %v, want %v", s, low, high, sort, !want, want)
					}
					place := store.Place(store.Entry{Sort: sort}, key)
					if low, high := s.IndexBounds(); within(place, low, high) != want {
						t.Errorf("%+v: index bounds %q to %q cover %q: %v, want %v", s, low, high, sort, !want, want)
					}
				}
			}
		}
	}
}

func TestFingerprint_TellsOperationsApart(t *testing.T) {
	r := store.Record{Key: store.Key{Part: "p", Sort: "s"}, Value: []byte("v")}
	with := func(change func(*store.Record)) store.Op {
		c := r.Clone()
		change(&c)
		return store.Put(c, 1)
	}
	entry := func(index store.Index, part, sort string) store.Op {
		return with(func(r *store.Record) { r.Indexes = map[store.Index]store.Entry{index: {Part: part, Sort: sort}} })
	}
	all := [][]store.Op{
		{}, {store.Put(r, 1)}, {store.Put(r, 2)}, {store.Check(r.Key, 1)}, {store.Delete(r.Key, 1)},
		{store.Put(r, 1), store.Check(r.Key, 1)}, {store.Check(r.Key, 1), store.Put(r, 1)},
		{with(func(r *store.Record) { r.Key = store.Key{Part: "ps", Sort: "s"} })},
		{with(func(r *store.Record) { r.Key = store.Key{Part: "p", Sort: "ss"} })},
		{with(func(r *store.Record) { r.Value = nil })},
		{with(func(r *store.Record) { r.Value = []byte("w") })},
		{with(func(r *store.Record) { r.Expires = 1 })},
		{entry(store.Index1, "p", "s")}, {entry(store.Index2, "p", "s")}, {entry(store.Index1, "ps", "s")}, {entry(store.Index1, "p", "ss")},
	}
	for i, a := range all {
		for j, b := range all {
			if (store.Fingerprint(a) == store.Fingerprint(b)) != (i == j) {
				t.Errorf("operations %d and %d: same fingerprint is %v", i, j, i != j)
			}
		}
	}
	both := with(func(r *store.Record) {
		r.Indexes = map[store.Index]store.Entry{store.Index1: {Part: "a", Sort: "b"}, store.Index2: {Part: "c", Sort: "d"}}
	})
	want := store.Fingerprint([]store.Op{both})
	for range 20 { // a map's order must not show
		if got := store.Fingerprint([]store.Op{store.Put(both.Record(), both.Expect())}); got != want {
			t.Fatal("the same operation has two fingerprints")
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("a", "b", "c", "a", "b", "d")
	f.Add("\x00", "\x00\x01", "\xff", "", "\x00\xff", "\x01")
	f.Fuzz(func(t *testing.T, s1, p1, k1, s2, p2, k2 string) {
		a := store.Place(store.Entry{Sort: s1}, store.Key{Part: p1, Sort: k1})
		b := store.Place(store.Entry{Sort: s2}, store.Key{Part: p2, Sort: k2})
		if got, want := cmp.Compare(a, b), slices.Compare([]string{s1, p1, k1}, []string{s2, p2, k2}); got != want {
			t.Errorf("places of %q and %q compare %d, want %d", []string{s1, p1, k1}, []string{s2, p2, k2}, got, want)
		}
		sort, k, err := store.ParsePlace(a)
		if want := (store.Key{Part: p1, Sort: k1}); err != nil || sort != s1 || k != want {
			t.Errorf("ParsePlace(%q) = %q, %q, %v", a, sort, k, err)
		}
	})
}

// A place comes back from callers as a cursor: for any value, taking it apart neither fails
// otherwise than by an error nor accepts a second spelling of the same place.
func FuzzParsePlace(f *testing.F) {
	for _, s := range []string{"", "a", "\x00", "a\x00\x01b\x00\x01c", "a\x00\x01b\x00\x01c\x00\x01", "\x00\xff\x00\x01\x00\x01", "a\x00\x02", strings.Repeat("\x00", 9)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, place string) {
		sort, k, err := store.ParsePlace(place)
		if err != nil {
			return
		}
		if again := store.Place(store.Entry{Sort: sort}, k); again != place {
			t.Errorf("%q was taken for %q", place, again)
		}
	})
}
