package taskdir

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/launcher"
)

const (
	refPrefix    = "task-"
	recordSuffix = ".json"
	// maxRecord bounds what is read back. Without the workflow's own texts a record is below 1 KiB.
	maxRecord = 64 << 10
)

var refForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + refPrefix + `[0-9a-f]{32}$`) })

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

	Since time.Time `json:"-"` // when its end was known to this launcher
	Left  bool      `json:"-"` // something of it is still to be removed, so it stays known
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
	}
}

// NewRef makes a new reference. It never makes the same one twice.
func NewRef() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	return refPrefix + hex.EncodeToString(id[:])
}

// IsRef reports whether a text has the form of a reference.
func IsRef(s string) bool { return refForm().MatchString(s) }

func (d *Dir[E]) recordFile(ref string) string { return filepath.Join(d.Machine.Dir, ref+recordSuffix) }

// Write puts the record of a task on disk, whole or not at all: it is there even if the power goes off right after.
func (d *Dir[E]) Write(ref string, record any) error {
	b, err := json.Marshal(record)
	if err == nil {
		err = disk.Replace(d.recordFile(ref), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write record of task %s: %w", ref, err)
	}
	return nil
}

// Append adds the end of a task to its record, on a line of its own. It may be lost or cut off with the power.
func (d *Dir[E]) Append(ref string, record any) error {
	b, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode end of task %s: %w", ref, err)
	}
	f, err := os.OpenFile(d.recordFile(ref), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("write end of task %s: %w", ref, err)
	}
	// It begins a new line, because the one before may have been cut off.
	_, err = f.Write(slices.Concat([]byte("\n"), b, []byte("\n")))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write end of task %s: %w", ref, err)
	}
	return nil
}

// Read reads the records of an earlier launcher. It puts unreadable ones aside.
func (d *Dir[E]) Read(decode func(b []byte) (E, error)) error {
	files, err := os.ReadDir(d.Machine.Dir)
	if err != nil {
		return fmt.Errorf("read directory for tasks: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(d.Machine.Dir, f.Name())
		if strings.HasSuffix(f.Name(), disk.TempSuffix) {
			d.warn(os.Remove(path), path)
			continue
		}
		ref, ok := strings.CutSuffix(f.Name(), recordSuffix)
		if !ok || !IsRef(ref) {
			continue
		}
		e, err := readRecord(path, decode)
		if err == nil && e.Base().Ref != ref {
			err = errors.New("record of another task")
		}
		if err != nil {
			d.Log.Error("record of task not readable, put aside", "task", ref, "err", err)
			if err := os.Rename(path, path+".broken"); err != nil {
				return fmt.Errorf("put aside record of task %s: %w", ref, err)
			}
			continue
		}
		e.Base().Since = d.Now()
		d.Add(e)
	}
	return nil
}

func readRecord[E any](path string, decode func(b []byte) (E, error)) (e E, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return e, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecord {
		return e, errors.New("not a record")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	return decode(b)
}

// Forget makes a task unknown and removes its record. The lock is held.
func (d *Dir[E]) Forget(ref string) error {
	if e, ok := d.Entries[ref]; ok {
		delete(d.Entries, ref)
		delete(d.keys, e.Base().key())
	}
	return d.RemoveRecord(ref)
}

// RemoveRecord removes the record of a task. It is not an error if there is none.
func (d *Dir[E]) RemoveRecord(ref string) error {
	if err := os.Remove(d.recordFile(ref)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget task %s: %w", ref, err)
	}
	return nil
}

// prune forgets tasks that ended long ago. The lock is held.
func (d *Dir[E]) prune() {
	now := d.Now()
	if now.Sub(d.pruned).Abs() < pruneWait {
		return
	}
	d.pruned = now
	for ref, e := range d.Entries {
		r := e.Base()
		if e.Phase() != launcher.Stopped || r.Left || now.Sub(r.Since) < Keep || d.Has(ref) {
			continue
		}
		if err := d.Forget(ref); err != nil {
			d.Log.Warn("old record not removed", "task", ref, "err", err)
		}
	}
}

// Sweep removes the directories of tasks that an earlier launcher made and that are over. It leaves those in spared.
func (d *Dir[E]) Sweep(spared map[string]bool) {
	files, err := os.ReadDir(d.Machine.Dir)
	d.warn(err, d.Machine.Dir)
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, f := range files {
		ref := f.Name()
		e, known := d.Entries[ref]
		if !f.IsDir() || !IsRef(ref) || spared[ref] || d.Pending[ref] || known && e.Phase() != launcher.Stopped {
			continue
		}
		d.warn(d.RemoveWork(ref), d.WorkDir(ref))
	}
}

// RemoveWork removes the own directory of a task.
func (d *Dir[E]) RemoveWork(ref string) error {
	if !IsRef(ref) {
		return errors.New("the directory does not belong to a task and is not removed")
	}
	return disk.RemoveTree(d.WorkDir(ref))
}

func (d *Dir[E]) warn(err error, path string) {
	if err != nil {
		d.Log.Warn("leftover not removed", "path", path, "err", err)
	}
}
