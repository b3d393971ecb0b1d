package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// start makes everything that a task needs and lets its runner begin. The task that it returns has a
// record. After an error there is no task, or the same request finds out about it.
func (l *Launcher) start(ctx context.Context, ref string, r launcher.Request) (*entry, error) {
	p, engineID, err := l.prepare(ctx, ref, r)
	if err != nil {
		return nil, err
	}
	if err := l.pull(ctx, p.image); err != nil {
		return nil, err
	}
	err = l.makeWork(ctx, p.work, r.SourceDirectory, r.SourcePath)
	if err == nil {
		l.Lend(ref, r, l.user())
		p.state, p.olds, err = l.giveStates(r)
	}
	if err != nil {
		return nil, errors.Join(err, l.RemoveWork(ref))
	}
	// The caller may give up; a launch that was begun is still completed or undone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), launchTime)
	defer cancel()
	rec, err := l.begin(ctx, p, engineID)
	return &entry{record: rec}, err
}

// prepare makes the plan of a container, and its network.
func (l *Launcher) prepare(ctx context.Context, ref string, r launcher.Request) (p plan, engineID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, launchTime)
	defer cancel()
	p = plan{ref: ref, launcher: l.id, request: r, work: l.WorkDir(ref)}
	if p.size, err = task.SizeOf(r.Size); err != nil {
		return p, "", err
	}
	if p.image, err = launcher.Image(r.Image, l.config.Image, l.config.Images); err != nil {
		return p, "", err
	}
	engine, err := l.know(ctx)
	if err != nil {
		return p, "", err
	}
	p.cpus, p.unkept = engine.NCPU, engine.unkept()
	return p, engine.ID, l.ensureNetwork(ctx)
}

// begin makes and starts the container, in a work directory that is there. After an error it has removed both.
func (l *Launcher) begin(ctx context.Context, p plan, engineID string) (rec record, err error) {
	ref, r := p.ref, p.request
	undo := []func(){func() { _ = l.RemoveWork(ref) }}
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()

	name := containerName(l.id, r)
	id, err := l.engine.create(ctx, name, l.config.spec(p))
	if hasStatus(err, 409) {
		_ = l.RemoveWork(ref) // the existing container has its own
		return l.found(ctx, name, r, engineID)
	}
	if err != nil {
		return rec, err
	}
	undo = append(undo, func() {
		if err := l.engine.remove(ctx, id); err != nil {
			l.Log.Warn("container of a failed launch not removed", "container", id, "err", err) // a look does it
		}
	})
	rec = record{Record: l.RecordOf(ref, r), Container: id, Engine: engineID}
	gate, err := l.engine.attach(ctx, id)
	if err != nil {
		return rec, err
	}
	defer func() {
		if err != nil {
			_ = gate.Close()
		}
	}()
	undo = append(undo, func() { _ = l.RemoveRecord(ref) })
	if err := l.Write(ref, rec); err != nil {
		return rec, err
	}
	if err := l.engine.start(ctx, id); err != nil {
		return rec, err
	}
	// From here on the task may act. If the gate fails, the task ends, and its end is found like any other.
	l.admit(ctx, gate, r, rec.Ref)
	return rec, nil
}

// giveStates makes the directories of states that a task needs ready for its user, and returns their paths.
func (l *Launcher) giveStates(r launcher.Request) (own string, olds []string, err error) {
	if r.States.Own != "" && l.StateRoot != "" {
		if err := l.MakeState(r.States.Own); err != nil {
			return "", nil, err
		}
		if err := l.giveState(r.States.Own); err != nil {
			return "", nil, err
		}
		own = l.State(r.States.Own)
	}
	for _, old := range l.Olds(r) {
		if err := l.giveState(old); err != nil {
			return "", nil, err
		}
		olds = append(olds, l.State(old))
	}
	return own, olds, nil
}

// openGate lets a runner begin and gives it the values of the references that the run names on this machine, and why
// its engine was not downloaded.
func (l *Launcher) openGate(ctx context.Context, gate io.Writer, r launcher.Request, ref, whyNot string) {
	bundle := secrets.NewBundle(ctx, l.config.Secrets, r.SecretRefs, l.Forwarded())
	bundle.NoDownload = whyNot
	if err := task.OpenGate(gate, &bundle); err != nil {
		l.Log.Warn("runner ended at its gate", "task", ref, "err", err)
	}
}

// found takes over a container that already has a launch's name. An earlier launch made it, and its answer
// was lost.
func (l *Launcher) found(ctx context.Context, name string, r launcher.Request, engineID string) (record, error) {
	info, err := l.engine.inspect(ctx, name)
	if hasStatus(err, 404) {
		return record{}, &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "the container of that name was removed in the meantime"}
	}
	if err != nil {
		return record{}, err
	}
	rec, err := recordOf(info, engineID)
	if err != nil || info.Config.Labels[labelLauncher] != l.id || !rec.IsOf(r) {
		return record{}, launcher.Never("a container named %s already exists and is not ours: remove it", name)
	}
	if info.State.Status == "created" {
		if err := l.engine.remove(ctx, info.ID); err != nil {
			return record{}, err
		}
		return record{}, &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "an earlier launch was interrupted; its container was removed"}
	}
	return rec, l.Write(rec.Ref, rec)
}

func (l *Launcher) ensureNetwork(ctx context.Context) error {
	l.Mu.Lock()
	name, there := l.config.Network, l.network
	l.Mu.Unlock()
	if there || name != "dayfly-"+l.id {
		return nil
	}
	if err := l.engine.network(ctx, name, map[string]string{labelLauncher: l.id}); err != nil {
		return fmt.Errorf("make network for tasks: %w", err)
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.network = true
	return nil
}

// user is the user of containers, to whom files are given; 0: none can be given.
func (l *Launcher) user() int {
	if os.Geteuid() != 0 {
		return 0
	}
	return l.config.UID
}

// makeWork makes a task's own directory, with the copy of its directory source if it has one. Only the launcher's own
// user can pass through its parent directory: the container gets it by a mount.
func (l *Launcher) makeWork(ctx context.Context, dir, source, path string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of task: %w", err)
	}
	if source != "" {
		if err := l.copySource(ctx, source, path, filepath.Join(dir, givenName)); err != nil {
			return err
		}
	}
	if l.user() == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err == nil {
		_, err = disk.Give(root, l.user(), l.user(), 0)
		err = errors.Join(err, root.Close())
	}
	if err != nil {
		return fmt.Errorf("give directory to task: %w", err)
	}
	return nil
}

// copySource copies a directory source. Only an error that may pass is tried again.
func (l *Launcher) copySource(ctx context.Context, from, path, to string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, copyTime, fmt.Errorf("the source was not copied within %s", copyTime))
	defer cancel()
	err := l.Sources.Copy(ctx, from, path, to)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, full) {
			return err
		}
	}
	return launcher.Never("the source cannot be copied: %v", err)
}

// giveState gives the directory of a state to the tasks' user, if that is not the launcher's own.
func (l *Launcher) giveState(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return l.GiveState(dir, l.config.UID)
}
