// Package term writes for people: tables, colours where they are wanted, and one live line at the
// bottom of a terminal. Text that comes from elsewhere passes through Clean, so that it cannot
// control the terminal. It reads answers and secrets.
package term

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	xterm "golang.org/x/term"

	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Style describes the abilities of a writer.
type Style struct {
	Live  bool // a terminal whose last line may be drawn again
	Color bool
	Width int // columns; 0 means unknown

	Height int // lines of a terminal that can be drawn on; 0 means none, or unknown
}

// StyleOf is the style of w. A set NO_COLOR or TERM=dumb means no colours.
func StyleOf(w io.Writer, getenv func(string) string) Style {
	f, ok := w.(*os.File)
	if !ok || !xterm.IsTerminal(int(f.Fd())) {
		return Style{}
	}
	s := Style{Live: getenv("TERM") != "dumb", Color: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
	if width, height, err := xterm.GetSize(int(f.Fd())); err == nil {
		s.Width = width
		if s.Live {
			s.Height = height
		}
	}
	return s
}

// The colours that are used.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold makes a text stand out, where colours are wanted.
func (s Style) Bold(text string) string { return s.paint(bold, text) }

// Dim makes a text less prominent.
func (s Style) Dim(text string) string { return s.paint(dim, text) }

// State colours the word for the state of a workflow, of a tree or of a node.
func (s Style) State(word string) string {
	switch workflow.State(word) {
	case workflow.Succeeded:
		return s.paint(green, word)
	case workflow.Failed:
		return s.paint(red, word)
	case workflow.Cancelled, runtext.Cancelling, runtext.ToApprove:
		return s.paint(yellow, word)
	case workflow.Running, workflow.Claimed:
		return s.paint(cyan, word)
	case workflow.Pending:
		return word
	}
	return word
}

// Difference colours a line of a difference by its sign.
func (s Style) Difference(line string) string {
	return s.paint(map[byte]string{'+': green, '-': red, '~': yellow}[(line + " ")[0]], line)
}

// Step colours the sign of a step's status.
func (s Style) Step(status workflow.StepStatus) string {
	switch status {
	case workflow.StepSucceeded:
		return s.paint(green, "✓")
	case workflow.StepFailed:
		return s.paint(red, "✗")
	case workflow.StepSkipped:
		return s.paint(dim, "-")
	case workflow.StepRunning:
		return s.paint(cyan, "•")
	}
	return "?"
}

// Clean makes one line of a text, without escape sequences and control characters other than tabs: they would
// control a terminal. The ends of lines become spaces, and invisible characters are made visible.
func Clean(s string) string {
	if !strings.ContainsFunc(s, control) {
		return text.Visible(s)
	}
	var b strings.Builder
	rest := strings.ToValidUTF8(strings.TrimRightFunc(s, endsLine), "\uFFFD")
	for rest != "" {
		if rest[0] == 0x1b {
			rest = rest[text.EscapeSequence(rest):]
			continue
		}
		r, n := utf8.DecodeRuneInString(rest)
		switch {
		case endsLine(r):
			b.WriteByte(' ')
			n = len(rest) - len(strings.TrimLeftFunc(rest, endsLine))
		case !control(r):
			b.WriteString(rest[:n])
		}
		rest = rest[n:]
	}
	return text.Visible(b.String())
}

// Coloured is Clean, but keeps colours and the like where they can be shown. They end with the text. Of a line that
// returns to its beginning it has the last text, as a terminal has.
func (s Style) Coloured(line string) string {
	for {
		i := strings.LastIndexByte(line, '\r')
		if i < 0 {
			break
		}
		if last := line[i+1:]; Clean(last) != "" {
			line = last
			break
		}
		line = line[:i]
	}
	if !s.Color || !strings.Contains(line, "\x1b[") {
		return Clean(line)
	}
	var b strings.Builder
	painted := false
	for piece, sequence := range text.Escapes(line) {
		b.WriteString(Clean(piece))
		if rendition().MatchString(sequence) {
			painted = true
			b.WriteString(sequence)
		}
	}
	if painted {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// rendition are the escape sequences that select colours, weight and the like. One that hides text is not among them.
var rendition = sync.OnceValue(func() *regexp.Regexp {
	const one = `(?:0?[0-79]|2[1-9]|3[0-79]|4[0-79]|9[0-7]|10[0-7]|[34]8;5;[0-9]{1,3}|[34]8;2(?:;[0-9]{1,3}){3})`
	return regexp.MustCompile(`^\x1b\[(?:` + one + `(?:;` + one + `)*)?m$`)
})

func control(r rune) bool {
	return r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 || endsLine(r)
}

// endsLine reports whether a character ends a line somewhere.
func endsLine(r rune) bool {
	return r >= '\n' && r <= '\r' || r == 0x85 || r == 0x2028 || r == 0x2029
}

// Width returns the number of columns of a text: its characters, escape sequences not counted.
func Width(text string) int { return utf8.RuneCountInString(Clean(text)) }

// Time writes a moment in the zone of this machine, which it names.
func Time(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05Z07:00") }

// Table collects rows and writes them in columns.
type Table struct {
	head []string
	rows [][]string
}

// NewTable begins a table with its headings.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Row adds a row. Cells that come from elsewhere must be cleaned before.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// narrowest is the width of a moment with its zone: no column is made narrower.
const narrowest = 25

// fit makes columns narrower, the widest first, until the table has room on a terminal. Those without a space in any
// cell stay whole: names and ids are there to be copied.
func fit(width []int, rows [][]string, room int) {
	total := 2 * (len(width) - 1) // between the columns
	for _, w := range width {
		total += w
	}
	for ; total > room; total-- {
		widest := -1
		for i := range width {
			spaced := slices.ContainsFunc(rows[1:], func(row []string) bool { return strings.Contains(row[i], " ") })
			if spaced && width[i] > narrowest && (widest < 0 || width[i] > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		width[widest]--
	}
}

// Write writes the table, or the text empty if it has no rows. On a terminal, long texts are cut to its width.
func (t *Table) Write(w io.Writer, s Style, empty string) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(w, empty)
		return err
	}
	rows := append([][]string{t.head}, t.rows...)
	width := make([]int, len(t.head))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], Width(cell))
		}
	}
	if s.Width > 0 {
		fit(width, rows, s.Width)
	}

	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			if Width(cell) > width[i] {
				cell = string([]rune(Clean(cell))[:width[i]-1]) + "…"
			}
			if n == 0 {
				cell = s.Bold(cell)
			}
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-Width(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
