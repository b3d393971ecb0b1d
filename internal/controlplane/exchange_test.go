package controlplane_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

const ourAudience = "urn:dayfly:org:default"

// issuer serves a provider on the world's clock.
func (w *world) issuer() *provider.Provider {
	p := provider.Start(w.t, "ES256", "RS256", "ES384")
	p.Now = w.clock.now
	return p
}

func (w *world) trust(p *provider.Provider, rules ...api.TrustRule) {
	w.t.Helper()
	_, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, api.Issuer{Name: "idp", URL: p.URL, Rules: rules})
	w.must(err)
}

func exchangeOf(token string, change ...func(*api.TokenRequest)) api.TokenRequest {
	in := api.TokenRequest{GrantType: api.GrantExchange, Audience: ourAudience, SubjectToken: token, SubjectTokenType: api.TokenTypeID}
	for _, c := range change {
		c(&in)
	}
	return in
}

func (w *world) audits(action, outcome string) (n int) {
	w.t.Helper()
	page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 200})
	w.must(err)
	for _, e := range page.Items {
		if e.Action == action && e.Outcome == outcome {
			n++
		}
	}
	return n
}

// A token of an issuer becomes one of ours, which ends by its time, with its rule, with its issuer, or when an admin
// revokes it.
func TestIssueToken_ExchangedTokenExpiresByItself(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		p := w.issuer()
		rule := api.TrustRule{Claims: map[string]string{"repository": "acme/network"}, Becomes: api.KindService, NameClaim: "repository", Role: api.RoleOperator}
		w.trust(p, rule)
		theirs := p.Token("ES256", map[string]any{"aud": ourAudience, "repository": "acme/network", "exp": w.clock.now().Add(48 * time.Hour).Unix()})
		issue := func() api.IssuedToken {
			t.Helper()
			out, err := w.plane.IssueToken(w.ctx(), exchangeOf(theirs))
			w.must(err)
			return out
		}
		valid := func(out api.IssuedToken) error {
			_, err := w.plane.Authenticate(w.ctx(), out.AccessToken)
			return err
		}
		out := issue()
		if !strings.HasPrefix(out.AccessToken, "dfs_") || out.ExpiresIn != 3600 || out.TokenType != "Bearer" || out.IssuedTokenType != api.TokenTypePrefix+"service" || out.Name != "idp/acme/network" {
			t.Errorf("got %+v", out)
		}
		who, err := w.plane.Authenticate(w.ctx(), out.AccessToken)
		w.must(err)
		if who.Role != api.RoleOperator || who.Kind != api.KindService || who.Audience != "user" || who.Name != "idp/acme/network" || who.TokenID != out.ID {
			t.Errorf("got %+v", who)
		}
		w.clock.advance(time.Hour)
		if err := valid(out); !errors.Is(err, workflow.ErrRevoked) {
			t.Errorf("after its time: %v", err)
		}

		second := issue()
		w.must(w.plane.RevokeToken(w.ctx(), w.admin, second.ID))
		if err := valid(second); !errors.Is(err, workflow.ErrRevoked) {
			t.Errorf("revoked: %v", err)
		}

		third := issue()
		w.trust(p, api.TrustRule{Claims: map[string]string{"sub": "bob"}, Becomes: api.KindUser, Role: api.RoleViewer}, rule)
		if err := valid(third); err != nil {
			t.Errorf("another rule was added: %v", err)
		}
		rule.Role = api.RoleViewer
		w.trust(p, rule)
		if err := valid(third); !errors.Is(err, workflow.ErrRevoked) {
			t.Errorf("its rule was changed: %v", err)
		}

		fourth := issue()
		w.must(w.plane.Issuers.Delete(w.ctx(), w.admin, "idp"))
		w.trust(p, rule) // the same again is another
		if err := valid(fourth); !errors.Is(err, workflow.ErrRevoked) {
			t.Errorf("its issuer was deleted: %v", err)
		}
		if got := w.audits("token.exchange", "done"); got != 4 {
			t.Errorf("%d exchanges are in the audit, want 4", got)
		}
	})
}

func TestIssueToken_LivesAsLongAsAskedAndAllowed(t *testing.T) {
	w := newWorld(t, memory.New())
	p := w.issuer()
	for _, c := range []struct{ asked, allowed, want int }{
		{0, 0, 3600}, {60, 0, 60}, {7200, 0, 3600}, {0, 600, 600}, {300, 600, 300}, {0, 43200, 3600}, {43200, 43200, 43200}, {1 << 30, 43200, 43200}, {59, 0, 0}, {-1, 0, 0},
	} {
		w.trust(p, api.TrustRule{Claims: map[string]string{"sub": "alice"}, Becomes: api.KindUser, Role: api.RoleViewer, MaxLifetimeSeconds: c.allowed})
		out, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token("ES256", map[string]any{"aud": ourAudience}), func(in *api.TokenRequest) { in.Expiration = c.asked }))
		if out.ExpiresIn != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("asked for %d, allowed %d: got %d, %v; want %d", c.asked, c.allowed, out.ExpiresIn, err, c.want)
		}
	}
}

func TestIssueToken_TheFirstRuleThatFitsDecides(t *testing.T) {
	w := newWorld(t, memory.New())
	p := w.issuer()
	pool, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: new("production")})
	w.must(err)
	w.trust(p,
		api.TrustRule{Claims: map[string]string{"sub": "ci"}, Becomes: api.KindPool, Pool: "production"},
		api.TrustRule{Claims: map[string]string{"sub": "ci"}, Becomes: api.KindService, Role: api.RoleOperator, Grants: map[string]string{"global": api.RoleAdmin}},
		api.TrustRule{Claims: map[string]string{"email": "*@example.com", "email_verified": "true"}, Becomes: api.KindUser, NameClaim: "email", GroupsClaim: "groups", Groups: map[string]api.GroupRole{
			"staff": {Role: api.RoleViewer}, "leads": {Role: api.RoleOperator, Grants: map[string]string{"global": api.RoleOperator}}, "owners": {Grants: map[string]string{"global": api.RoleAdmin}},
		}},
	)
	kind := func(k string) func(*api.TokenRequest) {
		return func(in *api.TokenRequest) { in.RequestedTokenType = api.TokenTypePrefix + k }
	}
	scope := func(s string) func(*api.TokenRequest) { return func(in *api.TokenRequest) { in.Scope = s } }
	alice := func(groups ...string) map[string]any {
		return map[string]any{"email": "alice@example.com", "email_verified": true, "groups": groups}
	}
	for name, c := range map[string]struct {
		claims map[string]any
		change func(*api.TokenRequest)
		want   string // name, kind, role, role in global
		err    error
	}{
		"first":                 {map[string]any{"sub": "ci"}, func(*api.TokenRequest) {}, "idp/ci pool  ", nil},
		"service":               {map[string]any{"sub": "ci"}, kind("service"), "idp/ci service operator admin", nil},
		"pool by name":          {map[string]any{"sub": "ci"}, scope("pool:production"), "idp/ci pool  ", nil},
		"pool by id":            {map[string]any{"sub": "ci"}, scope("pool:" + pool.Pool.ID), "idp/ci pool  ", nil},
		"another pool":          {map[string]any{"sub": "ci"}, scope("pool:default"), "", workflow.ErrForbidden},
		"no such pool":          {map[string]any{"sub": "ci"}, scope("pool:nothing"), "", workflow.ErrForbidden},
		"wrong scope":           {map[string]any{"sub": "ci"}, scope("admin"), "", workflow.ErrInvalid},
		"wrong kind":            {map[string]any{"sub": "ci"}, kind("admin"), "", workflow.ErrInvalid},
		"scope of a service":    {map[string]any{"sub": "ci"}, func(in *api.TokenRequest) { kind("service")(in); scope("pool:production")(in) }, "", workflow.ErrInvalid},
		"kind without a rule":   {map[string]any{"sub": "ci"}, kind("user"), "", workflow.ErrForbidden},
		"one group":             {alice("staff"), kind("user"), "idp/alice@example.com user viewer ", nil},
		"the highest group":     {alice("owners", "staff", "leads"), kind("user"), "idp/alice@example.com user operator admin", nil},
		"no group":              {alice(), kind("user"), "", workflow.ErrForbidden},
		"unknown group":         {alice("Staff"), kind("user"), "", workflow.ErrForbidden},
		"not verified":          {map[string]any{"email": "eve@example.com", "email_verified": false, "groups": "staff"}, kind("user"), "", workflow.ErrForbidden},
		"group as a text":       {map[string]any{"email": "bob@example.com", "email_verified": true, "groups": "staff"}, kind("user"), "idp/bob@example.com user viewer ", nil},
		"a name that is forged": {map[string]any{"sub": "ci\nadmin"}, kind("service"), "", workflow.ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			claims := map[string]any{"aud": ourAudience}
			maps.Copy(claims, c.claims)
			out, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token("RS256", claims), c.change))
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if name == "unknown group" && !strings.Contains(err.Error(), `rule 3 fits it, and names none of the groups in its claim "groups" ("Staff")`) {
				t.Errorf("got %v, want which rule fits, and the groups", err)
			}
			if err != nil {
				return
			}
			who, err := w.plane.Authenticate(w.ctx(), out.AccessToken)
			w.must(err)
			if got := strings.Join([]string{who.Name, who.Kind, who.Role, who.Grants["global"]}, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got, want := w.audits("token.exchange", "refused"), 7; got != want {
		t.Errorf("%d refusals are in the audit, want %d: those whose token was good", got, want)
	}
	long := strings.Repeat("x", 300)
	w.trust(p, api.TrustRule{Claims: map[string]string{"sub": "*"}, Becomes: api.KindUser, Role: api.RoleViewer})
	names := []string{}
	for _, sub := range []string{long + "1", long + "2", "a b", "a_b", "a\nb"} {
		out, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token("ES256", map[string]any{"aud": ourAudience, "sub": sub})))
		w.must(err)
		if len(out.Name) > 110 || strings.ContainsAny(out.Name, " \n") || slices.Contains(names, out.Name) {
			t.Errorf("%q got the name %q", sub, out.Name)
		}
		names = append(names, out.Name)
	}
}

func TestIssueToken_RefusalsOfStrangersAreNotAudited(t *testing.T) {
	w := newWorld(t, memory.New())
	p := w.issuer()
	w.trust(p, api.TrustRule{Claims: map[string]string{"sub": "alice"}, Becomes: api.KindUser, Role: api.RoleViewer})
	before, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 200})
	w.must(err)
	for name, in := range map[string]api.TokenRequest{
		"unknown issuer":        exchangeOf(provider.Start(t, "ES256").Token("ES256", map[string]any{"aud": ourAudience})),
		"unknown organization":  exchangeOf(p.Token("ES256", map[string]any{"aud": ourAudience}), func(in *api.TokenRequest) { in.Audience = "urn:dayfly:org:other" }),
		"expired":               exchangeOf(p.Token("ES256", map[string]any{"aud": ourAudience, "exp": 1})),
		"algorithm not allowed": exchangeOf(p.Token("ES384", map[string]any{"aud": ourAudience})),
		"client":                {GrantType: api.GrantClientCredentials, ClientID: "sp_nobody", ClientSecret: "x"},
		"no client":             {GrantType: api.GrantClientCredentials},
	} {
		if _, err := w.plane.IssueToken(w.ctx(), in); !errors.Is(err, workflow.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 100 { // a valid token that no rule wants
		_, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token("ES256", map[string]any{"aud": ourAudience, "sub": "eve"})))
		if !errors.Is(err, workflow.ErrForbidden) {
			t.Fatal(err)
		}
	}
	after, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 200})
	w.must(err)
	if got := len(after.Items) - len(before.Items); got != 20 {
		t.Errorf("%d lines were added to the audit, want 20: the bound of a minute", got)
	}
}

func TestPutIssuer_SharedIssuerNeedsOwnerAndAudience(t *testing.T) {
	w := newWorld(t, memory.New())
	const github = "https://token.actions.githubusercontent.com"
	rule := func(claims map[string]string) []api.TrustRule {
		return []api.TrustRule{{Claims: claims, Becomes: api.KindService, Role: api.RoleOperator}}
	}
	owned := map[string]string{"repository_owner_id": "1234567"}
	for name, c := range map[string]struct {
		in   api.Issuer
		want string
	}{
		"GitHub":                  {api.Issuer{URL: github, Rules: rule(owned)}, ""},
		"GitLab":                  {api.Issuer{URL: "https://gitlab.com", Rules: rule(map[string]string{"namespace_id": "1", "ref": "main"})}, ""},
		"Apple":                   {api.Issuer{URL: "https://appleid.apple.com", Rules: rule(map[string]string{"email": "ann@example.com"})}, "sub"},
		"Cognito":                 {api.Issuer{URL: "https://cognito-identity.amazonaws.com", Rules: rule(map[string]string{"amr": "authenticated"})}, "sub"},
		"Microsoft, of anybody":   {api.Issuer{URL: "https://login.microsoftonline.com/common/v2.0", Rules: rule(map[string]string{"preferred_username": "x"})}, "tid"},
		"Microsoft, of a tenant":  {api.Issuer{URL: "https://login.microsoftonline.com/Organizations/v2.0", Rules: rule(map[string]string{"tid": "1"})}, ""},
		"Microsoft, of persons":   {api.Issuer{URL: "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0", Rules: rule(map[string]string{"tid": "9188040d-6c67-4c5b-b112-36a304b66dad"})}, "oid"},
		"Microsoft, one tenant":   {api.Issuer{URL: "https://login.microsoftonline.com/72f988bf-86f1-41af-91ab-2d7cd011db47/v2.0", Rules: rule(map[string]string{"sub": "x"})}, ""},
		"own audience":            {api.Issuer{URL: github, Audiences: []string{ourAudience + ":ci"}, Rules: rule(owned)}, ""},
		"names alone":             {api.Issuer{URL: github, Rules: rule(map[string]string{"repository": "acme/network"})}, "repository_owner_id"},
		"any owner":               {api.Issuer{URL: github, Rules: rule(map[string]string{"repository_owner_id": "*"})}, "repository_owner_id"},
		"upper case":              {api.Issuer{URL: "https://TOKEN.actions.githubusercontent.com", Rules: rule(map[string]string{"sub": "x"})}, "repository_owner_id"},
		"GitHub's usual audience": {api.Issuer{URL: github, Audiences: []string{"https://github.com/acme"}, Rules: rule(owned)}, "audience"},
		"prefix of ours":          {api.Issuer{URL: github, Audiences: []string{ourAudience + "2"}, Rules: rule(owned)}, "audience"},
		"shared, no owner claim":  {api.Issuer{URL: "https://ci.example.com", Shared: true}, "claim"},
		"shared, owner claim":     {api.Issuer{URL: "https://ci.example.com", Shared: true, OwnerClaim: "org_id", Rules: rule(map[string]string{"org_id": "7"})}, ""},
		"no conditions":           {api.Issuer{URL: "https://id.example.com", Rules: rule(nil)}, "everybody"},
		"no role":                 {api.Issuer{URL: "https://id.example.com", Rules: []api.TrustRule{{Claims: owned, Becomes: api.KindUser}}}, "role"},
		"unknown project":         {api.Issuer{URL: "https://id.example.com", Rules: []api.TrustRule{{Claims: owned, Becomes: api.KindUser, Grants: map[string]string{"x": "admin"}}}}, "no project"},
		"unknown pool":            {api.Issuer{URL: "https://id.example.com", Rules: []api.TrustRule{{Claims: owned, Becomes: api.KindPool, Pool: "x"}}}, "no pool"},
		"pool with a role":        {api.Issuer{URL: "https://id.example.com", Rules: []api.TrustRule{{Claims: owned, Becomes: api.KindPool, Pool: "default", Role: "admin"}}}, "pool"},
		"none":                    {api.Issuer{URL: "https://id.example.com", Algorithms: []string{"none"}}, "none"},
		"HS256":                   {api.Issuer{URL: "https://id.example.com", Algorithms: []string{"HS256"}}, "HS256"},
		"private":                 {api.Issuer{URL: "https://10.0.0.1"}, "private"},
		"clear text":              {api.Issuer{URL: "http://id.example.com"}, "https"},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Name = "it"
			_, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, c.in)
			if c.want == "" {
				w.must(err)
				w.must(w.plane.Issuers.Delete(w.ctx(), w.admin, "it"))
				return
			}
			if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a refusal that says %q", err, c.want)
			}
		})
	}
}

func TestPutIssuer_IsRepeatableAndKeepsItsAddress(t *testing.T) {
	w := newWorld(t, memory.New())
	in := api.Issuer{Name: "idp", URL: "https://id.example.com", Login: &api.IssuerLogin{ClientID: "cli"}}
	for _, want := range []api.Outcome{api.OutcomeCreated, api.OutcomeUnchanged} {
		out, got, err := w.plane.Issuers.Put(w.ctx(), w.admin, in)
		w.must(err)
		if got != want || out.Version != 1 {
			t.Errorf("got %s, version %d, want %s", got, out.Version, want)
		}
		in = out // what is shown can be applied as it is
	}
	in.Login = nil
	if _, got, err := w.plane.Issuers.Put(w.ctx(), w.admin, in); err != nil || got != api.OutcomeChanged {
		t.Errorf("got %s, %v", got, err)
	}
	if _, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, in); !errors.Is(err, workflow.ErrConflict) {
		t.Errorf("an old version: %v", err)
	}
	if _, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, api.Issuer{Name: "idp", URL: "https://other.example.com"}); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("another address: %v", err)
	}
	if _, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, api.Issuer{Name: "idp2", URL: in.URL}); !errors.Is(err, workflow.ErrExists) {
		t.Errorf("the address again: %v", err)
	}
	if _, _, err := w.plane.Issuers.Put(w.ctx(), w.pool, in); !errors.Is(err, workflow.ErrForbidden) {
		t.Errorf("a pool: %v", err)
	}
}

func TestServicePrincipal_TwoSecretsWhileOneRotates(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		made, err := w.plane.CreateService(w.ctx(), w.admin, api.NewServicePrincipal{Name: "nightly", ServicePrincipalSettings: api.ServicePrincipalSettings{Role: new(api.RoleOperator), MaxLifetimeSeconds: new(7200)}})
		w.must(err)
		issue := func(secret string) (api.IssuedToken, error) {
			return w.plane.IssueToken(w.ctx(), api.TokenRequest{GrantType: api.GrantClientCredentials, ClientID: made.ServicePrincipal.ClientID, ClientSecret: secret, Expiration: 7200})
		}
		first, err := issue(made.Secret)
		w.must(err)
		if !strings.HasPrefix(made.Secret, "dfc_") || !strings.HasPrefix(first.AccessToken, "dfs_") || first.ExpiresIn != 7200 || first.Name != "service/nightly" {
			t.Errorf("got %+v", first)
		}
		next, err := w.plane.RotateSecret(w.ctx(), w.admin, "nightly", api.RotateSecret{OverlapSeconds: 600})
		w.must(err)
		for _, secret := range []string{made.Secret, next.Secret} {
			if _, err := issue(secret); err != nil {
				t.Errorf("in the overlap: %v", err)
			}
		}
		w.clock.advance(10 * time.Minute)
		if _, err := issue(made.Secret); !errors.Is(err, workflow.ErrUnauthenticated) {
			t.Errorf("after the overlap: %v", err)
		}
		if _, err := w.plane.Authenticate(w.ctx(), first.AccessToken); !errors.Is(err, workflow.ErrRevoked) {
			t.Errorf("a token of the secret that ended: %v", err)
		}
		second, err := issue(next.Secret)
		w.must(err)

		// Its roles are those that it has now.
		_, err = w.plane.UpdateService(w.ctx(), w.admin, "nightly", api.ServicePrincipalSettings{Role: new(api.RoleViewer)})
		w.must(err)
		who, err := w.plane.Authenticate(w.ctx(), second.AccessToken)
		w.must(err)
		if who.Role != api.RoleViewer {
			t.Errorf("role %s, want viewer", who.Role)
		}
		for _, disabled := range []bool{true, false} {
			_, err = w.plane.UpdateService(w.ctx(), w.admin, "nightly", api.ServicePrincipalSettings{IsDisabled: &disabled})
			w.must(err)
			_, err = issue(next.Secret)
			_, old := w.plane.Authenticate(w.ctx(), second.AccessToken)
			if errors.Is(err, workflow.ErrUnauthenticated) != disabled || errors.Is(old, workflow.ErrRevoked) != disabled {
				t.Errorf("disabled %t: %v, %v", disabled, err, old)
			}
		}
		// Never more than two live ones; no overlap ends all others.
		for range 3 {
			next, err = w.plane.RotateSecret(w.ctx(), w.admin, "nightly", api.RotateSecret{OverlapSeconds: 600})
			w.must(err)
		}
		if got := len(next.ServicePrincipal.Secrets); got != 2 {
			t.Errorf("%d live secrets, want 2", got)
		}
		last, err := w.plane.RotateSecret(w.ctx(), w.admin, "nightly", api.RotateSecret{})
		w.must(err)
		if got := len(last.ServicePrincipal.Secrets); got != 1 {
			t.Errorf("%d live secrets, want 1", got)
		}
		third, err := issue(last.Secret)
		w.must(err)
		w.must(w.plane.DeleteService(w.ctx(), w.admin, "nightly"))
		if _, err := w.plane.Authenticate(w.ctx(), third.AccessToken); !errors.Is(err, workflow.ErrRevoked) {
			t.Errorf("deleted: %v", err)
		}
		if _, err := issue(last.Secret); !errors.Is(err, workflow.ErrUnauthenticated) {
			t.Errorf("deleted: %v", err)
		}
		for part, after := range map[string]string{"org/default": "", "audit/default": "", "client/" + made.ServicePrincipal.ClientID: ""} {
			page, err := w.store.Range(w.ctx(), store.Scan{Part: part, From: after, Limit: 100})
			for err != nil {
				page, err = w.store.Range(w.ctx(), store.Scan{Part: part, From: after, Limit: 100})
			}
			for _, r := range page.Records {
				if strings.Contains(string(r.Value), "dfc_") || strings.Contains(string(r.Value), "dfs_") {
					t.Errorf("%v holds a secret", r.Key)
				}
			}
		}
	})
}

// SQLite deletes tokens that have ended, both records of each.
func TestIssueToken_EndedTokensAreDeleted(t *testing.T) {
	st := openSQLite(t)
	db, _ := st.(*sqlite.Store)
	w := newWorld(t, st)
	p := w.issuer()
	w.trust(p, api.TrustRule{Claims: map[string]string{"sub": "alice"}, Becomes: api.KindUser, Role: api.RoleViewer})
	out, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token("ES256", map[string]any{"aud": ourAudience})))
	w.must(err)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{59 * time.Minute, 2}, {61 * time.Minute, 0}} {
		_, err := db.Purge(w.ctx(), w.clock.now().Add(c.after))
		w.must(err)
		left, err := st.Get(w.ctx(), record.TokenKey(record.Hash(out.AccessToken)), record.ShortTokenKey("default", out.ID))
		w.must(err)
		if len(left) != c.want {
			t.Errorf("after %s: %d records, want %d", c.after, len(left), c.want)
		}
	}
}

// The shapes of tokens as GitHub Actions and AWS (sts:GetWebIdentityToken) make them.
func TestIssueToken_TakesTheTokensOfGitHubActionsAndAWS(t *testing.T) {
	w := newWorld(t, memory.New())
	for name, c := range map[string]struct {
		alg    string
		claims map[string]any
		issuer api.Issuer
		want   string
	}{
		"GitHub Actions": {"RS256", map[string]any{
			"aud": ourAudience, "jti": "example-id", "sub": "repo:octo-org/octo-repo:environment:prod", "environment": "prod", "ref": "refs/heads/main",
			"sha": "example-sha", "repository": "octo-org/octo-repo", "repository_owner": "octo-org", "actor_id": "12", "repository_visibility": "private",
			"repository_id": "74", "repository_owner_id": "65", "run_id": "example-run-id", "run_number": "10", "run_attempt": "2", "runner_environment": "github-hosted",
			"actor": "octocat", "workflow": "example-workflow", "head_ref": "", "base_ref": "", "event_name": "workflow_dispatch", "ref_type": "branch",
			"job_workflow_ref": "octo-org/octo-automation/.github/workflows/oidc.yml@refs/heads/main", "email": nil,
		}, api.Issuer{Shared: true, OwnerClaim: "repository_owner_id", Rules: []api.TrustRule{{
			Claims:  map[string]string{"repository_owner_id": "65", "repository": "octo-org/octo-repo", "ref": "refs/heads/main", "sub": "repo:octo-org/*"},
			Becomes: api.KindService, NameClaim: "job_workflow_ref", Role: api.RoleOperator,
		}}}, "it/octo-org/octo-automation/.github/workflows/oidc.yml@refs/heads/main"},
		"AWS": {"ES384", map[string]any{
			"aud": ourAudience, "sub": "arn:aws:iam::123456789012:role/dayfly-poller", "jti": "example-id", "email": nil,
			"https://sts.amazonaws.com/": map[string]any{
				"aws_account": "123456789012", "source_region": "eu-central-1", "org_id": "o-abc1234567", "principal_id": "arn:aws:iam::123456789012:role/dayfly-poller",
				"principal_tags": map[string]any{"environment": "production"}, "request_tags": map[string]any{"job-id": "job-2024-001"},
			},
		}, api.Issuer{Algorithms: []string{"ES384", "RS256"}, Rules: []api.TrustRule{{
			Claims: map[string]string{
				"sub": "arn:aws:iam::123456789012:role/dayfly-poller", "https://sts.amazonaws.com/.aws_account": "123456789012",
				"https://sts.amazonaws.com/.principal_tags.environment": "production",
			},
			Becomes: api.KindPool, Pool: "default",
		}}}, "it/arn:aws:iam::123456789012:role/dayfly-poller"},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.issuer()
			c.issuer.Name, c.issuer.URL = "it", p.URL
			_, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, c.issuer)
			w.must(err)
			defer func() { w.must(w.plane.Issuers.Delete(w.ctx(), w.admin, "it")) }()
			out, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token(c.alg, c.claims), func(in *api.TokenRequest) { in.SubjectTokenType = api.TokenTypeJWT }))
			w.must(err)
			if out.Name != c.want {
				t.Errorf("got the name %s, want %s", out.Name, c.want)
			}
			for claim, value := range map[string]any{"repository_owner_id": "66", "ref": "refs/heads/main2", "https://sts.amazonaws.com/": map[string]any{"aws_account": "123456789012"}} {
				if c.claims[claim] == nil {
					continue
				}
				other := maps.Clone(c.claims)
				other[claim] = value
				if _, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token(c.alg, other))); !errors.Is(err, workflow.ErrForbidden) {
					t.Errorf("another %s: %v", claim, err)
				}
			}
		})
	}
}
