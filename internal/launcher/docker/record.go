package docker

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
)

const (
	refPrefix    = "task-"
	recordSuffix = ".json"
	idFile       = "id"
	maxRecord    = 64 << 10
)

var (
	refForm       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + refPrefix + `[0-9a-f]{32}$`) })
	containerForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{12,64}$`) })
	idForm        = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{16}$`) })
)

// record is what is on disk about a task before its runner may act, and until well after its end.
type record struct {
	Ref       string    `json:"ref"`
	Workflow  string    `json:"workflow"`
	Attempt   int       `json:"attempt"`
	Placement string    `json:"placement,omitempty"`
	CreatedAt time.Time `json:"created_at"`

	Container string `json:"container"`
	Engine    string `json:"engine"` // the id of the engine that has it: another one's silence proves nothing

	StopWhy string    `json:"stop_why,omitempty"` // it was asked to stop
	StopAt  time.Time `json:"stop_at,omitzero"`   // when its grace began
	Killed  bool      `json:"killed,omitempty"`   // the grace was over
	Hurried bool      `json:"hurried,omitempty"`  // it was killed before that

	StoppedAt time.Time `json:"stopped_at,omitzero"`
	ExitCode  *int      `json:"exit_code,omitempty"`
	Text      string    `json:"text,omitempty"`
}

func (r record) key() key { return key{r.Workflow, r.Attempt, r.Placement} }

func (r record) task() launcher.Task {
	t := launcher.Task{
		Ref: r.Ref, Workflow: r.Workflow, Attempt: r.Attempt, Phase: launcher.Running, CreatedAt: r.CreatedAt,
		ExitCode: r.ExitCode, Text: r.Text,
	}
	switch {
	case !r.StoppedAt.IsZero():
		t.Phase = launcher.Stopped
	case r.StopWhy != "":
		t.Phase = launcher.Stopping
	}
	return t
}

func (r record) check() error {
	switch {
	case !refForm().MatchString(r.Ref):
		return errors.New("record with a strange reference")
	case r.Workflow == "" || r.Attempt < 1:
		return errors.New("record without workflow or attempt")
	case !containerForm().MatchString(r.Container) || r.Engine == "":
		return errors.New("record without its container")
	}
	return nil
}

func newRef() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	return refPrefix + hex.EncodeToString(id[:])
}

// write puts a record on disk, whole or not at all.
func (l *Launcher) write(r record) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = writeFile(filepath.Join(l.config.Dir, r.Ref+recordSuffix), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write record of task %s: %w", r.Ref, err)
	}
	return nil
}

func writeFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".tmp"))
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// identity returns the id of this directory's launcher, made once and kept: its containers carry it.
func identity(dir string) (string, error) {
	path := filepath.Join(dir, idFile)
	b, err := os.ReadFile(path)
	if id := string(bytes.TrimSpace(b)); err == nil && idForm().MatchString(id) {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the launcher's id: %w", err)
	}
	var raw [8]byte
	_, _ = rand.Read(raw[:])
	id := hex.EncodeToString(raw[:])
	if err := writeFile(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("keep the launcher's id: %w", err)
	}
	return id, nil
}

// readRecords reads the records of an earlier launcher and removes what has none.
func (l *Launcher) readRecords() error {
	entries, err := os.ReadDir(l.config.Dir)
	if err != nil {
		return fmt.Errorf("read directory for tasks: %w", err)
	}
	for _, e := range entries {
		ref, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok || !refForm().MatchString(ref) {
			continue
		}
		path := filepath.Join(l.config.Dir, e.Name())
		r, err := readRecord(path)
		if err == nil && r.Ref != ref {
			err = errors.New("record of another task")
		}
		if err != nil {
			// Its container carries what is needed to make another.
			l.log.Error("record of task not readable, put aside", "task", ref, "err", err)
			if err := os.Rename(path, path+".broken"); err != nil {
				return fmt.Errorf("put aside record of task %s: %w", ref, err)
			}
			continue
		}
		l.tasks[ref] = &task{record: r, since: l.now()}
		l.keys[r.key()] = ref
	}
	return nil
}

func readRecord(path string) (record, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return record{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecord {
		return record{}, errors.New("not a record")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("decode record: %w", err)
	}
	return r, r.check()
}

// prune forgets tasks that ended long ago. The lock is held.
func (l *Launcher) prune() {
	now := l.now()
	for ref, t := range l.tasks {
		if t.record.StoppedAt.IsZero() || t.left || now.Sub(t.since) < keep || l.Has(ref) {
			continue
		}
		if err := os.Remove(filepath.Join(l.config.Dir, ref+recordSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.log.Warn("old record not removed", "task", ref, "err", err)
		}
		delete(l.tasks, ref)
		delete(l.keys, t.record.key())
	}
}
