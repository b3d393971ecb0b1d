package mask

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// escaped reports whether a text may hold escapes that are not patterns themselves.
func escaped(b []byte) bool {
	return bytes.IndexByte(b, '\\') >= 0 || bytes.IndexByte(b, '%') >= 0
}

// canonical is unescape until nothing is left to do, or four times: what is escaped may itself be
// spelled as escapes.
func canonical(b []byte) (out []byte, at []int32) {
	for range 4 {
		var from []int32
		out = unescape(make([]byte, 0, len(b)), b, &from)
		for i := range from {
			if at != nil {
				from[i] = at[from[i]]
			}
		}
		at = from
		if bytes.Equal(out, b) {
			break
		}
		b = out
	}
	return out, at
}

// unescape appends to dst the text without its escapes. It is not a decoder: it brings a value and every way to escape
// it to the same bytes, without knowing how often it was escaped, or where in an escape a piece of text begins. So a
// run of backslashes counts as one, and before a character that it escapes as none; %25 is followed further; and + is
// a space. at takes for each byte of the answer, and for its end, where it comes from in b.
func unescape(dst, b []byte, at *[]int32) []byte {
	put := func(from int, text ...byte) {
		for _, c := range text {
			if c == '+' {
				c = ' '
			}
			dst = append(dst, c)
			*at = append(*at, int32(from)) //nolint:gosec // a line is far shorter
		}
	}
	for i := 0; i < len(b); {
		c, n := percent(b[i:])
		if c != '\\' {
			put(i, c)
			i += n
			continue
		}
		// A run of backslashes, some of which may be percent-encoded.
		j := i
		for j < len(b) {
			c, n := percent(b[j:])
			if c != '\\' {
				break
			}
			j += n
		}
		if j == len(b) {
			put(i, '\\')
			i = j
			continue
		}
		c, n = percent(b[j:])
		switch c {
		case 'n':
			put(i, '\n')
		case 'r':
			put(i, '\r')
		case 't':
			put(i, '\t')
		case 'b':
			put(i, '\b')
		case 'f':
			put(i, '\f')
		case '"', '\'', '/':
			put(i, c)
		case 'u', 'U', 'x':
			r, width, ok := hexRune(b[j+n:], c)
			if !ok {
				put(i, '\\')
				i = j
				continue
			}
			n += width
			if c == 'x' {
				put(i, byte(r)) //nolint:gosec // of two digits
			} else {
				put(i, utf8.AppendRune(nil, r)...)
			}
		default:
			put(i, '\\')
			i = j
			continue
		}
		i = j + n
	}
	*at = append(*at, int32(len(b))) //nolint:gosec // a line is far shorter
	return dst
}

// percent reads one byte that may be percent-encoded, any number of times: %41, %2541, %252541 ...
func percent(b []byte) (c byte, n int) {
	if b[0] != '%' {
		return b[0], 1
	}
	i := 1
	for len(b) >= i+4 && b[i] == '2' && b[i+1] == '5' && isHex(b[i+2]) && isHex(b[i+3]) {
		i += 2
	}
	if len(b) < i+2 || !isHex(b[i]) || !isHex(b[i+1]) {
		return '%', 1
	}
	return unhex(b[i])<<4 | unhex(b[i+1]), i + 2
}

// hexRune reads the digits after \u, \U or \x, and the second half of a pair of \u.
func hexRune(b []byte, kind byte) (r rune, n int, ok bool) {
	width := map[byte]int{'u': 4, 'U': 8, 'x': 2}[kind]
	if r, ok = hexDigits(b, width); !ok {
		return 0, 0, false
	}
	if kind != 'u' || r < 0xD800 || r > 0xDBFF {
		return r, width, true
	}
	rest := b[width:]
	run := 0
	for run < len(rest) && rest[run] == '\\' {
		run++
	}
	if run > 0 && len(rest) > run && rest[run] == 'u' {
		if low, ok := hexDigits(rest[run+1:], 4); ok && low >= 0xDC00 && low <= 0xDFFF {
			return (r-0xD800)<<10 + (low - 0xDC00) + 0x10000, width + run + 1 + 4, true
		}
	}
	return r, width, true
}

func hexDigits(b []byte, n int) (r rune, ok bool) {
	if len(b) < n || slices.ContainsFunc(b[:n], func(c byte) bool { return !isHex(c) }) {
		return 0, false
	}
	for _, c := range b[:n] {
		r = r<<4 | rune(unhex(c))
	}
	return r, true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	default:
		return c - 'a' + 10
	}
}
