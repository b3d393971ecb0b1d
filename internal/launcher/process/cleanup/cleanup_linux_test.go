package cleanup_test

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

const leaderVariable = "REMAINS_TEST_LEADER"

func TestMain(m *testing.M) {
	if os.Getenv(leaderVariable) != "" {
		os.Exit(lead())
	}
	os.Exit(leak.Main(m))
}

// lead plays the leader of a session: it starts a member in a group of its own, says its number,
// and lives until it is killed.
func lead() int {
	c := exec.Command("/bin/sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return 1
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(c.Process.Pid) + "\n")
	_ = c.Wait()
	return 0
}

// tree is a session with a leader and a member that is in a process group of its own.
type tree struct {
	leader *child.Process
	member int
	trace  cleanup.Trace
}

func boot(t *testing.T) string {
	t.Helper()
	b, err := cleanup.Boot()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func grow(t *testing.T, change ...func(*child.Spec)) tree {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec := child.Spec{
		Path: os.Args[0], Env: []string{leaderVariable + "=1"}, Stdout: w, NewSession: true, WaitDelay: time.Millisecond,
	}
	for _, f := range change {
		f(&spec)
	}
	p, err := child.Start(spec)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	member, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	start, err := cleanup.ProcessStart(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	began, err := cleanup.ProcessStart(member)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		_, _ = p.Wait()
		if now, err := cleanup.ProcessStart(member); err == nil && now == began {
			_ = syscall.Kill(member, syscall.SIGKILL)
		}
	})
	return tree{p, member, cleanup.Trace{
		Boot: boot(t), Session: p.PID(), Start: start, Users: []uint32{uint32(os.Getuid())},
	}}
}

func alive(t *testing.T, pid int) bool {
	t.Helper()
	s, err := child.ReadStat(pid)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil && s.Alive()
}

// killAll kills until nothing is left.
func killAll(t *testing.T, trace cleanup.Trace) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 200_000 { // minutes
		left, err := cleanup.Kill(trace, boot(t))
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		<-tick.C
	}
	t.Fatal("something is always left")
}

func TestKill_WholeSessionAndNobodyElse(t *testing.T) {
	ours, stranger := grow(t), grow(t)
	killAll(t, ours.trace)
	if alive(t, ours.member) || alive(t, ours.leader.PID()) {
		t.Error("a process of the session is alive and nothing was left")
	}
	if !alive(t, stranger.member) || !alive(t, stranger.leader.PID()) {
		t.Error("a process of another session was killed")
	}
}

func TestKill_MembersThatOutliveTheirLeader(t *testing.T) {
	ours := grow(t)
	ours.leader.Kill() // and its group, which the member is not in
	if _, err := ours.leader.Wait(); err != nil {
		t.Fatal(err)
	}
	if !alive(t, ours.member) {
		t.Fatal("the member did not outlive its leader: the test shows nothing")
	}
	killAll(t, ours.trace)
	if alive(t, ours.member) {
		t.Error("the member is alive and nothing was left")
	}
}

// A number is used again sooner or later; whoever has it then is a stranger.
func TestKill_StrangersAreSpared(t *testing.T) {
	tests := map[string]func(*cleanup.Trace){
		"the number was used before by a leader that began earlier": func(tr *cleanup.Trace) { tr.Start-- },
		"by one that began later":                                   func(tr *cleanup.Trace) { tr.Start++ },
		"before the machine was started again":                      func(tr *cleanup.Trace) { tr.Boot = "another" },
		"by another user":                                           func(tr *cleanup.Trace) { tr.Users = []uint32{4_000_000} },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			stranger := grow(t)
			change(&stranger.trace)
			if left, err := cleanup.Kill(stranger.trace, boot(t)); left != 0 || err != nil {
				t.Errorf("got %d, %v; want nothing left", left, err)
			}
			if !alive(t, stranger.member) || !alive(t, stranger.leader.PID()) {
				t.Error("a stranger was killed")
			}
		})
	}
}

// cgroup makes one for a test, with another inside.
func cgroup(t *testing.T) (base, path string) {
	t.Helper()
	base, err := cleanup.OpenCgroups("dayfly-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Skipf("no cgroup v2 can be written here: %v", err)
	}
	t.Cleanup(func() {
		if err := cleanup.RemoveCgroup(base); err != nil {
			t.Errorf("remove cgroup: %v", err)
		}
	})
	return base, filepath.Join(base, "task")
}

func TestKill_WholeCgroupAlsoWhereASessionWasLeft(t *testing.T) {
	base, path := cgroup(t)
	dir, err := cleanup.MakeCgroup(path, cleanup.Limits{MilliCPU: 1000, Memory: 1 << 30, PIDs: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	inner, err := cleanup.MakeCgroup(filepath.Join(path, "inner"), cleanup.Limits{MilliCPU: 1000, Memory: 1 << 30, PIDs: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	outerTree := grow(t, func(s *child.Spec) { s.CgroupFD = dir })
	innerTree := grow(t, func(s *child.Spec) { s.CgroupFD = inner })
	stranger := grow(t)

	trace := outerTree.trace
	trace.Cgroup = path
	killAll(t, trace)
	for _, pid := range []int{outerTree.member, outerTree.leader.PID(), innerTree.member, innerTree.leader.PID()} {
		if alive(t, pid) {
			t.Errorf("process %d is alive and nothing was left", pid)
		}
	}
	if !alive(t, stranger.member) {
		t.Error("a process outside was killed")
	}
	if err := cleanup.RemoveCgroup(path); err != nil {
		t.Errorf("remove: %v", err)
	}
	if got := cleanup.ListCgroups(base); len(got) != 0 {
		t.Errorf("got cgroups %v left, want none", got)
	}
	if _, err := cleanup.KillCgroup(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("kill of what is gone: got %v, want ErrNotExist", err)
	}
}

func TestKill_SessionWhereTheCgroupIsGone(t *testing.T) {
	ours := grow(t)
	ours.trace.Cgroup = filepath.Join(t.TempDir(), "gone")
	killAll(t, ours.trace)
	if alive(t, ours.member) {
		t.Error("the member is alive and nothing was left")
	}
}

// Kernels before 5.14 cannot kill a cgroup at once.
func TestKillListed_KillsOneByOne(t *testing.T) {
	_, path := cgroup(t)
	dir, err := cleanup.MakeCgroup(path, cleanup.Limits{MilliCPU: 1000, Memory: 1 << 30, PIDs: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ours := grow(t, func(s *child.Spec) { s.CgroupFD = dir })
	if err := cleanup.KillListed(path); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.leader.Wait(); err != nil {
		t.Fatal(err)
	}
	trace := ours.trace
	trace.Cgroup = path
	killAll(t, trace) // and waits for the member's death
	if alive(t, ours.member) {
		t.Error("the member is alive")
	}
}

func TestUserLives_OursAndThatOfNobody(t *testing.T) {
	for uid, want := range map[uint32]bool{uint32(os.Getuid()): true, 4_000_123_457: false} {
		if got, err := cleanup.UserLives(uid); err != nil || got != want {
			t.Errorf("user %d: got %t, %v; want %t", uid, got, err, want)
		}
	}
}

func TestUserLives_OfAProcessThatRunsAsAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it starts a process as another user")
	}
	uid := 3_000_000_000 + uint32(os.Getpid()) //nolint:gosec // nobody else's, not even that of this test in another checkout
	p, err := child.Start(child.Spec{Path: "/bin/sleep", Args: []string{"1000"}, User: &child.User{UID: uid, GID: uid}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := cleanup.UserLives(uid); err != nil || !got {
		t.Errorf("while it lives: got %t, %v", got, err)
	}
	p.Kill()
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, err := cleanup.UserLives(uid); err != nil || got {
		t.Errorf("after its end: got %t, %v", got, err)
	}
}

// Each process of the swarm begins another in a session of its own and ends: who kills one after the other is late.
func TestKillUser_SwarmThatMovesOn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it starts processes as another user")
	}
	dir := t.TempDir()
	hop := filepath.Join(dir, "hop")
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o711), os.WriteFile(hop, []byte("setsid /bin/sh \"$0\" &\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	uid := 3_100_000_000 + uint32(os.Getpid()) //nolint:gosec // nobody else's
	for range 20 {
		p, err := child.Start(child.Spec{Path: "/bin/sh", Args: []string{hop}, Env: []string{"PATH=/usr/bin:/bin"}, User: &child.User{UID: uid, GID: uid}, NewSession: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	stranger := grow(t)
	if got, err := cleanup.UserLives(uid); err != nil || !got {
		t.Fatalf("got %t, %v: the swarm is dead, and the test shows nothing", got, err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for tries := 1; ; tries++ {
		left, err := cleanup.KillUser(uid)
		if err != nil || tries == 1000 {
			t.Fatalf("after %d tries %d are left: %v", tries, left, err)
		}
		if left == 0 {
			break
		}
		<-tick.C
	}
	if got, err := cleanup.UserLives(uid); err != nil || got && living(t, uid) {
		t.Errorf("got %t, %v after nothing was left", got, err)
	}
	if !alive(t, stranger.member) || !alive(t, stranger.leader.PID()) {
		t.Error("a process of another user was killed")
	}
}

func TestKillUser_NeverOfRoot(t *testing.T) {
	if _, err := cleanup.KillUser(0); err == nil {
		t.Error("got no error")
	}
}

// Orphans that nobody reaps stay as zombies.
func living(t *testing.T, uid uint32) bool {
	t.Helper()
	n, err := cleanup.Living(uid)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func TestProcessStart_OfAProcessThatIsGone(t *testing.T) {
	ours := grow(t)
	ours.leader.Kill()
	_, _ = ours.leader.Wait()
	if _, err := cleanup.ProcessStart(ours.leader.PID()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

func TestOwnCgroup(t *testing.T) {
	const hybrid = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n" +
		"40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	const unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	tests := map[string]struct{ mounts, self, want string }{
		"hybrid":               {hybrid, "9:name=systemd:/\n0::/\n", "/sys/fs/cgroup/unified"},
		"service":              {unified, "0::/system.slice/dayfly.service\n", "/sys/fs/cgroup/system.slice/dayfly.service"},
		"container":            {strings.Replace(unified, " / /sys", " /docker/abc /sys", 1), "0::/docker/abc/x\n", "/sys/fs/cgroup/x"},
		"another part":         {strings.Replace(unified, " / /sys", " /docker/abc /sys", 1), "0::/docker/abcd\n", ""},
		"above the mount":      {strings.Replace(unified, " / /sys", " /docker/abc /sys", 1), "0::/\n", ""},
		"space in the path":    {strings.Replace(unified, "/sys/fs/cgroup", `/my\040groups`, 1), "0::/a\n", "/my groups/a"},
		"outside of namespace": {unified, "0::/../x\n", ""},
		"version 1 only":       {"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "2:cpu:/\n", ""},
		"not mounted":          {"", "0::/\n", ""},
		"cut off":              {"30 23 0:26 / /sys -", "0::/\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := cleanup.OwnCgroup([]byte(tt.mounts), []byte(tt.self))
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func FuzzOwnCgroup(f *testing.F) {
	f.Add([]byte("41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"), []byte("0::/\n"))
	f.Add([]byte(`41 31 0:38 /\134 /a\04 rw - cgroup2 x rw`), []byte("0::/../\n"))
	f.Fuzz(func(t *testing.T, mounts, self []byte) {
		if got, err := cleanup.OwnCgroup(mounts, self); err == nil && got == "" {
			t.Error("got neither a directory nor an error")
		}
	})
}

func TestKilledForMemory_ReadsTheKernelsCount(t *testing.T) {
	for events, want := range map[string]bool{
		"low 0\nmax 3\noom 1\noom_kill 1\n": true, "oom 1\noom_kill 0\noom_group_kill 0\n": false, "": false, "oom_kill": false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(events), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := cleanup.KilledForMemory(dir); got != want {
			t.Errorf("%q: got %t", events, got)
		}
	}
	if cleanup.KilledForMemory(t.TempDir()) {
		t.Error("without a count, it is not known")
	}
}
