package access

import (
	"cmp"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

// WhoamiCommand is dayfly whoami.
type WhoamiCommand struct{}

// Run shows the principal of the token in use.
func (c *WhoamiCommand) Run(a *cli.App, cl *client.Client) error {
	who, err := cl.Whoami(a.Ctx)
	if err != nil {
		return err
	}
	if a.JSON() {
		return a.Encode(who)
	}
	var b strings.Builder
	line := cli.Lines(&b, a.Style(), "", 14)
	line("name", who.Name)
	line("principal", who.PrincipalID)
	line("kind", cmp.Or(who.Kind, who.Audience))
	line("issuer", who.Issuer)
	if p := who.Pipeline; p != nil {
		kind := "not protected: it views, and submits previews of its commit"
		if p.Protected {
			kind = "protected"
		}
		line("pipeline", p.Host+"/"+p.Repository+", "+kind)
		line("commit", p.Commit)
		line("ref", p.Ref)
	}

	line("organization", who.Organization)
	line("pool", who.Pool)
	if who.Audience == "user" {
		line("role", cmp.Or(who.Role, "in projects only"))
	}
	line("in projects", api.Roles("", who.Grants))
	line("token", who.TokenID)
	if who.ExpiresAt != nil {
		line("expires", term.Time(*who.ExpiresAt))
	} else {
		line("expires", "when it is revoked")
	}
	_, err = a.Stdout.Write([]byte(b.String()))
	return err
}
