package mask_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

const (
	token = `tok_en/+"4f&<é> 100%` + "\t" + `\x${y}`
	key   = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\r\n  C7VJTUt9Us8cKj\nab\n-----END KEY-----\n"
)

func encodings(v string) map[string]string {
	marshal := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		return string(b[1 : len(b)-1])
	}
	all := func(s, format string) string {
		var out strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&out, format, c)
		}
		return out.String()
	}
	forms := map[string]string{
		"plain": v, "json": marshal(v), "json twice": marshal(marshal(v)), "go": strings.Trim(strconv.Quote(v), `"`),
		"slashes escaped": strings.ReplaceAll(marshal(v), "/", `\/`),
		"query":           url.QueryEscape(v), "path": url.PathEscape(v),
		"query lower": strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(v), "%2F", "%2f"), "%2B", "%2b"),
		"query twice": url.QueryEscape(url.QueryEscape(v)), "query in json": marshal(url.QueryEscape(v)), "json in query": url.QueryEscape(marshal(v)),
		"every byte of a url": all(v, "%%%02x"), "hex": hex.EncodeToString([]byte(v)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(v))),
		"html": html.EscapeString(v), "hcl": strings.ReplaceAll(v, "${", "$${"),
	}
	var utf16 strings.Builder
	for _, r := range v {
		if r > 0xffff {
			r -= 0x10000
			fmt.Fprintf(&utf16, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			continue
		}
		fmt.Fprintf(&utf16, `\u%04x`, r)
	}
	forms["every character of json"] = utf16.String()
	return forms
}

// sextets returns the characters of an encoded text that are made of v alone.
func sextets(e *base64.Encoding, before, v, after string) (text, core string) {
	text = e.EncodeToString([]byte(before + v + after))
	return text, text[(8*len(before)+5)/6 : 8*(len(before)+len(v))/6]
}

// A key inside of a JSON document is one line there, and many where a program reads it, or where the
// echo of a shell does. What only looks like a line end makes no common word a secret.
func TestString_HidesTheLinesThatAreWrittenInOne(t *testing.T) { // R6
	const body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"
	doc := `{"user":"robot","private_key":"-----BEGIN PRIVATE KEY-----\n` + body + `\r\nC7VJTUt9Us8cKjMzEfYyjiWA4R4\n-----END PRIVATE KEY-----\n"}`
	var s mask.Set
	s.Add(doc, `C:\new\name`)
	for in, want := range map[string]string{
		doc:                                "***",
		body:                               "***",
		"  " + body + "\r":                 "  ***\r",
		"C7VJTUt9Us8cKjMzEfYyjiWA4R4":      "***",
		"log in as robot, the name is new": "log in as ***, the name is new", // the name is in the document
	} {
		if got := s.String(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestString_HidesEveryForm(t *testing.T) { // R3
	var s mask.Set
	if got := s.Add(token); got != 0 {
		t.Fatalf("got %d that cannot be hidden, want 0", got)
	}
	for name, form := range encodings(token) {
		t.Run(name, func(t *testing.T) {
			if got, want := s.String("a: "+form+" end"), "a: *** end"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for before := range 4 {
			for after := range 4 {
				text, core := sextets(e, "user:"[:before], token, ":end"[:after])
				if got := s.String("Basic " + text); strings.Contains(got, core) || !strings.Contains(got, mask.Marker) {
					t.Errorf("%d bytes before, %d after: got %q of %q", before, after, got, text)
				}
			}
		}
	}
	if got, want := s.String(base64.StdEncoding.EncodeToString([]byte(token))), mask.Marker; got != want {
		t.Errorf("alone in base64: got %q, want %q", got, want)
	}
}

func TestString_HidesValuesThatTouchOrOverlap(t *testing.T) {
	var s mask.Set
	s.Add("alpha-beta", "beta-gamma", "delta")
	for in, want := range map[string]string{
		"alpha-beta-gamma":           "***",
		"x alpha-betabeta-gamma y":   "x *** y",
		"deltadelta delta":           "*** ***",
		"alpha-bet beta-gamm delt a": "alpha-bet beta-gamm delt a",
		"":                           "",
	} {
		if got := s.String(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestString_LeavesOtherTextAlone(t *testing.T) {
	var s mask.Set
	const text = "  + 100% of \\n C:\\new %zz %2"
	if got := s.String(text); got != text {
		t.Errorf("with no value: got %q", got)
	}
	s.Add(token, key)
	if got := s.String(text); got != text {
		t.Errorf("got %q, want %q", got, text)
	}
}

func TestAdd_SaysWhatIsTooShort(t *testing.T) {
	for _, test := range []struct {
		values []string
		want   int
	}{
		{[]string{"abc", " 12 \n"}, 2},
		{[]string{"a\nb\nc\nd"}, 1},
		{[]string{"", "\n", "abcd"}, 0},
		{[]string{"ab\nabcd"}, 0},
	} {
		if got := new(mask.Set).Add(test.values...); got != test.want {
			t.Errorf("%q: got %d, want %d", test.values, got, test.want)
		}
	}
}

// lines puts the writes through a Writer and joins the pieces of each line.
func lines(s *mask.Set, writes ...string) (out []string, pieces int) {
	more := false
	w := mask.NewWriter(s, func(text string, goesOn bool) {
		pieces++
		if more {
			out[len(out)-1] += text
		} else {
			out = append(out, text)
		}
		more = goesOn
	})
	for _, p := range writes {
		_, _ = w.Write([]byte(p))
	}
	w.Flush()
	return out, pieces
}

func TestWriter_LinesOfAMultiLineValue(t *testing.T) {
	var s mask.Set
	s.Add(key)
	got, _ := lines(&s, "key:\n"+strings.ReplaceAll(key, "\n", "\n    ")+"\nend")
	// A line of two characters is below the bound; the value's own indentation stays.
	want := []string{"key:", "***", "    ***", "      ***", "    ab", "    ***", "    ", "end"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWriter_Base64InLines(t *testing.T) {
	var s mask.Set
	v := strings.Repeat("0123456789abcdef", 20)
	s.Add(v)
	for _, width := range []int{64, 76} {
		enc := base64.StdEncoding.EncodeToString([]byte(v + "\n"))
		var text string
		for len(enc) > width {
			text += enc[:width] + "\n"
			enc = enc[width:]
		}
		got, _ := lines(&s, text)
		for _, l := range got {
			if l != mask.Marker {
				t.Errorf("width %d: got %q, want it hidden", width, l)
			}
		}
	}
}

func TestWriter_AValueSplitOverWritesIsHidden(t *testing.T) { // R3
	var s mask.Set
	s.Add(token)
	text := "one " + token + " two\nthree"
	for i := range text {
		for j := i; j < len(text); j += 7 {
			got, _ := lines(&s, text[:i], text[i:j], text[j:])
			if diff := cmp.Diff([]string{"one *** two", "three"}, got); diff != "" {
				t.Fatalf("cut at %d and %d: %s", i, j, diff)
			}
		}
	}
}

func TestWriter_AValueAcrossACutOfALongLineIsHidden(t *testing.T) {
	for _, value := range []string{token, strings.Repeat("k9", 700) + "end", strings.Repeat("abcdefgh", 9000)} {
		var s mask.Set
		s.Add(value)
		forms := encodings(value)
		if len(value) > 10_000 {
			forms = map[string]string{"plain": value} // shows that a value longer than a line is hidden
		}
		for name, form := range forms {
			for back := 0; back < 40; back += 13 {
				// The form begins before the cut and goes on behind it.
				before := strings.Repeat(".", max(0, mask.MaxLine-back*len(form)/39))
				got, pieces := lines(&s, before+form+" end")
				if want := before + "*** end"; len(got) != 1 || got[0] != want {
					t.Fatalf("%s of %d bytes, %d/39 before the cut: got %q", name, len(value), back, strings.ReplaceAll(fmt.Sprint(got), "....", ""))
				}
				if len(before)+len(form) > mask.MaxLine && pieces < 2 {
					t.Fatalf("got %d piece, want the line in pieces", pieces)
				}
			}
		}
	}
}

func TestWriter_PiecesAreBoundedAndWholeCharacters(t *testing.T) {
	text := strings.Repeat("é€", 200_000)
	var got strings.Builder
	w := mask.NewWriter(new(mask.Set), func(piece string, _ bool) {
		if len(piece) > mask.MaxLine {
			t.Errorf("got a piece of %d bytes", len(piece))
		}
		if strings.ToValidUTF8(piece, "?") != piece {
			t.Error("a character was cut")
		}
		got.WriteString(piece)
	})
	for _, p := range []string{text[:1], text[1:100_001], text[100_001:]} {
		_, _ = w.Write([]byte(p))
	}
	w.Flush()
	if got.String() != text {
		t.Error("text was lost")
	}
}

func TestWriter_ValueAddedWhileALineIsOpen(t *testing.T) {
	var s mask.Set
	var got []string
	w := mask.NewWriter(&s, func(text string, _ bool) { got = append(got, text) })
	_, _ = w.Write([]byte("a late-comer\r\na late-"))
	s.Add("late-comer")
	_, _ = w.Write([]byte("comer\r\n\n"))
	if diff := cmp.Diff([]string{"a late-comer", "a ***", ""}, got); diff != "" {
		t.Error(diff)
	}
}

// No value survives, whatever is around it and however it is cut. // R3
func FuzzWriter(f *testing.F) {
	f.Add("hunter22", "abc\ndefgh", "pass hunter22\n", uint64(1), uint16(3))
	f.Add(token, key, key+token, uint64(2), uint16(1))
	f.Add(`a\nb"c`, "%41%42", `\\\\a\nb\"c %2541`, uint64(3), uint16(70))
	f.Add("pässwört-ß", "{\"a\":\"inner text\"}", "\x1b[1m\x1b]0;x\b&quot;", uint64(4), uint16(9))
	f.Fuzz(func(t *testing.T, v1, v2, around string, seed uint64, long uint16) {
		if strings.Contains(v1+v2, "*") {
			t.Skip("part of the marker")
		}
		rnd := rand.New(rand.NewPCG(seed, 0))
		var s mask.Set
		s.Add(v1, v2)
		text := around
		things := []string{"\x1b[1m", "\x1b[m\x1b[K", "\x00", "\u200b", "\x1b]0;t\a", "\r"}
		thing := things[int(seed%uint64(len(things)))]
		var hidden, broken []string
		for _, v := range []string{v1, v2} {
			v = strings.TrimSpace(v)
			if len(v) >= mask.MinLength && utf8.ValidString(v) && !strings.ContainsAny(v, `\%&+`) && !strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsGraphic(r) }) {
				broken = append(broken, v)
				text += "\n" + strings.Join(strings.Split(v, ""), thing) + "\n"
				for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
					if form := utf16Of(v, order); !strings.Contains(form, "\n") {
						hidden = append(hidden, form)
						text += "\n" + form + "\n"
					}
				}
			}
			for l := range strings.Lines(v) {
				if l = strings.TrimSpace(l); len(l) >= mask.MinLength {
					hidden = append(hidden, l)
					text += "\n" + v + around
				}
			}
			if len(v) < mask.MinLength || len(hidden) == 0 || !strings.Contains(v, hidden[len(hidden)-1]) {
				continue
			}
			forms := encodings(v)
			for _, name := range []string{"json", "query", "path", "hex", "html"} {
				if !strings.Contains(forms[name], "\n") {
					hidden = append(hidden, forms[name])
				}
				text += around + forms[name]
			}
			for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				enc, core := sextets(e, around[:min(rnd.IntN(4), len(around))], v, around)
				hidden = append(hidden, core)
				text += " " + enc
			}
		}
		text = strings.Repeat("x", int(long)) + text + strings.Repeat(text, 2)
		var writes []string
		for rest := text; rest != ""; {
			n := min(1+rnd.IntN(1+rnd.IntN(5000)), len(rest))
			writes = append(writes, rest[:n])
			rest = rest[n:]
		}
		got, _ := lines(&s, writes...)
		for _, l := range got {
			for _, h := range hidden {
				if strings.Contains(l, h) {
					t.Fatalf("%q survives in %q", h, l)
				}
			}
			for _, v := range broken {
				if strings.Contains(strings.ReplaceAll(l, thing, ""), v) {
					t.Fatalf("%q survives with %q between in %q", v, thing, l)
				}
			}
		}
	})
}
