package taskdir

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	refPrefix = "task-"
	refLength = len(refPrefix) + 32
)

// Record is the record of a task. It is on disk before the runner may act and until well after the task's end. A
// launcher's own record embeds it.
type Record struct {
	Ref       string    `json:"ref"`
	Workflow  string    `json:"workflow"`
	Attempt   int       `json:"attempt"`
	Placement string    `json:"placement,omitempty"`
	CreatedAt time.Time `json:"created_at"`

	StoppedAt time.Time `json:"stopped_at,omitzero"`
	ExitCode  *int      `json:"exit_code,omitempty"`
	Text      string    `json:"text,omitempty"`

	Reason workflow.Reason `json:"reason,omitempty"`

	Since        time.Time `json:"-"` // when its end was known to this launcher
	Acknowledged bool      `json:"-"` // its end need not be reported any more
	HasLeftovers bool      `json:"-"` // its container or directory is still to be removed, so it stays known
}

// RecordOf makes the record of a task that begins.
func (d *Dir[E]) RecordOf(ref string, r launcher.Request) Record {
	return Record{Ref: ref, Workflow: r.Workflow, Attempt: r.Attempt, Placement: r.Placement, CreatedAt: d.Now().UTC()}
}

// IsOf reports whether it is the record of a request.
func (r *Record) IsOf(q launcher.Request) bool {
	return r.key() == key{q.Workflow, q.Attempt, q.Placement}
}

func (r *Record) key() key { return key{r.Workflow, r.Attempt, r.Placement} }

// Check refuses a record that could make the launcher remove the wrong thing.
func (r *Record) Check() error {
	switch {
	case !IsRef(r.Ref):
		return errors.New("record with an invalid reference")
	case r.Workflow == "" || r.Attempt < 1:
		return errors.New("record without workflow or attempt")
	}
	return nil
}

func public(e Entry) launcher.Task {
	r := e.Base()
	return launcher.Task{
		Ref: r.Ref, Workflow: r.Workflow, Attempt: r.Attempt, Phase: e.Phase(), CreatedAt: r.CreatedAt, ExitCode: r.ExitCode, Text: r.Text,
		Reason: cmp.Or(r.Reason, launcher.ExitReason(r.ExitCode)),
	}
}

// NewRef makes a new reference. It never makes the same one twice.
func NewRef() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	return refPrefix + hex.EncodeToString(id[:])
}

// IsRef reports whether a text has the form of a reference.
func IsRef(s string) bool {
	digits, ok := strings.CutPrefix(s, refPrefix)
	return ok && len(s) == refLength && strings.Trim(digits, "0123456789abcdef") == ""
}

// Write puts the record of a task on disk: it is there even if the power goes off right after.
func (d *Dir[E]) Write(ref string, record any) error {
	if err := d.journal.put(ref, record, true); err != nil {
		return fmt.Errorf("write record of task %s: %w", ref, err)
	}
	return nil
}

// WriteEnd writes the record of a task that has ended. It may be lost with the power; then the one before it counts.
func (d *Dir[E]) WriteEnd(ref string, record any) error {
	if err := d.journal.put(ref, record, false); err != nil {
		return fmt.Errorf("write end of task %s: %w", ref, err)
	}
	return nil
}

// Read reads the records of an earlier launcher. It puts unreadable ones aside.
func (d *Dir[E]) Read(decode func(b []byte) (E, error)) error {
	var tasks []E
	acknowledged, err := d.journal.read(func(ref string, b []byte) error {
		e, err := decode(b)
		if err == nil && e.Base().Ref != ref {
			err = errors.New("record of another task")
		}
		if err == nil {
			tasks = append(tasks, e)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read records of tasks: %w", err)
	}
	now := d.Now()
	for _, e := range tasks {
		r := e.Base()
		// An end that was not acknowledged stays known for the whole time. Now has the monotonic clock, which is never set.
		r.Acknowledged, r.Since = acknowledged[r.Ref], now
		if r.Acknowledged {
			r.Since = now.Add(-max(0, now.Sub(r.StoppedAt)))
		}
	}
	slices.SortStableFunc(tasks, func(a, b E) int { return a.Base().Since.Compare(b.Base().Since) })
	d.Entries, d.keys = make(map[string]E, len(tasks)), make(map[key]string, len(tasks))
	for _, e := range tasks {
		d.Add(e)
		if e.Phase() == launcher.Stopped {
			d.ended = append(d.ended, e)
			d.Retire(e)
		}
	}
	return nil
}

// RemoveRecord removes the record of a task that never began. It is not an error if there is none.
func (d *Dir[E]) RemoveRecord(ref string) error {
	if !d.journal.has(ref) {
		return nil
	}
	if err := errors.Join(d.journal.note(ref, noteGone), d.journal.forget(ref)); err != nil {
		return fmt.Errorf("forget task %s: %w", ref, err)
	}
	return nil
}

// Forget makes a task that never began unknown. The lock is held.
func (d *Dir[E]) Forget(ref string) error {
	if e, ok := d.Entries[ref]; ok {
		d.drop(e.Base())
	}
	return d.RemoveRecord(ref)
}

func (d *Dir[E]) drop(r *Record) {
	delete(d.Entries, r.Ref)
	delete(d.Active, r.Ref)
	if d.keys[r.key()] == r.Ref {
		delete(d.keys, r.key())
	}
}

// prune forgets tasks that ended long ago: it looks at those and at no other. The lock is held.
func (d *Dir[E]) prune() {
	now := d.Now()
	if now.Sub(d.pruned).Abs() < pruneWait {
		return
	}
	d.pruned = now
	for len(d.ended) > 0 && now.Sub(d.ended[0].Base().Since) >= Keep {
		d.old, d.ended = append(d.old, d.ended[0]), d.ended[1:]
		d.passed++
	}
	d.old = slices.DeleteFunc(d.old, func(e E) bool {
		r := e.Base()
		if r.HasLeftovers || d.Has(r.Ref) {
			return false
		}
		d.drop(r)
		if err := d.journal.forget(r.Ref); err != nil {
			d.Log.Warn("old record not removed", "task", r.Ref, "err", err)
		}
		return true
	})
}

// Sweep removes the directories of tasks that an earlier launcher made and that are over, and files that it did not
// finish. It leaves those in spared.
func (d *Dir[E]) Sweep(spared map[string]bool) {
	files, err := os.ReadDir(d.Machine.Dir)
	d.warn(err, d.Machine.Dir)
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, f := range files {
		ref := f.Name()
		if strings.HasSuffix(ref, disk.TempSuffix) {
			path := filepath.Join(d.Machine.Dir, ref)
			d.warn(os.Remove(path), path)
		}
		e, known := d.Entries[ref]
		if !f.IsDir() || !IsRef(ref) || spared[ref] || d.Pending[ref] || known && e.Phase() != launcher.Stopped {
			continue
		}
		d.warn(d.RemoveWork(ref), d.WorkDir(ref))
	}
}

// RemoveWork removes the own directory of a task, except the states in it that exist nowhere else.
func (d *Dir[E]) RemoveWork(ref string) error {
	if !IsRef(ref) {
		return errors.New("the directory does not belong to a task and is not removed")
	}
	if err := d.keepUnsaved(ref); err != nil {
		return err
	}
	return disk.RemoveTree(d.WorkDir(ref))
}

// keepUnsaved moves the states that a task's engine could not write to where they stay until somebody removes them.
func (d *Dir[E]) keepUnsaved(ref string) error {
	from, to := filepath.Join(d.WorkDir(ref), task.UnsavedName), d.UnsavedDir(ref)
	if err := os.Remove(from); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // there are none, or all are kept elsewhere
	}
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = os.Rename(from, to)
	}
	if err != nil {
		return fmt.Errorf("keep the states that task %s could not write: %w", ref, err)
	}
	d.Log.Error("state of a task is nowhere else: push it, then remove it", "task", ref, "path", to)
	return nil
}

func (d *Dir[E]) warn(err error, path string) {
	if err != nil {
		d.Log.Warn("leftover not removed", "path", path, "err", err)
	}
}
