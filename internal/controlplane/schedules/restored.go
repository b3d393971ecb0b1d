package schedules

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// EndRestored resets the schedules of an organization whose records were restored, so that they make up for no past
// times. It counts those that it paused in out.
func (p *Calls) EndRestored(ctx context.Context, org string, out *api.Restored) error {
	for r, err := range p.ledger.View().All(ctx, record.SettingsOf(org, kind.Schedule, 100)) {
		if err == nil {
			err = p.resetSchedule(ctx, r.Key, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resetSchedule lets a schedule count from now: no time that has passed is made up for. One that changes states is
// paused, until somebody has looked at them.
func (p *Calls) resetSchedule(ctx context.Context, k store.Key, out *api.Restored) error {
	paused := 0
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		paused = 0
		s, ok, err := ledger.Load[schedule](ctx, c, k)
		if err != nil || !ok || s.V.IsPaused {
			return err
		}
		done, _, err := ledger.Load[record.Cycle](ctx, c, record.CycleKey(s.ID))
		if err != nil {
			return err
		}
		due, err := cycleOf(s, done, c.Now)
		if err != nil {
			return err
		}
		if workflow.ChangesState(s.V.Type, s.V.Operation) {
			s.V.IsPaused, paused = true, 1
		} else if !due.open() {
			return nil
		}
		s.V.ResumedAt = &c.Now
		c.Put(k, s)
		return nil
	})
	out.Schedules += paused
	return err
}
