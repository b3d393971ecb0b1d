package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// errCommand marks an error of starting the command itself, not of preparing for it.
var errCommand = errors.New("start runner")

// entry is one task of this launcher. The first three fields do not change; Launcher.Mu guards the others.
type entry struct {
	stop chan struct{} // closed by Stop; nil for a task that was recovered
	proc *child.Process
	said *tail

	record record
	phase  launcher.Phase
	why    string // why it was asked to stop; empty: it was not asked
}

// Base implements taskdir.Entry.
func (t *entry) Base() *taskdir.Record { return &t.record.Record }

// Phase implements taskdir.Entry.
func (t *entry) Phase() launcher.Phase { return t.phase }

// Where implements taskdir.Entry.
func (t *entry) Where() (key string, value any) { return "pid", t.record.PID }

// start makes everything that a task needs and lets its runner begin. The task that it returns has a record.
func (l *Launcher) start(_ context.Context, ref string, r launcher.Request) (_ *entry, err error) {
	if r.Image != "" {
		return nil, launcher.Never("the workspace asks for the image %q, and jobs of this pool are processes of its machine, which have none: leave it out, or give the workspace another pool", r.Image)
	}
	t := &entry{stop: make(chan struct{}), phase: launcher.Running, record: record{Record: l.RecordOf(ref, r), Boot: l.boot}}
	rec := &t.record
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()

	if err := os.Mkdir(l.WorkDir(rec.Ref), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of task: %w", err)
	}
	undo = append(undo, func() { _ = l.RemoveWork(rec.Ref) })
	if l.StateRoot == "" {
		r.States.Own = ""
	}
	if !r.ReadsState {
		rec.StateDir = r.States.Own
	}
	if l.config.EngineUIDs > 0 {
		if err := l.takeUser(rec); err != nil {
			return nil, err
		}
		undo = append(undo, func() { l.freeUser(*rec) })
		// The engine passes through it to its own files inside.
		if err := os.Chmod(l.WorkDir(rec.Ref), 0o711); err != nil { //nolint:gosec // see above
			return nil, fmt.Errorf("open directory of task: %w", err)
		}
	}
	l.Lend(rec.Ref, r, int(rec.EngineUID))
	if r.States.Own != "" {
		if err := l.openState(r.States.Own, *rec); err != nil {
			return nil, err
		}
	}
	size, err := task.SizeOf(r.Size)
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() {
		if rec.Cgroup != "" {
			_ = cleanup.RemoveCgroup(rec.Cgroup)
		}
	})
	gate, err := l.run(t, r, size)
	if err != nil {
		return nil, err
	}
	defer func() { _ = gate.Close() }()
	undo = append(undo, func() {
		t.proc.Kill()
		_, _ = t.proc.Wait()
		t.said.close()
	})
	if rec.PIDStart, err = cleanup.ProcessStart(rec.PID); err != nil {
		return nil, fmt.Errorf("look at runner: %w", err)
	}
	undo = append(undo, func() { _ = l.RemoveRecord(rec.Ref) })
	if err := l.Write(rec.Ref, rec); err != nil {
		return nil, err
	}
	// From here on the task may act. If its runner is gone already, the task has ended.
	if err := task.OpenGate(gate, nil); err != nil {
		l.Log.Warn("runner ended at its gate", "task", rec.Ref, "err", err)
	}
	return t, nil
}

// run starts the runner and returns the launcher's end of the gate at which the runner waits.
func (l *Launcher) run(t *entry, r launcher.Request, size task.Size) (gate *os.File, err error) {
	in, gate, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make gate: %w", err)
	}
	defer func() { _ = in.Close() }()
	said, w, err := newTail()
	if err != nil {
		_ = gate.Close()
		return nil, fmt.Errorf("make pipe for runner: %w", err)
	}
	spec := child.Spec{
		Path:       l.config.Command[0],
		Args:       l.config.Command[1:],
		Dir:        l.WorkDir(t.record.Ref),
		Stdout:     w,
		Stderr:     w,
		ExtraFiles: []*os.File{in}, // descriptor 3
		NewSession: true,
		Limits:     limits(t.record.EngineUID, size),
	}
	err = l.startIn(t, &spec, r, size)
	_ = w.Close()
	if err != nil {
		_ = gate.Close()
		said.close()
		return nil, fmt.Errorf("%w: %w", errCommand, err)
	}
	t.said = said
	t.record.PID = t.proc.PID()
	return gate, nil
}

// startIn starts the runner in a cgroup of its own. Some systems have cgroups but cannot start a process
// in one (old kernels, containers that filter system calls). There it gives them up for good.
func (l *Launcher) startIn(t *entry, spec *child.Spec, r launcher.Request, size task.Size) (err error) {
	l.Mu.Lock()
	base := l.cgroup
	l.Mu.Unlock()
	spec.Env = l.environ(t.record, r, size, base)
	if base == "" {
		t.proc, err = child.Start(*spec)
		return err
	}
	path := filepath.Join(base, t.record.Ref)
	dir, err := cleanup.MakeCgroup(path, cleanup.Limits{MilliCPU: size.MilliCPU, Memory: int64(size.MemoryMB) << 20, PIDs: size.MaxPIDs})
	if err == nil {
		spec.CgroupFD = dir
		t.proc, err = child.Start(*spec)
		_ = dir.Close()
		if err == nil {
			t.record.Cgroup = path
			return nil
		}
	}
	_ = cleanup.RemoveCgroup(path)
	l.Log.Warn("cgroups given up", "err", err)
	l.Mu.Lock()
	l.cgroup, l.noCgroup = "", "no process can be started in a cgroup: "+err.Error()
	l.Mu.Unlock()
	spec.CgroupFD, spec.Env = nil, l.environ(t.record, r, size, "") // which says so
	t.proc, err = child.Start(*spec)
	return err
}

// mind waits for the end of a task, stops it when asked to, and reports its end.
func (l *Launcher) mind(t *entry) {
	select {
	case <-t.proc.Done():
	case <-t.stop:
	case <-l.ending:
		l.Mu.Lock()
		t.phase, t.why = launcher.Stopping, cmp.Or(t.why, "dayfly is shutting down")
		l.Mu.Unlock()
	}
	killed, hurried := l.interrupt(t)
	exit, err := t.proc.Wait()

	l.Mu.Lock()
	t.phase = launcher.Stopping
	why := t.why
	l.Mu.Unlock()

	rec := t.record
	l.describeEnd(&rec, exit, err, why, killed, hurried)
	t.said.close()
	last := t.said.text()
	failed := exit.Code != 0 || exit.Signal != 0
	if failed {
		rec.Text = launcher.LastWords(rec.Text, last)
	}
	if ended := l.finish(rec); ended && failed && last != "" {
		l.Log.Warn("runner said at last", "task", rec.Ref, "text", last)
	}
}

// interrupt asks a runner that lives to end, and kills it after its grace, or as soon as Close waits no longer.
func (l *Launcher) interrupt(t *entry) (killed, hurried bool) {
	select {
	case <-t.proc.Done():
		return false, false
	default:
	}
	t.proc.Signal(syscall.SIGTERM) // the runner alone: it interrupts its engine itself
	grace := time.NewTimer(l.Grace)
	defer grace.Stop()
	select {
	case <-t.proc.Done():
		return false, false
	case <-grace.C:
		killed = true
	case <-l.hurry:
		killed, hurried = true, true
	}
	t.proc.Kill()
	return killed, hurried
}

// describeEnd writes the exit code, the reason and the sentence of an end into the record.
func (l *Launcher) describeEnd(rec *record, exit child.Exit, err error, why string, killed, hurried bool) {
	switch {
	case err != nil:
		rec.Text = "cannot tell how the runner ended: " + err.Error()
	case exit.Signal != 0:
		rec.Text = fmt.Sprintf("the runner was ended by signal %d (%s)", exit.Signal, exit.Signal)
	default:
		rec.ExitCode = &exit.Code
		rec.Text = launcher.ExitText(exit.Code)
	}
	if why != "" {
		rec.Text += "; it was asked to stop: " + why
	}
	switch {
	case killed && hurried:
		rec.Text += fmt.Sprintf("; it was killed before its grace of %s was over, because dayfly could wait no longer", l.Grace)
	case killed:
		rec.Text += fmt.Sprintf("; it had not ended within %s and was killed", l.Grace)
	}
	if killed || exit.Signal != 0 { // it did not end the processes that its engine left behind
		rec.Text += l.unproven(*rec)
	}
	if exit.Signal == syscall.SIGKILL && !killed && rec.Cgroup != "" && cleanup.KilledForMemory(rec.Cgroup) {
		rec.Reason = workflow.ReasonOutOfMemory
		rec.Text += "; the task used more memory than its size allows"
	}
}

// finish kills the remaining processes of a task, cleans up behind it and reports it as stopped. It returns
// false where the launcher gave up before the end was proven.
func (l *Launcher) finish(rec record) bool {
	if !l.clear(rec) {
		return false
	}
	if rec.Cgroup != "" {
		if err := cleanup.RemoveCgroup(rec.Cgroup); err != nil {
			l.Log.Warn("cgroup not removed", "task", rec.Ref, "err", err)
		}
	}
	if err := l.Keep(rec.Ref, l.WorkDir(rec.Ref)); err != nil {
		l.Log.Error("log or providers of task not kept", "task", rec.Ref, "err", err)
	}
	if err := l.RemoveWork(rec.Ref); err != nil {
		// The next start of the launcher tries again.
		l.Log.Error("directory of task not removed", "task", rec.Ref, "err", err)
	}
	rec.StoppedAt = l.Now().UTC()
	// Only now may another task get its user and its state.
	l.freeUser(rec)
	// Of a task that has ended, only the public part is kept.
	ended := &entry{record: record{Record: rec.Record}, phase: launcher.Stopped}
	// Where the end is lost, the task is found once more after a restart, and its end proven again.
	if err := l.WriteEnd(rec.Ref, ended.record); err != nil {
		l.Log.Error("end of task not recorded", "task", rec.Ref, "err", err)
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	ended.record.Since = rec.StoppedAt
	l.Ended(ended)
	return true
}

// clear kills the remaining processes of a task until there are none. A process may die slowly, in the kernel or
// on a slow disk; until then the task is not over.
func (l *Launcher) clear(rec record) bool {
	began, warned := time.Now(), false
	l.Mu.Lock()
	if u := l.users[rec.EngineUID]; u != nil {
		u.tasks[rec.Ref] = false
	}
	l.Mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		remaining, err := cleanup.Kill(rec.trace(), l.boot)
		if err == nil && remaining == 0 {
			remaining, err = l.killUser(rec)
		}
		if err == nil && remaining == 0 {
			return true
		}
		if !warned && time.Since(began) > lastWait {
			warned = true
			l.Log.Warn("processes of task do not die", "task", rec.Ref, "count", remaining, "err", err)
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-l.giveUp:
			return false
		}
	}
}

// tail keeps the end of a runner's output, for the launcher's log.
type tail struct {
	r    *os.File
	done chan struct{}

	mu   sync.Mutex
	kept []byte
}

const (
	tailSize = 4096
	maxRest  = 1 << 20 // more than a pipe holds: a process that goes on writing is not read for ever
)

// newTail returns a tail and the file that the runner writes to.
func newTail() (*tail, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	t := &tail{r: r, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		_, _ = io.Copy(t, r) // ends with the last writer, or with close
	}()
	return t, w, nil
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// close ends the tail, even if a process still holds its other end.
func (t *tail) close() {
	_ = t.r.SetReadDeadline(time.Unix(1, 0))
	<-t.done
	_ = t.r.SetReadDeadline(time.Time{})
	t.rest()
	_ = t.r.Close()
}

// rest reads the bytes that are in the pipe now and does not wait: the copying may have ended before it read all.
func (t *tail) rest() {
	conn, err := t.r.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		b := make([]byte, tailSize)
		for range maxRest / tailSize {
			n, err := syscall.Read(int(fd), b)
			if err != nil || n <= 0 {
				break
			}
			_, _ = t.Write(b[:n])
		}
		return true
	})
}

// text returns the kept output.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ToValidUTF8(bytes.TrimSpace(t.kept), []byte("?")))
}
