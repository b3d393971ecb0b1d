package main

import (
	"cmp"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

type whoamiCommand struct{}

// Run shows who the token of this command speaks for.
func (c *whoamiCommand) Run(a *app, cl *client.Client) error {
	who, err := cl.Whoami(a.ctx)
	if err != nil {
		return err
	}
	if a.json() {
		return a.encode(who)
	}
	var b strings.Builder
	line := lines(&b, a.style(), "", 14)
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
	_, err = a.stdout.Write([]byte(b.String()))
	return err
}
