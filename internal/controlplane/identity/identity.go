// Package identity authenticates callers by their tokens, authorizes their actions and keeps the audit trail. It is
// below every route, so a route cannot forget it. It also changes, lists and deletes the named settings of admins,
// all kinds of them in one way, each kind with its own rules.
package identity

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Audiences of tokens that a Principal can have.
const (
	User = "user"
	Pool = "pool"
)

// Principal is the caller that a user or pool token identifies.
type Principal struct {
	Organization string
	ID           string // identifies the caller: of the principal, or for a pool's own token of the pool
	Name         string // to be shown
	Audience     string // "user" or "pool"
	Role         string // of a user in the whole organization: api.Role*; "" means none
	// Grants are the roles of a user in projects, and in all below them, beside Role.
	Grants  map[string]string
	PoolID  string      // of a pool
	Pool    string      // its name
	Process api.Process // of a pool: the process of its instance that calls
	// Kind is api.KindUser, api.KindService or api.KindPool.
	Kind    string
	Issuer  string // of the token that was exchanged for this one
	TokenID string
	Expires time.Time // of the token; zero means never
	// Pipeline has the claims of the token that was exchanged for this one; nil if that was not a pipeline's.
	Pipeline *record.Pipeline
}

// Ref is the principal's id and name.
func (who Principal) Ref() api.PrincipalRef { return api.PrincipalRef{ID: who.ID, Name: who.Name} }

// Of is a principal without rights, as the actor of an entry of the audit trail.
func Of(org string, ref api.PrincipalRef) Principal {
	return Principal{Organization: org, ID: ref.ID, Name: ref.Name}
}

// ranks orders the roles: each role has the rights of the roles before it, and more.
var ranks = []string{api.RoleViewer, api.RoleOperator, api.RoleAdmin}

// Calls answers requests about tokens and the audit trail.
type Calls struct {
	Issuers *Settings[api.Issuer, record.Issuer]

	ledger  *ledger.Ledger
	issuers *oidc.Verifier
	refused refusals
}

// New returns the calls over a ledger. The issuers' tokens are checked by issuers; nil means by a verifier that calls
// no private address.
func New(l *ledger.Ledger, issuers *oidc.Verifier) *Calls {
	if issuers == nil {
		issuers, _ = oidc.New(oidc.Config{Log: l.Log}) // it fails for a list of private addresses only
	}
	p := &Calls{ledger: l, issuers: issuers}
	p.Issuers = p.issuerSettings()
	return p
}

// Has reports whether who has at least a role: in the whole organization, or in one of the projects that are named.
// An unprotected pipeline has no role above viewer. It is a pure function.
func (who Principal) Has(role string, projects ...string) bool {
	if who.Audience != User || who.Unprotected() && role != api.RoleViewer {
		return false
	}
	minRank := slices.Index(ranks, role)
	if slices.Index(ranks, who.Role) >= minRank {
		return true
	}
	return slices.ContainsFunc(projects, func(p string) bool { return slices.Index(ranks, who.Grants[p]) >= minRank })
}

// Scope reads the project that a call is about and those above it, the nearest first.
type Scope func(ctx context.Context) ([]string, error)

// AnyProject is the Scope of calls that a role in any project allows.
func (who Principal) AnyProject(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(who.Grants)), nil
}

// NeedsPool refuses a caller that is not a pool.
func (who Principal) NeedsPool(action string) error {
	if who.Audience != Pool {
		return workflow.Refuse(workflow.ErrForbidden, "", "only a pool's token can %s", action)
	}
	return nil
}

// Allow checks that who may do an action in the whole organization. A refusal is audited.
func Allow(ctx context.Context, l *ledger.Ledger, who Principal, role, action, target string) error {
	return AllowIn(ctx, l, who, role, action, target, nil)
}

// AllowIn checks that who may do an action in a project. The scope is read only if the role in the organization is
// not enough. An unprotected pipeline may view, and do the actions of ofPullRequests with the role that its rule
// gives. A refusal is audited.
func AllowIn(ctx context.Context, l *ledger.Ledger, who Principal, role, action, target string, scope Scope) error {
	if who.Unprotected() && role != api.RoleViewer {
		if !slices.Contains(ofPullRequests, action) {
			return Refused(ctx, l, who, action, target, confined(who, action))
		}
		who.Pipeline = nil // the action itself confines it to its own runs
	}
	if who.Has(role) {
		return nil
	}
	var projects []string
	if scope != nil && who.Audience == User && len(who.Grants) > 0 {
		var err error
		if projects, err = scope(ctx); err != nil {
			return err
		}
		if who.Has(role, projects...) {
			return nil
		}
	}

	where := ""
	switch {
	case len(projects) > 0:
		where = " in project " + projects[0]
	case who.Audience == User && len(who.Grants) > 0:
		where = " in the organization"
	}
	auditRefusal(ctx, l, who, action, target, "needs the role "+role+where)
	return workflow.Refuse(workflow.ErrForbidden, "", "%s needs the role %s%s; this is %s", action, role, where, rolesText(who, projects))
}

// rolesText describes a token that lacks a role, by the roles that it has in the projects of a call, the nearest
// first.
func rolesText(who Principal, projects []string) string {
	if who.Audience != User {
		return "a pool's token"
	}
	for _, p := range projects {
		if r := who.Grants[p]; r != "" {
			return "the role " + r + " in project " + p
		}
	}
	switch {
	case who.Role != "":
		return "the role " + who.Role
	case len(who.Grants) == 0:
		return "a token without a role"
	case len(projects) > 0:
		return "a token with roles in other projects only"
	}
	return "a token with roles in projects only"
}

// Refused audits an error that forbids an action, and returns it. It returns every other error as it is. It is for
// decisions that Allow does not make; an error of Allow is audited already.
func Refused(ctx context.Context, l *ledger.Ledger, who Principal, action, target string, err error) error {
	if e, ok := errors.AsType[*workflow.Error](err); ok && errors.Is(err, workflow.ErrForbidden) {
		auditRefusal(ctx, l, who, action, target, e.Message)
	}
	return err
}

// Refuse is Refused for a refusal that was decided before a call: a token of another audience than the call's.
func (p *Calls) Refuse(ctx context.Context, who Principal, action string, err error) error {
	return Refused(ctx, p.ledger, who, action, "", err)
}

// auditRefusal writes a commit of its own: a refused action has none.
func auditRefusal(ctx context.Context, l *ledger.Ledger, who Principal, action, target, detail string) {
	err := l.Change(ctx, func(_ context.Context, c *ledger.Change) error {
		Audit(c, who, action, target, "refused", detail)
		return nil
	})
	if err != nil {
		l.Log.Warn("refusal not audited", "action", action, "err", err)
	}
}

// Audit adds an entry to the audit trail.
func Audit(c *ledger.Change, who Principal, action, target, outcome, detail string) {
	c.Create(record.AuditKey(who.Organization, c.Now), api.AuditEvent{At: c.Now, Actor: who.Name, ActorID: who.ID, Action: action, Target: text.Cut(target, 200), Outcome: outcome, Detail: text.Cut(detail, 500)})
}
