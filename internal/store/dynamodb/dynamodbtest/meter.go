package dynamodbtest

import (
	"context"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Meter is a store that adds up the costs of its calls in DynamoDB. Over a store in memory it shows the cost of
// a change of the rules, or of a larger installation, without a table. It counts as the service does, provided
// that every call is answered in one piece; a test compares the two.
type Meter struct {
	inner store.Store

	mu    sync.Mutex
	used  Units
	calls int
}

// NewMeter returns a meter at zero over a store.
func NewMeter(inner store.Store) *Meter { return &Meter{inner: inner} }

// Used returns the units used since the last Reset, and the number of calls of the store.
func (m *Meter) Used() (Units, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used, m.calls
}

// Reset puts the meter at zero.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used, m.calls = Units{}, 0
}

func (m *Meter) add(u Units) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used, m.calls = m.used.Plus(u), m.calls+1
}

// Get implements store.Store.
func (m *Meter) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	found, err := m.inner.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	named, once := map[store.Key]bool{}, []store.Record(nil)
	for _, k := range keys {
		named[k] = true
	}
	seen := map[store.Key]bool{}
	for _, r := range found {
		if !seen[r.Key] {
			seen[r.Key], once = true, append(once, r)
		}
	}
	if len(named) > 0 {
		m.add(GetUnits(len(named), once))
	}
	return found, nil
}

// Range implements store.Store.
func (m *Meter) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	page, err := m.inner.Range(ctx, s)
	if err == nil {
		m.add(RangeUnits(page.Records))
	}
	return page, err
}

// Query implements store.Store.
func (m *Meter) Query(ctx context.Context, index store.Index, s store.Scan) (store.Page, error) {
	page, err := m.inner.Query(ctx, index, s)
	if err == nil {
		m.add(QueryUnits(index, page.Records))
	}
	return page, err
}

// Commit implements store.Store. A commit that is not applied is not counted.
func (m *Meter) Commit(ctx context.Context, id string, ops ...store.Op) error {
	keys := make([]store.Key, len(ops))
	for i, op := range ops {
		keys[i] = op.Key()
	}
	var before map[store.Key]store.Record
	if found, err := m.inner.Get(ctx, keys[:min(len(keys), store.MaxGet)]...); err == nil {
		before = make(map[store.Key]store.Record, len(found))
		for _, r := range found {
			before[r.Key] = r
		}
	}
	if err := m.inner.Commit(ctx, id, ops...); err != nil {
		return err
	}
	m.add(CommitUnits(ops, before))
	return nil
}
