package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func setuid(_ int, args []string) {
	self, _ := os.Executable()
	_ = os.Chmod(self, 0o6755)
	for _, path := range append(args, self) {
		out, err := exec.Command(path, "whoami").CombinedOutput()
		tried("become root by "+path, bytes.Contains(out, []byte("euid 0")), err)
	}
	must("setuid(0)", syscall.Setuid(0))
	status, _ := os.ReadFile("/proc/self/status")
	tried("get new privileges", field(status, "NoNewPrivs:") != "1", nil)
	for _, name := range []string{"CapEff:", "CapPrm:", "CapAmb:"} {
		tried("have capabilities "+name, strings.Trim(field(status, name), "0") != "", nil)
	}
}

// symlinks puts links where the runner or its launcher, as whoever they are, will write and remove.
func symlinks(_ int, args []string) {
	cwd, _ := os.Getwd()
	for _, dir := range []string{cwd, os.Getenv("TMPDIR"), os.Getenv("HOME"), os.Getenv("DAYFLY_SECRETS_DIR"), os.Getenv("DAYFLY_ARTIFACTS"), filepath.Join(filepath.Dir(cwd), "tmp")} {
		if dir == "" || dir == "/" {
			continue
		}
		if os.Rename(dir, dir+".moved") != nil {
			_ = os.RemoveAll(dir)
		}
		tried("put a link in the place of "+dir, false, os.Symlink(args[0], dir))
		tried("put a link into it", false, os.Symlink(args[0], filepath.Join(dir+".moved", "link")))
	}
	if out := os.Getenv("DAYFLY_OUTPUTS"); out != "" {
		_ = os.Remove(out)
		tried("put a link in the place of the outputs", false, os.Symlink(filepath.Join(args[0], "precious"), out))
	}
}

// hardlink links a file of root into the state directory, where somebody put one before.
func hardlink(_ int, args []string) {
	state := os.Getenv("DAYFLY_STATE_DIR")
	for i, path := range args {
		to := filepath.Join(state, fmt.Sprintf("made-%d", i))
		tried("link "+path+" into the state directory", false, os.Link(path, to))
	}
	files, _ := os.ReadDir(state)
	for _, f := range files {
		path := filepath.Join(state, f.Name())
		must("write to "+f.Name(), second(os.OpenFile(path, os.O_WRONLY, 0)))
		must("chmod "+f.Name(), os.Chmod(path, 0o666))
	}
}

func mounts(int, []string) {
	must("mount", syscall.Mount("none", "/tmp", "tmpfs", 0, ""))
	must("remount", syscall.Mount("none", "/", "", syscall.MS_REMOUNT, ""))
	must("mknod", syscall.Mknod("device", syscall.S_IFBLK|0o600, 8<<8))
	must("chroot", syscall.Chroot("/"))
	for _, dir := range []string{"/", "/usr", "/etc"} {
		must("write to "+dir, os.WriteFile(filepath.Join(dir, "written"), nil, 0o600))
	}
	_, _, errno := syscall.RawSyscall(unix.SYS_BPF, 0, 0, 0)
	tried("bpf", errno == 0, errno)
	for _, path := range []string{"/dev/mem", "/dev/kmsg", "/proc/kcore", "/proc/sysrq-trigger"} {
		must("open "+path, second(os.OpenFile(path, os.O_RDWR, 0)))
	}
}

// outside looks for the machine around a container.
func outside(_ int, args []string) {
	for _, path := range args {
		must("see "+path+" of the machine", second(os.Stat(path)))
	}
	for _, path := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"} {
		must("call "+path, second(net.Dial("unix", path)))
	}
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		tried("use the network "+i.Name, i.Flags&net.FlagLoopback == 0, nil)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	// Its runner, its shell, itself.
	tried("see processes of the machine", len(processes) == 0 || len(processes) > 4, fmt.Sprintf("%d seen", len(processes)))
}

// everybodys are the directories in which all users may write, and the key of shared memory and the like.
var everybodys = []string{"/tmp", "/var/tmp", "/dev/shm"}

var shared = map[string][3]uintptr{"shared memory": {unix.SYS_SHMGET, 4096, 1}, "semaphores": {unix.SYS_SEMGET, 1, 1}, "a message queue": {unix.SYS_MSGGET, 0, 0}}

// get makes or finds System V shared memory, semaphores or a message queue.
func get(kind [3]uintptr, key string, flags uintptr) error {
	n, _ := strconv.Atoi(key)
	args := [2]uintptr{kind[1], flags}
	if kind[2] == 0 { // it has no size
		args = [2]uintptr{flags, 0}
	}
	if _, _, errno := unix.Syscall(kind[0], uintptr(n), args[0], args[1]); errno != 0 {
		return errno
	}
	return nil
}

// leave leaves what it can for the next job, and says who it is.
func leave(_ int, args []string) {
	for _, dir := range everybodys {
		fmt.Println("leave in", dir, os.WriteFile(filepath.Join(dir, "dayfly-attack-"+args[0]), []byte(victims), 0o666))
	}
	for name, kind := range shared {
		fmt.Println("leave", name, get(kind, args[0], unix.IPC_CREAT|0o666))
	}
	whoami(0, nil)
}

// leftovers looks for what leave left.
func leftovers(_ int, args []string) {
	for _, dir := range everybodys {
		must("find a file of the job before in "+dir, second(os.Lstat(filepath.Join(dir, "dayfly-attack-"+args[0]))))
	}
	for name, kind := range shared {
		err := get(kind, args[0], 0)
		tried("find "+name+" of the job before", !errors.Is(err, unix.ENOENT), err)
	}
}

// escape starts a process that starts another one and ends, each in a session of its own. The argument marks them.
func escape(_ int, args []string) {
	begin := func(of string) *exec.Cmd {
		self, _ := os.Executable()
		cmd := exec.Command(self, append([]string{of}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
		return cmd
	}
	if len(args) == 1 { // the job's own
		args = append(args, "between")
		_ = begin("escape").Wait()
		found := false
		for range 100 {
			all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range all {
				b, _ := os.ReadFile(path)
				found = found || bytes.Contains(b, []byte("stray\x00"+args[0]))
			}
			if found {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		fmt.Println("a process got out of the session:", found)
		return
	}
	begin("stray")
}

func stray(int, []string) { wait(0, nil) }

// swarm starts copies of itself, each in a session of its own, until that fails, and goes on.
func swarm(_ int, args []string) {
	for {
		cmd := exec.Command(os.Args[0], "swarm", args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
	}
}
