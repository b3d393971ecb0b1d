package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var noTime time.Time

// mark is a state as people see it: in a shape, a word and a colour.
type mark struct{ class, glyph, word string }

// markOf is the state of a run. It is a pure function.
func markOf(w api.Workflow) mark {
	switch w.State {
	case workflow.Pending:
		return mark{"soft", "○", "waiting"}
	case workflow.Claimed:
		return mark{"run", "◔", "starting"}
	case workflow.Running:
		if w.CancelRequested {
			return mark{"warn", "◍", "cancelling"}
		}
		return mark{"run", "●", "running"}
	case workflow.Succeeded:
		return mark{"good", "✓", "succeeded"}
	case workflow.Failed:
		return mark{"bad", "✗", "failed"}
	case workflow.Cancelled:
		return mark{"soft", "⊘", "cancelled"}
	}
	return mark{"soft", "·", string(w.State)}
}

// stamp is a moment as pages show it; the zero value shows nothing.
type stamp struct{ time.Time }

// at is the stamp of a moment that may be missing.
func at(t *time.Time) stamp {
	if t == nil {
		return stamp{}
	}
	return stamp{*t}
}

// Machine is the moment for programs.
func (s stamp) Machine() string { return s.UTC().Format(time.RFC3339) }

// Full is the whole moment, in UTC: the server does not know the reader's zone.
func (s stamp) Full() string { return s.UTC().Format("Mon 2 Jan 2006 15:04:05 UTC") }

// Relative is how long ago it was, or in how long it will be.
func (s stamp) Relative(now time.Time) string {
	d := now.Sub(s.Time)
	switch {
	case d < 0:
		return "in " + text.Duration(-d)
	case d < 2*time.Second:
		return "just now"
	}
	return text.Duration(d.Truncate(time.Second)) + " ago"
}

// seconds writes a duration as a whole number of seconds.
func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// clean is foreign text as pages show it: what could hide, reorder or end the text around it becomes visible. That is
// control characters, marks that change the direction of writing, and characters without a width. Tabs and ends of
// lines stay.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	last := rune(0)
	for _, r := range s {
		// Joiners belong to other scripts and to emoji. Between ASCII letters they only make two names look alike.
		joins := (r == '\u200c' || r == '\u200d') && last > 0x7f && !hidden(last)
		switch {
		case joins || !hidden(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune(0x2400 + r) // its picture
		default:
			fmt.Fprintf(&b, "[U+%04X]", r)
		}
		last = r
	}
	return b.String()
}

// hidden reports whether a browser shows nothing for a character, or lets it change how others are shown.
func hidden(r rune) bool {
	switch {
	case r == '\t' || r == '\n':
		return false
	case r < 0x7f:
		return r < 0x20
	case r < 0xa0 || r == '\u2028' || r == '\u2029':
		return true
	}
	return unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}
