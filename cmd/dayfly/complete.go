package main

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

// completeCommand is what the scripts of the shells call, with the words of the line up to the cursor.
const completeCommand = "__complete"

// completeWait bounds the questions to the control plane: somebody sits at the keyboard.
const completeWait = time.Second

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

//go:embed completion.txt
var completionScripts string

// Run prints the script, which asks this program at each completion.
func (c *completionCommand) Run(a *app) error {
	_, script, _ := strings.Cut(completionScripts, "# "+c.Shell+": ")
	script, _, _ = strings.Cut(script, "\n\n")
	return a.print("# %s", script)
}

// candidate is a word that fits, and what it is.
type candidate struct{ word, about string }

// complete prints the words that can stand where the last argument stands, each with a tab and what it is. Where files
// fit, or nothing is known, it prints none: the shell offers files then.
func (a *app) complete(root *kong.Node, args []string) error {
	last := ""
	if len(args) > 0 {
		last, args = args[len(args)-1], args[:len(args)-1]
	}
	for _, c := range a.candidates(root, args, last) {
		if strings.HasPrefix(c.word, last) {
			if err := a.print("%s\t%s", term.Clean(c.word), term.Clean(c.about)); err != nil {
				return err
			}
		}
	}
	return nil
}

// candidates walks along the words of the line to what the last one is.
func (a *app) candidates(node *kong.Node, words []string, last string) (all []candidate) {
	var pending *kong.Flag                                                                                 // waits for its value
	place := 0                                                                                             // of the next positional argument
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
	name, _, assigned := strings.Cut(last, "=")
	if flag, _ := flagOf(node, name); pending == nil && assigned && flag != nil {
		for _, c := range a.values(node, flag.Value) {
			all = append(all, candidate{name + "=" + c.word, c.about})
		}
		return all
	}
	switch {
	case pending != nil:
		return a.values(node, pending.Value)
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				all = append(all, candidate{"--" + f.Name, f.Help})
			}
		}
		return all
	}
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, candidate{child.Name, child.Help})
		}
	}
	if n := len(node.Positional); n > 0 && (place < n || node.Positional[n-1].IsCumulative()) {
		all = append(all, a.values(node, node.Positional[min(place, n-1)])...)
	}
	return all
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

// values are what a flag or an argument can be: one of a list, or what the control plane knows.
func (a *app) values(node *kong.Node, v *kong.Value) []candidate {
	plain := func(one string) candidate { return candidate{one, ""} }
	if v.Enum != "" {
		return words(slices.DeleteFunc(v.EnumSlice(), func(one string) bool { return one == "" }), plain)
	}
	group := node.Name // of the command, for arguments that are called as everywhere
	if node.Parent != nil && node.Parent.Parent != nil {
		group = node.Parent.Name
	}
	thing := strings.TrimPrefix(v.Name, "default-")
	switch {
	case node.Name == "create":
	case v.Name == "id" && (group == "workflow" || group == "why"), v.Name == "thing":
		thing = "workflow"
	case v.Name == "id" && group == "tree":
		thing = "tree"
	case v.Name == "name":
		thing = group
	case v.Name == "parent":
		thing = "project"
	}
	switch thing {
	case "op":
		return words(operations, plain)
	case "state":
		return words(states, plain)
	}
	ctx, cancel := context.WithTimeout(a.ctx, completeWait)
	defer cancel()
	cl, err := a.connect()
	if err != nil {
		return nil
	}
	switch thing {
	case "workflow":
		page, _ := cl.Workflows(ctx, client.Filter{Limit: 100})
		return words(page.Items, func(w api.Workflow) candidate {
			return candidate{w.ID, fmt.Sprintf("%s, %s of %s", w.State, what(w), w.Workspace)}
		})
	case "tree":
		return treeWords(ctx, cl)
	case "workspace", "workspaces", "workspace|dir":
		page, _ := cl.Workspaces(ctx, "", 200)
		return words(page.Items, func(w api.Workspace) candidate { return candidate{w.Name, w.Description} })
	case "pool":
		page, _ := cl.Pools(ctx, "", 200)
		return words(page.Items, func(p api.Pool) candidate { return candidate{p.Name, p.Description} })
	case "project":
		page, _ := cl.Projects(ctx, "", 200)
		return words(page.Items, func(p api.Project) candidate { return candidate{p.Name, p.Description} })
	case "for":
		thing = kind.Notification
	}
	for _, k := range kind.Settings() {
		if thing == k.Command || thing == k.Dashed() {
			page, _ := cl.Settings(ctx, k, "", 200)
			return words(page.Items, about)
		}
	}
	return nil
}

// about is a setting as a candidate.
func about(s api.Setting) candidate {
	name, _ := s.Key()
	return candidate{name, valueText(fieldAt(reflect.ValueOf(s), kind.For(s).About), "")}
}

// words makes something of each item of a list.
func words[T, W any](list []T, word func(T) W) (all []W) {
	for _, one := range list {
		all = append(all, word(one))
	}
	return all
}
