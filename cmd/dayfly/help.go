package main

import (
	_ "embed" // the examples
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

// exampleText has the examples of all commands, one to a line.
//
//go:embed examples.txt
var exampleText string

// examples are those of a command.
func examples(leaf *kong.Node) (lines []string) {
	for line := range strings.Lines(exampleText) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line+" ", "dayfly"+fullName(leaf)+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// help prints the help of a command, with its examples below. A failed write is not wrong usage.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	leaf := ctx.Selected()
	if leaf != nil && leaf.Leaf() {
		describeForms(leaf)
	}
	err := kong.DefaultHelpPrinter(options, ctx)
	if err == nil && leaf != nil && leaf.Leaf() {
		_, err = fmt.Fprintf(ctx.Stdout, "\nExamples:\n  %s\n", strings.Join(examples(leaf), "\n  "))
	}
	if err != nil {
		return &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("print the help: %w", err)}
	}
	return nil
}

// formsText describes the forms of results.
var formsText = map[string]string{
	"table": "table", "json": "json", "yaml": "yaml", "name": "name (only names or ids, one to a line)", cli.OutputDot: "dot (for Graphviz)",
}

// describeForms writes into the help of a command which forms of output it has. It hides flags that do nothing there.
func describeForms(leaf *kong.Node) {
	for _, group := range leaf.AllFlags(false) {
		for _, f := range group {
			switch f.Name {
			case "color":
				f.Hidden = checkColor(leaf) != nil
			case "output":
				var has []string
				for _, form := range f.EnumSlice() {
					if checkOutput(leaf, form) == nil {
						has = append(has, formsText[form])
					}
				}
				f.Hidden = len(has) < 2
				f.Help = "How results are printed: " + strings.Join(has, ", ") + "."
			}
		}
	}
}
