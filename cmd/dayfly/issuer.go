package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
)

type issuerCommands struct {
	Apply  issuerApply  `cmd:"" help:"Create or change the issuers that files describe."`
	List   issuerList   `cmd:"" help:"List issuers."`
	Show   issuerShow   `cmd:"" aliases:"get" help:"Show an issuer and its trust rules."`
	Delete issuerDelete `cmd:"" help:"Delete an issuer; the tokens that it gave end."`
}

type issuerApply struct {
	applyFlags
}

// Run registers the issuers. A document that names no kind is one.
func (c *issuerApply) Run(a *app, cl *client.Client) error {
	return detailed(c.DetailedExitcode, c.apply(a, cl, workspacefile.Issuer, nil))
}

type issuerList struct{}

// Run prints the list.
func (c *issuerList) Run(a *app, cl *client.Client) error {
	return list(a, cl.Issuers, "no issuers: register one with dayfly issuer apply -f FILE",
		[]string{"ISSUER", "URL", "RULES", "LOGIN", "STATE"}, func(i api.Issuer) []string {
			login := "-"
			if i.Login != nil {
				login = i.Login.ClientID
			}
			return []string{i.Name, i.URL, fmt.Sprint(len(i.Rules)), login, activeOr(i.IsDisabled)}
		})
}

type issuerShow struct {
	Name string `arg:"" help:"The issuer."`
}

// Run prints the issuer.
func (c *issuerShow) Run(a *app, cl *client.Client) error {
	i, err := cl.Issuer(a.ctx, c.Name)
	if err != nil {
		return err
	}
	if a.json() {
		return a.shown(workspacefile.Issuer, asIssuer(i), i, "")
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 16)
	line("issuer", i.Name)
	line("url", i.URL)
	line("audiences", strings.Join(i.Audiences, ", "))
	line("algorithms", strings.Join(i.Algorithms, ", "))
	if i.Shared {
		line("shared", "yes: each rule names an owner")
	}
	if i.IsDisabled {
		line("state", "disabled")
	}
	if i.Login != nil {
		line("login", i.Login.ClientID+" "+strings.Join(i.Login.Scopes, " "))
	}
	if i.Pipelines != nil {
		line("pipelines", i.Pipelines.Kind+" of "+i.Pipelines.Host)
	}
	for n, r := range i.Rules {
		conditions := map[string]any{"claims": r.Claims}
		if r.GroupsClaim != "" {
			conditions[r.GroupsClaim] = r.Groups
		}
		said, err := json.Marshal(conditions)
		if err != nil {
			return err
		}
		becomes := strings.TrimSpace(r.Becomes + " " + r.Role + r.Pool)
		if len(r.Grants) > 0 {
			becomes += " with " + text.Count(len(r.Grants), "grant")
		}
		line(fmt.Sprintf("rule %d", n+1), becomes+" if "+string(said))
	}
	return a.print("%s", strings.TrimSuffix(b.String(), "\n"))
}

type issuerDelete struct {
	Name string `arg:"" help:"The issuer."`
	confirmed
}

// Run deletes the issuer.
func (c *issuerDelete) Run(a *app, cl *client.Client) error {
	return c.delete(a, "issuer", c.Name, " and ends the tokens that it gave", cl.DeleteIssuer)
}
