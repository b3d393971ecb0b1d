package memory_test

import (
	"slices"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/storetest"
)

func TestStore_Conformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memory.New() })
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(*testing.B) store.Store { return memory.New() })
}

func TestClone_HasTheRecordsAndGoesItsOwnWay(t *testing.T) {
	s := memory.New()
	commit := func(s *memory.Store, id string, ops ...store.Op) {
		t.Helper()
		if err := s.Commit(t.Context(), id, ops...); err != nil {
			t.Fatal(err)
		}
	}
	values := func(s *memory.Store) (out []string) {
		t.Helper()
		page, err := s.Query(t.Context(), store.Index1, store.Scan{Part: "i", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			out = append(out, r.Key.Sort+"="+string(r.Value))
		}
		return out
	}
	put := func(name, value string, version int64) store.Op {
		return store.Put(store.Record{Key: store.Key{Part: "p", Sort: name}, Value: []byte(value), Indexes: map[store.Index]store.Entry{store.Index1: {Part: "i", Sort: name}}}, version)
	}
	commit(s, "1", put("a", "old", store.Absent), put("b", "old", store.Absent))
	c := s.Clone()
	commit(c, "2", put("a", "new", 1), store.Delete(store.Key{Part: "p", Sort: "b"}, 1))
	commit(s, "3", put("c", "own", store.Absent))
	if got, want := values(s), []string{"a=old", "b=old", "c=own"}; !slices.Equal(got, want) {
		t.Errorf("the store has %q, want %q", got, want)
	}
	if got, want := values(c), []string{"a=new"}; !slices.Equal(got, want) {
		t.Errorf("its clone has %q, want %q", got, want)
	}
}
