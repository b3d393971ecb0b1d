package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

// agentSchema is the argument for the schema of settings files.
const agentSchema = "agent"

type schemaCommand struct {
	Of string `arg:"" help:"agent: of dayfly.yaml; else a kind of the documents of dayfly apply: "`
}

// describeSchemas writes the kinds of documents into the argument of the command.
func describeSchemas(parser *kong.Kong) error {
	schema := childOf(parser.Model.Node, "schema")
	if schema == nil { // the line names another command
		return nil
	}
	of := schema.Positional[0]
	names := cli.Words(kind.All(), kind.Kind.Dashed)
	of.Enum = strings.Join(append([]string{agentSchema}, names...), ",")
	of.Help += strings.Join(names, ", ") + "."
	return nil
}

// Run prints the schema.
func (c *schemaCommand) Run(a *cli.App) error {
	schema := config.Schema
	for _, k := range kind.All() {
		if c.Of == k.Dashed() {
			schema = func() ([]byte, error) { return httpapi.Schema(k) }
		}
	}
	text, err := schema()
	if err != nil {
		return err
	}
	return a.Print("%s", strings.TrimSuffix(string(text), "\n"))
}
