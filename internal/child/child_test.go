//go:build linux || darwin

package child_test

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

func TestMain(m *testing.M) {
	if os.Getenv(inheritVariable) != "" {
		os.Exit(inherit())
	}
	os.Exit(leak.Main(m))
}

// script starts a shell script and returns it with a reader of its output.
func script(t *testing.T, text string, change ...func(*child.Spec)) (*child.Process, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec := child.Spec{Path: "/bin/sh", Args: []string{"-c", text}, Stdout: w, Env: []string{"PATH=/usr/bin:/bin"}}
	for _, f := range change {
		f(&spec)
	}
	p, err := child.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		p.Kill()
		_, _ = p.Wait()
		r.Close()
	})
	return p, bufio.NewReader(r)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("read a line: %v", err)
	}
	return strings.TrimSpace(s)
}

func wait(t *testing.T, p *child.Process) child.Exit {
	t.Helper()
	e, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run starts a process and waits for its end.
func run(t *testing.T, spec child.Spec) (child.Exit, error) {
	t.Helper()
	p, err := child.Start(spec)
	if err != nil {
		return child.Exit{}, err
	}
	return p.Wait()
}

func TestStart_ReportsTheExitCodeAndTheOutput(t *testing.T) {
	var out, errOut bytes.Buffer
	got, err := run(t, child.Spec{
		Path: "/bin/sh", Args: []string{"-c", "echo out; echo err >&2; exit 7"}, Stdout: &out, Stderr: &errOut,
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(child.Exit{Code: 7}, got); diff != "" {
		t.Error(diff)
	}
	if got, want := out.String()+errOut.String(), "out\nerr\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStart_EnvironmentIsBuiltFromNothing(t *testing.T) {
	t.Setenv("OF_THE_PARENT", "1")
	var out bytes.Buffer
	if _, err := run(t, child.Spec{Path: "/usr/bin/env", Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "" {
		t.Errorf("got the environment %q, want none", got)
	}
}

func TestStart_RefusesAProgramWithoutAPath(t *testing.T) {
	if _, err := child.Start(child.Spec{Path: "sh"}); err == nil {
		t.Error("got nil, want an error")
	}
	if _, err := child.Start(child.Spec{Path: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
}

func TestWait_TheRestOfTheGroupIsDeadFirst(t *testing.T) {
	p, out := script(t, `sh -c 'trap "" INT TERM; echo $$; exec sleep 1000' & read x <&3`, blocked(t))
	left, err := strconv.Atoi(line(t, out))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil { // the leader alone
		t.Fatal(err)
	}
	if got, want := wait(t, p), (child.Exit{Code: -1, Signal: syscall.SIGTERM}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if alive(left) {
		t.Errorf("process %d of the group lives after Wait", left)
	}
}

// alive reports whether a process runs; one that is dead and not reaped by its new parent does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, rest, _ := bytes.Cut(b, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z"))
}

// A shell runs a trap between two commands: a signal that comes right before a read begins does not end that read. So
// the scripts that are interrupted spin.

func TestInterrupt_IsSentOnce(t *testing.T) {
	p, out := script(t, `n=0; trap 'n=$((n+1)); echo int $n' INT; trap 'exit $((10+n))' TERM; echo ready; while :; do :; done`)
	line(t, out)
	p.Interrupt()
	if got, want := line(t, out), "int 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Interrupt()
	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got, want := wait(t, p), (child.Exit{Code: 11, Interrupted: true}); got != want {
		t.Errorf("got %+v, want %+v: one interrupt arrived", got, want)
	}
}

func TestSignal_ReachesTheLeaderAlone(t *testing.T) {
	p, out := script(t, `trap 'exit 4' TERM; sh -c 'trap "echo member" TERM; echo ready; read x <&3; echo unhurt' <&3 & read x <&3 & wait`, blocked(t))
	line(t, out)
	p.Signal(syscall.SIGTERM)
	if got, want := wait(t, p), (child.Exit{Code: 4, Interrupted: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// The member was killed with the group, silently: it never saw the signal.
	if s, err := out.ReadString('\n'); err == nil {
		t.Errorf("got %q from a member, want nothing", s)
	}
}

// blocked gives the process a descriptor 3 that never has anything to read.
func blocked(t *testing.T) func(*child.Spec) {
	t.Helper()
	r, _ := pipe(t)
	return func(s *child.Spec) { s.ExtraFiles = []*os.File{r} }
}

func TestInterrupt_IsEnoughForWhoListens(t *testing.T) {
	p, out := script(t, `trap 'exit 3' INT; echo ready; while :; do :; done`)
	line(t, out)
	p.Interrupt()
	got := wait(t, p)
	if want := (child.Exit{Code: 3, Interrupted: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestKill_EndsTheGroup(t *testing.T) {
	p, out := script(t, `trap '' INT; sleep 1000 & echo $!; read x <&3`, blocked(t))
	left, err := strconv.Atoi(line(t, out))
	if err != nil {
		t.Fatal(err)
	}
	p.Interrupt()
	p.Kill()
	got := wait(t, p)
	if want := (child.Exit{Code: -1, Signal: syscall.SIGKILL, Interrupted: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if alive(left) {
		t.Errorf("process %d of the group lives after Kill", left)
	}
}

func TestWait_IsBoundedWhereAStrangerHoldsTheOutput(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("setsid is a program of Linux")
	}
	said, say := pipe(t)
	held, release := pipe(t)
	p, err := child.Start(child.Spec{
		Path: "/bin/sh", Env: []string{"PATH=/usr/bin:/bin"},
		// The new session is not a member of the group. It says its number when it has begun.
		Args:      []string{"-c", `setsid sh -c 'echo $$ >&3; exec sleep 1000' & read x <&4; echo done`},
		Stdout:    new(bytes.Buffer), // copied by a goroutine, which the stranger's end of the pipe holds up
		WaitDelay: 10 * time.Millisecond, ExtraFiles: []*os.File{say, held},
	})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := strconv.Atoi(line(t, bufio.NewReader(said)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(stranger, syscall.SIGKILL) }()
	release.Close()
	if got, want := wait(t, p), (child.Exit{Cut: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func TestStart_NewSession(t *testing.T) {
	p, out := script(t, `echo ready; read x <&3`, blocked(t), func(s *child.Spec) { s.NewSession = true })
	line(t, out)
	got, err := getsid(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	if want := p.PID(); got != want {
		t.Errorf("got session %d, want %d", got, want)
	}
}

func getsid(pid int) (int, error) {
	sid, _, errno := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sid), nil
}
