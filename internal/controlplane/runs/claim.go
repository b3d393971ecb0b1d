package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxClaim  = 50 // jobs that one claim hands out
	perCommit = 12 // jobs that one commit claims: 7 operations each, the limits, and those of seen
)

// Claim hands out work that can start now. With a wait it waits until there is any. It commits nothing after the wait
// is over or ctx has ended.
func (p *Calls) Claim(ctx context.Context, who identity.Principal, in api.Claim) (api.Claimed, error) {
	if err := who.NeedsPool("claim"); err != nil {
		return api.Claimed{}, err
	}
	if err := checkClaim(in); err != nil {
		return api.Claimed{}, err
	}
	var out api.Claimed
	due := dueSince{began: p.ledger.Now()}
	wait := time.Duration(in.WaitSeconds) * time.Second
	first, more := true, false
	err := p.ledger.Await(ctx, who.PoolID, wait, func(notified bool) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err // the caller has gone and would not get the claim
		}
		now := p.ledger.Now()
		if !first && !notified && !more && !due.changed(now) && !p.ledger.Owed(ctx, who.PoolID) {
			return false, nil
		}
		// The first read gets all records that a search begins with. A mark is cleared before the claimable runs are
		// read.
		before := p.ledger.ReadAhead(ctx, append(p.seenKeys(who, in), record.WakeKey(who.PoolID),
			record.PoolKey(who.Organization, who.PoolID), record.PoolLimitKey(who.Organization, who.PoolID),
			record.OrganizationLimitKey(who.Organization), record.CursorKey(who.PoolID), record.HoldKey(who.PoolID), record.RoutesKey(who.Organization), record.DeliveriesKey(who.PoolID))...)
		due.read(before.Read, who.PoolID, !first && notified)
		first = false
		p.ledger.ClearOwed(ctx, who.PoolID, before.Read)
		var err error
		out, more, err = p.claimOnce(ctx, who, in, before)
		out.Deliveries = due.Due(now)
		return len(out.Jobs) > 0 || out.RetryAfterSeconds > 0 || due.changed(now), err
	})
	if err != nil {
		return api.Claimed{}, err
	}
	if out.Jobs == nil {
		out.Jobs = []api.Job{}
	}
	out.Short = len(out.Jobs) < in.Max
	if len(out.Jobs) > 0 {
		p.ledger.Log.Info("jobs claimed", "pool", who.Pool, "instance", in.Instance, "jobs", len(out.Jobs))
	}
	return out, nil
}

// checkClaim refuses a claim outside its bounds.
func checkClaim(in api.Claim) error {
	switch {
	case in.Max < 1 || in.Max > maxClaim:
		return workflow.Refuse(workflow.ErrInvalid, "max", "max lies between 1 and %d", maxClaim)
	case in.Instance == "" || len(in.Instance) > 128:
		return workflow.Refuse(workflow.ErrInvalid, "instance", "a claim names its instance, in at most 128 bytes")
	case in.WaitSeconds < 0 || in.WaitSeconds > 20:
		return workflow.Refuse(workflow.ErrInvalid, "wait_seconds", "wait_seconds lies between 0 and 20")
	}
	return nil
}

// dueSince has the deliveries of a pool, as a waiting claim knows them.
type dueSince struct {
	record.Deliveries
	began time.Time
	woken bool // it was notified just now
}

// justBefore is how long before a claim a delivery may have become due that no earlier claim reported.
const justBefore = 2 * time.Second

// read takes over the records; woken means that the claim was notified.
func (d *dueSince) read(r ledger.Read, poolID string, woken bool) {
	d.Deliveries = record.Deliveries{}
	_ = r.Into(record.DeliveriesKey(poolID), &d.Deliveries) // a claim of deliveries reports the error
	d.woken = woken || ledger.IsOwed(r, poolID)
}

// changed says whether a delivery has become due since the claim began, so that it answers at once. One that was due
// before was reported by the previous claim: a pool that does not ask for it must not make its claims spin.
func (d *dueSince) changed(now time.Time) bool {
	return d.Due(now) && (d.woken || d.Next.After(d.began.Add(-justBefore)))
}

// claimOnce claims runs that can start now, in commits of a few workflows each. more means that it has not read all
// claimable runs.
func (p *Calls) claimOnce(ctx context.Context, who identity.Principal, in api.Claim, before ledger.Ahead) (out api.Claimed, more bool, err error) {
	fold, repaired := true, repairs{tries: map[string]int{}}
	for len(out.Jobs) < in.Max {
		want := min(in.Max-len(out.Jobs), perCommit)
		var got taken
		err := p.ledger.ChangeHot(ctx, before, func(ctx context.Context, c *ledger.Change) error {
			var err error
			got, err = p.claim(ctx, c, who, in, want, fold, repaired)
			return err
		})
		before = ledger.Ahead{}
		if err == nil {
			out.Jobs = append(out.Jobs, got.Jobs...)
		}
		again := len(got.tight) > 0 || len(got.stale) > 0
		fold = len(got.tight) == 0
		for _, s := range got.stale {
			repaired.done++
			if err == nil {
				err = p.repair(ctx, who.Organization, s, repaired)
			}
		}
		for _, k := range got.tight {
			if err == nil {
				_, _, err = p.ledger.Fold(ctx, k)
			}
		}
		if err == nil && got.cut != nil {
			again, err = p.ledger.CutShort(ctx, who.Organization, who.PoolID, got.cut.key, got.cut.max)
		}
		if err != nil {
			if len(out.Jobs) > 0 {
				break // claimed jobs must be handed out
			}
			return out, false, err
		}
		if again {
			continue
		}
		more, out.Note, out.RetryAfterSeconds = got.more, got.Note, got.RetryAfterSeconds
		if len(got.Jobs) < want {
			break
		}
	}
	return out, more, nil
}

// maxRepaired bounds the workspaces that one claim routes again. It skips the runs of others.
const maxRepaired = 50

// repairs counts the repairs of one claim to runs whose route was out of date.
type repairs struct {
	done  int
	tries map[string]int // by the ids of the runs
}

// repairTries is how often a claim tries to repair one run: other commits may be faster.
const repairTries = 3

// mayTry says whether a claim may repair a run, beside others.
func (r repairs) mayTry(id string, others int) bool {
	return r.done+others < maxRepaired && r.tries[id] < repairTries
}

// repair routes the workspace of a run again. A run for which that fails does not stop the claims of others.
func (p *Calls) repair(ctx context.Context, org string, s record.Entry, r repairs) error {
	r.tries[s.ID]++
	err := p.catalog.Repair(ctx, org, s)
	if err != nil && ctx.Err() == nil {
		p.ledger.Log.Error("claimable workflow skipped", "job_id", s.ID, "err", err)
		r.tries[s.ID], err = repairTries, nil
	}
	return err
}

// limit is a limit that a claim must keep.
type limit struct {
	key  store.Key
	max  int // 0 means no limit
	name string
}

// taken is the result of one commit of a claim.
type taken struct {
	api.Claimed
	more  bool
	tight []store.Key    // limits whose freed places are to be folded before anything is claimed
	stale []record.Entry // runs whose workspaces are to be routed again before anything is claimed
	cut   *limit         // the limit that cut it short
}

// claim adds the claim of up to want workflows to a change. With fold it claims nothing if a limit is tight: its
// counter leaves too little room, or is above three quarters. Places that were freed are folded then, and it is
// called again. It is also called again after a repair of runs whose route is out of date.
func (p *Calls) claim(ctx context.Context, c *ledger.Change, who identity.Principal, in api.Claim, want int, fold bool, repaired repairs) (out taken, err error) {
	pk, lk := record.PoolKey(who.Organization, who.PoolID), record.PoolLimitKey(who.Organization, who.PoolID)
	rk := record.RoutesKey(who.Organization) // read before any route that is compared with it
	if err := c.Load(ctx, append(p.seenKeys(who, in), pk, lk, rk, record.OrganizationLimitKey(who.Organization), record.CursorKey(who.PoolID), record.HoldKey(who.PoolID))...); err != nil {
		return out, err
	}
	pool, err := seen(ctx, c, who, in)
	if err != nil {
		return out, err
	}
	if paused, err := out.paused(c, pool); paused || err != nil {
		return out, err
	}
	// If a pool changes while its work is claimed (is disabled, say), the claim decides again.
	check := store.Check(pk, c.Version(pk))

	room, err := p.room(ctx, c, pool, who.Organization, want, fold, &out)
	if err != nil {
		return out, err
	}
	if len(out.tight) > 0 {
		return taken{tight: out.tight}, nil
	}
	if room == 0 {
		return out, nil
	}

	found := search{pool: pool, instance: in.Instance, types: in.Types, n: room, repaired: repaired}
	if found.routes, _, err = ledger.Get[record.Routes](c.Read, rk); err != nil {
		return out, err
	}
	if err := p.pick(ctx, c, &found); err != nil {
		return out, err
	}
	if len(found.stale) > 0 {
		c.Forget(record.CursorKey(pool.ID))
		return taken{stale: found.stale}, nil
	}
	out.more = found.more
	for _, h := range found.first {
		job, err := claimOne(ctx, c, who, in.Instance, h)
		if err != nil {
			return out, err
		}
		out.Jobs = append(out.Jobs, job)
	}
	if len(out.Jobs) > 0 {
		c.Add(check)
		c.Check(rk)
	}
	if len(out.Jobs) < room {
		out.cut, out.Note = nil, ""
	}
	return out, nil
}

// paused says why the pool claims nothing now: it is disabled, or its latest launch was refused.
func (t *taken) paused(c *ledger.Change, pool record.Pool) (bool, error) {
	if pool.Disabled {
		t.Note = "the pool is disabled"
		return true, nil
	}
	hold, _, err := ledger.Get[record.Hold](c.Read, record.HoldKey(pool.ID))
	if err != nil || !c.Now.Before(hold.Until) {
		return false, err
	}
	t.Note = fmt.Sprintf("the latest launch of this pool was refused: not enough %s", hold.Reason)
	t.RetryAfterSeconds = hold.Until.Sub(c.Now).Seconds()
	return true, nil
}

// room is how many of the wanted workflows the limits allow. It adds to out the tight limits, and the limit that cut the
// claim short.
func (p *Calls) room(ctx context.Context, c *ledger.Change, pool record.Pool, org string, want int, fold bool, out *taken) (int, error) {
	ofOrg, err := c.OrganizationLimit(ctx, org, p.cfg.OrganizationLimit)
	if err != nil {
		return 0, err
	}
	room := want
	for _, l := range []limit{{record.OrganizationLimitKey(org), ofOrg, "organization"}, {record.PoolLimitKey(org, pool.ID), pool.Concurrency, "pool"}} {
		rec, err := c.Limit(ctx, l.key)
		if err != nil {
			return 0, err
		}
		free := l.max - rec.Active
		if fold && l.max > 0 && rec.Active > 0 && (free < want || free < l.max/4) {
			out.tight = append(out.tight, l.key)
		}
		if l.max > 0 && free < room {
			room = max(0, free)
			out.cut, out.Note = &l, fmt.Sprintf("the %s's limit of %s is reached", l.name, text.Count(l.max, "active workflow"))
		}
	}
	return room, nil
}

// claimOne adds the claim of one workflow to a change. Its records were read and can be decoded.
func claimOne(ctx context.Context, c *ledger.Change, who identity.Principal, instance string, h head) (api.Job, error) {
	e := h.entry
	w, _, err := ledger.Get[record.Workflow](c.Read, record.WorkflowKey(e.ID))
	if err != nil {
		return api.Job{}, err
	}
	spec, _, err := ledger.Get[api.Spec](c.Read, record.SpecKey(e.ID))
	if err != nil {
		return api.Job{}, err
	}
	out, err := rules.Claim(&w, instance, who.Pool, c.Now)
	if err != nil {
		return api.Job{}, fmt.Errorf("workflow moved between reads: %w", store.ErrConflict)
	}
	if err := c.Claim(ctx, &w, who.PoolID, h.key, out); err != nil {
		return api.Job{}, err
	}
	token, hash := identity.NewJobToken()
	c.Create(record.AttemptKey(w.ID, w.Attempt), record.Attempt{Hash: hash})
	return api.Job{
		Needs: task.Needs{
			Attempt: w.Attempt, Organization: w.Org, Workspace: w.Workspace, WorkspaceID: w.WorkspaceID, Pool: who.Pool, Size: w.Size, MaxRuntimeSeconds: w.MaxRuntime.Seconds(),
			StateKind: spec.State.Kind, StateKey: spec.State.Directory(), StateOlds: olds(spec),
			SourceDirectory: spec.Source.Directory, SourcePath: spec.Source.Path, SecretRefs: machineRefs(spec),
			Image: spec.Image, Spot: spec.Spot, DiskGiB: spec.DiskGiB, Engine: spec.Engine, EngineVersion: spec.EngineVersion,
			Packages: spec.Engine == api.EnginePulumi && !w.Trigger.Pull() && (spec.Options == nil || spec.Options.Ref == ""),
		},
		ID: w.ID, Token: token, Type: w.Type, Operation: w.Op, LaunchSeconds: workflow.LaunchWindow.Seconds(),
	}, nil
}
