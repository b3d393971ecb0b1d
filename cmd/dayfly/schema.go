package main

import (
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
)

type schemaCommand struct {
	Of string `arg:"" enum:"agent,workspace" help:"agent: of dayfly.yaml; workspace: of workspace.yaml."`
}

// Run prints the schema.
func (c *schemaCommand) Run(a *cli.App) error {
	schema := httpapi.WorkspaceSchema
	if c.Of == "agent" {
		schema = config.Schema
	}
	text, err := schema()
	if err != nil {
		return err
	}
	return a.Print("%s", strings.TrimSuffix(string(text), "\n"))
}
