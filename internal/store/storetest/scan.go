package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
)

var getTests = []test{
	{"AnswersInTheOrderAsked", getInOrder},
	{"BadKeysAreRefused", badGet},
}

var rangeTests = []test{
	{"OrdersAsBytes", ordersAsBytes},
	{"KeepsToItsPartition", keepsToPartition},
	{"Bounds", rangeBounds},
	{"PagesMeetWithoutGapOrRepeat", rangePages},
	{"ForgedAfterStaysInBounds", rangeForgedAfter},
	{"PagesWhileRecordsComeAndGo", pagesWhileChanging},
	{"SeesEveryAnsweredCommit", rangeIsFresh},
	{"BadScanIsRefused", badRange},
}

func getInOrder(f fixture) {
	f.wantSame(nil, f.get())
	var records []store.Record
	for i := range store.MaxGet {
		records = append(records, value(f.key(fmt.Sprint("p", i%3), fmt.Sprintf("%03d", i)), fmt.Sprint(i)))
	}
	f.create(records...)
	var keys []store.Key
	var want []store.Record
	for i := range records {
		r := records[(i*37)%len(records)]
		if i%10 == 3 {
			keys = append(keys, f.key("p0", fmt.Sprint("absent", i)))
			continue
		}
		keys, want = append(keys, r.Key), append(want, at(r, 1))
	}
	f.wantSame(want, f.get(keys...))
	a, b := at(records[0], 1), at(records[1], 1)
	f.wantSame([]store.Record{b, a, b}, f.get(b.Key, a.Key, f.key("p0", "absent"), b.Key))
}

func badGet(f fixture) {
	good := f.key("p", "a")
	for name, keys := range map[string][]store.Key{
		"too many":      slices.Repeat([]store.Key{good}, store.MaxGet+1),
		"no partition":  {good, {Sort: "a"}},
		"no sort key":   {good, {Part: "a"}},
		"long sort key": {good, {Part: "a", Sort: strings.Repeat("x", 1025)}},
	} {
		f.Run(name, func(t *testing.T) {
			f := f
			f.T = t
			_, err := f.store.Get(t.Context(), keys...)
			f.wantRefused(err)
		})
	}
}

// awkward are sort keys in the order of their bytes, of which some sort differently as text, as
// numbers, by locale, or to a store that ends strings at a zero byte or checks their encoding.
var awkward = []string{
	"\x00", "\x00\x00", "\x00\x01", "\x00\x02", "\x00\xff", "\x01", " ", "%", "10", "9", "A", "Z", "_", "a", "a\x00", "a\x00\x00",
	"a\x00\x01", "a\x00b", "a\x00\xff", "a\x01", "aa", "a|b", "b", "z", "\x7f", "\x80", "é", "☂", "\xf0\x9f\x98\x80", "\xfe", "\xff", "\xff\xff",
}

// inPartition returns records with the given sort keys.
func (f fixture) inPartition(part string, sorts ...string) []store.Record {
	records := make([]store.Record, len(sorts))
	for i, s := range sorts {
		records[i] = value(f.key(part, s), fmt.Sprintf("value of %q", s))
	}
	return records
}

func stored(records []store.Record) []store.Record {
	out := slices.Clone(records)
	for i := range out {
		out[i].Version = 1
	}
	return out
}

func shuffled(records []store.Record) []store.Record {
	out := make([]store.Record, len(records))
	step := 7 // any number that has no divisor in common with the lengths in use
	for len(records)%step == 0 {
		step += 4
	}
	for i := range records {
		out[i] = records[(i*step)%len(records)]
	}
	return out
}

func ordersAsBytes(f fixture) {
	records := f.inPartition("p", awkward...)
	f.create(shuffled(records)...)
	f.wantSame(stored(records), f.rangeAll(store.Scan{Part: f.part("p"), Limit: 1000}))
	slices.Reverse(records)
	f.wantSame(stored(records), f.rangeAll(store.Scan{Part: f.part("p"), Limit: 1000, Reverse: true}))
}

func keepsToPartition(f fixture) {
	parts := []string{"p", "p\x00", "p\x00q", "p\xff", "pp", "P", "p ", "p%", "p_", "o", "q"}
	for _, part := range parts {
		f.create(f.inPartition(part, "a", "b", part)...)
	}
	for _, part := range parts {
		sorts := []string{"a", "b", part}
		slices.Sort(sorts)
		want := stored(f.inPartition(part, sorts...))
		f.wantSame(want, f.rangeAll(store.Scan{Part: f.part(part), Limit: 2}))
		slices.Reverse(want)
		f.wantSame(want, f.rangeAll(store.Scan{Part: f.part(part), Limit: 2, Reverse: true}))
	}
	f.wantSame(nil, f.rangeAll(store.Scan{Part: f.part("nobody"), Limit: 2}))
}

// covers says whether a scan's bounds cover a sort key, straight from the words of the contract.
func covers(s store.Scan, sort string) bool {
	if s.Reverse {
		return (s.From == "" || sort <= s.From) && (s.To == "" || sort > s.To)
	}
	return (s.From == "" || sort >= s.From) && (s.To == "" || sort < s.To)
}

// bounds are bounds to try: each awkward key, strings between them, and none.
func bounds() []string {
	out := []string{"", "a\x00\x02", "0", "é\x00", "\xff\xff\xff"}
	for i, s := range awkward {
		if i%3 == 0 || strings.Contains(s, "\x00") {
			out = append(out, s)
		}
	}
	return out
}

func rangeBounds(f fixture) {
	records := f.inPartition("p", awkward...)
	f.create(records...)
	backwards := slices.Clone(stored(records))
	slices.Reverse(backwards)
	for _, reverse := range []bool{false, true} {
		all := stored(records)
		if reverse {
			all = backwards
		}
		for _, from := range bounds() {
			for _, to := range bounds() {
				s := store.Scan{Part: f.part("p"), From: from, To: to, Reverse: reverse, Limit: 1000}
				var want []store.Record
				for _, r := range all {
					if covers(s, r.Key.Sort) {
						want = append(want, r)
					}
				}
				got := f.rangeAll(s)
				if diff := same(want, got); diff != "" {
					f.Fatalf("range of %+v is wrong (-want +got):\n%s", s, diff)
				}
			}
		}
	}
}

func numbered(n int) []string {
	sorts := make([]string, n)
	for i := range sorts {
		sorts[i] = fmt.Sprintf("%06d", i)
	}
	return sorts
}

func rangePages(f fixture) {
	n := f.many(2500)
	records := f.inPartition("p", numbered(n)...)
	f.create(shuffled(records)...)
	forwards, backwards := stored(records), stored(records)
	slices.Reverse(backwards)
	for _, limit := range []int{100, 500, 999, 1000} {
		f.wantSame(forwards, f.rangeAll(store.Scan{Part: f.part("p"), Limit: limit}))
		f.wantSame(backwards, f.rangeAll(store.Scan{Part: f.part("p"), Limit: limit, Reverse: true}))
	}
	page, err := f.store.Range(f.Context(), store.Scan{Part: f.part("p"), Limit: 7})
	if want := records[6].Key.Sort; err != nil || page.Next != want {
		f.Errorf("the first page of seven has the Next %q (%v), want %q", page.Next, err, want)
	}
	// Within bounds, and where the last page is exactly full.
	for _, span := range [][2]int{{0, 1}, {0, 100}, {1, 101}, {900, 1100}, {1000, 1999}, {2400, 2500}} {
		span[0], span[1] = f.many(span[0]), f.many(span[1])
		from, to := fmt.Sprintf("%06d", span[0]), fmt.Sprintf("%06d", span[1])
		want := forwards[span[0]:span[1]]
		f.wantSame(want, f.rangeAll(store.Scan{Part: f.part("p"), From: from, To: to, Limit: 50}))
		low, high := fmt.Sprintf("%06d", span[0]), fmt.Sprintf("%06d", span[1]-1)
		f.wantSame(backwards[n-span[1]:n-span[0]-1], f.rangeAll(store.Scan{Part: f.part("p"), From: high, To: low, Limit: 50, Reverse: true}))
	}
	// One at a time, over the awkward keys.
	odd := f.inPartition("odd", awkward...)
	f.create(odd...)
	f.wantSame(stored(odd), f.rangeAll(store.Scan{Part: f.part("odd"), Limit: 1}))
	slices.Reverse(odd)
	f.wantSame(stored(odd), f.rangeAll(store.Scan{Part: f.part("odd"), Limit: 1, Reverse: true}))
}

// A cursor comes back from callers; one that was made up must not read outside of the scan.
func rangeForgedAfter(f fixture) {
	f.create(f.inPartition("p", "a", "b", "c", "d", "e")...)
	f.create(f.inPartition("q", "a", "b", "c", "d", "e")...)
	for _, after := range []string{"\x00", "a", "c", "z", "\xff\xff", strings.Repeat("b", 5000), "q|a", "' OR 1=1 --", "\x00\x01\x00\x01"} {
		for _, reverse := range []bool{false, true} {
			s := store.Scan{Part: f.part("p"), From: "b", To: "d", After: after, Limit: 10, Reverse: reverse}
			if reverse {
				s.From, s.To = "d", "b"
			}
			page, err := f.store.Range(f.Context(), s)
			if err != nil {
				continue // refused is as good
			}
			for _, r := range page.Records {
				if r.Key.Part != s.Part || !covers(s, r.Key.Sort) {
					f.Errorf("after %q the scan returned %s", after, r.Key)
				}
			}
		}
	}
}

func pagesWhileChanging(f fixture) {
	for name, tt := range map[string]struct {
		reverse     bool
		remove, add []string
		seen        []string // between the first page and the rest
	}{
		"forwards": {
			remove: []string{"000009", "000011"}, add: []string{"000000-", "000009-", "000010-"},
			seen: []string{"000009-", "000010", "000010-", "000012"},
		},
		"backwards": {
			reverse: true,
			remove:  []string{"000020", "000018"}, add: []string{"000025-", "000019-", "000018-"},
			seen: []string{"000019-", "000019", "000018-", "000017"},
		},
	} {
		f.Run(name, func(t *testing.T) {
			f := f
			f.T = t
			sorts := numbered(30)
			f.create(f.inPartition(name, sorts...)...)
			if tt.reverse {
				slices.Reverse(sorts)
			}
			scan := store.Scan{Part: f.part(name), Limit: 10, Reverse: tt.reverse}
			first, err := f.store.Range(t.Context(), scan)
			if err != nil {
				t.Fatal(err)
			}
			var ops []store.Op
			for _, s := range tt.remove {
				ops = append(ops, store.Delete(f.key(name, s), 1))
			}
			for _, s := range tt.add {
				ops = append(ops, store.Put(value(f.key(name, s), "new"), store.Absent))
			}
			f.commit(ops...)
			scan.After = first.Next
			var got []string
			for _, r := range append(first.Records, f.rangeAll(scan)...) {
				got = append(got, r.Key.Sort)
			}
			want := slices.Concat(sorts[:10], tt.seen, sorts[13:])
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func rangeIsFresh(f fixture) {
	scan := store.Scan{Part: f.part("p"), Limit: 1000}
	for i := range 60 {
		r := value(f.key("p", fmt.Sprintf("%02d", i)), "x")
		f.commit(store.Put(r, store.Absent))
		if got := f.rangeAll(scan); len(got) != i+1 {
			f.Fatalf("after %d commits the range has %d records", i+1, len(got))
		}
		if i%2 == 0 {
			f.commit(store.Put(value(r.Key, "y"), 1))
			if got := f.rangeAll(scan); !bytes.Equal(got[i].Value, []byte("y")) || got[i].Version != 2 {
				f.Fatalf("after a rewrite the range has %+v", got[i])
			}
		}
	}
}

var badScans = map[string]store.Scan{
	"no partition":   {Limit: 1},
	"no limit":       {Part: "p"},
	"negative limit": {Part: "p", Limit: -1},
	"big limit":      {Part: "p", Limit: 1001},
	"long partition": {Part: strings.Repeat("x", 1025), Limit: 1},
	"long from":      {Part: "p", From: strings.Repeat("x", 1025), Limit: 1},
	"long to":        {Part: "p", To: strings.Repeat("x", 1025), Limit: 1},
}

func badRange(f fixture) {
	for name, s := range badScans {
		f.Run(name, func(t *testing.T) {
			f := f
			f.T = t
			_, err := f.store.Range(t.Context(), s)
			f.wantRefused(err)
		})
	}
}
