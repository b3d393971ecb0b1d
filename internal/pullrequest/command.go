package pullrequest

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The verbs of a command.
const (
	VerbPreview = "preview" // previews of the head commit; with a commit, the release of that one
	VerbApply   = "apply"   // to apply the plans that were shown before the comment
	VerbCancel  = "cancel"  // to cancel the active runs
)

const maxNamed = 50 // workspaces in one comment

// Command is the command in a comment. The rights of its author are checked elsewhere.
type Command struct {
	Verb       string
	Commit     string   // with preview: the commit that is released, 40 or 64 hexadecimal digits in lower case; else empty
	Workspaces []string // each once, in the order of the comment; empty means all that the pull request concerns
	Mistake    string   // why the comment cannot be followed, with what to write instead; the rest is then empty
}

// ParseCommand reads the comment of a pull request. It is a command if its first line that is not blank begins with
// the word dayfly: ok. So nothing that is quoted, or that stands in a block of code, is one. The lines after it are
// for people. Capitals do not count in the first two words, because phones make them.
func ParseCommand(comment string) (c Command, ok bool) {
	line := firstLine(comment)
	indent := len(line) - len(strings.TrimLeft(line, " "))
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if indent > 3 || len(words) == 0 || !strings.EqualFold(words[0], "dayfly") || strings.HasPrefix(line[indent:], "\t") {
		return Command{}, false
	}

	const usage = "write dayfly preview, dayfly apply or dayfly cancel, and after it the names of workspaces if not all are meant"
	if len(words) == 1 {
		return Command{Mistake: "the comment says dayfly and nothing else: " + usage}, true
	}
	c.Verb = strings.ToLower(words[1])
	if !slices.Contains([]string{VerbPreview, VerbApply, VerbCancel}, c.Verb) {
		return Command{Mistake: fmt.Sprintf("dayfly does not know %s here: %s", text.Quote(words[1], 40), usage)}, true
	}

	names := words[2:]
	if c.Verb == VerbPreview && len(names) > 0 && IsCommit(strings.ToLower(names[0])) {
		c.Commit, names = strings.ToLower(names[0]), names[1:]
	}
	if len(names) > maxNamed {
		return Command{Mistake: fmt.Sprintf("the comment names %d workspaces, and the maximum is %d; without names, all of the pull request are meant", len(names), maxNamed)}, true
	}
	for _, name := range names {
		if workflow.CheckWorkspaceName(name) != nil {
			return Command{Mistake: fmt.Sprintf("%s is not the name of a workspace: %s", text.Quote(name, 80), usage)}, true
		}
		if !slices.Contains(c.Workspaces, name) {
			c.Workspaces = append(c.Workspaces, name)
		}
	}
	return c, true
}

// firstLine is the first line of a comment that is not blank.
func firstLine(comment string) string {
	for line := range strings.SplitSeq(strings.Map(spaced, comment), "\n") {
		if line = strings.TrimRight(line, " \t\r"); line != "" {
			return line
		}
	}
	return ""
}

// spaced makes a plain space of one that looks like it: some keyboards and pages write those.
func spaced(r rune) rune {
	if unicode.Is(unicode.Zs, r) {
		return ' '
	}
	return r
}

// IsCommit says whether s is a whole object id of git, of SHA-1 or SHA-256. A shorter one does not name a commit:
// anyone who pushes can make two that begin alike.
func IsCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
