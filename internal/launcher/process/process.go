// Package process is the launcher of one machine: a task is a process of this program run again, in
// a session and, where the system has them, a cgroup of its own. It reports a task as stopped when
// its runner is reaped and nothing is left in its cgroup, else in its session. It isolates no
// network and no file system, and away from root no user.
//
// # Consistency
//
// A runner begins only after its record is on disk: it waits at a gate, a pipe whose other end this
// launcher holds, and dies with the launcher. So a launcher that starts again on the same directory
// finds every task that may have acted, kills what is left of it and reports it stopped; it never
// adopts one that goes on, because nothing goes on without its parent.
//
// A record outlives its task by two hours at least, counted from the later of its end and the
// launcher's start. ErrNotFound is no proof of an end: it also stands for a directory that was
// emptied by hand.
//
// Without a cgroup, a process that left its session on purpose is not found; without root, workflow
// code runs as the launcher's own user and could do worse. Isolation says which of these holds.
package process

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process/remains"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Defaults of a Config.
const (
	DefaultGrace         = 2 * time.Minute // what ECS gives at most
	DefaultPath          = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	DefaultEngineUIDBase = 200_000
	DefaultEngineUIDs    = 10_000
)

const (
	keep      = 2 * time.Hour    // how long a record outlives its task, at least
	pruneWait = time.Second      // between two looks for records that are older
	lastWait  = 30 * time.Second // for what was killed to die, in New and at the end of Close
	maxText   = 8192             // of a request's text: with all of them a record stays far below maxRecord
	userLocks = "/var/run/dayfly/engine-users"
	openFiles = 65_536 // descriptors of one process of a task, where the system allows as many
)

// Config says where and how tasks run.
type Config struct {
	// Dir holds the records and the tasks' own directories. It belongs to one launcher at a time.
	Dir string
	// Command is the runner: an absolute path and its arguments.
	Command []string

	StateRoot    string   // below it lie the states that are kept in directories; empty: tasks that need one are refused
	StateStore   string   // id of that root, for runs to tell it from that of another machine
	SourceRoots  []string // below which a directory source may lie
	SecretsStore string   // directory of the local secret store; empty: none
	Path         string   // PATH of the runner; empty means DefaultPath
	EnginePath   []string // more directories in which engines are looked for

	// EnvAllow names the variables that are handed to the runner, and with which it may resolve
	// secret references; LookupEnv gives their values. Both or none.
	EnvAllow  []string
	LookupEnv func(name string) (string, bool)

	// EngineUIDBase and EngineUIDs are the range of users of which each live task gets one for its
	// engine, when the launcher runs as root. 0 means the defaults; EngineUIDs below 0 means
	// that engines run as root.
	EngineUIDBase, EngineUIDs int
	// NoCgroup keeps tasks out of cgroups although the system has them.
	NoCgroup bool

	Grace time.Duration    // from asking a runner to end to killing all of it; 0 means DefaultGrace
	Log   *slog.Logger     // nil means none
	Now   func() time.Time // nil means time.Now
}

// Isolation is what this launcher can hold on this system.
type Isolation struct {
	EngineUser     bool // workflow code runs as a user of its own
	Cgroup         bool // nothing can leave its task
	DiesWithParent bool // a runner ends when the launcher is killed
}

// Launcher is a launcher.Launcher, a launcher.Watcher and a launcher.Spooler.
type Launcher struct {
	*taskdir.SpoolDir
	config Config
	log    *slog.Logger
	now    func() time.Time
	boot   string // of this machine or container: a process of another one is gone
	lock   *os.File

	wg     sync.WaitGroup // of everything that runs for a task
	ending chan struct{}  // closed when Close wants every task to end
	hurry  chan struct{}  // closed when Close waits no longer for graces
	giveUp chan struct{}  // closed when Close waits no longer at all

	mu        sync.Mutex
	cgroup    string // directory for the tasks' cgroups; empty: none
	tasks     map[string]*task
	keys      map[key]string // to ref
	launching map[key]*launch
	users     map[uint32]*user // that live tasks have
	userLocks string           // a directory; empty: this launcher knows of no other one
	lastUID   uint32           // counted from the base
	pruned    time.Time        // when old tasks were last forgotten
	changed   chan struct{}    // closed, and replaced, when a task has stopped
	closed    bool

	// Held while the files of a state are given to a user or taken back; taken before mu.
	stateMu sync.Mutex
	holders map[string]*holder // of states that live tasks write, by directory
}

// key is what makes two requests the same.
type key struct {
	workflow  string
	attempt   int
	placement string
}

// launch is one that is under way; done is closed when the rest is set.
type launch struct {
	done chan struct{}
	task launcher.Task
	err  error
}

// New opens the directory, ends what an earlier launcher left behind there, and waits a little for
// that. Close must be called.
func New(c Config) (*Launcher, error) {
	if c.Dir != "" {
		c.Dir = filepath.Clean(c.Dir)
	}
	c.Path = cmp.Or(c.Path, DefaultPath)
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.EngineUIDBase = cmp.Or(c.EngineUIDBase, DefaultEngineUIDBase)
	c.EngineUIDs = cmp.Or(c.EngineUIDs, DefaultEngineUIDs)
	if os.Geteuid() != 0 || c.EngineUIDs < 0 {
		c.EngineUIDs = 0
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	l := &Launcher{
		config:    c,
		log:       c.Log,
		now:       c.Now,
		ending:    make(chan struct{}),
		hurry:     make(chan struct{}),
		giveUp:    make(chan struct{}),
		tasks:     map[string]*task{},
		keys:      map[key]string{},
		launching: map[key]*launch{},
		users:     map[uint32]*user{},
		holders:   map[string]*holder{},
		changed:   make(chan struct{}),
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.SpoolDir = &taskdir.SpoolDir{Dir: filepath.Join(c.Dir, "spools"), Owner: os.Geteuid(), Now: l.now}
	var err error
	if l.boot, err = remains.Boot(); err != nil {
		return nil, fmt.Errorf("identify this machine's start: %w", err)
	}
	if err := l.openDir(); err != nil {
		return nil, err
	}
	if c.EngineUIDs > 0 {
		if err := os.MkdirAll(userLocks, 0o700); err != nil {
			l.log.Warn("engines may get the same users as those of another dayfly of this machine", "err", err)
		} else {
			l.userLocks = userLocks
		}
	}
	if !c.NoCgroup {
		sum := sha256.Sum256([]byte(l.config.Dir))
		if l.cgroup, err = remains.OpenCgroups("dayfly-" + hex.EncodeToString(sum[:6])); err != nil {
			l.log.Info("cgroups not used", "reason", err)
		}
	}
	if err := l.recover(); err != nil {
		_ = l.lock.Close()
		return nil, err
	}
	return l, nil
}

// check reports every mistake at once.
func (c *Config) check() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, workflow.Refuse(workflow.ErrInvalid, field, format, args...))
	}
	if !filepath.IsAbs(c.Dir) {
		refuse("dir", "the directory for tasks is not an absolute path")
	}
	if len(c.Command) == 0 || !filepath.IsAbs(c.Command[0]) {
		refuse("command", "the runner's command begins with an absolute path")
	}
	if c.StateRoot != "" && !filepath.IsAbs(c.StateRoot) {
		refuse("state_root", "the directory for states is not an absolute path")
	}
	for _, name := range c.EnvAllow {
		if !variableName().MatchString(name) || strings.HasPrefix(name, "DAYFLY_") {
			refuse("env_forward_allowlist", "%q cannot be forwarded: a name of letters, digits and _ that does not begin with DAYFLY_ is wanted", name)
		}
	}
	if len(c.EnvAllow) > 0 && c.LookupEnv == nil {
		refuse("env_forward_allowlist", "variables are to be forwarded and there is nothing to look them up with")
	}
	if c.Grace < 0 {
		refuse("grace", "the grace is negative")
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

// openDir makes the directory and takes its lock.
func (l *Launcher) openDir() error {
	mode := os.FileMode(0o700)
	if l.config.EngineUIDs > 0 {
		mode = 0o711 // engines pass through it and cannot list it
	}
	for _, dir := range []string{l.config.Dir, l.config.StateRoot} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			return fmt.Errorf("set mode of directory: %w", err)
		}
	}
	lock, err := os.OpenFile(filepath.Join(l.config.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open lock of directory for tasks: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return workflow.Refuse(workflow.ErrInUse, "dir", "the directory %s is in use by another launcher: stop that one or choose another data directory", l.config.Dir)
	}
	l.lock = lock
	return nil
}

// Isolation says what holds on this system.
func (l *Launcher) Isolation() Isolation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Isolation{
		EngineUser:     l.config.EngineUIDs > 0,
		Cgroup:         l.cgroup != "",
		DiesWithParent: child.DiesWithParent,
	}
}

// Launch implements launcher.Launcher.
func (l *Launcher) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	if err := ctx.Err(); err != nil {
		return launcher.Task{}, fmt.Errorf("launch task of workflow %s: %w", r.Workflow, err)
	}
	if err := l.checkRequest(r); err != nil {
		return launcher.Task{}, err
	}
	k := key{r.Workflow, r.Attempt, r.Placement}
	l.mu.Lock()
	if ref, ok := l.keys[k]; ok {
		defer l.mu.Unlock()
		return l.tasks[ref].public(), nil
	}
	if under, ok := l.launching[k]; ok {
		l.mu.Unlock()
		select {
		case <-under.done:
			return under.task, under.err
		case <-ctx.Done():
			return launcher.Task{}, &launcher.Refusal{Reason: workflow.ReasonUnavailable, Unknown: true, Text: "the launch was still under way when the time for it ended"}
		}
	}
	if l.closed {
		l.mu.Unlock()
		return launcher.Task{}, &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "dayfly is shutting down"}
	}
	l.prune()
	under := &launch{done: make(chan struct{})}
	l.launching[k] = under
	l.wg.Add(1) // Close waits for launches that are under way
	l.mu.Unlock()
	defer l.wg.Done()

	t, err := l.start(r)

	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.launching, k)
	defer close(under.done)
	if err != nil {
		under.err = refusal(err)
		l.log.Warn("launch refused", "workflow", r.Workflow, "attempt", r.Attempt, "err", err)
		return launcher.Task{}, under.err
	}
	l.tasks[t.record.Ref], l.keys[k] = t, t.record.Ref
	under.task = t.public()
	l.wg.Go(func() { l.mind(t) })
	l.log.Info("task launched", "task", t.record.Ref, "workflow", r.Workflow, "attempt", r.Attempt, "pid", t.record.PID)
	return under.task, nil
}

// checkRequest refuses for good what can never be launched.
func (l *Launcher) checkRequest(r launcher.Request) error {
	no := func(format string, args ...any) error {
		return &launcher.Refusal{Reason: workflow.ReasonLaunchFailed, Permanent: true, Text: fmt.Sprintf(format, args...)}
	}
	if r.Workflow == "" || r.Attempt < 1 || r.Ticket == "" || r.Relay == "" {
		return no("the request names no workflow, attempt, ticket or relay")
	}
	for _, s := range []string{r.Workflow, r.Placement, r.Ticket, r.Relay} {
		if strings.ContainsRune(s, 0) || len(s) > maxText {
			return no("the request holds a zero byte or a text of more than %d characters", maxText)
		}
	}
	if _, err := contract.SizeOf(r.Size); err != nil {
		return no("%v", err)
	}
	return taskdir.CheckStates(r, l.config.StateRoot)
}

// refusal classifies the errors of the system.
func refusal(err error) error {
	if r, ok := errors.AsType[*launcher.Refusal](err); ok {
		return r
	}
	r := &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "the runner could not be started: " + err.Error()}
	is := func(errnos ...error) bool {
		return slices.ContainsFunc(errnos, func(e error) bool { return errors.Is(err, e) })
	}
	switch {
	case is(syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE):
		r.Reason, r.Text = workflow.ReasonCapacity, "this machine has no process, memory or descriptor left for another task: "+err.Error()
	case is(syscall.ENOSPC, syscall.EDQUOT):
		r.Reason, r.Text = workflow.ReasonCapacity, "this machine has no disk space left for another task: "+err.Error()
	case is(errCommand) && is(syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ENOEXEC, syscall.ENOTDIR, syscall.ELOOP):
		r.Reason, r.Permanent = workflow.ReasonLaunchFailed, true
		r.Text = "the runner's program cannot be run; was it moved or replaced? " + err.Error()
	}
	return r
}

// List implements launcher.Launcher.
func (l *Launcher) List(context.Context) ([]launcher.Task, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	return l.list(func(*task) bool { return true }), nil
}

// list returns the tasks that are wanted, the oldest first. The lock is held.
func (l *Launcher) list(wanted func(*task) bool) []launcher.Task {
	var out []launcher.Task
	for _, t := range l.tasks {
		if wanted(t) {
			out = append(out, t.public())
		}
	}
	slices.SortFunc(out, func(a, b launcher.Task) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.Ref, b.Ref))
	})
	return out
}

// Describe implements launcher.Launcher.
func (l *Launcher) Describe(_ context.Context, refs ...string) ([]launcher.Task, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []launcher.Task
	for _, ref := range refs {
		if t, ok := l.tasks[ref]; ok {
			out = append(out, t.public())
		}
	}
	return out, nil
}

// Stop implements launcher.Launcher: SIGTERM to the runner, which passes an interrupt on to its
// engine, and after the grace a kill of everything.
func (l *Launcher) Stop(_ context.Context, ref, why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.tasks[ref]
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
	l.log.Info("task asked to stop", "task", ref, "workflow", t.record.Workflow, "reason", t.why)
	return nil
}

// Watch implements launcher.Watcher. It returns nil when ctx ends. Each call of it reports every
// stopped task that is still known, so what an earlier one was told is told again.
func (l *Launcher) Watch(ctx context.Context, stopped func(context.Context, launcher.Task)) error {
	told := map[string]bool{}
	for {
		l.mu.Lock()
		changed := l.changed
		news := l.list(func(t *task) bool { return t.phase == launcher.Stopped && !told[t.record.Ref] })
		if len(told) > len(l.tasks) {
			maps.DeleteFunc(told, func(ref string, _ bool) bool { return l.tasks[ref] == nil })
		}
		l.mu.Unlock()
		for _, t := range news {
			select {
			case <-ctx.Done():
				return nil
			default:
			}
			stopped(ctx, t)
			told[t.Ref] = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Close ends every task and waits for that: with its grace until ctx ends, then by killing. It
// leaves no process, no directory of a task and nothing running; the records stay.
func (l *Launcher) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.ending)
	done := make(chan struct{})
	go func() {
		l.wg.Wait()
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
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []string
	for ref, t := range l.tasks {
		if t.phase != launcher.Stopped {
			left = append(left, ref)
		}
	}
	if l.cgroup != "" && len(left) == 0 {
		_ = remains.RemoveCgroup(l.cgroup)
	}
	err := l.lock.Close()
	if len(left) > 0 {
		slices.Sort(left)
		err = errors.Join(err, fmt.Errorf("processes of tasks %s were killed and have not ended yet", strings.Join(left, ", ")))
	}
	return err
}
