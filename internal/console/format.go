package console

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// mark is a state as people see it: in a shape, a word and a colour.
type mark struct{ class, glyph, word string }

// signs are the shapes and colours of states, of runs, steps and nodes of trees, and of changes of resources.
var signs = map[string]mark{
	"pending": {class: "soft", glyph: "○"}, api.TreeWaiting: {class: "soft", glyph: "○"}, "claimed": {class: "run", glyph: "◔"}, "running": {class: "run", glyph: "●"},
	runtext.Cancelling: {class: "warn", glyph: "◍"}, runtext.ToApprove: {class: "warn", glyph: "◇"}, "succeeded": {class: "good", glyph: "✓"},
	"failed": {class: "bad", glyph: "✗"}, "cancelled": {class: "soft", glyph: "⊘"}, "skipped": {class: "soft", glyph: "–"}, string(unfinished): {class: "warn", glyph: "◌"},
	"delete": {class: "bad", glyph: "−"}, "replace": {class: "bad", glyph: "±"}, "update": {class: "warn", glyph: "~"}, "create": {class: "good", glyph: "+"},
	"drift": {class: "warn", glyph: "≠"},
}

// signed is a word with the shape and the colour of a state or an action.
func signed(what, word string) mark {
	m := cmp.Or(signs[what], mark{class: "soft", glyph: "·"})
	m.word = word
	return m
}

// markOf is the state of a run. It is a pure function.
func markOf(w api.Workflow) mark { return signed(runtext.State(w), runtext.State(w)) }

// stamp is a moment as pages show it; the zero value shows nothing.
type stamp struct{ time.Time }

// at is the stamp of a moment that may be missing.
func at(t *time.Time) stamp {
	if t == nil {
		return stamp{}
	}
	return stamp{*t}
}

// machine is the moment for programs.
func (s stamp) machine() string { return s.UTC().Format(time.RFC3339) }

// full is the whole moment, in UTC: the server does not know the reader's zone.
func (s stamp) full() string { return s.UTC().Format("Mon 2 Jan 2006 15:04:05 UTC") }

// relative is how long ago it was, or in how long it will be, in one unit. The script says it in the same words.
func (s stamp) relative(now time.Time) string {
	d := now.Sub(s.Time)
	about := func(d time.Duration) string {
		switch {
		case d < time.Minute:
			return seconds(d) + "s"
		case d < time.Hour:
			return strconv.Itoa(int(d/time.Minute)) + "m"
		case d < 48*time.Hour:
			return strconv.Itoa(int(d/time.Hour)) + "h"
		}
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
	switch {
	case d <= -time.Second:
		return "in " + about(-d)
	case d < 2*time.Second:
		return "just now"
	}
	return about(d) + " ago"
}

// seconds writes a duration as a whole number of seconds.
func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// short is a digest as people compare it.
func short(sha256 string) string {
	if len(sha256) <= 12 {
		return clean(sha256)
	}
	return clean(sha256[:8] + "…" + sha256[len(sha256)-4:])
}

// some shows foreign text that stands beside other things, where more than this is no use.
func some(s string) string { return clean(text.Cut(s, 1000)) }

// size is a number of bytes as people read it.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return text.Count(int(n), "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// brief is foreign text that is to stand in one line.
func brief(s string) string {
	return clean(text.Middle(strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " "), 240))
}

// clean is foreign text as pages show it: characters that could hide, reorder or end the text around them become
// visible. Tabs and ends of lines stay.
func clean(s string) string { return text.Visible(s) }

// capital makes the first letter a capital one.
func capital(s string) string {
	n := min(1, len(s))
	return strings.ToUpper(s[:n]) + s[n:]
}

// sentence ends a text with a period and makes it fit to be shown. Of the ARN of a task it shows the end, which names it.
func sentence(s string) string {
	words := strings.Split(text.Cut(strings.TrimSpace(s), 600), " ")
	for i, word := range words {
		if strings.HasPrefix(word, "arn:") {
			words[i] = word[strings.LastIndex(word, "/")+1:]
		}
	}
	s = clean(strings.Join(words, " "))
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".?!") {
		return s
	}
	return s + "."
}
