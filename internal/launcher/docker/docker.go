// Package docker is the launcher of a machine with a Docker engine. Each task is a container with one
// user that is not root, no capabilities and a read-only root. It never starts a container twice.
//
// # Consistency
//
// A container's name is derived from (workflow, attempt, placement) and from the launcher's own id,
// so the engine itself refuses to make a second one. The runner waits at a gate, its standard input,
// until the task is on record. If the launcher dies before that, the runner ends and does nothing.
// A launcher that starts again on the same directory finds its tasks by their label. Running tasks go
// on, and a task without a record gets one.
//
// A task is stopped when the engine that has its container says that the container has exited or does
// not exist. By then the kernel has ended all its processes, because it ends them with the first one.
// That another engine does not know the container proves nothing. The record outlives the container
// by at least two hours.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Defaults of a Config.
const (
	DefaultSocket = "/var/run/docker.sock"
	// DefaultUID is the user of a task if the launcher is root. Otherwise a task runs as the launcher's
	// own user, because no other user could be given files.
	DefaultUID = 65_532
)

const (
	resyncEvery = 15 * time.Second // between two looks when there is no event
	launchTime  = 60 * time.Second // for all calls of one launch
	copyTime    = 5 * time.Minute  // for the copy of a source
	maxPause    = 10 * time.Second
	networkNone = "none"
)

// Config says where and how tasks run.
type Config struct {
	launcher.Machine

	Socket  string            // of the engine, which must be on this machine; empty means DefaultSocket
	Image   string            // of the runner
	Images  map[string]string // further images, by the names that workspaces ask for; nil means none
	Pull    []string          // of these images the newest is fetched before each task; the others the engine must have
	Command []string          // replaces the image's entry point; empty: the image's own

	// Network is none, or the name of a network. With NetworkOwn the launcher makes one: its containers
	// reach everything that the machine reaches, but not each other. Empty means none.
	Network  string
	Instance string // name of this launcher's process, for a label

	Secrets secrets.Resolver // of this machine's references; nil: no reference resolves
	UID     int              // of the tasks; 0 means DefaultUID for root, else the launcher's own

	// Publishers are where engines are downloaded from; nil means their own. They are for tests.
	Publishers map[string]toolcache.Publisher
	// Data is a directory in which all others are, and HostData its path as the engine sees it, where this program is in
	// a container itself. HostData may be empty: it is the same.
	Data, HostData string

	// NoSockets makes Check use an address for the relay even where a socket would work. It is for tests.
	NoSockets bool

	hostGateway bool // tasks find the machine as GatewayName; set by Check
}

// GatewayName is the name of the machine for tasks whose network's gateway is another machine.
const GatewayName = "host.docker.internal"

// NetworkOwn is the network that a launcher makes for its tasks.
const NetworkOwn = "own"

// Launcher is a launcher.Launcher, a launcher.Watcher and a launcher.Spooler.
type Launcher struct {
	*taskdir.Dir[*entry]
	config Config
	engine *engine
	id     string

	closing chan struct{}
	looking sync.Mutex // held while the launcher looks at the engine's containers
	swept   bool       // the leftovers of an earlier launcher are removed; guarded by looking

	// Guarded by Mu.
	known   engineInfo // empty until the engine has answered
	network bool       // the own network exists
}

// entry is one task, guarded by Launcher.Mu.
type entry struct {
	record record
	armed  bool // a timer of this launcher counts its grace
}

// New opens the directory. It does not connect to the engine: Check and the other calls do. Close must
// be called.
func New(c Config) (*Launcher, error) {
	c.Socket = cmp.Or(c.Socket, DefaultSocket)
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
	dir, err := taskdir.Open[*entry](c.Machine, 0, c.UID)
	if err != nil {
		return nil, err
	}
	l := &Launcher{Dir: dir, config: c, engine: newEngine(c.Socket), closing: make(chan struct{})}
	dir.Start, dir.Refusal = l.start, refusal
	if l.id, err = identity(c.Dir); err == nil {
		err = c.makeTools()
	}
	if err == nil {
		err = l.Read(decode)
	}
	if err != nil {
		return nil, errors.Join(err, l.Unlock())
	}
	if c.Network == NetworkOwn {
		l.config.Network = "dayfly-" + l.id
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
	if !filepath.IsAbs(c.Socket) {
		refuse("dir", "the engine's socket is not an absolute path")
	}
	if c.Image == "" || strings.ContainsAny(c.Image, " ?#%") {
		refuse("runner_image", "%q is not the name of an image", c.Image)
	}
	for name, image := range c.Images {
		if image == "" || strings.ContainsAny(image, " ?#%") {
			refuse("images", "%q, named %s, is not the name of an image", image, name)
		}
	}
	if c.UID < 1 {
		refuse("uid", "tasks cannot run as user %d", c.UID)
	}
	return errors.Join(errs...)
}

// refusal classifies the errors of a launch.
func refusal(err error) *launcher.Refusal {
	r := &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "the container could not be started: " + err.Error()}
	said, refused := errors.AsType[*apiError](err)
	switch {
	case errors.Is(err, errUnreachable):
		// A request may have arrived; a container of that name shows it.
		r.Unknown = true
		r.Text = "the Docker engine did not answer: " + err.Error()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), refused && strings.Contains(said.message, "no space left"):
		r.Reason, r.Text = workflow.ReasonCapacity, "this machine has no disk space for another task: "+err.Error()
	case refused && strings.Contains(strings.ToLower(said.message), "no such image"):
		r.Reason, r.Permanent = workflow.ReasonLaunchFailed, true
		r.Text = "the engine does not have this image: build it with make image, name another one in runner_image or images, or set pull_image; " + said.message
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
	return l.Dir.List(ctx)
}

// Describe implements launcher.Launcher.
func (l *Launcher) Describe(ctx context.Context, refs ...string) ([]launcher.Task, error) {
	if err := l.look(ctx); err != nil {
		return nil, err
	}
	return l.Dir.Describe(ctx, refs...)
}

// Stop implements launcher.Launcher. It sends SIGTERM to the runner, which interrupts its engine, and
// kills the container after the grace. The stop is on record, so a launcher that starts again counts the
// same grace.
func (l *Launcher) Stop(ctx context.Context, ref, why string) error {
	l.Mu.Lock()
	t, ok := l.Entries[ref]
	if !ok {
		l.Mu.Unlock()
		return fmt.Errorf("stop task %s: %w", ref, launcher.ErrNotFound)
	}
	if !t.record.StoppedAt.IsZero() || t.record.StopWhy != "" {
		l.Mu.Unlock()
		return nil
	}
	rec := t.record
	rec.StopWhy, rec.StopAt = text.Head(cmp.Or(why, "no reason was given"), taskdir.MaxText), l.Now().UTC()
	if err := l.Write(rec.Ref, rec); err != nil {
		l.Mu.Unlock()
		return fmt.Errorf("stop task %s: %w", ref, err)
	}
	t.record = rec
	l.Mu.Unlock()
	l.Log.Info("task asked to stop", "task", ref, "workflow", rec.Workflow, "reason", rec.StopWhy)
	l.signal(ctx, rec)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.arm(ctx, t)
	return nil
}

// signal asks a runner to end. If that fails, it has ended or is killed after its grace.
func (l *Launcher) signal(ctx context.Context, rec record) {
	if err := l.engine.kill(ctx, rec.Container, "SIGTERM"); err != nil && !gone(err) {
		l.Log.Warn("task not signalled", "task", rec.Ref, "err", err)
	}
}

// gone reports whether the engine says that a container is not there or does not run.
func gone(err error) bool { return hasStatus(err, 404) || hasStatus(err, 409) }

// arm has a task killed when its grace is over. The timer outlives the call that asked the task to
// end. The lock is held.
func (l *Launcher) arm(ctx context.Context, t *entry) {
	ctx = context.WithoutCancel(ctx)
	if t.armed || l.Closed {
		return
	}
	t.armed = true
	grace := max(0, t.record.StopAt.Add(l.Grace).Sub(l.Now()))
	l.Work.Go(func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.closing:
			return
		}
		l.Mu.Lock()
		defer l.Mu.Unlock()
		t.armed = false
		if !t.record.StoppedAt.IsZero() {
			return
		}
		t.record.Killed = true
		container, ref := t.record.Container, t.record.Ref
		l.Work.Go(func() {
			if err := l.engine.kill(ctx, container, "SIGKILL"); err != nil && !gone(err) {
				l.Log.Warn("task not killed; trying again", "task", ref, "err", err) // with the next look
			}
		})
	})
}

// Watch implements launcher.Watcher. It looks at a container when the engine reports its end, and at all of them
// from time to time.
func (l *Launcher) Watch(ctx context.Context, stopped func(context.Context, launcher.Task)) error {
	opened, ended := make(chan struct{}, 1), make(chan container, 64)
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { l.listen(ctx, opened, ended) })
	listening.Go(func() {
		resync := time.NewTicker(resyncEvery)
		defer resync.Stop()
		for looked := l.look; ; {
			if err := looked(ctx); err != nil && ctx.Err() == nil {
				l.Log.Warn("tasks not looked at; trying again", "err", err)
			}
			select {
			case <-ctx.Done():
				return
			case c := <-ended:
				looked = func(ctx context.Context) error { return l.lookAtOne(ctx, c) }
			case <-opened:
				looked = l.look
			case <-resync.C:
				looked = l.look
			}
		}
	})
	return l.Dir.Watch(ctx, stopped)
}

// listen reports containers that end, and when it began to listen.
func (l *Launcher) listen(ctx context.Context, opened chan<- struct{}, ended chan<- container) {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, maxPause) {
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
			l.Log.Warn("events of the Docker engine ended; trying again", "err", err)
		}
		_ = wait.For(ctx, pause)
	}
}

// Close gives the directory back. Running tasks go on, and the next launcher finds them.
func (l *Launcher) Close(ctx context.Context) error {
	defer l.engine.close()
	l.Mu.Lock()
	if l.Closed {
		l.Mu.Unlock()
		return nil
	}
	l.Closed = true
	alone := l.network
	for _, t := range l.Active {
		alone = alone && !t.record.StoppedAt.IsZero()
	}
	l.Mu.Unlock()
	close(l.closing)
	l.Work.Wait()
	if alone {
		// The engine keeps a network that another container uses. It is used again.
		_ = l.engine.call(ctx, "DELETE", "/networks/"+l.config.Network, nil, nil, nil)
	}
	return l.Unlock()
}
