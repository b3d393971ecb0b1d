package child_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/child"
)

func TestStart_LimitsHold(t *testing.T) {
	var out bytes.Buffer
	// The first read makes sure that the limits are set: the test writes after Start.
	r, w := pipe(t)
	p, err := child.Start(child.Spec{
		Path: "/bin/sh", Args: []string{"-c", "read x; ulimit -n; ulimit -c"}, Stdin: r, Stdout: &out,
		Limits: child.Limits{OpenFiles: 77, NoCore: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	wait(t, p)
	if got, want := out.String(), "77\n0\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStart_NoNewPrivilegesIsTheChildsAlone(t *testing.T) {
	nnp := func(set bool) string {
		var out bytes.Buffer
		spec := child.Spec{Path: "/bin/cat", Args: []string{"/proc/self/status"}, Stdout: &out, NoNewPrivileges: set}
		if _, err := run(t, spec); err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(out.String()) {
			if v, ok := strings.CutPrefix(l, "NoNewPrivs:"); ok {
				return strings.TrimSpace(v)
			}
		}
		t.Fatal("no such line")
		return ""
	}
	before := nnp(false)
	if got, want := nnp(true), "1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for range 20 { // on whichever thread
		if got := nnp(false); got != before {
			t.Fatalf("got %s, want %s: another child got it too", got, before)
		}
	}
}

func TestStart_UserWithoutGroupsOrCapabilities(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give a child another user")
	}
	var out bytes.Buffer
	exit, err := run(t, child.Spec{
		Path: "/bin/sh", Args: []string{"-c", "id -u; id -g; id -G; grep -E '^Cap(Prm|Eff|Inh|Amb)' /proc/self/status"},
		Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, User: &child.User{UID: 200001, GID: 200002},
	})
	if err != nil || exit != (child.Exit{}) {
		t.Fatalf("got %+v, %v", exit, err)
	}
	const none = "0000000000000000"
	want := []string{"200001", "200002", "200002", "CapInh:", none, "CapPrm:", none, "CapEff:", none, "CapAmb:", none}
	if diff := cmp.Diff(want, strings.Fields(out.String())); diff != "" {
		t.Error(diff)
	}
}

// The parent here is this test's binary run again; it is killed and its child must go too.
func TestStart_ChildDiesWithItsParent(t *testing.T) {
	if os.Getenv("CHILD_TEST_PARENT") != "" {
		p, err := child.Start(child.Spec{Path: "/bin/sleep", Args: []string{"1000"}, NewSession: true})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("\nchild " + strconv.Itoa(p.PID()) + "\n")
		wait(t, p)
		return
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), "CHILD_TEST_PARENT=1")
	out, w := pipe(t)
	parent.Stdout = w
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	pid := 0
	for buf := []byte{}; pid == 0; {
		b := make([]byte, 100)
		n, err := out.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		buf = append(buf, b[:n]...)
		if _, rest, ok := bytes.Cut(buf, []byte("\nchild ")); ok {
			if number, _, ok := bytes.Cut(rest, []byte("\n")); ok {
				pid, _ = strconv.Atoi(string(number))
			}
		}
	}
	fd, err := pidfd(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	if !ended(fd, 4*time.Minute) {
		t.Errorf("process %d lives after its parent was killed", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// pidfd opens a descriptor that is readable when the process has ended.
func pidfd(pid int) (*os.File, error) {
	const sysPidfdOpen = 434
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "pidfd"), nil
}

// ended waits at most so long for the end.
func ended(fd *os.File, d time.Duration) bool {
	p := struct {
		fd              int32
		events, revents int16
	}{int32(fd.Fd()), 1, 0}
	ts := syscall.NsecToTimespec(int64(d))
	n, _, _ := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return n == 1
}

// Here too this test's binary is run again: orphans belong to a whole process.
func TestEndOrphans_WhatLeftItsGroupAndSessionIsEnded(t *testing.T) {
	if os.Getenv("CHILD_TEST_ORPHANS") != "" {
		if err := child.AdoptOrphans(); err != nil {
			t.Fatal(err)
		}
		said, say := pipe(t)
		held, release := pipe(t)
		p, err := child.Start(child.Spec{
			Path: "/bin/sh", Env: []string{"PATH=/usr/bin:/bin"}, Stdin: held, Stdout: say,
			// It begins a session, which begins another one; both say that they are there.
			Args: []string{"-c", `setsid sh -c 'setsid sh -c "echo orphan \$\$; exec sleep 1000" & echo orphan $$; exec sleep 1000' & read x; true`},
		})
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(said)
		t.Log("\n" + line(t, lines) + "\n" + line(t, lines))
		release.Close()
		wait(t, p)
		if err := child.EndOrphans(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "CHILD_TEST_ORPHANS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found := 0
	for l := range strings.Lines(string(out)) {
		if number, ok := strings.CutPrefix(strings.TrimSpace(l), "orphan "); ok {
			found++
			pid, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			if alive(pid) {
				t.Errorf("process %d lives", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	if found != 2 {
		t.Errorf("got %d orphans, want 2: %s", found, out)
	}
}

func TestParseStat_NameMayHoldAnything(t *testing.T) {
	line := "42 (a) Z 1 (b) S 7 42 40 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2\n"
	state, session, start, err := child.ParseStat([]byte(line))
	if err != nil || state != 'S' || session != 40 || start != 98765 {
		t.Errorf("got %c, %d, %d, %v; want S, 40, 98765", state, session, start, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 7 42 40 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2\n"))
	f.Add([]byte("42 (sh"))
	f.Add([]byte(") S"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if state, _, _, err := child.ParseStat(b); err == nil && state == 0 {
			t.Errorf("took %q without a state", b)
		}
	})
}

// A shell that forks a command has its own handling of signals there until that becomes its own program. Here the command
// ignores the interrupt for that long, so that it is missed for certain.
func TestInterrupt_ReachesWhoMissedIt(t *testing.T) {
	in, hold := pipe(t)
	p, out := script(t, `(trap '' INT; echo ready; read x <&3; trap - INT; echo waits; exec sleep 1000); echo next`, func(s *child.Spec) { s.ExtraFiles = []*os.File{in} })
	line(t, out)
	p.Interrupt()
	if _, err := hold.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if got, want := line(t, out), "waits"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	p.Interrupt()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("the command waits on")
	}
	if got, err := p.Wait(); err != nil || got.Signal != syscall.SIGINT {
		t.Errorf("got %+v, %v, want the end of an interrupted shell", got, err)
	}
}

// What a handler begins as soon as it is interrupted puts things in order: it has not missed an interrupt that came before.
func TestInterrupt_SparesWhatAHandlerBegins(t *testing.T) {
	for range 10 {
		p, out := script(t, `trap 'sleep 0.2 || exit 4; exit 3' INT; echo ready; while :; do :; done`)
		line(t, out)
		p.Interrupt()
		for again := time.NewTicker(5 * time.Millisecond); ; p.Interrupt() {
			select {
			case <-again.C:
				continue
			case <-p.Done():
			}
			again.Stop()
			break
		}
		if got, err := p.Wait(); err != nil || got.Code != 3 {
			t.Fatalf("got %+v, %v, want the handler's own end", got, err)
		}
	}
}

func TestMissed_IsWhoWouldHaveDiedOfIt(t *testing.T) {
	for name, tt := range map[string]struct{ got, want bool }{
		"it lives":                   {child.Missed(1, 7, 50, 100, 'S'), true},
		"another group":              {child.Missed(1, 8, 50, 100, 'S'), false},
		"it began later":             {child.Missed(1, 7, 50, 101, 'S'), false},
		"in the same tick":           {child.Missed(1, 7, 51, 100, 'S'), false},
		"it began long before":       {child.Missed(1, 7, 51, 99, 'S'), true},
		"it is dead":                 {child.Missed(1, 7, 50, 100, 'Z'), false},
		"it has a say in interrupts": {child.Missed(1, 7, 50, 100, 'S', syscall.SIGINT), false},
		"the system does not say":    {child.Missed(0, 7, 50, 100, 'S'), false},
		"in other signals":           {child.Missed(1, 7, 50, 100, 'S', syscall.SIGHUP, syscall.SIGTERM), true},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %t", name, tt.got)
		}
	}
}
