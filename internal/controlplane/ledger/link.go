package ledger

import (
	"context"
	"slices"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// links remembers which records were read because another record names them: a workspace's record leads to its queue
// and its pool. Next time they are read together with it, in one request instead of one for each link. A link is a
// guess: a decision follows the records, and reads those that a guess missed.
type links struct {
	mu sync.Mutex
	to map[store.Key][]store.Key
}

// maxLinks bounds the map; a full one is cleared.
const maxLinks = 5_000

// Link remembers that a reader of one key also reads others.
func (l *Ledger) Link(from store.Key, to ...store.Key) {
	l.links.mu.Lock()
	defer l.links.mu.Unlock()
	if _, known := l.links.to[from]; l.links.to == nil || !known && len(l.links.to) >= maxLinks {
		l.links.to = map[store.Key][]store.Key{}
	}
	l.links.to[from] = to
}

// Linked returns keys, and all that they lead to.
func (l *Ledger) Linked(keys ...store.Key) []store.Key {
	l.links.mu.Lock()
	defer l.links.mu.Unlock()
	keys = slices.Clip(keys)
	for i := 0; i < len(keys); i++ {
		for _, k := range l.links.to[keys[i]] {
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// Link remembers that a reader of one key also reads others, for the next change.
func (c *Change) Link(from store.Key, to ...store.Key) { c.ledger.Link(from, to...) }

// LoadLinked is Load of keys and of all that they lead to.
func (c *Change) LoadLinked(ctx context.Context, keys ...store.Key) error {
	return c.Load(ctx, c.ledger.Linked(keys...)...)
}
