package identity

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func viewService(now time.Time) func(record.ServicePrincipal, int64) api.ServicePrincipal {
	return func(s record.ServicePrincipal, version int64) api.ServicePrincipal {
		out := api.ServicePrincipal{
			Name: s.Name, ClientID: s.ID, Role: s.Role, Grants: s.Grants, MaxLifetimeSeconds: int(s.MaxLifetime / time.Second),
			IsDisabled: s.Disabled, Secrets: []api.ServiceSecret{}, CreatedAt: s.Created, Version: version,
		}
		for _, one := range s.Secrets {
			if !one.Live(now) {
				continue
			}
			v := api.ServiceSecret{ID: one.ID, CreatedAt: one.Created}
			if !one.Expires.IsZero() {
				v.ExpiresAt = &one.Expires
			}
			out.Secrets = append(out.Secrets, v)
		}
		return out
	}
}

// applyService applies settings to a service principal and checks the result.
func applyService(ctx context.Context, c *ledger.Change, org string, s *record.ServicePrincipal, in api.ServicePrincipalSettings) error {
	if in.Role != nil {
		s.Role = *in.Role
	}
	if in.Grants != nil {
		s.Grants = *in.Grants
	}
	if in.IsDisabled != nil {
		s.Disabled = *in.IsDisabled
	}
	if in.MaxLifetimeSeconds != nil {
		s.MaxLifetime = time.Duration(*in.MaxLifetimeSeconds) * time.Second
	}
	s.MaxLifetime = cmp.Or(s.MaxLifetime, api.DefaultLifetime)
	switch {
	case s.MaxLifetime < api.MinLifetime || s.MaxLifetime > api.MaxLifetime:
		return workflow.Invalid("max_lifetime_seconds", "a lifetime lies between 60 and 43200 seconds")
	case len(s.Grants) > 100:
		return workflow.Invalid("grants", "a service principal has at most 100 grants")
	case s.Role == "" && len(s.Grants) == 0:
		return workflow.Invalid("role", "name a role or grants in projects: without them it may do nothing")
	}
	if err := checkRole("role", s.Role); err != nil || in.Grants == nil {
		return err
	}
	return checkGrants(ctx, c, org, "grants", s.Grants)
}

func newSecret(now time.Time) (string, record.Secret) {
	value, hash := newToken(secretPrefix)
	return value, record.Secret{ID: record.NewID("sec_", now), Hash: hash, Created: now}
}

// CreateService makes a service principal with its first secret.
func (p *Calls) CreateService(ctx context.Context, who Principal, in api.NewServicePrincipal) (out api.ServicePrincipalSecret, err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "service_principal.create", in.Name); err != nil {
		return out, err
	}
	if err := CheckName(in.Name); err != nil {
		return out, err
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		k := record.ServiceKey(who.Organization, in.Name)
		if err := c.Load(ctx, k); err != nil {
			return err
		}
		if c.Version(k) != store.Absent {
			return workflow.Refuse(workflow.ErrExists, "name", "there is a service principal %s already: choose another name, or rotate its secret", in.Name)
		}
		if err := c.At(k, in.Version, "service principal"); err != nil {
			return err
		}
		s := record.ServicePrincipal{ID: record.NewID("sp_", c.Now), Name: in.Name, Created: c.Now}
		if err := applyService(ctx, c, who.Organization, &s, in.ServicePrincipalSettings); err != nil {
			return err
		}
		value, secret := newSecret(c.Now)
		s.Secrets = []record.Secret{secret}
		c.Create(k, s)
		c.Create(record.ClientKey(s.ID), record.Client{Org: who.Organization, Name: s.Name})
		Audit(c, who, "service_principal.create", s.Name, "done", s.ID+" as "+cmp.Or(s.Role, "member of projects"))
		out = api.ServicePrincipalSecret{ServicePrincipal: viewService(c.Now)(s, 1), Secret: value}
		return nil
	})
	return out, err
}

// Services lists the service principals.
func (p *Calls) Services(ctx context.Context, who Principal, cursor string, limit int) (out api.Page[api.ServicePrincipal], err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "service_principal.list", ""); err != nil {
		return out, err
	}
	scan := record.Under(record.OrganizationPart(who.Organization), record.ServicesPrefix, ledger.PageSize(limit, 200))
	return ledger.ListOf(ctx, p.ledger, scan, cursor, viewService(p.ledger.Now()))
}

// Service shows a service principal.
func (p *Calls) Service(ctx context.Context, who Principal, name string) (out api.ServicePrincipal, err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "service_principal.show", name); err != nil {
		return out, err
	}
	c := p.ledger.View()
	s, k, err := loadService(ctx, c, who.Organization, name)
	if err != nil {
		return out, err
	}
	return viewService(c.Now)(s, c.Version(k)), nil
}

func loadService(ctx context.Context, c *ledger.Change, org, name string) (record.ServicePrincipal, store.Key, error) {
	k := record.ServiceKey(org, name)
	s, ok, err := ledger.Load[record.ServicePrincipal](ctx, c, k)
	if err == nil && !ok {
		err = workflow.Refuse(workflow.ErrNotFound, "name", "there is no service principal %q", text.Cut(name, 64))
	}
	return s, k, err
}

// UpdateService changes the settings that are named. They act on its tokens at once.
func (p *Calls) UpdateService(ctx context.Context, who Principal, name string, in api.ServicePrincipalSettings) (out api.ServicePrincipal, err error) {
	err = p.changeService(ctx, who, name, "service_principal.update", func(ctx context.Context, c *ledger.Change, k store.Key, s *record.ServicePrincipal) (string, error) {
		if err := c.At(k, in.Version, "service principal"); err != nil {
			return "", err
		}
		if err := applyService(ctx, c, who.Organization, s, in); err != nil {
			return "", err
		}
		if c.Put(k, *s); !c.Alters(k) {
			out = viewService(c.Now)(*s, c.Version(k))
			return "", ledger.ErrUnchanged
		}
		out = viewService(c.Now)(*s, c.Version(k)+1)
		if s.Disabled {
			return "disabled", nil
		}
		return cmp.Or(s.Role, "member of projects"), nil
	})
	return out, err
}

// RotateSecret makes a new secret of a service principal. The previous one stays valid for the overlap.
func (p *Calls) RotateSecret(ctx context.Context, who Principal, name string, in api.RotateSecret) (out api.ServicePrincipalSecret, err error) {
	const maxSeconds = 7 * 24 * 3600
	if in.OverlapSeconds < 0 || in.OverlapSeconds > maxSeconds {
		return out, workflow.Invalid("overlap_seconds", "an overlap has at most %d seconds", maxSeconds)
	}
	err = p.changeService(ctx, who, name, "service_principal.rotate", func(_ context.Context, c *ledger.Change, k store.Key, s *record.ServicePrincipal) (string, error) {
		overlap := time.Duration(in.OverlapSeconds) * time.Second
		// Of the live secrets the newest may go on for the overlap; there are never more than two.
		s.Secrets = slices.DeleteFunc(s.Secrets, func(one record.Secret) bool { return !one.Live(c.Now) })
		last := min(len(s.Secrets), 1)
		s.Secrets = slices.Clone(s.Secrets[len(s.Secrets)-last:])
		if overlap == 0 {
			s.Secrets = nil
		}
		for i := range s.Secrets {
			if end := c.Now.Add(overlap); s.Secrets[i].Expires.IsZero() || s.Secrets[i].Expires.After(end) {
				s.Secrets[i].Expires = end
			}
		}
		value, secret := newSecret(c.Now)
		s.Secrets = append(s.Secrets, secret)
		c.Put(k, *s)
		out = api.ServicePrincipalSecret{ServicePrincipal: viewService(c.Now)(*s, c.Version(k)+1), Secret: value}
		return secret.ID + ", overlap " + overlap.String(), nil
	})
	return out, err
}

// DeleteService deletes a service principal. Its tokens end.
func (p *Calls) DeleteService(ctx context.Context, who Principal, name string) error {
	return p.changeService(ctx, who, name, "service_principal.delete", func(ctx context.Context, c *ledger.Change, k store.Key, s *record.ServicePrincipal) (string, error) {
		client := record.ClientKey(s.ID)
		if err := c.Load(ctx, client); err != nil {
			return "", err
		}
		c.Remove(k)
		c.Remove(client)
		return s.ID, nil
	})
}

// changeService makes an admin's change of a service principal; change returns the detail of its audit entry.
func (p *Calls) changeService(ctx context.Context, who Principal, name, action string, change func(context.Context, *ledger.Change, store.Key, *record.ServicePrincipal) (string, error)) error {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, action, name); err != nil {
		return err
	}
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		s, k, err := loadService(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		detail, err := change(ctx, c, k, &s)
		if err == nil {
			Audit(c, who, action, name, "done", detail)
		}
		return err
	})
}
