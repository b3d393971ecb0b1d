package access

import (
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

// PrincipalCommands are the commands of dayfly principal.
type PrincipalCommands struct {
	Create principalCreate `cmd:"" help:"Create a principal without a token, such as one that a git host's members name."`
	List   principalList   `cmd:"" help:"List the principals that were made here."`
}

type principalCreate struct {
	Name string `arg:"" help:"Its name, which is never given to another."`
}

// Run makes the principal.
func (c *principalCreate) Run(a *cli.App, cl *client.Client) error {
	made, err := cl.CreatePrincipal(a.Ctx, api.NewPrincipal{Name: c.Name})
	if err != nil {
		return err
	}
	return a.Done(made, "principal %s is created (%s); give it a token with dayfly token create NAME --principal %s", made.Name, made.ID, made.Name)
}

type principalList struct{}

// Run prints the list.
func (c *principalList) Run(a *cli.App, cl *client.Client) error {
	return cli.List(a, cl.Principals, "no principals", []string{"NAME", "PRINCIPAL", "CREATED"}, func(p api.Principal) []string {
		return []string{cli.Dash(p.Name), p.ID, term.Time(p.CreatedAt)}
	})
}
