package sqlite

import (
	"sync"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// knownBytes bounds each half of what is known, in about bytes.
const knownBytes = 2 << 20

// known holds records as they are in the file, and keys that have none there, of a store that alone
// writes its file: most of what is read was read or written a moment before.
//
// It answers as the file would. The writer names what a transaction changes before that is durable; from
// then on it is not known, and a reader asks the file. It is known again, as it is then, after the
// transaction and before its commits are answered. What a reader found is taken only if no transaction
// ended since the reader began and none that is about to end changes it. A transaction whose end failed
// may yet be found in the file later: after that nothing is known any more.
type known struct {
	mu     sync.Mutex
	off    bool
	ended  uint64             // transactions
	doubt  map[store.Key]bool // what the transaction changes that is about to end
	purges bool               // it changes more than it can name
	young  map[store.Key]store.Record
	old    map[store.Key]store.Record // what was young before; the rest is forgotten
	size   int                        // of young
}

// newKnown returns what is known in the beginning: nothing.
func newKnown() *known {
	return &known{doubt: map[store.Key]bool{}, young: map[store.Key]store.Record{}}
}

// get returns the records of keys where they are known, with version Absent for one that is not there; the
// places of the others; and the time to take with what is found of those.
func (k *known) get(keys []store.Key) (all []store.Record, missing []int, ended uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all = make([]store.Record, len(keys))
	for i, key := range keys {
		r, ok := k.young[key]
		if !ok {
			if r, ok = k.old[key]; ok {
				k.put(r)
			}
		}
		if all[i] = r; !ok {
			all[i].Key = key
			missing = append(missing, i)
		}
	}
	return all, missing, k.ended
}

// take keeps what a reader found, who began at a time that get told.
func (k *known) take(ended uint64, found []store.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.off || k.purges || k.ended != ended {
		return
	}
	for _, r := range found {
		if !k.doubt[r.Key] {
			k.put(r)
		}
	}
}

// ending is told what a transaction changes, before it ends.
func (k *known) ending(ops []store.Op, purges bool) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.purges = purges; purges {
		k.forget()
	}
	for _, op := range ops {
		k.doubt[op.Key()] = true
		k.drop(op.Key())
	}
}

// end is told how the transaction ended.
func (k *known) end(ops []store.Op, err error) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended++
	k.purges = false
	clear(k.doubt)
	if err != nil {
		k.off = true
		k.forget()
	}
	if k.off {
		return
	}
	for _, op := range ops {
		switch {
		case op.IsPut():
			k.put(op.Record())
		case op.IsDelete():
			k.put(store.Record{Key: op.Key()})
		}
	}
}

// stop is for a store that is closed.
func (k *known) stop() { k.end(nil, errClosed) }

// put notes a record. The lock is held.
func (k *known) put(r store.Record) {
	if was, ok := k.young[r.Key]; ok {
		k.size -= weight(was)
	}
	k.young[r.Key] = r
	if k.size += weight(r); k.size > knownBytes {
		k.old, k.young, k.size = k.young, map[store.Key]store.Record{}, 0
	}
}

func (k *known) drop(key store.Key) {
	if was, ok := k.young[key]; ok {
		k.size -= weight(was)
		delete(k.young, key)
	}
	delete(k.old, key)
}

func (k *known) forget() { k.young, k.old, k.size = map[store.Key]store.Record{}, nil, 0 }

// weight is about what a record takes in memory.
func weight(r store.Record) int { return len(r.Key.Part) + len(r.Key.Sort) + len(r.Value) + 256 }
