package child

import "context"

// AdoptOrphans does nothing: here process 1 takes every orphan.
func AdoptOrphans() error { return nil }

// ReapOrphans does nothing: there are none.
func ReapOrphans(func(pid int) bool) {}

// EndOrphans does nothing: what left its group on purpose is not found here.
func EndOrphans(context.Context) error { return nil }

// KillOthers does nothing here.
func KillOthers() {}

// GroupLives reports whether a member of a process group lives; here it cannot be told.
func GroupLives(int) bool { return false }
