package moves

import (
	"context"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
)

const (
	clockKept = 10 * time.Second // how long what was read of the clocks serves
	noteEvery = 20 * time.Second // how often a call of a pool is written down
)

// clock is what a process knows of the service clock and of those of the pools. It moves on only by passes; between
// them each process extrapolates, and what it has read may be clockKept old: a stamp is that much too early at most.
type clock struct {
	mu    sync.Mutex
	first bool // the first pass of a process that makes all of them is still to come
	known map[store.Key]known

	noting sync.Map // ids of the pools whose calls are being written down
}

// keep notes what records are now.
func (c *clock) keep(now time.Time, records ...store.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		c.known[r.Key] = known{r, now}
	}
}

type known struct {
	rec store.Record // without a value where there is none
	at  time.Time
}

// read returns the records of keys as they were at most clockKept ago.
func (b *Board) read(ctx context.Context, now time.Time, keys ...store.Key) (ledger.Read, bool, error) {
	b.clock.mu.Lock()
	out, fresh, first := ledger.Read{}, true, b.clock.first
	for _, k := range keys {
		kept, ok := b.clock.known[k]
		age := now.Sub(kept.at)
		fresh = fresh && ok && age >= 0 && age < clockKept
		if kept.rec.Value != nil {
			out[k] = kept.rec
		}
	}
	b.clock.mu.Unlock()
	if fresh {
		return out, first, nil
	}
	out, err := b.ledger.Read(ctx, keys...)
	if err != nil {
		return nil, false, ledger.OutOfStore(err)
	}
	for _, k := range keys {
		b.clock.keep(now, store.Record{Key: k, Value: out[k].Value})
	}
	return out, first, nil
}

func (b *Board) time(ctx context.Context, now time.Time, poolID string) (t rules.Time, h record.Heard, err error) {
	k := record.HeardKey(poolID)
	r, first, err := b.read(ctx, now, record.ClockKey(), record.PassKey(), k)
	if err != nil {
		return t, h, err
	}
	c, err := shown(r)
	if err != nil {
		return t, h, err
	}
	t.Now, t.Service = now, rules.Advance(c, now, first).Service
	h, _, err = ledger.Get[record.Heard](r, k)
	t.Lag = rules.Lag(h, t.Service)
	return t, h, err
}

// shown is the service clock as it was read.
func shown(r ledger.Read) (record.Clock, error) {
	before, _, err := ledger.Get[record.Pass](r, record.PassKey())
	if err != nil {
		return record.Clock{}, err
	}
	c, _, err := ledger.Get[record.Clock](r, record.ClockKey())
	return rules.Begin(c, before), err
}

// Time returns the moment of the change on all clocks, for the runs of a pool.
func (c *Change) Time(ctx context.Context, poolID string) (rules.Time, error) {
	t, _, err := c.board.time(ctx, c.Now, poolID)
	return t, err
}

// Called is Time for a call of the pool, of which it takes note.
func (c *Change) Called(ctx context.Context, poolID string) (rules.Time, error) {
	c.board.Hear(ctx, c.Now, poolID)
	return c.Time(ctx, poolID)
}

// Tick moves the service clock on, which passes do, and returns what it shows.
func (b *Board) Tick(ctx context.Context) (time.Time, error) {
	b.clock.mu.Lock()
	first := b.clock.first
	b.clock.mu.Unlock()
	var c record.Clock
	k, now := record.ClockKey(), time.Time{}
	err := b.ledger.Change(ctx, func(ctx context.Context, ch *ledger.Change) error {
		err := ch.Load(ctx, k, record.PassKey())
		if err == nil {
			c, err = shown(ch.Read)
		}
		now = ch.Now
		c = rules.Advance(c, now, first)
		ch.Put(k, c)
		return err
	})
	if err != nil {
		return c.Service, err
	}
	b.clock.keep(now, record.Encode(k, c))
	b.clock.mu.Lock()
	defer b.clock.mu.Unlock()
	b.clock.first = false
	return c.Service, nil
}

// Hear notes that a call of a pool was taken. Where that fails, some silence of its runs is excused that need not be.
func (b *Board) Hear(ctx context.Context, now time.Time, poolID string) {
	t, h, err := b.time(ctx, now, poolID)
	if err != nil || !h.At.IsZero() && t.Service.Sub(h.At) < noteEvery {
		return
	}
	if _, busy := b.clock.noting.LoadOrStore(poolID, true); busy {
		return // another call of this process is about it
	}
	defer b.clock.noting.Delete(poolID)
	k, noted := record.HeardKey(poolID), store.Record{}
	err = b.ledger.Decide(ctx, func(ctx context.Context) ([]store.Op, error) {
		r, err := b.ledger.Read(ctx, k)
		if err != nil {
			return nil, err
		}
		h, ok, err := ledger.Get[record.Heard](r, k)
		if noted = r[k]; err != nil || ok && t.Service.Sub(h.At) < noteEvery {
			return nil, err
		}
		noted = record.Encode(k, rules.Hear(h, t.Service))
		return []store.Op{store.Put(noted, r.Version(k))}, nil
	})
	if err == nil {
		b.clock.keep(now, noted)
	}
}
