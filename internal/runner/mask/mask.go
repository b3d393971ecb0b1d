// Package mask hides secret values in text that the runner sends. It does not know where secrets come from, and does
// no input or output.
//
// # Hidden
//
// Every value that was added, also where it stands in a larger text, as it is and as
//   - each of its lines, where it has several;
//   - each text in it, where it is a JSON document: see leaves for the bounds;
//   - the output of the echo of a POSIX shell for the escapes in it, line by line: so also the key that
//     is one line in a JSON document, with \n in it, and many where a program reads it;
//   - base64, standard and URL alphabet, with and without padding, at each of the three positions
//     that it can have in a larger encoded text, and in the lines of 64 and 76 characters that
//     encoders write;
//   - hexadecimal, lower and upper case;
//   - an escaped string of JSON or HCL, escaped any number of times, with any choice of escaped
//     characters;
//   - URL-encoded for a query or a path, in either case of digits, encoded any number of times;
//   - text of HTML and XML, with any choice of escaped characters;
//   - UTF-16 in either order of bytes, with and without a byte order mark; of a character of which one byte is that of
//     a newline, the pieces of at least four characters around it.
//
// White space around a value or one of its lines is ignored. So are pieces that a terminal does not show, anywhere in
// these forms: escape sequences (colours, erasing, titles, links), other control characters, characters of no width.
// Text that backspaces print over counts both as there and as gone. Text beside a hidden value stays as it was; if
// colours change within a hidden value, they end behind the marker.
//
// # Not hidden
//
// Values, and lines of them, of fewer than MinLength bytes: to hide each "a" or "42" would make
// the log unreadable and show the value by its gaps. Add counts them. Of a value beyond maxValue only its
// lines are hidden.
//
// A line of the log ends at every newline. A value with a newline of the program's own in it, of an editor that wraps
// or in an escape sequence, is two texts, and each is shown unless it is a line of the value. A carriage return ends
// no line: a value that goes on behind it is hidden, but one of which a later part is printed over an earlier one by
// moving the cursor is not put together. An escape sequence that is a string (a title, a link) is left out up to
// maxEscape bytes and is searched on its own; a longer one counts as text. In a line beyond MaxLine a value is found
// if it takes no more than overlap bytes with everything inside it.
//
// And no filter recognises deliberate disguise: a value that is reversed, compressed, encrypted or printed a
// character at a time passes.
package mask

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// Marker replaces hidden text.
	Marker = "***"
	// MinLength is the length in bytes of the shortest value, or line of a value, that is hidden.
	MinLength = 4
	// maxValue is the length in bytes from which on only the lines of a value are hidden.
	maxValue = 256 << 10

	// longest is the length of the longest pattern. Longer ones are searched for in pieces of this
	// length, so that text can be cut with a bounded overlap.
	longest = 1 << 10
	// prefix is how many bytes of a pattern are looked up at once.
	prefix = 4
)

// Set is a set of values to hide. Its methods may be called concurrently. A value is hidden from when Add
// returned. The zero value is an empty set.
type Set struct {
	mu       sync.Mutex
	values   map[string]bool
	patterns atomic.Pointer[patterns]
}

// patterns are the texts to search for; they do not change once they are in place.
type patterns struct {
	raw   index // in the text as it is
	plain index // in the text without its escapes
}

// Add adds values and returns how many of them cannot be hidden because they, or all of their
// lines, are too short. An empty value is nothing to hide and does not count.
func (s *Set) Add(values ...string) (tooShort int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]bool{}
	}
	changed := false
	for _, v := range values {
		v = strings.TrimSpace(v)
		if v == "" || s.values[v] {
			continue
		}
		if !hideable(v) {
			tooShort++
			continue
		}
		s.values[v] = true
		changed = true
		for _, inner := range leaves(v) {
			if hideable(inner) {
				s.values[inner] = true
			}
		}
	}
	if changed {
		s.patterns.Store(compile(s.values))
	}
	return tooShort
}

func hideable(v string) bool {
	for l := range strings.Lines(v) {
		if len(strings.TrimSpace(l)) >= MinLength {
			return true
		}
	}
	return false
}

func compile(values map[string]bool) *patterns {
	all := map[string]bool{}
	add := func(form string) {
		if len(form) <= longest {
			all[form] = true
			return
		}
		for i := 0; ; i += longest {
			if i+longest >= len(form) {
				all[form[len(form)-longest:]] = true
				return
			}
			all[form[i:i+longest]] = true
		}
	}
	for v := range values {
		forms(v, add)
	}
	p := &patterns{}
	bare := map[string]bool{}
	for form := range all {
		p.raw.add(form)
		bare[canonical(form)] = true
	}
	for form := range bare {
		if len(form) >= prefix {
			p.plain.add(form)
		}
	}
	return p
}

// forms gives add every form of a value.
func forms(value string, add func(string)) {
	put := func(form string) {
		if len(form) >= prefix {
			add(form)
		}
	}
	lines := 0
	for l := range strings.Lines(value) {
		lines++
		if l = strings.TrimSpace(l); len(l) >= MinLength {
			escapes(l, put)
		}
	}
	if shown := echoed(value); shown != value {
		for l := range strings.Lines(shown) {
			if l = strings.TrimSpace(l); len(l) >= MinLength {
				put(l)
			}
		}
	}
	if len(value) > maxValue {
		return
	}
	wide(value, put)
	if lines > 1 {
		escapes(value, put)
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			// The first characters hold bits of the text before the value, the last may hold bits of the text after
			// it: neither is known.
			enc := e.EncodeToString(append(make([]byte, before), value...))
			skip := [3]int{0, 2, 3}[before]
			if (before+len(value))%3 != 0 {
				enc = enc[:len(enc)-1]
			}
			put(enc[min(skip, len(enc)):])
		}
		enc := e.EncodeToString([]byte(value))
		put(enc)
		put(e.WithPadding(base64.StdPadding).EncodeToString([]byte(value)))
		for _, width := range []int{64, 76} {
			for line := range slices.Chunk([]byte(enc), width) {
				if len(line) < len(enc) {
					put(string(line))
				}
			}
		}
	}
	put(hex.EncodeToString([]byte(value)))
	put(strings.ToUpper(hex.EncodeToString([]byte(value))))
}

// escapes gives put a text as it is and as the usual encoders write it. The output of others is found in the text
// without its escapes.
func escapes(s string, put func(string)) {
	put(s)
	if b, err := json.Marshal(s); err == nil {
		put(string(b[1 : len(b)-1]))
		// An encoder that leaves <, > and & alone.
		put(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(b[1 : len(b)-1])))
	}
	q := strconv.Quote(s)
	put(q[1 : len(q)-1])
	hcl := strings.NewReplacer("${", "$${", "%{", "%%{").Replace(s)
	put(hcl)
	put(html.EscapeString(s))
	put(strings.ReplaceAll(s, " ", "+"))
	for _, u := range []string{url.QueryEscape(s), url.PathEscape(s), strings.ReplaceAll(url.QueryEscape(s), "+", "%20")} {
		put(u)
		put(lowerHex(u))
	}
}

// lowerHex spells the digits after each % in lower case.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			b[i+1], b[i+2] = lower(b[i+1]), lower(b[i+2])
		}
	}
	return string(b)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'F' {
		c += 'a' - 'A'
	}
	return c
}

// spans returns the parts of b to be hidden, in order and without overlaps.
func (s *Set) spans(b []byte) []span {
	p := s.patterns.Load()
	if p == nil {
		return nil
	}
	found := p.raw.find(b, nil)
	if spelled(b) {
		sorted := len(found)
		found = p.plain.without(b, found)
		if len(found) > sorted {
			slices.SortFunc(found, func(x, y span) int { return x.from - y.from })
		}
	}
	return merge(found)
}

func merge(found []span) []span {
	if len(found) == 0 {
		return nil
	}
	out := found[:1]
	for _, next := range found[1:] {
		if last := &out[len(out)-1]; next.from <= last.end {
			last.end = max(last.end, next.end)
		} else {
			out = append(out, next)
		}
	}
	return out
}

// String returns a text with every value in it hidden. The text counts as whole: a value that
// goes on in another text is not found.
func (s *Set) String(text string) string {
	if s.patterns.Load() == nil {
		return text
	}
	b := []byte(text)
	found := s.spans(b)
	if len(found) == 0 {
		return text
	}
	return render(b, found, 0)
}

// render writes the marker in the place of each span, and behind it the end of colours if they changed within. The
// first covered bytes are left out: the marker before them stands for them.
func render(b []byte, found []span, covered int) string {
	var out strings.Builder
	out.Grow(len(b))
	at := covered
	for _, f := range found {
		if f.end <= at {
			continue
		}
		if f.from > at || covered == 0 {
			out.Write(b[at:f.from])
			out.WriteString(Marker)
			if colours(b[f.from:f.end]) {
				out.WriteString("\x1b[m") // shorter than any value
			}
		}
		at = f.end
	}
	out.Write(b[at:])
	return out.String()
}
