package main

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

// named are the last words of commands whose results have a name or an id that other commands take. A command that
// prints a new secret is not among them: with -o name nobody would ever see it.
var named = []string{"list", "show", "run", "why", "plan", "cancel", "approve", "reject", "retry", "wait", "runners", "explain", "apply", "update", "assign", "unassign"}

// plain are the commands whose output has one form. The first three print no results at all.
var plain = []string{" up", " server serve", " agent", " completion", " open", " schema"}

// checkGlobal refuses a flag of all commands where it would do nothing, before the command does anything.
func checkGlobal(leaf *kong.Node, f *kong.Flag) error {
	switch f.Name {
	case "color":
		return checkColor(leaf)
	case "output":
		return checkOutput(leaf, f.Target.String())
	}
	return nil
}

// checkColor refuses --color where there are no results.
func checkColor(leaf *kong.Node) error {
	if slices.Contains(plain[:3], fullName(leaf)) {
		return fmt.Errorf("--color: dayfly%s prints no results; leave it out", fullName(leaf))
	}
	return nil
}

// checkOutput refuses a form of output that a command does not have.
func checkOutput(leaf *kong.Node, output string) error {
	refuse := func(why string) error {
		return fmt.Errorf("-o %s: dayfly%s %s", output, fullName(leaf), why)
	}
	switch {
	case slices.Contains(plain, fullName(leaf)):
		return refuse("has only one form of output; leave -o out")
	case output == cli.OutputDot && fullName(leaf) != " graph":
		return refuse("draws no graph; use table, json or yaml")
	case output == "name" && !slices.Contains(named, leaf.Name):
		return refuse("prints no list of names; use table, json or yaml")
	case output == "yaml" && (leaf.Name == "logs" || leaf.Name == "export" || switched(leaf, "follow") && leaf.Parent.Name == "audit"):
		return refuse("prints a line for each entry; use table or json")
	case output == "name" && switched(leaf, "follow") && leaf.Parent.Name == "audit":
		return refuse("--follow prints whole entries; use table or json")
	}
	return nil
}

// switched reports whether a switch of a command is set.
func switched(leaf *kong.Node, name string) bool {
	return slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool {
		return f.Name == name && f.IsBool() && f.Target.Kind() == reflect.Bool && f.Target.Bool()
	})
}
