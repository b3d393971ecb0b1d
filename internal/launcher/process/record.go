package process

import (
	"bytes"
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

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process/remains"
)

const (
	refPrefix    = "task-"
	recordSuffix = ".json"
	// maxRecord bounds what is read back; records are below 1 KiB but for a workflow's own words.
	maxRecord = 64 << 10
)

var refForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + refPrefix + `[0-9a-f]{32}$`) })

// record is what is on disk about a task before its runner may act, and until well after its end.
type record struct {
	Ref       string    `json:"ref"`
	Workflow  string    `json:"workflow"`
	Attempt   int       `json:"attempt"`
	Placement string    `json:"placement,omitempty"`
	CreatedAt time.Time `json:"created_at"`

	PID      int    `json:"pid"`       // of the runner, and the number of its session
	PIDStart uint64 `json:"pid_start"` // when that process began, in the system's own unit
	Boot     string `json:"boot"`      // of the machine, or the container, that it runs in
	Cgroup   string `json:"cgroup,omitempty"`

	EngineUID uint32 `json:"engine_uid,omitempty"`
	StateDir  string `json:"state_dir,omitempty"` // below the state root, when the task writes there

	StoppedAt time.Time `json:"stopped_at,omitzero"`
	ExitCode  *int      `json:"exit_code,omitempty"`
	Text      string    `json:"text,omitempty"`
}

// parseRecord reads a record, the end of its task included where a line of its own says it, and refuses one
// that could send a kill or a removal astray. A line that was cut off while it was written says nothing.
func parseRecord(b []byte) (record, error) {
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	var r record
	if err := json.Unmarshal(first, &r); err != nil {
		return record{}, fmt.Errorf("decode record: %w", err)
	}
	for line := range bytes.Lines(rest) {
		var end record
		if json.Unmarshal(line, &end) == nil && end.Ref == r.Ref && !end.StoppedAt.IsZero() {
			r.StoppedAt, r.ExitCode, r.Text = end.StoppedAt, end.ExitCode, end.Text
		}
	}
	switch {
	case !refForm().MatchString(r.Ref):
		return record{}, errors.New("record with a strange reference")
	case r.Workflow == "" || r.Attempt < 1:
		return record{}, errors.New("record without workflow or attempt")
	case r.PID < 2 || r.Boot == "":
		return record{}, errors.New("record without its process")
	case r.Cgroup != "" && (!filepath.IsAbs(r.Cgroup) || filepath.Clean(r.Cgroup) != r.Cgroup || filepath.Base(r.Cgroup) != r.Ref):
		return record{}, errors.New("record with a cgroup that is not its own")
	case r.StateDir != "" && !filepath.IsLocal(r.StateDir):
		return record{}, errors.New("record with a state outside the state root")
	}
	return r, nil
}

// trace is where the processes of a task are looked for.
func (r record) trace() remains.Trace {
	users := []uint32{uint32(os.Getuid())} //nolint:gosec // a user's number is one
	if r.EngineUID != 0 {
		users = append(users, r.EngineUID)
	}
	return remains.Trace{Boot: r.Boot, Session: r.PID, Start: r.PIDStart, Cgroup: r.Cgroup, Users: users}
}

func (l *Launcher) workDir(ref string) string { return filepath.Join(l.config.Dir, ref) }

// write puts the record of a task on disk, whole or not at all, before the task may act: it is there even
// if the power goes off right after.
func (l *Launcher) write(r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record of task %s: %w", r.Ref, err)
	}
	if err := writeFile(l.recordFile(r.Ref), append(b, '\n')); err != nil {
		return fmt.Errorf("write record of task %s: %w", r.Ref, err)
	}
	return nil
}

// writeEnd adds the end of a task to its record. It may be lost or cut off with the power: then the end is
// proven again.
func (l *Launcher) writeEnd(r record) (err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode end of task %s: %w", r.Ref, err)
	}
	f, err := os.OpenFile(l.recordFile(r.Ref), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("write end of task %s: %w", r.Ref, err)
	}
	// A line of its own, whatever was cut off before it.
	_, err = f.Write(slices.Concat([]byte("\n"), b, []byte("\n")))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write end of task %s: %w", r.Ref, err)
	}
	return nil
}

func (l *Launcher) recordFile(ref string) string {
	return filepath.Join(l.config.Dir, ref+recordSuffix)
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

// recover reads the records, ends what is left of tasks that have no end on record, and removes what
// has no record: a launcher died before it let that task go.
func (l *Launcher) recover() error {
	entries, err := os.ReadDir(l.config.Dir)
	if err != nil {
		return fmt.Errorf("read directory for tasks: %w", err)
	}
	now := l.now()
	var unended []*task
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
			l.log.Error("record of task not readable, put aside", "task", ref, "err", err)
			if err := os.Rename(path, path+".broken"); err != nil {
				return fmt.Errorf("put aside record of task %s: %w", ref, err)
			}
			continue
		}
		t := &task{record: r, phase: launcher.Stopped, since: now}
		l.tasks[ref] = t
		l.keys[key{r.Workflow, r.Attempt, r.Placement}] = ref
		if r.StoppedAt.IsZero() {
			t.phase = launcher.Stopping
			l.holdAgain(r)
			unended = append(unended, t)
		}
	}
	for _, e := range entries {
		path := filepath.Join(l.config.Dir, e.Name())
		switch t := l.tasks[e.Name()]; {
		case strings.HasSuffix(e.Name(), ".tmp"):
			err = os.Remove(path)
		case e.IsDir() && refForm().MatchString(e.Name()) && (t == nil || t.phase == launcher.Stopped):
			err = removeTree(path)
		default:
			continue
		}
		if err != nil {
			l.log.Warn("leftover not removed", "path", path, "err", err)
		}
	}
	if l.cgroup != "" {
		for _, ref := range remains.ListCgroups(l.cgroup) {
			if t := l.tasks[ref]; t == nil || t.phase == launcher.Stopped {
				l.endCgroup(filepath.Join(l.cgroup, ref))
			}
		}
	}
	l.end(unended)
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
	return parseRecord(bytes.TrimSpace(b))
}

// end ends tasks of an earlier launcher, at the same time, and waits a little for all of them.
func (l *Launcher) end(tasks []*task) {
	done := make(chan struct{}, len(tasks))
	for _, t := range tasks {
		r := t.record
		r.Text = "dayfly was stopped or killed while the run was in progress, and the run ended with it"
		if r.Boot != l.boot {
			r.Text = "the machine was restarted while the run was in progress"
		}
		l.wg.Go(func() {
			l.finish(t, r)
			done <- struct{}{}
		})
	}
	timer := time.NewTimer(lastWait)
	defer timer.Stop()
	for range tasks {
		select {
		case <-done:
		case <-timer.C:
			return
		}
	}
}

// endCgroup ends a cgroup of which there is no task that lives.
func (l *Launcher) endCgroup(path string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var err error
	for range 100 {
		var left int
		if left, err = remains.KillCgroup(path); left == 0 {
			break
		}
		timer.Reset(10 * time.Millisecond)
		<-timer.C
	}
	if err = errors.Join(err, remains.RemoveCgroup(path)); err != nil {
		l.log.Warn("leftover not removed", "path", path, "err", err)
	}
}

// prune forgets tasks that ended long ago. The lock is held.
func (l *Launcher) prune() {
	now := l.now()
	if now.Sub(l.pruned).Abs() < pruneWait {
		return
	}
	l.pruned = now
	for ref, t := range l.tasks {
		if t.phase != launcher.Stopped || now.Sub(t.since) < keep || l.Has(ref) {
			continue
		}
		if err := os.Remove(l.recordFile(ref)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.log.Warn("old record not removed", "task", ref, "err", err)
		}
		delete(l.tasks, ref)
		delete(l.keys, key{t.record.Workflow, t.record.Attempt, t.record.Placement})
	}
}
