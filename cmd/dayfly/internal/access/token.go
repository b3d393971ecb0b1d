package access

import (
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

// TokenCommands are the commands of dayfly token.
type TokenCommands struct {
	Create tokenCreate `cmd:"" help:"Create a user token and print it, once."`
	List   tokenList   `cmd:"" help:"List user tokens, without their values."`
	Revoke tokenRevoke `cmd:"" help:"Revoke a user token."`
}

type tokenCreate struct {
	Name      string        `arg:"" help:"Its name. Without --principal also that of the principal that is made with it."`
	Principal string        `placeholder:"NAME" help:"Its owner: an existing principal, or ISSUER/SUBJECT of an issuer. Default: a new principal."`
	Role      string        `enum:"viewer,operator,admin," default:"" help:"Its role in the whole organization: viewer, operator or admin; default viewer, or with --grant none."`
	Grant     []string      `sep:"none" placeholder:"PROJECT=ROLE" help:"Its role in a project and all below it. May be repeated."`
	Expires   time.Duration `help:"Its lifetime, such as 24h; default: until it is revoked."`
}

// Run makes the token.
func (c *tokenCreate) Run(a *cli.App, cl *client.Client) error {
	if c.Expires < 0 || c.Expires%time.Second != 0 {
		return cli.Usage(fmt.Errorf("--expires: want whole seconds, not %s", c.Expires))
	}
	if c.Role == "" && len(c.Grant) == 0 {
		c.Role = api.RoleViewer
	}
	grants, err := grantsOf(c.Grant)
	if err != nil {
		return cli.Usage(err)
	}
	t, err := cl.CreateToken(a.Ctx, api.NewToken{Name: c.Name, Principal: c.Principal, Role: c.Role, Grants: grants, ExpiresSeconds: int64(c.Expires / time.Second)})
	if err != nil {
		return err
	}
	return a.PrintSecret(t, t.Value, "token %s (%s of %s, %s) is shown only once: store it", t.Token.ID, t.Token.Name, t.Token.Principal.Name, api.Roles(t.Token.Role, t.Token.Grants))
}

// grantsOf reads roles in projects, written PROJECT=ROLE.
func grantsOf(flags []string) (map[string]string, error) {
	out := map[string]string{}
	for _, f := range flags {
		project, role, ok := strings.Cut(f, "=")
		if !ok || project == "" || role == "" {
			return nil, fmt.Errorf("--grant: want PROJECT=ROLE, such as payments=operator, not %q", f)
		}
		if out[project] != "" {
			return nil, fmt.Errorf("--grant: project %s is given twice", project)
		}
		out[project] = role
	}
	return out, nil
}

type tokenList struct{}

// Run prints the list.
func (c *tokenList) Run(a *cli.App, cl *client.Client) error {
	return cli.List(a, cl.Tokens, "no tokens",
		[]string{"TOKEN", "NAME", "PRINCIPAL", "ROLE", "STATE", "CREATED", "EXPIRES"}, func(k api.Token) []string {
			state, expires := "valid", "-"
			if k.ExpiresAt != nil {
				expires = term.Time(*k.ExpiresAt)
				if k.ExpiresAt.Before(time.Now()) {
					state = "expired"
				}
			}
			if k.Revoked {
				state = "revoked"
			}
			return []string{k.ID, cli.Dash(k.Name), cli.Dash(k.Principal.Name), cli.Dash(api.Roles(k.Role, k.Grants)), state, term.Time(k.CreatedAt), expires}
		})
}

type tokenRevoke struct {
	ID string `arg:"" help:"The token's id, as the list shows it."`
	cli.Confirmed
}

// Run revokes the token.
func (c *tokenRevoke) Run(a *cli.App, cl *client.Client) error {
	if err := c.Confirm(a, "this revokes token %s for good: every call with it is refused from now on", c.ID); err != nil {
		return err
	}
	if err := cl.RevokeToken(a.Ctx, c.ID); err != nil {
		return err
	}
	return a.Done(map[string]string{"revoked": c.ID}, "token %s is revoked", c.ID)
}
