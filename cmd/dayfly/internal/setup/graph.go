package setup

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

// GraphCommand is dayfly graph.
type GraphCommand struct {
	Workspace string `arg:"" optional:"" help:"Only the workspaces that this one waits for and feeds; default all that depend on others."`
}

// Run prints which workspaces depend on which.
func (c *GraphCommand) Run(a *cli.App, cl *client.Client) error {
	g, err := cl.Graph(a.Ctx)
	if err != nil {
		return err
	}
	if c.Workspace != "" {
		if !slices.Contains(g.Workspaces, c.Workspace) {
			if _, err := cl.Workspace(a.Ctx, c.Workspace); err != nil {
				return err
			}
		}
		g = around(g, c.Workspace)
	}
	switch {
	case a.Output == cli.OutputDot:
		return a.Print("%s", dot(g))
	case a.JSON():
		return a.Encode(g)
	case len(g.Dependencies) == 0 && c.Workspace != "":
		return a.Print("workspace %s waits for no other, and feeds none", c.Workspace)
	case len(g.Dependencies) == 0:
		return a.Print("no workspace depends on another: inputs and after in a workspace file say so")
	}
	return a.Print("%s", strings.TrimSuffix(drawn(g, c.Workspace, a.Style()), "\n"))
}

// around is the part of a graph that leads to a workspace, and from it.
func around(g api.Graph, name string) api.Graph {
	keep := map[int]bool{}
	walk := func(from, to func(api.Dependency) string) {
		reached := map[string]bool{name: true}
		for again := true; again; {
			again = false
			for i, d := range g.Dependencies {
				if reached[from(d)] && !keep[i] {
					keep[i], reached[to(d)], again = true, true, true
				}
			}
		}
	}
	before, after := func(d api.Dependency) string { return d.On }, func(d api.Dependency) string { return d.Workspace }
	walk(after, before)
	walk(before, after)
	out := api.Graph{Workspaces: []string{name}, Dependencies: []api.Dependency{}}
	for i, d := range g.Dependencies {
		if keep[i] {
			out.Dependencies = append(out.Dependencies, d)
			out.Workspaces = append(out.Workspaces, d.On, d.Workspace)
		}
	}
	slices.Sort(out.Workspaces)
	out.Workspaces = slices.Compact(out.Workspaces)
	return out
}

// branch is a line of a drawn graph: a workspace below another one, and which outputs pass between the two.
type branch struct {
	name    string
	outputs []string
}

// seenBefore marks a workspace whose own branches are drawn above.
const seenBefore = " (*)"

// drawn draws a graph as trees. Without a name, each workspace that waits for none begins one, and those that wait
// for it are below it. With a name, there are two trees: the workspaces that it waits for, and those that it feeds.
func drawn(g api.Graph, name string, style term.Style) string {
	feeds, waits := map[string][]branch{}, map[string][]branch{}
	for _, d := range g.Dependencies {
		feeds[d.On] = append(feeds[d.On], branch{d.Workspace, d.Outputs})
		waits[d.Workspace] = append(waits[d.Workspace], branch{d.On, d.Outputs})
	}
	var b strings.Builder
	if name != "" {
		for _, side := range []struct {
			title string
			tree  map[string][]branch
		}{{"waits for", waits}, {"feeds", feeds}} {
			if len(side.tree[name]) == 0 {
				fmt.Fprintf(&b, "%s %s none\n", term.Clean(name), side.title)
				continue
			}
			fmt.Fprintf(&b, "%s %s\n", term.Clean(name), side.title)
			drawBelow(&b, style, side.tree, name, "", map[string]bool{})
		}
		return b.String()
	}
	seen := map[string]bool{}
	for _, root := range slices.Sorted(maps.Keys(feeds)) {
		if len(waits[root]) == 0 {
			fmt.Fprintln(&b, term.Clean(root))
			drawBelow(&b, style, feeds, root, "", seen)
		}
	}
	return b.String()
}

// drawBelow draws the branches of a workspace.
func drawBelow(b *strings.Builder, style term.Style, tree map[string][]branch, of, indent string, seen map[string]bool) {
	for i, one := range tree[of] {
		stem, further := "├── ", "│   "
		if i == len(tree[of])-1 {
			stem, further = "└── ", "    "
		}
		line := term.Clean(one.name)
		if len(one.outputs) > 0 {
			line += style.Dim(": " + term.Clean(strings.Join(one.outputs, ", ")))
		}
		again := seen[one.name] && len(tree[one.name]) > 0
		if again {
			line += seenBefore
		}
		fmt.Fprintf(b, "%s%s%s\n", indent, stem, line)
		if !again {
			seen[one.name] = true
			drawBelow(b, style, tree, one.name, indent+further, seen)
		}
	}
}

// dot writes a graph in the language of Graphviz. Arrows lead from a workspace to those that wait for it.
func dot(g api.Graph) string {
	var b strings.Builder
	b.WriteString("digraph dayfly {\n  rankdir=LR;\n")
	for _, name := range g.Workspaces {
		fmt.Fprintf(&b, "  %s;\n", strconv.Quote(name))
	}
	for _, d := range g.Dependencies {
		label := ""
		if len(d.Outputs) > 0 {
			label = " [label=" + strconv.Quote(strings.Join(d.Outputs, ", ")) + "]"
		}
		fmt.Fprintf(&b, "  %s -> %s%s;\n", strconv.Quote(d.On), strconv.Quote(d.Workspace), label)
	}
	b.WriteString("}")
	return b.String()
}
