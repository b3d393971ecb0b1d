package process_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	contract "github.com/dayfly-dev/dayfly/internal/task"
)

// engineUser is the user of a player's engine.
func engineUser(t *testing.T, p *launchertest.Player) uint32 {
	t.Helper()
	uid, err := strconv.ParseUint(p.Getenv("DAYFLY_ENGINE_UID"), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(uid)
}

// escape starts a process of a user that is in no session or cgroup of its task: only the user tells whose it is.
func escape(t *testing.T, uid uint32) (alive func() bool) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return func() bool {
		s, err := child.ReadStat(cmd.Process.Pid)
		return err == nil && s.Alive()
	}
}

func needsUsers(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run engines as other users")
	}
}

// What left its session outlives a launcher that is killed. The next one finds it by its user.
func TestEscape_IsKilledBeforeTheTaskIsReportedStopped(t *testing.T) {
	needsUsers(t)
	s := launchertest.NewStage(t, nil)
	d := dir(t)
	c := config{Dir: filepath.Join(d, "jobs"), StateRoot: filepath.Join(d, "state"), NoCgroup: true}
	var alive func() bool
	task := crash(t, c, stateful(s, "wf-1", false), func() { alive = escape(t, engineUser(t, s.Next(t))) })
	if !alive() {
		t.Fatal("it did not outlive the launcher: the test shows nothing")
	}
	l := open(t, c)
	launchertest.AwaitStopped(t, l, task.Ref)
	if alive() {
		t.Error("the task is over and its process is alive")
	}
}

func TestEscape_IsDeadBeforeTheTaskIsOver(t *testing.T) {
	needsUsers(t)
	s := launchertest.NewStage(t, nil)
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs"), NoCgroup: true})
	task := launch(t, l, s.Request("wf-1", false))
	p := s.Next(t)
	alive := escape(t, engineUser(t, p))
	p.Exit(t, 0)
	launchertest.AwaitStopped(t, l, task.Ref)
	if alive() {
		t.Error("the task is over and its process is alive")
	}
}

// Two tasks that may write one state have one user: the end of the first must not kill the engine of the second.
func TestEscape_IsKilledWithTheLastTaskOfItsUser(t *testing.T) {
	needsUsers(t)
	s := launchertest.NewStage(t, nil)
	d := dir(t)
	l := open(t, config{Dir: filepath.Join(d, "jobs"), StateRoot: filepath.Join(d, "state"), NoCgroup: true})
	first := launch(t, l, stateful(s, "wf-1", false))
	p1 := s.Next(t)
	again := stateful(s, "wf-1", false)
	again.Placement = "again"
	second := launch(t, l, again)
	p2 := s.Next(t)
	alive := escape(t, engineUser(t, p2))
	left := filepath.Join(os.TempDir(), fmt.Sprintf("dayfly-test-shared-%d", os.Getpid()))
	leave(t, left, engineUser(t, p2))
	p1.Exit(t, 0)
	launchertest.AwaitStopped(t, l, first.Ref)
	if _, err := os.Lstat(left); !alive() || err != nil {
		t.Errorf("the end of one task took what the other has: alive %t, file %v", alive(), err)
	}
	p2.Exit(t, 0)
	launchertest.AwaitStopped(t, l, second.Ref)
	if _, err := os.Lstat(left); alive() || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("both are over: alive %t, file %v", alive(), err)
	}
}

// Another launcher may have got the user of a task whose launcher died: what has it now is not that task's.
func TestEscape_UserThatAnotherLauncherHasIsSpared(t *testing.T) {
	needsUsers(t)
	s := launchertest.NewStage(t, nil)
	c := config{Dir: filepath.Join(dir(t), "jobs"), NoCgroup: true}
	var uid uint32
	task := crash(t, c, s.Request("wf-1", false), func() { uid = engineUser(t, s.Next(t)) })
	lock, err := os.OpenFile(filepath.Join("/var/run/dayfly/engine-users", strconv.FormatUint(uint64(uid), 10)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Skipf("another launcher really has it: %v", err)
	}
	alive := escape(t, uid)
	l := open(t, c)
	launchertest.AwaitStopped(t, l, task.Ref)
	if !alive() {
		t.Error("a process of another launcher's task was killed")
	}
}

func leave(t *testing.T, path string, uid uint32) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte("a secret"), 0o600), os.Lchown(path, int(uid), int(uid))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
}

// Whoever gets the user next must find nothing that this task left for it.
func TestEnd_RemovesEngineFilesInSharedDirectories(t *testing.T) {
	needsUsers(t)
	s := launchertest.NewStage(t, nil)
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs")}, func(c *process.Config) { c.EngineUIDBase, c.EngineUIDs = 730_020, 2 })
	task := launch(t, l, s.Request("wf-1", false))
	p := s.Next(t)
	uid := engineUser(t, p)
	var own, others []string
	name := fmt.Sprintf("dayfly-test-left-%d", os.Getpid())
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		file, tree, other, link := filepath.Join(dir, name), filepath.Join(dir, name+"-tree"), filepath.Join(dir, name+"-other"), filepath.Join(dir, name+"-link")
		leave(t, file, uid)
		leave(t, other, uid+1)
		if err := errors.Join(
			os.MkdirAll(filepath.Join(tree, "a", "b"), 0o700), os.WriteFile(filepath.Join(tree, "a", "b", "file"), nil, 0o400),
			os.Symlink(outside, filepath.Join(tree, "a", "link")), os.Chmod(filepath.Join(tree, "a"), 0), os.Lchown(tree, int(uid), int(uid)),
			os.Symlink(outside, link), os.Lchown(link, int(uid), int(uid)),
		); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = os.RemoveAll(tree), os.Remove(link) })
		own, others = append(own, file, tree, link), append(others, other)
	}
	p.Exit(t, 0)
	launchertest.AwaitStopped(t, l, task.Ref)
	for _, path := range own {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	for _, path := range append(others, outside) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s of somebody else is gone: %v", path, err)
		}
	}
}

// A run says which limits of its size do not hold, and so does the launcher.
func TestLimits_ThatDoNotHoldAreTold(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	for name, tt := range map[string]struct {
		users int
		want  []contract.Limit
	}{
		"engines run as the launcher's user": {-1, []contract.Limit{contract.LimitCPU, contract.LimitMemory, contract.LimitProcesses}},
		"engines have users of their own":    {0, []contract.Limit{contract.LimitCPU, contract.LimitMemory}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.users == 0 {
				needsUsers(t)
			}
			l := open(t, config{Dir: filepath.Join(dir(t), "jobs"), EngineUIDs: tt.users, NoCgroup: true})
			is := l.Isolation()
			if diff := cmp.Diff(tt.want, is.Unkept); diff != "" || is.Why == "" {
				t.Errorf("limits differ, because %q (-want +got):\n%s", is.Why, diff)
			}
			size, err := contract.SizeOf("small")
			if err != nil {
				t.Fatal(err)
			}
			launch(t, l, s.Request("wf-1", false))
			p := s.Next(t)
			if got, want := p.Getenv("DAYFLY_NOTICE"), size.Unkept(tt.want, is.Why); got != want {
				t.Errorf("the run is told %q, want %q", got, want)
			}
			if got := p.Getenv("DAYFLY_MAX_PROCESSES"); got != "" {
				t.Errorf("got %s processes in no cgroup", got)
			}
		})
	}
}

// Where nothing tells whose a process is, the end of a task says what it does not prove.
func TestEnd_SaysWhatItDoesNotProve(t *testing.T) {
	const says = "a process of it that left its session on purpose may still run"
	for name, tt := range map[string]struct {
		users int
		kill  bool
		want  bool
	}{
		"the runner was killed, and engines run as the launcher's user": {users: -1, kill: true, want: true},
		"the runner ended by itself, and ended what it left":            {users: -1},
		"engines have users of their own":                               {kill: true, want: os.Geteuid() != 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := launchertest.NewStage(t, nil)
			l := open(t, config{Dir: filepath.Join(dir(t), "jobs"), EngineUIDs: tt.users, NoCgroup: true})
			task := launch(t, l, s.Request("wf-1", false))
			p := s.Next(t)
			if tt.kill {
				if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			} else {
				p.Exit(t, 0)
			}
			if got := launchertest.AwaitStopped(t, l, task.Ref).Text; strings.Contains(got, says) != tt.want {
				t.Errorf("got %q, want that it says so: %t", got, tt.want)
			}
		})
	}
}
