// Command attack is workflow code that wants to be its runner, or another job. Each way says what it
// tried; what it got that it must not have, it calls a BREACH. It exits with 0 either way.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	if filepath.Base(os.Args[0]) == "sh" {
		shell()
	}
	ways := map[string]func(runner int, args []string){
		"environ": environ, "mem": mem, "fds": fds, "ptrace": ptrace, "userns": userns, "ticket": ticket, "relay": relay,
		"others": others, "core": core, "prlimit": prlimit, "signals": signals, "setuid": setuid, "symlinks": symlinks, "mounts": mounts,
		"outside": outside, "wait": wait, "whoami": whoami, "once": once, "count": count, "swarm": swarm, "planted": planted,
	}
	way, ok := ways[os.Args[1]]
	if !ok {
		breach("there is no attack %s", os.Args[1])
		os.Exit(3)
	}
	way(runner(), os.Args[2:])
	fmt.Println("tried", os.Args[1])
}

// shell is as much of a shell as a script of one command needs, for an image that has none.
func shell() {
	script, err := os.ReadFile(os.Args[len(os.Args)-1])
	if err != nil {
		os.Exit(127)
	}
	words := strings.Fields(os.ExpandEnv(string(script)))
	_ = syscall.Exec(words[0], words, os.Environ())
	os.Exit(126)
}

// runner is the process that started the engine: the first process, or the nearest above that belongs
// to somebody else.
func runner() int {
	if v := os.Getenv("RUNNER_PID"); v != "" {
		n, _ := strconv.Atoi(v)
		return n
	}
	pid := os.Getppid()
	for pid > 1 {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		uid, parent := field(status, "Uid:"), field(status, "PPid:")
		if uid != strconv.Itoa(os.Getuid()) {
			return pid
		}
		pid, _ = strconv.Atoi(parent)
	}
	return 1
}

func field(status []byte, name string) string {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name))
	f := strings.Fields(string(rest))
	if len(f) == 0 {
		return ""
	}
	return f[0]
}

func breach(format string, args ...any) { fmt.Printf("BREACH: "+format+"\n", args...) }

func failed(what string, err error) { fmt.Printf("%s: %v\n", what, err) }

// must fails the way that it names if there was no error.
func must(what string, err error) {
	if err == nil {
		breach("%s succeeded", what)
		return
	}
	failed(what, err)
}

func environ(runner int, _ []string) {
	for _, name := range []string{"environ", "auxv", "stack", "syscall", "cwd/.", "root/etc/passwd", "task/" + strconv.Itoa(runner) + "/environ"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", runner, name))
		if err == nil && len(b) > 0 {
			breach("read %s of the runner: %d bytes", name, len(b))
		}
		failed(name, err)
	}
}

func mem(runner int, _ []string) {
	for _, name := range []string{"mem", "maps", "smaps", "pagemap", "map_files"} {
		_, err := os.Open(fmt.Sprintf("/proc/%d/%s", runner, name))
		if err == nil {
			// Some open and then give nothing.
			b, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/%s", runner, name))
			if len(b) > 0 {
				breach("read %s of the runner", name)
			}
			err = rerr
		}
		failed(name, err)
	}
	buf := make([]byte, 64)
	// A Go program begins there.
	_, err := unix.ProcessVMReadv(runner, []unix.Iovec{{Base: &buf[0], Len: 64}}, []unix.RemoteIovec{{Base: 0x400000, Len: 64}}, 0)
	must("process_vm_readv", err)
	_, err = unix.ProcessVMWritev(runner, []unix.Iovec{{Base: &buf[0], Len: 64}}, []unix.RemoteIovec{{Base: 0x400000, Len: 64}}, 0)
	must("process_vm_writev", err)
	must("open mem for writing", second(os.OpenFile(fmt.Sprintf("/proc/%d/mem", runner), os.O_RDWR, 0)))
}

func second(_ any, err error) error { return err }

func fds(runner int, _ []string) {
	for _, dir := range []string{"fd", "fdinfo", "ns", "task/" + strconv.Itoa(runner) + "/fd"} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", runner, dir))
		if err == nil && len(entries) > 0 && dir != "ns" {
			breach("list %s of the runner", dir)
		}
		failed(dir, err)
	}
	for n := range 20 {
		if _, err := os.Open(fmt.Sprintf("/proc/%d/fd/%d", runner, n)); err == nil {
			breach("open descriptor %d of the runner", n)
		}
	}
	pidfd, err := unix.PidfdOpen(runner, 0)
	failed("pidfd_open", err)
	if err == nil {
		for n := range 20 {
			if _, err := unix.PidfdGetfd(pidfd, n, 0); err == nil {
				breach("take descriptor %d of the runner", n)
			}
		}
	}
	for n := 3; n < 64; n++ {
		if link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n)); err == nil && !own(link) {
			if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil && !strings.HasPrefix(link, "/proc/") {
				breach("descriptor %d was inherited: %s", n, link)
			}
		}
	}
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
		fmt.Printf("as root of a user namespace, %s: %v\n%s", way, err, out)
	}
}

// readable looks at every file below a directory, as far as that goes.
func readable(dir string, found func(path string, text []byte)) {
	seen := 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || seen > 20_000 {
			return nil
		}
		if d.IsDir() && (path == "/proc" || path == "/sys" || path == "/dev") {
			return filepath.SkipDir
		}
		seen++
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil {
			found(path, b)
		}
		return nil
	})
}

func ticket(_ int, args []string) {
	look := func(path string, text []byte) {
		// The beginning of every ticket: a JSON object in base64, of which no file here has one.
		if bytes.Contains(text, []byte("eyJhbGciOiJkaXIi")) || bytes.Contains(text, []byte("DAYFLY_TICKET=")) {
			breach("a ticket is in %s", path)
		}
		if bytes.Contains(text, []byte("dfj_")) || bytes.Contains(text, []byte("dfp_")) || bytes.Contains(text, []byte("dfu_")) {
			breach("a token is in %s", path)
		}
	}
	look("own environment", []byte(strings.Join(os.Environ(), "\n")))
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		for _, name := range []string{"environ", "cmdline"} {
			if b, err := os.ReadFile(filepath.Join("/proc", e.Name(), name)); err == nil {
				if e.Name() != strconv.Itoa(os.Getpid()) || name != "cmdline" {
					look(filepath.Join("/proc", e.Name(), name), b)
				}
			}
		}
	}
	for _, dir := range args {
		readable(dir, look)
	}
}

// relay calls whatever relay it finds: with no ticket, with made-up ones, for itself and for others. Arguments are
// jobs, and as port:NUMBER the ports to which it keeps: others on the machine are none of its business.
func relay(_ int, args []string) {
	only := map[string]bool{}
	args = slices.DeleteFunc(args, func(arg string) bool {
		port, ok := strings.CutPrefix(arg, "port:")
		if ok {
			only[port] = true
		}
		return ok
	})
	var dials []func(ctx context.Context) (net.Conn, error)
	dial := func(network, address string) {
		dials = append(dials, func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, network, address)
		})
	}
	dial("unix", "/run/dayfly/relay.sock")
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table)
		for _, line := range strings.Split(string(b), "\n") {
			f := strings.Fields(line)
			if len(f) > 3 && f[3] == "0A" { // listens
				port, _ := strconv.ParseUint(f[1][strings.LastIndex(f[1], ":")+1:], 16, 16)
				if len(only) > 0 && !only[strconv.FormatUint(port, 10)] {
					continue
				}
				dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			}
		}
	}
	answers := 0
	for _, d := range dials {
		hc := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d(ctx) }}}
		for _, job := range args {
			for _, call := range []string{"start", "spec", "heartbeat", "steps", "logs", "result"} {
				for _, auth := range []string{"", "Bearer ", "Bearer made-up", "Bearer eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0..AAAAAAAAAAAAAAAA.AAAA.AAAAAAAAAAAAAAAAAAAAAA"} {
					method := http.MethodPost
					if call == "spec" {
						method = http.MethodGet
					}
					req, err := http.NewRequest(method, "http://relay/v1/jobs/"+job+"/"+call, strings.NewReader("{}"))
					if err != nil {
						continue
					}
					req.Header.Set("Dayfly-Attempt", "1")
					if auth != "" {
						req.Header.Set("Authorization", auth)
					}
					resp, err := hc.Do(req)
					if err != nil {
						continue
					}
					_ = resp.Body.Close()
					answers++
					if resp.StatusCode < 300 {
						breach("the relay answered %d to %s of %s", resp.StatusCode, call, job)
					}
				}
			}
		}
	}
	fmt.Println("relay answers:", answers)
	if answers == 0 {
		breach("no relay was found: the attack is not one")
	}
}

func others(_ int, args []string) {
	cwd, _ := os.Getwd()
	for _, dir := range append([]string{"/run/dayfly", "/dayfly", filepath.Dir(filepath.Dir(cwd)), filepath.Dir(filepath.Dir(filepath.Dir(cwd)))}, args...) {
		readable(dir, func(path string, text []byte) {
			if bytes.Contains(text, []byte("the-victims-secret")) {
				breach("the other job's secret is in %s", path)
			}
		})
	}
	for _, path := range args {
		if entries, err := os.ReadDir(path); err == nil {
			breach("listed %s: %v", path, entries)
		} else {
			failed(path, err)
		}
		must("write into "+path, os.WriteFile(filepath.Join(path, "written"), nil, 0o600))
	}
	entries, _ := os.ReadDir("/run/dayfly")
	if len(entries) > 1 {
		breach("sockets of others: %v", entries)
	}
	proc, _ := os.ReadDir("/proc")
	for _, e := range proc {
		if b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")); err == nil && bytes.Contains(b, []byte("the-victims-secret")) {
			breach("the other job's secret is in the environment of process %s", e.Name())
		}
	}
	must("write beside the socket", os.WriteFile("/run/dayfly/other.sock", nil, 0o600))
	must("remove the socket", os.Remove("/run/dayfly/relay.sock"))
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
	if found = append(found, more...); len(found) > 0 {
		breach("core files: %v", found)
	}
}

// prlimit tries to starve the runner. Who shares its user can; that may end this job, and nothing else.
func prlimit(runner int, _ []string) {
	for name, resource := range map[string]int{"open files": unix.RLIMIT_NOFILE, "memory": unix.RLIMIT_AS, "time": unix.RLIMIT_CPU} {
		failed("limit the runner's "+name, unix.Prlimit(runner, resource, &unix.Rlimit{}, nil))
	}
}

func signals(runner int, _ []string) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGUSR1} {
		failed(s.String(), syscall.Kill(runner, s))
	}
}

func setuid(_ int, args []string) {
	for _, path := range args {
		out, err := exec.Command(path, "whoami").CombinedOutput()
		if bytes.Contains(out, []byte("euid 0")) {
			breach("%s made it root", path)
		}
		fmt.Printf("%s: %v %s", path, err, out)
	}
	self, _ := os.Executable()
	_ = os.Chmod(self, 0o6755)
	out, _ := exec.Command(self, "whoami").CombinedOutput()
	if bytes.Contains(out, []byte("euid 0")) {
		breach("its own file made it root")
	}
	must("setuid(0)", syscall.Setuid(0))
	status, _ := os.ReadFile("/proc/self/status")
	if n := field(status, "NoNewPrivs:"); n != "1" {
		breach("new privileges can be got: %s", n)
	}
	for _, name := range []string{"CapEff:", "CapPrm:", "CapAmb:"} {
		if got := strings.Trim(field(status, name), "0"); got != "" {
			breach("it has capabilities: %s %s", name, got)
		}
	}
}

// symlinks puts links where the runner or its launcher, as whoever they are, will write and remove.
func symlinks(_ int, args []string) {
	cwd, _ := os.Getwd()
	work := filepath.Dir(cwd)
	for _, dir := range []string{cwd, os.Getenv("TMPDIR"), os.Getenv("HOME"), os.Getenv("DAYFLY_SECRETS_DIR"), filepath.Join(work, "tmp")} {
		if dir == "" || dir == "/" {
			continue
		}
		moved := os.Rename(dir, dir+".moved")
		if moved != nil {
			_ = os.RemoveAll(dir)
		}
		failed("swap "+dir, os.Symlink(args[0], dir))
		failed("link inside", os.Symlink(args[0], filepath.Join(dir+".moved", "link")))
	}
	if out := os.Getenv("DAYFLY_OUTPUTS"); out != "" {
		_ = os.Remove(out)
		failed("swap outputs", os.Symlink(filepath.Join(args[0], "precious"), out))
	}
}

func mounts(int, []string) {
	must("mount", syscall.Mount("none", "/tmp", "tmpfs", 0, ""))
	must("remount", syscall.Mount("none", "/", "", syscall.MS_REMOUNT, ""))
	must("mknod", syscall.Mknod("device", syscall.S_IFBLK|0o600, 8<<8))
	must("chroot", syscall.Chroot("/"))
	must("write to the root", os.WriteFile("/written", nil, 0o600))
	must("write to /usr", os.WriteFile("/usr/written", nil, 0o600))
	must("write to /etc", os.WriteFile("/etc/written", nil, 0o600))
	_, _, errno := syscall.RawSyscall(unix.SYS_BPF, 0, 0, 0)
	if errno == 0 {
		breach("bpf succeeded")
	}
	for _, path := range []string{"/dev/mem", "/dev/kmsg", "/proc/kcore", "/proc/sysrq-trigger"} {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			_ = f.Close()
			breach("opened %s", path)
		}
	}
}

// outside looks for the machine around a container.
func outside(_ int, args []string) {
	for _, path := range args {
		if _, err := os.Stat(path); err == nil {
			breach("%s of the machine is there", path)
		}
	}
	for _, path := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"} {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			breach("%s can be reached", path)
		}
	}
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 {
			breach("there is a network: %s", i.Name)
		}
	}
	if n, _ := os.ReadDir("/proc"); len(n) == 0 {
		breach("no processes are seen: the attack is not one")
	}
}

// planted looks for files that no job may have, and for the code. Both say by their first word what they are.
func planted(_ int, args []string) {
	for _, top := range args {
		_ = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil //nolint:nilerr // there may be more
			}
			switch b, _ := os.ReadFile(path); {
			case bytes.HasPrefix(b, []byte("planted")):
				breach("%s can be read", path)
			case bytes.HasPrefix(b, []byte("code")):
				fmt.Println("code in", path)
			}
			return nil
		})
	}
}

// count prints numbered lines, then waits.
func count(_ int, args []string) {
	most, _ := strconv.Atoi(args[0])
	for n := range most {
		fmt.Println("line", n+1)
	}
	wait(0, nil)
}

func wait(int, []string) {
	for {
		time.Sleep(time.Hour)
	}
}

func whoami(_ int, args []string) {
	fmt.Printf("uid %d euid %d\n", os.Getuid(), os.Geteuid())
	if len(args) > 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		*(*int)(unsafe.Pointer(uintptr(8))) = 1 //nolint:govet // if a signal does not do it
	}
}

// once leaves a line in the state directory, then waits to be let go, which is what a test counts.
func once(_ int, args []string) {
	state := os.Getenv("DAYFLY_STATE_DIR")
	f, err := os.OpenFile(filepath.Join(state, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		breach("no state: %v", err)
		os.Exit(1)
	}
	_, _ = f.WriteString("ran\n")
	_ = f.Close()
	d, _ := time.ParseDuration(args[0])
	time.Sleep(d)
	fmt.Println("went on to its end")
}

// swarm starts copies of itself, each in a session of its own, until that fails, and goes on.
func swarm(int, []string) {
	for {
		cmd := exec.Command(os.Args[0], "swarm")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
	}
}
