package runs

import (
	"context"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
)

// SecretCommands are the commands of dayfly secret.
type SecretCommands struct {
	Set    secretSet    `cmd:"" help:"Read a value from standard input and store it."`
	List   secretList   `cmd:"" help:"List the names of the secrets."`
	Delete secretDelete `cmd:"" help:"Delete a secret."`
}

// secretStore are the flags that say where the secrets of this machine are.
type secretStore struct {
	Data string `type:"path" help:"The data directory of the agent; default that of the last dayfly up."`
}

// open returns the secrets and their data directory.
func (s secretStore) open(a *cli.App) (files *local.Files, data string, err error) {
	if data, err = s.data(a); err != nil {
		return nil, "", err
	}
	return local.New(filepath.Join(data, embedded.SecretsDir)), data, nil
}

// data returns the data directory, which is one that this version reads.
func (s secretStore) data(a *cli.App) (data string, err error) {
	data = s.Data
	if data == "" {
		if target, err := credentials.Find(a.Getenv); err == nil {
			data = target.Data
		}
	}
	if data == "" {
		if data, err = embedded.DefaultData(a.Getenv); err != nil {
			return "", cli.Usage(err)
		}
	}
	return data, embedded.CheckData(data)
}

type secretSet struct {
	Name string `arg:"" help:"Name of the secret; a workspace refers to it as file:NAME."`
	secretStore
}

// Run stores the value. It is never an argument, which everybody on the machine could read.
func (c *secretSet) Run(a *cli.App) error {
	if err := local.CheckName(c.Name); err != nil {
		return cli.Usage(err)
	}
	store, data, err := c.open(a)
	if err != nil {
		return err
	}
	value, err := term.ReadSecret(a.Ctx, a.Stdin, a.Stderr, "value of "+c.Name, local.MaxValue)
	if err != nil {
		return cli.Unanswered(err)
	}
	if err := store.Set(a.Ctx, c.Name, redact.New(value)); err != nil {
		return err
	}
	return a.Done(map[string]string{"name": c.Name, "ref": "file:" + c.Name}, "secret %s is stored below %s; workspaces refer to it as file:%s", c.Name, data, c.Name)
}

type secretList struct {
	secretStore
}

// Run prints the names.
func (c *secretList) Run(a *cli.App) error {
	store, _, err := c.open(a)
	if err != nil {
		return err
	}
	page := func(ctx context.Context, _ string, _ int) (api.Page[string], error) {
		names, err := store.List(ctx)
		return api.Page[string]{Items: names}, err
	}
	return cli.List(a, page, "no secrets", []string{"SECRET", "REFERENCE"}, func(name string) []string {
		return []string{term.Clean(name), "file:" + term.Clean(name)}
	})
}

type secretDelete struct {
	Name string `arg:"" help:"Name of the secret."`
	cli.Confirmed
	secretStore
}

// Run deletes the secret.
func (c *secretDelete) Run(a *cli.App) error {
	store, data, err := c.open(a)
	if err != nil {
		return err
	}
	if err := c.Confirm(a, "this deletes secret %s from %s, with its value", c.Name, data); err != nil {
		return err
	}
	if err := store.Delete(a.Ctx, c.Name); err != nil {
		return err
	}
	return a.Done(map[string]string{"deleted": c.Name}, "secret %s is deleted", c.Name)
}
