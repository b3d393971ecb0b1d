package logstream

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// foreign is put before text that looks like the beginning of a line of the runner's and was printed by another
// program. A terminal takes its first character as the end of an escape sequence if there is an open one, the second
// is seen.
const foreign = "|| "

// Foreign returns a line of another program than the runner, so that it cannot be taken for one of the runner's: text
// that looks like api.RunnerLine or api.CommandLine gets a mark before it if it may be at the visible beginning. That
// is the beginning of the line, apart from white space, escape sequences and characters without width, and the place
// after a control character, such as a carriage return, because a terminal may print it over the text before it.
// Capital letters, other brackets, look-alike letters and invisible characters between them count too, but of six
// look-alikes one must be the letter itself. Text that a program assembles by moving the cursor between the letters
// is not recognised: `dayfly workflow logs` shows it in the order of the line, but a terminal that is given the log
// itself shows the assembled text.
func Foreign(line string) string {
	var out strings.Builder
	done := 0
	blank, controlled, sequence := true, false, 0 // nothing is seen before it; a control character is; where a sequence ends
	for i := 0; i < len(line); {
		r, n := rune(line[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(line[i:])
		}
		switch {
		case control(r):
			blank, controlled = true, true
			if r == escape && i >= sequence {
				sequence = i + text.EscapeSequence(line[i:])
			}
		case unseen(r):
		case (blank || controlled) && named(line[i:]), blank && i >= sequence && prompt(line[i:]):
			out.WriteString(line[done:i] + foreign)
			done, blank = i, false
		case i >= sequence:
			blank = false
		}
		i += n
	}
	if out.Len() == 0 {
		return line
	}
	return out.String() + line[done:]
}

// named reports whether a text begins like api.RunnerLine.
func named(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	if r != '[' && (r < utf8.RuneSelf || !unicode.Is(unicode.Ps, r)) {
		return false
	}
	exact := 0
	for _, want := range "dayfly" {
		s = seen(s[n:], true)
		if s == "" {
			return false
		}
		r, n = utf8.DecodeRuneInString(s)
		switch {
		case unicode.ToLower(r) == want:
			exact++
		case r >= utf8.RuneSelf, want == 'l' && strings.ContainsRune("1I|", r):
		default:
			return false
		}
	}
	return exact > 0
}

// prompt reports whether a text begins like api.CommandLine.
func prompt(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	if r != '$' && r != '\uff04' && r != '\ufe69' {
		return false
	}
	r, _ = utf8.DecodeRuneInString(seen(s[n:], false))
	return unseen(r)
}

// seen returns a text from the first character on that is seen, or is white space that counts.
func seen(s string, space bool) string {
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == escape:
			n = text.EscapeSequence(s)
		case control(r), unseen(r) && (space || unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me)):
		default:
			return s
		}
		s = s[n:]
	}
	return ""
}

const escape = 0x1b

// control reports whether a character moves the cursor, or may begin a sequence that does, or changes the direction
// of the text after it.
func control(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// unseen reports whether a character is invisible: white space, or without width.
func unseen(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || r == '\t'
	}
	switch r {
	case 0x115f, 0x1160, 0x2800, 0x3164, 0xffa0: // letters and patterns that are blank
		return true
	}
	return unicode.IsSpace(r) || unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me)
}
