package child

import (
	"errors"
	"syscall"
	"time"
	"unsafe"
)

// DiesWithParent says whether a child is killed when its parent ends, however that ends. Away from Linux it
// outlives a parent that is killed.
const DiesWithParent = false

// LimitsHold says whether Spec.Limits has an effect.
const LimitsHold = false

// descriptors lists those of this process.
const descriptors = "/dev/fd"

func sysProcAttr(spec Spec) (*syscall.SysProcAttr, error) {
	if spec.CgroupFD != nil {
		return nil, errors.New("start process: this system has no cgroups")
	}
	a := &syscall.SysProcAttr{Setsid: spec.NewSession, Setpgid: !spec.NewSession}
	if spec.User != nil {
		a.Credential = &syscall.Credential{Uid: spec.User.UID, Gid: spec.User.GID}
	}
	return a, nil
}

func prepareThread(Spec) (bool, error) { return false, nil }

func limit(int, Limits) error { return nil }

// awaitExit blocks until the process has ended, without reaping it.
func awaitExit(pid int) {
	const pPID = 1
	var info [128]byte // siginfo_t
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOWAIT, 0, 0) //nolint:gosec // the kernel's own interface
		if errno != syscall.EINTR {
			return
		}
	}
}

// groupDied does not wait: the group was killed, and this system does not report when it is gone.
func groupDied(int, time.Duration) bool { return true }

// interruptMissed does nothing: this system does not report which processes missed an interrupt.
func interruptMissed(int, moment) {}

type moment struct{}

func now() moment { return moment{} }
