package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

const (
	endLooks = 200 * time.Millisecond // between two looks at the tasks that must end
	killTime = 30 * time.Second       // for the engine to end killed containers
)

// End ends every task. Each is asked to stop and gets its grace until ctx ends; then the rest are killed.
// Close alone lets tasks go on.
func (l *Launcher) End(ctx context.Context) error {
	for ctx.Err() == nil {
		living, err := l.living(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Warn("tasks not looked at; trying again", "err", err)
		}
		if err == nil && len(living) == 0 {
			return nil
		}
		for _, t := range living {
			if err := l.Stop(ctx, t.Ref, "dayfly is shutting down"); err != nil {
				l.Log.Warn("task not asked to stop", "task", t.Ref, "err", err)
			}
		}
		_ = wait.For(ctx, endLooks)
	}
	// The caller's time is over. The engine gets a moment of its own.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	for {
		living, err := l.living(late)
		if err == nil && len(living) == 0 {
			return nil
		}
		if late.Err() != nil {
			return fmt.Errorf("end containers: some may still run: %w", context.Cause(late))
		}
		for _, t := range living {
			l.kill(late, t.Ref)
		}
		_ = wait.For(late, endLooks)
	}
}

// living lists the tasks that have not ended.
func (l *Launcher) living(ctx context.Context) (living []launcher.Task, err error) {
	tasks, err := l.List(ctx)
	for _, t := range tasks {
		if t.Phase != launcher.Stopped {
			living = append(living, t)
		}
	}
	return living, err
}

// kill ends a task before its grace is over.
func (l *Launcher) kill(ctx context.Context, ref string) {
	l.Mu.Lock()
	t := l.Entries[ref]
	if t == nil {
		l.Mu.Unlock()
		return
	}
	if t.record.StopWhy == "" {
		t.record.StopWhy, t.record.StopAt = "dayfly is shutting down", l.Now().UTC()
	}
	t.record.Hurried = t.record.Hurried || !t.record.Killed
	container := t.record.Container
	l.Mu.Unlock()
	if err := l.engine.kill(ctx, container, "SIGKILL"); err != nil && !gone(err) {
		l.Log.Warn("task not killed; trying again", "task", ref, "err", err)
	}
}
