package mask

import (
	"bytes"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/text"
)

const escape = 0x1b

// unseen reads an invisible piece at the beginning of b: a control sequence, a control character other than a
// newline, or a character without width. n is 0 if there is none. content is the content of a sequence that is a
// string. The forms are those of ECMA-48; control characters within a sequence are part of it.
func unseen(b []byte) (n int, content span) {
	second := byte(0)
	if len(b) > 1 {
		second = b[1]
	}
	switch c := b[0]; {
	case c == escape:
		return sequence(b)
	case c == '\n':
		return 0, span{}
	case c < ' ' || c == 0x7f:
		return 1, span{}
	case c == 0xc2 && 0x80 <= second && second < 0xa0: // a control character of two bytes; some begin a sequence
		switch second {
		case 0x9b:
			return parameters(b, 2), span{}
		case 0x90, 0x98, 0x9d, 0x9e, 0x9f:
			return controlString(b, 2)
		}
		return 2, span{}
	case c >= utf8.RuneSelf:
		// Also the ends of lines that are not ASCII.
		if r, n := utf8.DecodeRune(b); text.Invisible(r) || unicode.Is(unicode.Variation_Selector, r) || r == 0x2028 || r == 0x2029 {
			return n, span{}
		}
	}
	return 0, span{}
}

// sequence reads a sequence that begins with an escape character.
func sequence(b []byte) (n int, content span) {
	i := 1
	for i < len(b) && silent(b[i]) {
		i++
	}
	if i == len(b) {
		return i, span{}
	}
	switch c := b[i]; {
	case c == '[':
		return parameters(b, i+1), span{}
	case c == ']', c == 'P', c == 'X', c == '^', c == '_':
		return controlString(b, i+1)
	}
	for i < len(b) && 0x20 <= b[i] && b[i] < 0x30 {
		i++
	}
	if i < len(b) && 0x30 <= b[i] && b[i] < 0x7f {
		i++
	}
	return i, span{}
}

// silent reports whether a control character within a sequence does not end it.
func silent(c byte) bool { return c < ' ' && c != escape && c != '\n' || c == 0x7f }

// parameters returns the end of a sequence of which i bytes were read: behind its last byte, or before a byte that
// cannot be part of it.
func parameters(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case 0x40 <= c && c < 0x7f:
			return i + 1
		case c >= 0x80 || c < 0x20 && !silent(c):
			return i
		}
	}
	return i
}

// controlString returns the end of a string of which i bytes were read, and its content. If it has no end, or only
// one that is far away, it ends there, and its content is text.
func controlString(b []byte, i int) (n int, content span) {
	for j := i; j < min(len(b), i+maxEscape); j++ {
		switch c := b[j]; {
		case c == '\a':
			return j + 1, span{i, j}
		case c == escape:
			end := j + 1
			for end < len(b) && silent(b[end]) {
				end++
			}
			if end == len(b) || b[end] != '\\' {
				return i, span{}
			}
			return end + 1, span{i, j}
		case c == 0xc2 && j+1 < len(b) && 0x80 <= b[j+1] && b[j+1] < 0xa0:
			if b[j+1] != 0x9c {
				return i, span{}
			}
			return j + 2, span{i, j}
		case c == '\n':
			return i, span{}
		}
	}
	return i, span{}
}

// colours reports whether a sequence in b changes colours.
func colours(b []byte) bool {
	for {
		i := bytes.IndexByte(b, escape)
		if i < 0 {
			return false
		}
		n, _ := sequence(b[i:])
		if n > 2 && b[i+1] == '[' && b[i+n-1] == 'm' {
			return true
		}
		b = b[i+n:]
	}
}

// wide gives put a value in UTF-16, in both orders of bytes, if the zero bytes in it are not all that is between it and
// the value. A newline byte ends a line of the log, so the pieces between them are forms too.
func wide(value string, put func(string)) {
	ascii := true
	for _, c := range []byte(value) {
		ascii = ascii && c < utf8.RuneSelf
	}
	if ascii {
		return
	}
	for _, high := range []int{0, 1} {
		var b []byte
		for _, u := range utf16.Encode([]rune(value)) {
			pair := [2]byte{byte(u & 0xff), byte(u >> 8)}
			b = append(b, pair[high], pair[1-high])
		}
		put(string(b))
		pieces := bytes.Split(b, []byte{'\n'})
		for _, piece := range pieces {
			if len(pieces) > 1 && len(piece) >= 2*MinLength {
				put(string(piece))
			}
		}
	}
}
