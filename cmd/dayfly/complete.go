package main

import (
	"cmp"
	"context"
	_ "embed" // the scripts
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/setup"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/runtext"
)

// completeCommand is the command that the scripts of the shells call, with the words of the line up to the cursor.
const completeCommand = "__complete"

// completeWait bounds the questions to the control plane: somebody sits at the keyboard.
const completeWait = time.Second

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

//go:embed completion.txt
var completionScripts string

// Run prints the script, which asks this program at each completion.
func (c *completionCommand) Run(a *cli.App) error {
	_, script, _ := strings.Cut(completionScripts, "# "+c.Shell+": ")
	script, _, _ = strings.Cut(script, "\n\n")
	if c.Shell == "zsh" { // by this first line, zsh finds the file of a directory of $fpath
		script = "compdef dayfly\n# " + script
		return a.Print("#%s", script)
	}
	return a.Print("# %s", script)
}

// complete prints the words that can stand in place of the last argument, each with a tab and a description. Where
// files fit, or nothing is known, it prints none: the shell offers files then.
func complete(a *cli.App, root *kong.Node, args []string) error {
	last := ""
	if len(args) > 0 {
		last, args = args[len(args)-1], args[:len(args)-1]
	}
	for _, c := range candidates(a, root, args, last) {
		if strings.HasPrefix(c.Word, last) {
			if err := a.Print("%s\t%s", term.Clean(c.Word), term.Clean(c.About)); err != nil {
				return err
			}
		}
	}
	return nil
}

// candidates follows the words of the line through the grammar, and lists the words that can come last.
func candidates(a *cli.App, root *kong.Node, words []string, last string) (all []cli.Candidate) {
	node, pending, place := position(root, words)
	name, _, assigned := strings.Cut(last, "=")
	if flag, _ := flagOf(node, name); pending == nil && assigned && flag != nil {
		for _, c := range values(a, node, flag.Value) {
			all = append(all, cli.Candidate{Word: name + "=" + c.Word, About: c.About})
		}
		return all
	}

	switch {
	case pending != nil:
		return values(a, node, pending.Value)
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				all = append(all, cli.Candidate{Word: "--" + f.Name, About: f.Help})
			}
		}
		return all
	}

	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, cli.Candidate{Word: child.Name, About: child.Help})
		}
	}
	if n := len(node.Positional); n > 0 && (place < n || node.Positional[n-1].IsCumulative()) {
		all = append(all, values(a, node, node.Positional[min(place, n-1)])...)
	}
	return all
}

// position is the command that words name, the flag that waits for its value, if any, and the place of the next
// positional argument.
func position(node *kong.Node, words []string) (at *kong.Node, pending *kong.Flag, place int) {
	for _, word := range slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "=" }) { // bash splits there
		switch flag, value := flagOf(node, word); {
		case pending != nil:
			pending = nil
		case flag != nil && !flag.IsBool() && !value:
			pending = flag
		case strings.HasPrefix(word, "-"):
		case childOf(node, word) != nil:
			node = childOf(node, word)
		default:
			place++
		}
	}
	return node, pending, place
}

// flagOf is the flag that a word names, and whether the word has its value too.
func flagOf(node *kong.Node, word string) (flag *kong.Flag, value bool) {
	name, _, value := strings.Cut(word, "=")
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f, value
			}
		}
	}
	return nil, false
}

func childOf(node *kong.Node, word string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == word || slices.Contains(child.Aliases, word) {
			return child
		}
	}
	return nil
}

// values are the values that a flag or an argument can have: those of a list, or names that the control plane knows.
func values(a *cli.App, node *kong.Node, v *kong.Value) []cli.Candidate {
	plain := func(one string) cli.Candidate { return cli.Candidate{Word: one} }
	if v.Enum != "" {
		return cli.Words(slices.DeleteFunc(v.EnumSlice(), func(one string) bool { return one == "" }), plain)
	}
	thing := thingOf(node, v)
	switch thing {
	case "op":
		return cli.Words(cli.Operations, plain)
	case "state":
		return cli.Words(cli.States, plain)
	}

	ctx, cancel := context.WithTimeout(a.Ctx, completeWait)
	defer cancel()
	cl, err := a.Connect()
	if err != nil {
		return nil
	}
	switch thing {
	case "workflow":
		return workflows(ctx, cl)
	case "thing": // of dayfly open: anything that has a page
		return slices.Concat(workflows(ctx, cl), namesOf(ctx, cl, kind.Workspace), namesOf(ctx, cl, kind.Pool))
	case "tree":
		page, _ := cl.Trees(ctx, "", 50)
		return cli.Words(page.Items, func(t api.Tree) cli.Candidate {
			return cli.Candidate{Word: t.ID, About: fmt.Sprintf("%s, %s of %s", t.State, t.Operation, t.Workspace)}
		})
	case "workspaces", "workspace|dir":
		thing = kind.Workspace
	case "for":
		thing = kind.Notification
	}
	for _, k := range kind.All() {
		if thing == cmp.Or(k.Command, k.Name) || thing == k.Dashed() {
			return setup.Candidates(ctx, cl, k)
		}
	}
	return nil
}

// thingOf is the kind of thing that a flag or an argument of a command names.
func thingOf(node *kong.Node, v *kong.Value) string {
	group := node.Name // of the command, for arguments that are called as everywhere
	if node.Parent != nil && node.Parent.Parent != nil {
		group = node.Parent.Name
	}
	switch {
	case node.Name == "create":
	case v.Name == "id" && (group == "workflow" || group == "why"):
		return "workflow"
	case v.Name == "id" && group == "tree":
		return "tree"
	case v.Name == "name":
		return group
	case v.Name == "parent":
		return "project"
	}
	return strings.TrimPrefix(v.Name, "default-")
}

func workflows(ctx context.Context, cl *client.Client) []cli.Candidate {
	page, _ := cl.Workflows(ctx, client.Filter{Limit: 100})
	return cli.Words(page.Items, func(w api.Workflow) cli.Candidate {
		return cli.Candidate{Word: w.ID, About: runtext.State(w) + ", " + runtext.Title(w)}
	})
}

// namesOf are the existing names of a kind.
func namesOf(ctx context.Context, cl *client.Client, of string) []cli.Candidate {
	k, _ := kind.Of(of)
	return setup.Candidates(ctx, cl, k)
}
