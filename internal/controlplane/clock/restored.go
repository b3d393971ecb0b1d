package clock

import (
	"context"
	"errors"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/store"
)

const (
	by  = "a restore" // the actor in timelines and in the audit trail
	why = "the records were restored from an earlier copy"
)

// Restored stops pending work in a store that was restored from a copy of its records: it may have been done since
// the copy was made, and nobody asked for it a second time. Running workflows end by their results or by their
// deadlines. Call it before anything else uses the store. It is idempotent: a second call, also after a first that
// failed, does the rest.
func (p *Calls) Restored(ctx context.Context) (out api.Restored, err error) {
	for org, err := range p.ledger.View().All(ctx, store.Scan{Part: "orgs", Limit: 100}) {
		if err != nil {
			return out, err
		}
		var did api.Restored
		// Trees and schedules first: they could submit more runs meanwhile.
		err := errors.Join(
			p.trees.EndRestored(ctx, org.Key.Sort, why, &did),
			p.schedules.EndRestored(ctx, org.Key.Sort, &did),
			p.notifications.EndRestored(ctx, org.Key.Sort, why, &did),
			p.runs.EndRestored(ctx, org.Key.Sort, by, &did),
		)
		if did != (api.Restored{}) {
			err = errors.Join(err, p.ledger.Change(ctx, func(_ context.Context, c *ledger.Change) error {
				identity.Audit(c, identity.Principal{Organization: org.Key.Sort, Name: by}, "records.restore", org.Key.Sort, "done", did.String())
				return nil
			}))
		}
		if out = out.Plus(did); err != nil {
			return out, err
		}
	}
	return out, nil
}
