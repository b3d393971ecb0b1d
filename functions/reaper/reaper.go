package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/reaper"
)

// margin is kept of an invocation's time for its last log line.
const margin = 2 * time.Second

// function handles the events. Events of ECS come at least once and in any order. Only ends are acted on, an end is
// final, and a second report changes nothing: so neither order nor duplicates matter, and nothing needs to be
// remembered between two events.
type function struct {
	reaper *reaper.Reaper
	log    *slog.Logger
}

// event is the event of an invocation.
type event struct {
	sweep   bool
	task    launcher.Task // of a change of a task's state
	version int64         // of that change; the same in duplicates
}

// decode distinguishes the events of the function: an ECS task state change, EventBridge's own schedule event, or
// an empty object, which asks for a sweep too. It is a pure function.
func decode(raw []byte) (event, error) {
	shape, kind, err := boot.Shape(raw)
	switch {
	case err != nil:
		return event{}, err
	case len(shape) == 0, kind == boot.Scheduled:
		return event{sweep: true}, nil
	case kind == "ECS Task State Change":
		task, version, err := ecs.ParseEvent(raw)
		return event{task: task, version: version}, err
	}
	return event{}, boot.WrongTrigger("the event is %.80q, neither an ECS Task State Change nor a schedule", kind)
}

// Handle takes one event. An error makes Lambda try an event of ECS again; the next sweep reports an end that is not
// taken then.
func (f *function) Handle(ctx context.Context, raw json.RawMessage) error {
	boot.Began(ctx, f.log, "")
	e, err := decode(raw)
	if err != nil {
		return err
	}
	ctx, cancel := boot.Until(ctx, margin)
	defer cancel()
	if e.sweep {
		f.sweep(ctx)
		return nil
	}
	f.log.DebugContext(ctx, "task changed", "job_id", e.task.Workflow, "attempt", e.task.Attempt, "task", e.task.Ref,
		"phase", string(e.task.Phase), "version", e.version)
	return f.reaper.Ended(ctx, e.task)
}

// sweep logs its error and does not return it: Lambda would repeat it, and then keep it with the dead letters, where an
// alarm rings until somebody takes it out. The next tick sweeps again, and an alarm counts sweeps without an error.
func (f *function) sweep(ctx context.Context) {
	out, err := f.reaper.Sweep(ctx)
	f.log.InfoContext(ctx, "sweep ended", "actions", len(out.Actions), "spared", len(out.Spared),
		"deferred", out.Deferred, "refused", len(out.Refused), "err", err)
}
