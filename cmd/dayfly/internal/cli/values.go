package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agext/levenshtein"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ParseTime reads a time, or how long ago it was; an empty text is the zero time.
func ParseTime(flag, in string, now time.Time) (at time.Time, err error) {
	if in == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, in); err == nil {
		return at, nil
	}
	if at, err = time.ParseInLocation(time.DateOnly, in, time.Local); err == nil {
		return at, nil
	}
	ago, ok := text.Ago(in)
	if !ok {
		return at, Usage(fmt.Errorf("%s: want a time such as 2026-11-01T00:00:00Z, or how long ago it was, such as 90m, 24h or 7d, not %q", flag, in))
	}
	return now.Add(-ago), nil
}

// near are other words for values: of operations and of states.
var near = map[string]string{
	"plan": "preview", "diff": "preview", "apply": "update", "up": "update", "deploy": "update", "drift": "scan", "delete": "destroy", "down": "destroy",
	"queued": "pending", "waiting": "pending", "submitted": "pending", "launching": "claimed", "started": "running", "in_progress": "running",
	"success": "succeeded", "done": "succeeded", "ok": "succeeded", "error": "failed", "errored": "failed", "canceled": "cancelled",
	"aborted": "cancelled", "approval": "awaiting_approval", "blocked": "awaiting_approval",
}

// Unknown refuses a value of a flag or an argument that takes one of several, with the one that was probably meant.
func Unknown(name, got string, wants []string) error {
	wants = slices.DeleteFunc(slices.Clone(wants), func(w string) bool { return w == "" })
	noun := map[string]string{"--op": "operation ", "--state": "state "}[name]
	if meant := meant(got, wants); meant != "" {
		return fmt.Errorf("%s: there is no %s%s: did you mean %s?", name, noun, got, meant)
	}
	return fmt.Errorf("%s: want %s, not %q", name, strings.Join(wants, ", "), got)
}

// meant is the value that was probably meant, if there is one.
func meant(got string, wants []string) string {
	got = strings.ToLower(got)
	if slices.Contains(wants, near[got]) {
		return near[got]
	}
	return Nearest(got, wants)
}

// Candidate is a word that fits, with a description.
type Candidate struct{ Word, About string }

// Nearest is the name that was probably meant, if there is one: it differs in two characters at most.
func Nearest(got string, names []string) string {
	got = text.Head(got, 64) // long ones are slow
	nearest, distance := "", 3
	for _, name := range names {
		if d := levenshtein.Distance(got, name, nil); d < distance && d < len(name) {
			nearest, distance = name, d
		}
	}
	return nearest
}

// The values by which runs are listed.
var (
	States     = spelled(workflow.States(), "active", "awaiting_approval")
	Operations = spelled(workflow.Operations(), "scan")
)

// spelled are the values of a list as words, and more.
func spelled[T ~string](list []T, more ...string) []string {
	return append(Words(list, func(one T) string { return string(one) }), more...)
}

// CheckWord refuses a value that is a near miss of a known one. The control plane, which may be newer, checks the
// others.
func CheckWord(flag, got string, known []string) error {
	if got == "" || slices.Contains(known, got) || meant(got, known) == "" {
		return nil
	}
	return Usage(Unknown("--"+flag, got, known))
}
