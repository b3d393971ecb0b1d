//go:build mutate

package mutate

import (
	"os"
	"sync/atomic"
)

var current atomic.Pointer[string]

func init() { Use(os.Getenv("DAYFLY_MUTANT")) }

// Use makes one mistake and ends the previous one; "" makes none.
func Use(name string) { current.Store(&name) }

// On reports whether a mistake is made.
func On(name string) bool {
	now := current.Load()
	return now != nil && *now == name
}
