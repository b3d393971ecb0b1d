// Package text counts and shortens what people read.
package text

import (
	"fmt"
	"strings"
)

// Count says how many of something there are: 1 line, 2 lines.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
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

// Middle shortens a sentence to at most so many bytes. It leaves out the middle: what happened stands at the beginning,
// and why it did often at the end.
func Middle(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const mark = " ... "
	head := max(most-len(mark), 0) * 2 / 3
	end := max(most-len(mark)-head, 0)
	return strings.ToValidUTF8(s[:head], "") + mark + strings.ToValidUTF8(s[len(s)-end:], "")
}
