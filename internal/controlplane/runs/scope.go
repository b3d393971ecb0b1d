package runs

import (
	"context"
	"errors"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// inWorkflow is the scope of calls about a workflow: that of its workspace. A workflow whose workspace was deleted is
// in no project, so only a role in the organization counts: its name may belong to somebody else by now.
func (p *Calls) inWorkflow(org, id string) identity.Scope {
	return func(ctx context.Context) ([]string, error) {
		w, _, err := p.ledger.Workflow(ctx, org, id)
		if err != nil {
			return nil, err
		}
		c := p.ledger.View()
		ws, ok, err := workspaceOf(ctx, c, &w)
		if err != nil || !ok {
			return nil, err
		}
		return catalog.Chain(ctx, c, org, ws.W.Project)
	}
}

// workspaceOf reads the workspace of a workflow; ok is false if it was deleted.
func workspaceOf(ctx context.Context, c *ledger.Change, w *record.Workflow) (ws record.Workspace, ok bool, err error) {
	ws, err = catalog.Workspace(ctx, c, w.Org, w.Workspace)
	if errors.Is(err, workflow.ErrNotFound) {
		return ws, false, nil
	}
	return ws, ws.ID == w.WorkspaceID, err
}

// picked is a workflow of a list, with the version of its record.
type picked struct {
	record.Workflow
	version int64
}

// picks returns a filter of a list: the workflows that are wanted and that who may see. With all, who may see every
// one of them.
func (p *Calls) picks(ctx context.Context, who identity.Principal, all bool, wanted func(*record.Workflow) bool) func([]store.Record) ([]picked, error) {
	c := p.ledger.View()
	sees, all := catalog.Sees(ctx, c, who), all || who.Has(api.RoleViewer)
	return func(records []store.Record) (out []picked, err error) {
		var keys []store.Key
		for _, r := range records {
			w, err := record.Decode[record.Workflow](r)
			if err != nil {
				return nil, err
			}
			if wanted(&w) {
				out, keys = append(out, picked{w, r.Version}), append(keys, record.WorkspaceKey(w.Org, w.Workspace))
			}
		}
		if all {
			return out, nil
		}
		if err := c.Load(ctx, keys...); err != nil { // together, so that each is not a request of its own
			return nil, err
		}
		out = slices.DeleteFunc(out, func(w picked) bool {
			ws, ok, one := workspaceOf(ctx, c, &w.Workflow)
			if ok && one == nil {
				ok, one = sees(ws.W.Project)
			}
			err = errors.Join(err, one)
			return !ok
		})
		return out, err
	}
}
