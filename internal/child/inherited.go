//go:build linux || darwin

package child

import (
	"os"
	"strconv"
	"syscall"
)

const (
	firstExtra = 3       // the first descriptor after the usual three
	maxListed  = 1 << 16 // descriptors that are looked for where the system does not list them
)

// CloseInherited keeps the descriptors that this program inherited from its children: each from 3 on is closed on
// exec. Every main calls it first, when no child can exist yet. Here they stay open, because some are meant for this
// program alone: the gate of a runner, the file of a shell's <(command), a lock that a script holds for as long as
// this program runs.
func CloseInherited() {
	if dir, err := os.Open(descriptors); err == nil {
		names, err := dir.Readdirnames(-1)
		_ = dir.Close()
		if err == nil {
			for _, name := range names {
				if fd, err := strconv.Atoi(name); err == nil && fd >= firstExtra {
					syscall.CloseOnExec(fd)
				}
			}
			return
		}
	}
	maxDescriptors := maxListed
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		maxDescriptors = int(min(limit.Cur, maxListed)) //nolint:gosec // a small number
	}
	for fd := firstExtra; fd < maxDescriptors; fd++ {
		syscall.CloseOnExec(fd)
	}
}
