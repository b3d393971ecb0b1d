// Package memory is a store in the memory of one process, for tests. It keeps all promises of package store but
// durability: its Query is never stale, it is never busy, and it never deletes an expired record.
package memory

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// remembered is how long the id of a commit is recognised; the contract asks for ten minutes.
const remembered = 15 * time.Minute

// Store is an empty store when it comes from New.
type Store struct {
	mu      sync.RWMutex
	table   map[string]*sorted                 // by partition; ordered by sort key
	indexes map[store.Index]map[string]*sorted // by partition; ordered by place
	commits map[string][sha256.Size]byte       // by id: the fingerprint of an applied commit
	oldest  []applied                          // the same commits in the order in which they came
}

type applied struct {
	id string
	at time.Time
}

// New returns an empty store.
func New() *Store {
	return &Store{
		table: map[string]*sorted{},
		indexes: map[store.Index]map[string]*sorted{
			store.Index1: {},
			store.Index2: {},
		},
		commits: map[string][sha256.Size]byte{},
	}
}

// Clone returns another store with the same records. It knows no earlier commit.
func (s *Store) Clone() *Store {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := New()
	for _, partition := range s.table {
		partition.scan("", "", false, func(it item) bool {
			c.replace(it.record.Key, it.record)
			return true
		})
	}
	return c
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	if err := store.CheckGet(keys); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []store.Record
	for _, k := range keys {
		if r := s.record(k); r != nil {
			found = append(found, r.Clone())
		}
	}
	return found, nil
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, scan store.Scan) (store.Page, error) {
	low, high := scan.Bounds()
	return s.page(ctx, "range", s.table, scan, low, high)
}

// Query implements store.Store. It is never stale.
func (s *Store) Query(ctx context.Context, index store.Index, scan store.Scan) (store.Page, error) {
	partitions, ok := s.indexes[index]
	if !ok {
		return store.Page{}, fmt.Errorf("store: unknown index %q", index)
	}
	low, high := scan.IndexBounds()
	return s.page(ctx, "query", partitions, scan, low, high)
}

func (s *Store) page(ctx context.Context, op string, partitions map[string]*sorted, scan store.Scan, low, high string) (store.Page, error) {
	if err := store.CheckScan(scan); err != nil {
		return store.Page{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Page{}, fmt.Errorf("%s: %w", op, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var page store.Page
	partition := partitions[scan.Part]
	if partition == nil {
		return page, nil
	}
	partition.scan(low, high, scan.Reverse, func(it item) bool {
		page.Records = append(page.Records, it.record.Clone())
		if len(page.Records) < scan.Limit {
			return true
		}
		page.Next = it.at
		return false
	})
	return page, nil
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if err := store.CheckCommit(id, ops); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	fingerprint := store.Fingerprint(ops)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.commits[id]; ok {
		if before != fingerprint {
			return fmt.Errorf("store: commit id %q was used for other operations", id)
		}
		return nil
	}
	for _, op := range ops {
		version := store.Absent
		if r := s.record(op.Key()); r != nil {
			version = r.Version
		}
		if version != op.Expect() {
			return fmt.Errorf("%s has version %d, not %d: %w", op.Key(), version, op.Expect(), store.ErrConflict)
		}
	}
	for _, op := range ops {
		switch {
		case op.IsPut():
			r := op.Record().Clone()
			s.replace(r.Key, &r)
		case op.IsDelete():
			s.replace(op.Key(), nil)
		}
	}
	s.remember(id, fingerprint)
	return nil
}

func (s *Store) record(k store.Key) *store.Record {
	if partition := s.table[k.Part]; partition != nil {
		return partition.get(k.Sort)
	}
	return nil
}

// replace puts r, or nothing, where the record of key k is, in the table and in the indexes.
func (s *Store) replace(k store.Key, r *store.Record) {
	if old := s.record(k); old != nil {
		for index, e := range old.Indexes {
			remove(s.indexes[index], e.Part, store.Place(e, k))
		}
	}
	if r == nil {
		remove(s.table, k.Part, k.Sort)
		return
	}
	put(s.table, k.Part, k.Sort, r)
	for index, e := range r.Indexes {
		put(s.indexes[index], e.Part, store.Place(e, k), r)
	}
}

func put(partitions map[string]*sorted, part, at string, r *store.Record) {
	partition := partitions[part]
	if partition == nil {
		partition = &sorted{}
		partitions[part] = partition
	}
	partition.put(at, r)
}

func remove(partitions map[string]*sorted, part, at string) {
	partition := partitions[part]
	partition.remove(at)
	if partition.empty() {
		delete(partitions, part)
	}
}

// remember keeps the id of an applied commit and forgets at most two that are past their time, so
// that no commit pays for many.
func (s *Store) remember(id string, fingerprint [sha256.Size]byte) {
	now := time.Now()
	s.commits[id] = fingerprint
	s.oldest = append(s.oldest, applied{id, now})
	for range 2 {
		if now.Sub(s.oldest[0].at) < remembered {
			return
		}
		delete(s.commits, s.oldest[0].id)
		s.oldest = s.oldest[1:]
	}
}
