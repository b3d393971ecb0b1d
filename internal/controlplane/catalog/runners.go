package catalog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	runnerGone = time.Hour // after its last call, an instance leaves the list
	maxRunning = 500       // active workflows that a list of instances reads
)

// Runners lists the instances that were seen under a pool recently, with their active workflows.
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

// activeOf reads the active workflows of a pool. They are read one by one after their list, so those that ended in
// between are missing.
func activeOf(ctx context.Context, c *ledger.Change, poolID string) (out []record.Workflow, err error) {
	page, err := c.Range(ctx, store.Scan{Part: record.ActivePart(poolID), Limit: maxRunning})
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
	for _, k := range keys {
		w, ok, err := ledger.Get[record.Workflow](c.Read, k)
		if err != nil {
			return nil, err
		}
		if ok && w.Active && w.PoolID == poolID {
			out = append(out, w)
		}
	}
	return out, nil
}

// maxPending is how many claimable workflows of one key and type are counted.
const maxPending = 200

// load adds the waiting workflows and the refused launches of a pool to its view.
func (p *Calls) load(ctx context.Context, c *ledger.Change, org string, rec record.Pool, out *api.Pool) error {
	routes, _, err := ledger.Load[record.Routes](ctx, c, record.RoutesKey(org))
	if err != nil {
		return err
	}
	keys := []string{record.PoolRoute(rec.ID)}
	for _, set := range slices.Sorted(maps.Keys(routes.Labels)) {
		if rec.Has(record.LabelsOfRoute(set)) {
			keys = append(keys, set)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(routes.Pins)) {
		keys = append(keys, record.RunnerRoute(rec.ID, name))
	}
	if err := addPending(ctx, c, rec, keys, out); err != nil {
		return err
	}
	active, err := activeOf(ctx, c, rec.ID)
	addRefused(active, out)
	return err
}

// addPending counts the claimable workflows of a pool under some keys.
func addPending(ctx context.Context, c *ledger.Change, rec record.Pool, keys []string, out *api.Pool) error {
	var scans []store.Scan
	for _, key := range keys {
		for _, t := range workflow.Types() {
			if rec.Takes(t) {
				scans = append(scans, store.Scan{Part: record.ClaimPart(key, t), Limit: maxPending})
			}
		}
	}
	pages, err := c.Ranges(ctx, scans...)
	if err != nil {
		return err
	}
	for _, page := range pages {
		for _, r := range page.Records {
			at := record.RankedAt(r.Key.Sort)
			if out.Pending++; out.OldestPending == nil || at.Before(*out.OldestPending) {
				out.OldestPending = &at
			}
		}
	}
	return nil
}

// addRefused counts the claimed workflows with refused launches, by reason.
func addRefused(active []record.Workflow, out *api.Pool) {
	for _, w := range active {
		if w.State != workflow.Claimed || w.Held.Reason == "" {
			continue
		}
		i := slices.IndexFunc(out.Refused, func(r api.Refused) bool { return r.Reason == w.Held.Reason })
		if i < 0 {
			i, out.Refused = len(out.Refused), append(out.Refused, api.Refused{Reason: w.Held.Reason, Text: w.Held.Text, RetryAt: w.Held.Until})
		}
		if out.Refused[i].Count++; w.Held.Until.Before(out.Refused[i].RetryAt) {
			out.Refused[i].RetryAt = w.Held.Until
		}
	}
}

// running reads the active workflows of a pool by the names of its instances.
func running(ctx context.Context, c *ledger.Change, poolID string) (map[string][]api.Running, error) {
	active, err := activeOf(ctx, c, poolID)
	out := map[string][]api.Running{}
	for _, w := range active {
		out[w.Instance] = append(out[w.Instance], api.Running{
			Workflow: w.ID, Workspace: w.Workspace, Type: w.Type, Operation: w.Op, State: w.State, Task: w.TaskRef(), Since: w.Since,
		})
	}
	return out, err
}
