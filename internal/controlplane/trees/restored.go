package trees

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// EndRestored ends the trees of an organization whose records were restored. It counts them in out.
func (p *Calls) EndRestored(ctx context.Context, org, why string, out *api.Restored) error {
	for r, err := range p.ledger.View().All(ctx, store.Scan{Part: record.OpenTreePart(org), Limit: 100}) {
		if err == nil {
			err = p.endTree(ctx, org, r.Key.Sort, why, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endTree cancels the waiting nodes of a tree. Its runs are ended, or go on, as all others.
func (p *Calls) endTree(ctx context.Context, org, id, why string, out *api.Restored) error {
	ended := 0
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		ended = 0
		k := record.RunTreeKey(org, id)
		t, ok, err := ledger.Load[record.RunTree](ctx, c, k)
		if err != nil || !ok || t.Over() || len(t.In(api.TreeWaiting)) == 0 {
			return err
		}
		for i := range t.Nodes {
			if n := &t.Nodes[i]; n.State == api.TreeWaiting {
				n.State, n.Note = api.TreeCancelled, why
			}
		}
		c.Put(k, t)
		ended = 1
		return nil
	})
	out.Trees += ended
	return err
}
