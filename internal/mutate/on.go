//go:build mutate

package mutate

import "sync/atomic"

var current atomic.Pointer[string]

// Use makes one mistake, and no other; none with "".
func Use(name string) { current.Store(&name) }

// On reports whether a mistake is made.
func On(name string) bool {
	now := current.Load()
	return now != nil && *now == name
}
