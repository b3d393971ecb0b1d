package memory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// A partition that grows and shrinks through many chunks stays equal to a plain sorted list.
func TestStore_MatchesASortedListAtEverySize(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			s := memory.New()
			var model []string
			id := 0
			commit := func(ops ...store.Op) {
				id++
				if err := s.Commit(t.Context(), fmt.Sprint(id), ops...); err != nil {
					t.Fatal(err)
				}
			}
			for _, target := range []int{3000, 100, 2000, 0, 1200} {
				for len(model) != target {
					k := fmt.Sprintf("%05d", rnd.IntN(10_000))
					at, found := slices.BinarySearch(model, k)
					switch grow := len(model) < target; {
					case found:
						model = slices.Delete(model, at, at+1)
						commit(store.Delete(store.Key{Part: "p", Sort: k}, 1))
					case grow:
						model = slices.Insert(model, at, k)
						commit(store.Put(store.Record{Key: store.Key{Part: "p", Sort: k}}, store.Absent))
					case len(model) > 0:
						k = model[rnd.IntN(len(model))]
						at, _ = slices.BinarySearch(model, k)
						model = slices.Delete(model, at, at+1)
						commit(store.Delete(store.Key{Part: "p", Sort: k}, 1))
					}
				}
				for _, reverse := range []bool{false, true} {
					want := slices.Clone(model)
					if reverse {
						slices.Reverse(want)
					}
					var got []string
					scan := store.Scan{Part: "p", Limit: 100, Reverse: reverse}
					for {
						page, err := s.Range(t.Context(), scan)
						if err != nil {
							t.Fatal(err)
						}
						for _, r := range page.Records {
							got = append(got, r.Key.Sort)
						}
						if scan.After = page.Next; page.Next == "" {
							break
						}
					}
					if !slices.Equal(got, want) {
						t.Fatalf("at %d records, reverse %v: got %d records, not the ones wanted", target, reverse, len(got))
					}
				}
			}
		})
	}
}

// Retention of commit ids is bounded work and long enough: time is the bubble's.
func TestStore_KnowsCommitIDsForTenMinutesAndNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		key := func(i int) store.Key { return store.Key{Part: "p", Sort: fmt.Sprint(i)} }
		commit := func(i int) error {
			return s.Commit(t.Context(), fmt.Sprint("id ", i), store.Put(store.Record{Key: key(i)}, store.Absent))
		}
		for i := range 100 {
			if err := commit(i); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(10 * time.Minute)
		for i := range 100 {
			if err := commit(i); err != nil {
				t.Fatalf("repeat after ten minutes: %v", err)
			}
		}
		<-time.After(10 * time.Minute)
		for i := 100; i < 150; i++ { // each forgets two
			if err := commit(i); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			if err := commit(i); !errors.Is(err, store.ErrConflict) {
				t.Fatalf("commit %d is still known after twenty minutes: %v", i, err)
			}
		}
	})
}
