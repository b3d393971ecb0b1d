package serve

import (
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
)

type serverBackup struct {
	To string `arg:"" type:"path" help:"The directory to make; it must not exist."`
	cli.DataFlag
}

// Run makes a backup and names the data that it does not contain.
func (c *serverBackup) Run(a *cli.App) error {
	data, err := c.Directory(a)
	if err != nil {
		return err
	}
	m, err := embedded.Backup(a.Ctx, data, c.To, cli.VersionText())
	if err != nil {
		return err
	}
	a.Say("saved the records of %s. Tokens, keys, secrets and the states of engines are not in a backup: docs/backup.md says how to keep them.", data)
	return a.Done(m, "%s", c.To)
}

type serverRestore struct {
	From    string `arg:"" type:"path" help:"The directory of the backup."`
	Replace bool   `help:"Move existing records aside."`
	cli.DataFlag
}

// Run restores a backup and says which work in it was cancelled.
func (c *serverRestore) Run(a *cli.App) error {
	data, err := c.Directory(a)
	if err != nil {
		return err
	}
	log, err := serving{}.log(a, config.Config{})
	if err != nil {
		return err
	}
	out, err := embedded.Restore(a.Ctx, embedded.RestoreConfig{Backup: c.From, Data: data, Replace: c.Replace, Version: cli.VersionText(), Log: log})
	if err != nil {
		return err
	}
	if out.Aside != "" {
		a.Say("the previous records are in %s now", out.Aside)
	}
	a.Say("%s, because they may have been done since the backup. docs/backup.md says how to do them again.", out.Ended)
	a.Say("tokens that were revoked since %s are valid again: revoke them again", out.Manifest.Made.Format("2006-01-02 15:04 MST"))
	return a.Done(out, "%s", out.Data)
}
