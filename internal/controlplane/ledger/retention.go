package ledger

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Retention is the retention of an organization; a change of it counts after some seconds.
func (l *Ledger) Retention(ctx context.Context, org string) (record.Retention, error) {
	k := record.OrganizationKey(org)
	r, _, err := l.recent(ctx, l.Now(), k)
	if err != nil {
		return record.Retention{}, err
	}
	o, _, err := Get[record.Organization](r, k)
	return o.Days(), err
}

// LimitKeys are the records that OrganizationLimit reads; none if this process has read them just now.
func (l *Ledger) LimitKeys(org string) []store.Key {
	k := record.OrganizationKey(org)
	if l.clock.has(l.Now(), k) {
		return nil
	}
	return []store.Key{k}
}

// OrganizationLimit is how many workflows of an organization may be active; a change of it counts after some seconds.
// If the organization sets none, it is fallback.
func (c *Change) OrganizationLimit(ctx context.Context, org string, fallback int) (int, error) {
	k := record.OrganizationKey(org)
	if c.asked[k] && c.Read[k].Value != nil {
		c.ledger.clock.keep(c.Now, c.Read[k])
	}
	r, _, err := c.ledger.recent(ctx, c.Now, k)
	if err != nil {
		return 0, err
	}
	o, _, err := Get[record.Organization](r, k)
	return cmp.Or(o.Limit, fallback), err
}

// kept refuses a run that is past its retention, whether or not its records are deleted by now.
func (l *Ledger) kept(ctx context.Context, w *record.Workflow) error {
	now := l.Now()
	if !w.Over() || w.Submitted.After(record.Before(now, api.MinWorkflowRetention)) {
		return nil
	}
	days, err := l.Retention(ctx, w.Org)
	if err == nil && w.Submitted.Before(record.Before(now, days.Workflows)) {
		err = workflow.Refuse(workflow.ErrNotFound, "id", "workflow %s was submitted more than %d days ago, and is not kept any longer", w.ID, days.Workflows)
	}
	return err
}

// timesKept is how long a process caches a retention for writes of runs: it must not read it in each call.
const timesKept = time.Hour

// Times is the retention that sets the expiry of records which a run writes now.
func (l *Ledger) Times(ctx context.Context, org string) (record.Retention, error) {
	type known struct {
		days record.Retention
		at   time.Time
	}
	now := l.Now()
	if was, ok := l.retention.Load(org); ok {
		if k, ok := was.(known); ok && now.Sub(k.at).Abs() < timesKept {
			return k.days, nil
		}
	}
	days, err := l.Retention(ctx, org)
	if err == nil {
		l.retention.Store(org, known{days, now})
	}
	return days, err
}

// expiring gives the records of runs among operations the time at which the store may delete them.
func (c *Change) expiring(ctx context.Context, ops []store.Op) error {
	if !c.ledger.StoreExpires {
		return nil
	}
	for i, op := range ops {
		id, ofRun := strings.CutPrefix(op.Key().Part, record.RunPrefix)
		w := c.known[id]
		if !ofRun || w == nil || !op.IsPut() {
			continue
		}
		r := op.Record()
		if r.Expires != 0 {
			continue // it has a shorter life of its own
		}
		days, err := c.ledger.Times(ctx, w.Org)
		if err != nil {
			return err
		}
		if at := days.Expires(w, r.Key); !at.IsZero() {
			ops[i] = op.Until(at)
		}
	}
	return nil
}

// Retention is that of the ledger.
func (c *Change) Retention(ctx context.Context, org string) (record.Retention, error) {
	return c.ledger.Retention(ctx, org)
}
