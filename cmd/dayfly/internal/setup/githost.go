package setup

import (
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/client"
)

// GitHostCommands are the commands of dayfly git-host.
type GitHostCommands struct {
	SettingCommands
	RotateSecret gitHostSecret `cmd:"" help:"Print a new secret of its webhook, once."`
}

type gitHostSecret struct {
	Name string `arg:"" help:"The git host."`
}

// Run prints the new secret: where the webhook is sent to on standard error, the secret alone on standard output.
func (c *gitHostSecret) Run(a *cli.App, cl *client.Client) error {
	s, err := cl.RotateWebhookSecret(a.Ctx, c.Name)
	if err != nil {
		return err
	}
	if a.JSON() {
		return a.Encode(s)
	}
	a.Say("the webhook is sent to %s, as application/json; its secret is shown only once, and the previous one is no longer valid", s.URL)
	return a.Print("%s", s.Secret)
}
