package pullrequest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds within a comment, in bytes. The head and the foot always fit into minLimit.
const (
	minLimit  = 16 << 10
	foot      = 2 << 10 // kept free for the sentences at the end
	maxNotes  = 5
	maxNote   = 400
	maxName   = 64 // a workspace's name has no more
	maxURL    = 500
	maxMarker = 100 // of an organization or a key
)

// Marker is the first line of the comment, which hosts do not show. Updates find the comment by this line, but only
// among comments of the same author: anybody can write such a line.
func Marker(organization, key string) string {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '_' || r == '.' {
				return r
			}
			return '-'
		}, text.Head(s, maxMarker))
	}
	return "<!-- dayfly:" + plain(organization) + "/" + plain(key) + " -->"
}

// Render writes the comment in markdown, with at most limit bytes, where limit is 16 KiB or more. Where that is
// too little, the resources of the least important workspaces are left out first, and it says which.
// Names and addresses come from a stranger's code. They stand within code only, where no host reads markup, links or
// mentions. Values and messages of engines are never shown; messages of policies are, and may quote the code.
func Render(c Comment, limit int) string {
	room := max(limit, minLimit) - foot
	previews := c.ordered()
	var b strings.Builder
	b.WriteString(Marker(c.Organization, c.Key) + "\n**Dayfly**")
	if c.Commit != "" {
		b.WriteString(", commit " + code(Short(c.Commit)))
	}
	b.WriteString(": " + c.summary() + "\n")
	c.notes(&b)

	hidden := table(&b, previews, room)
	var cut []string // workspaces whose resources are not all there
	for _, p := range previews {
		body := p.details()
		if len(body) == 0 {
			continue
		}
		shown, whole := folded(p, body, room-b.Len())
		b.WriteString(shown)
		if !whole {
			cut = append(cut, code(text.Cut(p.Run.Workspace, maxName)))
		}
	}

	if hidden > 0 {
		fmt.Fprintf(&b, "\n%s not in the table, because a comment has no room for more.\n", text.Are(hidden, "workspace"))
	}
	if len(cut) > 0 {
		fmt.Fprintf(&b, "\nThe changes of %s are not all shown here, because a comment has no room for more; `dayfly workflow plan ID` shows them.\n", text.Some(cut, 5))
	}
	if c.Commands && slices.ContainsFunc(previews, func(p Preview) bool { return p.standing().word == runtext.ForApproval }) {
		b.WriteString("\nThe comment `dayfly apply` approves and applies these plans, as they are shown here. The comment `dayfly preview` makes new ones.\n")
	}
	return b.String()
}

// notes writes the notes and the release that the pull request waits for.
func (c Comment) notes(b *strings.Builder) {
	if c.Held != "" {
		b.WriteString("\n" + code(text.Cut(c.Held, maxNote)) + "\n")
		if c.Commands && IsCommit(c.Commit) {
			b.WriteString("\nSomeone with the right to run previews here reads the change first, and then releases this commit with the comment:\n\n```\ndayfly preview " + c.Commit + "\n```\n")
		}
	}
	for i, note := range c.Notes[max(len(c.Notes)-maxNotes, 0):] {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("* " + code(text.Cut(note, maxNote)) + "\n")
	}
}

// table writes a line for each workspace while there is room, and returns how many have none.
func table(b *strings.Builder, previews []Preview, room int) (hidden int) {
	if len(previews) == 0 {
		return 0
	}
	b.WriteString("\n| workspace | add | change | destroy | of these replace | state |\n|---|--:|--:|--:|--:|---|\n")
	for i, p := range previews {
		counts := "| | | | "
		if p.Refused == "" && p.Run.State == workflow.Succeeded {
			n := p.changes()
			counts = fmt.Sprintf("| %d | %d | %d | %d ", n.Add, n.Change, n.Destroy, n.Replace)
		}
		row := fmt.Sprintf("| %s %s| %s |\n", code(text.Cut(p.Run.Workspace, maxName)), counts, p.state())
		if b.Len()+len(row) > room {
			return len(previews) - i
		}
		b.WriteString(row)
	}
	return 0
}

// state is the last cell of a workspace: where it stands, why it failed, and a link.
func (p Preview) state() string {
	s := p.standing().word
	run := p.Run
	if p.Apply != nil {
		run = *p.Apply
	}
	if run.State == workflow.Failed && run.Reason != workflow.ReasonNone && run.Reason.Known() {
		s += ": " + runtext.Reason(run.Reason)
	}
	if did := runtext.Changed(run); did != "" && run.Did() && run.State != workflow.Succeeded {
		s += "; " + did
	}
	if safeLink(p.URL) {
		s = "[" + s + "](" + p.URL + ")"
	}
	return s
}

// details are the lines that are folded away: why there is no preview, or its changes.
func (p Preview) details() []string {
	if p.Refused != "" {
		return []string{text.Cut(line(p.Refused), 1000)}
	}
	out := p.policies()
	if p.Run.State != workflow.Succeeded {
		return out
	}
	c := p.changes()
	for _, r := range runtext.Ordered(c.Resources) {
		s := fmt.Sprintf("%-3s %-8s %s", sign(r.Action), runtext.Action(r.Action), r.Address)
		if about := runtext.About(r); len(about) > 0 {
			s += " (" + strings.Join(about, "; ") + ")"
		}
		out = append(out, text.Cut(line(s), 2000))
	}
	for _, o := range c.Outputs {
		out = append(out, text.Cut(fmt.Sprintf("%-3s %-8s output %s", sign(o.Action), line(runtext.Action(o.Action)), line(o.Name)), 2000))
	}
	if p.cut() {
		out = append(out, "    the list is not whole; the log has all of it")
	}
	return out
}

// policies are the lines of the policy groups that do not pass.
func (p Preview) policies() (out []string) {
	if p.Run.Result == nil {
		return nil
	}
	for _, group := range p.Run.Result.Policies {
		if group.Passed() {
			continue
		}
		for _, said := range runtext.GroupLines(group) {
			out = append(out, text.Cut("#   "+line(said), 1000))
		}
	}
	return out
}

// sign begins a line of a diff: hosts colour it by its first character.
func sign(action string) string {
	return map[string]string{"create": "+", "delete": "-", "replace": "-/+", "update": "!"}[action]
}

// folded is a workspace's details within so many bytes; empty where not even one line fits.
func folded(p Preview, body []string, room int) (shown string, whole bool) {
	about, language := runtext.Changes(p.changes(), false), "diff"
	if p.Refused != "" {
		about, language = "not previewed", "text"
	}
	fence := strings.Repeat("`", max(3, longestRun(strings.Join(body, "\n"))+1))
	head := "\n<details><summary><code>" + entities(text.Cut(p.Run.Workspace, maxName)) + "</code>: " + about + "</summary>\n\n" + fence + language + "\n"
	end := fence + "\n\n</details>\n"
	more := func(n int) string { return fmt.Sprintf("    and %d more\n", n) }
	room -= len(head) + len(end) + len(more(len(body)))
	n := 0
	for _, l := range body {
		if room -= len(l) + 1; room < 0 {
			break
		}
		n++
	}
	if n == 0 {
		return "", false
	}
	shown = head + strings.Join(body[:n], "\n") + "\n"
	if n < len(body) {
		shown += more(len(body) - n)
	}
	return shown + end, n == len(body)
}

// line makes foreign text one line without invisible characters, such as those that change the direction of the text
// after them.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// code shows foreign text within a line, also in a cell of a table, where a bar would end the cell even in code.
func code(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(line(s), "|", "¦"))
	if s == "" {
		return "` `"
	}
	fence := strings.Repeat("`", longestRun(s)+1)
	if s[0] == '`' || s[len(s)-1] == '`' {
		s = " " + s + " "
	}
	return fence + s + fence
}

// entities shows foreign text within HTML, where backticks do nothing.
func entities(s string) string {
	var b strings.Builder
	for _, r := range line(s) {
		if r < 0x80 && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(" -_.", r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// longestRun counts the backticks of the longest run.
func longestRun(s string) (longest int) {
	n := 0
	for i := range len(s) {
		if s[i] != '`' {
			n = 0
			continue
		}
		n++
		longest = max(longest, n)
	}
	return longest
}

// Short is a commit as people write it.
func Short(commit string) string {
	if IsCommit(commit) {
		return commit[:12]
	}
	return text.Cut(commit, maxName)
}

// safeLink says whether an address can stand in a link as it is. It is ours, and is checked all the same: it may
// have the id of a run in it.
func safeLink(address string) bool {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#%=&+"
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && len(address) <= maxURL && strings.Trim(address, plain) == ""
}
