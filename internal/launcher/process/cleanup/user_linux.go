package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dayfly-dev/dayfly/internal/child"
)

// threadTime bounds the wait for a thread to end that has nothing more to do.
const threadTime = 5 * time.Second

// KillUser kills every process of a user, however it left its session. It returns a lower bound of how many processes
// there were. Call it until it returns 0 without an error: then none remains. It is for root and for a user that is
// not root and that nobody else has.
// Killing one process after the other would lose against processes that fork faster. So a thread becomes that user,
// without any capability, and sends one signal to all that it may signal: the kernel decides which those are, and
// lets no process in between begin another (kill(2), "If pid equals -1").
func KillUser(uid uint32) (int, error) {
	if uid == 0 {
		return 0, errors.New("kill processes of a user: root is not one")
	}
	if lives, err := UserLives(uid); err != nil || !lives {
		return 0, err
	}
	if err := killAs(uid); err != nil {
		return 0, fmt.Errorf("kill processes of user %d: %w", uid, err)
	}
	if lives, err := UserLives(uid); err != nil || !lives {
		return 0, err
	}
	return living(uid) // without those that are dead and that their parents have not reaped
}

// killAs sends the signal, and returns when the thread that did has ended: until then it counts as the user's.
func killAs(uid uint32) error {
	type sent struct {
		thread int
		err    error
	}
	done := make(chan sent)
	ownThread(func() {
		err := become(uid)
		if err == nil {
			err = syscall.Kill(-1, syscall.SIGKILL)
		}
		if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
			err = nil // there is none, or none that it may signal: the caller looks
		}
		done <- sent{syscall.Gettid(), err}
	})
	s := <-done
	end := time.Now().Add(threadTime)
	for pause := 100 * time.Microsecond; time.Now().Before(end); pause = min(2*pause, 10*time.Millisecond) {
		if _, err := os.Lstat("/proc/self/task/" + strconv.Itoa(s.thread)); errors.Is(err, fs.ErrNotExist) {
			break
		}
		timer := time.NewTimer(pause)
		<-timer.C
	}
	return s.err
}

// ownThread runs do on a thread that then ends. The first thread of a process never does (the runtime keeps it), and
// the whole process would seem to have that thread's user; so if it comes first, it is held until another one has
// come.
func ownThread(do func()) {
	go func() {
		runtime.LockOSThread() // for good: the runtime ends the thread with this goroutine
		if syscall.Gettid() != os.Getpid() {
			do()
			return
		}
		defer runtime.UnlockOSThread()
		over := make(chan struct{})
		ownThread(func() { defer close(over); do() })
		<-over
	}()
}

// become gives the calling thread alone to a user, without a way back. With a remaining capability it could signal
// everybody, so all are dropped by name, and each step is checked.
func become(uid uint32) error {
	// That of package syscall changes all threads.
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return fmt.Errorf("become it: %w", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if a, b, c := unix.Getresuid(); uint32(a) != uid || uint32(b) != uid || uint32(c) != uid { //nolint:gosec // users have 32 bits
		return errors.New("the system did not change the user")
	}
	return nil
}

// living counts the processes of a user that live. One whose first thread has ended shows as dead while other threads
// go on.
func living(uid uint32) (int, error) {
	pids, err := child.Processes()
	if err != nil {
		return 0, err
	}
	left := 0
	for _, pid := range pids {
		owner, err := realUser(pid)
		if errors.Is(err, fs.ErrNotExist) || err == nil && owner != uid {
			continue
		}
		if err != nil {
			return left, err
		}
		threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			continue // it is gone
		}
		for _, thread := range threads {
			tid, _ := strconv.Atoi(thread.Name())
			if s, err := child.ReadStat(tid); err == nil && s.Alive() { // a thread has an entry of its own, which is not listed
				left++
				break
			}
		}
	}
	return left, nil
}
