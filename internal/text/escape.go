package text

import (
	"bytes"
	"iter"
	"strings"
)

// Escapes cuts a line into pieces of text, each with the escape sequence that ends it; the last one may have none.
func Escapes(line string) iter.Seq2[string, string] {
	return func(yield func(piece, sequence string) bool) {
		for line != "" {
			piece, _, _ := strings.Cut(line, "\x1b")
			rest := line[len(piece):]
			n := 0
			if rest != "" {
				n = EscapeSequence(rest)
			}
			if !yield(piece, rest[:n]) {
				return
			}
			line = rest[n:]
		}
	}
}

// WithoutEscapes returns a line without its escape sequences, such as colours.
func WithoutEscapes(line string) string {
	var b strings.Builder
	for piece := range Escapes(line) {
		b.WriteString(piece)
	}
	return b.String()
}

// EscapeSequence returns the length in bytes of the escape sequence that s begins with, at least 1. s begins with an
// escape character. The forms are those of ECMA-48; a string without an end goes on to the end of s.
func EscapeSequence(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[': // control sequence: up to a byte of @ to ~
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']', 'P', '_', '^', 'X': // string: up to BEL or ESC \
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b {
				return min(i+2, len(s))
			}
		}
		return len(s)
	}
	i := 1
	for i < len(s)-1 && s[i] >= 0x20 && s[i] < 0x30 { // as in ESC ( B
		i++
	}
	return i + 1
}

// EscapeJSON writes as \u escapes the characters of a JSON document that XML 1.0, and so SQS, does not take. All others
// of them are escaped in any JSON, and these can only be in its strings.
func EscapeJSON(doc []byte) []byte {
	doc = bytes.ReplaceAll(doc, []byte("\uFFFE"), []byte(`\ufffe`))
	return bytes.ReplaceAll(doc, []byte("\uFFFF"), []byte(`\uffff`))
}
