package text_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/text"
)

func TestCount_OneIsOne(t *testing.T) {
	for n, want := range map[int]string{0: "0 lines are", 1: "1 line is", 2: "2 lines are"} {
		if got := text.Are(n, "line"); got != want || !strings.HasPrefix(want, text.Count(n, "line")) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for noun, want := range map[string]string{"delivery": "2 deliveries", "try": "2 tries", "day": "2 days"} {
		if got := text.Count(2, noun); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestMiddle_KeepsBothEnds(t *testing.T) {
	if got := text.Middle("short", 5); got != "short" {
		t.Errorf("got %q", got)
	}
	long := "what happened" + strings.Repeat(", é", 500) + ": and why"
	for limit := 40; limit < 200; limit++ {
		got := text.Middle(long, limit)
		if len(got) > limit || !strings.HasPrefix(got, "what happened") || !strings.HasSuffix(got, "and why") || !utf8.ValidString(got) {
			t.Fatalf("%d bytes at most: got %q", limit, got)
		}
	}
}

func TestCut_NeverSplitsACharacter(t *testing.T) {
	for limit, want := range map[int]string{8: "a€b€", 7: "a€...", 6: "a...", 5: "a...", 4: "a...", 3: "...", 0: "..."} {
		if got := text.Cut("a€b€", limit); got != want {
			t.Errorf("%d bytes: got %q, want %q", limit, got, want)
		}
	}
}

func TestHead_HasNoMark(t *testing.T) {
	for limit, want := range map[int]string{9: "a€b?€", 8: "a€b?", 4: "a€", 3: "a", 0: ""} {
		if got := text.Head("a€b\xff€", limit); got != want {
			t.Errorf("%d bytes: got %q, want %q", limit, got, want)
		}
	}
}

func TestQuote_ShowsWhatIsNoText(t *testing.T) {
	for s, want := range map[string]string{"a\nb\xff": `"a\nb\xff"`, "ab€defghi": `"ab€..."`} {
		if got := text.Quote(s, 8); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestWithoutEscapes(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                              "plain",
		"\x1b[31m\x1b[1mred\x1b[0m and more": "red and more",
		"a\x1b]8;;http://x\x07link\x1b\\b":   "alinkb",
		"no end \x1b[12":                     "no end ",
		"\x1b":                               "",
	} {
		if got := text.WithoutEscapes(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestAgo_TakesDurationsAndDays(t *testing.T) {
	for in, want := range map[string]time.Duration{"90m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0d": 0, "99999d": 99999 * 24 * time.Hour} {
		if got, ok := text.Ago(in); !ok || got != want {
			t.Errorf("%q: got %s, %v, want %s", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "d", "-1d", "-2h", "100000d", "1.5d", "soon"} {
		if got, ok := text.Ago(in); ok {
			t.Errorf("%q was taken for %s", in, got)
		}
	}
}
