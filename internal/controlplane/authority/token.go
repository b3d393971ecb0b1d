package authority

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Token prefixes make a leaked token recognisable.
const (
	userPrefix = "dfu_"
	PoolPrefix = "dfp_"
	JobPrefix  = "dfj_"
)

// NewToken makes a token of 256 random bits and returns it with the hash that is stored.
func NewToken(prefix string) (value, hash string) {
	value = prefix + record.Random(32)
	return value, record.Hash(value)
}

// BuiltInPool is the name of the pool that every organization starts with.
const BuiltInPool = "default"

// Bootstrap makes the organization, its built-in pool and, where there is none yet, a first admin
// token, whose value it returns this once (empty when it was made before).
func (p *Calls) Bootstrap(ctx context.Context, organization string) (adminToken string, err error) {
	if err := workflow.CheckWorkspaceName(organization); err != nil {
		return "", workflow.Refuse(workflow.ErrInvalid, "organization", "organization names follow the rule of workspace names")
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		adminToken = ""
		k := record.OrganizationKey(organization)
		if err := c.Load(ctx, k); err != nil {
			return err
		}
		if c.Version(k) != store.Absent {
			return nil
		}
		newOrganization(c, organization)
		adminToken, _ = Mint(c, record.Token{Org: organization, Audience: User, Name: "admin", Role: api.RoleAdmin}, userPrefix)
		return nil
	})
	if err != nil {
		return "", err
	}
	return adminToken, nil
}

// newOrganization adds an organization and its built-in pool to a change.
func newOrganization(c *ledger.Change, name string) {
	c.Create(record.OrganizationKey(name), record.Organization{Name: name, Created: c.Now})
	pool := record.Pool{ID: record.NewID("pool_", c.Now), Name: BuiltInPool, BuiltIn: true, AssignedToAll: true, Created: c.Now, Description: "The pool of workspaces that name none"}
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
func (p *Calls) EnsureAdmin(ctx context.Context, organization string, token redact.String) error {
	if err := workflow.CheckWorkspaceName(organization); err != nil {
		return workflow.Refuse(workflow.ErrInvalid, "organization", "organization names follow the rule of workspace names")
	}
	value := token.Reveal()
	if len(value) < leastAdminToken || len(value) > mostAdminToken || strings.HasPrefix(value, JobPrefix) ||
		strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return workflow.Refuse(workflow.ErrInvalid, "", "the deployment's admin token has %d to %d printable characters without spaces, chosen at random, and does not begin with %s", leastAdminToken, mostAdminToken, JobPrefix)
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
			return workflow.Refuse(workflow.ErrExists, "", "the deployment's admin token is another token already: put a new value")
		case known && !s.Valid(c.Now):
			return workflow.Refuse(workflow.ErrRevoked, "", "the deployment's admin token was revoked or replaced: put a new value")
		case known:
			return nil
		}
		if c.Version(record.OrganizationKey(organization)) == store.Absent {
			newOrganization(c, organization)
		}
		olds, err := Tokens(ctx, c, organization)
		if err != nil {
			return err
		}
		until := c.Now.Add(deployedOverlaps)
		for _, old := range olds {
			if old.Hash == hash {
				return fmt.Errorf("the token was made between reads: %w", store.ErrConflict)
			}
			if old.Deployed && old.Valid(c.Now) && (old.Expires.IsZero() || old.Expires.After(until)) {
				Expire(c, old, until)
			}
		}
		rec := keep(c, record.Token{Org: organization, Audience: User, Name: deployedAdmin, Role: api.RoleAdmin, Deployed: true}, hash)
		Audit(c, Principal{Organization: organization, Name: deployedAdmin}, deployedAction, rec.ID, "done", "the admin token of the deployment's secret")
		return nil
	})
}

// Mint adds a new token to a change and returns its value and its record.
func Mint(c *ledger.Change, rec record.Token, prefix string) (string, record.Token) {
	value, hash := NewToken(prefix)
	return value, keep(c, rec, hash)
}

// keep adds a token of which the hash is known to a change.
func keep(c *ledger.Change, rec record.Token, hash string) record.Token {
	rec.ID, rec.Created, rec.Hash = record.NewID("tok_", c.Now), c.Now, hash
	c.Create(record.TokenKey(hash), rec)
	c.Create(record.TokenIDKey(rec.Org, rec.ID), rec)
	return rec
}

// Stored is a token with the version of its record by id. Its record by hash has the same
// version, because the two are always written together.
type Stored struct {
	record.Token
	Version int64
}

// Expire ends a token at a time.
func Expire(c *ledger.Change, s Stored, at time.Time) {
	s.Expires = at
	if !at.After(c.Now) {
		s.Revoked = true
	}
	for _, k := range []store.Key{record.TokenKey(s.Hash), record.TokenIDKey(s.Org, s.ID)} {
		c.Add(store.Put(record.Encode(k, s.Token), s.Version))
	}
}

// Tokens reads every token of an organization.
func Tokens(ctx context.Context, c *ledger.Change, org string) ([]Stored, error) {
	var out []Stored
	page := store.Page{}
	for {
		var err error
		page, err = c.Range(ctx, store.Scan{Part: record.OrganizationPart(org), From: "token/", To: record.After("token/"), Limit: 500, After: page.Next})
		if err != nil {
			return nil, fmt.Errorf("read tokens: %w", err)
		}
		for _, r := range page.Records {
			rec, err := record.Decode[record.Token](r)
			if err != nil {
				return nil, err
			}
			out = append(out, Stored{rec, r.Version})
		}
		if page.Next == "" {
			return out, nil
		}
	}
}

// Authenticate turns a user or pool token into who it speaks for.
func (p *Calls) Authenticate(ctx context.Context, token string) (Principal, error) {
	unknown := workflow.Refuse(workflow.ErrUnauthenticated, "", "the token is not known here; log in again, or ask for a new one")
	if token == "" || len(token) > 200 {
		return Principal{}, unknown
	}
	hash := record.Hash(token)
	keys := []store.Key{record.TokenKey(hash)}
	if pool, ok := p.pools.get(hash); ok {
		keys = append(keys, pool)
	}
	r, err := p.ledger.Read(ctx, keys...)
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
	if s.Audience == Pool {
		k := record.PoolKey(s.Org, s.PoolID)
		if !slices.Contains(keys, k) {
			if r, err = p.ledger.Read(ctx, k); err != nil {
				return Principal{}, ledger.OutOfStore(err)
			}
			p.pools.keep(hash, k)
		}
		pool, ok, err := ledger.Get[record.Pool](r, k)
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
	t := api.Token{ID: s.ID, Name: s.Name, Role: s.Role, CreatedAt: s.Created, Revoked: s.Revoked}
	if !s.Expires.IsZero() {
		t.ExpiresAt = &s.Expires
	}
	return t
}

// CreateToken makes a user token.
func (p *Calls) CreateToken(ctx context.Context, who Principal, in api.NewToken) (api.TokenValue, error) {
	if err := p.guard.Allow(ctx, who, api.RoleAdmin, "token.create", in.Name); err != nil {
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
	err := p.ledger.Change(ctx, func(_ context.Context, c *ledger.Change) error {
		rec := record.Token{Org: who.Organization, Audience: User, Name: in.Name, Role: in.Role}
		if in.ExpiresSeconds > 0 {
			rec.Expires = c.Now.Add(time.Duration(in.ExpiresSeconds) * time.Second)
		}
		out.Value, rec = Mint(c, rec, userPrefix)
		out.Token = viewToken(rec)
		Audit(c, who, "token.create", rec.ID, "done", in.Name+" as "+in.Role)
		return nil
	})
	return out, err
}

// Tokens lists user tokens, without their values.
func (p *Calls) Tokens(ctx context.Context, who Principal, cursor string, limit int) (api.Page[api.Token], error) {
	out := api.Page[api.Token]{Items: []api.Token{}}
	if err := p.guard.Allow(ctx, who, api.RoleAdmin, "token.list", ""); err != nil {
		return out, err
	}
	page, err := p.ledger.List(ctx, store.Scan{Part: record.OrganizationPart(who.Organization), From: "token/", To: record.After("token/"), Limit: ledger.PageSize(limit, 200)}, cursor)
	if err != nil {
		return out, ledger.OutOfStore(fmt.Errorf("read tokens: %w", err))
	}
	page.Records = slices.DeleteFunc(page.Records, func(r store.Record) bool {
		s, err := record.Decode[record.Token](r)
		return err == nil && s.Audience != User
	})
	return ledger.PageOf(page, func(s record.Token, _ int64) api.Token { return viewToken(s) })
}

// RevokeToken ends a user token at once.
func (p *Calls) RevokeToken(ctx context.Context, who Principal, id string) error {
	if err := p.guard.Allow(ctx, who, api.RoleAdmin, "token.revoke", id); err != nil {
		return err
	}
	if err := record.CheckID(id); err != nil {
		return workflow.Refuse(workflow.ErrNotFound, "id", "there is no such token")
	}
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		k := record.TokenIDKey(who.Organization, id)
		if err := c.Load(ctx, k); err != nil {
			return err
		}
		s, ok, err := ledger.Get[record.Token](c.Read, k)
		if err != nil {
			return err
		}
		if !ok || s.Audience != User {
			return workflow.Refuse(workflow.ErrNotFound, "id", "there is no token %s", id)
		}
		if s.Revoked {
			return nil
		}
		Expire(c, Stored{s, c.Version(k)}, c.Now)
		Audit(c, who, "token.revoke", id, "done", s.Name)
		return nil
	})
}

// tokenPools remembers which pools tokens are of, by the tokens' hashes. That never changes, so that token and pool
// can be read at once; whether either is any good is read each time.
type tokenPools struct {
	mu sync.Mutex
	of map[string]store.Key
}

// mostTokenPools bounds what is remembered; beyond it, it begins anew.
const mostTokenPools = 1000

func (t *tokenPools) get(hash string) (store.Key, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.of[hash]
	return k, ok
}

func (t *tokenPools) keep(hash string, pool store.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil || len(t.of) >= mostTokenPools {
		t.of = map[string]store.Key{}
	}
	t.of[hash] = pool
}
