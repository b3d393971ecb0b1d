package runs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxClaim  = 50 // jobs that one claim hands out
	perCommit = 12 // jobs that one commit claims: 7 operations each, the limits, and what seen adds
)

// Claim hands out work that can start now. With a wait it waits until there is any. It commits nothing after the wait
// is over or ctx has ended.
func (p *Calls) Claim(ctx context.Context, who identity.Principal, in api.Claim) (api.Claimed, error) {
	if err := needsPool(who, "claim"); err != nil {
		return api.Claimed{}, err
	}
	if in.Max < 1 || in.Max > maxClaim {
		return api.Claimed{}, workflow.Refuse(workflow.ErrInvalid, "max", "max lies between 1 and %d", maxClaim)
	}
	if in.Instance == "" || len(in.Instance) > 128 {
		return api.Claimed{}, workflow.Refuse(workflow.ErrInvalid, "instance", "a claim names its instance, in at most 128 bytes")
	}
	if in.WaitSeconds < 0 || in.WaitSeconds > 20 {
		return api.Claimed{}, workflow.Refuse(workflow.ErrInvalid, "wait_seconds", "wait_seconds lies between 0 and 20")
	}
	var out api.Claimed
	wait := time.Duration(in.WaitSeconds) * time.Second
	first, more := true, false
	err := p.ledger.Await(ctx, who.PoolID, wait, func(notified bool) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err // the caller has gone and would not learn of a claim
		}
		if !first && !notified && !more && !p.ledger.Owed(ctx, who.PoolID) {
			return false, nil
		}
		// The first read gets all that the look begins with. A mark is cleared before the read of what can be
		// claimed.
		before := p.ledger.ReadAhead(ctx, append(p.seenKeys(who, in), record.WakeKey(who.PoolID),
			record.PoolKey(who.Organization, who.PoolID), record.PoolLimitKey(who.Organization, who.PoolID),
			record.OrganizationLimitKey(who.Organization), record.CursorKey(who.PoolID), record.HoldKey(who.PoolID))...)
		first = false
		if mutate.On(mutate.LateClear) { // see package mutate
			defer p.ledger.ClearOwed(ctx, who.PoolID, before.Read)
		} else {
			p.ledger.ClearOwed(ctx, who.PoolID, before.Read)
		}
		var err error
		out, more, err = p.claimOnce(ctx, who, in, before)
		return len(out.Jobs) > 0 || out.RetryAfterSeconds > 0, err
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

// needsPool refuses a caller that is not a pool.
func needsPool(who identity.Principal, what string) error {
	if who.Audience != identity.Pool {
		return workflow.Refuse(workflow.ErrForbidden, "", "only a pool's token can %s", what)
	}
	return nil
}

// claimOnce claims what can start now, in commits of a few workflows each. more means that it has not read all that
// there is.
func (p *Calls) claimOnce(ctx context.Context, who identity.Principal, in api.Claim, before ledger.Ahead) (out api.Claimed, more bool, err error) {
	for len(out.Jobs) < in.Max {
		want := min(in.Max-len(out.Jobs), perCommit)
		var got api.Claimed
		err := p.ledger.ChangeHotAfter(ctx, before, func(ctx context.Context, c *ledger.Change) error {
			var err error
			got, more, err = p.claim(ctx, c, who, in, want)
			return err
		})
		before = ledger.Ahead{}
		if err != nil {
			if len(out.Jobs) > 0 {
				break // what is claimed must be handed out
			}
			return out, false, err
		}
		out.Jobs = append(out.Jobs, got.Jobs...)
		out.Note, out.RetryAfterSeconds = got.Note, got.RetryAfterSeconds
		if len(got.Jobs) < want {
			break
		}
	}
	return out, more, nil
}

// claim adds the claim of up to want workflows to a change.
func (p *Calls) claim(ctx context.Context, c *ledger.Change, who identity.Principal, in api.Claim, want int) (out api.Claimed, more bool, err error) {
	pk, lk := record.PoolKey(who.Organization, who.PoolID), record.PoolLimitKey(who.Organization, who.PoolID)
	if err := c.Load(ctx, append(p.seenKeys(who, in), pk, lk, record.OrganizationLimitKey(who.Organization), record.CursorKey(who.PoolID), record.HoldKey(who.PoolID))...); err != nil {
		return out, false, err
	}
	pool, err := seen(ctx, c, who, in)
	if err != nil {
		return out, false, err
	}
	if pool.Disabled {
		out.Note = "the pool is disabled"
		return out, false, nil
	}
	hold, _, err := ledger.Get[record.Hold](c.Read, record.HoldKey(who.PoolID))
	if err != nil {
		return out, false, err
	}
	if c.Now.Before(hold.Until) {
		out.Note = fmt.Sprintf("the latest launch of this pool was refused: not enough %s", hold.Reason)
		out.RetryAfterSeconds = hold.Until.Sub(c.Now).Seconds()
		return out, false, nil
	}
	// If a pool changes while its work is claimed (is disabled, say), the claim decides again.
	check := store.Check(pk, c.Version(pk))

	room := want
	var full *record.Limit
	for _, l := range []struct {
		key  store.Key
		most int
		name string
	}{{record.OrganizationLimitKey(who.Organization), p.cfg.OrganizationLimit, "organization"}, {lk, pool.Concurrency, "pool"}} {
		rec, err := c.Limit(ctx, l.key)
		if err != nil {
			return out, false, err
		}
		if l.most > 0 && l.most-rec.Active < room {
			room = max(0, l.most-rec.Active)
			full, out.Note = rec, fmt.Sprintf("the %s's limit of %s is reached", l.name, text.Count(l.most, "active workflow"))
		}
	}
	if full != nil && !slices.Contains(full.Cut, who.PoolID) {
		full.Cut = append(full.Cut, who.PoolID)
	}
	if room == 0 {
		return out, false, nil
	}
	first, more, err := p.pick(ctx, c, pool, in.Types, room)
	if err != nil {
		return out, false, err
	}
	for _, h := range first {
		job, err := claimOne(ctx, c, who, in.Instance, h)
		if err != nil {
			return out, false, err
		}
		out.Jobs = append(out.Jobs, job)
	}
	if len(out.Jobs) > 0 && !mutate.On(mutate.NoPoolCheck) { // see package mutate
		c.Add(check)
	}
	if len(out.Jobs) < room {
		out.Note = ""
	}
	return out, more, nil
}

// claimOne adds the claim of one workflow to a change. Its records were read and can be decoded.
func claimOne(ctx context.Context, c *ledger.Change, who identity.Principal, instance string, e record.Entry) (api.Job, error) {
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
	if err := c.Claim(ctx, &w, out); err != nil {
		return api.Job{}, err
	}
	token, hash := identity.NewJobToken()
	c.Create(record.AttemptKey(w.ID, w.Attempt), record.Attempt{Hash: hash})
	return api.Job{
		Needs: task.Needs{
			Attempt: w.Attempt, Organization: w.Org, Workspace: w.Workspace, Pool: who.Pool, Size: w.Size, MaxRuntimeSeconds: w.MaxRuntime.Seconds(),
			StateKind: spec.State.Kind, StateKey: spec.State.Directory(), StateOlds: olds(spec),
			SourceDirectory: spec.Source.Directory, SecretRefs: machineRefs(spec),
		},
		ID: w.ID, Token: token, Type: w.Type, Operation: w.Op, LaunchSeconds: workflow.LaunchWindow.Seconds(),
	}, nil
}
