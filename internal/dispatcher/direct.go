package dispatcher

import (
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// directShut is how long nothing is launched directly after a refusal: each further one would cost its job the delay of
// its message.
const directShut = 5 * time.Minute

// Offer names the placement at which Direct may try a message now, and takes the slot of that call. It is "" if the
// rate does not allow a call at once, or if the latest one was refused.
func (d *Dispatcher) Offer(m api.LaunchMessage) (placement string) {
	names := d.cfg.Placements(m)
	if d.cfg.Now().Before(d.Hold()) || len(names) == 0 {
		return ""
	}
	if _, ok := d.pace.Take(d.cfg.Now(), 0); !ok {
		return ""
	}
	return names[0]
}

// Direct launches a message that lies in the queue and is delayed there, so that no other dispatcher has it yet: once,
// at the placement that it names, which Offer gave. It reports a task and nothing else, and says whether the report
// was taken. If not, the message is the launch. The launcher then sees the same request, so there is one task.
func (d *Dispatcher) Direct(ctx context.Context, m api.LaunchMessage) bool {
	log := d.cfg.Log.With("job_id", m.Job, "attempt", m.Attempt)
	r, refusal := d.request(m, m.Placement)
	var task launcher.Task
	if refusal == nil {
		var err error
		if task, err = d.launcher.Launch(ctx, r); err != nil {
			refusal = asRefusal(err)
		}
	}
	d.pace.Answered(d.cfg.Now(), refusal != nil && refusal.Reason == workflow.ReasonThrottled)
	if refusal != nil {
		d.hold.Store(d.cfg.Now().Add(directShut))
		log.Info("direct launch refused", "placement", m.Placement, "reason", refusal.Reason, "permanent", refusal.Permanent,
			"unknown", refusal.Unknown, "text", refusal.Text)
		return false
	}
	log.Info("job launched", "task", task.Ref, "placement", m.Placement, "direct", true)
	return d.reportLaunched(ctx, log, m, task).Delete
}
