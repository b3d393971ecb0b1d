package main

import (
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

type principalCommands struct {
	Create principalCreate `cmd:"" help:"Make a principal without a token, such as one that a git host's members name."`
	List   principalList   `cmd:"" help:"List the principals that were made here."`
}

type principalCreate struct {
	Name string `arg:"" help:"Its name, which is never given to another."`
}

// Run makes the principal.
func (c *principalCreate) Run(a *app, cl *client.Client) error {
	made, err := cl.CreatePrincipal(a.ctx, api.NewPrincipal{Name: c.Name})
	if err != nil {
		return err
	}
	return a.done(made, "principal %s is made (%s); give it a token with dayfly token create NAME --principal %s", made.Name, made.ID, made.Name)
}

type principalList struct{}

// Run prints the list.
func (c *principalList) Run(a *app, cl *client.Client) error {
	return list(a, cl.Principals, "no principals", []string{"NAME", "PRINCIPAL", "CREATED"}, func(p api.Principal) []string {
		return []string{dash(p.Name), p.ID, term.Time(p.CreatedAt)}
	})
}
