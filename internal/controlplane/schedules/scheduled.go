package schedules

import (
	"context"
	"errors"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// covers says whether a schedule is about a workspace.
func covers(ctx context.Context, c *ledger.Change, org string, s api.Schedule, ws record.Workspace) (bool, error) {
	if slices.Contains(s.Workspaces, ws.W.Name) {
		return true, nil
	}
	if len(s.Projects) == 0 {
		return false, nil
	}
	chain, err := catalog.Chain(ctx, c, org, ws.W.Project)
	if errors.Is(err, workflow.ErrNotFound) {
		err = nil
	}
	return slices.ContainsFunc(chain, func(name string) bool { return slices.Contains(s.Projects, name) }), err
}

// targets reads the workspaces of a schedule by name, page by page: next is where the following page begins, or "". A
// page may be empty. c keeps the projects that it reads.
func (p *Calls) targets(ctx context.Context, c *ledger.Change, org string, s api.Schedule, after string, limit int) (out []record.Workspace, next string, err error) {
	if len(s.Projects) == 0 {
		return p.byName(ctx, org, s.Workspaces, after, limit)
	}
	scan := record.Under(record.OrganizationPart(org), "workspace/", limit)
	scan.After = after
	page, err := p.ledger.Range(ctx, scan)
	if err != nil {
		return nil, "", err
	}
	for _, r := range page.Records {
		ws, err := record.Decode[record.Workspace](r)
		if err != nil {
			return nil, "", err
		}
		if in, err := covers(ctx, c, org, s, ws); err != nil {
			return nil, "", err
		} else if in {
			out = append(out, ws)
		}
	}
	return out, page.Next, nil
}

// byName reads workspaces whose names are sorted. One that was deleted is passed over.
func (p *Calls) byName(ctx context.Context, org string, names []string, after string, limit int) (out []record.Workspace, next string, err error) {
	var keys []store.Key
	for _, name := range names {
		if k := record.WorkspaceKey(org, name); k.Sort > after && len(keys) < limit {
			keys = append(keys, k)
		}
	}
	r, err := p.ledger.Read(ctx, keys...)
	for _, k := range keys {
		ws, ok, one := ledger.Get[record.Workspace](r, k)
		if err = errors.Join(err, one); ok {
			out = append(out, ws)
		}
	}
	if len(keys) == limit {
		next = keys[limit-1].Sort
	}
	return out, next, err
}

// plannedOf reads the records of the last actions of a schedule for workspaces.
func (p *Calls) plannedOf(ctx context.Context, id string, list []record.Workspace) ([]record.Planned, error) {
	keys := make([]store.Key, len(list))
	for i, ws := range list {
		keys[i] = record.PlannedKey(id, ws.ID)
	}
	r, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	out := make([]record.Planned, len(list))
	for i, k := range keys {
		if out[i], _, err = ledger.Get[record.Planned](r, k); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ScheduledRuns lists the last and the next run of a schedule in each of its workspaces, by their names.
func (p *Calls) ScheduledRuns(ctx context.Context, who identity.Principal, name, cursor string, limit int) (out api.Page[api.ScheduledRun], err error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleViewer, "schedule.list_runs", name); err != nil {
		return out, err
	}
	c := p.ledger.View()
	s, err := p.Schedules.Find(ctx, c, who.Organization, name)
	if err != nil {
		return out, err
	}
	after, err := ledger.OpenCursor(s.ID, cursor)
	if err != nil {
		return out, err
	}
	list, next, err := p.targets(ctx, c, who.Organization, s.V, after, ledger.PageSize(limit, roundPage))
	if err != nil {
		return out, err
	}
	out.Next = ledger.SealCursor(s.ID, next)
	known, err := p.plannedOf(ctx, s.ID, list)
	if err != nil {
		return out, err
	}
	out.Items = []api.ScheduledRun{}
	for i, ws := range list {
		out.Items = append(out.Items, api.ScheduledRun{Schedule: name, Workspace: ws.W.Name})
		if err := p.scheduled(ctx, c, s, ws, known[i], &out.Items[i]); err != nil {
			return out, err
		}
	}
	return out, p.states(ctx, out.Items)
}

// WorkspaceSchedules lists the schedules of a workspace, with their last and next runs in it.
func (p *Calls) WorkspaceSchedules(ctx context.Context, who identity.Principal, name string) (out api.Page[api.ScheduledRun], err error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.list_schedules", name, p.catalog.InWorkspace(who.Organization, name)); err != nil {
		return out, err
	}
	c := p.ledger.View()
	ws, err := catalog.Workspace(ctx, c, who.Organization, name)
	if err != nil {
		return out, err
	}
	out.Items = []api.ScheduledRun{}
	scan := record.SettingsOf(who.Organization, kind.Schedule, roundPage)
	for s, err := range ledger.AllOf[schedule](ctx, c, scan) {
		if err != nil {
			return out, err
		}
		if in, err := covers(ctx, c, who.Organization, s.V, ws); err != nil {
			return out, err
		} else if !in {
			continue
		}
		known, err := p.plannedOf(ctx, s.ID, []record.Workspace{ws})
		if err != nil {
			return out, err
		}
		one := api.ScheduledRun{Schedule: s.V.Name, Workspace: name}
		if err := p.scheduled(ctx, c, s, ws, known[0], &one); err != nil {
			return out, err
		}
		out.Items = append(out.Items, one)
	}
	return out, p.states(ctx, out.Items)
}

// scheduled fills in the last and the next run of a schedule in a workspace. c keeps the records that it reads.
func (p *Calls) scheduled(ctx context.Context, c *ledger.Change, s schedule, ws record.Workspace, known record.Planned, out *api.ScheduledRun) error {
	done, _, err := ledger.Load[record.Cycle](ctx, c, record.CycleKey(s.ID))
	if err != nil {
		return err
	}
	out.Workflow, out.Missed, out.Note = known.Run, known.Missed, known.Note
	now := p.ledger.Now()
	if cycle, err := cycleOf(s, done, now); err != nil {
		out.Note = err.Error() // this process does not know its time zone: the pass says so too
	} else {
		out.NextAt = cycle.nextAt(target{id: ws.ID, made: ws.Created, planned: known}, now)
	}
	if !known.At.IsZero() {
		out.LastAt = &known.At
	}
	return nil
}

// states fills in where the last runs stand. One whose record is deleted has no state.
func (p *Calls) states(ctx context.Context, list []api.ScheduledRun) error {
	var keys []store.Key
	for _, one := range list {
		if one.Workflow != "" {
			keys = append(keys, record.WorkflowKey(one.Workflow))
		}
	}
	r, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return err
	}
	for i := range list {
		w, _, err := ledger.Get[record.Workflow](r, record.WorkflowKey(list[i].Workflow))
		if err != nil {
			return err
		}
		list[i].State = w.State
	}
	return nil
}
