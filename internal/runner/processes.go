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
	// spareThreads are started before the engine is, because a swarm of its processes leaves no room for another thread
	// of the runner, and the runtime ends a program that cannot get one. They are more than wait in system calls at
	// once.
	spareThreads = 16
	swarmEvery   = 500 * time.Millisecond // between two looks for a swarm
)

// keepThreads makes the runtime start so many threads. It keeps those that have nothing to do.
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

// swarm watches the limit of processes of the task's cgroup. The runner counts there too.
type swarm struct {
	events string // the file in which the kernel counts refused forks; empty: there is no such limit
	before int    // how many there were when the run began
	stop   *stop
}

func newSwarm(most int) swarm {
	s := swarm{stop: &stop{
		outcome: workflow.Failed, reason: workflow.ReasonStepFailed, atOnce: true,
		text: fmt.Sprintf("the job started more processes than its size allows (%d): let it start fewer at a time, or give the workspace a larger size", most),
	}}
	if most == 0 {
		return s
	}
	self, _ := os.ReadFile("/proc/self/cgroup")
	for _, dir := range cgroups(string(self), "pids") {
		// Only the task's own cgroup has its limit. Another one may be shared.
		if b, err := os.ReadFile(filepath.Join(dir, "pids.max")); err == nil && strings.TrimSpace(string(b)) == strconv.Itoa(most) {
			s.events = filepath.Join(dir, "pids.events")
			s.before = s.refused()
			return s
		}
	}
	return s
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
func (s swarm) refused() int {
	b, _ := os.ReadFile(s.events)
	return counted(string(b), "max ")
}

// met reports whether the run has met the limit.
func (s swarm) met() bool { return s.events != "" && s.refused() > s.before }

// watchSwarm ends the run when it has met its limit of processes: what goes on at the limit fails at random, and the
// runner with it. To kill the processes needs neither a thread nor a process.
func (r *run) watchSwarm(ctx context.Context) {
	for r.swarm.events != "" && wait.For(ctx, swarmEvery) == nil {
		if r.swarm.met() {
			r.stop(r.swarm.stop)
			child.KillOthers()
			return
		}
	}
}
