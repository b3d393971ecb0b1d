package runner_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// L8: a full disk is found by looking at it, whatever the log says.
func TestRunJob_AFullDiskIsTheReason(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	spec, cfg := job(t, `cat /dev/zero > "$TMPDIR/big" 2> /dev/null; exit 1`)
	cfg.WorkDir = dir
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	got := r.result()
	if got.Reason != workflow.ReasonDiskFull || !strings.Contains(got.Detail, "8.0 MiB in all") {
		t.Errorf("got %s %q, want disk_full with what was used", got.Reason, got.Detail)
	}
}

// R9: a run that uses more disk than it may is ended like any other that is told to stop.
func TestRunJob_MoreDiskThanItMayUseEndsIt(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, `head -c 3000000 /dev/zero > "$TMPDIR/big"; `+pipe.listens())
	cfg.DiskBytes, cfg.DiskEvery = 2<<20, 10*time.Millisecond
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	got := r.result()
	if got.Reason != workflow.ReasonDiskFull || !strings.Contains(got.Detail, "may use 2.0 MiB") {
		t.Errorf("got %s %q, want disk_full with the bound", got.Reason, got.Detail)
	}
}

func TestKilledForMemory_IsSaidOfTheCommandAlone(t *testing.T) {
	for _, tc := range []struct {
		before, after, code int
		alone, want         bool
	}{
		{0, 1, 1, true, true}, {0, 1, 137, false, true},
		{0, 1, 1, false, false}, // perhaps another job's
		{1, 1, 137, true, false}, {0, 1, 0, true, false},
	} {
		if got := runner.KilledForMemory(tc.before, tc.after, tc.code, tc.alone); got != tc.want {
			t.Errorf("%+v: got %t", tc, got)
		}
	}
}

func TestCounted_ReadsBothVersions(t *testing.T) {
	for content, want := range map[string]int{
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n": 2,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 4\n":               4,
		"": 0, "oom_kill x": 0,
	} {
		if got := runner.Counted(content, "oom_kill "); got != want {
			t.Errorf("%q: got %d, want %d", content, got, want)
		}
	}
}
