package main

import (
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

type gitHostCommands struct {
	Apply        gitHostApply  `cmd:"" help:"Create or change the git hosts that files describe."`
	List         gitHostList   `cmd:"" help:"List git hosts."`
	Show         gitHostShow   `cmd:"" aliases:"get" help:"Show a git host and its members."`
	RotateSecret gitHostSecret `cmd:"" help:"Make the secret of its webhook anew and print it, this once."`
	Delete       gitHostDelete `cmd:"" help:"Delete a git host; its webhooks are refused."`
}

type gitHostApply struct {
	applyFlags
}

// Run registers the git hosts. A document that names no kind is one.
func (c *gitHostApply) Run(a *app, cl *client.Client) error {
	return detailed(c.DetailedExitcode, c.apply(a, cl, workspacefile.GitHost, nil))
}

type gitHostList struct{}

// Run prints the list.
func (c *gitHostList) Run(a *app, cl *client.Client) error {
	return list(a, cl.GitHosts, "no git hosts: register one with dayfly git-host apply -f FILE",
		[]string{"GIT HOST", "KIND", "URL", "MEMBERS", "STATE"}, func(g api.GitHost) []string {
			return []string{g.Name, g.Kind, g.URL, fmt.Sprint(len(g.Members)), activeOr(g.IsDisabled)}
		})
}

func activeOr(disabled bool) string {
	if disabled {
		return "disabled"
	}
	return "active"
}

type gitHostShow struct {
	Name string `arg:"" help:"The git host."`
}

// Run prints the git host.
func (c *gitHostShow) Run(a *app, cl *client.Client) error {
	g, err := cl.GitHost(a.ctx, c.Name)
	if err != nil {
		return err
	}
	if a.json() {
		return a.shown(workspacefile.GitHost, asGitHost(g), g, "")
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 16)
	line("git host", g.Name)
	line("kind", g.Kind)
	line("url", g.URL)
	line("token", g.TokenRef)
	line("pool", g.Pool)
	line("state", activeOr(g.IsDisabled))
	for _, m := range g.Members {
		line("member", fmt.Sprintf("%d is %s as %s", m.ID, m.Principal, api.Roles(m.Role, m.Grants)))
	}
	return a.print("%s", strings.TrimSuffix(b.String(), "\n"))
}

type gitHostSecret struct {
	Name string `arg:"" help:"The git host."`
}

// Run prints the new secret: where the webhook is sent to on standard error, the secret alone on standard output.
func (c *gitHostSecret) Run(a *app, cl *client.Client) error {
	s, err := cl.RotateWebhookSecret(a.ctx, c.Name)
	if err != nil {
		return err
	}
	if a.json() {
		return a.encode(s)
	}
	a.say("the webhook is sent to %s, as application/json; its secret is shown this once, and the one before has stopped", s.URL)
	return a.print("%s", s.Secret)
}

type gitHostDelete struct {
	Name string `arg:"" help:"The git host."`
	confirmed
}

// Run deletes the git host.
func (c *gitHostDelete) Run(a *app, cl *client.Client) error {
	return c.delete(a, "git host", c.Name, ", whose webhooks are refused then", cl.DeleteGitHost)
}
