package docker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// look compares the known tasks with the engine's containers. It records ends, adopts containers that
// have no record, removes those that never began and cleans up those that ended. It decides nothing
// while the engine does not answer.
func (l *Launcher) look(ctx context.Context) error {
	l.looking.Lock()
	defer l.looking.Unlock()
	l.Mu.Lock()
	before := make(map[string]bool, len(l.Active)) // a task that is launched from here on may be missing from the list
	for ref := range l.Active {
		before[ref] = true
	}
	l.Mu.Unlock()
	containers, err := l.engine.list(ctx, labelLauncher+"="+l.id)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	seen := map[string]bool{}
	for _, c := range containers {
		ref := c.Labels[labelTask]
		if !taskdir.IsRef(ref) {
			continue
		}
		seen[ref] = true
		if err := l.lookAt(ctx, ref, c); err != nil {
			return err
		}
	}
	for ref := range before {
		if !seen[ref] {
			if err := l.missing(ctx, ref); err != nil {
				return err
			}
		}
	}
	if !l.swept {
		l.swept = true
		l.Sweep(seen)
	}
	return nil
}

// lookAtOne looks at a container that is said to have ended. The engine's list may not show it yet.
func (l *Launcher) lookAtOne(ctx context.Context, c container) error {
	l.looking.Lock()
	defer l.looking.Unlock()
	ref := c.Labels[labelTask]
	l.Mu.Lock()
	known := l.Entries[ref] != nil
	l.Mu.Unlock()
	if !known {
		return nil
	}
	return l.lookAt(ctx, ref, c)
}

// lookAt compares one container with its task.
func (l *Launcher) lookAt(ctx context.Context, ref string, c container) error {
	l.Mu.Lock()
	t := l.Entries[ref]
	pending := l.Pending[ref]
	l.Mu.Unlock()
	if pending || c.State == "removing" {
		return nil
	}
	if c.State == "created" {
		return l.unbegun(ctx, ref, c.ID)
	}
	if t == nil {
		var err error
		if t, err = l.adopt(ctx, ref, c.ID); err != nil || t == nil {
			return err
		}
	}
	l.Mu.Lock()
	over, stopping := !t.record.StoppedAt.IsZero(), t.record.StopWhy != ""
	if !over && stopping && c.State != "exited" && c.State != "dead" {
		l.arm(ctx, t)
	}
	rec := t.record
	l.Mu.Unlock()

	if c.State != "exited" && c.State != "dead" {
		return nil
	}
	if over {
		l.clear(ctx, t)
		return nil
	}
	return l.recordEnd(ctx, t, rec, c.ID)
}

// recordEnd records the end of a task whose container was listed as ended, if that is still so.
func (l *Launcher) recordEnd(ctx context.Context, t *entry, rec record, id string) error {
	info, err := l.engine.inspect(ctx, id)
	if hasStatus(err, http.StatusNotFound) {
		return nil // it was removed: the next look finds that
	}
	if err != nil {
		return fmt.Errorf("look at container of task %s: %w", rec.Ref, err)
	}
	if info.State.Status != "exited" && info.State.Status != "dead" {
		return nil
	}

	rec.ExitCode, rec.Text = ending(rec, info, l.Grace.String())
	if outOfMemory(info) {
		rec.Reason = workflow.ReasonOutOfMemory
	}
	if info.State.ExitCode != 0 {
		if said, err := l.engine.tail(ctx, id); err == nil && said != "" {
			l.Log.Warn("runner said at last", "task", rec.Ref, "text", said)
			rec.Text = launcher.LastWords(rec.Text, said)
		}
	}
	return l.finish(ctx, t, rec)
}

// unbegun removes a container that a launcher made but did not start, because it died or failed. The list
// does not prove that, because the container may have started since. So it asks again: the launch is over,
// and the answer stays true.
func (l *Launcher) unbegun(ctx context.Context, ref, id string) error {
	info, err := l.engine.inspect(ctx, id)
	if hasStatus(err, http.StatusNotFound) || err == nil && info.State.Status != "created" {
		return nil
	}
	if err == nil {
		err = l.engine.remove(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("remove container of task %s: %w", ref, err)
	}
	return l.forget(ref)
}

// outOfMemory reports whether a container failed after the system killed a process of it for memory.
func outOfMemory(info containerInfo) bool {
	return info.State.OOMKilled && info.State.ExitCode != 0 && info.State.ExitCode != task.ExitUnreported
}

// ending says in a sentence how a container ended. An exit code above 128 stands for a signal: the
// runner's own codes are 0, 1 and task.ExitUnreported.
func ending(rec record, info containerInfo, grace string) (code *int, text string) {
	n := info.State.ExitCode
	switch {
	case outOfMemory(info):
		text = "a process of the task used more memory than its size allows, and the system killed it"
	case n > 128 && n < 128+65:
		text = fmt.Sprintf("the runner was ended by signal %d", n-128)
	default:
		text = launcher.ExitText(n)
	}
	code = &n
	if n > 128 && n < 128+65 {
		code = nil
	}
	if info.State.Error != "" {
		text += "; the engine says: " + info.State.Error
	}
	if rec.StopWhy != "" {
		text += "; it was asked to stop: " + rec.StopWhy
	}
	switch {
	case rec.Killed:
		text += fmt.Sprintf("; it had not ended within %s and was killed", grace)
	case rec.Hurried:
		text += fmt.Sprintf("; it was killed before its grace of %s was over, because dayfly could wait no longer", grace)
	}
	return code, text
}

// missing decides about a task whose container was not listed. The task is over if the engine that had
// the container says that it is gone. Another engine cannot say that.
func (l *Launcher) missing(ctx context.Context, ref string) error {
	l.Mu.Lock()
	t := l.Entries[ref]
	if t == nil {
		l.Mu.Unlock()
		return nil
	}
	rec := t.record
	l.Mu.Unlock()
	if !rec.StoppedAt.IsZero() {
		if rec.HasLeftovers {
			l.clear(ctx, t)
		}
		return nil
	}
	info, err := l.engine.info(ctx)
	if err != nil {
		return fmt.Errorf("ask which engine this is: %w", err)
	}
	if info.ID != rec.Engine {
		l.Log.Warn("task belongs to another Docker engine; its end is not known", "task", ref, "engine", rec.Engine)
		return nil
	}
	if _, err := l.engine.inspect(ctx, rec.Container); !hasStatus(err, http.StatusNotFound) {
		if err != nil {
			return fmt.Errorf("look at container of task %s: %w", ref, err)
		}
		return nil
	}
	rec.Text = "the task's container is gone from the Docker engine: somebody removed it"
	return l.finish(ctx, t, rec)
}

// adopt makes a record from a container's labels; nil means that the container is gone.
func (l *Launcher) adopt(ctx context.Context, ref, id string) (*entry, error) {
	info, err := l.engine.inspect(ctx, id)
	if hasStatus(err, http.StatusNotFound) {
		return nil, nil //nolint:nilnil // gone is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("look at container of task %s: %w", ref, err)
	}
	engine, err := l.know(ctx)
	if err != nil {
		return nil, err
	}
	rec, err := recordOf(info, engine.ID)
	if err != nil {
		return nil, fmt.Errorf("adopt container %s: %w", id, err)
	}
	if err := l.Write(ref, rec); err != nil {
		return nil, err
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if t := l.Entries[ref]; t != nil {
		return t, nil
	}
	t := &entry{record: rec}
	l.Add(t)
	l.Log.Info("task adopted", "task", ref, "workflow", rec.Workflow, "attempt", rec.Attempt)
	return t, nil
}

// recordOf reads a record from a container's labels.
func recordOf(info containerInfo, engineID string) (record, error) {
	labels := info.Config.Labels
	attempt, err := strconv.Atoi(labels[labelAttempt])
	if err != nil {
		return record{}, errors.New("its labels do not name an attempt")
	}
	rec := record{
		Record: taskdir.Record{
			Ref: labels[labelTask], Workflow: labels[labelJob], Attempt: attempt, Placement: labels[labelPlacement], CreatedAt: info.Created.UTC(),
		},
		Container: info.ID, Engine: engineID,
	}
	return rec, rec.check()
}

// finish records the end of a task, then cleans up.
func (l *Launcher) finish(ctx context.Context, t *entry, rec record) error {
	if err := l.Keep(rec.Ref, l.WorkDir(rec.Ref)); err != nil {
		l.Log.Error("log or providers of task not kept", "task", rec.Ref, "err", err)
	}
	rec.StoppedAt = l.Now().UTC()
	rec.Since = rec.StoppedAt
	if err := l.Write(rec.Ref, rec); err != nil {
		return err // the container is still there, and its end is found again
	}
	rec.HasLeftovers = l.remove(ctx, rec)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	t.record = rec
	l.Ended(t)
	return nil
}

// clear tries again to remove the leftovers of a task that has ended.
func (l *Launcher) clear(ctx context.Context, t *entry) {
	l.Mu.Lock()
	rec := t.record
	l.Mu.Unlock()
	leftovers := l.remove(ctx, rec)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	t.record.HasLeftovers = leftovers
	l.Retire(t)
}

// remove removes the container and the directory of a task. If that fails, the next look tries again.
func (l *Launcher) remove(ctx context.Context, rec record) (leftovers bool) {
	err := errors.Join(l.engine.remove(ctx, rec.Container), l.RemoveWork(rec.Ref))
	if err != nil && ctx.Err() == nil {
		l.Log.Warn("leftover of task not removed; trying again", "task", rec.Ref, "err", err)
	}
	return err != nil
}

// forget removes the record and the directory of a task that never began.
func (l *Launcher) forget(ref string) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if err := l.Forget(ref); err != nil {
		return err
	}
	return l.RemoveWork(ref)
}

// know returns the engine's description of itself, for which it asks once.
func (l *Launcher) know(ctx context.Context) (engineInfo, error) {
	l.Mu.Lock()
	known := l.known
	l.Mu.Unlock()
	if known.ID != "" {
		return known, nil
	}
	info, err := l.engine.info(ctx)
	if err != nil {
		return info, err
	}
	if info.ID == "" {
		return info, errors.New("the Docker engine reports no id, so the end of a task cannot be proven")
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.known = info
	return info, nil
}
