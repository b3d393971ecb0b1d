package runner

import "time"

// harden only forbids core files: this system cannot protect a process from others of the same user.
func harden() error { return noCore() }

// bootClock returns the wall clock, because it goes on while the machine sleeps.
func bootClock() func() time.Duration {
	started := time.Now().Round(0) // without the monotonic clock, which stops
	return func() time.Duration { return time.Now().Round(0).Sub(started) + 1 }
}
