package runs

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxActivity = 50 // workspaces of one page
	lookedBack  = 20 // runs of a workspace among which its last scan is looked for
)

// Activities lists the workspaces whose name contains part, with their activity, by name. Each costs one read of an
// index, which may lag.
func (p *Calls) Activities(ctx context.Context, who identity.Principal, part, cursor string, limit int) (out api.Page[api.Activity], err error) {
	out.Items = []api.Activity{}
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.list", "", who.AnyProject); err != nil {
		return out, err
	}
	part = strings.ToLower(part)
	sees := catalog.Sees(ctx, p.ledger.View(), who)
	all := record.Under(record.OrganizationPart(who.Organization), "workspace/", ledger.PageSize(limit, maxActivity))
	page, err := ledger.ListWhere(ctx, p.ledger, all, cursor, func(ws record.Workspace) (bool, error) {
		if !strings.Contains(strings.ToLower(ws.W.Name), part) {
			return false, nil
		}
		return sees(ws.W.Project)
	}, func(ws record.Workspace, _ int64) record.Workspace { return ws })
	if err != nil {
		return out, err
	}
	out.Next = page.Next
	out.Items, err = p.activities(ctx, who.Organization, page.Items)
	return out, err
}

// Activity returns the activity in one workspace, the place of its state, and the requirements for its plans.
func (p *Calls) Activity(ctx context.Context, who identity.Principal, name string) (out api.Activity, err error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.show", name, p.catalog.InWorkspace(who.Organization, name)); err != nil {
		return out, err
	}
	c := p.ledger.View()
	ws, err := catalog.Workspace(ctx, c, who.Organization, name)
	if err != nil {
		return out, err
	}
	all, err := p.activities(ctx, who.Organization, []record.Workspace{ws})
	if err != nil {
		return out, err
	}
	out = all[0]
	found, ok, err := ledger.Load[api.StateFound](ctx, c, record.StateKey(who.Organization, ws.ID))
	if err != nil {
		return out, err
	}
	if ok {
		out.State = &found
	}
	if out.WaitsFor, out.Feeds, err = catalog.Around(ctx, c, who, ws.W.Name); err != nil {
		return out, err
	}
	produced, ok, err := ledger.Load[record.Produced](ctx, c, record.ProducedKey(who.Organization, ws.ID))
	if err != nil {
		return out, err
	}
	if ok {
		out.OutputsAt = &produced.At
	}
	levels, _, err := catalog.Requirements(ctx, c, who.Organization, ws)
	for _, l := range levels {
		out.Approvals = append(out.Approvals, l.Of+": "+l.Text())
	}
	return out, err
}

// activities reads the activity in workspaces.
func (p *Calls) activities(ctx context.Context, org string, list []record.Workspace) ([]api.Activity, error) {
	runs, err := p.latestRuns(ctx, list)
	if err != nil {
		return nil, err
	}
	out := make([]api.Activity, len(list))
	var queues []store.Key
	for _, ws := range list {
		queues = append(queues, record.QueueKey(ws.ID))
	}
	r, err := p.ledger.Read(ctx, queues...)
	if err != nil {
		return nil, err
	}
	changers := make([]store.Key, len(list))
	for i, k := range queues {
		q, _, err := ledger.Get[record.Queue](r, k)
		if err != nil {
			return nil, err
		}
		out[i].Waiting, changers[i] = q.WaitC+q.WaitO, record.WorkflowKey(q.Changer)
	}
	if r, err = p.ledger.Read(ctx, slices.DeleteFunc(slices.Clone(changers), func(k store.Key) bool { return k == record.WorkflowKey("") })...); err != nil {
		return nil, err
	}
	var last []picked
	for i, ws := range list {
		changer, _, err := ledger.Get[record.Workflow](r, changers[i])
		if err != nil {
			return nil, err
		}
		out[i].Workspace, out[i].Project, out[i].Engine = ws.W.Name, ws.W.Project, ws.W.Engine
		out[i].Checks = checksOf(runs[i])
		if out[i].Drift = driftOf(runs[i]); changer.SlotHeld {
			out[i].Holder = changer.ID
		}
		if len(runs[i]) > 0 {
			last = append(last, runs[i][0])
		}
	}
	shown, err := p.views(ctx, org, last)
	for i := range out {
		if err == nil && len(runs[i]) > 0 {
			out[i].Last, shown = &shown[0], shown[1:]
		}
	}
	return out, err
}

// latestRuns reads the latest runs of each workspace, the newest first.
func (p *Calls) latestRuns(ctx context.Context, list []record.Workspace) ([][]picked, error) {
	runs := make([][]picked, len(list))
	var group errgroup.Group
	group.SetLimit(p.ledger.AtOnce())
	for i, ws := range list {
		group.Go(func() error {
			page, err := p.ledger.Query(ctx, store.Index2, store.Scan{Part: "ws/" + ws.ID, Limit: lookedBack, Reverse: true})
			for _, r := range page.Records {
				w, one := record.Decode[record.Workflow](r)
				if one != nil {
					return one
				}
				runs[i] = append(runs[i], picked{w, r.Version})
			}
			return err
		})
	}
	return runs, group.Wait()
}

// driftOf is the drift that the last scan among the runs of a workspace found, the newest first; nil if there is
// none, or if an update, a refresh or a destroy has resolved it since.
func driftOf(runs []picked) *api.Drift {
	for _, w := range runs {
		switch {
		case w.State != workflow.Succeeded:
		case w.Type == workflow.InsightsScan:
			out := api.Drift{Workflow: w.ID, At: w.Ended}
			if w.Changes != nil {
				out.Resources = w.Changes.Drift
			}
			return &out
		case w.ChangesState():
			return nil
		}
	}
	return nil
}

// checksOf is the check blocks that failed in the last run of a workspace, the newest first, whose result is that of
// its resources as they are: a scan, or a run that may have changed them. It is nil if none failed there.
func checksOf(runs []picked) *api.RunChecks {
	i := slices.IndexFunc(runs, func(w picked) bool {
		return w.State == workflow.Succeeded && (w.Type == workflow.InsightsScan || w.ChangesState())
	})
	if i < 0 || runs[i].Checks == 0 {
		return nil
	}
	return &api.RunChecks{Workflow: runs[i].ID, Failing: runs[i].Checks, At: runs[i].Ended}
}
