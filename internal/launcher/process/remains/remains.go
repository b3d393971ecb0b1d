// Package remains finds what is left of a task on this machine, in a cgroup or in a session, and
// kills it. It signals only what it has made sure of: a process that took over a number is spared.
package remains

import (
	"errors"
	"io/fs"
	"syscall"
)

// Trace is where the processes of one task are looked for.
type Trace struct {
	Boot    string   // of the machine, or the container, that they ran in
	Session int      // the number of the session, and of the process that leads it
	Start   uint64   // when that process began, as ProcessStart tells it
	Cgroup  string   // the directory of their cgroup; empty means none
	Users   []uint32 // who they run as: tells them apart where the session number was taken again
}

// Kill kills what is left, in the cgroup, else in the session, and returns how many processes there
// were, at least. Nothing is left when it returns 0 without an error; until then it is to be called
// again. boot is what Boot tells now.
func Kill(t Trace, boot string) (int, error) {
	if t.Boot != boot {
		return 0, nil
	}
	if t.Cgroup != "" {
		left, err := KillCgroup(t.Cgroup)
		if !errors.Is(err, fs.ErrNotExist) {
			return left, err
		}
	}
	left, err := killSession(t)
	if left > 0 || err != nil {
		return left, err
	}
	// A process that was born while the list was read can be missed once, not twice.
	return killSession(t)
}

// UserLives reports whether any process belongs to a user, also a dead one that nobody has reaped
// yet. The kernel is asked for that user alone: reading all processes would take longer with each.
func UserLives(uid uint32) (bool, error) {
	_, err := syscall.Getpriority(syscall.PRIO_USER, int(uid))
	if errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return err == nil, err
}

// Limits are what a cgroup may use, where its controllers are there.
type Limits struct {
	MilliCPU int   // thousandths of a processor
	Memory   int64 // bytes
	PIDs     int   // processes and threads
}
