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

	"golang.org/x/sys/unix"
)

// queues shows the message queues of POSIX as a directory until done is called, also where nobody has mounted them.
// An empty path means that the system does not.
func queues() (path string, done func()) {
	made, err := unix.Fsopen("mqueue", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", func() {}
	}
	defer func() { _ = unix.Close(made) }()
	if unix.FsconfigCreate(made) != nil {
		return "", func() {}
	}
	dir, err := unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return "", func() {}
	}
	return "/proc/self/fd/" + strconv.Itoa(dir), func() { _ = unix.Close(dir) }
}

// dropMemory removes the shared memory, semaphores and message queues of System V that a user made or owns.
func dropMemory(uid uint32) error {
	var errs []error
	for _, kind := range []struct {
		table string
		call  func(id uintptr) syscall.Errno
	}{
		{"shm", func(id uintptr) syscall.Errno { return control(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0) }},
		{"msg", func(id uintptr) syscall.Errno { return control(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0) }},
		{"sem", func(id uintptr) syscall.Errno { return control(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID) }},
	} {
		text, err := os.ReadFile("/proc/sysvipc/" + kind.table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without it
		}
		if err != nil {
			return err
		}
		for _, id := range ownIPC(string(text), uid) {
			if errno := kind.call(id); errno != 0 && errno != syscall.EINVAL && errno != syscall.EIDRM {
				errs = append(errs, fmt.Errorf("remove %s %d: %w", kind.table, id, errno))
			}
		}
	}
	return errors.Join(errs...)
}

func control(trap, id, a, b uintptr) syscall.Errno {
	_, _, errno := syscall.Syscall(trap, id, a, b)
	return errno
}

// ownIPC returns the ids in a table of /proc/sysvipc that a user made or owns. The first line names the columns.
func ownIPC(table string, uid uint32) []uintptr {
	head, rows, _ := strings.Cut(table, "\n")
	names, user := strings.Fields(head), strconv.FormatUint(uint64(uid), 10)
	owner, maker := slices.Index(names, "uid"), slices.Index(names, "cuid")
	var out []uintptr
	for row := range strings.Lines(rows) {
		const id = 1
		f := strings.Fields(row)
		if owner < 0 || maker < 0 || len(f) <= max(owner, maker, id) || f[owner] != user && f[maker] != user {
			continue
		}
		if n, err := strconv.ParseUint(f[id], 10, 31); err == nil {
			out = append(out, uintptr(n))
		}
	}
	return out
}
