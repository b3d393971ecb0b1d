package sqlite_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
)

// ofFile lists the records.
func ofFile(t *testing.T, s store.Store) map[store.Key]store.Record {
	t.Helper()
	page, err := s.Range(t.Context(), store.Scan{Part: "p", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	out := map[store.Key]store.Record{}
	for _, r := range page.Records {
		out[r.Key] = r
	}
	return out
}

// one reads a record; it is empty where there is none.
func one(t *testing.T, s store.Store, k store.Key) store.Record {
	t.Helper()
	found, err := s.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		return store.Record{}
	}
	return found[0]
}

// A reader after an answered commit reads the value that it wrote, or a later one, while
// others write the same records, delete them and make them again.
func TestGet_AnAnsweredCommitIsRead(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	const workers, each, keys = 8, 100, 3
	var mu sync.Mutex
	answered := map[store.Key]int64{} // the last version that a commit was answered of
	counter := func(n int) store.Key { return store.Key{Part: "p", Sort: fmt.Sprint("counts ", n%keys)} }
	visitor := func(n int) store.Key { return store.Key{Part: "p", Sort: fmt.Sprint("comes and goes ", n%keys)} }
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				mu.Lock()
				least := answered[counter(i)]
				mu.Unlock()
				found, err := s.Get(t.Context(), counter(i), visitor(i))
				if err != nil {
					t.Error(err)
					return
				}
				count, visit := store.Record{Key: counter(i)}, store.Put(store.Record{Key: visitor(i)}, store.Absent)
				for _, r := range found {
					if r.Key == count.Key {
						count = r
					} else {
						visit = store.Delete(r.Key, r.Version)
					}
				}
				if count.Version < least {
					t.Errorf("%s has version %d after a commit of %d was answered", count.Key, count.Version, least)
					return
				}
				err = s.Commit(t.Context(), fmt.Sprintf("%d.%d", w, i), store.Put(count, count.Version), visit)
				switch {
				case errors.Is(err, store.ErrConflict):
				case err != nil:
					t.Error(err)
					return
				default:
					mu.Lock()
					answered[count.Key] = max(answered[count.Key], count.Version+1)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	file := ofFile(t, s)
	for n := range keys {
		for _, k := range []store.Key{counter(n), visitor(n)} {
			if got := one(t, s, k); !cmp.Equal(got, file[k]) {
				t.Errorf("got %+v, the file holds %+v", got, file[k])
			}
		}
		if answered[counter(n)] == 0 {
			t.Errorf("no commit of %s was taken: the reads never became right", counter(n))
		}
	}
}

func TestPurge_WhatWasPurgedIsGone(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	k := store.Key{Part: "p", Sort: "a"}
	if err := s.Commit(t.Context(), "one", store.Put(store.Record{Key: k, Expires: 100}, store.Absent)); err != nil {
		t.Fatal(err)
	}
	if got := one(t, s, k); got.Version != 1 {
		t.Fatalf("got %+v, want the written record", got)
	}
	if n, err := s.Purge(t.Context(), time.Unix(200, 0)); n != 1 || err != nil {
		t.Fatalf("purged %d, %v", n, err)
	}
	if got := one(t, s, k); got.Version != store.Absent {
		t.Errorf("got %+v after it was purged", got)
	}
}

func TestCommit_AFailedCommitIsNotRead(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	put(t, s, "one", "a", "first")
	k := store.Key{Part: "p", Sort: "a"}
	change := store.Put(store.Record{Key: k, Value: []byte("second")}, 1)
	got, err := s.Together(t.Context(), true, []store.Op{change})
	if err != nil || !errors.Is(got[0], store.ErrUnknown) {
		t.Fatalf("got %v, %v; want an outcome that is unknown", got, err)
	}
	if got := string(one(t, s, k).Value); got != "first" {
		t.Errorf("got %q after the change to it failed", got)
	}
	if err := s.Commit(t.Context(), "again", change); err != nil {
		t.Fatal(err)
	}
	if got := string(one(t, s, k).Value); got != "second" {
		t.Errorf("got %q after the change to it was repeated", got)
	}
}

// A repeat of a commit changes nothing.
func TestCommit_ARepeatBringsNothingBack(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	put(t, s, "one", "a", "first")
	k := store.Key{Part: "p", Sort: "a"}
	if err := s.Commit(t.Context(), "two", store.Put(store.Record{Key: k, Value: []byte("second")}, 1)); err != nil {
		t.Fatal(err)
	}
	put(t, s, "one", "a", "first")
	if got := string(one(t, s, k).Value); got != "second" {
		t.Errorf("got %q after a repeat of an older commit", got)
	}
}
