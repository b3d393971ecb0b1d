package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
)

// record is the record of a task on disk.
type record struct {
	taskdir.Record

	PID      int    `json:"pid"`       // of the runner, and the number of its session
	PIDStart uint64 `json:"pid_start"` // when that process began, in the system's own unit
	Boot     string `json:"boot"`      // of the machine, or the container, that it runs in
	Cgroup   string `json:"cgroup,omitempty"`

	EngineUID uint32 `json:"engine_uid,omitempty"`
	StateDir  string `json:"state_dir,omitempty"` // below the state root, when the task writes there
}

// parseRecord reads a record. It refuses one that could make the launcher kill or remove the wrong thing.
func parseRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("decode record: %w", err)
	}
	if err := r.Check(); err != nil {
		return record{}, err
	}
	switch {
	case r.StoppedAt.IsZero() && (r.PID < 2 || r.Boot == ""):
		return record{}, errors.New("record without its process")
	case r.Cgroup != "" && (!filepath.IsAbs(r.Cgroup) || filepath.Clean(r.Cgroup) != r.Cgroup || filepath.Base(r.Cgroup) != r.Ref):
		return record{}, errors.New("record with a cgroup that is not its own")
	case r.StateDir != "" && !filepath.IsLocal(r.StateDir):
		return record{}, errors.New("record with a state outside the state root")
	}
	return r, nil
}

// trace says where to look for the processes of a task.
func (r record) trace() cleanup.Trace {
	users := []uint32{uint32(os.Getuid())} //nolint:gosec // a user's number is one
	if r.EngineUID != 0 {
		users = append(users, r.EngineUID)
	}
	return cleanup.Trace{Boot: r.Boot, Session: r.PID, Start: r.PIDStart, Cgroup: r.Cgroup, Users: users}
}

// recover reads the records, ends the tasks that have no end on record, and removes the
// directories and cgroups that have no record: their launcher died before the task began.
func (l *Launcher) recover() error {
	err := l.Read(func(b []byte) (*entry, error) {
		r, err := parseRecord(b)
		t := &entry{record: r, phase: launcher.Stopped}
		if r.StoppedAt.IsZero() {
			t.phase = launcher.Stopping
		}
		return t, err
	})
	if err != nil {
		return err
	}
	var unended []*entry
	for _, t := range l.Active {
		if t.phase != launcher.Stopped {
			l.holdAgain(t.record)
			unended = append(unended, t)
		}
	}
	l.Sweep(nil)
	if l.cgroup != "" {
		for _, ref := range cleanup.ListCgroups(l.cgroup) {
			if t := l.Entries[ref]; t == nil || t.phase == launcher.Stopped {
				l.endCgroup(filepath.Join(l.cgroup, ref))
			}
		}
	}
	l.end(unended)
	return nil
}

// end ends the tasks of an earlier launcher at the same time, and waits a little for all of them.
func (l *Launcher) end(tasks []*entry) {
	done := make(chan struct{}, len(tasks))
	for _, t := range tasks {
		r := t.record
		r.Text = "dayfly was stopped or killed while the run was in progress, and the run ended with it"
		if r.Boot != l.boot {
			r.Text = "the machine was restarted while the run was in progress"
		}
		r.Text += l.unproven(r)
		l.Work.Go(func() {
			l.finish(r)
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

// endCgroup ends a cgroup that has no live task.
func (l *Launcher) endCgroup(path string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var err error
	for range 100 {
		var remaining int
		if remaining, err = cleanup.KillCgroup(path); remaining == 0 {
			break
		}
		timer.Reset(10 * time.Millisecond)
		<-timer.C
	}
	if err = errors.Join(err, cleanup.RemoveCgroup(path)); err != nil {
		l.Log.Warn("leftover not removed", "path", path, "err", err)
	}
}
