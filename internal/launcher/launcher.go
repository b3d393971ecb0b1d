// Package launcher is "run this attempt somewhere": start a task, list tasks, stop one, and define the proof that one
// has ended. It knows attempts, tasks and reasons, but not the people behind them.
package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/env"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ErrNotFound means that the launcher does not know the task: it is gone, or never existed. It proves
// an end only where the implementation's documentation says so.
var ErrNotFound = errors.New("launcher: no such task")

// Refusal is a launch that did not happen. A transient one may succeed later or elsewhere; a
// permanent one never will as it is.
type Refusal struct {
	Reason    workflow.Reason // throttled, quota, capacity, unavailable; launch_failed when permanent
	Permanent bool
	Text      string // a sentence that a person can act on
	// Unknown says that the answer was lost: the task may exist. The same request must be
	// repeated before anything else is tried.
	Unknown bool
}

func (r *Refusal) Error() string { return fmt.Sprintf("launch refused (%s): %s", r.Reason, r.Text) }

// Request describes a task to launch. The same request twice is the same task: a launcher recognises it by
// Workflow, Attempt and Placement.
type Request struct {
	task.Needs

	Workflow   string
	Placement  string // names the try: the place and the capacity; part of the idempotency key
	Ticket     string // sealed; no secret by itself
	Relay      string // address that the task reports to
	States     task.StateDirs
	ReadsState bool // it only reads the state: it needs no right to write there

	// MayHaveStarted says that an earlier try of this request may have started the task, because its answer may be
	// lost. A refusal that was given without looking for that task is then Unknown too.
	MayHaveStarted bool
}

// Never refuses a request that can never be launched as it is.
func Never(format string, args ...any) *Refusal {
	return &Refusal{Reason: workflow.ReasonLaunchFailed, Permanent: true, Text: fmt.Sprintf(format, args...)}
}

// Machine configures a launcher whose tasks run on its own machine.
type Machine struct {
	// Dir holds the records and the tasks' own directories. It belongs to one launcher at a time.
	Dir         string
	StateRoot   string   // the states in directories are below it; empty: tasks that need one are refused
	StateStore  string   // id of that root, by which runs tell it from the root of another machine
	SourceRoots []string // a directory source must be below one of them
	Sources     Sources  // of this machine; nil means that it has none
	EnginePath  []string // directories in which tasks look for engines first
	ToolsDir    string   // for engines that are downloaded; empty: none are, and tasks have none
	Downloads   []string // engines that may be downloaded

	ProvidersDir string    // cache of providers, which tasks read; empty: they have none
	Providers    Providers // takes the providers that tasks leave for it; set both or neither

	// EnvAllow names the variables that the runner gets. It may also resolve secret references with
	// them. LookupEnv gives their values. Set both or neither.
	EnvAllow  []string
	LookupEnv func(name string) (string, bool)

	Hooks     []string // SHA-256 of the hooks that may run; none means every hook
	DiskQuota int      // GiB that each task may use; 0 means no bound
	MaxDisk   int      // limit of the GiB that a workspace may ask for; 0 means DiskQuota

	Grace time.Duration    // from asking a runner to end to killing all of it; 0 means DefaultGrace
	Log   *slog.Logger     // nil means none
	Now   func() time.Time // nil means time.Now
}

// Sources are the directory sources of a machine. A refusal is a workflow.Error, in a sentence.
type Sources interface {
	// Check refuses a directory that is a data directory of Dayfly, has one in it or lies in one.
	Check(dir string) error
	// Copy copies the part of a directory that a task may have to another one, which is empty. path leads from the
	// directory to the root module. It ends with ctx.
	Copy(ctx context.Context, dir, path, dest string) error
}

// Providers is the cache of providers of a machine.
type Providers interface {
	// Take moves the providers that a task left for the cache out of its work directory, if there are any. All processes
	// of the task must have ended.
	Take(ref, workDir string) error
	// Lend puts a workspace's cache of packages into the work directory of a task, for its user; 0: that of this process.
	Lend(ref, workspace, workDir string, owner int) error
}

// DefaultGrace is the longest grace of ECS.
const DefaultGrace = 2 * time.Minute

// Check calls refuse for every mistake.
func (m Machine) Check(refuse func(field, format string, args ...any)) {
	if !filepath.IsAbs(m.Dir) {
		refuse("dir", "the directory for tasks is not an absolute path")
	}
	if m.StateRoot != "" && !filepath.IsAbs(m.StateRoot) {
		refuse("state_root", "the directory for states is not an absolute path")
	}
	for _, name := range m.EnvAllow {
		if !env.Valid(name) || env.Ours(name) {
			refuse("env_forward_allowlist", "%q cannot be forwarded: use a name of letters, digits and _ that does not begin with DAYFLY_", name)
		}
	}
	if len(m.EnvAllow) > 0 && m.LookupEnv == nil {
		refuse("env_forward_allowlist", "variables are to be forwarded, but nothing gives their values")
	}
	if m.Grace < 0 {
		refuse("grace", "the grace is negative")
	}
}

// Forwarded returns the allowed variables that have a value.
func (m Machine) Forwarded() map[string]string {
	out := map[string]string{}
	for _, name := range m.EnvAllow {
		if v, ok := m.LookupEnv(name); ok && !strings.ContainsRune(v, 0) {
			out[name] = v
		}
	}
	return out
}

// UnsavedDir is the directory of the states that a task's engine could not write and that exist nowhere else.
func (m Machine) UnsavedDir(ref string) string { return filepath.Join(m.Dir, task.UnsavedName, ref) }

// OnThis adds the name of this machine to a path.
func OnThis(path string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "the machine of the agent"
	}
	return path + " on " + host
}

// Environment returns the environment that every runner gets for a request. A launcher adds its own part.
func (m Machine) Environment(r Request, ref string) task.Environment {
	disk, _ := Disk(r.DiskGiB, m.DiskQuota, m.MaxDisk) // the launch was refused otherwise
	return task.Environment{
		DiskGiB: disk,

		Workflow: r.Workflow, Attempt: r.Attempt, Task: ref, Ticket: r.Ticket, Relay: r.Relay, Forward: m.EnvAllow,
		Grace: task.EngineGrace(cmp.Or(m.Grace, DefaultGrace)), StateStore: m.StateStore, Hooks: m.Hooks,
		ProvidersDir: m.ProvidersDir, Unsaved: OnThis(m.UnsavedDir(ref)),
	}
}

// Phase is the phase of a task.
type Phase string

// The phases of a task. Stopped is reported only when the end is proven: no remaining part of the task could act.
const (
	Starting Phase = "starting"
	Running  Phase = "running"
	Stopping Phase = "stopping"
	Stopped  Phase = "stopped"
)

// Task is one task as the launcher sees it.
type Task struct {
	Ref       string // never reused
	Workflow  string
	Attempt   int
	Phase     Phase
	CreatedAt time.Time
	ExitCode  *int   // when stopped, where known
	Text      string // when stopped: why, in a sentence

	Reason workflow.Reason // when stopped: the cause of its end, where that is known (see workflow.Reason.EndsTask)

	Unstarted bool // when stopped: its launcher says that it never ran
}

// ExitReason returns what an exit code of the runner says by itself; empty if it says nothing.
func ExitReason(code *int) workflow.Reason {
	if code != nil && *code == task.ExitUnreported {
		return workflow.ReasonRelayLost
	}
	return workflow.ReasonNone
}

// ExitText names the exit code with which the runner ended, and explains the runner's own code.
func ExitText(code int) string {
	text := fmt.Sprintf("the runner ended with exit code %d", code)
	if code == task.ExitUnreported {
		text += ": it could not reach its relay to hand the result over"
	}
	return text
}

// LastWords adds to a sentence the end of the output of a runner that failed. A runner masks its own log; it cannot
// mask the cause that a panic of Go prints, so that is left out.
func LastWords(sentence, said string) string {
	const limit = 500
	before, _, panicked := strings.Cut(said, "panic: ")
	if !panicked {
		before, _, panicked = strings.Cut(said, "\ngoroutine ") // its beginning was cut off
		if panicked {
			before = ""
		}
	}
	if panicked {
		said = before + "it panicked"
	}
	if said == "" {
		return sentence
	}
	if over := len(said) - limit; over > 0 {
		said = "..." + strings.ToValidUTF8(said[over:], "")
	}
	return sentence + "; the runner said at last: " + said
}

// Launcher is the contract of every implementation. Methods may be called concurrently.
type Launcher interface {
	// Launch starts a task. If it is called again with the same request while the task lives, or within
	// an hour of its end, it returns that task and starts no other. If it cannot launch, the error is
	// a *Refusal.
	Launch(ctx context.Context, r Request) (Task, error)
	// List returns every live task of this launcher, and the tasks that stopped within the last hour and are not
	// acknowledged (see Watcher). It may return others that stopped too.
	List(ctx context.Context) ([]Task, error)
	// Describe returns the tasks that refs name. Unknown ones are left out.
	Describe(ctx context.Context, refs ...string) ([]Task, error)
	// Stop asks a task to end with a signal, and kills it after its grace. It returns nil when the end
	// has begun and ErrNotFound when there is no such task. Repeat it until Describe says Stopped.
	Stop(ctx context.Context, ref, why string) error
}

// Watcher is a Launcher that reports by itself that a task stopped, at least once per task.
type Watcher interface {
	// Watch calls stopped for each task whose end is proven, until ctx ends. It makes one call at a
	// time. A task that stopped before Watch began is reported if it stopped within the last hour and is not
	// acknowledged.
	Watch(ctx context.Context, stopped func(context.Context, Task)) error
	// Acknowledge says that a task's end need not be reported any more, also after a restart. Describe and Launch know
	// the task as long as any other.
	Acknowledge(ref string)
}

// Spooler is a Launcher that keeps the logs that the runners of ended tasks could not deliver.
type Spooler interface {
	// Spools lists the tasks whose runners left a log.
	Spools() ([]string, error)
	// Spool opens the log that a task's runner left. The error is fs.ErrNotExist if there is none. Workflow code
	// may have written the log.
	Spool(ref string) (*os.File, error)
	// DropSpool removes it. It is not an error if there is none.
	DropSpool(ref string) error
}
