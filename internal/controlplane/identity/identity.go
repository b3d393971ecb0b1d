// Package identity says who a caller is, by the token that the caller shows, and who may do what, and keeps the audit
// trail. It is below every route, so a route cannot forget it.
package identity

import (
	"context"
	"errors"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Audiences of tokens that a Principal can have.
const (
	User = "user"
	Pool = "pool"
)

// Principal is who a user or pool token speaks for.
type Principal struct {
	Organization string
	Name         string // for the audit trail
	Audience     string // "user" or "pool"
	Role         string // of a user: api.Role*
	PoolID       string // of a pool
	Pool         string // its name
}

// ranks orders the roles: each role may do what the roles before it may.
var ranks = []string{api.RoleViewer, api.RoleOperator, api.RoleAdmin}

// Calls answers requests about tokens and the audit trail.
type Calls struct {
	ledger *ledger.Ledger
}

// New returns the calls over a ledger.
func New(l *ledger.Ledger) *Calls { return &Calls{ledger: l} }

// Allow checks that who may do an action. A refusal is audited.
func Allow(ctx context.Context, l *ledger.Ledger, who Principal, role, action, target string) error {
	if who.Audience == User && slices.Index(ranks, who.Role) >= slices.Index(ranks, role) {
		return nil
	}
	have := "a pool's token"
	if who.Audience == User {
		have = "the role " + who.Role
	}
	auditRefusal(ctx, l, who, action, target, "needs the role "+role)
	return workflow.Refuse(workflow.ErrForbidden, "", "%s needs the role %s; this is %s", action, role, have)
}

// Refused audits an error that says that who may not do an action, and returns it. It returns every other error as it
// is. It is for what Allow does not decide; an error of Allow is audited already.
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

// auditRefusal writes a commit of its own: what was refused has none.
func auditRefusal(ctx context.Context, l *ledger.Ledger, who Principal, action, target, detail string) {
	c := l.View()
	Audit(c, who, action, target, "refused", detail)
	if err := l.Commit(ctx, c.Ops()); err != nil {
		l.Log.Warn("refusal not audited", "action", action, "err", err)
	}
}

// Audit adds a line to the audit trail.
func Audit(c *ledger.Change, who Principal, action, target, outcome, detail string) {
	c.Create(record.AuditKey(who.Organization, c.Now), api.AuditEvent{At: c.Now, Actor: who.Name, Action: action, Target: text.Cut(target, 200), Outcome: outcome, Detail: text.Cut(detail, 500)})
}

// Audit lists the trail, newest first.
func (p *Calls) Audit(ctx context.Context, who Principal, cursor string, limit int) (out api.Page[api.AuditEvent], err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "audit.list", ""); err != nil {
		return out, err
	}
	trail := store.Scan{Part: record.AuditPart(who.Organization), Limit: ledger.PageSize(limit, 200), Reverse: true}
	return ledger.ListOf(ctx, p.ledger, trail, cursor, ledger.AsStored[api.AuditEvent])
}
