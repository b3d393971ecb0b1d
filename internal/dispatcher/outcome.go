package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// asRefusal reads the error of a launch. If that is not a refusal, the request may have been taken, so the task may exist.
func asRefusal(err error) *launcher.Refusal {
	r, ok := errors.AsType[*launcher.Refusal](err)
	if !ok {
		return &launcher.Refusal{Reason: workflow.ReasonUnavailable, Text: "the launcher did not answer: " + err.Error(), Unknown: true}
	}
	out := *r
	switch {
	case out.Permanent:
		out.Reason = workflow.ReasonLaunchFailed
	case !out.Reason.Held():
		out.Reason = workflow.ReasonUnavailable // the only remaining one for a transient refusal
	}
	out.Text = cmp.Or(out.Text, "the launcher gave no reason")
	return &out
}

// reportLaunched must succeed before the message is deleted: only a reported task is granted a start. If it fails, the
// message comes back, the same launch gives the same task, and it is reported again; if the job has moved on meanwhile,
// the message is dropped.
func (d *Dispatcher) reportLaunched(ctx context.Context, log *slog.Logger, m api.LaunchMessage, task launcher.Task) Disposition {
	out := done(m, "launched")
	if err := d.report(ctx, m, api.Launch{Kind: api.LaunchAccepted, Task: task.Ref}); err != nil {
		log.Warn("launch not reported", "task", task.Ref, "err", err)
		out = back(m, min(Backoff(m, d.cfg.Now()), 10*time.Second), "launched, but the control plane did not take the report")
	}
	out.Task = task.Ref
	return out
}

func (d *Dispatcher) reportFailed(ctx context.Context, log *slog.Logger, m api.LaunchMessage, r *launcher.Refusal, placement string) Disposition {
	err := d.report(ctx, m, api.Launch{Kind: api.LaunchFailed, Reason: r.Reason, Text: api.ReportText(r.Text), Placement: placement})
	if err != nil {
		log.Warn("failed launch not reported", "err", err)
		return back(m, Backoff(m, d.cfg.Now()), "the launch failed for good, but the control plane did not take the report")
	}
	return done(m, "the launch failed for good")
}

// writeDown records the placement that is tried next. If that fails, it must not be tried: if its answer were lost, the
// next delivery would not begin with it.
func (d *Dispatcher) writeDown(ctx context.Context, log *slog.Logger, m api.LaunchMessage, last *launcher.Refusal, next string) bool {
	err := d.report(ctx, m, api.Launch{
		Kind: api.LaunchRefused, Reason: last.Reason, Text: api.ReportText(last.Text), Placement: next,
	})
	if err != nil {
		log.Warn("next placement not recorded", "placement", next, "err", err)
	}
	return err == nil
}

// reportRefused reports the reasons in said, and the placement whose task may exist, if there is one. If the report
// fails, nothing is lost: that placement is recorded already, or it is the first.
func (d *Dispatcher) reportRefused(ctx context.Context, log *slog.Logger, m api.LaunchMessage, r *launcher.Refusal, said []string, pending string) Disposition {
	now := d.cfg.Now()
	hide := Backoff(m, now)
	if window := m.Window(now); window > 0 {
		hide = min(hide, window)
	}
	if r.Reason == workflow.ReasonQuota || r.Reason == workflow.ReasonCapacity {
		d.hold.Store(now.Add(hide))
	}
	if ctx.Err() != nil {
		hide = 0 // told to stop: another dispatcher may take it at once
	}
	err := d.report(ctx, m, api.Launch{
		Kind: api.LaunchRefused, Reason: r.Reason, Text: api.ReportText(strings.Join(said, "; ")), RetrySeconds: hide.Seconds(),
		Placement: pending,
	})
	if err != nil {
		log.Warn("refused launch not reported", "err", err)
	}
	return back(m, hide, "the launch was refused for now")
}

// report sends a launch report, also when ctx has ended: it records an outcome.
func (d *Dispatcher) report(ctx context.Context, m api.LaunchMessage, in api.Launch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTime)
	defer cancel()
	in.Attempt = m.Attempt
	if err := d.upstream.Launch(ctx, m.Job, in); err != nil {
		return fmt.Errorf("report launch of job %s: %w", m.Job, err)
	}
	return nil
}

// Backoff is how long a message goes back for: longer for an older message, so that nothing need be counted, and
// spread by job, so that launches that failed together do not come back together.
func Backoff(m api.LaunchMessage, now time.Time) time.Duration {
	longest := min(max(m.Age(now)/2, 2*minHide), maxHide)
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d/%d", m.Job, m.Attempt, m.Age(now)/time.Second)
	full := float64(h.Sum64()>>11) / (1 << 53)
	return minHide + time.Duration(full*float64(longest-minHide))
}
