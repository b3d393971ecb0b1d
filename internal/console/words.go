package console

import (
	"strconv"
	"time"

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
