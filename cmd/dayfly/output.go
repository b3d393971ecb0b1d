package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// named are the last words of commands whose results have a name or an id that other commands take. A command that
// prints a new secret is not among them: with -o name nobody would ever see it.
var named = []string{"list", "show", "run", "why", "plan", "cancel", "approve", "reject", "retry", "wait", "runners", "explain", "apply", "update", "assign", "unassign"}

// plain are the commands whose output has one form. The first three print no results at all.
var plain = []string{" up", " server serve", " agent", " completion", " open", " schema"}

// outputDot is the form of output that only the graph has.
const outputDot = "dot"

// checkGlobal refuses a flag of all commands where it would do nothing, before the command does anything.
func checkGlobal(leaf *kong.Node, f *kong.Flag) error {
	output := f.Target.String()
	refuse := func(why string) error {
		return fmt.Errorf("-o %s: dayfly%s %s", output, fullName(leaf), why)
	}
	switch {
	case f.Name == "color" && slices.Contains(plain[:3], fullName(leaf)):
		return fmt.Errorf("--color: dayfly%s prints no results; leave it out", fullName(leaf))
	case f.Name != "output":
	case slices.Contains(plain, fullName(leaf)):
		return refuse("has only one form of output; leave -o out")
	case output == outputDot && fullName(leaf) != " graph":
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

// encode writes a result for programs.
func (a *app) encode(v any) error { return a.encodeTo(a.stdout, v) }

// encodeTo writes a result as JSON, as YAML with the same fields in the same order, or as names, one to a line.
func (a *app) encodeTo(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	switch a.output {
	case "yaml":
		var doc yaml.Node
		if err := yaml.Unmarshal(b.Bytes(), &doc); err != nil { // JSON is YAML
			return fmt.Errorf("write YAML: %w", err)
		}
		unquote(&doc)
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		return e.Encode(&doc)
	case "name":
		var plain any
		if err := json.Unmarshal(b.Bytes(), &plain); err != nil {
			return fmt.Errorf("find names: %w", err)
		}
		keys := []string{"name", "id", "workflow", "pool"}
		if _, tokens := v.([]api.Token); tokens {
			keys = []string{"id"} // several tokens may have one name
		}
		_, err := io.WriteString(w, names(plain, keys))
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// unquote takes the form of JSON away. The writer puts quotes where they are needed, except around words that only an
// older YAML reads as true or false, and lines that it would write as a block that cannot be read.
func unquote(n *yaml.Node) {
	old := []string{"y", "n", "yes", "no", "on", "off"}
	block := strings.Contains(n.Value, "\n") && (strings.TrimSpace(n.Value[:1]) == "" || strings.ContainsAny(n.Value, "\t\r"))
	if n.Kind != yaml.ScalarNode || !block && !slices.Contains(old, strings.ToLower(n.Value)) {
		n.Style = 0
	}
	for _, inner := range n.Content {
		unquote(inner)
	}
}

// names are the names or ids of a result, one to a line.
func names(v any, keys []string) string {
	switch v := v.(type) {
	case string:
		return v + "\n"
	case []any:
		var b strings.Builder
		for _, one := range v {
			b.WriteString(names(one, keys))
		}
		return b.String()
	case map[string]any:
		for _, key := range keys {
			if one := v[key]; one != nil {
				return names(one, keys)
			}
		}
	}
	return ""
}
