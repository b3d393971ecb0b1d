package main

import (
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// dataFlag names a data directory.
type dataFlag struct {
	Data string `type:"path" help:"The data directory; default /var/lib/dayfly for root, else ~/.local/share/dayfly."`
}

func (d dataFlag) directory(a *app) (string, error) {
	if d.Data != "" {
		return d.Data, nil
	}
	dir, err := embedded.DefaultData(a.getenv)
	if err != nil {
		return "", usage(err)
	}
	return dir, nil
}

type serverBackup struct {
	To string `arg:"" type:"path" help:"The directory to make; it must not exist."`
	dataFlag
}

// Run makes a backup and says what is not in it.
func (c *serverBackup) Run(a *app) error {
	data, err := c.directory(a)
	if err != nil {
		return err
	}
	m, err := embedded.Backup(a.ctx, data, c.To, versionText())
	if err != nil {
		return err
	}
	a.say("saved the records of %s. Tokens, keys, secrets and the states of engines are not in a backup: docs/operations.md says how to keep them.", data)
	return a.done(m, "%s", c.To)
}

type serverRestore struct {
	From    string `arg:"" type:"path" help:"The directory of the backup."`
	Replace bool   `help:"Put records that are there aside."`
	dataFlag
}

// Run restores a backup and says what became of the work in it.
func (c *serverRestore) Run(a *app) error {
	data, err := c.directory(a)
	if err != nil {
		return err
	}
	log, err := serving{}.log(a, config.Config{})
	if err != nil {
		return err
	}
	out, err := embedded.Restore(a.ctx, embedded.RestoreConfig{Backup: c.From, Data: data, Replace: c.Replace, Version: versionText(), Log: log})
	if err != nil {
		return err
	}
	if out.Aside != "" {
		a.say("the records that were there are %s now", out.Aside)
	}
	a.say("%s: what would have gone on by itself may have been done since the backup. docs/operations.md says how to do it again.", out.Ended)
	a.say("tokens that were revoked since %s are valid again: revoke them anew", out.Manifest.Made.Format("2006-01-02 15:04 MST"))
	return a.done(out, "%s", out.Data)
}
