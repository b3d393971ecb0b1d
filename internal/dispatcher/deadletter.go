package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Tasks is a second witness: it lists every task that lives, and those that stopped recently.
type Tasks interface {
	List(ctx context.Context) ([]launcher.Task, error)
}

// DeadLetters ends the workflows whose launch messages could not be handled: a message becomes a dead letter only if its
// receivers died again and again. It launches nothing. It ends a workflow only when no task of its attempt can be alive.
// If one may be, the message waits for the end of that task, or of the launch window.
type DeadLetters struct {
	upstream Upstream
	tasks    Tasks
	now      func() time.Time
	log      *slog.Logger
}

// NewDeadLetters returns a handler; now and log may be nil.
func NewDeadLetters(upstream Upstream, tasks Tasks, now func() time.Time, log *slog.Logger) *DeadLetters {
	if now == nil {
		now = time.Now
	}
	return &DeadLetters{upstream, tasks, now, cmp.Or(log, slog.New(slog.DiscardHandler))}
}

// deadHide is how long a dead letter waits before it is looked at again.
const deadHide = time.Minute

// Handle handles one dead letter and decides whether it is deleted or waits.
func (d *DeadLetters) Handle(ctx context.Context, msg queue.Message) Disposition {
	m, err := api.DecodeLaunchMessage(msg.Body)
	if err != nil {
		d.log.Error("dead letter dropped", "message_id", msg.ID, "bytes", len(msg.Body), "err", err)
		return Disposition{Delete: true, Why: "it cannot be read"}
	}
	log := d.log.With("job_id", m.Job, "attempt", m.Attempt)
	states, err := d.upstream.States(ctx, api.StatesQuery{IDs: []string{m.Job}})
	if err != nil {
		log.Warn("job of a dead letter not asked after", "err", err)
		return back(m, deadHide, "the control plane cannot be asked whether it is still wanted")
	}
	job := find(states, m.Job)
	var seen []launcher.Task
	if Unwanted(job, m) == "" {
		if seen, err = d.tasks.List(ctx); err != nil {
			log.Warn("tasks of a dead letter not listed", "err", err)
			return back(m, deadHide, "the launcher cannot be asked for its tasks")
		}
	}
	v := JudgeDeadLetter(m, job, seen, msg.Receives, d.now())
	if !v.End {
		if v.Delete {
			log.Info("dead letter dropped", "reason", v.Why)
			return done(m, v.Why)
		}
		log.Warn("dead letter kept", "reason", v.Why)
		return back(m, deadHide, v.Why)
	}
	log.Error("launch given up", "reason", v.Why)
	reporting, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTime) // it records an outcome
	defer cancel()
	err = d.upstream.Launch(reporting, m.Job, api.Launch{
		Attempt: m.Attempt, Kind: api.LaunchFailed, Reason: workflow.ReasonLaunchFailed, Text: api.ReportText(v.Why),
	})
	if err != nil {
		log.Warn("failed launch not reported", "err", err)
		return back(m, deadHide, "the launch failed for good, but the control plane did not take the report")
	}
	return done(m, "its launch message could not be handled")
}

// Verdict is the decision about a dead letter: its workflow is ended, or it is deleted, or else it waits.
type Verdict struct {
	End    bool
	Delete bool
	Why    string // with End, the sentence that the workflow ends with
}

// youngLaunch is the age below which a list of tasks may not show a launch yet.
const youngLaunch = 10 * time.Minute

// JudgeDeadLetter decides about a dead letter from the state of its job and the tasks that are seen now.
func JudgeDeadLetter(m api.LaunchMessage, job api.JobState, seen []launcher.Task, receives int, now time.Time) Verdict {
	if why := Unwanted(job, m); why != "" {
		return Verdict{Delete: true, Why: why}
	}
	switch {
	case job.Task != "":
		return Verdict{Why: "it was launched as " + job.Task + ", which is not over"}
	case job.PendingPlacement != "":
		return Verdict{Why: "a launch in " + job.PendingPlacement + " had no answer, so its task may be alive"}
	case m.Age(now) < youngLaunch:
		return Verdict{Why: "its last launch is so recent that its task may not be listed yet"}
	}
	for _, t := range seen {
		if t.Workflow == m.Job && t.Attempt == m.Attempt && t.Phase != launcher.Stopped {
			return Verdict{Why: "its task " + t.Ref + " was launched without a report and is not over"}
		}
	}
	return Verdict{End: true, Why: fmt.Sprintf(
		"the dispatcher died while it handled the launch message, %d times; the last reason for not launching was: %s",
		max(receives, 1), cmp.Or(job.LaunchText, "none, no launch was tried to its end"))}
}
