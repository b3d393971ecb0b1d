package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/child"
)

// Boot names this start of the machine and of the container: the kernel's boot id, and when the first
// visible process began.
func Boot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	start, err := ProcessStart(1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // hidden from us
		return "", err
	}
	return fmt.Sprintf("%s/%d", strings.TrimSpace(string(b)), start), nil
}

// ProcessStart is when a process began, in the system's own unit; fs.ErrNotExist means that it is
// gone.
func ProcessStart(pid int) (uint64, error) {
	s, err := child.ReadStat(pid)
	return s.Start, err
}

// killSession kills every live process of a session and returns how many there were.
//
// The kernel does not reuse the number of a session while a process is in it. So if a process has that number and
// began at another time, our session is gone. If no process has it, the leader is dead. The members are then ours,
// or those of a later session with the same number whose leader is dead too. The user tells these apart.
func killSession(t Trace) (int, error) {
	switch leader, err := child.ReadStat(t.Session); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	case leader.Start != t.Start:
		return 0, nil
	}
	pids, err := child.Processes()
	if err != nil {
		return 0, err
	}
	left := 0
	for _, pid := range pids {
		ours, err := t.member(pid)
		if err != nil {
			return left, err
		}
		if !ours {
			continue
		}
		left++
		if err := killVerified(pid, func() (bool, error) { return t.member(pid) }); err != nil {
			return left, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return left, nil
}

// killVerified kills a process if still confirms that it is the right one. It asks after it has opened the process,
// when no other process can get the number any more.
func killVerified(pid int, still func() (bool, error)) error {
	p, err := os.FindProcess(pid) // holds a descriptor of the process
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	if ok, err := still(); err != nil || !ok {
		return err
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (t Trace) member(pid int) (bool, error) {
	s, err := child.ReadStat(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if s.Session != t.Session || s.Start < t.Start || !s.Alive() {
		return false, nil
	}
	uid, err := realUser(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && slices.Contains(t.Users, uid), err
}

// realUser is the user that started a process, even if it runs as another one.
func realUser(pid int) (uint32, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if errors.Is(err, syscall.ESRCH) {
		return 0, fs.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Uid:"); ok {
			if f := strings.Fields(v); len(f) > 0 {
				uid, err := strconv.ParseUint(f[0], 10, 32)
				return uint32(uid), err
			}
		}
	}
	return 0, fmt.Errorf("process %d shows no user", pid)
}
