package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// builtInPool is the name of the pool that every organization starts with.
const builtInPool = "default"

// Bootstrap makes the organization, its built-in pool and a first admin token, unless the organization exists. It
// returns the token's value this once; it returns "" if the organization existed.
func (p *Calls) Bootstrap(ctx context.Context, organization string) (adminToken string, err error) {
	if err := checkOrganization(organization); err != nil {
		return "", err
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		adminToken = ""
		k := record.OrganizationKey(organization)
		if err := c.Load(ctx, k); err != nil || c.Version(k) != store.Absent {
			return err
		}
		newOrganization(c, organization)
		of, err := identity.EnsurePrincipal(ctx, c, organization, api.FirstAdmin)
		if err != nil {
			return err
		}
		adminToken, _ = identity.Mint(c, record.Token{Org: organization, Audience: identity.User, Name: of.Name, Principal: of, Role: api.RoleAdmin})
		return nil
	})
	if err != nil {
		return "", err
	}
	return adminToken, nil
}

func checkOrganization(name string) error {
	if workflow.CheckWorkspaceName(name) != nil {
		return workflow.Invalid("organization", "organization names follow the rule of workspace names")
	}
	return nil
}

// newOrganization adds an organization and its built-in pool to a change.
func newOrganization(c *ledger.Change, name string) {
	c.Create(record.OrganizationKey(name), record.Organization{Name: name, Created: c.Now})
	pool := record.Pool{ID: record.NewID("pool_", c.Now), Name: builtInPool, BuiltIn: true, AssignedToAll: true, Created: c.Now, Description: "The pool of workspaces that do not name a pool"}
	c.Create(record.PoolKey(name, pool.ID), pool)
	c.Create(record.PoolNameKey(name, pool.Name), record.Name{ID: pool.ID})
}

// Rules of an admin token that is made elsewhere.
const (
	deployedAdmin    = "deployment"   // the names of the token and of its principal
	minAdminToken    = 32             // bytes, so that it cannot be guessed
	maxAdminToken    = 200            // bytes: the most that Authenticate accepts
	deployedOverlaps = time.Hour      // how long the old value stays valid
	deployedAction   = "token.deploy" // in the audit trail
)

// EnsureAdmin makes a token that a deployment created (and keeps as a secret) an admin token of an organization. It
// makes the organization if it does not exist. It is idempotent, and may be called concurrently. A new value ends the
// old value after an hour. A revoked value is refused and stays revoked: set a new value.
func (p *Calls) EnsureAdmin(ctx context.Context, organization string, token redact.String) error {
	if err := checkOrganization(organization); err != nil {
		return err
	}
	value := token.Reveal()
	if err := checkAdminToken(value); err != nil {
		return err
	}
	hash := record.Hash(value)
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		if err := c.Load(ctx, record.OrganizationKey(organization), record.TokenKey(hash)); err != nil {
			return err
		}
		s, known, err := ledger.Get[record.Token](c.Read, record.TokenKey(hash))
		switch {
		case err != nil:
			return err
		case known && (s.Org != organization || !s.Deployed):
			return workflow.Refuse(workflow.ErrExists, "", "the deployment's admin token already exists as another token: set a new value")
		case known && !s.Valid(c.Now):
			return workflow.Refuse(workflow.ErrRevoked, "", "the deployment's admin token was revoked or replaced: set a new value")
		case known:
			return nil
		}
		if c.Version(record.OrganizationKey(organization)) == store.Absent {
			newOrganization(c, organization)
		}
		if err := endDeployed(ctx, c, organization, hash); err != nil {
			return err
		}
		of, err := identity.EnsurePrincipal(ctx, c, organization, deployedAdmin)
		if err != nil {
			return err
		}
		rec := identity.Keep(c, record.Token{Org: organization, Audience: identity.User, Name: deployedAdmin, Principal: of, Role: api.RoleAdmin, Deployed: true}, hash)
		identity.Audit(c, identity.Of(organization, of), deployedAction, rec.ID, "done", "the admin token of the deployment's secret")
		return nil
	})
}

func checkAdminToken(value string) error {
	if len(value) < minAdminToken || len(value) > maxAdminToken || strings.HasPrefix(value, identity.JobPrefix) ||
		strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return workflow.Invalid("", "the deployment's admin token has %d to %d printable characters without spaces, chosen at random, and does not begin with %s", minAdminToken, maxAdminToken, identity.JobPrefix)
	}
	return nil
}

// endDeployed makes the earlier admin tokens of the deployment end soon. hash is that of the new one.
func endDeployed(ctx context.Context, c *ledger.Change, organization, hash string) error {
	olds, err := identity.Tokens(ctx, c, organization)
	if err != nil {
		return err
	}
	until := c.Now.Add(deployedOverlaps)
	for _, old := range olds {
		if old.Hash == hash {
			return fmt.Errorf("the token was made between reads: %w", store.ErrConflict)
		}
		if old.Deployed {
			identity.Shorten(c, old, until)
		}
	}
	return nil
}

// Organization shows the caller's organization.
func (p *Calls) Organization(ctx context.Context, who identity.Principal) (api.Organization, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "organization.show", who.Organization, who.AnyProject); err != nil {
		return api.Organization{}, err
	}
	c, k := p.ledger.View(), record.OrganizationKey(who.Organization)
	o, _, err := ledger.Load[record.Organization](ctx, c, k)
	if err != nil {
		return api.Organization{}, err
	}
	return p.viewOrganization(ctx, o, c.Version(k))
}

func (p *Calls) viewOrganization(ctx context.Context, o record.Organization, version int64) (api.Organization, error) {
	days := o.Days()
	out := api.Organization{
		Name: o.Name, WorkflowRetention: days.Workflows, LogRetention: days.Logs, ArtifactRetention: days.Artifacts, AuditRetention: days.Audit,
		Limit: o.Limit, DefaultPool: builtInPool, CreatedAt: o.Created, Version: version,
	}
	approvals, err := p.approvalsOf(ctx, o.Name, "")
	if err != nil {
		return out, err
	}
	if out.Approval = approvals[0]; o.DefaultPool == "" {
		return out, nil
	}
	names, err := Names(ctx, p.ledger, o.Name, o.DefaultPool)
	out.DefaultPool = names[o.DefaultPool]
	return out, err
}

// UpdateOrganization changes the given settings of the caller's organization.
func (p *Calls) UpdateOrganization(ctx context.Context, who identity.Principal, in api.OrganizationSettings) (api.Organization, error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "organization.update", who.Organization); err != nil {
		return api.Organization{}, err
	}
	var o record.Organization
	var version int64
	rerouted := false
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) (err error) {
		k := record.OrganizationKey(who.Organization)
		if o, _, err = ledger.Load[record.Organization](ctx, c, k); err != nil {
			return err
		}
		version = c.Version(k)
		if err := c.At(k, in.Version, "organization"); err != nil {
			return err
		}
		before, days := o, o.Days()
		days.Artifacts = o.Retention.Artifacts // their default depends on that of workflows
		before.Retention = days
		o.Retention, err = retention(days, in)
		if err != nil {
			return err
		}
		if err := setApproval(ctx, c, o.Name, "", in.Approval); err != nil {
			return err
		}
		if rerouted, err = applyOrganization(ctx, c, &o, in); err != nil {
			return err
		}
		if o == before && !c.Alters(record.ApprovalKey(o.Name, "")) {
			return ledger.ErrUnchanged
		}
		c.Put(k, o)
		version++
		identity.Audit(c, who, "organization.update", who.Organization, "done", asSet(in))
		return nil
	})
	if err != nil {
		return api.Organization{}, err
	}
	if rerouted {
		p.RerouteAll(ctx, who.Organization)
	}
	return p.viewOrganization(ctx, o, version)
}

// applyOrganization applies the limit and the default pool to an organization. rerouted says that the caller must
// call RerouteAll after the commit.
func applyOrganization(ctx context.Context, c *ledger.Change, o *record.Organization, in api.OrganizationSettings) (rerouted bool, err error) {
	set(&o.Limit, in.Limit)
	if o.Limit < 0 || o.Limit > maxLimit {
		return false, workflow.Invalid("limit", "a limit lies between 0 (that of the installation) and %d", maxLimit)
	}
	if in.DefaultPool == nil {
		return false, nil
	}
	return SetDefault(ctx, c, o, *in.DefaultPool)
}

// maxLimit is the highest limit of active workflows.
const maxLimit = 100000

// asSet says which settings are given, with their values.
func asSet(in api.OrganizationSettings) string {
	var out []string
	for _, s := range []struct {
		name  string
		value *int
	}{
		{"workflow_retention_days", in.WorkflowRetention}, {"log_retention_days", in.LogRetention},
		{"artifact_retention_days", in.ArtifactRetention}, {"audit_retention_days", in.AuditRetention}, {"limit", in.Limit},
	} {
		if s.value != nil {
			out = append(out, fmt.Sprintf("%s %d", s.name, *s.value))
		}
	}
	if in.DefaultPool != nil {
		out = append(out, "default_pool "+cmp.Or(*in.DefaultPool, builtInPool))
	}
	if in.Approval != nil {
		out = append(out, "approval "+in.Approval.Text())
	}
	return strings.Join(out, ", ")
}

// retention applies settings to a retention and checks the result. It is a pure function.
func retention(r record.Retention, in api.OrganizationSettings) (record.Retention, error) {
	set(&r.Workflows, in.WorkflowRetention)
	set(&r.Logs, in.LogRetention)
	set(&r.Artifacts, in.ArtifactRetention)
	set(&r.Audit, in.AuditRetention)
	switch {
	case r.Workflows < api.MinWorkflowRetention || r.Workflows > api.MaxWorkflowRetention:
		return r, workflow.Invalid("workflow_retention_days", "workflows are kept for %d to %d days", api.MinWorkflowRetention, api.MaxWorkflowRetention)
	case !slices.Contains(api.LogRetentions(), r.Logs):
		return r, workflow.Invalid("log_retention_days", "logs are kept for 7, 30, 90, 180 or 400 days, not %d", r.Logs)
	case r.Logs > r.Workflows:
		return r, workflow.Invalid("log_retention_days", "logs cannot be kept longer than their workflows: set log_retention_days to at most %d, or workflow_retention_days to at least %d", r.Workflows, r.Logs)
	case r.Artifacts != 0 && !slices.Contains(api.ArtifactRetentions(), r.Artifacts):
		return r, workflow.Invalid("artifact_retention_days", "artifacts are kept for 7, 30, 90, 180 or 400 days, not %d", r.Artifacts)
	case r.Artifacts > r.Workflows:
		return r, workflow.Invalid("artifact_retention_days", "artifacts cannot be kept longer than their workflows: set artifact_retention_days to at most %d, or workflow_retention_days to at least %d", r.Workflows, r.Artifacts)
	case r.Audit < 0 || r.Audit > api.MaxAuditRetention:
		return r, workflow.Invalid("audit_retention_days", "the audit trail is kept for 1 to %d days, or for ever: 0", api.MaxAuditRetention)
	}
	return r, nil
}
