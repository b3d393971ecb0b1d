package runner

import "time"

// harden only forbids core files: this system has no switch against others of the same user.
func harden() error { return noCore() }

// bootClock returns the wall clock, which is the one here that goes on while the machine sleeps.
func bootClock() func() time.Duration {
	begun := time.Now().Round(0) // without the clock that stands still
	return func() time.Duration { return time.Now().Round(0).Sub(begun) + 1 }
}
