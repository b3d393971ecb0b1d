package text

import (
	"fmt"
	"strings"
	"unicode"
)

// Visible makes characters visible that could hide, reorder or end the text around them: control characters, marks
// that change the direction of writing, and characters without a width. Tabs and newlines stay.
func Visible(s string) string {
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

// hidden reports whether nothing is shown for a character, or it changes how others are shown.
func hidden(r rune) bool {
	switch {
	case r == '\t' || r == '\n':
		return false
	case r < 0x7f:
		return r < 0x20
	case r < 0xa0 || r == '\u2028' || r == '\u2029':
		return true
	}
	return Invisible(r)
}

// Invisible reports whether a character has no width or no visible width, or changes the direction of writing.
// Variation selectors are not invisible: they show on the character before them.
func Invisible(r rune) bool {
	return unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}
