package cleanup_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
)

func TestDropFiles_SharedMemoryAndQueuesOfTheUserAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it removes what another user has")
	}
	uid := 1_500_000_000 + uint32(os.Getpid()) //nolint:gosec // nobody else's
	name := fmt.Sprintf("dayfly-test-%d", os.Getpid())
	own, others := share(t, uid, name), share(t, uid+1_000_000, name+"-other")
	drop := func(uid uint32) {
		if err := cleanup.DropFiles(uid, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { drop(uid + 1_000_000) })
	for what, there := range own {
		if !there() {
			t.Fatalf("there is no %s: the test shows nothing", what)
		}
	}
	drop(uid)
	for what, there := range own {
		if there() {
			t.Errorf("its %s is left", what)
		}
	}
	for what, there := range others {
		if !there() {
			t.Errorf("the %s of another user is gone", what)
		}
	}
}

// A tree may be too deep or too large to go in time. Then the next user at least cannot reach it.
func TestDropFiles_WhatCannotGoInTimeBecomesRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it removes what another user has")
	}
	uid := 1_500_000_000 + uint32(os.Getpid()) //nolint:gosec // nobody else's
	deep := filepath.Join("/dev/shm", fmt.Sprintf("dayfly-test-deep-%d", os.Getpid()))
	if err := errors.Join(os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", 300)), 0o777), os.Lchown(deep, int(uid), int(uid))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(deep) })
	if err := cleanup.DropFiles(uid, time.Now().Add(time.Minute)); err == nil || !strings.Contains(err.Error(), deep) {
		t.Errorf("got %v, want an error that names %s", err, deep)
	}
	info, err := os.Lstat(deep)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatal("it is gone: the test shows nothing")
	}
	if st, ok := info.Sys().(*syscall.Stat_t); err != nil || !ok || st.Uid != 0 || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v; want a directory that is root's alone", info, err)
	}
}

// share makes shared memory, semaphores and message queues of a user, and returns whether each is there.
func share(t *testing.T, uid uint32, name string) map[string]func() bool {
	t.Helper()
	queue, err := unix.BytePtrFromString(name)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]uintptr{}
	done := make(chan error)
	cleanup.OwnThread(func() {
		for _, c := range []struct {
			what          string
			trap, a, b, c uintptr
		}{
			{"user", unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
			{"shared memory", unix.SYS_SHMGET, unix.IPC_PRIVATE, 4096, unix.IPC_CREAT | 0o600},
			{"semaphore", unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, unix.IPC_CREAT | 0o600},
			{"queue", unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT | 0o600, 0},
			{"queue of POSIX", unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(queue)), unix.O_CREAT | unix.O_RDWR, 0o600},
		} {
			id, _, errno := syscall.Syscall6(c.trap, c.a, c.b, c.c, 0, 0, 0)
			if errno != 0 {
				done <- fmt.Errorf("make %s: %w", c.what, errno)
				return
			}
			ids[c.what] = id
		}
		done <- syscall.Close(int(ids["queue of POSIX"]))
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	there := func(table, what string) func() bool {
		return func() bool {
			text, err := os.ReadFile("/proc/sysvipc/" + table)
			if err != nil {
				t.Error(err)
			}
			for row := range strings.Lines(string(text)) {
				if f := strings.Fields(row); len(f) > 1 && f[1] == strconv.FormatUint(uint64(ids[what]), 10) {
					return true
				}
			}
			return false
		}
	}
	return map[string]func() bool{
		"shared memory": there("shm", "shared memory"),
		"semaphore":     there("sem", "semaphore"),
		"queue":         there("msg", "queue"),
		"queue of POSIX": func() bool {
			fd, _, errno := syscall.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(queue)), unix.O_RDONLY, 0, 0, 0, 0)
			if errno == 0 {
				_ = syscall.Close(int(fd))
			}
			return errno == 0
		},
	}
}
