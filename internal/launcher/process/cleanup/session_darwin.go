package cleanup

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// zombie is the state of a process that is dead and not reaped (SZOMB).
const zombie = 5

// Boot names this start of the machine.
func Boot() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }

// ProcessStart is when a process began; fs.ErrNotExist means that it is gone.
func ProcessStart(pid int) (uint64, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, err
	}
	if int(p.Proc.P_pid) != pid {
		return 0, fs.ErrNotExist
	}
	return begun(p), nil
}

// begun is when a process began, in microseconds.
func begun(p *unix.KinfoProc) uint64 {
	return uint64(p.Proc.P_starttime.Sec)*1e6 + uint64(p.Proc.P_starttime.Usec) //nolint:gosec // after 1970
}

// killSession kills every live process of a session and returns how many there were. This system has no
// descriptors of processes, so between the check and the signal another process could get the number.
func killSession(t Trace) (int, error) {
	switch s, err := ProcessStart(t.Session); {
	case err == nil && s != t.Start:
		return 0, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EIO):
		return 0, err
	}
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return 0, err
	}
	left := 0
	for i := range all {
		p := &all[i]
		pid := int(p.Proc.P_pid)
		if p.Proc.P_stat == zombie || begun(p) < t.Start || !slices.Contains(t.Users, p.Eproc.Pcred.P_ruid) {
			continue
		}
		if s, err := unix.Getsid(pid); err != nil || s != t.Session {
			continue
		}
		left++
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
			return left, err
		}
	}
	return left, nil
}
