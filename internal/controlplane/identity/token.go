package identity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Token prefixes make a leaked token recognisable.
const (
	userPrefix    = "dfu_"
	servicePrefix = "dfs_"
	secretPrefix  = "dfc_" // of a service principal's secret
	poolPrefix    = "dfp_"
	JobPrefix     = "dfj_"
)

// NewJobToken makes the token of a job and returns it with the hash that is stored.
func NewJobToken() (value, hash string) { return newToken(JobPrefix) }

// newToken makes a token of 256 random bits.
func newToken(prefix string) (value, hash string) {
	value = prefix + record.Random(32)
	return value, record.Hash(value)
}

// Mint adds a new token of a user or of a pool to a change and returns its value and its record.
func Mint(c *ledger.Change, rec record.Token) (string, record.Token) {
	prefix := userPrefix
	if rec.Audience == Pool {
		prefix = poolPrefix
	}
	value, hash := newToken(prefix)
	return value, Keep(c, rec, hash)
}

// mintShort adds a token that ends by itself: the store drops its records then.
func mintShort(c *ledger.Change, rec record.Token) (string, record.Token) {
	value, hash := newToken(map[string]string{api.KindUser: userPrefix, api.KindService: servicePrefix, api.KindPool: poolPrefix}[rec.Kind])
	rec.ID, rec.Created, rec.Hash = record.NewID("tok_", c.Now), c.Now, hash
	c.PutUntil(record.TokenKey(hash), rec, rec.Expires)
	c.PutUntil(record.ShortTokenKey(rec.Org, rec.ID), rec, rec.Expires)
	return value, rec
}

// Keep adds to a change a token whose hash is known.
func Keep(c *ledger.Change, rec record.Token, hash string) record.Token {
	rec.ID, rec.Created, rec.Hash = record.NewID("tok_", c.Now), c.Now, hash
	c.Create(record.TokenKey(hash), rec)
	c.Create(record.TokenIDKey(rec.Org, rec.ID), rec)
	return rec
}

// Stored is a token with the version of its record by id. Its record by hash has the same version, because both are
// always written together.
type Stored struct {
	record.Token
	Version int64
}

// Shorten makes a token end at a time, unless it has ended or ends sooner.
func Shorten(c *ledger.Change, s Stored, at time.Time) {
	if s.Valid(c.Now) && (s.Expires.IsZero() || s.Expires.After(at)) {
		expire(c, s, at)
	}
}

// expire makes a token end at a time.
func expire(c *ledger.Change, s Stored, at time.Time) {
	s.Expires = at
	if !at.After(c.Now) {
		s.Revoked = true
	}
	byID := record.TokenIDKey(s.Org, s.ID)
	if s.Source != nil {
		byID = record.ShortTokenKey(s.Org, s.ID)
	}
	for _, k := range []store.Key{record.TokenKey(s.Hash), byID} {
		c.Add(store.Put(record.Encode(k, s.Token), s.Version))
	}
}

// Tokens reads every token of an organization.
func Tokens(ctx context.Context, c *ledger.Change, org string) (out []Stored, err error) {
	for r, err := range c.All(ctx, record.Under(record.OrganizationPart(org), "token/", 500)) {
		if err != nil {
			return nil, err
		}
		rec, err := record.Decode[record.Token](r)
		if err != nil {
			return nil, err
		}
		out = append(out, Stored{rec, r.Version})
	}
	return out, nil
}

// Authenticate returns the principal of a user or pool token.
func (p *Calls) Authenticate(ctx context.Context, token string) (Principal, error) {
	if token == "" || len(token) > 200 {
		return Principal{}, unknown()
	}
	c, tk := p.ledger.View(), record.TokenKey(record.Hash(token))
	if err := c.LoadLinked(ctx, tk); err != nil {
		return Principal{}, err
	}
	return principalOf(ctx, c, tk)
}

// unknown is the refusal of an unknown token.
func unknown() error {
	return workflow.Refuse(workflow.ErrUnauthenticated, "", "the token is not known here; log in again, or ask for a new one")
}

// principalOf returns the principal of a token whose record was read.
func principalOf(ctx context.Context, c *ledger.Change, tk store.Key) (Principal, error) {
	s, ok, err := ledger.Get[record.Token](c.Read, tk)
	if err != nil {
		return Principal{}, err
	}
	if !ok {
		return Principal{}, unknown()
	}
	if !s.Valid(c.Now) {
		return Principal{}, workflow.Refuse(workflow.ErrRevoked, "", "the token was revoked or has expired")
	}
	who := Principal{
		Organization: s.Org, ID: cmp.Or(s.Principal.ID, s.PoolID), Name: cmp.Or(s.Principal.Name, s.Name), Audience: s.Audience, Role: s.Role, Grants: s.Grants, PoolID: s.PoolID,
		Kind: cmp.Or(s.Kind, s.Audience), TokenID: s.ID, Expires: s.Expires, Pipeline: s.Pipeline,
	}
	if who.ID == "" {
		return Principal{}, workflow.Refuse(workflow.ErrRevoked, "", "this token speaks for no principal: get a new one")
	}
	if s.Source != nil {
		who.Issuer = s.Source.Issuer
	}
	// A token always leads to the same records. Their state is read each time, together with the token.
	var leads []store.Key
	if s.Source != nil {
		leads = append(leads, s.Source.Key(s.Org))
	}
	if s.Audience == Pool {
		leads = append(leads, record.PoolKey(s.Org, s.PoolID))
	}
	if len(leads) > 0 {
		c.Link(tk, leads...)
		if err := c.Load(ctx, leads...); err != nil {
			return Principal{}, err
		}
	}
	if s.Source != nil {
		if err := checkSource(c, s, &who); err != nil {
			return Principal{}, err
		}
	}
	if s.Audience == Pool {
		k := record.PoolKey(s.Org, s.PoolID)
		pool, ok, err := ledger.Load[record.Pool](ctx, c, k)
		if err != nil {
			return Principal{}, err
		}
		if who.Pool = pool.Name; !ok {
			return Principal{}, workflow.Refuse(workflow.ErrRevoked, "", "the pool of this token was deleted")
		}
	}
	return who, nil
}

func viewToken(s record.Token) api.Token {
	t := api.Token{ID: s.ID, Name: s.Name, Principal: s.Principal, Role: s.Role, Grants: s.Grants, CreatedAt: s.Created, Revoked: s.Revoked}
	if !s.Expires.IsZero() {
		t.ExpiresAt = &s.Expires
	}
	return t
}

// CreateToken makes a user token.
func (p *Calls) CreateToken(ctx context.Context, who Principal, in api.NewToken) (api.TokenValue, error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "token.create", in.Name); err != nil {
		return api.TokenValue{}, err
	}
	if !slices.Contains(ranks, in.Role) && (in.Role != "" || len(in.Grants) == 0) {
		return api.TokenValue{}, workflow.Refuse(workflow.ErrInvalid, "role", "a role is viewer, operator or admin; a token without one needs grants, such as payments: operator")
	}
	if err := checkPrincipalName(in.Name); err != nil {
		return api.TokenValue{}, err
	}
	const maxSeconds = 365 * 24 * 3600
	if in.ExpiresSeconds < 0 || in.ExpiresSeconds > maxSeconds {
		return api.TokenValue{}, workflow.Refuse(workflow.ErrInvalid, "expires_seconds", "a token is valid for at most a year; 0 means until it is revoked")
	}
	var out api.TokenValue
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		if len(in.Grants) > maxGrants {
			return workflow.Refuse(workflow.ErrInvalid, "grants", "a token has roles in at most %d projects; grant a role in a project above them, which counts in all below it", maxGrants)
		}
		if err := checkGrants(ctx, c, who.Organization, "grants", in.Grants); err != nil {
			return err
		}
		of, err := holder(ctx, c, who, in)
		if err != nil {
			return err
		}
		rec := record.Token{Org: who.Organization, Audience: User, Name: in.Name, Principal: of, Role: in.Role, Grants: in.Grants}
		if in.ExpiresSeconds > 0 {
			rec.Expires = c.Now.Add(time.Duration(in.ExpiresSeconds) * time.Second)
		}
		out.Value, rec = Mint(c, rec)
		out.Token = viewToken(rec)
		Audit(c, who, "token.create", rec.ID, "done", in.Name+" of "+of.Name+" as "+api.Roles(in.Role, in.Grants))
		return nil
	})
	return out, err
}

// holder is the principal of a new token: the named one, or a new one with the token's name.
func holder(ctx context.Context, c *ledger.Change, who Principal, in api.NewToken) (api.PrincipalRef, error) {
	if in.Principal != "" {
		return FindPrincipal(ctx, c, who.Organization, "principal", in.Principal)
	}
	made, err := newPrincipal(ctx, c, who, in.Name)
	return made.Ref(), err
}

// maxGrants is in how many projects one token has roles.
const maxGrants = 50

// CheckRoles refuses an unknown role, and grants as checkGrants does.
func CheckRoles(ctx context.Context, c *ledger.Change, org, at, role string, grants map[string]string) error {
	if err := checkRole(at+".role", role); err != nil {
		return err
	}
	if len(grants) > maxGrants {
		return workflow.Invalid(at+".grants", "there are roles in at most %d projects; grant a role in a project above them, which counts in all below it", maxGrants)
	}
	return checkGrants(ctx, c, org, at+".grants", grants)
}

// checkGrants refuses grants of an unknown role or in an unknown project. The commit fails if a project is deleted
// meanwhile: a later project of its name must not have the grants.
func checkGrants(ctx context.Context, c *ledger.Change, org, at string, grants map[string]string) error {
	var keys []store.Key
	for _, project := range slices.Sorted(maps.Keys(grants)) {
		field := at + "." + text.Cut(project, 64)
		if !slices.Contains(ranks, grants[project]) {
			return workflow.Invalid(field, "a role is viewer, operator or admin")
		}
		if workflow.CheckWorkspaceName(project) != nil {
			return workflow.Invalid(field, "there is no project %q", text.Cut(project, 64))
		}
		if project != record.GlobalProject {
			keys = append(keys, record.ProjectKey(org, project))
		}
	}
	k, missing, err := c.Missing(ctx, org, keys...)
	if err == nil && missing {
		name := strings.TrimPrefix(k.Sort, record.ProjectKey(org, "").Sort)
		err = workflow.Invalid(at+"."+name, "there is no project %q: correct the name, or make it with dayfly project create", name)
	}
	return err
}

// GrantIn names a token, rule, service principal or member with a role in a project; "" if there is none. It is for a
// change that goes by the whole tree of projects.
func GrantIn(ctx context.Context, c *ledger.Change, org, project string) (string, error) {
	tokens, err := Tokens(ctx, c, org)
	if err != nil {
		return "", err
	}
	for _, t := range tokens {
		if t.Grants[project] != "" && t.Valid(c.Now) {
			return fmt.Sprintf("token %s (%s) has the role %s in it", t.ID, t.Name, t.Grants[project]), nil
		}
	}
	for is, err := range ledger.AllOf[record.Settings[record.Issuer]](ctx, c, record.SettingsOf(org, kind.Issuer, 100)) {
		if err != nil {
			return "", err
		}
		for i, rule := range is.V.Rules {
			if slices.ContainsFunc(grantsOf(rule.R), func(g map[string]string) bool { return g[project] != "" }) {
				return fmt.Sprintf("rule %d of issuer %s gives a role in it", i, is.V.I.Name), nil
			}
		}
	}
	for s, err := range ledger.AllOf[record.ServicePrincipal](ctx, c, record.Under(record.OrganizationPart(org), record.ServicesPrefix, 100)) {
		if err != nil {
			return "", err
		}
		if s.Grants[project] != "" {
			return fmt.Sprintf("service principal %s has the role %s in it", s.Name, s.Grants[project]), nil
		}
	}
	for g, err := range ledger.AllOf[record.Settings[api.GitHost]](ctx, c, record.SettingsOf(org, kind.GitHost, 100)) {
		if err != nil {
			return "", err
		}
		for _, m := range g.V.Members {
			if m.Grants[project] != "" {
				return fmt.Sprintf("member %s of git host %s has the role %s in it", m.Principal, g.V.Name, m.Grants[project]), nil
			}
		}
	}
	return "", nil
}

// Tokens lists user tokens, without their values.
func (p *Calls) Tokens(ctx context.Context, who Principal, cursor string, limit int) (out api.Page[api.Token], err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "token.list", ""); err != nil {
		return out, err
	}
	page, err := p.ledger.List(ctx, record.Under(record.OrganizationPart(who.Organization), "token/", ledger.PageSize(limit, 200)), cursor)
	if err != nil {
		return out, err
	}
	page.Records = slices.DeleteFunc(page.Records, func(r store.Record) bool {
		s, err := record.Decode[record.Token](r)
		return err == nil && s.Audience != User
	})
	return ledger.PageOf(page, func(s record.Token, _ int64) api.Token { return viewToken(s) })
}

// RevokeToken ends a user token at once.
func (p *Calls) RevokeToken(ctx context.Context, who Principal, id string) error {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "token.revoke", id); err != nil {
		return err
	}
	if err := record.CheckID(id); err != nil {
		return workflow.Refuse(workflow.ErrNotFound, "id", "there is no such token")
	}
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		k, short := record.TokenIDKey(who.Organization, id), record.ShortTokenKey(who.Organization, id)
		if err := c.Load(ctx, k, short); err != nil {
			return err
		}
		if c.Version(k) == store.Absent {
			k = short
		}
		s, ok, err := ledger.Load[record.Token](ctx, c, k)
		if err != nil {
			return err
		}
		if !ok || s.Audience != User && s.Source == nil {
			return workflow.Refuse(workflow.ErrNotFound, "id", "there is no token %s", id)
		}
		if s.Revoked {
			return nil
		}
		expire(c, Stored{s, c.Version(k)}, c.Now)
		Audit(c, who, "token.revoke", id, "done", s.Name)
		return nil
	})
}
