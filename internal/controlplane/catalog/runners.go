package catalog

import (
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

const (
	runnerGone  = time.Hour // after its last call, an instance leaves the list
	mostRunning = 500       // active workflows that a list of instances reads
)

// Runners lists the instances that were seen under a pool recently, with what each has.
func (p *Calls) Runners(ctx context.Context, who identity.Principal, pool string) (api.Page[api.Runner], error) {
	out := api.Page[api.Runner]{Items: []api.Runner{}}
	if err := identity.Allow(ctx, p.ledger, who, api.RoleViewer, "pool.runners", pool); err != nil {
		return out, err
	}
	c := p.ledger.View()
	rec, err := byName(ctx, c, who.Organization, pool)
	if err != nil {
		return out, err
	}
	runners, err := Instances(ctx, c, rec.ID)
	if err != nil {
		return out, err
	}
	has, err := running(ctx, c, rec.ID)
	if err != nil {
		return out, err
	}
	for _, r := range runners {
		if p.ledger.Now().Sub(r.Last) < runnerGone {
			out.Items = append(out.Items, api.Runner{Name: r.Name, Version: r.Version, Running: has[r.Name], FirstSeen: r.First, LastSeen: r.Last})
		}
	}
	return out, nil
}

// running reads what the instances of a pool have, by their names. The workflows are read one by one after their list,
// so what ended in between is left out.
func running(ctx context.Context, c *ledger.Change, poolID string) (map[string][]api.Running, error) {
	page, err := c.Range(ctx, store.Scan{Part: record.ActivePart(poolID), Limit: mostRunning})
	if err != nil {
		return nil, err
	}
	var keys []store.Key
	for _, r := range page.Records {
		keys = append(keys, record.WorkflowKey(r.Key.Sort))
	}
	if err := c.Load(ctx, keys...); err != nil {
		return nil, err
	}
	out := map[string][]api.Running{}
	for _, k := range keys {
		w, ok, err := ledger.Get[record.Workflow](c.Read, k)
		if err != nil {
			return nil, err
		}
		if !ok || !w.Active || w.PoolID != poolID {
			continue
		}
		out[w.Instance] = append(out[w.Instance], api.Running{
			Workflow: w.ID, Workspace: w.Workspace, Type: w.Type, Operation: w.Op, State: w.State, Task: w.TaskRef(), Since: w.Since,
		})
	}
	return out, nil
}
