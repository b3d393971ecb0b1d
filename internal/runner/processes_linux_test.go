package runner_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/runner"
)

func TestCgroups_WhereALimitOfProcessesMayBe(t *testing.T) {
	for self, want := range map[string][]string{
		"0::/\n":                  {"/sys/fs/cgroup", "/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified"},
		"0::/dayfly/task-1\n":     {"/sys/fs/cgroup/dayfly/task-1", "/sys/fs/cgroup", "/sys/fs/cgroup/unified/dayfly/task-1", "/sys/fs/cgroup/unified"},
		"8:pids:/docker/x\n":      {"/sys/fs/cgroup/pids/docker/x", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/pids/docker/x", "/sys/fs/cgroup/pids"},
		"8:cpu,pids:/x\n":         {"/sys/fs/cgroup/cpu,pids/x", "/sys/fs/cgroup/cpu,pids", "/sys/fs/cgroup/pids/x", "/sys/fs/cgroup/pids"},
		"4:memory:/x\n9:name=y:/": nil,
		"cut off":                 nil,
	} {
		if diff := cmp.Diff(want, runner.Cgroups(self, "pids")); diff != "" {
			t.Errorf("%q: directories differ (-want +got):\n%s", self, diff)
		}
	}
}

func TestKeepThreads_TheyStay(t *testing.T) {
	threads := func() int {
		list, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	want := threads() + 5
	runner.KeepThreads(want)
	if got := threads(); got < want {
		t.Errorf("got %d threads, want at least %d", got, want)
	}
}
