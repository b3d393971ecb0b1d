package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	// spareThreads are started before the engine, because at the limit of processes the runner gets no further
	// thread, and the runtime ends a program that cannot get one. They are more than ever wait in system calls at
	// once.
	spareThreads      = 16
	processLimitEvery = 500 * time.Millisecond // between two checks of the limit
)

// keepThreads makes the runtime start n threads. It keeps idle ones.
func keepThreads(n int) {
	var met, over sync.WaitGroup
	met.Add(n)
	all := make(chan struct{})
	for range n {
		over.Go(func() {
			runtime.LockOSThread() // so that each waits on a thread of its own
			defer runtime.UnlockOSThread()
			met.Done()
			<-all
		})
	}
	met.Wait()
	close(all)
	over.Wait()
}

// processLimit watches the limit of processes of the task's cgroup, which includes the runner.
type processLimit struct {
	events string // the file in which the kernel counts refused forks; empty: there is no such limit
	before int    // how many there were when the run began
	stop   *stop
}

func newProcessLimit(limit int) processLimit {
	l := processLimit{stop: &stop{
		outcome: workflow.Failed, reason: workflow.ReasonStepFailed, atOnce: true,
		text: fmt.Sprintf("the job started more processes than its size allows (%d): let it start fewer at a time, or give the workspace a larger size", limit),
	}}
	if limit == 0 {
		return l
	}
	self, _ := os.ReadFile("/proc/self/cgroup")
	for _, dir := range cgroups(string(self), "pids") {
		// Only the task's own cgroup has its limit. Another one may be shared.
		if b, err := os.ReadFile(filepath.Join(dir, "pids.max")); err == nil && strings.TrimSpace(string(b)) == strconv.Itoa(limit) {
			l.events = filepath.Join(dir, "pids.events")
			l.before = l.refused()
			return l
		}
	}
	return l
}

// cgroups returns the directories where the files of a controller may be, from /proc/self/cgroup: below the usual mounts
// of both versions, and at these mounts, where a container sees only its own.
func cgroups(self, controller string) (dirs []string) {
	for line := range strings.Lines(self) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		var mounts []string
		switch {
		case !ok:
		case controllers == "":
			mounts = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
		case strings.Contains(","+controllers+",", ","+controller+","):
			mounts = []string{"/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/" + controller}
		}
		for _, mount := range mounts {
			dirs = append(dirs, filepath.Join(mount, path), mount)
		}
	}
	return dirs
}

// refused is how many forks the kernel has refused because of the limit.
func (l processLimit) refused() int {
	b, _ := os.ReadFile(l.events)
	return counted(string(b), "max ")
}

// met reports whether the run has met the limit.
func (l processLimit) met() bool { return l.events != "" && l.refused() > l.before }

// watchProcessLimit ends the run when it has met its limit of processes: at the limit, programs fail at random, and
// the runner with them. Killing the processes needs neither a thread nor a process.
func (r *run) watchProcessLimit(ctx context.Context) {
	for r.processLimit.events != "" && wait.For(ctx, processLimitEvery) == nil {
		if r.processLimit.met() {
			r.stop(r.processLimit.stop)
			child.KillOthers()
			return
		}
	}
}
