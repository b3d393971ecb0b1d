package docker

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// start makes everything that a task needs and lets its runner begin. The task that it returns has a
// record. After an error there is no task, or the same request finds out about it.
func (l *Launcher) start(ctx context.Context, ref string, r launcher.Request) (*entry, error) {
	// The caller may give up; a launch that was begun is still completed or undone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), launchTime)
	defer cancel()
	rec, err := l.begin(ctx, ref, r)
	return &entry{record: rec}, err
}

func (l *Launcher) begin(ctx context.Context, ref string, r launcher.Request) (rec record, err error) {
	size, err := task.SizeOf(r.Size)
	if err != nil {
		return rec, err
	}
	engine, err := l.know(ctx)
	if err != nil {
		return rec, err
	}
	if err := l.ensureNetwork(ctx); err != nil {
		return rec, err
	}
	p := plan{ref: ref, launcher: l.id, request: r, size: size, work: l.WorkDir(ref), cpus: engine.NCPU, unkept: engine.unkept()}
	source, err := l.openSource(r.SourceDirectory)
	if err != nil {
		return rec, err
	}
	if source != nil {
		defer func() { _ = source.Close() }()
		p.source = source.Name()
	}
	if p.state, p.olds, err = l.giveStates(r); err != nil {
		return rec, err
	}
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	if err := l.makeWork(p.work); err != nil {
		return rec, err
	}
	undo = append(undo, func() { _ = l.RemoveWork(ref) })

	name := containerName(l.id, r)
	id, err := l.engine.create(ctx, name, l.config.spec(p))
	if hasStatus(err, 409) {
		_ = l.RemoveWork(ref) // the existing container has its own
		return l.found(ctx, name, r, engine.ID)
	}
	if err != nil {
		return rec, err
	}
	undo = append(undo, func() {
		if err := l.engine.remove(ctx, id); err != nil {
			l.Log.Warn("container of a failed launch not removed", "container", id, "err", err) // a look does it
		}
	})
	rec = record{Record: l.RecordOf(ref, r), Container: id, Engine: engine.ID}
	gate, err := l.engine.attach(ctx, id)
	if err != nil {
		return rec, err
	}
	defer func() { _ = gate.Close() }()
	if err := l.Write(ref, rec); err != nil {
		return rec, err
	}
	undo = append(undo, func() { _ = l.RemoveRecord(ref) })
	if err := l.engine.start(ctx, id); err != nil {
		return rec, err
	}
	if source != nil {
		if err := l.verifySource(ctx, id, source); err != nil {
			return rec, err
		}
	}
	// From here on the task may act. If the gate fails, the task ends, and its end is found like any other.
	l.openGate(ctx, gate, r, rec.Ref)
	return rec, nil
}

// giveStates makes the directories of states that a task needs ready for its user, and returns where they are.
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

// openGate lets a runner begin and gives it the values of the references that the run names on this machine.
func (l *Launcher) openGate(ctx context.Context, gate io.Writer, r launcher.Request, ref string) {
	bundle := secrets.NewBundle(ctx, l.config.Secrets, r.SecretRefs, l.Forwarded())
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

// makeWork makes a task's own directory. Only the launcher's own user can pass through its parent
// directory: the container gets it by a mount.
func (l *Launcher) makeWork(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of task: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	if err := os.Lchown(dir, l.config.UID, l.config.UID); err != nil {
		return fmt.Errorf("give directory to task: %w", err)
	}
	return nil
}

// giveState gives the directory of a state to the tasks' user, if that is not the launcher's own.
func (l *Launcher) giveState(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return l.GiveState(dir, l.config.UID)
}

// openSource opens a directory source at its real path, which must be below one of the roots. The name
// of the result is that path; nil means that there is no source.
func (l *Launcher) openSource(dir string) (*os.Root, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // no source is an answer
	}
	if !filepath.IsAbs(dir) {
		return nil, launcher.Never("the path of a directory source must be absolute; %q is not", dir)
	}
	where, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, l.outside(dir, "there is no directory %q")
	}
	for _, root := range l.SourceRoots {
		resolved, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(resolved, where); err != nil || !filepath.IsLocal(rel) {
			continue
		}
		opened, err := os.OpenRoot(where)
		if err != nil {
			return nil, launcher.Never("%q is not a directory that this runner can read", dir)
		}
		info, err := opened.Stat(".")
		if err == nil && os.Geteuid() == 0 && info.Mode().Perm()&0o005 != 0o005 && !ownedBy(info, l.config.UID) {
			_ = opened.Close()
			return nil, launcher.Never("the source directory %q is closed to the user of containers (mode %04o): run chmod -R o+rX on it, or use --deploy-target process", dir, info.Mode().Perm())
		}
		return opened, err
	}
	return nil, l.outside(dir, "%q does not lie")
}

// outside refuses a directory and names the allowed roots; what begins the message.
func (l *Launcher) outside(dir, what string) error {
	if len(l.SourceRoots) == 0 {
		return launcher.Never(what+" below the source_roots of this runner, which are empty: start dayfly up or its agent with --source-root DIR", dir)
	}
	return launcher.Never(what+" below the source_roots of this runner, which are %s: start dayfly up or its agent with --source-root DIR, a directory above it",
		dir, strings.Join(l.SourceRoots, ", "))
}

func ownedBy(info fs.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}

// verifySource checks, before the runner may act, that the engine mounted the directory that was checked.
// The engine mounts by name, and a link could have replaced the directory in the meantime. Only root can
// look into a container. For other users the check is not needed: a task reads no more than they can.
func (l *Launcher) verifySource(ctx context.Context, id string, source *os.Root) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := l.engine.inspect(ctx, id)
	if err != nil {
		return err
	}
	want, err := source.Stat(".")
	if err != nil {
		return fmt.Errorf("look at source: %w", err)
	}
	got, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", info.State.Pid, sourceTarget))
	if err != nil || info.State.Pid == 0 {
		return &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "the source directory could not be compared with the one that was mounted"}
	}
	if !os.SameFile(want, got) {
		return launcher.Never("the source directory was replaced while the task was being launched")
	}
	return nil
}
