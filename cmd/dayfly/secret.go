package main

import (
	"path/filepath"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
)

type secretCommands struct {
	Set    secretSet    `cmd:"" help:"Read a value from standard input and keep it."`
	List   secretList   `cmd:"" help:"List the names of the secrets."`
	Delete secretDelete `cmd:"" help:"Delete a secret."`
}

// secretStore are the flags that say where the secrets of this machine lie.
type secretStore struct {
	Data string `type:"path" help:"The data directory of the agent; default that of the dayfly up which commands talk to."`
}

// open returns the secrets and the data directory that they lie in.
func (s secretStore) open(a *app) (files *local.Files, data string, err error) {
	data = s.Data
	if target, err := credentials.Find(a.getenv); data == "" && err == nil {
		data = target.Data
	}
	if data == "" {
		if data, err = embedded.DefaultData(a.getenv); err != nil {
			return nil, "", usage(err)
		}
	}
	return local.New(filepath.Join(data, embedded.SecretsDir)), data, nil
}

type secretSet struct {
	Name string `arg:"" help:"Name of the secret; a workspace refers to it as file:NAME."`
	secretStore
}

// Run keeps the value. It is never an argument, which everybody on the machine could read.
func (c *secretSet) Run(a *app) error {
	if err := local.CheckName(c.Name); err != nil {
		return usage(err)
	}
	store, data, err := c.open(a)
	if err != nil {
		return err
	}
	value, err := term.ReadSecret(a.ctx, a.stdin, a.stderr, "value of "+c.Name, local.MaxValue)
	if err != nil {
		return unanswered(err)
	}
	if err := store.Set(a.ctx, c.Name, redact.New(value)); err != nil {
		return err
	}
	return a.done(map[string]string{"name": c.Name, "ref": "file:" + c.Name}, "secret %s is kept below %s; workspaces refer to it as file:%s", c.Name, data, c.Name)
}

type secretList struct {
	secretStore
}

// Run prints the names.
func (c *secretList) Run(a *app) error {
	store, _, err := c.open(a)
	if err != nil {
		return err
	}
	names, err := store.List(a.ctx)
	if err != nil {
		return err
	}
	if a.json() {
		if names == nil {
			names = []string{}
		}
		return a.encode(names)
	}
	t := term.NewTable("SECRET", "REFERENCE")
	for _, n := range names {
		t.Row(term.Clean(n), "file:"+term.Clean(n))
	}
	return t.Write(a.stdout, a.style(), "no secrets")
}

type secretDelete struct {
	Name string `arg:"" help:"Name of the secret."`
	confirmed
	secretStore
}

// Run deletes the secret.
func (c *secretDelete) Run(a *app) error {
	store, data, err := c.open(a)
	if err != nil {
		return err
	}
	if err := c.confirm(a, "deleting secret %s of %s loses its value", c.Name, data); err != nil {
		return err
	}
	if err := store.Delete(a.ctx, c.Name); err != nil {
		return err
	}
	return a.done(map[string]string{"deleted": c.Name}, "secret %s is deleted", c.Name)
}
