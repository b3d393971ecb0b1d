package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// CheckName refuses a name that cannot be part of a key or of an address.
func CheckName(name string) error {
	if !isPlain(name) {
		return workflow.Invalid("name", "a name has 1 to 64 characters of A-Z, a-z, 0-9, _ and -, not %q", text.Cut(name, 80))
	}
	return workflow.CheckNoID(name)
}

// isPlain reports whether a text can be a name or an id.
func isPlain(s string) bool {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return s != "" && len(s) <= 64 && strings.Trim(s, plain) == ""
}

// issuerSettings are the issuers of organizations. Tokens that a changed rule gave end.
func (p *Calls) issuerSettings() *Settings[api.Issuer, record.Issuer] {
	return SettingsFor(p.ledger, kind.Issuer, SettingsRules[api.Issuer, record.Issuer]{
		Prepare: p.prepareIssuer,
		View: func(rec record.Settings[record.Issuer], version int64) api.Issuer {
			out := rec.V.I
			for _, r := range rec.V.Rules {
				out.Rules = append(out.Rules, r.R)
			}
			out.CreatedAt, out.Version = &rec.Created, version
			return out
		},
		Brief: func(is record.Issuer) string { return is.I.URL + ", " + text.Count(len(is.Rules), "rule") },
		OnPut: func(_ context.Context, c *ledger.Change, org string, rec record.Settings[record.Issuer]) error {
			if byURL := record.IssuerURLKey(org, rec.V.I.URL); c.Version(byURL) == store.Absent {
				c.Create(byURL, record.Name{ID: rec.V.I.Name})
			}
			return nil
		},
		OnDelete: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[record.Issuer]) error {
			byURL := record.IssuerURLKey(org, rec.V.I.URL)
			if err := c.Load(ctx, byURL); err != nil {
				return err
			}
			c.Remove(byURL)
			return nil
		},
	})
}

// prepareIssuer refuses an invalid issuer, and gives its rules their ids.
func (p *Calls) prepareIssuer(ctx context.Context, c *ledger.Change, org string, in api.Issuer, old *record.Settings[record.Issuer]) (out record.Issuer, err error) {
	if err := p.checkIssuer(org, &in); err != nil {
		return out, err
	}
	byURL := record.IssuerURLKey(org, in.URL)
	other, taken, err := ledger.Load[record.Name](ctx, c, byURL)
	switch {
	case err != nil:
		return out, err
	case old != nil && old.V.I.URL != in.URL:
		return out, workflow.Invalid("url", "the address of an issuer never changes, and that of %s is %s: make another issuer", in.Name, old.V.I.URL)
	case old == nil && taken:
		return out, workflow.Refuse(workflow.ErrExists, "url", "issuer %s has this address: add the rules there", other.ID)
	}
	out.I = in
	out.I.Rules = nil
	out.Rules, err = rulesOf(ctx, c, org, in)
	return out, err
}

// checkIssuer refuses settings of an issuer that are invalid by themselves, without other records.
func (p *Calls) checkIssuer(org string, in *api.Issuer) error {
	// The control plane names its own actors KIND/NAME, and the subjects of an issuer ISSUER/SUBJECT.
	if slices.Contains([]string{"service", "schedule", "pull-request"}, in.Name) {
		return workflow.Invalid("name", "names that begin with %s/ belong to the control plane: choose another name", in.Name)
	}
	if err := p.issuers.CheckAddress("url", in.URL); err != nil {
		return err
	}
	if err := checkPipelines(in.Pipelines); err != nil {
		return err
	}
	ours := api.OrganizationPrefix + org
	for _, a := range in.Audiences {
		if a == "" || len(a) > 512 {
			return workflow.Invalid("audiences", "an audience has 1 to 512 bytes")
		}
		if in.Shared && a != ours && !strings.HasPrefix(a, ours+":") {
			return workflow.Invalid("audiences", "strangers get tokens of %s too, so an audience must be of this organization alone: want %s and not %q", in.URL, ours, a)
		}
	}
	for _, a := range in.Algorithms {
		if !slices.Contains(oidc.Algorithms(), a) {
			return workflow.Invalid("algorithms", "%q is not supported: the algorithms are %s", text.Cut(a, 20), strings.Join(oidc.Algorithms(), ", "))
		}
	}
	if in.Login != nil && in.Login.ClientID == "" {
		return workflow.Invalid("login.client_id", "to log people in, name the id of a public client of the issuer")
	}
	return checkRules(*in)
}

// checkRules refuses invalid rules of an issuer, and rules of a shared issuer that trust strangers.
func checkRules(in api.Issuer) error {
	owners, _ := in.Owners()
	if in.Shared && len(owners) == 0 {
		return workflow.Invalid("owner_claim", "strangers get tokens of %s too: name the claim that has an id of their owner which is never given to another", in.URL)
	}
	for i, r := range in.Rules {
		if err := checkRule(fmt.Sprintf("rules.%d", i), r); err != nil {
			return err
		}
		if in.Shared && !slices.ContainsFunc(owners, func(o string) bool { return r.Claims[o] != "" && !strings.Contains(r.Claims[o], "*") }) {
			return workflow.Invalid(fmt.Sprintf("rules.%d.claims", i), "strangers get tokens of %s too: add %s with its exact value, without *; names can be given up and taken over", in.URL, strings.Join(owners, " or "))
		}
	}
	return nil
}

// checkRule refuses an invalid trust rule. It is a pure function.
func checkRule(at string, r api.TrustRule) error {
	if len(r.Claims) == 0 && r.GroupsClaim == "" {
		return workflow.Invalid(at+".claims", "a rule without conditions trusts everybody who gets a token of the issuer: name a claim and its value")
	}
	if len(r.Claims) > 20 || len(r.Groups) > 100 || len(r.Grants) > 100 {
		return workflow.Invalid(at, "a rule has at most 20 claims, 100 groups and 100 grants")
	}
	for name, value := range r.Claims {
		if name == "" || len(name) > 128 || value == "" || len(value) > 512 {
			return workflow.Invalid(at+".claims", "a claim's name has 1 to 128 bytes, and its value 1 to 512")
		}
	}
	if (r.GroupsClaim == "") != (len(r.Groups) == 0) {
		return workflow.Invalid(at+".groups_claim", "groups_claim and groups go together")
	}
	if d := r.MaxLifetimeSeconds; d != 0 && (d < int(api.MinLifetime.Seconds()) || d > int(api.MaxLifetime.Seconds())) {
		return workflow.Invalid(at+".max_lifetime_seconds", "a lifetime lies between 60 and 43200 seconds")
	}
	return checkRights(at, r)
}

// checkRights refuses a trust rule without rights for the kind of principal that a token becomes, or with invalid
// ones.
func checkRights(at string, r api.TrustRule) error {
	switch r.Becomes {
	case api.KindPool:
		if r.Pool == "" || r.Role != "" || len(r.Grants)+len(r.Groups) > 0 {
			return workflow.Invalid(at+".pool", "a rule that becomes a pool names the pool, and no role, grants or groups")
		}
		return nil
	case api.KindUser, api.KindService:
		if r.Pool != "" {
			return workflow.Invalid(at+".pool", "only a rule that becomes a pool names one")
		}
	default:
		return workflow.Invalid(at+".becomes", "want user, service or pool, not %q", text.Cut(r.Becomes, 20))
	}
	if r.Role == "" && len(r.Grants)+len(r.Groups) == 0 {
		return workflow.Invalid(at+".role", "name a role, grants in projects, or groups: without them the holder may do nothing")
	}
	for name, g := range r.Groups {
		if name == "" || g.Role == "" && len(g.Grants) == 0 {
			return workflow.Invalid(at+".groups", "each group has a name, and a role or grants")
		}
		if err := checkRole(at+".groups."+name+".role", g.Role); err != nil {
			return err
		}
	}
	return checkRole(at+".role", r.Role)
}

// checkRole refuses an unknown role.
func checkRole(field, role string) error {
	if role != "" && !slices.Contains(ranks, role) {
		return workflow.Invalid(field, "a role is viewer, operator or admin, not %q", text.Cut(role, 20))
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
				return nil, workflow.Invalid(fmt.Sprintf("rules.%d.pool", i), "there is no pool %q: correct the name, or make it with dayfly pool create", text.Cut(r.Pool, 64))
			}
			rule.PoolID = name.ID
			pool := record.PoolKey(org, name.ID)
			rec, _, err := ledger.Load[record.Pool](ctx, c, pool)
			if err != nil {
				return nil, err
			}
			if rec.Closed {
				return nil, workflow.Invalid(fmt.Sprintf("rules.%d.pool", i), "pool %s is closed: it was deleted; name another one", text.Cut(r.Pool, 64))
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
		// The rights of a rule depend on how claims are read, so its id depends on that too. JSON has the keys of
		// maps in order.
		encoded, err := json.Marshal(struct {
			record.Rule
			Pipelines *api.Pipelines `json:"pipelines,omitempty"`
		}{rule, is.Pipelines})
		if err != nil {
			return nil, fmt.Errorf("encode a rule: %w", err)
		}
		rule.ID = record.Hash(string(encoded))[:20]
		out = append(out, rule)
	}
	return out, nil
}

// LoginOptions lists the issuers with which people log in. Anybody may call it; an unknown organization has none.
func (p *Calls) LoginOptions(ctx context.Context, org string) (api.LoginOptions, error) {
	out := api.LoginOptions{Organization: org, Issuers: []api.LoginOption{}}
	if err := CheckName(org); err != nil {
		return out, workflow.Invalid("organization", "this is not the name of an organization")
	}
	scan := record.SettingsOf(org, kind.Issuer, 100)
	page, err := p.ledger.Range(ctx, scan)
	if err != nil {
		return out, err
	}
	all, err := record.DecodeAll[record.Settings[record.Issuer]](page.Records)
	for _, rec := range all {
		if is := rec.V.I; is.Login != nil && !is.IsDisabled {
			scopes := is.Login.Scopes
			if len(scopes) == 0 {
				scopes = []string{"openid", "profile", "email"}
			}
			out.Issuers = append(out.Issuers, api.LoginOption{Name: is.Name, Issuer: is.URL, ClientID: is.Login.ClientID, Scopes: scopes})
		}
	}
	return out, err
}

// LoginWith begins a login of a person with an issuer of an organization. Anybody may call it.
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
