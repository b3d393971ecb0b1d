package main

import "github.com/dayfly-dev/dayfly/internal/client"

type gitHostCommands struct {
	settingCommands
	RotateSecret gitHostSecret `cmd:"" help:"Make the secret of its webhook anew and print it, this once."`
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
