package dynamodb

import (
	"cmp"
	"testing"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/store"
)

var oddTexts = []string{"", "a", "wf/abc|ev/0001", "\x00", "\x00\x01", "\x01", "\x01\x01", "\x02", "\x7f", "\x80", "\xff", "é", "☂", "a\x00\x01b\x00\xff", "\xed\xa0\x80"}

func FuzzEncode(f *testing.F) {
	for i, a := range oddTexts {
		f.Add(a, oddTexts[(i+1)%len(oddTexts)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		ea, eb := encode(a), encode(b)
		if got, want := cmp.Compare(ea, eb), cmp.Compare(a, b); got != want {
			t.Errorf("texts of %q and %q compare %d, want %d", a, b, got, want)
		}
		if !utf8.ValidString(ea) || len(ea) != store.SortSize(a) {
			t.Errorf("text of %q is %q: want valid UTF-8 of %d bytes", a, ea, store.SortSize(a))
		}
		if back, err := decode(ea); err != nil || back != a {
			t.Errorf("decode(encode(%q)) = %q, %v", a, back, err)
		}
	})
}

// An item may have been written by anybody: a text is either refused or the only spelling of its key.
func FuzzDecode(f *testing.F) {
	for _, s := range append(oddTexts, "\x01\x03", "\x01", "a\x01", "\u0100", "\uFFFD") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := decode(text)
		if err == nil && encode(key) != text {
			t.Errorf("%q was taken for %q", text, key)
		}
	})
}
