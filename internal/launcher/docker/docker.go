// Package docker is the launcher of a machine with a Docker engine: a task is a container of its own,
// with one user that is not root, without a capability, on a root that cannot be written. It builds
// no image and gives no container a second start.
//
// # Consistency
//
// A container's name is derived from (workflow, attempt, placement) and from the launcher's own id,
// so the engine itself refuses to make a second one, whoever asks and whenever. Its runner waits at
// a gate, its standard input, until the task is on record; a launcher that dies before that leaves a
// runner that ends without having done anything. A launcher that starts again on the same directory
// finds its tasks by their label, those that run go on, and what has no record gets one.
//
// A task is stopped when the engine that has its container says that it has exited, or, being the
// same engine, that there is no such container: with a container's first process, the kernel ends
// all others before that is said. What another engine does not know proves nothing. The record
// outlives the container by two hours at least.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Defaults of a Config.
const (
	DefaultSocket = "/var/run/docker.sock"
	DefaultGrace  = 2 * time.Minute // what ECS gives at most
	// DefaultUID is the user of a task where the launcher is root. Else a task runs as the
	// launcher's own user, who alone can give it files.
	DefaultUID = 65_532
)

const (
	keep        = 2 * time.Hour    // how long a record outlives its task
	resyncEvery = 15 * time.Second // without an event
	launchTime  = 60 * time.Second // of the calls that a launch takes, once begun
	mostPause   = 10 * time.Second
	maxText     = 8192
	networkNone = "none"
)

// Config says where and how tasks run.
type Config struct {
	// Dir holds the records and the tasks' own directories. It belongs to one launcher at a time.
	Dir     string
	Socket  string   // of the engine, which must be on this machine; empty means DefaultSocket
	Image   string   // of the runner
	Command []string // in place of the image's entry point; empty: the image's own

	// Network is none, or the name of a network; NetworkOwn makes one whose containers reach
	// what the machine reaches, but not each other. Empty means none.
	Network  string
	Instance string // who launches, for a label

	StateRoot   string           // below it lie the states that are kept in directories; empty: tasks that need one are refused
	StateStore  string           // id of that root, for runs to tell it from that of another machine
	SourceRoots []string         // below which a directory source may lie
	Secrets     secrets.Resolver // of this machine's references; nil: none resolves

	// EnvAllow names the variables that are handed to the runner, and with which it may resolve
	// secret references; LookupEnv gives their values. Both or none.
	EnvAllow  []string
	LookupEnv func(name string) (string, bool)

	UID   int              // of the tasks; 0 means DefaultUID for root, else the launcher's own
	Grace time.Duration    // from asking a runner to end to killing all of it; 0 means DefaultGrace
	Log   *slog.Logger     // nil means none
	Now   func() time.Time // nil means time.Now

	// NoSockets makes Check take a relay by an address even where sockets would do; for tests.
	NoSockets bool

	hostGateway bool // tasks find the machine as GatewayName; Check finds out
}

// GatewayName is how tasks find the machine where their network's gateway is another.
const GatewayName = "host.docker.internal"

// NetworkOwn is the network that a launcher makes for its tasks.
const NetworkOwn = "own"

// Launcher is a launcher.Launcher, a launcher.Watcher and a launcher.Spooler.
type Launcher struct {
	*taskdir.SpoolDir
	config Config
	log    *slog.Logger
	now    func() time.Time
	engine *engine
	id     string
	lock   *os.File

	closing chan struct{}
	wg      sync.WaitGroup // of launches and graces
	looking sync.Mutex     // held while the engine's containers are gone through
	swept   bool           // what an earlier launcher left is removed; under looking

	mu        sync.Mutex
	engineID  string
	cpus      int
	network   bool // the own network is there
	tasks     map[string]*task
	keys      map[key]string // to ref
	launching map[key]*launch
	pending   map[string]bool // refs of launches that are under way
	changed   chan struct{}   // closed, and replaced, when a task has stopped
	closed    bool
}

// key is what makes two requests the same.
type key struct {
	workflow  string
	attempt   int
	placement string
}

// task is one task, guarded by Launcher.mu.
type task struct {
	record record
	since  time.Time // when its end was known to this launcher
	armed  bool      // a timer of this launcher counts its grace
	left   bool      // its container or its directory is still to be removed
}

// launch is one that is under way; done is closed when the rest is set.
type launch struct {
	done chan struct{}
	task launcher.Task
	err  error
}

// New opens the directory. It does not connect: that is Check's, and each call's. Close must be
// called.
func New(c Config) (*Launcher, error) {
	c.Socket = cmp.Or(c.Socket, DefaultSocket)
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.Network = cmp.Or(c.Network, networkNone)
	if c.UID == 0 {
		c.UID = cmp.Or(os.Geteuid(), DefaultUID)
	}
	if c.Secrets == nil {
		c.Secrets = secrets.Mux{}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	l := &Launcher{
		config: c, log: c.Log, now: c.Now, engine: newEngine(c.Socket), closing: make(chan struct{}),
		tasks: map[string]*task{}, keys: map[key]string{}, launching: map[key]*launch{}, pending: map[string]bool{},
		changed: make(chan struct{}),
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.SpoolDir = &taskdir.SpoolDir{Dir: filepath.Join(c.Dir, "spools"), Owner: c.UID, Now: l.now}
	if err := l.openDir(); err != nil {
		return nil, err
	}
	var err error
	if l.id, err = identity(c.Dir); err == nil {
		err = l.readRecords()
	}
	if err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	if c.Network == NetworkOwn {
		l.config.Network = "dayfly-" + l.id
	}
	return l, nil
}

var variableName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`) })

// check reports every mistake at once.
func (c *Config) check() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, workflow.Refuse(workflow.ErrInvalid, field, format, args...))
	}
	if !filepath.IsAbs(c.Dir) || !filepath.IsAbs(c.Socket) {
		refuse("dir", "the directory for tasks and the engine's socket are absolute paths")
	}
	if c.Image == "" || strings.ContainsAny(c.Image, " ?#%") {
		refuse("runner_image", "%q names no image", c.Image)
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
	if c.UID < 1 {
		refuse("uid", "tasks do not run as user %d", c.UID)
	}
	if c.Grace < 0 {
		refuse("grace", "the grace is negative")
	}
	return errors.Join(errs...)
}

// openDir makes the directories and takes the lock.
func (l *Launcher) openDir() error {
	for _, dir := range []string{l.config.Dir, l.config.StateRoot} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make directory: %w", err)
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

// Unended is how many tasks are not known to have ended.
func (l *Launcher) Unended() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, t := range l.tasks {
		if t.record.StoppedAt.IsZero() {
			n++
		}
	}
	return n
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
		return l.tasks[ref].record.task(), nil
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
	under, ref := &launch{done: make(chan struct{})}, newRef()
	l.launching[k], l.pending[ref] = under, true
	l.wg.Add(1) // Close waits for launches that are under way
	l.mu.Unlock()
	defer l.wg.Done()

	// Who asked may leave; what was begun is brought to an end that is known.
	launching, cancel := context.WithTimeout(context.WithoutCancel(ctx), launchTime)
	defer cancel()
	rec, err := l.start(launching, ref, r)

	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.launching, k)
	delete(l.pending, ref)
	defer close(under.done)
	if err != nil {
		under.err = refusal(err)
		l.log.Warn("launch refused", "workflow", r.Workflow, "attempt", r.Attempt, "err", err)
		return launcher.Task{}, under.err
	}
	if l.tasks[rec.Ref] == nil { // else it was found by its name
		l.tasks[rec.Ref] = &task{record: rec}
	}
	l.keys[k] = rec.Ref
	under.task = l.tasks[rec.Ref].record.task()
	l.log.Info("task launched", "task", rec.Ref, "workflow", r.Workflow, "attempt", r.Attempt, "container", rec.Container)
	return under.task, nil
}

// checkRequest refuses for good what can never be launched.
func (l *Launcher) checkRequest(r launcher.Request) error {
	if r.Workflow == "" || r.Attempt < 1 || r.Ticket == "" || r.Relay == "" {
		return never("the request names no workflow, attempt, ticket or relay")
	}
	for _, s := range []string{r.Workflow, r.Placement, r.Ticket, r.Relay, r.SourceDirectory} {
		if strings.ContainsRune(s, 0) || len(s) > maxText {
			return never("the request holds a zero byte or a text of more than %d characters", maxText)
		}
	}
	if _, err := contract.SizeOf(r.Size); err != nil {
		return never("%v", err)
	}
	return taskdir.CheckStates(r, l.config.StateRoot)
}

func never(format string, args ...any) error {
	return &launcher.Refusal{Reason: workflow.ReasonLaunchFailed, Permanent: true, Text: fmt.Sprintf(format, args...)}
}

// refusal classifies the errors of a launch.
func refusal(err error) error {
	if r, ok := errors.AsType[*launcher.Refusal](err); ok {
		return r
	}
	r := &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "the container could not be started: " + err.Error()}
	said, refused := errors.AsType[*apiError](err)
	switch {
	case errors.Is(err, errUnreachable):
		// A request may have arrived; the container's name tells.
		r.Unknown = true
		r.Text = "the Docker engine did not answer: " + err.Error()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), refused && strings.Contains(said.message, "no space left"):
		r.Reason, r.Text = workflow.ReasonCapacity, "this machine has no disk space left for another task: "+err.Error()
	case refused && strings.Contains(strings.ToLower(said.message), "no such image"):
		r.Reason, r.Permanent = workflow.ReasonLaunchFailed, true
		r.Text = "the engine has no such image: make image builds it, and runner_image names another one; " + said.message
	case refused && said.status == 400:
		r.Reason, r.Permanent = workflow.ReasonLaunchFailed, true
	}
	return r
}

// List implements launcher.Launcher.
func (l *Launcher) List(ctx context.Context) ([]launcher.Task, error) {
	if err := l.look(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	return l.list(), nil
}

// list returns all tasks, the oldest first. The lock is held.
func (l *Launcher) list() []launcher.Task {
	out := make([]launcher.Task, 0, len(l.tasks))
	for _, t := range l.tasks {
		out = append(out, t.record.task())
	}
	slices.SortFunc(out, func(a, b launcher.Task) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.Ref, b.Ref))
	})
	return out
}

// Describe implements launcher.Launcher.
func (l *Launcher) Describe(ctx context.Context, refs ...string) ([]launcher.Task, error) {
	if err := l.look(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []launcher.Task
	for _, ref := range refs {
		if t, ok := l.tasks[ref]; ok {
			out = append(out, t.record.task())
		}
	}
	return out, nil
}

// Stop implements launcher.Launcher: SIGTERM to the runner, which passes an interrupt on to its
// engine, and after the grace the end of the container. That it was asked is on record, so a launcher
// that starts again goes on counting.
func (l *Launcher) Stop(ctx context.Context, ref, why string) error {
	l.mu.Lock()
	t, ok := l.tasks[ref]
	if !ok {
		l.mu.Unlock()
		return fmt.Errorf("stop task %s: %w", ref, launcher.ErrNotFound)
	}
	if !t.record.StoppedAt.IsZero() || t.record.StopWhy != "" {
		l.mu.Unlock()
		return nil
	}
	rec := t.record
	rec.StopWhy, rec.StopAt = cmp.Or(why, "no reason was given"), l.now().UTC()
	if len(rec.StopWhy) > maxText {
		rec.StopWhy = strings.ToValidUTF8(rec.StopWhy[:maxText], "")
	}
	if err := l.write(rec); err != nil {
		l.mu.Unlock()
		return fmt.Errorf("stop task %s: %w", ref, err)
	}
	t.record = rec
	l.mu.Unlock()
	l.log.Info("task asked to stop", "task", ref, "workflow", rec.Workflow, "reason", rec.StopWhy)
	l.signal(ctx, rec)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arm(ctx, t)
	return nil
}

// signal asks a runner to end. Where that fails, the grace ends it, or it has ended.
func (l *Launcher) signal(ctx context.Context, rec record) {
	if err := l.engine.kill(ctx, rec.Container, "SIGTERM"); err != nil && !gone(err) {
		l.log.Warn("task not signalled", "task", rec.Ref, "err", err)
	}
}

// gone reports whether the engine says that a container is not there or does not run.
func gone(err error) bool { return hasStatus(err, 404) || hasStatus(err, 409) }

// arm sees to it that a task that was asked to end is killed when its grace is over, which outlives
// the call that asked. The lock is held.
func (l *Launcher) arm(ctx context.Context, t *task) {
	ctx = context.WithoutCancel(ctx)
	if t.armed || l.closed {
		return
	}
	t.armed = true
	wait := max(0, t.record.StopAt.Add(l.config.Grace).Sub(l.now()))
	l.wg.Go(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.closing:
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		t.armed = false
		if !t.record.StoppedAt.IsZero() {
			return
		}
		t.record.Killed = true
		container, ref := t.record.Container, t.record.Ref
		l.wg.Go(func() {
			if err := l.engine.kill(ctx, container, "SIGKILL"); err != nil && !gone(err) {
				l.log.Warn("task not killed; trying again", "task", ref, "err", err) // with the next look
			}
		})
	})
}

// Watch implements launcher.Watcher. It returns nil when ctx ends. Each call of it reports every
// stopped task that is still known, so what an earlier one was told is told again.
func (l *Launcher) Watch(ctx context.Context, stopped func(context.Context, launcher.Task)) error {
	opened, ended := make(chan struct{}, 1), make(chan container, 64)
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, mostPause) {
			err := l.engine.events(ctx, labelLauncher+"="+l.id, func() {
				pause = time.Second
				select {
				case opened <- struct{}{}:
				default:
				}
			}, func(c container) {
				select {
				case ended <- c:
				default: // the next look finds it
				}
			})
			if ctx.Err() == nil {
				l.log.Warn("events of the Docker engine ended; trying again", "err", err)
			}
			sleep(ctx, pause)
		}
	})
	told := map[string]bool{}
	resync := time.NewTicker(resyncEvery)
	defer resync.Stop()
	for looked := l.look; ; {
		if err := looked(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("tasks not looked at; trying again", "err", err)
		}
		l.mu.Lock()
		changed := l.changed
		all := l.list()
		maps.DeleteFunc(told, func(ref string, _ bool) bool { return l.tasks[ref] == nil })
		l.mu.Unlock()
		for _, t := range all {
			if t.Phase != launcher.Stopped || told[t.Ref] {
				continue
			}
			if ctx.Err() != nil {
				return nil
			}
			stopped(ctx, t)
			told[t.Ref] = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			looked = nothing
		case c := <-ended:
			looked = func(ctx context.Context) error { return l.lookAtOne(ctx, c) }
		case <-opened:
			looked = l.look
		case <-resync.C:
			looked = l.look
		}
	}
}

func nothing(context.Context) error { return nil }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Close lets go of the directory. Tasks that run go on, for the next launcher to find.
func (l *Launcher) Close(ctx context.Context) error {
	defer l.engine.close()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	alone := l.network
	for _, t := range l.tasks {
		alone = alone && !t.record.StoppedAt.IsZero()
	}
	l.mu.Unlock()
	close(l.closing)
	l.wg.Wait()
	if alone {
		// One that another container is on stays; it is used again.
		_ = l.engine.call(ctx, "DELETE", "/networks/"+l.config.Network, nil, nil, nil)
	}
	return l.lock.Close()
}
