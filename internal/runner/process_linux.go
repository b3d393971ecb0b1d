package runner

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// harden closes this process to others of its user: its memory, its environment and its
// descriptors.
func harden() error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("make the runner non-dumpable: %w", errno)
	}
	return noCore()
}

// bootClock returns a clock that goes on while the machine sleeps.
func bootClock() func() time.Duration {
	const clockBoottime = 7
	started := time.Now()
	return func() time.Duration {
		var ts syscall.Timespec
		if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 { //nolint:gosec // the kernel's own interface
			return time.Since(started) // a kernel without that clock: sleep is not counted
		}
		return time.Duration(ts.Nano())
	}
}
