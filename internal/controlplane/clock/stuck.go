package clock

import (
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// stuckEvery is the least time between two events about stuck runs of one pool: they are held up for the same reason.
const stuckEvery = time.Hour

// look emits an event for a workflow that is stuck, once, or puts off the next look at one that waits for other runs.
// Its timer follows from that.
func (p *Calls) look(ctx context.Context, c *ledger.Change, w *record.Workflow) error {
	waits, pool, stuck, err := p.runs.Stuck(ctx, c, w)
	if err != nil {
		return err
	}
	if !stuck {
		w.Look = c.Now.Add(workflow.Patience)
		return nil
	}
	w.Stuck = true
	k := record.StuckKey(w.Org, pool)
	last, _, err := ledger.Load[record.Stuck](ctx, c, k)
	if err != nil || c.Now.Sub(last.At) < stuckEvery {
		return err
	}
	c.PutUntil(k, record.Stuck{At: c.Now}, c.Now.Add(record.Day))
	n := record.OutboxEventOf(api.EventStuck, w, c.Now)
	n.Reason, n.Detail = w.Held.Reason, text.Middle("it waits for "+waits, record.MaxDetail)
	c.Emit(w.Org, n)
	return nil
}
