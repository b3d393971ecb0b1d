// Package cleanup finds the remaining processes of a task on this machine, in a cgroup or in a session, and kills
// them. It checks each process before it sends a signal, so that a later one with the same number is spared.
package cleanup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Trace says where to look for the processes of one task.
type Trace struct {
	Boot    string   // of the machine, or the container, that they ran in
	Session int      // the number of the session, and of the process that leads it
	Start   uint64   // when that process began, as ProcessStart returns it
	Cgroup  string   // the directory of their cgroup; empty means none
	Users   []uint32 // the users that they run as, because another session may have got the same number
}

// Kill kills the processes in the cgroup, or else in the session. It returns a lower bound of how many there were.
// Call it until it returns 0 without an error: then none remains. boot is the value of Boot now.
func Kill(t Trace, boot string) (int, error) {
	if t.Boot != boot {
		return 0, nil
	}
	if t.Cgroup != "" {
		killed, err := KillCgroup(t.Cgroup)
		if !errors.Is(err, fs.ErrNotExist) {
			return killed, err
		}
	}
	killed, err := killSession(t)
	if killed > 0 || err != nil {
		return killed, err
	}
	// The first list may have missed a process that began while it was read; the second cannot.
	return killSession(t)
}

// UserLives reports whether any process belongs to a user, zombies included. It asks the kernel for that user
// alone, because to read all processes would take longer with each one.
func UserLives(uid uint32) (bool, error) {
	_, err := syscall.Getpriority(syscall.PRIO_USER, int(uid))
	if errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return err == nil, err
}

// Limits are the limits of a cgroup. Each holds only if its controller is available.
type Limits struct {
	MilliCPU int   // thousandths of a processor
	Memory   int64 // bytes
	PIDs     int   // processes and threads
}

// KilledForMemory reports whether the kernel has killed a process of a cgroup for memory.
func KilledForMemory(cgroup string) bool {
	b, _ := os.ReadFile(filepath.Join(cgroup, "memory.events"))
	for line := range bytes.Lines(b) {
		if n, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			return string(bytes.TrimSpace(n)) != "0"
		}
	}
	return false
}
