package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// sharedHosts are issuers of which strangers get tokens too, with the claims that hold an id of an owner which is never
// given to another. A name is not enough: whoever takes over a name that was given up gets tokens with it.
var sharedHosts = map[string][]string{
	"token.actions.githubusercontent.com": {"repository_owner_id", "repository_id", "enterprise_id"},
	"gitlab.com":                          {"namespace_id", "project_id"},
	"agent.buildkite.com":                 {"organization_id", "pipeline_id"},
	"app.terraform.io":                    {"terraform_organization_id", "terraform_workspace_id"},
	"accounts.google.com":                 {"sub"},
	"appleid.apple.com":                   {"sub"},
	"cognito-identity.amazonaws.com":      {"sub"},
}

// sharedTenants are the addresses of Microsoft that all its tenants or all persons share, by the beginning of their paths.
// The last is the tenant of personal accounts.
var sharedTenants = map[string][]string{
	"common": {"tid", "oid"}, "organizations": {"tid", "oid"}, "consumers": {"oid"}, "9188040d-6c67-4c5b-b112-36a304b66dad": {"oid"},
}

// ownersOf are the claims one of which a rule of a shared issuer must name; shared says whether it is known as one.
func ownersOf(u *url.URL) (owners []string, shared bool) {
	host := strings.ToLower(u.Hostname())
	if host == "login.microsoftonline.com" || host == "sts.windows.net" {
		tenant, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(u.Path), "/"), "/")
		owners, shared = sharedTenants[tenant]
		return owners, shared
	}
	owners, shared = sharedHosts[host]
	return owners, shared
}

func invalid(field, format string, args ...any) error {
	return workflow.Refuse(workflow.ErrInvalid, field, format, args...)
}

// CheckName refuses a name that cannot be part of a key or of an address.
func CheckName(name string) error {
	if !isPlain(name) {
		return invalid("name", "a name has 1 to 64 characters of A-Z, a-z, 0-9, _ and -, not %q", text.Cut(name, 80))
	}
	return workflow.CheckNoID(name)
}

// isPlain says whether something can be a name or an id.
func isPlain(s string) bool {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return s != "" && len(s) <= 64 && strings.Trim(s, plain) == ""
}

// settleIssuer fills in what an issuer leaves out, and refuses what cannot be.
func (p *Calls) settleIssuer(org string, in api.Issuer) (api.Issuer, error) {
	if err := CheckName(in.Name); err != nil {
		return in, err
	}
	// Of these kinds the control plane itself makes names KIND/NAME, as of an issuer ISSUER/SUBJECT.
	if slices.Contains([]string{"service", "schedule", "pull-request"}, in.Name) {
		return in, invalid("name", "%s/ begins the names of what acts here without a person: choose another name", in.Name)
	}
	if err := p.issuers.CheckAddress("url", in.URL); err != nil {
		return in, err
	}
	u, _ := url.Parse(in.URL)
	pipelines, err := settlePipelines(in.Pipelines, in.URL)
	if err != nil {
		return in, err
	}
	in.Pipelines = pipelines
	owners, known := ownersOf(u)
	in.Shared = in.Shared || known
	if in.OwnerClaim != "" {
		owners = []string{in.OwnerClaim}
	}
	ours := api.OrganizationPrefix + org
	if len(in.Audiences) == 0 {
		in.Audiences = []string{ours}
	}
	for _, a := range in.Audiences {
		if a == "" || len(a) > 512 {
			return in, invalid("audiences", "an audience has 1 to 512 bytes")
		}
		if in.Shared && a != ours && !strings.HasPrefix(a, ours+":") {
			return in, invalid("audiences", "strangers get tokens of %s too, so an audience must be of this organization alone: want %s and not %q", in.URL, ours, a)
		}
	}
	for _, a := range in.Algorithms {
		if !slices.Contains(oidc.Algorithms(), a) {
			return in, invalid("algorithms", "%q is not taken: there are %s", text.Cut(a, 20), strings.Join(oidc.Algorithms(), ", "))
		}
	}
	if len(in.Algorithms) == 0 {
		in.Algorithms = oidc.DefaultAlgorithms()
	}
	if in.Login != nil && in.Login.ClientID == "" {
		return in, invalid("login.client_id", "to log people in, name the id of a public client of the issuer")
	}
	if in.Shared && len(owners) == 0 {
		return in, invalid("owner_claim", "strangers get tokens of %s too: name the claim that has an id of their owner which is never given to another", in.URL)
	}
	for i, r := range in.Rules {
		if err := checkRule(fmt.Sprintf("rules.%d", i), r); err != nil {
			return in, err
		}
		if in.Shared && !slices.ContainsFunc(owners, func(o string) bool { return r.Claims[o] != "" && !strings.Contains(r.Claims[o], "*") }) {
			return in, invalid(fmt.Sprintf("rules.%d.claims", i), "strangers get tokens of %s too: add %s with its exact value, without *; names can be given up and taken over", in.URL, strings.Join(owners, " or "))
		}
	}
	in.CreatedAt, in.Version = nil, 0
	return in, nil
}

// checkRule refuses a trust rule that cannot be meant. It is a pure function.
func checkRule(at string, r api.TrustRule) error {
	if len(r.Claims) == 0 && r.GroupsClaim == "" {
		return invalid(at+".claims", "a rule without conditions trusts everybody who gets a token of the issuer: name a claim and its value")
	}
	if len(r.Claims) > 20 || len(r.Groups) > 100 || len(r.Grants) > 100 {
		return invalid(at, "a rule has at most 20 claims, 100 groups and 100 grants")
	}
	for name, value := range r.Claims {
		if name == "" || len(name) > 128 || value == "" || len(value) > 512 {
			return invalid(at+".claims", "a claim's name has 1 to 128 bytes, and its value 1 to 512")
		}
	}
	if (r.GroupsClaim == "") != (len(r.Groups) == 0) {
		return invalid(at+".groups_claim", "groups_claim and groups go together")
	}
	if d := r.MaxLifetimeSeconds; d != 0 && (d < int(api.LeastLifetime.Seconds()) || d > int(api.MostLifetime.Seconds())) {
		return invalid(at+".max_lifetime_seconds", "a lifetime lies between 60 and 43200 seconds")
	}
	switch r.Becomes {
	case api.KindPool:
		if r.Pool == "" || r.Role != "" || len(r.Grants)+len(r.Groups) > 0 {
			return invalid(at+".pool", "a rule that becomes a pool names the pool, and no role, grants or groups")
		}
		return nil
	case api.KindUser, api.KindService:
		if r.Pool != "" {
			return invalid(at+".pool", "only a rule that becomes a pool names one")
		}
	default:
		return invalid(at+".becomes", "want user, service or pool, not %q", text.Cut(r.Becomes, 20))
	}
	if r.Role == "" && len(r.Grants)+len(r.Groups) == 0 {
		return invalid(at+".role", "name a role, grants in projects, or groups: without them the holder may do nothing")
	}
	for name, g := range r.Groups {
		if name == "" || g.Role == "" && len(g.Grants) == 0 {
			return invalid(at+".groups", "each group has a name, and a role or grants")
		}
		if err := checkRole(at+".groups."+name+".role", g.Role); err != nil {
			return err
		}
	}
	return checkRole(at+".role", r.Role)
}

// checkRole refuses a role that there is not.
func checkRole(field, role string) error {
	if role != "" && !slices.Contains(ranks, role) {
		return invalid(field, "a role is viewer, operator or admin, not %q", text.Cut(role, 20))
	}
	return nil
}

// grantsOf are all grants that a rule gives.
func grantsOf(r api.TrustRule) []map[string]string {
	out := []map[string]string{r.Grants}
	for _, g := range r.Groups {
		out = append(out, g.Grants)
	}
	return out
}

// rulesOf makes the records of an issuer's trust rules.
func rulesOf(ctx context.Context, c *ledger.Change, org string, is api.Issuer) (out []record.Rule, err error) {
	for i, r := range is.Rules {
		rule := record.Rule{R: r}
		if r.Becomes == api.KindPool {
			k := record.PoolNameKey(org, r.Pool)
			name, ok, err := ledger.Load[record.Name](ctx, c, k)
			if err != nil {
				return nil, err
			}
			if !ok {
				return nil, invalid(fmt.Sprintf("rules.%d.pool", i), "there is no pool %q: correct the name, or make it with dayfly pool create", text.Cut(r.Pool, 64))
			}
			rule.PoolID = name.ID
			pool := record.PoolKey(org, name.ID)
			rec, _, err := ledger.Load[record.Pool](ctx, c, pool)
			if err != nil {
				return nil, err
			}
			if rec.Closed {
				return nil, invalid(fmt.Sprintf("rules.%d.pool", i), "pool %s is closed: it was deleted; name another one", text.Cut(r.Pool, 64))
			}
			c.Check(k)
			c.Check(pool)
		}
		at := fmt.Sprintf("rules.%d", i)
		if err := checkGrants(ctx, c, org, at+".grants", r.Grants); err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(r.Groups)) {
			if err := checkGrants(ctx, c, org, at+".groups."+name+".grants", r.Groups[name].Grants); err != nil {
				return nil, err
			}
		}
		// What a rule gives depends on how claims are read. Maps are written in the order of their keys.
		said, err := json.Marshal(struct {
			record.Rule
			Pipelines *api.Pipelines `json:"pipelines,omitempty"`
		}{rule, is.Pipelines})
		if err != nil {
			return nil, fmt.Errorf("encode a rule: %w", err)
		}
		rule.ID = record.Hash(string(said))[:20]
		out = append(out, rule)
	}
	return out, nil
}

// PutIssuer creates or changes an issuer. Tokens that a changed rule gave end.
func (p *Calls) PutIssuer(ctx context.Context, who Principal, in api.Issuer) (out api.Issuer, outcome api.Outcome, err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "issuer.apply", in.Name); err != nil {
		return out, "", err
	}
	version := in.Version
	if in, err = p.settleIssuer(who.Organization, in); err != nil {
		return out, "", err
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		k, byURL := record.IssuerKey(who.Organization, in.Name), record.IssuerURLKey(who.Organization, in.URL)
		if err := c.Load(ctx, k, byURL); err != nil {
			return err
		}
		old, exists, err := ledger.Get[record.Issuer](c.Read, k)
		if err != nil {
			return err
		}
		other, taken, err := ledger.Get[record.Name](c.Read, byURL)
		switch {
		case err != nil:
			return err
		case exists && old.I.URL != in.URL:
			return invalid("url", "the address of an issuer never changes, and that of %s is %s: make another issuer", in.Name, old.I.URL)
		case !exists && taken:
			return workflow.Refuse(workflow.ErrExists, "url", "issuer %s has this address: add the rules there", other.ID)
		case version != 0 && version != c.Version(k):
			return workflow.Refuse(workflow.ErrConflict, "version", "the issuer was changed by someone else: it has version %d now", c.Version(k))
		}
		rec := record.Issuer{ID: cmp.Or(old.ID, record.NewID("iss_", c.Now)), Created: old.Created, I: in}
		rec.I.Rules = nil
		if rec.Rules, err = rulesOf(ctx, c, who.Organization, in); err != nil {
			return err
		}
		switch {
		case exists && reflect.DeepEqual(rec, old):
			outcome, out = api.OutcomeUnchanged, viewIssuer(old, c.Version(k))
			return errUnchanged
		case exists:
			outcome = api.OutcomeChanged
		default:
			outcome, rec.Created = api.OutcomeCreated, c.Now
			c.Create(byURL, record.Name{ID: in.Name})
		}
		c.Put(k, rec)
		Audit(c, who, "issuer.apply", in.Name, "done", fmt.Sprintf("%s, %s, %s", outcome, in.URL, text.Count(len(rec.Rules), "rule")))
		out = viewIssuer(rec, c.Version(k)+1)
		return nil
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return out, outcome, err
}

var errUnchanged = errors.New("nothing to change")

func viewIssuer(rec record.Issuer, version int64) api.Issuer {
	out := rec.I
	for _, r := range rec.Rules {
		out.Rules = append(out.Rules, r.R)
	}
	out.CreatedAt, out.Version = &rec.Created, version
	return out
}

// Issuers lists the issuers.
func (p *Calls) Issuers(ctx context.Context, who Principal, cursor string, limit int) (out api.Page[api.Issuer], err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "issuer.list", ""); err != nil {
		return out, err
	}
	scan := record.Under(record.OrganizationPart(who.Organization), record.IssuersPrefix, ledger.PageSize(limit, 50))
	return ledger.ListOf(ctx, p.ledger, scan, cursor, viewIssuer)
}

// Issuer shows an issuer.
func (p *Calls) Issuer(ctx context.Context, who Principal, name string) (out api.Issuer, err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "issuer.show", name); err != nil {
		return out, err
	}
	c, k := p.ledger.View(), record.IssuerKey(who.Organization, name)
	rec, ok, err := ledger.Load[record.Issuer](ctx, c, k)
	if err == nil && !ok {
		err = workflow.Refuse(workflow.ErrNotFound, "issuer", "there is no issuer %q", text.Cut(name, 64))
	}
	if err != nil {
		return out, err
	}
	return viewIssuer(rec, c.Version(k)), nil
}

// DeleteIssuer deletes an issuer. All tokens that it gave end.
func (p *Calls) DeleteIssuer(ctx context.Context, who Principal, name string) error {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "issuer.delete", name); err != nil {
		return err
	}
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		k := record.IssuerKey(who.Organization, name)
		rec, ok, err := ledger.Load[record.Issuer](ctx, c, k)
		if err != nil {
			return err
		}
		if !ok {
			return workflow.Refuse(workflow.ErrNotFound, "issuer", "there is no issuer %q", text.Cut(name, 64))
		}
		byURL := record.IssuerURLKey(who.Organization, rec.I.URL)
		if err := c.Load(ctx, byURL); err != nil {
			return err
		}
		c.Remove(k)
		c.Remove(byURL)
		Audit(c, who, "issuer.delete", name, "done", rec.I.URL)
		return nil
	})
}

// LoginOptions says with which issuers people log in. Everybody may ask; an organization that does not exist has none.
func (p *Calls) LoginOptions(ctx context.Context, org string) (api.LoginOptions, error) {
	out := api.LoginOptions{Organization: org, Issuers: []api.LoginOption{}}
	if err := CheckName(org); err != nil {
		return out, invalid("organization", "this is not the name of an organization")
	}
	scan := record.Under(record.OrganizationPart(org), record.IssuersPrefix, 100)
	page, err := p.ledger.Range(ctx, scan)
	if err != nil {
		return out, err
	}
	all, err := record.DecodeAll[record.Issuer](page.Records)
	for _, rec := range all {
		if l := rec.I.Login; l != nil && !rec.I.IsDisabled {
			scopes := l.Scopes
			if len(scopes) == 0 {
				scopes = []string{"openid", "profile", "email"}
			}
			out.Issuers = append(out.Issuers, api.LoginOption{Name: rec.I.Name, Issuer: rec.I.URL, ClientID: l.ClientID, Scopes: scopes})
		}
	}
	return out, err
}

// LoginWith begins a login of a person with an issuer of an organization. Everybody may.
func (p *Calls) LoginWith(ctx context.Context, org, issuer string) (*oidc.Login, error) {
	options, err := p.LoginOptions(ctx, org)
	if err != nil {
		return nil, err
	}
	for _, o := range options.Issuers {
		if o.Name == issuer {
			return p.issuers.Login(ctx, o.Issuer, o.ClientID, o.Scopes, p.ledger.Now())
		}
	}
	return nil, workflow.Refuse(workflow.ErrNotFound, "issuer", "people do not log in with an issuer %q here", text.Cut(issuer, 64))
}
