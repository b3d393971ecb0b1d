package dynamodb

import (
	"sync"
	"time"
)

const (
	unsureFor = 15 * time.Minute // as long as a repeat may come; the contract asks for ten minutes
	maxUnsure = 10_000           // some hundred kilobytes
)

// unsure remembers the ids of lone writes whose outcome this process does not know, so that a repeat
// whose record is silent is answered store.ErrUnknown and not store.ErrConflict. Correctness does not rest on it: a
// process that restarted has forgotten all ids, and then a lost race is the best answer there is (see the package
// documentation).
type unsure struct {
	mu  sync.Mutex
	ids map[string]time.Time
}

func (u *unsure) remember(id string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[string]time.Time{}
	}
	if len(u.ids) >= maxUnsure {
		for old, at := range u.ids {
			if now.Sub(at) > unsureFor {
				delete(u.ids, old)
			}
		}
	}
	if len(u.ids) < maxUnsure {
		u.ids[id] = now
	}
}

func (u *unsure) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ids, id)
}

func (u *unsure) holds(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.ids[id]
	return ok
}
