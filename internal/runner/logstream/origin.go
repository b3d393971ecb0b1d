package logstream

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// foreign stands before what looks like the beginning of a line of the runner's and was printed by something else. A
// terminal takes its first character as the end of an escape sequence if there is an open one, the second is seen.
const foreign = "|| "

// Foreign returns a line that was printed by something else than the runner so that it cannot be taken for one of the
// runner's: what looks like api.RunnerLine or api.CommandLine gets a mark before it, where it may be the beginning of
// what is seen. That is the beginning of the line, white space, escape sequences and what has no width aside, and what
// follows a control character, such as a carriage return, because a terminal may print it over what stands before it. Capital letters, other
// brackets, look-alike letters and what is not seen between them count too, but of six look-alikes one must be the
// letter itself. What a program puts together by moving the cursor between the letters is not recognised: `dayfly
// workflow logs` shows it as it stands in the line, but a terminal that is given the log itself shows what the program
// made of it.
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

// control reports whether a character moves the cursor, or may begin a sequence that does, or changes the direction of
// what follows.
func control(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// unseen reports whether a character leaves no mark: white space, and what has no width.
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
