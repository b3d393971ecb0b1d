package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/text"
)

func TestCount_OneIsOne(t *testing.T) {
	for n, want := range map[int]string{0: "0 lines are", 1: "1 line is", 2: "2 lines are"} {
		if got := text.Are(n, "line"); got != want || !strings.HasPrefix(want, text.Count(n, "line")) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestMiddle_KeepsBothEnds(t *testing.T) {
	if got := text.Middle("short", 5); got != "short" {
		t.Errorf("got %q", got)
	}
	long := "what happened" + strings.Repeat(", é", 500) + ": and why"
	for most := 40; most < 200; most++ {
		got := text.Middle(long, most)
		if len(got) > most || !strings.HasPrefix(got, "what happened") || !strings.HasSuffix(got, "and why") || !utf8.ValidString(got) {
			t.Fatalf("%d bytes at most: got %q", most, got)
		}
	}
}
