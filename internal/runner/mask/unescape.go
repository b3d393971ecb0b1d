package mask

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"
)

// passes bounds how often a text is unescaped: an escaped text may itself be spelled as escapes.
const passes = 6

// special holds the bytes at which an escape or something that is not shown may begin.
var special = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = c != '\n'
	}
	for _, c := range []byte("\\%&\x7f\xc2\xcd\xd8\xdb\xdc\xe0\xe1\xe2\xe3\xef\xf0\xf3") {
		t[c] = true
	}
	return t
}()

// spelled reports whether a text may spell a value in a way that is not a pattern itself. Tabs at the beginning of a line
// count as plain.
func spelled(b []byte) bool {
	for len(b) > 0 && b[0] == '\t' {
		b = b[1:]
	}
	return ordinary(b) < len(b)
}

// ordinary returns how many bytes at the beginning of b are not special. It looks at eight at a time.
func ordinary(b []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	rest := b
	for len(rest) >= 8 {
		w := binary.LittleEndian.Uint64(rest)
		back, per, and, del := w^ones*'\\', w^ones*'%', w^ones*'&', w^ones*0x7f
		odd := (w | (w - ones*' ') | (back - ones) | (per - ones) | (and - ones) | (del - ones)) & tops
		if odd == 0 {
			rest = rest[8:]
			continue
		}
		// The lowest bit is right, a carry may have set those above it.
		i := bits.TrailingZeros64(odd) / 8
		if special[rest[i]] {
			return len(b) - len(rest) + i
		}
		rest = rest[i+1:]
	}
	for i, c := range rest {
		if special[c] {
			return len(b) - len(rest) + i
		}
	}
	return len(b)
}

// bare makes the text without its escapes and invisible pieces, and knows where each byte of it comes from. It keeps
// its buffers for the next text.
type bare struct {
	text  []byte
	spare []byte
	aside []span // strings of control sequences, in the text that is read
	seams [passes][]seam
	made  int // how many passes there were
}

// seam says that from a place of a text on its bytes are those from another place on of the text that it was made of.
// If wide is above 0, those up to the next seam stand together for so many.
type seam struct{ out, in, wide int32 }

var bares = sync.Pool{New: func() any { return new(bare) }}

// canonical returns a text without its escapes.
func canonical(text string) string {
	var c bare
	c.read([]byte(text), false)
	return string(c.text)
}

// without is find in the text without its escapes, and in the text that a terminal shows if it has backspaces.
func (x *index) without(b []byte, found []span) []span {
	c := bares.Get().(*bare)
	defer bares.Put(c)
	if !c.read(b, false) {
		return found
	}
	start := len(found)
	found = x.find(c.text, found)
	for i := start; i < len(found); i++ {
		found[i] = c.source(found[i])
	}
	if bytes.IndexByte(b, '\b') >= 0 {
		c.read(b, true)
		start = len(found)
		found = x.find(c.text, found)
		for i := start; i < len(found); i++ {
			found[i] = c.source(found[i])
			for at := &found[i].from; *at >= 2 && b[*at-1] == '\b'; { // the characters that the first one was printed over
				_, n := utf8.DecodeLastRune(b[:*at-1])
				*at -= 1 + n
			}
		}
	}
	return slices.DeleteFunc(found, func(s span) bool { return s.from >= s.end })
}

// read unescapes b until nothing changes. It reports whether the text may hold values that b does not. over says that
// a backspace takes away the character before it.
func (c *bare) read(b []byte, over bool) bool {
	c.made = 0
	// A value may hold more escapes than the text, where a program undid them.
	differs := bytes.IndexByte(b, '\\') >= 0 || bytes.IndexByte(b, '%') >= 0
	for c.made < passes {
		changed, again := c.pass(b, over)
		differs = differs || changed
		c.text, c.spare = c.spare, c.text
		b = c.text
		c.made++
		if !changed || !again {
			break
		}
	}
	for rest := c.text; ; { // as in the query of a URL
		i := bytes.IndexByte(rest, '+')
		if i < 0 {
			return differs
		}
		rest[i] = ' '
		rest = rest[i+1:]
	}
}

// pass writes b without its escapes to spare. It is not a decoder: it brings a value and every way to escape it to
// the same bytes, without knowing how often it was escaped, or where in an escape a piece of text begins. So a run of
// backslashes counts as one, and before a character that it escapes as none; %25 is followed further; and + is a
// space. The strings of control sequences follow at the end. again says that another pass may find more.
func (c *bare) pass(b []byte, over bool) (changed, again bool) {
	dst, seams := c.spare[:0], c.seams[c.made][:0]
	c.aside = c.aside[:0]
	from := 0
	for i := 0; i < len(b); {
		if i += ordinary(b[i:]); i == len(b) {
			break
		}
		u := unitOf(b[i:])
		if again = again || u.again; u.size == 0 {
			i++ // it stands for itself
			continue
		}
		changed = true
		dst = append(dst, b[from:i]...)
		if u.n > 0 {
			seams = append(seams, seam{int32(len(dst)), int32(i), int32(u.size)}) //nolint:gosec // a line is far shorter
			dst = append(dst, u.out[:u.n]...)
		}
		if over && b[i] == '\b' {
			_, n := utf8.DecodeLastRune(dst)
			dst = dst[:len(dst)-n]
			for len(seams) > 0 && int(seams[len(seams)-1].out) >= len(dst) {
				seams = seams[:len(seams)-1]
			}
		}
		if u.content.end > u.content.from {
			c.aside = append(c.aside, span{i + u.content.from, i + u.content.end})
		}
		i += u.size
		from = i
		seams = append(seams, seam{out: int32(len(dst)), in: int32(i)}) //nolint:gosec // as above
	}
	dst = append(dst, b[from:]...)
	for _, s := range c.aside {
		dst = append(dst, 0xff)                                              // no part of any text
		seams = append(seams, seam{out: int32(len(dst)), in: int32(s.from)}) //nolint:gosec // as above
		dst = append(dst, b[s.from:s.end]...)
		again = true
	}
	c.spare, c.seams[c.made] = dst, seams
	return changed, again
}

// source returns the origin of a piece of the text.
func (c *bare) source(in span) span {
	for i := c.made - 1; i >= 0; i-- {
		in = span{origin(c.seams[i], in.from).from, origin(c.seams[i], in.end-1).end}
	}
	return in
}

// origin returns the origin of the byte at a place.
func origin(seams []seam, at int) span {
	i, _ := slices.BinarySearchFunc(seams, at, func(s seam, at int) int {
		if int(s.out) <= at {
			return -1
		}
		return 1
	})
	if i == 0 {
		return span{at, at + 1}
	}
	s := seams[i-1]
	if s.wide > 0 {
		return span{int(s.in), int(s.in + s.wide)}
	}
	from := int(s.in) + at - int(s.out)
	return span{from, from + 1}
}

// unit is the beginning of a text: size bytes that stand for n others. If size is 0, the first byte stands for
// itself.
type unit struct {
	size    int
	out     [utf8.UTFMax]byte
	n       int
	content span // of a control sequence that is a string
	again   bool // another pass may make more of it
}

func is(size int, c byte) unit {
	return unit{size: size, out: [utf8.UTFMax]byte{c}, n: 1, again: special[c]}
}

func isRune(size int, r rune) unit {
	u := unit{size: size}
	u.n = utf8.EncodeRune(u.out[:], r)
	u.again = special[u.out[0]]
	return u
}

// unitOf reads the unit at the beginning of b, which is a special byte.
func unitOf(b []byte) unit {
	switch b[0] {
	case '\\':
		return backslash(b)
	case '%':
		switch c, n := percent(b); {
		case c == '\\':
			return backslash(b)
		case n > 1:
			return is(n, c)
		}
		return unit{again: true}
	case '&':
		if n, r := entity(b); n > 0 {
			return isRune(n, r)
		}
		return unit{again: true}
	}
	size, content := unseen(b)
	return unit{size: size, content: content}
}

// backslash reads a run of backslashes, some of which may be percent-encoded, and the character that they escape.
func backslash(b []byte) unit {
	j := 0
	for j < len(b) {
		c, n := percent(b[j:])
		if c != '\\' {
			break
		}
		j += n
	}
	one := is(j, '\\')
	if j == 1 {
		one = unit{again: true}
	}
	if j == len(b) {
		return one
	}
	c, n := percent(b[j:])
	switch c {
	case 'n':
		return is(j+n, '\n')
	case 'r':
		return is(j+n, '\r')
	case 't':
		return is(j+n, '\t')
	case 'b':
		return is(j+n, '\b')
	case 'f':
		return is(j+n, '\f')
	case '"', '\'', '/':
		return is(j+n, c)
	case 'u', 'U', 'x':
		r, width, ok := hexRune(b[j+n:], c)
		switch {
		case !ok:
			return one
		case c == 'x':
			return is(j+n+width, byte(r)) //nolint:gosec // of two digits
		}
		return isRune(j+n+width, r)
	}
	return one
}

// entity reads a character reference of HTML or XML; n is 0 if there is none.
func entity(b []byte) (n int, r rune) {
	end := bytes.IndexByte(b[:min(len(b), longestEntity)], ';')
	if end < 0 {
		return 0, 0
	}
	switch name := b[1:end]; string(name) {
	case "quot":
		return end + 1, '"'
	case "apos":
		return end + 1, '\''
	case "amp":
		return end + 1, '&'
	case "lt":
		return end + 1, '<'
	case "gt":
		return end + 1, '>'
	default:
		r, ok := numericEntity(name)
		if !ok {
			return 0, 0
		}
		return end + 1, r
	}
}

// numericEntity reads the name of a character reference by number, such as #65 or #x41.
func numericEntity(name []byte) (r rune, ok bool) {
	if len(name) < 2 || name[0] != '#' {
		return 0, false
	}
	base, digits := rune(10), name[1:]
	if digits[0] == 'x' || digits[0] == 'X' {
		base, digits = 16, digits[1:]
	}
	for _, c := range digits {
		if !isHex(c) || base == 10 && c > '9' {
			return 0, false
		}
		r = r*base + rune(unhex(c))
	}
	return r, len(digits) > 0 && utf8.ValidRune(r)
}

const longestEntity = len("&#x0010FFFF;")

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
	width := 4
	switch kind {
	case 'U':
		width = 8
	case 'x':
		width = 2
	}
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
