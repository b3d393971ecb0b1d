package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/authority"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// claimed reads a workflow for a report of the pool that claimed it. ok is false where the report
// is about an attempt that is past: it changes nothing, and is no error.
func (c *change) claimedBy(ctx context.Context, who Principal, id string, attempt int) (w *record.Workflow, ok bool, err error) {
	w, err = c.workflow(ctx, who.Organization, id)
	if err != nil {
		return nil, false, err
	}
	if who.Audience != authority.Pool || w.PoolID != who.PoolID {
		return nil, false, noWorkflow(id) // another pool's workflows are not there for it
	}
	if attempt < 1 || attempt > w.Attempt {
		return nil, false, workflow.Refuse(workflow.ErrInvalid, "attempt", "workflow %s has had %d attempts; %d is none of them", id, w.Attempt, attempt)
	}
	return w, attempt == w.Attempt, nil
}

// extend prolongs a claim's lease, never beyond its launch window.
func extend(w *record.Workflow, now time.Time, d time.Duration) {
	end := w.Claimed.Add(workflow.LaunchWindow)
	if lease := now.Add(d); lease.Before(end) {
		w.Lease = latest(w.Lease, lease)
	} else {
		w.Lease = end
	}
}

// Queued says that a claimed job lies in the launch queue: its lease becomes the longer one.
func (p *Plane) Queued(ctx context.Context, who Principal, id string, in api.Attempt) error {
	return p.change(ctx, func(ctx context.Context, c *change) error {
		w, ok, err := c.claimedBy(ctx, who, id, in.Attempt)
		if err != nil || !ok || w.State != workflow.Claimed {
			return err
		}
		extend(w, c.Now, workflow.QueuedLease)
		c.event(w, "queued", "queued for launch")
		return nil
	})
}

// Release gives a claim back before anything of it was launched: the workflow is claimable again at
// once, and the claim does not count as lapsed.
func (p *Plane) Release(ctx context.Context, who Principal, id string, in api.Release) error {
	return p.change(ctx, func(ctx context.Context, c *change) error {
		w, ok, err := c.claimedBy(ctx, who, id, in.Attempt)
		if err != nil || !ok || w.State != workflow.Claimed {
			return err
		}
		if t := w.LiveTask(); t != "" {
			return workflow.Refuse(workflow.ErrInUse, "attempt", "attempt %d was launched as %s; stop that task instead", in.Attempt, t)
		}
		m, err := workflow.Next(w.State, workflow.OnRelease, facts(w))
		if err != nil {
			return err
		}
		c.event(w, "released", "claim given back"+because(in.Text))
		return c.move(ctx, w, m, "", true)
	})
}

// maxTasks bounds the tasks that are remembered of one attempt.
const maxTasks = 3

// taskOf returns the record of a task of this attempt, making it where there is none. The oldest
// stopped one makes room for it.
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

// Launch records what became of a launch. Only a claimed workflow is moved by it, and only when no
// other task of the attempt may be alive.
func (p *Plane) Launch(ctx context.Context, who Principal, id string, in api.Launch) error {
	if err := checkLaunch(in); err != nil {
		return err
	}
	err := p.changeHot(ctx, func(ctx context.Context, c *change) error {
		if err := record.CheckID(id); err != nil {
			return err
		}
		if err := c.Load(ctx, record.WorkflowKey(id), record.BeatKey(id), record.HoldKey(who.PoolID)); err != nil {
			return err
		}
		w, ok, err := c.claimedBy(ctx, who, id, in.Attempt)
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		switch in.Kind {
		case api.LaunchAccepted:
			return c.launched(ctx, w, in)
		case api.LaunchProgress:
			if w.State == workflow.Claimed {
				extend(w, c.Now, workflow.QueuedLease)
				c.event(w, "progress", cmpText(in.Text, "the task is on its way"), byTask(in.Task))
			}
		case api.LaunchRefused:
			if w.State == workflow.Claimed {
				return c.refused(w, in)
			}
		case api.LaunchFailed:
			text := cmpText(in.Text, "the launcher refused it for good")
			if w.State != workflow.Claimed || w.LiveTask() != "" || w.Held.Placement != "" && w.Held.Placement != in.Placement {
				if w.Active {
					c.event(w, "launch_failed", "a launch failed, which changes nothing: "+text)
				}
				return nil
			}
			m, err := workflow.Next(w.State, workflow.OnLaunchFailed, facts(w))
			if err != nil {
				return err
			}
			c.event(w, "launch_failed", "launch failed for good: "+text)
			return c.move(ctx, w, m, text, true)
		}
		return nil
	})
	p.wakes.Ring("start/" + id)
	return err
}

// refused records why a claimed workflow is not launched yet. Where a placement may have been taken it is
// written down, so that whoever tries next begins with it. One that is tried at once, after another was
// refused, is no news for the timeline: the report of its answer is.
func (c *change) refused(w *record.Workflow, in api.Launch) error {
	retry := api.Seconds(in.RetrySeconds)
	w.Held = record.Held{Reason: in.Reason, Text: record.Cut(in.Text, 120), Until: c.Now.Add(retry), Placement: in.Placement}
	extend(w, c.Now, retry+workflow.QueuedLease)
	if retry == 0 && in.Placement != "" {
		return nil
	}
	c.event(w, "launch_refused", fmt.Sprintf("launch refused: %s; next try at %s", cmpText(in.Text, string(in.Reason)), clock(w.Held.Until)))
	if in.Reason == workflow.ReasonQuota || in.Reason == workflow.ReasonCapacity {
		return c.hold(w.PoolID, in.Reason, min(retry, maxHold))
	}
	return nil
}

// Bounds of how long a refused launch keeps a pool from claiming.
const (
	maxHold  = 2 * time.Minute // the longest that a message is hidden for
	holdStep = 5 * time.Second // by less than that a hold is not prolonged
)

// hold keeps a pool from claiming for a while: what it would claim now would only wait in its launch
// queue, where no other pool can take it.
func (c *change) hold(poolID string, reason workflow.Reason, d time.Duration) error {
	old, _, err := ledger.Get[record.Hold](c.Read, record.HoldKey(poolID))
	if err != nil {
		return err
	}
	if until := c.Now.Add(d); until.After(old.Until.Add(holdStep)) || until.After(old.Until) && !c.Now.Before(old.Until) {
		r := record.Encode(record.HoldKey(poolID), record.Hold{Reason: reason, Until: until})
		r.Expires = until.Add(time.Hour).Unix()
		c.Add(store.Put(r, c.Version(r.Key)))
	}
	return nil
}

// letGo ends a pool's hold: its latest launch was taken. What waited for that is claimable now.
func (c *change) letGo(poolID string) {
	if k := record.HoldKey(poolID); c.Version(k) != store.Absent {
		c.Remove(k, c.Version(k))
		c.wake = append(c.wake, poolID)
	}
}

func checkLaunch(in api.Launch) error {
	switch in.Kind {
	case api.LaunchAccepted, api.LaunchProgress:
		if in.Task == "" {
			return workflow.Refuse(workflow.ErrInvalid, "task", "a report of kind %s names the task", in.Kind)
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
		return workflow.Refuse(workflow.ErrInvalid, "kind", "kind %q is none of launched, progress, refused, failed", record.Cut(in.Kind, 40))
	}
	return nil
}

// launched records a task. The report may come after the runner's start, or after the task's end.
func (c *change) launched(ctx context.Context, w *record.Workflow, in api.Launch) error {
	if w.State.Terminal() {
		return nil // the reaper stops what nobody wants
	}
	t, isNew := taskOf(w, in.Task)
	if !isNew && !t.Stopped {
		return nil // reported before
	}
	c.letGo(w.PoolID)
	if isNew {
		c.event(w, "launched", "launched as task "+in.Task, byTask(in.Task))
	}
	if w.State != workflow.Claimed {
		return nil
	}
	w.Held = record.Held{}
	extend(w, c.Now, workflow.QueuedLease)
	return c.allStopped(ctx, w, "")
}

// allStopped ends a claim whose every launched task has stopped before a start.
func (c *change) allStopped(ctx context.Context, w *record.Workflow, text string) error {
	if w.State != workflow.Claimed || w.LiveTask() != "" || len(w.Tasks) == 0 {
		return nil
	}
	m, err := workflow.Next(w.State, workflow.OnTaskStopped, facts(w))
	if err != nil {
		return err
	}
	detail := ""
	if m.To == workflow.Failed {
		detail = fmt.Sprintf("%d claims ended before a start; the last task stopped%s", workflow.MaxLapses, because(text))
	}
	c.event(w, "lapsed", "its task stopped before it started"+because(text))
	return c.move(ctx, w, m, detail, true)
}

// Lost records the proven end of a task. Once a run has started, only the end of its own task
// counts; all else goes to the timeline.
func (p *Plane) Lost(ctx context.Context, who Principal, id string, in api.Lost) error {
	if in.Task == "" {
		return workflow.Refuse(workflow.ErrInvalid, "task", "the report of an end names the task")
	}
	err := p.changeHot(ctx, func(ctx context.Context, c *change) error {
		w, ok, err := c.claimedBy(ctx, who, id, in.Attempt)
		if err != nil || !ok {
			return err
		}
		return c.lost(ctx, w, in)
	})
	if err == nil {
		p.wakes.Ring("states/" + who.PoolID)
	}
	return err
}

func (c *change) lost(ctx context.Context, w *record.Workflow, in api.Lost) error {
	said := "task stopped" + because(in.Text)
	if in.ExitCode != nil {
		said = fmt.Sprintf("task stopped with exit code %d%s", *in.ExitCode, because(in.Text))
	}
	own := w.Holder.Attempt == in.Attempt && (w.Holder.Task == in.Task || mutate.On(mutate.NamelessReports)) // see package mutate
	switch {
	case w.State == workflow.Claimed:
		t, _ := taskOf(w, in.Task)
		if t.Stopped {
			return nil
		}
		t.Stopped = true
		c.event(w, "task_stopped", said, byTask(in.Task))
		// A task that the dispatcher did not report yet may be one of several placements: only its
		// report, or the lease, ends the claim then. Ours are reported before they can stop here.
		return c.allStopped(ctx, w, cmpText(in.Text, said))
	case !own:
		if w.Active {
			if t, isNew := taskOf(w, in.Task); isNew || !t.Stopped {
				t.Stopped = true
				c.event(w, "task_stopped", "another task of this workflow stopped, which changes nothing: "+said, byTask(in.Task))
			}
		}
		return nil
	case w.State == workflow.Running && !w.HandedOver.IsZero():
		return nil // reported before
	case w.State == workflow.Running && in.ExitCode != nil && *in.ExitCode == 0:
		if _, err := workflow.Next(w.State, workflow.OnHandedOver, facts(w)); err != nil {
			return err
		}
		w.HandedOver = c.Now
		c.event(w, "handed_over", "its task ended with exit code 0: the result is on its way", byTask(in.Task))
		if w.ChangesState() && w.SlotHeld {
			return c.freeLane(ctx, w)
		}
		return nil
	case w.State == workflow.Running:
		m, err := workflow.Next(w.State, workflow.OnTaskStopped, facts(w))
		if err != nil {
			return err
		}
		c.event(w, "task_stopped", said, byTask(in.Task))
		return c.move(ctx, w, m, cmpText(in.Text, said), true)
	case w.SlotHeld:
		c.event(w, "task_stopped", said+"; the workspace is free again", byTask(in.Task))
		return c.retire(ctx, w)
	}
	return nil
}

func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func cmpText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// clock prints a time in the timeline's sentences.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
