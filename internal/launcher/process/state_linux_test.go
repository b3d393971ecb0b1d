package process_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func mountTiny(path string, inodes int, flags ...uintptr) error {
	var flag uintptr
	for _, f := range flags {
		flag |= f
	}
	return syscall.Mount("tmpfs", path, "tmpfs", flag, fmt.Sprintf("nr_inodes=%d", inodes))
}

func unmount(t *testing.T, path string) {
	if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
		t.Error(err)
	}
}

// A full disk is the machine's trouble, not the workflow's, and the runner must not act.
func TestLaunch_WithoutARecordNothingActs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small file system")
	}
	jobs := filepath.Join(dir(t), "jobs")
	if err := os.Mkdir(jobs, 0o755); err != nil {
		t.Fatal(err)
	}
	// Room for the directory itself, the lock and a task's directory, and not for a record.
	if err := mountTiny(jobs, 3); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { unmount(t, jobs) })
	s := launchertest.NewStage(t, nil)
	l := open(t, config{Dir: jobs})
	_, err := l.Launch(t.Context(), s.Request("wf-1", false))
	refusal, ok := errors.AsType[*launcher.Refusal](err)
	if !ok || refusal.Permanent || refusal.Reason != workflow.ReasonCapacity || !strings.Contains(refusal.Text, "disk space") {
		t.Errorf("got %v, want a refusal that speaks of disk space", err)
	}
	if diff := cmp.Diff([]string{"lock"}, names(t, jobs)); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
	if err := mountTiny(jobs, 100, syscall.MS_REMOUNT); err != nil {
		t.Fatal(err)
	}
	launch(t, l, s.Request("wf-1", false))
	s.Next(t)
	if got := s.Runners(); got != 1 {
		t.Errorf("got %d runners, want 1: the first must not have passed its gate", got)
	}
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func stateful(s *launchertest.Stage, workflow string, reads bool) launcher.Request {
	r := s.Request(workflow, false)
	r.States.Own, r.ReadsState = "default/network", reads
	return r
}

// R8, R15: the engine's user has the state of its workspace for as long as a task may write it.
func TestState_BelongsToTheEngineWhileATaskWritesIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files to another user")
	}
	s := launchertest.NewStage(t, nil)
	d := dir(t)
	c := config{Dir: filepath.Join(d, "jobs"), StateRoot: filepath.Join(d, "state")}
	state := filepath.Join(c.StateRoot, "default/network")
	outside := filepath.Join(d, "outside")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(state, "sub"), 0o700),
		os.WriteFile(filepath.Join(state, "sub/terraform.tfstate"), []byte("{}"), 0o600),
		os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(state, "link")),
		os.Link(outside, filepath.Join(state, "hard")),
	); err != nil {
		t.Fatal(err)
	}
	l := open(t, c)

	first := launch(t, l, stateful(s, "wf-write", false))
	p1 := s.Next(t)
	uid, err := strconv.Atoi(p1.Getenv("DAYFLY_ENGINE_UID"))
	if err != nil || uid < process.DefaultEngineUIDBase || uid >= process.DefaultEngineUIDBase+process.DefaultEngineUIDs {
		t.Fatalf("got engine user %q, want one of the range", p1.Getenv("DAYFLY_ENGINE_UID"))
	}
	if got := p1.Getenv("DAYFLY_STATE_DIR"); got != state {
		t.Errorf("got state directory %q, want %q", got, state)
	}
	owners := func() map[string]int {
		return map[string]int{
			"state": owner(t, state), "file": owner(t, filepath.Join(state, "sub/terraform.tfstate")),
			"outside": owner(t, outside), "organization": owner(t, filepath.Dir(state)),
		}
	}
	want := map[string]int{"state": uid, "file": uid, "outside": 0, "organization": 0}
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("owners differ (-want +got):\n%s", diff)
	}

	// Who only reads takes nothing away.
	launch(t, l, stateful(s, "wf-read", true))
	p2 := s.Next(t)
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("owners differ beside a reader (-want +got):\n%s", diff)
	}
	if got := p2.Getenv("DAYFLY_ENGINE_UID"); got == strconv.Itoa(uid) || got == "" {
		t.Errorf("the reader got user %q, want another one", got)
	}
	// Nor does another placement of the writer: the control plane lets only one of the two act.
	r := stateful(s, "wf-write", false)
	r.Placement = "again"
	second := launch(t, l, r)
	p3 := s.Next(t)
	if got := p3.Getenv("DAYFLY_ENGINE_UID"); got != strconv.Itoa(uid) {
		t.Errorf("the second writer got user %s, want the same, %d", got, uid)
	}
	p1.Exit(t, 0)
	launchertest.AwaitStopped(t, l, first.Ref)
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("owners differ while the second may write (-want +got):\n%s", diff)
	}
	p3.Exit(t, 0)
	launchertest.AwaitStopped(t, l, second.Ref)
	if diff := cmp.Diff(map[string]int{"state": 0, "file": 0, "outside": 0, "organization": 0}, owners()); diff != "" {
		t.Errorf("owners differ at the end (-want +got):\n%s", diff)
	}
}

func TestState_IsTakenBackAfterACrash(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files to another user")
	}
	s := launchertest.NewStage(t, nil)
	d := dir(t)
	c := config{Dir: filepath.Join(d, "jobs"), StateRoot: filepath.Join(d, "state")}
	state := filepath.Join(c.StateRoot, "default/network")
	crash(t, c, stateful(s, "wf-1", false), func() {
		s.Next(t)
		if owner(t, state) == 0 {
			t.Error("the state was not given to the engine")
		}
	})
	open(t, c)
	if got := owner(t, state); got != 0 {
		t.Errorf("got owner %d, want root", got)
	}
}

func TestEngineUsers_AreUniquePerTaskAndRunOut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may run engines as other users")
	}
	s := launchertest.NewStage(t, nil)
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs")}, func(c *process.Config) {
		c.EngineUIDBase, c.EngineUIDs = 730_000, 2 // those of the default are also taken by other tests' launchers
	})
	a := launch(t, l, s.Request("wf-a", false))
	p := s.Next(t)
	launch(t, l, s.Request("wf-b", false))
	if got := s.Next(t).Getenv("DAYFLY_ENGINE_UID"); got == p.Getenv("DAYFLY_ENGINE_UID") {
		t.Errorf("both got user %s", got)
	}
	_, err := l.Launch(t.Context(), s.Request("wf-c", false))
	if r, ok := errors.AsType[*launcher.Refusal](err); !ok || r.Permanent || r.Reason != workflow.ReasonCapacity {
		t.Errorf("got %v, want a refusal for capacity", err)
	}
	p.Exit(t, 0)
	launchertest.AwaitStopped(t, l, a.Ref)
	launch(t, l, s.Request("wf-c", false))
	if got, want := s.Next(t).Getenv("DAYFLY_ENGINE_UID"), p.Getenv("DAYFLY_ENGINE_UID"); got != want {
		t.Errorf("got user %s, want the one that is free again, %s", got, want)
	}
}

// Two launchers of one machine have the same range.
func TestEngineUsers_AreNotThoseOfAnotherLauncher(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may run engines as other users")
	}
	s := launchertest.NewStage(t, nil)
	two := func(c *process.Config) { c.EngineUIDBase, c.EngineUIDs = 730_010, 2 }
	one := open(t, config{Dir: filepath.Join(dir(t), "jobs")}, two)
	other := open(t, config{Dir: filepath.Join(dir(t), "jobs")}, two)
	a := launch(t, one, s.Request("wf-a", false))
	p := s.Next(t)
	launch(t, other, s.Request("wf-b", false))
	if got := s.Next(t).Getenv("DAYFLY_ENGINE_UID"); got == p.Getenv("DAYFLY_ENGINE_UID") {
		t.Errorf("engines of both launchers got user %s", got)
	}
	_, err := other.Launch(t.Context(), s.Request("wf-c", false))
	if r, ok := errors.AsType[*launcher.Refusal](err); !ok || r.Permanent || r.Reason != workflow.ReasonCapacity {
		t.Errorf("got %v, want a refusal for capacity", err)
	}
	p.Exit(t, 0)
	launchertest.AwaitStopped(t, one, a.Ref)
	launch(t, other, s.Request("wf-c", false))
	if got, want := s.Next(t).Getenv("DAYFLY_ENGINE_UID"), p.Getenv("DAYFLY_ENGINE_UID"); got != want {
		t.Errorf("got user %s, want the one that the other launcher gave back, %s", got, want)
	}
}

func TestNew_DirectoryThatEnginesCannotPassIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs engines as other users")
	}
	closed := filepath.Join(dir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	c := config{Dir: filepath.Join(closed, "jobs")}
	if _, err := c.open(); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	c.EngineUIDs = -1
	l := open(t, c)
	if l.Isolation().EngineUser {
		t.Error("got users of their own, want none")
	}
}
