package child

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// Numbers of the kernel's that the syscall package lacks.
const (
	prSetNoNewPrivs = 38
	prGetNoNewPrivs = 39
	pPID            = 1 // waitid: P_PID
	rlimitNPROC     = 6
)

// DiesWithParent says whether a child is killed when its parent ends, however that ends.
const DiesWithParent = true

// LimitsHold says whether Spec.Limits has an effect.
const LimitsHold = true

// descriptors lists those of this process.
const descriptors = "/proc/self/fd"

func sysProcAttr(spec Spec) (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: spec.NewSession, Setpgid: !spec.NewSession}
	if spec.User != nil {
		a.Credential = &syscall.Credential{Uid: spec.User.UID, Gid: spec.User.GID}
	}
	if spec.CgroupFD != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(spec.CgroupFD.Fd())
	}
	return a, nil
}

// prepareThread sets the attributes of the calling thread that its children inherit, and reports whether that changed
// it.
func prepareThread(spec Spec) (changed bool, err error) {
	if !spec.NoNewPrivileges {
		return false, nil
	}
	// A container may have set it for all threads.
	if already, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prGetNoNewPrivs, 0, 0, 0, 0, 0); errno == 0 && already == 1 {
		return false, nil
	}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return false, fmt.Errorf("set no-new-privileges: %w", errno)
	}
	return true, nil
}

func limit(pid int, l Limits) error {
	set := func(resource int, value uint64) error {
		r := syscall.Rlimit{Cur: value, Max: value}
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), uintptr(resource), uintptr(unsafe.Pointer(&r)), 0, 0, 0) //nolint:gosec // the kernel's own interface
		// ESRCH: it has ended already, and needs no limit.
		if errno != 0 && errno != syscall.ESRCH {
			return fmt.Errorf("limit resource %d to %d: %w", resource, value, errno)
		}
		return nil
	}
	if l.OpenFiles > 0 {
		if err := set(syscall.RLIMIT_NOFILE, l.OpenFiles); err != nil {
			return err
		}
	}
	if l.Processes > 0 {
		if err := set(rlimitNPROC, l.Processes); err != nil {
			return err
		}
	}
	if l.NoCore {
		return set(syscall.RLIMIT_CORE, 0)
	}
	return nil
}

// awaitExit blocks until the process has ended, without reaping it.
func awaitExit(pid int) {
	var info [128]byte // siginfo_t
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOWAIT, 0, 0) //nolint:gosec // the kernel's own interface
		if errno != syscall.EINTR {
			return
		}
	}
}

// groupDied waits until no member of a group whose leader is reaped lives, at most for d. A process
// that was sent SIGKILL may take a while to die, for instance while the kernel waits for a slow disk.
func groupDied(pgid int, d time.Duration) bool {
	// Signal 0 only asks whether the group has a process. Zombies count as well, so only "no such process" is
	// an answer.
	if syscall.Kill(-pgid, 0) == syscall.ESRCH {
		return true
	}
	end := time.NewTimer(d)
	defer end.Stop()
	for pause := time.Millisecond; groupLives(pgid); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-end.C:
			return false
		case <-time.After(pause):
		}
	}
	return true
}

func groupLives(pgid int) bool {
	return len(processes(func(s Stat) bool { return s.Group == pgid && s.PID != pgid && s.Alive() })) > 0
}
