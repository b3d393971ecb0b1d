package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Audiences of tokens that a Principal can have.
const (
	audienceUser = "user"
	audiencePool = "pool"
)

// ranks orders the roles: each may do what those before it may.
var ranks = []string{api.RoleViewer, api.RoleOperator, api.RoleAdmin}

// allow checks that who may do an action, below every route, so that no route can forget it. A
// refusal is audited.
func (p *Plane) allow(ctx context.Context, who Principal, role, action, target string) error {
	if who.Audience == audienceUser && slices.Index(ranks, who.Role) >= slices.Index(ranks, role) {
		return nil
	}
	have := "a pool's token"
	if who.Audience == audienceUser {
		have = "the role " + who.Role
	}
	c := p.newChange()
	c.audit(who, action, target, "refused", "needs the role "+role)
	if err := p.ledger.Commit(ctx, c.Ops()); err != nil {
		p.log.Warn("refusal not audited", "action", action, "err", err)
	}
	return workflow.Refuse(workflow.ErrForbidden, "", "%s needs the role %s; this is %s", action, role, have)
}

// audit adds a line to the audit trail.
func (c *change) audit(who Principal, action, target, outcome, detail string) {
	k := store.Key{Part: record.AuditPart(who.Organization), Sort: fmt.Sprintf("%020d/%s", c.Now.UnixNano(), record.Random(6))}
	c.Create(k, api.AuditEvent{At: c.Now, Actor: who.Name, Action: action, Target: record.Cut(target, 200), Outcome: outcome, Detail: record.Cut(detail, 500)})
}

// Audit lists the trail, the latest first.
func (p *Plane) Audit(ctx context.Context, who Principal, cursor string, limit int) (api.Page[api.AuditEvent], error) {
	out := api.Page[api.AuditEvent]{Items: []api.AuditEvent{}}
	if err := p.allow(ctx, who, api.RoleAdmin, "audit.list", ""); err != nil {
		return out, err
	}
	page, err := p.ledger.Range(ctx, store.Scan{Part: record.AuditPart(who.Organization), Limit: ledger.PageSize(limit, 200), After: cursor, Reverse: true})
	if err != nil {
		return out, ledger.OutOfStore(fmt.Errorf("read audit trail: %w", err))
	}
	return ledger.PageOf(page, func(e api.AuditEvent, _ int64) api.AuditEvent { return e })
}

// builtInPool is the name of the pool that every organization starts with.
const builtInPool = "default"

// Bootstrap makes the organization, its built-in pool and, where there is none yet, a first admin
// token, whose value it returns this once (empty when it was made before).
func (p *Plane) Bootstrap(ctx context.Context, organization string) (adminToken string, err error) {
	if err := workflow.CheckWorkspaceName(organization); err != nil {
		return "", workflow.Refuse(workflow.ErrInvalid, "organization", "organization names follow the rule of workspace names")
	}
	err = p.change(ctx, func(ctx context.Context, c *change) error {
		adminToken = ""
		k := record.OrganizationKey(organization)
		if err := c.Load(ctx, k); err != nil {
			return err
		}
		if c.Version(k) != store.Absent {
			return nil
		}
		c.newOrganization(organization)
		adminToken, _ = c.newSecret(record.Token{Org: organization, Audience: audienceUser, Name: "admin", Role: api.RoleAdmin}, userPrefix)
		return nil
	})
	if err != nil {
		return "", err
	}
	return adminToken, nil
}

// newOrganization adds an organization and its built-in pool to a change.
func (c *change) newOrganization(name string) {
	c.Create(record.OrganizationKey(name), record.Organization{Name: name, Created: c.Now})
	pool := record.Pool{ID: record.NewID("pool_", c.Now), Name: builtInPool, BuiltIn: true, AssignedToAll: true, Created: c.Now, Description: "The pool of workspaces that name none"}
	c.Create(record.PoolKey(name, pool.ID), pool)
	c.Create(record.PoolNameKey(name, pool.Name), record.Name{ID: pool.ID})
}

// Rules of an admin token that is made elsewhere.
const (
	deployedAdmin    = "deployment"   // the name of the token, and who made it in the audit trail
	leastAdminToken  = 32             // bytes, so that nobody guesses it
	mostAdminToken   = 200            // bytes: what Authenticate looks at
	deployedOverlaps = time.Hour      // how long the value of before is still good
	deployedAction   = "token.deploy" // in the audit trail
)

// EnsureAdmin sees to it that a token that a deployment made (and keeps as a secret) is an admin token
// of an organization, which it makes where there is none. It may be called again and again, and by
// several at once. A new value ends that of before after an hour. A value that was revoked is refused and
// stays revoked: put a new one.
func (p *Plane) EnsureAdmin(ctx context.Context, organization string, token redact.String) error {
	if err := workflow.CheckWorkspaceName(organization); err != nil {
		return workflow.Refuse(workflow.ErrInvalid, "organization", "organization names follow the rule of workspace names")
	}
	value := token.Reveal()
	if len(value) < leastAdminToken || len(value) > mostAdminToken || strings.HasPrefix(value, jobPrefix) ||
		strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return workflow.Refuse(workflow.ErrInvalid, "", "the deployment's admin token has %d to %d printable characters without spaces, chosen at random, and does not begin with %s", leastAdminToken, mostAdminToken, jobPrefix)
	}
	hash := record.Hash(value)
	return p.change(ctx, func(ctx context.Context, c *change) error {
		if err := c.Load(ctx, record.OrganizationKey(organization), record.TokenKey(hash)); err != nil {
			return err
		}
		s, known, err := ledger.Get[record.Token](c.Read, record.TokenKey(hash))
		switch {
		case err != nil:
			return err
		case known && (s.Org != organization || !s.Deployed):
			return workflow.Refuse(workflow.ErrExists, "", "the deployment's admin token is another token already: put a new value")
		case known && !s.Valid(c.Now):
			return workflow.Refuse(workflow.ErrRevoked, "", "the deployment's admin token was revoked or replaced: put a new value")
		case known:
			return nil
		}
		if c.Version(record.OrganizationKey(organization)) == store.Absent {
			c.newOrganization(organization)
		}
		olds, err := p.secrets(ctx, organization)
		if err != nil {
			return err
		}
		until := c.Now.Add(deployedOverlaps)
		for _, old := range olds {
			if old.rec.Hash == hash {
				return fmt.Errorf("the token was made between reads: %w", store.ErrConflict)
			}
			if old.rec.Deployed && old.rec.Valid(c.Now) && (old.rec.Expires.IsZero() || old.rec.Expires.After(until)) {
				c.expire(old, until)
			}
		}
		rec := c.keepSecret(record.Token{Org: organization, Audience: audienceUser, Name: deployedAdmin, Role: api.RoleAdmin, Deployed: true}, hash)
		c.audit(Principal{Organization: organization, Name: deployedAdmin}, deployedAction, rec.ID, "done", "the admin token of the deployment's secret")
		return nil
	})
}

// EnsurePoolToken gives a pool a new token under a name and ends older ones of that name: how a
// process that is control plane and agent in one gets its own at each start.
func (p *Plane) EnsurePoolToken(ctx context.Context, organization, pool, name string) (token string, err error) {
	err = p.change(ctx, func(ctx context.Context, c *change) error {
		rec, err := c.poolByName(ctx, organization, pool)
		if err != nil {
			return err
		}
		olds, err := p.secrets(ctx, organization)
		if err != nil {
			return err
		}
		for _, old := range olds {
			if old.rec.Audience == audiencePool && old.rec.PoolID == rec.ID && old.rec.Name == name {
				c.Remove(record.TokenKey(old.rec.Hash), old.version)
				c.Remove(record.TokenIDKey(organization, old.rec.ID), old.version)
			}
		}
		token, _ = c.newSecret(record.Token{Org: organization, Audience: audiencePool, Name: name, PoolID: rec.ID}, poolPrefix)
		return nil
	})
	return token, err
}

// newSecret adds a token to a change and returns its value and its record.
func (c *change) newSecret(rec record.Token, prefix string) (string, record.Token) {
	value, hash := newToken(prefix)
	return value, c.keepSecret(rec, hash)
}

// keepSecret adds a token of which the hash is known to a change.
func (c *change) keepSecret(rec record.Token, hash string) record.Token {
	rec.ID, rec.Created, rec.Hash = record.NewID("tok_", c.Now), c.Now, hash
	c.Create(record.TokenKey(hash), rec)
	c.Create(record.TokenIDKey(rec.Org, rec.ID), rec)
	return rec
}

// storedSecret is a token with the version of its record by id. Its record by hash has the same
// version, because the two are always written together.
type storedSecret struct {
	rec     record.Token
	version int64
}

// expire ends a token at a time.
func (c *change) expire(s storedSecret, at time.Time) {
	s.rec.Expires = at
	if !at.After(c.Now) {
		s.rec.Revoked = true
	}
	for _, k := range []store.Key{record.TokenKey(s.rec.Hash), record.TokenIDKey(s.rec.Org, s.rec.ID)} {
		c.Add(store.Put(record.Encode(k, s.rec), s.version))
	}
}

// secrets reads every token of an organization.
func (p *Plane) secrets(ctx context.Context, org string) ([]storedSecret, error) {
	var out []storedSecret
	page := store.Page{}
	for {
		var err error
		page, err = p.ledger.Range(ctx, store.Scan{Part: record.OrganizationPart(org), From: "token/", To: record.After("token/"), Limit: 500, After: page.Next})
		if err != nil {
			return nil, fmt.Errorf("read tokens: %w", err)
		}
		for _, r := range page.Records {
			rec, err := record.Decode[record.Token](r)
			if err != nil {
				return nil, err
			}
			out = append(out, storedSecret{rec, r.Version})
		}
		if page.Next == "" {
			return out, nil
		}
	}
}

// Authenticate turns a user or pool token into who it speaks for.
func (p *Plane) Authenticate(ctx context.Context, token string) (Principal, error) {
	unknown := workflow.Refuse(workflow.ErrUnauthenticated, "", "the token is not known here; log in again, or ask for a new one")
	if token == "" || len(token) > 200 {
		return Principal{}, unknown
	}
	hash := record.Hash(token)
	r, err := p.ledger.Read(ctx, record.TokenKey(hash))
	if err != nil {
		return Principal{}, ledger.OutOfStore(err)
	}
	s, ok, err := ledger.Get[record.Token](r, record.TokenKey(hash))
	if err != nil {
		return Principal{}, err
	}
	if !ok {
		return Principal{}, unknown
	}
	if !s.Valid(p.ledger.Now()) {
		return Principal{}, workflow.Refuse(workflow.ErrRevoked, "", "the token was revoked or has expired")
	}
	who := Principal{Organization: s.Org, Name: s.Name, Audience: s.Audience, Role: s.Role, PoolID: s.PoolID}
	if s.Audience == audiencePool {
		names, err := p.poolNames(ctx, s.Org, s.PoolID)
		if err != nil {
			return Principal{}, err
		}
		if who.Pool = names[s.PoolID]; who.Pool == "" {
			return Principal{}, workflow.Refuse(workflow.ErrRevoked, "", "the pool of this token was deleted")
		}
	}
	return who, nil
}

func viewToken(s record.Token) api.Token {
	t := api.Token{ID: s.ID, Name: s.Name, Role: s.Role, CreatedAt: s.Created, Revoked: s.Revoked}
	if !s.Expires.IsZero() {
		t.ExpiresAt = &s.Expires
	}
	return t
}

// CreateToken makes a user token.
func (p *Plane) CreateToken(ctx context.Context, who Principal, in api.NewToken) (api.TokenValue, error) {
	if err := p.allow(ctx, who, api.RoleAdmin, "token.create", in.Name); err != nil {
		return api.TokenValue{}, err
	}
	if !slices.Contains(ranks, in.Role) {
		return api.TokenValue{}, workflow.Refuse(workflow.ErrInvalid, "role", "a role is viewer, operator or admin")
	}
	if in.Name == "" || len(in.Name) > 64 {
		return api.TokenValue{}, workflow.Refuse(workflow.ErrInvalid, "name", "a token's name has 1 to 64 bytes")
	}
	const mostSeconds = 365 * 24 * 3600
	if in.ExpiresSeconds < 0 || in.ExpiresSeconds > mostSeconds {
		return api.TokenValue{}, workflow.Refuse(workflow.ErrInvalid, "expires_seconds", "a token lives at most a year; 0 means until it is revoked")
	}
	var out api.TokenValue
	err := p.change(ctx, func(_ context.Context, c *change) error {
		rec := record.Token{Org: who.Organization, Audience: audienceUser, Name: in.Name, Role: in.Role}
		if in.ExpiresSeconds > 0 {
			rec.Expires = c.Now.Add(time.Duration(in.ExpiresSeconds) * time.Second)
		}
		out.Value, rec = c.newSecret(rec, userPrefix)
		out.Token = viewToken(rec)
		c.audit(who, "token.create", rec.ID, "done", in.Name+" as "+in.Role)
		return nil
	})
	return out, err
}

// Tokens lists user tokens, without their values.
func (p *Plane) Tokens(ctx context.Context, who Principal, cursor string, limit int) (api.Page[api.Token], error) {
	out := api.Page[api.Token]{Items: []api.Token{}}
	if err := p.allow(ctx, who, api.RoleAdmin, "token.list", ""); err != nil {
		return out, err
	}
	page, err := p.ledger.Range(ctx, store.Scan{Part: record.OrganizationPart(who.Organization), From: "token/", To: record.After("token/"), Limit: ledger.PageSize(limit, 200), After: cursor})
	if err != nil {
		return out, ledger.OutOfStore(fmt.Errorf("read tokens: %w", err))
	}
	page.Records = slices.DeleteFunc(page.Records, func(r store.Record) bool {
		s, err := record.Decode[record.Token](r)
		return err == nil && s.Audience != audienceUser
	})
	return ledger.PageOf(page, func(s record.Token, _ int64) api.Token { return viewToken(s) })
}

// RevokeToken ends a user token at once.
func (p *Plane) RevokeToken(ctx context.Context, who Principal, id string) error {
	if err := p.allow(ctx, who, api.RoleAdmin, "token.revoke", id); err != nil {
		return err
	}
	if err := record.CheckID(id); err != nil {
		return workflow.Refuse(workflow.ErrNotFound, "id", "there is no such token")
	}
	return p.change(ctx, func(ctx context.Context, c *change) error {
		k := record.TokenIDKey(who.Organization, id)
		if err := c.Load(ctx, k); err != nil {
			return err
		}
		s, ok, err := ledger.Get[record.Token](c.Read, k)
		if err != nil {
			return err
		}
		if !ok || s.Audience != audienceUser {
			return workflow.Refuse(workflow.ErrNotFound, "id", "there is no token %s", id)
		}
		if s.Revoked {
			return nil
		}
		c.expire(storedSecret{s, c.Version(k)}, c.Now)
		c.audit(who, "token.revoke", id, "done", s.Name)
		return nil
	})
}

// Token prefixes make a leaked token recognisable.
const (
	userPrefix = "dfu_"
	poolPrefix = "dfp_"
	jobPrefix  = "dfj_"
)

// newToken makes a token of 256 random bits and returns it with the hash that is stored.
func newToken(prefix string) (value, hash string) {
	value = prefix + record.Random(32)
	return value, record.Hash(value)
}
