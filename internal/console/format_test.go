package console_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/console"
)

func TestClean_ShowsWhatHides(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"plain, naïve, 日本語 🚀":       "plain, naïve, 日本語 🚀",
		"a\tb\nc":                   "a\tb\nc",
		"a\x00b\x1b[31m\rc\x7f":     "a␀b␛[31m␍c[U+007F]",
		"not \xff text":             "not \uFFFD text",
		"safe\u202egnp.exe":         "safe[U+202E]gnp.exe",
		"pro\u200bd":                "pro[U+200B]d",
		"pro\u200dd":                "pro[U+200D]d",
		"\u2066x\u2069\u2028\ufeff": "[U+2066]x[U+2069][U+2028][U+FEFF]",
		"👩\u200d🚀 می\u200cخواهم":    "👩\u200d🚀 می\u200cخواهم",
		"\u200e\u200d":              "[U+200E][U+200D]",
		"soft\u00adhyphen\u3164":    "soft[U+00AD]hyphen[U+3164]",
		"\U000e0041\u0085":          "[U+E0041][U+0085]",
	} {
		if got := console.Clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestRelative_HasOneUnit(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		-900 * time.Millisecond: "just now", 1900 * time.Millisecond: "just now", 28900 * time.Millisecond: "28s ago", 67 * time.Second: "1m ago",
		3*time.Hour + 59*time.Minute: "3h ago", 47 * time.Hour: "47h ago", 2 * day: "2d ago", -30 * time.Second: "in 30s", -2*day - time.Hour: "in 2d",
	} {
		if got := console.Relative(noon.Add(-d), noon); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
}

func TestLong_IsNeverNothing(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "<0.1s", 49 * time.Millisecond: "<0.1s", 50 * time.Millisecond: "0.1s", 67 * time.Second: "1m07s"} {
		if got := console.Long(d); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a\x00\u202e\u200db", "\xff\xfe", "👩\u200d🚀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := console.Clean(s)
		if !utf8.ValidString(got) || got != console.Clean(got) {
			t.Fatalf("%q became %q, which is not clean", s, got)
		}
		if i := strings.IndexFunc(got, func(r rune) bool {
			return unicode.IsControl(r) && r != '\t' && r != '\n' || unicode.Is(unicode.Bidi_Control, r)
		}); i >= 0 {
			t.Fatalf("%q became %q, which has a control character at byte %d", s, got, i)
		}
	})
}
