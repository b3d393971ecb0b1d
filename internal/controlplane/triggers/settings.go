package triggers

import (
	"cmp"
	"context"
	"errors"
	"reflect"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// kind is a kind of things that an admin keeps under names.
type kind[T any] struct {
	noun   string // for people and for the audit trail
	prefix string // of its keys
	ids    string // how the ids of its things begin
	name   func(T) string
	// asked takes out of what a caller sends what only the control plane says, and the version that it names.
	asked func(T) (T, int64)
	// settle fills in what is left out, and refuses what cannot be. What it reads is checked by the commit.
	settle func(ctx context.Context, c *ledger.Change, org string, in T) (T, error)
	// view is how people see it.
	view func(record.Settings[T], int64) T
	// brief says in the audit trail what it is.
	brief func(T) string
	// kept adds to the change that creates or changes a thing what else that changes; nil: nothing.
	kept func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[T]) error
	// gone adds to the change that deletes a thing what is left to do after it, or refuses that; nil: nothing is.
	gone func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[T]) error
}

var errUnchanged = errors.New("nothing to change")

func invalid(field, format string, args ...any) error {
	return workflow.Refuse(workflow.ErrInvalid, field, format, args...)
}

// checkPool refuses a pool that there is not. The commit fails if it is deleted meanwhile.
func checkPool(ctx context.Context, c *ledger.Change, org, name string) error {
	pool, err := catalog.Named(ctx, c, org, name)
	if err != nil {
		return err
	}
	if pool.Closed {
		return invalid("pool", "pool %s is closed: name another one", pool.Name)
	}
	c.Check(record.PoolKey(org, pool.ID))
	return nil
}

// put creates or changes a thing.
func put[T any](ctx context.Context, p *Calls, k kind[T], who identity.Principal, in T) (out T, outcome api.Outcome, err error) {
	name, action := k.name(in), k.noun+".apply"
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, action, name); err != nil {
		return out, "", err
	}
	if err := identity.CheckName(name); err != nil {
		return out, "", err
	}
	in, version := k.asked(in)
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		key := record.SettingsKey(who.Organization, k.prefix, name)
		old, exists, err := ledger.Load[record.Settings[T]](ctx, c, key)
		if err != nil {
			return err
		}
		if version != 0 && version != c.Version(key) {
			return workflow.Refuse(workflow.ErrConflict, "version", "the %s was changed by someone else: it has version %d now", k.noun, c.Version(key))
		}
		settled, err := k.settle(ctx, c, who.Organization, in)
		if err != nil {
			return err
		}
		if exists && reflect.DeepEqual(settled, old.V) {
			outcome, out = api.OutcomeUnchanged, k.view(old, c.Version(key))
			return errUnchanged
		}
		rec := record.Settings[T]{ID: cmp.Or(old.ID, record.NewID(k.ids, c.Now)), Created: old.Created, By: who.Name, ByID: who.ID, V: settled}
		if outcome = api.OutcomeChanged; !exists {
			outcome, rec.Created = api.OutcomeCreated, c.Now
		}
		c.Put(key, rec)
		if k.kept != nil {
			if err := k.kept(ctx, c, who.Organization, rec); err != nil {
				return err
			}
		}
		identity.Audit(c, who, action, name, "done", string(outcome)+", "+k.brief(settled))
		out = k.view(rec, c.Version(key)+1)
		return nil
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return out, outcome, err
}

// list lists the things of a kind, by name.
func list[T any](ctx context.Context, p *Calls, k kind[T], who identity.Principal, role, cursor string, limit int) (out api.Page[T], err error) {
	if err := identity.Allow(ctx, p.ledger, who, role, k.noun+".list", ""); err != nil {
		return out, err
	}
	scan := record.Under(record.OrganizationPart(who.Organization), k.prefix, ledger.PageSize(limit, 50))
	return ledger.ListOf(ctx, p.ledger, scan, cursor, k.view)
}

// show shows a thing.
func show[T any](ctx context.Context, p *Calls, k kind[T], who identity.Principal, role, name string) (out T, err error) {
	if err := identity.Allow(ctx, p.ledger, who, role, k.noun+".show", name); err != nil {
		return out, err
	}
	c := p.ledger.View()
	rec, err := find(ctx, c, k, who.Organization, name)
	if err != nil {
		return out, err
	}
	return k.view(rec, c.Version(record.SettingsKey(who.Organization, k.prefix, name))), nil
}

// find reads a thing into a change, and refuses a name that there is not.
func find[T any](ctx context.Context, c *ledger.Change, k kind[T], org, name string) (record.Settings[T], error) {
	rec, ok, err := ledger.Load[record.Settings[T]](ctx, c, record.SettingsKey(org, k.prefix, name))
	if err == nil && !ok {
		err = workflow.Refuse(workflow.ErrNotFound, k.noun, "there is no %s %q", k.noun, text.Cut(name, 64))
	}
	return rec, err
}

// remove deletes a thing.
func remove[T any](ctx context.Context, p *Calls, k kind[T], who identity.Principal, name string) error {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, k.noun+".delete", name); err != nil {
		return err
	}
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		rec, err := find(ctx, c, k, who.Organization, name)
		if err != nil {
			return err
		}
		c.Remove(record.SettingsKey(who.Organization, k.prefix, name))
		if k.gone != nil {
			if err := k.gone(ctx, c, who.Organization, rec); err != nil {
				return err
			}
		}
		identity.Audit(c, who, k.noun+".delete", name, "done", k.brief(rec.V))
		return nil
	})
}
