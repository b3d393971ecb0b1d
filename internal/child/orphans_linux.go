package child

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

const prSetChildSubreaper = 36

// AdoptOrphans makes this process the new parent of every descendant whose parent ends, as it is
// anyway where it is process 1. It must then reap them, with ReapOrphans and EndOrphans.
func AdoptOrphans() error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("adopt orphans: %w", errno)
	}
	return nil
}

// ReapOrphans reaps the children of this process that have ended, except those that mine names:
// another goroutine waits for them. No process may be started meanwhile.
func ReapOrphans(mine func(pid int) bool) {
	for _, s := range children() {
		if !s.Alive() && !mine(s.PID) {
			_, _ = syscall.Wait4(s.PID, nil, syscall.WNOHANG, nil)
		}
	}
}

// EndOrphans kills and reaps every child of this process, and every process that becomes its child when another one
// dies, until none is left. Call it when all own children have been waited for. Its error says that ctx ended while
// a process was still dying.
func EndOrphans(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if childless() {
			return nil
		}
		KillOthers()
		left := children()
		if len(left) == 0 {
			return nil
		}
		for _, s := range left {
			_ = syscall.Kill(s.PID, syscall.SIGKILL) // the number is still our child's: nobody else reaps it
			_, _ = syscall.Wait4(s.PID, nil, syscall.WNOHANG, nil)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes are still dying, %d the first: %w", len(left), left[0].PID, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// KillOthers kills every other process of a container whose first process this one is, at once: no swarm escapes by
// forking. Elsewhere it does nothing.
func KillOthers() {
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, syscall.SIGKILL) // all but this one (kill(2))
	}
}

// childless reports that this process has no child, alive or dead. The kernel says so at once; to look at every
// process would take longer with each one.
func childless() bool {
	const pAll, wAll = 0, 0x40000000                                                                                                                         // of every kind
	var info [128]byte                                                                                                                                       // siginfo_t
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pAll, 0, uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOHANG|syscall.WNOWAIT|wAll, 0, 0) //nolint:gosec // the kernel's own interface
	return errno == syscall.ECHILD
}

func children() []Stat {
	self := os.Getpid()
	return processes(func(s Stat) bool { return s.Parent == self })
}

// GroupLives reports whether a member of a process group lives. It is for a group whose leader's Exit
// says Left.
func GroupLives(pgid int) bool { return groupLives(pgid) }
