package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// content tries to read something. Some files open and then give nothing.
func content(path, what string) {
	b, err := os.ReadFile(path)
	tried("read "+what, len(b) > 0, err)
}

func environ(runner int, _ []string) {
	for _, name := range []string{"environ", "auxv", "stack", "syscall", "cwd/.", "root/etc/passwd", "task/" + strconv.Itoa(runner) + "/environ"} {
		content(fmt.Sprintf("/proc/%d/%s", runner, name), name+" of the runner")
	}
}

func mem(runner int, _ []string) {
	for _, name := range []string{"mem", "maps", "smaps", "pagemap", "map_files"} {
		content(fmt.Sprintf("/proc/%d/%s", runner, name), name+" of the runner")
	}
	buf := make([]byte, 64)
	// A Go program begins there.
	_, err := unix.ProcessVMReadv(runner, []unix.Iovec{{Base: &buf[0], Len: 64}}, []unix.RemoteIovec{{Base: 0x400000, Len: 64}}, 0)
	must("process_vm_readv", err)
	_, err = unix.ProcessVMWritev(runner, []unix.Iovec{{Base: &buf[0], Len: 64}}, []unix.RemoteIovec{{Base: 0x400000, Len: 64}}, 0)
	must("process_vm_writev", err)
	must("open mem for writing", second(os.OpenFile(fmt.Sprintf("/proc/%d/mem", runner), os.O_RDWR, 0)))
}

func fds(runner int, _ []string) {
	for _, dir := range []string{"fd", "fdinfo", "task/" + strconv.Itoa(runner) + "/fd"} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", runner, dir))
		tried("list "+dir+" of the runner", len(entries) > 0, err)
	}
	opened, taken := 0, 0
	for n := range 20 {
		if _, err := os.Open(fmt.Sprintf("/proc/%d/fd/%d", runner, n)); err == nil {
			opened++
		}
	}
	tried("open 20 descriptors of the runner", opened > 0, nil)
	pidfd, err := unix.PidfdOpen(runner, 0)
	for n := range 20 {
		if _, err := unix.PidfdGetfd(pidfd, n, 0); err == nil {
			taken++
		}
	}
	tried("take 20 descriptors of the runner by pidfd", taken > 0, err)
}

// inherited looks for a descriptor that came through the runner from whoever started Dayfly.
func inherited(int, []string) {
	found := []string{}
	for n := 3; n < 1024; n++ {
		link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n))
		if err != nil || own(link) || strings.HasPrefix(link, "/proc/") {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil {
			found = append(found, link)
		}
	}
	tried("find a descriptor that was open before", len(found) > 0, strings.Join(found, " "))
	found = nil
	all, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, path := range all {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if b, _ := os.ReadFile(path); strings.Contains(string(b), victims) {
			found = append(found, path)
		}
	}
	tried("read the other job's secret through descriptors of other processes", len(found) > 0, strings.Join(found, " "))
}

// own tells what a program opens for itself, before it begins.
func own(link string) bool {
	return strings.Contains(link, "anon_inode") || strings.HasPrefix(link, "/sys/fs/cgroup/") || link == "/dev/null"
}

func ptrace(runner int, _ []string) {
	runtime.LockOSThread()
	must("ptrace attach", syscall.PtraceAttach(runner))
	must("ptrace seize", unix.PtraceSeize(runner))
}

// userns tries again as root of a user namespace. What the copies print counts too.
func userns(runner int, _ []string) {
	self, _ := os.Executable()
	for _, way := range []string{"environ", "mem", "fds", "ptrace"} {
		cmd := exec.Command(self, way)
		cmd.Env = append(os.Environ(), "RUNNER_PID="+strconv.Itoa(runner))
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		fmt.Print(strings.ReplaceAll(string(out), "tried ", "tried userns, "))
		tried(way+" of the runner as root of a user namespace", strings.Contains(string(out), "BREACH"), err)
	}
}

func core(runner int, _ []string) {
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	must("raise the limit of own core files", unix.Setrlimit(unix.RLIMIT_CORE, &all))
	must("raise the limit of the runner's core files", unix.Prlimit(runner, unix.RLIMIT_CORE, &all, nil))
	must("choose what goes into the runner's core", os.WriteFile(fmt.Sprintf("/proc/%d/coredump_filter", runner), []byte("0xff"), 0))
	must("change where cores go", os.WriteFile("/proc/sys/kernel/core_pattern", []byte("/tmp/core"), 0))
	self, _ := os.Executable()
	cmd := exec.Command(self, "whoami", "abort")
	_ = cmd.Run()
	found, _ := filepath.Glob("core*")
	more, _ := filepath.Glob("/tmp/core*")
	tried("leave a core file", len(found)+len(more) > 0, nil)
}

// prlimit tries to starve the runner. Who shares its user can; that may end this job, and nothing else.
func prlimit(runner int, _ []string) {
	for name, resource := range map[string]int{"open files": unix.RLIMIT_NOFILE, "memory": unix.RLIMIT_AS, "time": unix.RLIMIT_CPU} {
		tried("limit the runner's "+name, false, unix.Prlimit(runner, resource, &unix.Rlimit{}, nil))
	}
}

// signals sends them to the runner. That it goes on and reports the end of this job is what the test sees.
func signals(runner int, _ []string) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGUSR1} {
		tried("send the runner "+unix.SignalName(s), false, syscall.Kill(runner, s))
	}
}
