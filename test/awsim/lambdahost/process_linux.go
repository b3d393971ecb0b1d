package lambdahost

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when the process has come to a stop, or is gone. The kernel tells a parent, but a
// wait that blocks would miss the end of a process that somebody else reaps; so it is asked again.
func awaitStopped(pid int, gone <-chan struct{}) {
	tick := time.NewTicker(20 * time.Microsecond)
	defer tick.Stop()
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
		if err == nil && info.Signo != 0 {
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		select {
		case <-gone:
			return
		case <-tick.C:
		}
	}
}

// peakMemory is the most memory that a process has had resident, in bytes.
func peakMemory(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == "VmHWM" {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM: it has ended", pid)
}
