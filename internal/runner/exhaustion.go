package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	diskEvery = 10 * time.Second // between two measurements of the work directory; longer if one takes long
	diskCost  = 20               // the pause is at least so many times the duration of a measurement
	minFree   = 1 << 20          // bytes: a file system with less is full
)

// oomKills returns how many processes of this process's cgroup the kernel has killed for memory; 0 if nothing says so.
func oomKills() int {
	self, _ := os.ReadFile("/proc/self/cgroup")
	for _, dir := range cgroups(string(self), "memory") {
		for _, name := range []string{"memory.events", "memory.oom_control"} { // cgroup v2, v1
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return counted(string(b), "oom_kill ")
			}
		}
	}
	return 0
}

// counted returns the number that follows a name in a file of the kernel; 0 if it is not there.
func counted(content, name string) int {
	for line := range strings.Lines(content) {
		if v, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// killedForMemory decides whether a command failed because the kernel killed a process of it for memory. In a cgroup
// that other jobs are in, only the command's own end by signal 9 shows that the kill was its own.
func killedForMemory(before, after, exitCode int, alone bool) bool {
	return exitCode != 0 && after > before && (alone || exitCode == 128+int(syscall.SIGKILL))
}

// volume is the file system of the work directory, in bytes.
type volume struct {
	free, size uint64
	noFiles    bool // it takes no further file
}

func volumeOf(dir string) (volume, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return volume{}, fmt.Errorf("look at the disk: %w", err)
	}
	block := uint64(s.Bsize) //nolint:gosec // it is positive
	return volume{free: s.Bavail * block, size: s.Blocks * block, noFiles: s.Files > 0 && s.Ffree == 0}, nil
}

func (v volume) full() bool { return v.free < minFree || v.noFiles }

// examine looks for an exhausted resource that made a command fail. If the run fails, that is its reason.
func (r *run) examine(ctx context.Context, oomBefore, exitCode int) {
	switch v, err := volumeOf(r.dirs.work); {
	case killedForMemory(oomBefore, oomKills(), exitCode, r.cfg.Alone || r.processLimit.events != ""):
		r.exhausted.CompareAndSwap(nil, &stop{
			outcome: workflow.Failed, reason: workflow.ReasonOutOfMemory,
			text: "the system killed a process of the job, because memory ran out: give the workspace a larger size",
		})
	case err == nil && v.full():
		r.exhausted.CompareAndSwap(nil, r.diskFull(ctx, v))
	}
}

// explain returns the exhausted resource behind a run's error; nil if there was none.
func (r *run) explain(ctx context.Context, err error) *stop {
	if v, broken := volumeOf(r.dirs.work); broken == nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		r.exhausted.CompareAndSwap(nil, r.diskFull(ctx, v))
	}
	return r.exhausted.Load()
}

func (r *run) diskFull(ctx context.Context, v volume) *stop {
	return &stop{
		outcome: workflow.Failed, reason: workflow.ReasonDiskFull,
		text: fmt.Sprintf("the disk is full: the job's files have %s, and the disk has %s in all; make room, or give the workspace a larger disk_gib",
			mebibytes(used(ctx, r.dirs.work)), mebibytes(int64(v.size))), //nolint:gosec // no disk is that large
	}
}

// watchDisk ends the run when its work directory has more than it may.
func (r *run) watchDisk(ctx context.Context) {
	pause := r.cfg.DiskEvery
	limit := r.cfg.DiskBytes
	if limit > 0 {
		limit += used(ctx, r.lent()) // it was there before the job
	}
	for limit > 0 && wait.For(ctx, pause) == nil {
		started := time.Now()
		if has := used(ctx, r.dirs.work); has > limit {
			r.stop(&stop{
				outcome: workflow.Failed, reason: workflow.ReasonDiskFull,
				text: fmt.Sprintf("the job's files have %s, and it may use %s: let it write less, or give the workspace a larger disk_gib",
					mebibytes(has), mebibytes(limit)),
			})
			return
		}
		pause = max(r.cfg.DiskEvery, diskCost*time.Since(started))
	}
}

// used returns how much disk the files below a directory take. Files that it cannot see, or that are removed
// meanwhile, do not count.
func used(ctx context.Context, dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		if info, err := entry.Info(); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += s.Blocks * 512
			}
		}
		return nil
	})
	return bytes
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
