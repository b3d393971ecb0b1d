package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
)

var commitTests = []test{
	{"PutOfAbsentMakesVersionOne", putOfAbsent},
	{"PutOfVersionRaisesItByOne", putOfVersion},
	{"AppendMakesARecordOnce", appendOnce},
	{"DeleteNeedsItsVersion", deleteOfVersion},
	{"MadeAgainStartsAtOne", madeAgain},
	{"CheckWritesNothing", checkWritesNothing},
	{"CheckGuardsOtherRecords", checkGuards},
	{"AllOrNothing", allOrNothing},
	{"SpansPartitions", spansPartitions},
	{"RecordComesBackWhole", comesBackWhole},
	{"LimitsAreUsable", limitsAreUsable},
	{"BadCommitIsRefused", badCommit},
	{"RepeatIsAnsweredAsDone", repeatIsDone},
	{"RepeatOfManyOperations", repeatOfMany},
	{"IDWithOtherOperationsIsRefused", idReused},
	{"PassedRecordIsNotShared", passedIsNotShared},
	{"EndedContextWritesNothing", endedContext},
}

func value(k store.Key, v string) store.Record {
	return store.Record{Key: k, Value: []byte(v)}
}

func at(r store.Record, version int64) store.Record {
	r.Version = version
	return r
}

func putOfAbsent(f fixture) {
	k := f.key("p", "a")
	r := value(k, "one")
	r.Version = 77 // ignored
	f.commit(store.Put(r, store.Absent))
	f.wantSame([]store.Record{at(r, 1)}, f.get(k))
	f.conflict(store.Put(value(k, "two"), store.Absent))
	f.wantSame([]store.Record{at(r, 1)}, f.get(k))
}

func putOfVersion(f fixture) {
	k := f.key("p", "a")
	f.conflict(store.Put(value(k, "x"), 1)) // nothing there
	f.wantSame(nil, f.get(k))
	f.commit(store.Put(value(k, "one"), store.Absent))
	f.conflict(store.Put(value(k, "x"), 2)) // not there yet
	f.commit(store.Put(value(k, "two"), 1))
	f.conflict(store.Put(value(k, "x"), 1)) // no longer there
	f.commit(store.Put(value(k, "three"), 2))
	f.wantSame([]store.Record{at(value(k, "three"), 3)}, f.get(k))
}

func appendOnce(f fixture) {
	k, other := f.key("p", "a"), f.key("p", "b")
	r := value(k, "one")
	r.Indexes, r.Expires = map[store.Index]store.Entry{store.Index1: {Part: f.part("i"), Sort: "s"}}, 1<<40
	id := newID()
	for range 3 { // a repeat is recognised
		if err := f.store.Commit(f.Context(), id, store.Append(r)); err != nil {
			f.Fatal(err)
		}
	}
	f.conflict(store.Append(value(k, "theirs")))
	f.conflict(store.Append(value(k, "theirs")), store.Append(value(other, "two")))
	f.wantSame([]store.Record{at(r, 1)}, f.get(k, other))
	f.wantRefused(f.store.Commit(f.Context(), id, store.Append(value(k, "another value"))))
	f.commit(store.Append(value(other, "two")), store.Check(k, 1)) // with others it is as a Put
	f.commit(store.Put(value(k, "changed"), 1))
	if err := f.store.Commit(f.Context(), id, store.Append(r)); err != nil {
		f.Errorf("a repeat after a change: %v", err)
	}
	f.wantSame([]store.Record{at(value(k, "changed"), 2), at(value(other, "two"), 1)}, f.get(k, other))
	f.eventually(store.Index1, store.Scan{Part: f.part("i"), Limit: 10}, nil)
}

func deleteOfVersion(f fixture) {
	k := f.key("p", "a")
	f.conflict(store.Delete(k, 1)) // nothing there
	f.commit(store.Put(value(k, "one"), store.Absent))
	f.commit(store.Put(value(k, "two"), 1))
	f.conflict(store.Delete(k, 1))
	f.conflict(store.Delete(k, 3))
	f.wantVersions(map[store.Key]int64{k: 2})
	f.commit(store.Delete(k, 2))
	f.wantVersions(map[store.Key]int64{k: store.Absent})
	f.conflict(store.Delete(k, 2))
}

func madeAgain(f fixture) {
	k := f.key("p", "a")
	f.commit(store.Put(value(k, "one"), store.Absent))
	f.commit(store.Put(value(k, "two"), 1))
	f.commit(store.Delete(k, 2))
	f.commit(store.Put(value(k, "again"), store.Absent))
	f.wantSame([]store.Record{at(value(k, "again"), 1)}, f.get(k))
}

func checkWritesNothing(f fixture) {
	k, absent := f.key("p", "a"), f.key("p", "b")
	f.commit(store.Put(value(k, "one"), store.Absent))
	f.commit(store.Check(k, 1), store.Check(absent, store.Absent))
	f.wantSame([]store.Record{at(value(k, "one"), 1)}, f.get(k, absent))
	f.conflict(store.Check(k, 2))
	f.conflict(store.Check(k, store.Absent))
	f.conflict(store.Check(absent, 1))
	f.wantSame([]store.Record{at(value(k, "one"), 1)}, f.get(k, absent))
}

func checkGuards(f fixture) {
	guard, k := f.key("guard", "a"), f.key("p", "a")
	f.commit(store.Put(value(guard, "open"), store.Absent))
	f.commit(store.Check(guard, 1), store.Put(value(k, "one"), store.Absent))
	f.commit(store.Put(value(guard, "shut"), 1))
	f.conflict(store.Check(guard, 1), store.Put(value(k, "two"), 1))
	f.conflict(store.Put(value(k, "two"), 1), store.Check(guard, store.Absent))
	f.wantSame([]store.Record{at(value(k, "one"), 1)}, f.get(k))
}

func allOrNothing(f fixture) {
	there, gone := f.key("p", "there"), f.key("p", "gone")
	kept := value(there, "kept")
	kept.Indexes = map[store.Index]store.Entry{store.Index1: {Part: f.part("i"), Sort: "kept"}}
	f.commit(store.Put(kept, store.Absent), store.Put(value(gone, "kept"), store.Absent))

	// Whatever fails, and wherever in the commit it stands, nothing of the rest is seen.
	fails := map[string]store.Op{
		"put over a record":  store.Put(value(there, "x"), store.Absent),
		"put of version":     store.Put(value(there, "x"), 2),
		"delete of version":  store.Delete(gone, 2),
		"delete of absent":   store.Delete(f.key("p", "never"), 1),
		"check of version":   store.Check(gone, 7),
		"check that absent":  store.Check(gone, store.Absent),
		"check of an absent": store.Check(f.key("p", "never"), 1),
	}
	for name, fail := range fails {
		for _, place := range []int{0, 50, store.MaxOps - 1} {
			var ops []store.Op
			for i := range store.MaxOps {
				r := value(f.key(fmt.Sprintf("many%d", i%7), fmt.Sprintf("%s/%d/%03d", name, place, i)), "x")
				r.Indexes = map[store.Index]store.Entry{store.Index1: {Part: f.part("i"), Sort: "x"}}
				ops = append(ops, store.Put(r, store.Absent))
			}
			ops[place] = fail
			if fail.Key() != there {
				ops[(place+1)%store.MaxOps] = store.Put(value(there, "x"), 1)
			} else {
				ops[(place+1)%store.MaxOps] = store.Delete(gone, 1)
			}
			f.conflict(ops...)
		}
	}
	for i := range 7 {
		f.wantSame(nil, f.rangeAll(store.Scan{Part: f.part(fmt.Sprintf("many%d", i)), Limit: 10}))
	}
	f.wantSame([]store.Record{at(kept, 1), at(value(gone, "kept"), 1)}, f.get(there, gone))
	f.eventually(store.Index1, store.Scan{Part: f.part("i"), Limit: 10}, []store.Record{at(kept, 1)})
}

func spansPartitions(f fixture) {
	var keys []store.Key
	var ops []store.Op
	for i := range store.MaxOps {
		k := f.key(fmt.Sprintf("p%d", i), "same sort key")
		keys, ops = append(keys, k), append(ops, store.Put(value(k, fmt.Sprint(i)), store.Absent))
	}
	f.commit(ops...)
	if got := f.get(keys...); len(got) != store.MaxOps {
		f.Fatalf("got %d records, want %d", len(got), store.MaxOps)
	}
	// Put, delete and check together.
	f.commit(store.Put(value(keys[0], "new"), 1), store.Delete(keys[1], 1), store.Check(keys[2], 1))
	f.wantVersions(map[store.Key]int64{keys[0]: 2, keys[1]: store.Absent, keys[2]: 1})
}

func comesBackWhole(f fixture) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	in1 := map[store.Index]store.Entry{store.Index1: {Part: f.part("\x00i\xff"), Sort: "\xff\x00\x01\x00"}}
	in2 := map[store.Index]store.Entry{
		store.Index1: {Part: f.part("i"), Sort: "s"},
		store.Index2: {Part: f.part("j"), Sort: "\x00"},
	}
	records := []store.Record{
		{Key: f.key("p", "empty")},
		{Key: f.key("p", "every byte"), Value: every},
		{Key: f.key("p", "expires"), Value: []byte("x"), Expires: 1 << 40},
		{Key: f.key("p", "in one index"), Value: []byte("x"), Indexes: in1},
		{Key: f.key("p", "in both"), Value: bytes.Repeat(every, 500), Indexes: in2, Expires: 1 << 41},
		{Key: f.key("p", "zeros"), Value: make([]byte, 10)},
		{Key: f.key("p\x00\xff", string(every)), Value: []byte("key of all bytes")},
		{Key: f.key("p", "utf-8 ünï ☂"), Value: []byte("☂")},
	}
	f.create(records...)
	for _, r := range records {
		f.wantSame([]store.Record{at(r, 1)}, f.get(r.Key))
		f.wantSame([]store.Record{at(r, 1)}, f.rangeAll(store.Scan{Part: r.Key.Part, From: r.Key.Sort, To: r.Key.Sort + "\x00", Limit: 5}))
		for index, e := range r.Indexes {
			f.eventually(index, store.Scan{Part: e.Part, Limit: 5}, []store.Record{at(r, 1)})
		}
	}
	// Fields that a put leaves out are gone.
	bare := store.Record{Key: records[4].Key}
	f.commit(store.Put(bare, 1))
	f.wantSame([]store.Record{at(bare, 2)}, f.get(bare.Key))
}

func limitsAreUsable(f fixture) {
	long := func(s string) string { return s + strings.Repeat("x", 1024-len(s)) }
	big := bytes.Repeat([]byte{0xA5}, store.MaxValue)
	if f.modest {
		big = bytes.Repeat([]byte("x"), store.MaxValue)
	}
	k := store.Key{Part: long(f.part("")), Sort: long("s")}
	r := store.Record{Key: k, Value: big}
	id := newID()
	id += strings.Repeat("x", 36-len(id))
	if err := f.store.Commit(f.Context(), id, store.Put(r, store.Absent)); err != nil {
		f.Fatalf("commit of a record at every limit: %v", err)
	}
	f.wantSame([]store.Record{at(r, 1)}, f.get(k))
	f.wantSame([]store.Record{at(r, 1)}, f.rangeAll(store.Scan{Part: k.Part, From: k.Sort, Limit: 1000}))

	part := f.part("")
	odd := store.Record{Key: store.Key{Part: part + strings.Repeat("\xff", 1024-len(part)), Sort: strings.Repeat("\xff", 512)}}
	f.commit(store.Put(odd, store.Absent))
	f.wantSame([]store.Record{at(odd, 1)}, f.get(odd.Key))
	f.wantSame([]store.Record{at(odd, 1)}, f.rangeAll(store.Scan{Part: odd.Key.Part, From: odd.Key.Sort, Reverse: true, Limit: 1}))

	// A full commit of full values.
	var ops []store.Op
	remaining := store.MaxCommit
	for i := 0; remaining > 0; i++ {
		n := min(remaining, store.MaxValue)
		remaining -= n
		ops = append(ops, store.Put(store.Record{Key: f.key("big", fmt.Sprint(i)), Value: big[:n]}, store.Absent))
	}
	f.commit(ops...)
	got := f.rangeAll(store.Scan{Part: f.part("big"), Limit: 1000})
	if len(got) != len(ops) {
		f.Fatalf("got %d big records, want %d", len(got), len(ops))
	}
	for _, r := range got[:len(got)-1] {
		if !bytes.Equal(r.Value, big) {
			f.Errorf("%s came back changed", r.Key)
		}
	}

	// An entry whose place is as long as it may be.
	e := store.Entry{Part: f.part("i"), Sort: "e"}
	k = f.key("p", "long place")
	e.Sort += strings.Repeat("y", store.MaxPlace-store.SortSize(store.Place(e, k)))
	r = store.Record{Key: k, Indexes: map[store.Index]store.Entry{store.Index1: e}}
	f.commit(store.Put(r, store.Absent))
	f.eventually(store.Index1, store.Scan{Part: e.Part, Limit: 1}, []store.Record{at(r, 1)})
}

func badCommit(f fixture) {
	good := f.key("p", "good")
	ok := store.Put(value(good, "x"), store.Absent)
	other := f.key("p", "other")
	put := func(change func(*store.Record)) []store.Op {
		r := value(other, "x")
		change(&r)
		return []store.Op{ok, store.Put(r, store.Absent)}
	}
	entry := func(index store.Index, e store.Entry) []store.Op {
		return put(func(r *store.Record) { r.Indexes = map[store.Index]store.Entry{index: e} })
	}
	var many, heavy []store.Op
	for i := range store.MaxOps + 1 {
		many = append(many, store.Put(value(f.key("p", fmt.Sprint(i)), "x"), store.Absent))
	}
	for i := range store.MaxCommit/store.MaxValue + 1 {
		r := store.Record{Key: f.key("p", fmt.Sprint(i)), Value: make([]byte, store.MaxValue)}
		heavy = append(heavy, store.Put(r, store.Absent))
	}
	tests := map[string]struct {
		id  string
		ops []store.Op
	}{
		"no id":               {"", []store.Op{ok}},
		"long id":             {strings.Repeat("x", 37), []store.Op{ok}},
		"no operation":        {newID(), nil},
		"too many operations": {newID(), many},
		"too many bytes":      {newID(), heavy},
		"zero operation":      {newID(), []store.Op{ok, {}}},
		"one key twice":       {newID(), []store.Op{ok, store.Check(good, store.Absent)}},
		"negative version":    {newID(), []store.Op{ok, store.Put(value(other, "x"), -1)}},
		"delete of absent":    {newID(), []store.Op{ok, store.Delete(other, store.Absent)}},
		"no partition":        {newID(), put(func(r *store.Record) { r.Key.Part = "" })},
		"no sort key":         {newID(), put(func(r *store.Record) { r.Key.Sort = "" })},
		"long partition":      {newID(), put(func(r *store.Record) { r.Key.Part = strings.Repeat("x", 1025) })},
		"long sort key":       {newID(), put(func(r *store.Record) { r.Key.Sort = strings.Repeat("x", 1025) })},
		"sort key not ASCII":  {newID(), put(func(r *store.Record) { r.Key.Sort = strings.Repeat("\xff", 513) })},
		"big value":           {newID(), put(func(r *store.Record) { r.Value = make([]byte, store.MaxValue+1) })},
		"unknown index":       {newID(), entry("index3", store.Entry{Part: "p", Sort: "s"})},
		"no entry partition":  {newID(), entry(store.Index1, store.Entry{Sort: "s"})},
		"no entry sort key":   {newID(), entry(store.Index2, store.Entry{Part: "p"})},
		"long place":          {newID(), entry(store.Index2, store.Entry{Part: "p", Sort: strings.Repeat("x", store.MaxPlace)})},
	}
	for name, tt := range tests {
		f.Run(name, func(t *testing.T) {
			f := f
			f.T = t
			f.wantRefused(f.store.Commit(t.Context(), tt.id, tt.ops...))
			f.wantSame(nil, f.rangeAll(store.Scan{Part: f.part("p"), Limit: 10}))
		})
	}
}

func repeatIsDone(f fixture) {
	k, other := f.key("p", "a"), f.key("q", "b")
	f.commit(store.Put(value(other, "one"), store.Absent))
	id := newID()
	commit := func(step string) {
		f.Helper()
		err := f.store.Commit(f.Context(), id, store.Put(value(k, "mine"), store.Absent), store.Delete(other, 1))
		if err != nil {
			f.Fatalf("%s: got %v, want it done", step, err)
		}
	}
	commit("first time")
	commit("repeat")
	f.wantSame([]store.Record{at(value(k, "mine"), 1)}, f.get(k, other))
	// Others went on: the repeat is still answered as done and undoes nothing of theirs.
	f.commit(store.Put(value(k, "theirs"), 1), store.Put(value(other, "again"), store.Absent))
	commit("late repeat")
	f.wantSame([]store.Record{at(value(k, "theirs"), 2), at(value(other, "again"), 1)}, f.get(k, other))
	f.commit(store.Delete(k, 2))
	commit("repeat after a delete")
	f.wantVersions(map[store.Key]int64{k: store.Absent, other: 1})
}

func repeatOfMany(f fixture) {
	var ops []store.Op
	for i := range store.MaxOps {
		r := value(f.key("p", fmt.Sprintf("%03d", i)), "x")
		r.Indexes = map[store.Index]store.Entry{
			store.Index1: {Part: f.part("i"), Sort: "a"},
			store.Index2: {Part: f.part("i"), Sort: "b"},
		}
		r.Expires = int64(i)<<32 + 1<<40
		ops = append(ops, store.Put(r, store.Absent))
	}
	id := newID()
	for range 5 {
		if err := f.store.Commit(f.Context(), id, ops...); err != nil {
			f.Fatal(err)
		}
	}
	for _, r := range f.rangeAll(store.Scan{Part: f.part("p"), Limit: 1000}) {
		if r.Version != 1 {
			f.Errorf("%s was written %d times", r.Key, r.Version)
		}
	}
}

func idReused(f fixture) {
	k, id := f.key("p", "a"), newID()
	r := value(k, "one")
	if err := f.store.Commit(f.Context(), id, store.Put(r, store.Absent)); err != nil {
		f.Fatal(err)
	}
	expiring, indexed := value(k, "one"), value(k, "one")
	expiring.Expires = 1 << 40
	indexed.Indexes = map[store.Index]store.Entry{store.Index1: {Part: f.part("i"), Sort: "s"}}
	for name, ops := range map[string][]store.Op{
		"another value":   {store.Put(value(k, "two"), store.Absent)},
		"another version": {store.Put(r, 1)},
		"another key":     {store.Put(value(f.key("p", "b"), "one"), store.Absent)},
		"another kind":    {store.Check(k, store.Absent)},
		"one more":        {store.Put(r, store.Absent), store.Check(f.key("p", "b"), store.Absent)},
		"expiry":          {store.Put(expiring, store.Absent)},
		"an index entry":  {store.Put(indexed, store.Absent)},
	} {
		f.Run(name, func(t *testing.T) {
			f := f
			f.T = t
			f.wantRefused(f.store.Commit(t.Context(), id, ops...))
			f.wantSame([]store.Record{at(value(k, "one"), 1)}, f.rangeAll(store.Scan{Part: f.part("p"), Limit: 10}))
		})
	}
}

func passedIsNotShared(f fixture) {
	k := f.key("p", "a")
	r := value(k, "before")
	r.Indexes = map[store.Index]store.Entry{store.Index1: {Part: f.part("i"), Sort: "s"}}
	want := at(r.Clone(), 1)
	f.commit(store.Put(r, store.Absent))
	copy(r.Value, "AFTER!")
	r.Indexes[store.Index2] = store.Entry{Part: f.part("i"), Sort: "t"}
	delete(r.Indexes, store.Index1)
	f.wantSame([]store.Record{want}, f.get(k))

	spoil := func(records []store.Record) {
		for _, r := range records {
			clear(r.Value)
			clear(r.Indexes)
		}
	}
	scan := store.Scan{Part: f.part("i"), Limit: 10}
	f.eventually(store.Index1, scan, []store.Record{want})
	spoil(f.get(k))
	spoil(f.rangeAll(store.Scan{Part: k.Part, Limit: 10}))
	page, err := f.store.Query(f.Context(), store.Index1, scan)
	if err != nil {
		f.Fatal(err)
	}
	spoil(page.Records)
	f.wantSame([]store.Record{want}, f.get(k))
	f.wantSame([]store.Record{want}, f.rangeAll(store.Scan{Part: k.Part, Limit: 10}))
	f.eventually(store.Index1, scan, []store.Record{want})
}

func endedContext(f fixture) {
	k := f.key("p", "a")
	f.commit(store.Put(value(k, "one"), store.Absent))
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	if err := f.store.Commit(ctx, newID(), store.Put(value(k, "two"), 1)); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown) {
		f.Errorf("commit: got %v, want the context's error alone", err)
	}
	if _, err := f.store.Get(ctx, k); !errors.Is(err, context.Canceled) {
		f.Errorf("get: got %v, want the context's error", err)
	}
	if _, err := f.store.Range(ctx, store.Scan{Part: k.Part, Limit: 1}); !errors.Is(err, context.Canceled) {
		f.Errorf("range: got %v, want the context's error", err)
	}
	if _, err := f.store.Query(ctx, store.Index1, store.Scan{Part: k.Part, Limit: 1}); !errors.Is(err, context.Canceled) {
		f.Errorf("query: got %v, want the context's error", err)
	}
	f.wantSame([]store.Record{at(value(k, "one"), 1)}, f.get(k))
}
