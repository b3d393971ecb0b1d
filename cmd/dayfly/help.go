package main

import (
	_ "embed" // the examples
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
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

// help prints the help of a command, with its examples below.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if leaf := ctx.Selected(); leaf != nil && leaf.Leaf() {
		_, err := fmt.Fprintf(ctx.Stdout, "\nExamples:\n  %s\n", strings.Join(examples(leaf), "\n  "))
		return err
	}
	return nil
}
