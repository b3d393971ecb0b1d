package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Routing says which pools may claim the runs of a workspace. A submit and a change of a workspace route the
// workspace in their own commit. A change that may lead many workspaces to other pools raises the epoch of the
// organization's routes in its commit: from then on nothing is claimed of a workspace until it is routed again. Three
// do that, in commits of one workspace each: the caller of the change, right after it and for a while; a claim that
// sees a run of such a workspace; and the pass, which goes on where the record Rerouting says. So a crash leaves no
// workspace with an old route.

// Bounds of an organization's label sets and pinned instances. A claim reads all label sets of its pool.
const (
	maxLabelSets = 64
	maxPins      = 100
)

// maxWoken is how many pools of a label set are woken for a run; the others find it when they look.
const maxWoken = 10

// How much of a rerouting is done by the call that caused it.
const (
	inlineWorkspaces = 200
	inlineTime       = 2 * time.Second
)

// route resolves a workspace.
func route(ctx context.Context, c *ledger.Change, org string, ws record.Workspace, epoch int64) (record.Route, error) {
	choice, err := ChoiceOf(ctx, c, org, ws)
	if err != nil {
		return record.Route{}, err
	}
	out := record.Route{Key: choice.Key, Epoch: epoch, Scope: choice.Scope}
	if choice.PoolID != "" {
		out.Wake = []string{choice.PoolID}
		return out, nil
	}
	pools, err := AllPools(ctx, c, org)
	for _, pool := range pools {
		if len(out.Wake) < maxWoken && !pool.Closed && choice.Covers(pool) && pool.Serves(choice.Scope) {
			out.Wake = append(out.Wake, pool.ID)
		}
	}
	return out, err
}

// AllPools reads the pools of an organization, also closed ones.
func AllPools(ctx context.Context, c *ledger.Change, org string) (out []record.Pool, err error) {
	for pool, err := range ledger.AllOf[record.Pool](ctx, c, record.Under(record.OrganizationPart(org), "pool/", 500)) {
		if err != nil {
			return nil, err
		}
		out = append(out, pool)
	}
	return out, nil
}

// Route brings the route of a workspace's queue up to date in a change. remaining says that claimable runs remain
// under old keys.
func Route(ctx context.Context, c *ledger.Change, org string, ws record.Workspace) (remaining bool, err error) {
	routes, err := c.Routes(ctx, org)
	if err != nil {
		return false, err
	}
	q, err := c.Queue(ctx, ws.ID)
	if err != nil || q.Route.Fresh(*routes) && len(q.Route.Old) == 0 {
		return false, err
	}
	to, err := route(ctx, c, org, ws, routes.Epoch)
	if err != nil {
		return false, err
	}
	return c.Route(ctx, ws.ID, to)
}

// Repair routes the workspace of a run that a claim may not take because its route is out of date. It does so in
// commits of its own.
func (p *Calls) Repair(ctx context.Context, org string, of record.Entry) error {
	return p.routeAgain(ctx, org, of.Workspace, of.WorkspaceID)
}

func (p *Calls) routeAgain(ctx context.Context, org, name, wsid string) error {
	for remaining := true; remaining; {
		err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) (err error) {
			remaining = false
			ws, err := Workspace(ctx, c, org, name)
			if err == nil && ws.ID != wsid {
				err = fmt.Errorf("workspace %s was deleted while workflows of it wait: %w", name, workflow.ErrNotFound)
			}
			if err != nil {
				return err
			}
			if remaining, err = Route(ctx, c, org, ws); err == nil {
				c.Check(record.WorkspaceKey(org, name)) // it was resolved as it is now
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("route workspace %s: %w", name, err)
		}
	}
	return nil
}

// Reroute adds to a change that all workspaces of an organization must be routed again. The caller calls RerouteAll
// after the commit. Claims and the pass do the rest.
func Reroute(ctx context.Context, c *ledger.Change, org string) error {
	routes, err := c.Routes(ctx, org)
	if err != nil {
		return err
	}
	routes.Epoch++
	k := record.ReroutingKey(org)
	if err := c.Load(ctx, k); err != nil {
		return err
	}
	c.Put(k, record.Rerouting{Epoch: routes.Epoch})
	return nil
}

// rerouteLabels is Reroute where a pool's labels or assignments change: that concerns nobody if no workspace wants
// labels.
func rerouteLabels(ctx context.Context, c *ledger.Change, org string) (bool, error) {
	routes, err := c.Routes(ctx, org)
	if err != nil || len(routes.Labels) == 0 {
		return false, err
	}
	return true, Reroute(ctx, c, org)
}

// SetDefault makes a pool the default of an organization, whose record the caller puts. The built-in pool, or "",
// means none. It says whether the caller must call RerouteAll after the commit.
func SetDefault(ctx context.Context, c *ledger.Change, o *record.Organization, name string) (rerouted bool, err error) {
	id := ""
	if name != "" && name != builtInPool {
		pool, err := byName(ctx, c, o.Name, name)
		if err == nil && pool.Closed {
			err = closed(pool)
		}
		if err != nil {
			return false, err
		}
		c.Check(record.PoolKey(o.Name, pool.ID))
		id = pool.ID
	}
	if id == o.DefaultPool {
		return false, nil
	}
	o.DefaultPool = id
	return true, Reroute(ctx, c, o.Name)
}

// RerouteAll routes the workspaces of an organization again that are out of date, the first 200 of them or for two
// seconds. An error is not the caller's: its change is made, and the pass goes on.
func (p *Calls) RerouteAll(ctx context.Context, org string) {
	until := p.ledger.Now().Add(inlineTime)
	err := p.RerouteOn(ctx, org, func(done int) bool { return done >= inlineWorkspaces || p.ledger.Now().After(until) })
	if err != nil {
		p.ledger.Log.Warn("workspaces not routed again; the next pass goes on", "organization", org, "err", err)
	}
}

// reroutePage is how many workspaces are read at once.
const reroutePage = 100

// RerouteOn routes workspaces again, from where the last call stopped, until all are done or it is enough.
func (p *Calls) RerouteOn(ctx context.Context, org string, enough func(done int) bool) error {
	done, k := 0, record.ReroutingKey(org)
	var failures []error
	for {
		r, err := p.ledger.Read(ctx, k, record.RoutesKey(org))
		if err != nil {
			return err
		}
		at, ok, err := ledger.Get[record.Rerouting](r, k)
		if err != nil || !ok || enough(done) {
			return errors.Join(append(failures, err)...)
		}
		all := record.Under(record.OrganizationPart(org), "workspace/", reroutePage)
		all.After = at.After
		page, err := p.ledger.Range(ctx, all)
		if err != nil {
			return err
		}
		stale, err := p.stale(ctx, r, org, page.Records)
		if err != nil {
			return err
		}
		next := page.Next
		for i, ws := range stale {
			if err := p.routeAgain(ctx, org, ws.W.Name, ws.ID); errors.Is(err, workflow.ErrNotFound) {
				continue // deleted meanwhile
			} else if ctx.Err() != nil {
				return err
			} else if err != nil {
				failures = append(failures, err) // the others go on
			}
			if done++; enough(done) && i+1 < len(stale) {
				next = record.WorkspaceKey(org, ws.W.Name).Sort
				break
			}
		}
		op := store.Delete(k, r.Version(k))
		if next != "" {
			op = store.Put(record.Encode(k, record.Rerouting{Epoch: at.Epoch, After: next}), r.Version(k))
		}
		// If another process went on or began anew meanwhile, its record stays.
		if err := p.ledger.Commit(ctx, []store.Op{op}); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// stale returns those workspaces of a page that have runs and whose route is out of date. A queue without runs is
// routed by its next submit.
func (p *Calls) stale(ctx context.Context, r ledger.Read, org string, page []store.Record) (out []record.Workspace, err error) {
	routes, _, err := ledger.Get[record.Routes](r, record.RoutesKey(org))
	if err != nil {
		return nil, err
	}
	skipped := func(err error) { p.ledger.Log.Error("unreadable record skipped", "err", err) } // the others go on
	var all []record.Workspace
	var keys []store.Key
	for _, rec := range page {
		ws, err := record.Decode[record.Workspace](rec)
		if err != nil {
			skipped(err)
			continue
		}
		all, keys = append(all, ws), append(keys, record.QueueKey(ws.ID))
	}
	lanes, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for i, ws := range all {
		q, ok, err := ledger.Get[record.Queue](lanes, keys[i])
		if err != nil {
			skipped(err)
			continue
		}
		if ok && !q.Empty() && (!q.Route.Fresh(routes) || len(q.Route.Old) > 0) {
			out = append(out, ws)
		}
	}
	return out, nil
}

// updateRoute routes the runs of a changed workspace by its new settings. rerouted says that this takes more than one
// commit, so that RerouteAll must go on.
func updateRoute(ctx context.Context, c *ledger.Change, org string, before api.Workspace, ws record.Workspace) (rerouted bool, err error) {
	if err := count(ctx, c, org, before, ws.W); err != nil || sameRoute(before, ws.W) {
		return false, err
	}
	if err := c.Load(ctx, record.QueueKey(ws.ID)); err != nil || c.Version(record.QueueKey(ws.ID)) == store.Absent {
		return false, err // its first submit routes it
	}
	routes, err := c.Routes(ctx, org)
	if err != nil {
		return false, err
	}
	q, err := c.Queue(ctx, ws.ID)
	if err != nil {
		return false, err
	}
	was, fresh := q.Route, q.Route.Fresh(*routes)
	q.Route.Epoch-- // out of date
	remaining, err := Route(ctx, c, org, ws)
	switch {
	case err != nil:
		return false, err
	case fresh && remaining:
		// A claim that has read the route before must not take the remaining runs.
		err = Reroute(ctx, c, org)
		q.Route.Epoch = routes.Epoch
	case fresh && was.Key == q.Route.Key && !was.Scope.Equal(q.Route.Scope) && q.Used() > 0:
		routes.Scopes++ // the same for a claim that has read the scope before
	}
	return remaining, err
}

// checkRoute checks the settings that choose pools, and fills in the project. Whether the pool and the project exist
// is checked when the workspace is stored.
func checkRoute(w *api.Workspace) error {
	w.Project = cmp.Or(w.Project, record.GlobalProject)
	for _, s := range []struct{ field, name string }{{"project", w.Project}, {"stack", w.Stack}, {"namespace", w.Namespace}} {
		if s.name != "" && workflow.CheckWorkspaceName(s.name) != nil {
			return workflow.Invalid(s.field, "a %s has 1 to 64 characters of A-Z, a-z, 0-9, _ and -; %q has others", s.field, text.Cut(s.name, 64))
		}
	}
	w.Labels = text.Sorted(w.Labels)
	switch {
	case len(w.Labels) > 0 && w.Pool != "":
		return workflow.Invalid("labels", "a workspace names a pool or labels, not both: leave one of them out")
	case len(w.Labels) > 0 && w.Runner != "":
		return workflow.Invalid("runner", "an instance is one of a pool, and labels leave the pool open: leave labels or runner out")
	case len(w.Runner) > 128 || strings.ContainsFunc(w.Runner, func(r rune) bool { return r <= ' ' || r > '~' }):
		return workflow.Invalid("runner", "the name of an instance has at most 128 printable characters without spaces")
	}
	return checkLabels(w.Labels, maxLabelTarget)
}

// poolOf reads the pool that a workspace leads to; none with labels. It refuses a closed one. The commit fails if the
// pool is closed meanwhile.
func poolOf(ctx context.Context, c *ledger.Change, org string, w api.Workspace) (pool record.Pool, err error) {
	choice, err := ChoiceOf(ctx, c, org, record.Workspace{W: w})
	if err != nil || choice.PoolID == "" {
		return pool, err
	}
	k := record.PoolKey(org, choice.PoolID)
	pool, ok, err := ledger.Load[record.Pool](ctx, c, k)
	switch {
	case err != nil:
		return pool, err
	case !ok:
		return pool, fmt.Errorf("pool %s was deleted between reads: %w", choice.PoolID, store.ErrConflict)
	case pool.Closed:
		return pool, closed(pool)
	}
	c.Check(k)
	return pool, nil
}

func closed(pool record.Pool) error {
	return workflow.Refuse(workflow.ErrInUse, "pool", "pool %s is closed: it was deleted, and takes no new work; name another pool in the workspace", pool.Name)
}

// sameRoute says whether two settings of a workspace lead to the same pools.
func sameRoute(a, b api.Workspace) bool {
	return a.Pool == b.Pool && a.Runner == b.Runner && a.Project == b.Project && a.Stack == b.Stack && a.Namespace == b.Namespace &&
		pathOfRoles(a) == pathOfRoles(b) && slices.Equal(text.Sorted(a.Labels), text.Sorted(b.Labels))
}

// count updates the counts of the label sets and the pinned instances that the workspaces of an organization use.
func count(ctx context.Context, c *ledger.Change, org string, before, after api.Workspace) error {
	set := func(w api.Workspace) string {
		if len(w.Labels) == 0 {
			return ""
		}
		return record.LabelRoute(text.Sorted(w.Labels))
	}
	if set(before) == set(after) && before.Runner == after.Runner {
		return nil
	}
	routes, err := c.Routes(ctx, org)
	if err != nil {
		return err
	}
	add := func(in map[string]int, was, is string, limit int) (map[string]int, bool) {
		if was == is {
			return in, true
		}
		if in[was]--; in[was] <= 0 {
			delete(in, was)
		}
		if is != "" {
			in[is]++
		}
		return in, len(in) <= limit
	}
	if routes.Labels == nil {
		routes.Labels = map[string]int{}
	}
	var fits bool
	if routes.Labels, fits = add(routes.Labels, set(before), set(after), maxLabelSets); !fits {
		return workflow.Refuse(workflow.ErrInUse, "labels", "workspaces of the organization already want %d different sets of labels, and no more are possible: use one of those, or change a workspace that is the only one with its set", maxLabelSets)
	}
	if routes.Pins == nil {
		routes.Pins = map[string]int{}
	}
	if routes.Pins, fits = add(routes.Pins, before.Runner, after.Runner, maxPins); !fits {
		return workflow.Refuse(workflow.ErrInUse, "runner", "workspaces of the organization are already pinned to %d different instances, and no more are possible: name one of those, or let a workspace go to its pool", maxPins)
	}
	return nil
}
