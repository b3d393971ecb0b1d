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

// AdoptOrphans makes this process the new parent of every descendant whose parent ends, as process 1 always is. It
// must then reap them, with ReapOrphans and EndOrphans.
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

// EndOrphans kills and reaps every descendant of this process, until none remains. Call it when all own children have
// been waited for. Its error says that ctx ended while a process was still dying.
//
// It stops them all before it kills the first: killing one after the other loses against processes that fork faster,
// while stopped processes do not fork and still count for their user's limit of processes.
func EndOrphans(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if childless() {
			return nil
		}
		KillOthers()
		alive := stopAll()
		if len(alive) == 0 {
			return nil
		}
		for _, s := range alive {
			s.signal(syscall.SIGKILL)
		}
		ReapOrphans(func(int) bool { return false })
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes are still dying, %d the first: %w", len(alive), alive[0].PID, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// stopAll stops all processes below this one, and returns them.
func stopAll() (all []Stat) {
	const maxPasses = 50 // looks: each may find some that began since the one before
	for range maxPasses {
		running := 0
		all = descendants()
		for _, s := range all {
			if s.Alive() && s.state != 'T' && s.state != 't' {
				running++
				s.signal(syscall.SIGSTOP)
			}
		}
		if running == 0 {
			break
		}
	}
	return all
}

// descendants are the children of this process, their children and so on.
func descendants() (all []Stat) {
	below := map[int][]Stat{}
	for _, s := range processes(func(Stat) bool { return true }) {
		below[s.Parent] = append(below[s.Parent], s)
	}
	for parents := []int{os.Getpid()}; len(parents) > 0; parents = parents[1:] {
		for _, s := range below[parents[0]] {
			all, parents = append(all, s), append(parents, s.PID)
		}
	}
	return all
}

// signal signals the process that was seen, and no other that has got its number since (pidfd_open(2)). Where the
// kernel has no such descriptors, it signals children of this process only: only this process frees their numbers.
func (s Stat) signal(sig syscall.Signal) {
	const open, send = 434, 424
	fd, _, errno := syscall.RawSyscall(open, uintptr(s.PID), 0, 0)
	if errno == syscall.ENOSYS && s.Parent == os.Getpid() {
		_ = syscall.Kill(s.PID, sig)
	}
	if errno != 0 {
		return
	}
	defer func() { _ = syscall.Close(int(fd)) }() //nolint:gosec // a small number
	if now, err := ReadStat(s.PID); err == nil && now.Start == s.Start {
		_, _, _ = syscall.RawSyscall6(send, fd, uintptr(sig), 0, 0, 0, 0)
	}
}

// KillOthers kills every other process of a container whose first process this one is, at once: processes cannot
// escape by forking. Elsewhere it does nothing.
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
