package identity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// IssueToken issues a short-lived token for another issuer's token or for a service principal's secret. The caller is
// not known yet. The refusal of a token with a valid signature is audited; others are only counted.
func (p *Calls) IssueToken(ctx context.Context, in api.TokenRequest) (out api.IssuedToken, err error) {
	if in.Expiration != 0 && in.Expiration < int(api.MinLifetime.Seconds()) {
		return out, workflow.Invalid("expiration", "a token lives for at least 60 seconds")
	}
	w := wanted{lifetime: time.Duration(min(in.Expiration, int(api.MaxLifetime.Seconds()))) * time.Second}
	if w.kind, err = kindOf(in); err != nil {
		return out, err
	}
	if w.pool, err = poolOf(in.Scope); err != nil {
		return out, err
	}
	if w.pool != "" && w.kind != "" && w.kind != api.KindPool {
		return out, workflow.Invalid("scope", "only a token of a pool has a scope: leave scope out, or ask for %spool", api.TokenTypePrefix)
	}
	org, named := strings.CutPrefix(in.Audience, api.OrganizationPrefix)
	if in.Audience != "" && (!named || CheckName(org) != nil) {
		return out, workflow.Invalid("audience", "want %s and the name of the organization, not %q", api.OrganizationPrefix, text.Cut(in.Audience, 100))
	}
	switch in.GrantType {
	case api.GrantExchange:
		out, err = p.exchange(ctx, org, in, w)
	case api.GrantClientCredentials:
		out, err = p.clientCredentials(ctx, org, in, w)
	default:
		return out, workflow.Refuse(workflow.ErrUnsupported, "grant_type", "want %s or %s, not %q", api.GrantExchange, api.GrantClientCredentials, text.Cut(in.GrantType, 100))
	}
	if errors.Is(err, workflow.ErrUnauthenticated) {
		p.refused.count(ctx, p.ledger)
	}
	return out, err
}

// wanted holds the properties of the token that a caller asks for; zero values leave them open.
type wanted struct {
	kind, pool string
	lifetime   time.Duration
}

func kindOf(in api.TokenRequest) (string, error) {
	if in.RequestedTokenType == "" || in.RequestedTokenType == api.TokenTypeAccess {
		return "", nil
	}
	kind, _ := strings.CutPrefix(in.RequestedTokenType, api.TokenTypePrefix)
	if !slices.Contains([]string{api.KindUser, api.KindService, api.KindPool}, kind) {
		return "", workflow.Invalid("requested_token_type", "want %s and user, service or pool, not %q", api.TokenTypePrefix, text.Cut(in.RequestedTokenType, 100))
	}
	return kind, nil
}

func poolOf(scope string) (string, error) {
	pool, ok := strings.CutPrefix(scope, "pool:")
	if scope != "" && (!ok || !isPlain(pool)) {
		return "", workflow.Invalid("scope", "want pool: and the id or the name of one pool, not %q", text.Cut(scope, 100))
	}
	return pool, nil
}

// lifetime is the requested lifetime of a token, at most the allowed one. It is a pure function.
func lifetime(asked, allowed time.Duration) time.Duration {
	if asked == 0 {
		asked = api.DefaultLifetime
	}
	if allowed == 0 {
		allowed = api.DefaultLifetime
	}
	return min(asked, allowed, api.MaxLifetime)
}

// exchange issues a token for the token of a registered issuer.
func (p *Calls) exchange(ctx context.Context, org string, in api.TokenRequest, w wanted) (out api.IssuedToken, err error) {
	if err := checkExchange(org, in); err != nil {
		return out, err
	}
	url, err := oidc.IssuerOf(in.SubjectToken)
	if err != nil {
		return out, err
	}
	is, err := p.issuerAt(ctx, p.ledger.View(), org, url)
	if err != nil {
		return out, err
	}
	claims, err := p.verify(ctx, is.V.I, in.SubjectToken)
	if err != nil {
		return out, err
	}

	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		now, err := p.issuerAt(ctx, c, org, url)
		if err != nil {
			return err
		}
		poolID, err := poolNamed(ctx, c, org, w.pool)
		if err != nil {
			return err
		}
		rec, maxLifetime, err := decide(now, claims, w.kind, poolID)
		if err != nil {
			return err
		}
		rec.Org, rec.Expires = org, c.Now.Add(lifetime(w.lifetime, maxLifetime))
		if rec.PoolID != "" {
			pool, ok, err := ledger.Load[record.Pool](ctx, c, record.PoolKey(org, rec.PoolID))
			if err != nil {
				return err
			}
			if !ok || pool.Closed {
				return workflow.Refuse(workflow.ErrForbidden, "", "the pool of the rule was deleted")
			}
		}
		// The commit checks no versions: a token is worth nothing without the rule that it was issued by.
		out = p.issue(c, rec, "token.exchange", "")
		return nil
	})
	if errors.Is(err, workflow.ErrForbidden) && p.refused.mayAudit(p.ledger.Now()) {
		_ = Refused(ctx, p.ledger, Of(org, subjectOf(is, claims, "")), "token.exchange", is.V.I.Name, err)
	}
	return out, err
}

// checkExchange refuses an incomplete request for an exchange.
func checkExchange(org string, in api.TokenRequest) error {
	switch {
	case org == "":
		return workflow.Invalid("audience", "name the organization: %s and its name", api.OrganizationPrefix)
	case in.SubjectToken == "":
		return workflow.Invalid("subject_token", "send the token of the issuer")
	case !slices.Contains([]string{api.TokenTypeID, api.TokenTypeJWT, api.TokenTypeAccess}, in.SubjectTokenType):
		return workflow.Invalid("subject_token_type", "want %s, %s or %s", api.TokenTypeID, api.TokenTypeJWT, api.TokenTypeAccess)
	}
	return nil
}

// verify checks the signature of an issuer's token, and returns its claims.
func (p *Calls) verify(ctx context.Context, is api.Issuer, token string) (oidc.Claims, error) {
	expected := oidc.Issuer{URL: is.URL, Audiences: is.Audiences, Algorithms: is.Algorithms}
	if is.Login != nil {
		expected.ClientID = is.Login.ClientID
	}
	claims, err := p.issuers.Verify(ctx, expected, token, p.ledger.Now())
	if err != nil {
		return nil, err
	}
	if sub := claims.Strings("sub"); len(sub) != 1 || sub[0] == "" {
		return nil, workflow.Refuse(workflow.ErrUnauthenticated, "subject_token", "the token does not name its holder: it has no sub")
	}
	return claims, nil
}

// issuerAt reads the issuer of an organization that has an address.
func (p *Calls) issuerAt(ctx context.Context, c *ledger.Change, org, url string) (is record.Settings[record.Issuer], err error) {
	unknown := workflow.Refuse(workflow.ErrUnauthenticated, "subject_token", "%s takes no tokens of %q: an admin registers the issuer with dayfly apply", org, text.Cut(url, 200))
	byURL := record.IssuerURLKey(org, url)
	if err := c.LoadLinked(ctx, byURL); err != nil {
		return is, err
	}
	name, ok, err := ledger.Get[record.Name](c.Read, byURL)
	if err != nil {
		return is, err
	}
	if !ok {
		return is, unknown
	}
	k := record.SettingsKey(org, kind.Issuer, name.ID)
	c.Link(byURL, k)
	is, ok, err = ledger.Load[record.Settings[record.Issuer]](ctx, c, k)
	if err == nil && (!ok || is.V.I.URL != url || is.V.I.IsDisabled) {
		err = unknown
	}
	return is, err
}

// poolNamed is the id of the pool of an id or a name. An unknown name is returned as it is: no rule has it.
func poolNamed(ctx context.Context, c *ledger.Change, org, pool string) (string, error) {
	if pool == "" {
		return "", nil
	}
	name, ok, err := ledger.Load[record.Name](ctx, c, record.PoolNameKey(org, pool))
	if err != nil || !ok {
		return pool, err
	}
	return name.ID, nil
}

// decide finds the first rule that a token fits, and makes the record of the token for its holder, with its maximum
// lifetime. It is a pure function.
func decide(is record.Settings[record.Issuer], claims oidc.Claims, kind, poolID string) (out record.Token, maxLifetime time.Duration, err error) {
	idle := "" // why a rule that fits gives nothing
	for i, rule := range is.V.Rules {
		r := rule.R
		if kind != "" && r.Becomes != kind || poolID != "" && rule.PoolID != poolID || !fits(r, claims) {
			continue
		}
		role, grants := rolesOf(r, claims)
		if r.Becomes != api.KindPool && role == "" && len(grants) == 0 {
			if idle == "" && r.GroupsClaim != "" {
				idle = fmt.Sprintf("; rule %d fits it, and names none of the groups in its claim %q (%q)",
					i+1, r.GroupsClaim, text.Cut(strings.Join(claims.Strings(r.GroupsClaim), " "), 200))
			}
			continue // none of its groups has a role
		}
		var pipeline *record.Pipeline
		if is.V.I.Pipelines != nil {
			from := pipelineOf(*is.V.I.Pipelines, r, claims)
			pipeline = &from
			if !from.Protected && r.Becomes == api.KindPool {
				return out, 0, confined(Principal{Issuer: is.V.I.Name, Pipeline: pipeline}, "a pool's token")
			}
		}
		of := subjectOf(is, claims, r.NameClaim)
		out = record.Token{
			Audience: User, Kind: r.Becomes, Name: of.Name, Principal: of, Role: role, Grants: grants, PoolID: rule.PoolID,
			Source: &record.Source{Issuer: is.V.I.Name, ID: is.ID, Part: rule.ID}, Pipeline: pipeline,
		}
		if r.Becomes == api.KindPool {
			out.Audience = Pool
		}
		return out, time.Duration(r.MaxLifetimeSeconds) * time.Second, nil
	}
	token := "the requested token"
	if kind != "" {
		token = "a " + kind + "'s token"
	}
	return out, 0, workflow.Refuse(workflow.ErrForbidden, "subject_token", "the token is valid, but no rule of issuer %s gives its holder %s (sub %q)%s: compare the claims of the token with dayfly issuer show %s",
		is.V.I.Name, token, text.Cut(strings.Join(claims.Strings("sub"), " "), 200), idle, is.V.I.Name)
}

// rolesOf are the role and the grants that a rule gives to the holder of a token, with those of the holder's groups.
func rolesOf(r api.TrustRule, claims oidc.Claims) (role string, grants map[string]string) {
	role, grants = r.Role, maps.Clone(r.Grants)
	for _, g := range claims.Strings(r.GroupsClaim) {
		if more, ok := r.Groups[g]; ok {
			role, grants = raise(role, more.Role), add(grants, more.Grants)
		}
	}
	return role, grants
}

// fits says whether a token has every claim that a rule wants.
func fits(r api.TrustRule, claims oidc.Claims) bool {
	for name, form := range r.Claims {
		if !slices.ContainsFunc(claims.Strings(name), func(v string) bool { return oidc.Match(form, v) }) {
			return false
		}
	}
	return true
}

func raise(a, b string) string {
	if slices.Index(ranks, b) > slices.Index(ranks, a) {
		return b
	}
	return a
}

func add(to, more map[string]string) map[string]string {
	for project, role := range more {
		if to == nil {
			to = map[string]string{}
		}
		to[project] = raise(to[project], role)
	}
	return to
}

// maxName is the longest name of a holder that is kept. Of a longer one the end gives way to a digest, so that no two
// holders have the same.
const maxName = 100

// subjectOf is the holder of an issuer's token. The subject identifies the holder; a claim may have the name to show.
func subjectOf(is record.Settings[record.Issuer], claims oidc.Claims, claim string) api.PrincipalRef {
	return api.PrincipalRef{ID: record.SubjectID(is.V.I.URL, strings.Join(claims.Strings("sub"), " ")), Name: nameOf(is.V.I.Name, claims, claim)}
}

// nameOf is the name to show for the holder of a token. It begins with the issuer, so that nobody can take the name
// of another. Two people may have the same name in the claim, so it does not identify them.
func nameOf(issuer string, claims oidc.Claims, claim string) string {
	if claim == "" {
		claim = "sub"
	}
	v := strings.Join(claims.Strings(claim), " ")
	if v == "" {
		v = strings.Join(claims.Strings("sub"), " ")
	}
	return shownName(issuer, v)
}

// shownName is ISSUER/NAME, of a length and of characters that can be shown.
func shownName(issuer, v string) string {
	plain := strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f || r == '\uFFFD' || r >= 0x80 && r < 0xa0 {
			return '_'
		}
		return r
	}, v)
	if len(plain) > maxName || plain != v {
		plain = text.Cut(plain, maxName-20) + "~" + record.Hash(v)[:12]
	}
	return issuer + "/" + plain
}

// issue adds a token and its audit entry to a change.
func (p *Calls) issue(c *ledger.Change, rec record.Token, action, detail string) api.IssuedToken {
	value, rec := mintShort(c, rec)
	out := api.IssuedToken{
		AccessToken: value, IssuedTokenType: api.TokenTypePrefix + rec.Kind, TokenType: "Bearer", ID: rec.ID, Organization: rec.Org, Name: rec.Name,
		ExpiresIn: int(rec.Expires.Sub(c.Now) / time.Second),
	}
	as := rec.Kind
	if rec.Role != "" {
		as += " with the role " + rec.Role
	}
	if rec.PoolID != "" {
		out.Scope = "pool:" + rec.PoolID
		as += " " + rec.PoolID
	}
	Audit(c, Of(rec.Org, rec.Principal), action, rec.ID, "done", as+" until "+rec.Expires.Format(time.RFC3339)+detail+pipelineText(rec.Pipeline))
	return out
}

// clientCredentials issues a token for the secret of a service principal.
func (p *Calls) clientCredentials(ctx context.Context, org string, in api.TokenRequest, w wanted) (out api.IssuedToken, err error) {
	unknown := workflow.Refuse(workflow.ErrUnauthenticated, "client_id", "the client id or the secret is wrong")
	switch {
	case in.ClientID == "" || in.ClientSecret == "":
		return out, workflow.Refuse(workflow.ErrUnauthenticated, "client_id", "send the client id and the secret of a service principal, by HTTP Basic or in the form")
	case record.CheckID(in.ClientID) != nil || len(in.ClientSecret) > 200:
		return out, unknown
	case w.kind != "" && w.kind != api.KindService || w.pool != "":
		return out, workflow.Invalid("requested_token_type", "a service principal gets a token of its own kind: %sservice", api.TokenTypePrefix)
	}

	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		owner, s, err := serviceOf(ctx, c, in.ClientID)
		if err != nil {
			return err
		}
		secret, live := s.Find(in.ClientSecret, c.Now)
		if !live || s.ID != in.ClientID || s.Disabled || org != "" && owner != org {
			return unknown
		}
		name := "service/" + s.Name
		rec := record.Token{
			Org: owner, Audience: User, Kind: api.KindService, Name: name, Principal: api.PrincipalRef{ID: s.ID, Name: name}, Role: s.Role, Grants: s.Grants,
			Expires: c.Now.Add(lifetime(w.lifetime, s.MaxLifetime)), Source: &record.Source{Service: s.Name, ID: s.ID, Part: secret.ID},
		}
		out = p.issue(c, rec, "token.issue", ", by secret "+secret.ID)
		return nil
	})
	return out, err
}

// serviceOf reads the service principal of a client id, and its organization; the zero values if there is none.
func serviceOf(ctx context.Context, c *ledger.Change, clientID string) (org string, out record.ServicePrincipal, err error) {
	ck := record.ClientKey(clientID)
	if err := c.LoadLinked(ctx, ck); err != nil {
		return "", out, err
	}
	client, ok, err := ledger.Get[record.Client](c.Read, ck)
	if err != nil || !ok {
		return "", out, err
	}
	k := record.ServiceKey(client.Org, client.Name)
	c.Link(ck, k)
	out, _, err = ledger.Load[record.ServicePrincipal](ctx, c, k)
	return client.Org, out, err
}

// checkSource checks that the source of a token, a trust rule or the secret of a service principal, still exists
// unchanged. The token of a service principal has the current roles of that principal.
func checkSource(c *ledger.Change, s record.Token, who *Principal) error {
	gone := workflow.Refuse(workflow.ErrRevoked, "", "the source of this token was changed or removed: get a new token")
	k := s.Source.Key(s.Org)
	if s.Source.Service != "" {
		p, ok, err := ledger.Get[record.ServicePrincipal](c.Read, k)
		if err != nil {
			return err
		}
		live := slices.ContainsFunc(p.Secrets, func(one record.Secret) bool { return one.ID == s.Source.Part && one.Live(c.Now) })
		if !ok || p.ID != s.Source.ID || p.Disabled || !live {
			return gone
		}
		who.Role, who.Grants = p.Role, p.Grants
		return nil
	}
	is, ok, err := ledger.Get[record.Settings[record.Issuer]](c.Read, k)
	if err != nil {
		return err
	}
	if !ok || is.ID != s.Source.ID || is.V.I.IsDisabled || !slices.ContainsFunc(is.V.Rules, func(r record.Rule) bool { return r.ID == s.Source.Part }) {
		return gone
	}
	return nil
}

// refusals bounds the refusals that are audited and logged, so that strangers cannot fill the audit trail and the
// log.
type refusals struct {
	mu      sync.Mutex
	since   time.Time // the start of the minute that audited counts
	audited int
	logged  time.Time
	counted int
}

const maxAudited = 20 // refusals in a minute, by one process

// mayAudit says whether one more refusal is audited.
func (r *refusals) mayAudit(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since).Abs() >= time.Minute {
		r.since, r.audited = now, 0
	}
	r.audited++
	return r.audited <= maxAudited
}

// count logs how many sign-ins were refused, at most once in a minute.
func (r *refusals) count(ctx context.Context, l *ledger.Ledger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted++
	if now := l.Now(); now.Sub(r.logged).Abs() >= time.Minute {
		l.Log.WarnContext(ctx, "sign-ins refused", "count", r.counted)
		r.logged, r.counted = now, 0
	}
}
