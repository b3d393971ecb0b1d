// Package taskdir is the directory of a launcher whose tasks run on its own machine. It allows one launcher at a
// time and one task for each workflow, attempt and placement. It keeps a record of each task, which is on disk before
// the task may act, and the log that the runner left. The launcher starts tasks and proves their ends.
//
// # Consistency
//
// The lock of the directory keeps a second launcher out while the process of the first one lives. The same request at
// the same time is one launch, and later it is the same task, until the record is forgotten. That is at least two
// hours after the end was known, and not before the log was taken. A record is on disk as a whole before Write returns.
// The cost of a task does not depend on how many have ended: they are kept in their order, and nothing walks them.
package taskdir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	// Keep is how long a record outlives its task, at least.
	Keep      = 2 * time.Hour
	pruneWait = time.Second // between two looks for records that are older
	// MaxText bounds each text of a request, and with them a record.
	MaxText = 8192
)

// Entry is one task of a launcher. The lock of its directory guards it.
type Entry interface {
	Base() *Record
	Phase() launcher.Phase
	Where() (key string, value any) // where it runs, for the log
}

// Dir is the directory of a launcher. Launch, List, Describe and Watch are those of launcher.Launcher and
// launcher.Watcher.
type Dir[E Entry] struct {
	SpoolDir
	launcher.Machine // with its defaults filled in
	Now              func() time.Time

	// Start is the launcher's own part of a launch. The task that it returns is on record and may act. Begun,
	// which may be nil, is then called with the task and with the lock held. Refusal classifies an error of Start. They
	// are set once.
	Start   func(ctx context.Context, ref string, r launcher.Request) (E, error)
	Begun   func(e E)
	Refusal func(err error) *launcher.Refusal

	Work sync.WaitGroup // of launches and of goroutines for tasks: closing a launcher waits for it

	Mu      sync.Mutex      // guards the fields below and all entries
	Entries map[string]E    // by reference: living tasks, and for some time those that ended
	Active  map[string]E    // those of them that List returns
	Pending map[string]bool // references of launches that are under way
	Closed  bool            // no task is launched any more

	lock      *os.File
	keys      map[key]string // to reference
	launching map[key]*launch
	journal   *journal
	ended     []E           // in the order in which that was known
	passed    int           // how many were dropped from the front of ended
	old       []E           // of these, those that are still known because they have leftovers or a log
	pruned    time.Time     // when old tasks were last forgotten
	changed   chan struct{} // closed, and replaced, when a task has stopped
}

// key identifies a request: two with the same key are the same.
type key struct {
	workflow  string
	attempt   int
	placement string
}

// launch is a launch that is under way; done is closed when the other fields are set.
type launch struct {
	done chan struct{}
	task launcher.Task
	err  error
}

// Open makes the directories and takes the lock, which Unlock gives back. The mode is that of the directory for tasks; 0
// leaves one that exists alone. The owner is the user of runners.
func Open[E Entry](m launcher.Machine, mode fs.FileMode, owner int) (*Dir[E], error) {
	if m.Log == nil {
		m.Log = slog.New(slog.DiscardHandler)
	}
	if m.Now == nil {
		m.Now = time.Now
	}
	m.Grace = cmp.Or(m.Grace, launcher.DefaultGrace)
	d := &Dir[E]{
		SpoolDir: SpoolDir{Dir: filepath.Join(m.Dir, "spools"), Owner: owner, Now: m.Now}, Machine: m, Now: m.Now,
		Entries: map[string]E{}, Active: map[string]E{}, Pending: map[string]bool{}, keys: map[key]string{}, launching: map[key]*launch{},
		journal: &journal{dir: m.Dir, now: m.Now, log: m.Log, home: map[string]*segment{}},
		changed: make(chan struct{}),
	}
	if err := os.MkdirAll(m.Dir, cmp.Or(mode, 0o700)); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if mode != 0 {
		if err := os.Chmod(m.Dir, mode); err != nil {
			return nil, fmt.Errorf("set mode of directory: %w", err)
		}
	}
	if m.StateRoot != "" {
		if err := makeRoot(m.StateRoot); err != nil {
			return nil, err
		}
	}
	var err error
	if d.lock, err = os.OpenFile(filepath.Join(m.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open lock of directory for tasks: %w", err)
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = d.lock.Close()
		return nil, workflow.Refuse(workflow.ErrInUse, "dir", "the directory %s is in use by another launcher: stop that one or choose another data directory", m.Dir)
	}
	return d, nil
}

// Unlock gives the directory to the next launcher. It may be called more than once.
func (d *Dir[E]) Unlock() error {
	d.journal.close()
	if err := d.lock.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

// Keep moves the log and the providers of a task out of its directory. All processes of the task must have ended.
func (d *Dir[E]) Keep(ref, workDir string) error {
	err := d.SpoolDir.Keep(ref, workDir)
	if d.Providers != nil {
		err = errors.Join(err, d.Providers.Take(ref, workDir))
	}
	return err
}

// Lend gives a task the cache of packages of its workspace, if it may have that. A run goes on without one.
func (d *Dir[E]) Lend(ref string, r launcher.Request, owner int) {
	if d.Providers == nil || !r.Packages {
		return
	}
	if err := d.Providers.Lend(ref, r.WorkspaceID, d.WorkDir(ref), owner); err != nil {
		d.Log.Warn("no cache of packages for a task", "task", ref, "err", err)
	}
}

// WorkDir is the own directory of a task.
func (d *Dir[E]) WorkDir(ref string) string { return filepath.Join(d.Machine.Dir, ref) }

// Launch implements launcher.Launcher.
func (d *Dir[E]) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	if err := ctx.Err(); err != nil {
		return launcher.Task{}, fmt.Errorf("launch task of workflow %s: %w", r.Workflow, err)
	}
	if err := d.check(r); err != nil {
		return launcher.Task{}, err
	}
	k := key{r.Workflow, r.Attempt, r.Placement}
	d.Mu.Lock()
	if ref, ok := d.keys[k]; ok {
		defer d.Mu.Unlock()
		return public(d.Entries[ref]), nil
	}
	if under, ok := d.launching[k]; ok {
		d.Mu.Unlock()
		select {
		case <-under.done:
			return under.task, under.err
		case <-ctx.Done():
			return launcher.Task{}, &launcher.Refusal{Reason: workflow.ReasonUnavailable, Unknown: true, Text: "the launch did not finish in time"}
		}
	}
	if d.Closed {
		d.Mu.Unlock()
		return launcher.Task{}, &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "dayfly is shutting down"}
	}
	d.prune()
	under, ref := &launch{done: make(chan struct{})}, NewRef()
	d.launching[k], d.Pending[ref] = under, true
	d.Work.Add(1) // closing waits for launches that are under way
	d.Mu.Unlock()
	defer d.Work.Done()

	e, err := d.Start(ctx, ref, r)

	d.Mu.Lock()
	defer d.Mu.Unlock()
	delete(d.launching, k)
	delete(d.Pending, ref)
	defer close(under.done)
	if err != nil {
		refusal, ok := errors.AsType[*launcher.Refusal](err)
		if !ok {
			refusal = d.Refusal(err)
		}
		under.err = refusal
		d.Log.Warn("launch refused", "workflow", r.Workflow, "attempt", r.Attempt, "err", refusal)
		return launcher.Task{}, under.err
	}
	if known, ok := d.Entries[e.Base().Ref]; ok { // it was found by its name
		e = known
	}
	d.Add(e)
	d.keys[k] = e.Base().Ref
	under.task = public(e)
	if d.Begun != nil {
		d.Begun(e)
	}
	key, where := e.Where()
	d.Log.Info("task launched", "task", under.task.Ref, "workflow", r.Workflow, "attempt", r.Attempt, key, where)
	return under.task, nil
}

// check refuses a request that can never be launched.
func (d *Dir[E]) check(r launcher.Request) error {
	if r.Workflow == "" || r.Attempt < 1 || r.Ticket == "" || r.Relay == "" {
		return launcher.Never("the request has no workflow, attempt, ticket or relay")
	}
	for _, s := range []string{r.Workflow, r.Placement, r.Ticket, r.Relay, r.SourceDirectory, r.SourcePath} {
		if strings.ContainsRune(s, 0) || len(s) > MaxText {
			return launcher.Never("the request has a zero byte or a text of more than %d characters", MaxText)
		}
	}
	if _, err := task.SizeOf(r.Size); err != nil {
		return launcher.Never("%v", err)
	}
	if _, err := launcher.Disk(r.DiskGiB, d.DiskQuota, d.MaxDisk); err != nil {
		return err
	}
	if r.SourceDirectory != "" {
		if d.Sources == nil {
			return launcher.Never("this launcher takes no directory sources")
		}
		if err := d.Sources.Check(r.SourceDirectory); err != nil {
			return launcher.Never("%v", err)
		}
	}
	return d.checkStates(r)
}

// Add makes a task known. The lock is held.
func (d *Dir[E]) Add(e E) {
	r := e.Base()
	d.Entries[r.Ref], d.Active[r.Ref] = e, e
	if _, taken := d.keys[r.key()]; !taken {
		d.keys[r.key()] = r.Ref
	}
}

// Ended notes that a known task has stopped, and notifies the watchers. The lock is held.
func (d *Dir[E]) Ended(e E) {
	r := e.Base()
	d.Entries[r.Ref], d.Active[r.Ref] = e, e
	d.ended = append(d.ended, e)
	close(d.changed)
	d.changed = make(chan struct{})
	d.Log.Info("task stopped", "task", r.Ref, "workflow", r.Workflow, "attempt", r.Attempt, "reason", r.Text)
}

// Acknowledge implements launcher.Watcher.
func (d *Dir[E]) Acknowledge(ref string) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	e, ok := d.Active[ref]
	if !ok || e.Base().Acknowledged || e.Phase() != launcher.Stopped {
		return
	}
	e.Base().Acknowledged = true
	d.Retire(e)
	if err := d.journal.note(ref, noteAcknowledged); err != nil {
		d.Log.Warn("acknowledgement of an end not recorded; the next start repeats the report", "task", ref, "err", err)
	}
}

// Retire takes a task from the active ones if nothing remains to be done about it. The lock is held.
func (d *Dir[E]) Retire(e E) {
	if r := e.Base(); r.Acknowledged && !r.HasLeftovers {
		delete(d.Active, r.Ref)
	}
}

// List implements launcher.Launcher.
func (d *Dir[E]) List(context.Context) ([]launcher.Task, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	d.prune()
	return d.list(func(E) bool { return true }), nil
}

// list returns the active tasks that are wanted, the oldest first. The lock is held.
func (d *Dir[E]) list(wanted func(E) bool) []launcher.Task {
	var out []launcher.Task
	for _, e := range d.Active {
		if wanted(e) {
			out = append(out, public(e))
		}
	}
	slices.SortFunc(out, func(a, b launcher.Task) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.Ref, b.Ref))
	})
	return out
}

// Describe implements launcher.Launcher.
func (d *Dir[E]) Describe(_ context.Context, refs ...string) ([]launcher.Task, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	var out []launcher.Task
	for _, ref := range refs {
		if e, ok := d.Entries[ref]; ok {
			out = append(out, public(e))
		}
	}
	return out, nil
}

// Unended returns the tasks that are not known to have ended.
func (d *Dir[E]) Unended() []string {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	var refs []string
	for _, t := range d.list(func(e E) bool { return e.Phase() != launcher.Stopped }) {
		refs = append(refs, t.Ref)
	}
	return refs
}

// Watch implements launcher.Watcher. It returns nil when ctx ends. A call begins with the stopped tasks that are still
// known and not acknowledged, and then reports each that stops.
func (d *Dir[E]) Watch(ctx context.Context, stopped func(context.Context, launcher.Task)) error {
	next := 0 // of all that have stopped, the first that this call has not looked at
	for first := true; ; first = false {
		d.Mu.Lock()
		changed := d.changed
		var stops []launcher.Task
		for _, e := range d.ended[max(0, next-d.passed):] {
			if !first || !e.Base().Acknowledged {
				stops = append(stops, public(e))
			}
		}
		next = d.passed + len(d.ended)
		d.Mu.Unlock()
		for _, t := range stops {
			select {
			case <-ctx.Done():
				return nil
			default:
			}
			stopped(ctx, t)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
