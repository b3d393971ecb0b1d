// Package text counts things, writes and shortens text for people and shells, and knows the characters that a
// terminal does not show.
package text

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Count says how many of something there are: 1 line, 2 lines, 2 tries.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, y := strings.CutSuffix(noun, "y"); y && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Are is Count with its verb: 1 line is, 2 lines are.
func Are(n int, noun string) string {
	if n == 1 {
		return Count(n, noun) + " is"
	}
	return Count(n, noun) + " are"
}

// mark replaces an omitted part.
const mark = "..."

// Some names the first of many: "a, b and 3 more".
func Some(names []string, limit int) string {
	if len(names) > limit {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
	}
	return strings.Join(names, ", ")
}

// Cut shortens a text to at most so many bytes, at its end, and marks the cut. It does not split a character.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:max(limit-len(mark), 0)], "") + mark
}

// Head is Cut without a mark, for text that a program reads. Bytes that are not valid text become "?".
func Head(s string, limit int) string {
	if s = strings.ToValidUTF8(s, "?"); len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

// Quote shows foreign text in a sentence: quoted, and Cut.
func Quote(s string, limit int) string { return strconv.Quote(Cut(s, limit)) }

// Middle shortens a sentence to at most so many bytes. It leaves out the middle: a sentence usually begins with the
// event and often ends with its cause.
func Middle(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const gap = " " + mark + " "
	head := max(limit-len(gap), 0) * 2 / 3
	end := max(limit-len(gap)-head, 0)
	return strings.ToValidUTF8(s[:head], "") + gap + strings.ToValidUTF8(s[len(s)-end:], "")
}

// Duration writes a duration as people read it.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// Ago reads how long ago something was: 90m, 24h or, of fewer than 100,000 days, 7d. ok is false for anything else.
func Ago(s string) (d time.Duration, ok bool) {
	if days, isDays := strings.CutSuffix(s, "d"); isDays {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err == nil && n >= 0 && n < 100_000
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

// Value writes a value on one line: text as it is, anything else as JSON.
func Value(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

// ShellWord makes one word of a text for a shell, which changes nothing in it.
func ShellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Sorted is a list of names in order, each once; nil if it is empty.
func Sorted(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
