package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// elsewhere are words that people know from other tools, and what does it here.
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

// verbs are other words for commands that each group calls the same.
var verbs = map[string]string{
	"ls": "list", "get": "show", "describe": "show", "rm": "delete", "remove": "delete", "destroy": "delete", "new": "create", "add": "create",
	"edit": "update", "set": "update", "stop": "cancel", "abort": "cancel", "rerun": "retry", "log": "logs", "tail": "logs",
}

// near are other words for values: of operations and of states.
var near = map[string]string{
	"plan": "preview", "diff": "preview", "apply": "update", "up": "update", "deploy": "update", "drift": "scan", "delete": "destroy", "down": "destroy",
	"queued": "pending", "waiting": "pending", "submitted": "pending", "launching": "claimed", "started": "running", "in_progress": "running",
	"success": "succeeded", "done": "succeeded", "ok": "succeeded", "error": "failed", "errored": "failed", "canceled": "cancelled",
	"aborted": "cancelled", "approval": "awaiting_approval", "blocked": "awaiting_approval",
}

// hint puts a mistake into the words of whoever made it, where it is a near miss.
func hint(root *kong.Node, parsed *kong.Context, err error) error {
	said := err.Error()
	if flag, rest, ok := strings.Cut(said, " must be one of "); ok {
		list, got, _ := strings.Cut(rest, " but got ")
		return unknown(flag, strings.Trim(got, `"`), strings.Split(strings.ReplaceAll(list, `"`, ""), ","))
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

// unknown refuses a value of a flag or an argument that takes one of several, with the one that was probably meant.
func unknown(name, got string, wants []string) error {
	wants = slices.DeleteFunc(slices.Clone(wants), func(w string) bool { return w == "" })
	what := map[string]string{"--op": "operation ", "--state": "state "}[name]
	if meant := meant(got, wants); meant != "" {
		return fmt.Errorf("%s: there is no %s%s: did you mean %s?", name, what, got, meant)
	}
	return fmt.Errorf("%s: want %s, not %q", name, strings.Join(wants, ", "), got)
}

// meant is the value that was probably meant, if there is one.
func meant(got string, wants []string) string {
	got = strings.ToLower(text.Head(got, 64)) // long ones are slow
	if slices.Contains(wants, near[got]) {
		return near[got]
	}
	best, least := "", 3
	for _, want := range wants {
		if d := levenshtein.Distance(got, want, nil); d < least && d < len(want) {
			best, least = want, d
		}
	}
	return best
}

// The values by which runs are listed.
var (
	states     = spelled(workflow.States(), "active", "awaiting_approval")
	operations = spelled(workflow.Operations(), "scan")
)

// spelled are the values of a list as words, and more.
func spelled[T ~string](list []T, more ...string) []string {
	return append(words(list, func(one T) string { return string(one) }), more...)
}

// checkWord refuses a value that is a near miss of a known one. Others are left to the control plane, which may be newer.
func checkWord(flag, got string, known []string) error {
	if got == "" || slices.Contains(known, got) || meant(got, known) == "" {
		return nil
	}
	return usage(unknown("--"+flag, got, known))
}
