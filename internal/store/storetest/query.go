package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
)

var queryTests = []test{
	{"EntryComesAndGoesWithItsRecord", entryLives},
	{"IndexesAreApart", indexesAreApart},
	{"OrdersAsBytesAndTiesByKey", ordersTies},
	{"Bounds", queryBounds},
	{"PagesMeetWithoutGapOrRepeat", queryPages},
	{"PagesThroughTies", pagesThroughTies},
	{"PagesWhileRecordsMove", pagesWhileMoving},
	{"ForgedAfterStaysInBounds", queryForgedAfter},
	{"BadScanIsRefused", badQuery},
}

func (f fixture) entry(part, sort string) store.Entry {
	return store.Entry{Part: f.part(part), Sort: sort}
}

func in(r store.Record, index store.Index, e store.Entry) store.Record {
	r = r.Clone()
	if r.Indexes == nil {
		r.Indexes = map[store.Index]store.Entry{}
	}
	r.Indexes[index] = e
	return r
}

func entryLives(f fixture) {
	for _, index := range []store.Index{store.Index1, store.Index2} {
		k := f.key("p", string(index))
		here := store.Scan{Part: f.part("i"), Limit: 10}
		there := store.Scan{Part: f.part("j"), Limit: 10}
		r := value(k, "x")

		first := in(r, index, f.entry("i", "m"))
		f.commit(store.Put(first, store.Absent))
		f.eventually(index, here, []store.Record{at(first, 1)})

		// The entry stays, the record changes: the index returns it whole.
		changed := in(value(k, "y"), index, f.entry("i", "m"))
		f.commit(store.Put(changed, 1))
		f.eventually(index, here, []store.Record{at(changed, 2)})

		// It moves within its partition.
		neighbour := in(value(f.key("p", "neighbour of "+string(index)), "n"), index, f.entry("i", "k"))
		f.commit(store.Put(neighbour, store.Absent))
		f.eventually(index, here, []store.Record{at(neighbour, 1), at(changed, 2)})
		moved := in(r, index, f.entry("i", "a"))
		f.commit(store.Put(moved, 2))
		f.eventually(index, here, []store.Record{at(moved, 3), at(neighbour, 1)})

		// It moves to another partition.
		away := in(r, index, f.entry("j", "a"))
		f.commit(store.Put(away, 3))
		f.eventually(index, here, []store.Record{at(neighbour, 1)})
		f.eventually(index, there, []store.Record{at(away, 4)})

		// It is left out, and comes back.
		f.commit(store.Put(r, 4))
		f.eventually(index, there, nil)
		f.commit(store.Put(away, 5))
		f.eventually(index, there, []store.Record{at(away, 6)})

		// It goes with its record.
		f.commit(store.Delete(k, 6), store.Delete(neighbour.Key, 1))
		f.eventually(index, there, nil)
		f.eventually(index, here, nil)
	}
}

func indexesAreApart(f fixture) {
	r := in(value(f.key("p", "a"), "x"), store.Index1, f.entry("i", "1"))
	r = in(r, store.Index2, f.entry("i", "2"))
	only := in(value(f.key("p", "b"), "x"), store.Index2, f.entry("i", "0"))
	none := value(f.key("i", "c"), "x") // lies in a partition of the table that has the index's name
	f.create(r, only, none)
	scan := store.Scan{Part: f.part("i"), Limit: 10}
	f.eventually(store.Index1, scan, []store.Record{at(r, 1)})
	f.eventually(store.Index2, scan, []store.Record{at(only, 1), at(r, 1)})
	f.wantSame([]store.Record{at(none, 1)}, f.rangeAll(scan))
	// Out of one index, it stays in the other.
	delete(r.Indexes, store.Index1)
	f.commit(store.Put(r, 1))
	f.eventually(store.Index1, scan, nil)
	f.eventually(store.Index2, scan, []store.Record{at(only, 1), at(r, 2)})
}

// tied returns records in the order that an index has them: by entry, then by the record's
// partition, then by its sort key.
func (f fixture) tied(index store.Index, part string) []store.Record {
	var records []store.Record
	for _, s := range awkward {
		for _, p := range []string{"p", "p\x00", "p\x00\x01", "p\x01", "pq"} {
			for _, k := range []string{"\x00", "a", "a\x00", "ab"} {
				if len(p) > 1 && k != "a" && s != "a" {
					continue // keep it to a few hundred
				}
				if f.modest && (len(p) > 1 || k != "a") && s != "a" {
					continue
				}
				r := value(f.key(p, k+"/"+s), fmt.Sprintf("%q %q %q", s, p, k))
				r.Key.Sort = k + "\x01" + s
				records = append(records, in(r, index, f.entry(part, s)))
			}
		}
	}
	slices.SortFunc(records, func(a, b store.Record) int {
		return slices.Compare(
			[]string{a.Indexes[index].Sort, a.Key.Part, a.Key.Sort},
			[]string{b.Indexes[index].Sort, b.Key.Part, b.Key.Sort})
	})
	return records
}

func ordersTies(f fixture) {
	records := f.tied(store.Index2, "i")
	f.create(shuffled(records)...)
	var next string
	last := records[6]
	f.poll(func() bool {
		page, err := f.store.Query(f.Context(), store.Index2, store.Scan{Part: f.part("i"), Limit: 7})
		if err != nil {
			f.Fatal(err)
		}
		next = page.Next
		return next == store.Place(last.Indexes[store.Index2], last.Key)
	}, func() string {
		return fmt.Sprintf("the first page of seven has the Next %q, want the place of %s", next, last.Key)
	})
	for _, limit := range []int{1, 3, 1000} {
		want := stored(records)
		f.eventually(store.Index2, store.Scan{Part: f.part("i"), Limit: limit}, want)
		slices.Reverse(want)
		f.eventually(store.Index2, store.Scan{Part: f.part("i"), Limit: limit, Reverse: true}, want)
	}
}

func queryBounds(f fixture) {
	const index = store.Index1
	records := f.tied(index, "i")
	f.create(records...)
	f.eventually(index, store.Scan{Part: f.part("i"), Limit: 1000}, stored(records)) // now it is up to date
	for _, reverse := range []bool{false, true} {
		all := stored(records)
		if reverse {
			slices.Reverse(all)
		}
		for i, from := range bounds() {
			for j, to := range bounds() {
				if (i+j)%3 != 0 && from != "" && to != "" {
					continue
				}
				s := store.Scan{Part: f.part("i"), From: from, To: to, Reverse: reverse, Limit: 1000}
				var want []store.Record
				for _, r := range all {
					if covers(s, r.Indexes[index].Sort) {
						want = append(want, r)
					}
				}
				f.eventually(index, s, want)
			}
		}
	}
}

func queryPages(f fixture) {
	const index = store.Index1
	n := f.many(2500)
	records := f.inPartition("p", numbered(n)...)
	for i := range records {
		// Against the order of the keys.
		records[i] = in(records[i], index, f.entry("i", fmt.Sprintf("%06d", n-i)))
	}
	f.create(shuffled(records)...)
	forwards, backwards := stored(records), stored(records)
	slices.Reverse(forwards)
	for _, limit := range []int{100, 999, 1000} {
		f.eventually(index, store.Scan{Part: f.part("i"), Limit: limit}, forwards)
		f.eventually(index, store.Scan{Part: f.part("i"), Limit: limit, Reverse: true}, backwards)
	}
	f.eventually(index, store.Scan{Part: f.part("i"), From: "000101", To: "000201", Limit: 50}, forwards[100:200])
}

// A thousand records under one entry: pages are cut inside of the tie.
func pagesThroughTies(f fixture) {
	const index = store.Index2
	n := f.many(1000)
	var records []store.Record
	for i, s := range numbered(n) {
		r := value(f.key(fmt.Sprint("p", i*4/n), s), s)
		records = append(records, in(r, index, f.entry("i", "the same")))
	}
	f.create(shuffled(records)...)
	want := stored(records)
	f.eventually(index, store.Scan{Part: f.part("i"), Limit: 99}, want)
	f.eventually(index, store.Scan{Part: f.part("i"), From: "the same", To: "the same\x00", Limit: 250}, want)
	slices.Reverse(want)
	f.eventually(index, store.Scan{Part: f.part("i"), Limit: 99, Reverse: true}, want)
}

// Records that stay in place are returned once, whatever comes, goes and moves around them: never twice, and
// left out only while the index is stale.
func pagesWhileMoving(f fixture) {
	var missed []string
	try := 0
	f.poll(func() bool {
		try++
		missed = pageWhileMoving(f, fmt.Sprint("p", try))
		return len(missed) == 0
	}, func() string { return fmt.Sprintf("records that stayed are left out: %q", missed) })
}

// pageWhileMoving returns the records that stayed and that were left out.
func pageWhileMoving(f fixture, part string) (missed []string) {
	const index = store.Index1
	var records []store.Record
	for _, s := range numbered(60) {
		records = append(records, in(value(f.key(part, s), s), index, f.entry(part, s)))
	}
	f.create(records...)
	f.eventually(index, store.Scan{Part: f.part(part), Limit: 1000}, stored(records))

	got := map[string]int{}
	scan := store.Scan{Part: f.part(part), Limit: 7}
	for i := 1; ; {
		page, err := f.store.Query(f.Context(), index, scan)
		if err != nil {
			f.Fatal(err)
		}
		for _, r := range page.Records {
			got[r.Key.Sort]++
		}
		if scan.After = page.Next; scan.After == "" {
			break
		}
		for range 5 { // every other record moves or goes
			if i >= len(records) {
				break
			}
			if r := records[i]; i%3 == 0 {
				f.commit(store.Delete(r.Key, 1))
			} else {
				f.commit(store.Put(in(r, index, f.entry(part, fmt.Sprintf("%06d+", (i*17)%60))), 1))
			}
			i += 2
		}
	}
	for i := 0; i < len(records); i += 2 {
		switch s := records[i].Key.Sort; got[s] {
		case 0:
			missed = append(missed, s)
		case 1:
		default:
			f.Fatalf("record %s, which stayed, was returned %d times", s, got[s])
		}
	}
	return missed
}

func queryForgedAfter(f fixture) {
	const index = store.Index1
	for _, part := range []string{"i", "j"} {
		for _, s := range []string{"a", "b", "c", "d", "e"} {
			f.create(in(value(f.key(part, s), s), index, f.entry(part, s)))
		}
	}
	forged := []string{
		"\x00", "a", "c", "z", "\xff\xff", strings.Repeat("b", 5000), "\x00\x01\x00\x01", "c\x00", "c\x00\x01", "c\x00\x07",
		store.Place(f.entry("j", "a"), f.key("j", "a")), "' OR 1=1 --",
	}
	for _, after := range forged {
		for _, reverse := range []bool{false, true} {
			s := store.Scan{Part: f.part("i"), From: "b", To: "d", After: after, Limit: 10, Reverse: reverse}
			if reverse {
				s.From, s.To = "d", "b"
			}
			page, err := f.store.Query(f.Context(), index, s)
			if err != nil {
				continue // refused is as good
			}
			for _, r := range page.Records {
				if e := r.Indexes[index]; e.Part != s.Part || !covers(s, e.Sort) {
					f.Errorf("after %q the scan returned %s", after, r.Key)
				}
			}
		}
	}
}

func badQuery(f fixture) {
	tests := map[string]func() error{
		"unknown index": func() error {
			_, err := f.store.Query(f.Context(), "index3", store.Scan{Part: "p", Limit: 1})
			return err
		},
	}
	for name, s := range badScans {
		tests[name] = func() error {
			_, err := f.store.Query(f.Context(), store.Index1, s)
			return err
		}
	}
	for name, call := range tests {
		f.Run(name, func(t *testing.T) {
			f := f
			f.T = t
			f.wantRefused(call())
		})
	}
}
