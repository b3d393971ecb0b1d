package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// extend prolongs a claim's lease, never beyond its launch window.
func extend(w *record.Workflow, now time.Time, d time.Duration) {
	end := w.Claimed.Add(workflow.LaunchWindow)
	if lease := now.Add(d); lease.Before(end) {
		w.Lease = Latest(w.Lease, lease)
	} else {
		w.Lease = end
	}
}

// Queued says that a claimed job is in the launch queue: its lease becomes the longer one.
func Queued(w *record.Workflow, now time.Time) Outcome {
	var out Outcome
	if w.State == workflow.Claimed {
		extend(w, now, workflow.QueuedLease)
		out.note("queued", "queued for launch")
	}
	return out
}

// Release gives a claim back before any task of it was launched: the workflow is claimable again at once, and the
// claim does not count as lapsed.
func Release(w *record.Workflow, in api.Release) (Outcome, error) {
	var out Outcome
	if w.State != workflow.Claimed {
		return out, nil
	}
	if t := w.LiveTask(); t != "" {
		return out, workflow.Refuse(workflow.ErrInUse, "attempt", "attempt %d was launched as %s; stop that task instead", in.Attempt, t)
	}
	out.note("released", "claim given back"+Because(in.Text))
	out.Proven = true
	return out, out.next(w, workflow.OnRelease)
}

// maxTasks bounds how many tasks of one attempt are remembered.
const maxTasks = 3

// taskOf returns the record of a task of this attempt, and adds one if there is none. When the list is full, the
// oldest stopped task is dropped.
func taskOf(w *record.Workflow, ref string) (t *record.Task, isNew bool) {
	if i := slices.IndexFunc(w.Tasks, func(t record.Task) bool { return t.Ref == ref }); i >= 0 {
		return &w.Tasks[i], false
	}
	tasks := slices.Clone(w.Tasks)
	if len(tasks) >= maxTasks {
		i := max(0, slices.IndexFunc(tasks, func(t record.Task) bool { return t.Stopped }))
		tasks = slices.Delete(tasks, i, i+1)
	}
	w.Tasks = append(tasks, record.Task{Ref: ref})
	return &w.Tasks[len(w.Tasks)-1], true
}

// Launch decides by the outcome of a launch. It moves only a claimed workflow, and only if no other task of the
// attempt may be alive.
func Launch(w *record.Workflow, in api.Launch, now time.Time) (Outcome, error) {
	var out Outcome
	switch in.Kind {
	case api.LaunchAccepted:
		return launched(w, in, now)
	case api.LaunchProgress:
		if w.State == workflow.Claimed {
			extend(w, now, workflow.QueuedLease)
			out.noteTask("progress", cmp.Or(in.Text, "the task is on its way"), in.Task)
		}
	case api.LaunchRefused:
		if w.State == workflow.Claimed {
			return refused(w, in, now), nil
		}
	case api.LaunchFailed:
		// A launch without an answer may have made a task. Until its own answer is known, the refusal of another
		// placement ends nothing.
		text := cmp.Or(in.Text, "the launcher refused it for good")
		if w.State != workflow.Claimed || w.LiveTask() != "" || w.Held.Placement != "" && w.Held.Placement != in.Placement {
			if w.Active {
				out.note("launch_failed", "a launch failed, which changes nothing: "+text)
			}
			return out, nil
		}
		out.note("launch_failed", "launch failed for good: "+text)
		out.Detail, out.Proven = text, true
		return out, out.next(w, workflow.OnLaunchFailed)
	}
	return out, nil
}

// refused records why a claimed workflow is not launched yet. If a placement may have been taken, the record names
// it, so that the next try begins with that placement. A placement that is tried immediately after the refusal of
// another is not noted in the timeline: the report of its answer is.
func refused(w *record.Workflow, in api.Launch, now time.Time) (out Outcome) {
	retry := api.Seconds(in.RetrySeconds)
	w.Held = record.Held{Reason: in.Reason, Text: text.Cut(in.Text, 120), Until: now.Add(retry), Placement: in.Placement}
	extend(w, now, retry+workflow.QueuedLease)
	if retry == 0 && in.Placement != "" {
		return out
	}
	out.note("launch_refused", fmt.Sprintf("launch refused: %s; next try at %s", cmp.Or(in.Text, string(in.Reason)), Clock(w.Held.Until)))
	if in.Reason == workflow.ReasonQuota || in.Reason == workflow.ReasonCapacity {
		out.Hold = &Hold{in.Reason, min(retry, maxHold)}
	}
	return out
}

// Bounds of how long a refused launch keeps a pool from claiming.
const (
	maxHold  = 2 * time.Minute // the longest that a message is hidden for
	holdStep = 5 * time.Second // a hold is not prolonged by less than this
)

// Keep says whether a pool's hold is replaced by a new one, and until when the new one lasts. Runs that the pool
// claimed now would only wait in its launch queue, where no other pool can take them.
func (h Hold) Keep(old record.Hold, now time.Time) (until time.Time, keep bool) {
	until = now.Add(h.For)
	return until, until.After(old.Until.Add(holdStep)) || until.After(old.Until) && !now.Before(old.Until)
}

// CheckLaunch refuses an incomplete report of a launch.
func CheckLaunch(in api.Launch) error {
	switch in.Kind {
	case api.LaunchAccepted, api.LaunchProgress:
		if in.Task == "" {
			return workflow.Refuse(workflow.ErrInvalid, "task", "a report of kind %s must name the task", in.Kind)
		}
	case api.LaunchRefused:
		switch in.Reason {
		case workflow.ReasonThrottled, workflow.ReasonQuota, workflow.ReasonCapacity, workflow.ReasonUnavailable:
		default:
			return workflow.Refuse(workflow.ErrInvalid, "reason", "a refused launch has one of the reasons throttled, quota, capacity, unavailable")
		}
		if in.RetrySeconds < 0 || in.RetrySeconds > workflow.LaunchWindow.Seconds() {
			return workflow.Refuse(workflow.ErrInvalid, "retry_seconds", "retry_seconds lies between 0 and %d", int(workflow.LaunchWindow.Seconds()))
		}
	case api.LaunchFailed:
	default:
		return workflow.Refuse(workflow.ErrInvalid, "kind", "the kind is launched, progress, refused or failed, not %q", text.Cut(in.Kind, 40))
	}
	return nil
}

// launched records a task. The report may come after the runner's start, or after the task's end.
func launched(w *record.Workflow, in api.Launch, now time.Time) (out Outcome, err error) {
	if w.State.Terminal() {
		return out, nil // the reaper stops unwanted tasks
	}
	t, isNew := taskOf(w, in.Task)
	if !isNew && !t.Stopped {
		return out, nil // reported before
	}
	out.LetGo = true // the quota or capacity that was short is available again
	if isNew {
		out.noteTask("launched", "launched as task "+in.Task, in.Task)
	}
	if w.State != workflow.Claimed {
		return out, nil
	}
	w.Held = record.Held{}
	extend(w, now, workflow.QueuedLease)
	return out, out.allStopped(w, "")
}

// allStopped ends a claim if all its launched tasks stopped before a start.
func (o *Outcome) allStopped(w *record.Workflow, text string) error {
	if w.State != workflow.Claimed || w.LiveTask() != "" || len(w.Tasks) == 0 {
		return nil
	}
	if err := o.next(w, workflow.OnTaskStopped); err != nil {
		return err
	}
	if o.Move.To == workflow.Failed {
		o.Detail = fmt.Sprintf("%d claims ended before a start; the last task stopped%s", workflow.MaxLapses, Because(text))
	}
	o.note("lapsed", "its task stopped before it started"+Because(text))
	o.Proven = true
	return nil
}

// Lost decides by the proven end of a task. Once a run has started, only the end of its own task counts; any other
// goes to the timeline.
func Lost(w *record.Workflow, in api.Lost, at Time) (out Outcome, err error) {
	said := stopText(in)
	// Everything below depends on which task it is. A message delivered twice makes two tasks of one attempt, and the
	// end of the task that was refused its start says nothing about the task that runs.
	own := w.Holder.Attempt == in.Attempt && w.Holder.Task == in.Task
	switch {
	case w.State == workflow.Claimed:
		if !out.stopped(w, in.Task, said) {
			return out, nil
		}
		// A task that the dispatcher has not reported yet may be one of several placements. Then only its report, or
		// the lease, ends the claim. Our own tasks are reported before their end can be reported here.
		return out, out.allStopped(w, cmp.Or(in.Text, said))
	case !own:
		if w.Active {
			out.stopped(w, in.Task, "another task of this workflow stopped, which changes nothing: "+said)
		}
	case w.State == workflow.Running && !w.HandedOver.IsZero():
		// Reported before.
	case w.State == workflow.Running && in.ExitCode != nil && *in.ExitCode == 0:
		if _, err := workflow.Next(w.State, workflow.OnHandedOver, facts(w)); err != nil {
			return out, err
		}
		w.HandedOver, w.Service.HandedOver = at.Now, at.Service.UnixMilli()
		out.noteTask("handed_over", "its task ended with exit code 0: the result is on its way", in.Task)
		// The engine is over, so the next run may begin; only the result is still to come.
		out.Free = w.ChangesState() && w.SlotHeld
	case w.State == workflow.Running:
		out.noteTask("task_stopped", said, in.Task)
		out.Detail, out.Proven = cmp.Or(in.Text, said), true
		err := out.next(w, workflow.OnTaskStopped)
		if out.Move.Reason == workflow.ReasonTaskStopped && in.Reason.EndsTask() {
			out.Move.Reason = in.Reason
		}
		return out, err
	case in.Reason == workflow.ReasonSpotTaken && w.State == workflow.Failed && w.Reason == workflow.ReasonInterrupted:
		// The runner knew only that it had to stop.
		w.Reason, w.Detail = in.Reason, text.Middle(cmp.Or(in.Text, said)+"; "+w.Detail, record.MaxDetail)
		out.noteTask("task_stopped", said, in.Task)
		out.Over = w.SlotHeld
	case w.SlotHeld:
		out.noteTask("task_stopped", said+"; the workspace is free again", in.Task)
		out.Over = true
	}
	return out, nil
}

// stopText describes the end of a task.
func stopText(in api.Lost) string {
	if in.ExitCode != nil {
		return fmt.Sprintf("task stopped with exit code %d%s", *in.ExitCode, Because(in.Text))
	}
	return "task stopped" + Because(in.Text)
}

// stopped records the end of a task of the attempt, once. It reports whether the end is new.
func (o *Outcome) stopped(w *record.Workflow, task, text string) bool {
	t, _ := taskOf(w, task)
	if t.Stopped {
		return false
	}
	t.Stopped = true
	o.noteTask("task_stopped", text, task)
	return true
}
