package mask_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"html"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

// between are things that a terminal does not show, or not as a character.
func between() map[string]string {
	all := map[string]string{
		"grep begins": "\x1b[01;31m\x1b[K", "grep ends": "\x1b[m\x1b[K", "erase": "\x1b[2K", "cursor": "\x1b[12;40H", "private": "\x1b[?25l",
		"tput sgr0": "\x1b(B\x1b[m", "save": "\x1b7", "title": "\x1b]0;a title\a", "title with ST": "\x1b]2;a title\x1b\\",
		"link": "\x1b]8;;https://example.com/a%20b\x1b\\", "DCS": "\x1bPq#0\x1b\\", "CSI of C1": "\u009b1m", "OSC of C1": "\u009d0;t\u009c", "NEL": "\u0085",
		"nulls within": "\x1b\x00[\x001\x00m", "escape alone twice": "\x1b\x1b[m", "DEL": "\x7f", "soft hyphen": "\u00ad", "zero width": "\u200b",
		"joiner": "\u2060", "mark": "\ufeff", "direction": "\u202e", "variant": "\ufe0f", "grapheme joiner": "\u034f",
		"Arabic mark": "\u061c", "Hangul filler": "\u115f", "another filler": "\u3164", "tag": "\U000e0061", "Mongolian variant": "\u180b", "plane 14 variant": "\U000e0100", "many": strings.Repeat("\x1b[1m", 30),
	}
	for c := range 0x20 {
		if c != '\n' && c != 0x1b {
			all[fmt.Sprintf("%#02x", c)] = string(rune(c))
		}
	}
	return all
}

func TestWriter_HidesWhatControlCharactersCut(t *testing.T) { // R6
	for _, value := range []string{"hunter22", `pa"ss\w&o rd`, "pässwört-ß", token} {
		var s mask.Set
		s.Add(value)
		forms := encodings(value)
		for name, thing := range between() {
			for _, form := range []string{"plain", "json", "query", "html", "hex"} {
				for at := range forms[form] {
					if at == 0 || form != "plain" && strings.ContainsAny(forms[form][max(0, at-10):at], `%\&`) {
						continue // perhaps within an escape
					}
					text := "a " + forms[form][:at] + thing + forms[form][at:] + " end"
					if got, _ := lines(&s, text); strings.ReplaceAll(strings.Join(got, "|"), "\x1b[m", "") != "a *** end" {
						t.Fatalf("%s in %s at %d: got %q of %q", name, form, at, got, text)
					}
				}
				var all strings.Builder
				for _, c := range forms["plain"] {
					all.WriteString(string(c) + thing)
				}
				if got, _ := lines(&s, "a "+all.String()+"end"); !strings.HasPrefix(got[0], "a ***") || !strings.HasSuffix(strings.TrimSuffix(got[0], thing+"end"), mask.Marker) && !strings.HasSuffix(strings.TrimSuffix(got[0], thing+"end"), "\x1b[m") {
					t.Fatalf("%s after each character: got %q", name, got)
				}
			}
		}
	}
}

// What stands beside what is hidden stays, and a colour that ends within it ends.
func TestString_LeavesColoursAlone(t *testing.T) {
	var s mask.Set
	s.Add("hunter22")
	for in, want := range map[string]string{
		"\x1b[01;31m\x1b[Khunt\x1b[m\x1b[Ker22 and on":                          "\x1b[01;31m\x1b[K***\x1b[m and on",
		"\x1b[1mthe \x1b[32mhunter22\x1b[0m is green\x1b[0m":                    "\x1b[1mthe \x1b[32m***\x1b[0m is green\x1b[0m",
		"\x1b[32m~\x1b[0m &amp; \ttab \u200b%41 100% \\n \x00 b":                "\x1b[32m~\x1b[0m &amp; \ttab \u200b%41 100% \\n \x00 b",
		"\x1b[31m│\x1b[0m \x1b[0m  1: x = \x1b[4mhunt\x1b[0m\x1b[0mer22\x1b[0m": "\x1b[31m│\x1b[0m \x1b[0m  1: x = \x1b[4m***\x1b[m\x1b[0m",
		"no hunter 22 here\x1b[m":                                               "no hunter 22 here\x1b[m",
		"\x1b[31hunter22 and \x1bhunter22":                                      "\x1b[31*** and \x1b***",
		"\x1b]8;;http://x/?p=hunt&#101;r22\x1b\\link\x1b]8;;\x1b\\":             "\x1b]8;;http://x/?p=***\x1b\\link\x1b]8;;\x1b\\",
		"\x1b]0;no end: hunt%65r22":                                             "\x1b]0;no end: ***",
	} {
		if got := s.String(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// Bold in a manual page is a character, a backspace and the character again.
func TestString_HidesWhatIsPrintedOver(t *testing.T) {
	var s mask.Set
	s.Add("hunter-22", "ülü-secret")
	for in, want := range map[string]string{
		"a h\bhu\bun\bnt\bte\ber\br-\b-2\b22\b2 z": "a *** z",
		"a _\bh_\bu_\bn_\bt_\be_\br_\b-_\b2_\b2 z": "a *** z",
		"a hunx\bter-22 z":                         "a *** z",
		"a hunter-2\b22 z":                         "a *** z",
		"a ü\bül\blü\bü-\b-secret z":               "a *** z",
		"\b\b\b a hunter-22":                       "\b\b\b a ***",
	} {
		if got := s.String(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func utf16Of(s string, order binary.AppendByteOrder) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

func TestWriter_HidesUTF16(t *testing.T) { // R6
	// The code units of the last have the byte of a newline.
	for _, value := range []string{"hunter22", "pässwört-ß", "日本語の秘密", "😀-secret-😀", "seĊret-longĊ-value"} {
		var s mask.Set
		s.Add(value)
		for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
			for _, mark := range []string{"", "\ufeff"} {
				form := utf16Of(value, order)
				out, _ := lines(&s, utf16Of(mark+"is: ", order)+form+utf16Of("\nend", order))
				got := strings.Join(out, "\n")
				for piece := range bytes.SplitSeq([]byte(form), []byte{'\n'}) {
					if len(piece) >= 8 && strings.Contains(got, string(piece)) || !strings.Contains(got, "e\x00n\x00d") && !strings.Contains(got, "\x00e\x00n\x00d") {
						t.Errorf("%q in %s endian: got %q", value, name, got)
					}
				}
				if !strings.Contains(got, mask.Marker) {
					t.Errorf("%q in %s endian: nothing is hidden in %q", value, name, got)
				}
			}
		}
	}
}

func TestString_HidesCharacterReferences(t *testing.T) { // R6
	const value = `a"b'c&d<e>f-é`
	var s mask.Set
	s.Add(value)
	every := func(format string) string {
		var b strings.Builder
		for _, r := range value {
			fmt.Fprintf(&b, format, r)
		}
		return b.String()
	}
	for _, form := range []string{
		"a&quot;b&#39;c&amp;d&lt;e&gt;f-é", "a&#34;b&apos;c&#38;d&#60;e&#62;f-é", "a&#x22;b&#x27;c&#x26;d&#X3C;e&#x03e;f-&#233;",
		every("&#%d;"), every("&#x%X;"), every("&#x%06x;"), html.EscapeString(html.EscapeString(value)), html.EscapeString(every("&#%d;")),
		`a\u0026quot;b&#39;c&amp;d&lt;e&gt;f-é`, "a&qu\x1b[mot;b'c&amp;d<e>f-é",
	} {
		if got := strings.ReplaceAll(s.String("x "+form+" &amp; y"), "\x1b[m", ""); got != "x *** &amp; y" {
			t.Errorf("%q: got %q", form, got)
		}
	}
	for _, plain := range []string{"&", "&;", "&#;", "&#x;", "&#99999999;", "&#xD800;", "&unknown;", "a && b &copy; ?a=1&b=2"} {
		if got := s.String(plain); got != plain {
			t.Errorf("%q: got %q", plain, got)
		}
	}
}

func TestString_HidesCombinations(t *testing.T) { // R6
	const value = `one"two\three four+five`
	var s mask.Set
	s.Add(value)
	for _, form := range []string{
		`one\"two\\thr` + "\x1b[m" + `ee four+five`,            // an escape sequence in a string of JSON
		`one\` + "\x1b[1m" + `"two\\three four+five`,           // and in an escape of it
		`one\"two\\thr\u001b[0mee four+five`,                   // spelled in JSON
		`one\"two\\thr\\u001b[0mee\\u0000 four+five`,           // and again
		"one%22two%5Cthr%1b%5B0mee+four%2Bfive",                // in a URL
		"one&quot;two\\thr&#27;[31mee four+five",               // in HTML
		"one\x1b]0;t\x1b\\%22two\\three\x00%20four\u200b+five", // mixed
	} {
		if got := strings.ReplaceAll(s.String("x "+form+" y"), "\x1b[m", ""); got != "x *** y" {
			t.Errorf("%q: got %q", form, got)
		}
	}
}

// A line that is cut is cut before an escape sequence, not within it, and what the sequence cuts stays hidden.
func TestWriter_ControlSequencesAcrossCutsAndWrites(t *testing.T) {
	var s mask.Set
	s.Add("hunter22")
	for _, thing := range []string{"\x1b[01;31m", "\x1b]0;a title\x1b\\", "\x1b]8;;" + strings.Repeat("u", 900) + "\a", "\u009b1m", "&#104;"} {
		for back := 0; back < len(thing)+12; back += 1 + len(thing)/40 {
			before := strings.Repeat(".", mask.MaxLine-back)
			text := before + "hunt" + thing + "er22" + strings.Repeat(",", 40_000)
			if thing == "&#104;" {
				text = before + thing + "unter22" + strings.Repeat(",", 40_000)
			}
			var got []string
			w := mask.NewWriter(&s, func(piece string, _ bool) { got = append(got, piece) })
			_, _ = w.Write([]byte(text[:mask.MaxLine-3]))
			_, _ = w.Write([]byte(text[mask.MaxLine-3 : mask.MaxLine+2]))
			_, _ = w.Write([]byte(text[mask.MaxLine+2:]))
			w.Flush()
			if all := strings.ReplaceAll(strings.Join(got, ""), "\x1b[m", ""); strings.Trim(all, ".,") != mask.Marker {
				t.Fatalf("%q, %d before the cut: got %q", thing, back, strings.Trim(all, ".,"))
			}
		}
		// Text between sequences: no piece begins within one.
		for back := 1; back < len(thing); back += 1 + len(thing)/40 {
			before := strings.Repeat(".", mask.MaxLine-back)
			var got []string
			w := mask.NewWriter(&s, func(piece string, _ bool) { got = append(got, piece) })
			_, _ = w.Write([]byte(before + thing + strings.Repeat(",", 40_000)))
			w.Flush()
			if got[0] != before || strings.Join(got, "") != before+thing+strings.Repeat(",", 40_000) {
				t.Fatalf("%q, %d before the cut: the first piece ends with %q", thing, back, strings.TrimLeft(got[0], "."))
			}
		}
	}
	text := "a hunt\x1b[01;31m\x1b[Ker22\x1b]0;t\x1b\\ z"
	for i := range text {
		if got, _ := lines(&s, text[:i], text[i:]); len(got) != 1 || got[0] != "a ***\x1b[m\x1b]0;t\x1b\\ z" {
			t.Fatalf("split at %d: got %q", i, got)
		}
	}
}
