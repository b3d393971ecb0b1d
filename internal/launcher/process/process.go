// Package process is the launcher of one machine. Each task is a process of this program, in its own
// session and, if the system has them, its own cgroup. It reports a task as stopped when its runner is
// reaped and no process remains in its cgroup, or without one in its session, and, as root, none of its user. It does
// not isolate the network or the file system. Only as root does it isolate the user.
//
// # Consistency
//
// A runner begins only after its record is on disk: it waits at a gate, a pipe whose other end this
// launcher holds, and dies with the launcher. So a launcher that starts again on the same directory
// finds every task that may have acted, kills its remaining processes and reports it stopped. It never
// adopts a task, because no task outlives its parent.
//
// A record outlives its task by at least two hours, counted from the later of its end and the
// launcher's start. ErrNotFound does not prove an end: somebody may have emptied the directory.
//
// As root it also finds a process that left its session on purpose, by its user, which belongs to the task. While two
// tasks have one user, because both may write the same state, the last of them ends it. Without root and without
// cgroups such a process can outlive its task if the runner is killed, and the task's end says so; workflow code runs
// as the launcher's own user there and could do worse. Isolation says which of these holds.
package process

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Defaults of a Config.
const (
	DefaultPath          = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	DefaultEngineUIDBase = 200_000
	DefaultEngineUIDs    = 10_000
)

const (
	lastWait  = 30 * time.Second // for killed processes to die, in New and at the end of Close
	userLocks = "/var/run/dayfly/engine-users"
	dropTime  = 10 * time.Second // to remove the files of a task in shared directories
	openFiles = 65_536           // descriptors of one process of a task, if the system allows that many
)

// Config says where and how tasks run.
type Config struct {
	launcher.Machine

	// Command is the runner: an absolute path and its arguments.
	Command []string

	SecretsStore string // directory of the local secret store; empty: none
	Path         string // PATH of the runner; empty means DefaultPath

	VaultAddress   string // of a Vault server; empty: none
	VaultNamespace string
	VaultTokenFile string // file with the token with which the runner asks it

	// EngineUIDBase and EngineUIDs are a range of users. If the launcher runs as root, each live task gets
	// one of them for its engine. 0 means the defaults; EngineUIDs below 0 means that engines run as root.
	EngineUIDBase, EngineUIDs int
	// NoCgroup makes tasks run without cgroups even if the system has them.
	NoCgroup bool
}

// Isolation lists the guarantees of this launcher on this system.
type Isolation struct {
	EngineUser     bool // workflow code runs as a user of its own
	Cgroup         bool // nothing can leave its task
	DiesWithParent bool // a runner ends when the launcher is killed

	Unkept []task.Limit // of a size, which do not hold here
	Why    string       // why they do not
}

// Launcher is a launcher.Launcher, a launcher.Watcher and a launcher.Spooler.
type Launcher struct {
	*taskdir.Dir[*entry]
	config Config
	boot   string // of this machine or container: a process of another one is gone

	ending chan struct{} // closed when Close wants every task to end
	hurry  chan struct{} // closed when Close waits no longer for graces
	giveUp chan struct{} // closed when Close stops waiting

	// Guarded by Mu.
	cgroup    string           // directory for the tasks' cgroups; empty: none
	noCgroup  string           // why there is none
	users     map[uint32]*user // that live tasks have
	userLocks string           // a directory; empty: other launchers are not looked for
	lastUID   uint32           // counted from the base

	// Held while the files of a state are given to a user or taken back. Lock it before Mu.
	stateMu sync.Mutex
	holders map[string]*holder // of states that live tasks write, by directory
}

// New opens the directory, ends the tasks that an earlier launcher left behind, and waits a little for
// that. Close must be called.
func New(c Config) (*Launcher, error) {
	if c.Dir != "" {
		c.Dir = filepath.Clean(c.Dir)
	}
	c.Path = cmp.Or(c.Path, DefaultPath)
	c.EngineUIDBase = cmp.Or(c.EngineUIDBase, DefaultEngineUIDBase)
	c.EngineUIDs = cmp.Or(c.EngineUIDs, DefaultEngineUIDs)
	if os.Geteuid() != 0 || c.EngineUIDs < 0 {
		c.EngineUIDs = 0
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	boot, err := cleanup.Boot()
	if err != nil {
		return nil, fmt.Errorf("identify this machine's start: %w", err)
	}
	mode := os.FileMode(0o700)
	if c.EngineUIDs > 0 {
		mode = 0o711 // engines pass through it and cannot list it
	}
	dir, err := taskdir.Open[*entry](c.Machine, mode, os.Geteuid())
	if err != nil {
		return nil, err
	}
	l := &Launcher{
		Dir: dir, config: c, boot: boot, ending: make(chan struct{}), hurry: make(chan struct{}), giveUp: make(chan struct{}),
		users: map[uint32]*user{}, holders: map[string]*holder{},
	}
	dir.Start, dir.Refusal = l.start, refusal
	dir.Begun = func(t *entry) { l.Work.Go(func() { l.mind(t) }) }
	if c.EngineUIDs > 0 {
		if err := os.MkdirAll(userLocks, 0o700); err != nil {
			l.Log.Warn("engines may get the same users as those of another dayfly on this machine", "err", err)
		} else {
			l.userLocks = userLocks
		}
	}
	l.noCgroup = "cgroups are switched off"
	if !c.NoCgroup {
		sum := sha256.Sum256([]byte(l.config.Dir))
		if l.cgroup, err = cleanup.OpenCgroups("dayfly-" + hex.EncodeToString(sum[:6])); err != nil {
			l.noCgroup = "no cgroup can be made: " + err.Error()
			l.Log.Info("cgroups not used", "reason", err)
		}
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(err, l.Unlock())
	}
	return l, nil
}

// check reports every mistake at once.
func (c *Config) check() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, workflow.Refuse(workflow.ErrInvalid, field, format, args...))
	}
	c.Check(refuse)
	if len(c.Command) == 0 || !filepath.IsAbs(c.Command[0]) {
		refuse("command", "the runner's command must begin with an absolute path")
	}
	if c.EngineUIDs > 0 {
		if c.EngineUIDBase <= 0 || c.EngineUIDBase+c.EngineUIDs > 1<<31 {
			refuse("engine_uid_base", "users %d and the %d after it cannot be used for engines", c.EngineUIDBase, c.EngineUIDs)
		}
		for _, dir := range []string{c.Dir, c.StateRoot} {
			if err := passable(dir); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Isolation returns the guarantees of this launcher on this system.
func (l *Launcher) Isolation() Isolation {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	unkept, why := l.unkept(l.cgroup)
	return Isolation{
		EngineUser:     l.config.EngineUIDs > 0,
		Cgroup:         l.cgroup != "",
		DiesWithParent: child.DiesWithParent,
		Unkept:         unkept, Why: why,
	}
}

// unkept returns the limits that do not hold in the cgroups of a directory, or without any if it is empty. The lock is
// held.
func (l *Launcher) unkept(cgroup string) (limits []task.Limit, why string) {
	why = l.noCgroup
	var has []string
	if cgroup != "" {
		has, why = cleanup.Controllers(cgroup), "the cgroup of dayfly lacks the controllers"
	}
	for _, c := range []struct {
		controller string
		limit      task.Limit
	}{{"cpu", task.LimitCPU}, {"memory", task.LimitMemory}, {"pids", task.LimitProcesses}} {
		// A user of its own has a limit of processes by itself.
		if !slices.Contains(has, c.controller) && (c.limit != task.LimitProcesses || l.config.EngineUIDs == 0 || !child.LimitsHold) {
			limits = append(limits, c.limit)
		}
	}
	return limits, why
}

// refusal classifies the errors of the system.
func refusal(err error) *launcher.Refusal {
	r := &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "the runner could not be started: " + err.Error()}
	is := func(errnos ...error) bool {
		return slices.ContainsFunc(errnos, func(e error) bool { return errors.Is(err, e) })
	}
	switch {
	case is(syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE):
		r.Reason, r.Text = workflow.ReasonCapacity, "this machine has no process, memory or descriptor for another task: "+err.Error()
	case is(syscall.ENOSPC, syscall.EDQUOT):
		r.Reason, r.Text = workflow.ReasonCapacity, "this machine has no disk space for another task: "+err.Error()
	case is(errCommand) && is(syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ENOEXEC, syscall.ENOTDIR, syscall.ELOOP):
		r.Reason, r.Permanent = workflow.ReasonLaunchFailed, true
		r.Text = "the runner's program cannot be run; was it moved or replaced? " + err.Error()
	}
	return r
}

// Stop implements launcher.Launcher. It sends SIGTERM to the runner, which interrupts its engine, and
// kills everything after the grace.
func (l *Launcher) Stop(_ context.Context, ref, why string) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	t, ok := l.Entries[ref]
	if !ok {
		return fmt.Errorf("stop task %s: %w", ref, launcher.ErrNotFound)
	}
	if t.phase == launcher.Stopped || t.why != "" {
		return nil
	}
	t.why = cmp.Or(why, "no reason was given")
	t.phase = launcher.Stopping
	if t.stop != nil {
		close(t.stop)
	}
	l.Log.Info("task asked to stop", "task", ref, "workflow", t.record.Workflow, "reason", t.why)
	return nil
}

// End ends every task and waits for that. Each task gets its grace until ctx ends; then it is killed.
// No process and no directory of a task remains. The launcher still knows its tasks, and their ends can be
// acknowledged.
func (l *Launcher) End(ctx context.Context) error {
	l.Mu.Lock()
	if l.Closed {
		l.Mu.Unlock()
		return nil
	}
	l.Closed = true
	l.Mu.Unlock()
	close(l.ending)
	done := make(chan struct{})
	go func() {
		l.Work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		close(l.hurry)
		timer := time.NewTimer(lastWait)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		}
	}
	close(l.giveUp)
	<-done
	if alive := l.Unended(); len(alive) > 0 {
		return fmt.Errorf("processes of tasks %s were killed and have not ended yet", strings.Join(alive, ", "))
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.cgroup != "" {
		_ = cleanup.RemoveCgroup(l.cgroup)
	}
	return nil
}

// Close is End, and gives the directory back. The records stay.
func (l *Launcher) Close(ctx context.Context) error { return errors.Join(l.End(ctx), l.Unlock()) }
