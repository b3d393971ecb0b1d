package cleanup

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// KillUser kills the processes of a user one by one, and returns how many there were. Call it until it returns 0
// without an error.
func KillUser(uid uint32) (int, error) {
	if uid == 0 {
		return 0, errors.New("kill processes of a user: root is not one")
	}
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return 0, err
	}
	left := 0
	for i := range all {
		p := &all[i]
		if p.Proc.P_stat == zombie || p.Eproc.Pcred.P_ruid != uid {
			continue
		}
		left++
		if err := syscall.Kill(int(p.Proc.P_pid), syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
			return left, err
		}
	}
	return left, nil
}

// queues returns nothing: this system has no message queues of POSIX.
func queues() (string, func()) { return "", func() {} }

// dropMemory does nothing here.
func dropMemory(uint32) error { return nil }
