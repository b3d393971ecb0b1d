package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// elsewhere are words that people know from other tools, with the command that does the same here.
var elsewhere = map[string]string{
	"plan":     "did you mean dayfly run --op preview?",
	"preview":  "did you mean dayfly run --op preview?",
	"update":   "did you mean dayfly run --op update?",
	"destroy":  "did you mean dayfly run --op destroy?",
	"refresh":  "did you mean dayfly run --op refresh?",
	"drift":    "did you mean dayfly run --op scan?",
	"init":     "every run initializes its engine by itself: dayfly run ./DIR",
	"validate": "a preview finds the mistakes: dayfly run ./DIR --op preview",
	"fmt":      "Dayfly formats no code: use the engine's own fmt",
	"import":   "write an import block into the code: dayfly run ./DIR --op preview shows what it imports",
	"taint":    "Dayfly marks no resources: have the code replace it, with replace_triggered_by or a new name",
	"status":   "did you mean dayfly why?",
	"ps":       "did you mean dayfly workflow list --state active?",
	"start":    "did you mean dayfly up?",
}

// verbs are other words for commands that have the same name in every group.
var verbs = map[string]string{
	"ls": "list", "get": "show", "describe": "show", "rm": "delete", "remove": "delete", "destroy": "delete", "new": "create", "add": "create",
	"edit": "update", "set": "update", "stop": "cancel", "abort": "cancel", "rerun": "retry", "log": "logs", "tail": "logs",
}

// suggest adds to a refusal of an unknown name the name that was probably meant.
func suggest(a *cli.App, err error) error {
	refusal, ok := errors.AsType[*workflow.Error](err)
	if !ok || !strings.HasPrefix(refusal.Message, "there is no ") {
		return err
	}
	leaf := a.Parsed.Selected()
	for _, p := range a.Parsed.Path {
		var v *kong.Value
		switch {
		case p.Flag != nil:
			v = p.Flag.Value
		case p.Positional != nil:
			v = p.Positional
		default:
			continue
		}
		got := []string{fmt.Sprint(v.Target.Interface())}
		if several, ok := v.Target.Interface().([]string); ok {
			got = several
		}
		names := cli.Words(values(a, leaf, v), func(c cli.Candidate) string { return c.Word })
		for _, name := range got {
			if meant := cli.Nearest(name, names); meant != "" && !slices.Contains(names, name) {
				return cli.Refused(fmt.Errorf("%s: did you mean %s?", cli.Sentence(err), meant))
			}
		}
	}
	return err
}

// hint adds to a mistake of usage the command or value that was probably meant.
func hint(root *kong.Node, parsed *kong.Context, err error) error {
	said := err.Error()
	if flag, rest, ok := strings.Cut(said, " must be one of "); ok {
		list, got, _ := strings.Cut(rest, " but got ")
		return cli.Unknown(flag, strings.Trim(got, `"`), strings.Split(strings.ReplaceAll(list, `"`, ""), ","))
	}
	rest, ok := strings.CutPrefix(said, "unexpected argument ")
	if !ok {
		return err
	}

	word, _, guessed := strings.Cut(rest, ", ")
	node := root
	if parsed != nil && parsed.Selected() != nil {
		node = parsed.Selected()
	}
	no := fmt.Sprintf("there is no command dayfly%s %s", fullName(node), word)
	if there := elsewhere[word]; there != "" && node == root {
		return fmt.Errorf("%s: %s", no, there)
	}

	var all []string
	for _, leaf := range node.Leaves(true) {
		if leaf.Name == word || leaf.Name == verbs[word] && (node != root || leaf.Parent.Name == "workflow") {
			all = append(all, "dayfly"+fullName(leaf))
		}
	}
	switch {
	case node.Leaf():
		return err
	case len(all) > 0:
		return fmt.Errorf("%s: did you mean %s?", no, text.Some(all, 4))
	case !guessed:
		return errors.New(no)
	}
	return err
}
