package pulls

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func gitHosts(l *ledger.Ledger) *identity.Settings[api.GitHost, api.GitHost] {
	return identity.SettingsFor(l, kind.GitHost, identity.SettingsRules[api.GitHost, api.GitHost]{
		Prepare: prepareGitHost,
		View: func(r record.Settings[api.GitHost], version int64) api.GitHost {
			out := r.V
			out.CreatedAt, out.Version = &r.Created, version
			return out
		},
		Brief: func(g api.GitHost) string {
			return fmt.Sprintf("%s, %s", g.URL, text.Count(len(g.Members), "member"))
		},
	})
}

// prepareGitHost refuses a git host that cannot be called, and finds the principals of its members.
func prepareGitHost(ctx context.Context, c *ledger.Change, org string, in api.GitHost, old *record.Settings[api.GitHost]) (api.GitHost, error) {
	usual := api.HostAddress(in.Kind)
	if usual == "" {
		return in, workflow.Invalid("host", "want github or gitlab, not %q", text.Cut(in.Kind, 20))
	}
	if err := catalog.CheckURL(in.URL); err != nil {
		return in, err
	}
	if u, _ := url.Parse(in.URL); u.RawQuery != "" {
		return in, workflow.Invalid("url", "want the address of the host's web pages, such as %s", usual)
	}
	if in.TokenRef == "" {
		return in, workflow.Invalid("token_ref", "name the secret on the pool's side that holds the host's token, such as file:git-token")
	}
	if err := catalog.CheckRef("token_ref", in.TokenRef); err != nil {
		return in, err
	}
	if err := prepareMembers(ctx, c, org, in.Members); err != nil {
		return in, err
	}
	// The generation of the secret stays as it is: only RotateWebhookSecret raises it.
	if in.Generation = 1; old != nil {
		in.Generation = old.V.Generation
	}
	return in, catalog.CheckPool(ctx, c, org, in.Pool)
}

// prepareMembers refuses invalid members of a git host, and fills in the ids of their principals.
func prepareMembers(ctx context.Context, c *ledger.Change, org string, members []api.Member) error {
	var people []string
	for _, m := range members {
		people = append(people, m.Principal)
	}
	if err := identity.LoadPrincipals(ctx, c, org, people); err != nil {
		return err
	}
	seen := map[int64]bool{}
	for i, m := range members {
		at := fmt.Sprintf("members.%d", i)
		switch {
		case m.ID < 1:
			return workflow.Invalid(at+".id", "a member is named by the number that the host has given the user")
		case seen[m.ID]:
			return workflow.Invalid(at+".id", "user %d is named twice", m.ID)
		case m.Role == "" && len(m.Grants) == 0:
			return workflow.Invalid(at+".role", "name a role, or grants in projects: without them the member may do nothing")
		}
		seen[m.ID] = true
		of, err := identity.FindPrincipal(ctx, c, org, at+".principal", m.Principal)
		if err != nil {
			return err
		}
		members[i].PrincipalID = of.ID
		if err := identity.CheckRoles(ctx, c, org, at, m.Role, m.Grants); err != nil {
			return err
		}
	}
	return nil
}

// RotateWebhookSecret makes the secret of a git host's webhook anew and shows it. The one before stops at once.
func (p *Calls) RotateWebhookSecret(ctx context.Context, who identity.Principal, name string) (out api.WebhookSecret, err error) {
	const action = "git_host.rotate_secret"
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, action, name); err != nil {
		return out, err
	}
	key, err := p.webhookKey(ctx)
	if err != nil {
		return out, err
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		rec, err := p.GitHosts.Find(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		rec.V.Generation++
		c.Put(record.SettingsKey(who.Organization, kind.GitHost, name), rec)
		identity.Audit(c, who, action, name, "done", "")
		out = api.WebhookSecret{
			URL:    p.cfg.Address + "/v1/webhooks/" + who.Organization + "/" + name,
			Secret: webhookSecret(key, who.Organization, rec),
		}
		return nil
	})
	return out, err
}

// webhookKey returns the key that the secrets of webhooks are derived from.
func (p *Calls) webhookKey(ctx context.Context) ([]byte, error) {
	if p.cfg.WebhookKey == nil {
		return nil, workflow.Refuse(workflow.ErrUnsupported, "", "this control plane takes no webhooks: it was not given a key for their secrets (docs/git.md); dayfly ci needs none")
	}
	return p.cfg.WebhookKey(ctx)
}

// webhookSecret is the secret of a git host's webhook. It is derived from the key each time and stored nowhere, in
// the form of Standard Webhooks, which GitLab asks for: https://github.com/standard-webhooks/standard-webhooks.
func webhookSecret(key []byte, org string, g record.Settings[api.GitHost]) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "webhook|%s|%s|%d", org, g.ID, g.V.Generation)
	return "whsec_" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// member finds the member of a user's number at the git host; nil for a stranger.
func member(g api.GitHost, id int64) *api.Member {
	if i := slices.IndexFunc(g.Members, func(m api.Member) bool { return m.ID == id }); i >= 0 {
		return &g.Members[i]
	}
	return nil
}

// itself is the principal of a git host, for actions on pull requests that no member asked for.
func itself(org string, g record.Settings[api.GitHost], role string) identity.Principal {
	return identity.Principal{Organization: org, ID: g.ID, Name: "pull-request/" + g.V.Name, Audience: identity.User, Kind: api.KindService, Role: role}
}

// principal is the principal of a member.
func principal(org string, m *api.Member) identity.Principal {
	return identity.Principal{Organization: org, ID: m.PrincipalID, Name: m.Principal, Audience: identity.User, Kind: api.KindUser, Role: m.Role, Grants: m.Grants}
}
