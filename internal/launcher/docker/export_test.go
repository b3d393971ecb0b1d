package docker

import (
	"context"
	"encoding/json"
	"io"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/task"
)

// RemoveAll removes every container of a launcher, for the end of a test.
func RemoveAll(ctx context.Context, l *Launcher) error {
	containers, err := l.engine.list(ctx, labelLauncher+"="+l.id)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := l.engine.remove(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// Posture returns the container that a configuration makes of a request, as JSON.
func Posture(l *Launcher, r launcher.Request, unkept ...task.Limit) ([]byte, error) {
	size, err := task.SizeOf(r.Size)
	if err != nil {
		return nil, err
	}
	return json.Marshal(l.config.spec(plan{
		ref: "task-x", launcher: "me", request: r, image: l.config.Image, size: size, work: "/w", state: "/s", cpus: 1, unkept: unkept,
	}))
}

// Unkept returns the limits that an engine cannot keep which says this about itself.
func Unkept(said []byte) ([]task.Limit, error) {
	var info engineInfo
	err := json.Unmarshal(said, &info)
	return info.unkept(), err
}

// Remove removes a task's container behind the launcher's back.
func Remove(ctx context.Context, l *Launcher, ref string) error {
	l.Mu.Lock()
	id := l.Entries[ref].record.Container
	l.Mu.Unlock()
	return l.engine.remove(ctx, id)
}

// Move makes a task one of another engine, and back.
func Move(l *Launcher, ref, engine string) (before string) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	before, l.Entries[ref].record.Engine = l.Entries[ref].record.Engine, engine
	return before
}

// Create makes a container of a request and does not let it go, as a launcher that dies.
func Create(ctx context.Context, l *Launcher, r launcher.Request) error {
	size, err := task.SizeOf(r.Size)
	if err != nil {
		return err
	}
	ref := taskdir.NewRef()
	if err := l.makeWork(ctx, l.WorkDir(ref), r.SourceDirectory, r.SourcePath); err != nil {
		return err
	}
	_, err = l.engine.create(ctx, containerName(l.id, r), l.config.spec(plan{ref: ref, launcher: l.id, request: r, image: l.config.Image, size: size, work: l.WorkDir(ref)}))
	return err
}

// Containers counts the containers of a launcher.
func Containers(ctx context.Context, l *Launcher) (int, error) {
	all, err := l.engine.list(ctx, labelLauncher+"="+l.id)
	return len(all), err
}

// Older compares versions of the API.
var Older = older

// CheckWithoutSockets is Check on a machine whose containers reach no socket of it.
func CheckWithoutSockets(ctx context.Context, l *Launcher) (Reach, error) {
	if err := l.ensureNetwork(ctx); err != nil {
		return Reach{}, err
	}
	return l.checkGateways(ctx)
}

// Admit opens the gate of a task when its engine is there.
func Admit(ctx context.Context, l *Launcher, gate io.WriteCloser, r launcher.Request) {
	l.admit(ctx, gate, r, "task-x")
}

// Pull fetches an image as a launch does.
func Pull(ctx context.Context, l *Launcher, image string) error { return l.pull(ctx, image) }
