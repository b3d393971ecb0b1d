package term_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestClean_NothingThatDrivesATerminalIsLeft(t *testing.T) {
	for in, want := range map[string]string{
		"plain é ✓\ttext":                          "plain é ✓\ttext",
		"\x1b[31mred\x1b[0m":                       "red",
		"\x1b]0;title\x07after":                    "after",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
		"\x1bPdevice\x1b\\x":                       "x",
		"over\rwrite\b\x00\r\n":                    "over write",
		"two\r\n\nlines":                           "two lines",
		"pay\u034f\u061c\u115f\u3164\U000e0061pal": "pay[U+034F][U+061C][U+115F][U+3164][U+E0061]pal",
		"\u200d👩\u200d🚀 می\u200cخواهم":             "[U+200D]👩\u200d🚀 می\u200cخواهم",
		"\x1b(B\x1b[mtput":                         "tput",
		"\x1b[2J\x1b":                              "",
		"\x1b[12":                                  "",
		"a\u202eb\u0085c":                          "a[U+202E]b c",
	} {
		if got := term.Clean(in); got != want {
			t.Errorf("Clean(%q): got %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[1mb\x1b]0;x\x07")
	f.Fuzz(func(t *testing.T, s string) {
		got := term.Clean(s)
		if strings.ContainsAny(got, "\x1b\x07\r\b\n\x00") {
			t.Errorf("Clean(%q) = %q", s, got)
		}
		if again := term.Clean(got); again != got {
			t.Errorf("Clean is not stable: %q, then %q", got, again)
		}
	})
}

func TestTable_ColumnsLineUpWithColoursToo(t *testing.T) {
	table := term.NewTable("ID", "STATE", "NOTE")
	style := term.Style{Color: true}
	table.Row("1", style.State(string(workflow.Succeeded)), "é")
	table.Row("22", style.State(string(workflow.Failed)), "b")
	var b bytes.Buffer
	if err := table.Write(&b, style, "none"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, term.Clean(line))
	}
	want := []string{"ID  STATE      NOTE", "1   succeeded  é", "22  failed     b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := term.NewTable("ID").Write(&b, term.Style{}, "no pools"); err != nil || b.String() != "no pools\n" {
		t.Errorf("got %q, %v for an empty table", b.String(), err)
	}
}

func TestTable_FitsTheTerminal(t *testing.T) {
	for width, want := range map[int][]string{
		0:  {"POOL               BY     DESCRIPTION", "a-long-name-of-it  ann b  the runners of the network in Frankfurt"},
		53: {"POOL               BY     DESCRIPTION", "a-long-name-of-it  ann b  the runners of the network…"},
		20: {"POOL               BY     DESCRIPTION", "a-long-name-of-it  ann b  the runners of the netwo…"},
	} {
		table := term.NewTable("POOL", "BY", "DESCRIPTION")
		table.Row("a-long-name-of-it", "ann b", "the runners of the network in Frankfurt")
		var b bytes.Buffer
		if err := table.Write(&b, term.Style{Width: width}, ""); err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"); !slices.Equal(got, want) {
			t.Errorf("at %d columns: got\n%s", width, b.String())
		}
	}
}

func TestStyleOf_NoColoursAndNoLiveLineOutsideATerminal(t *testing.T) {
	got := term.StyleOf(&bytes.Buffer{}, os.Getenv)
	if got != (term.Style{}) {
		t.Errorf("got %+v for a buffer, want none", got)
	}
	if text := got.State(string(workflow.Failed)) + got.Bold("x") + got.Dim("y"); text != "failedxy" {
		t.Errorf("got %q, want no escape sequences", text)
	}
}

func TestLive_StatusIsDrawnOnlyOnATerminal(t *testing.T) {
	for live, want := range map[bool]string{
		false: "one\ntwo parts\n",
		true:  "work\r\x1b[Kone\nwork\r\x1b[Ktwo parts\nwork\r\x1b[K",
	} {
		var b bytes.Buffer
		l := term.NewLive(&b, term.Style{Live: live, Width: 5})
		l.Status("working hard")
		l.Line("one")
		l.Text("two ", false)
		l.Text("parts", true)
		l.Status("")
		if got := b.String(); got != want {
			t.Errorf("live %v: got %q, want %q", live, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0s", 1234 * time.Millisecond: "1.2s", 12 * time.Second: "12s", 75 * time.Second: "1m15s",
		125 * time.Minute: "2h05m", 72 * time.Hour: "3d", -75 * time.Second: "-1m15s",
	} {
		if got := text.Duration(d); got != want {
			t.Errorf("Duration(%s): got %q, want %q", d, got, want)
		}
	}
}

func TestReadSecret_TakesAllOfAPipeLessOneLineEnd(t *testing.T) {
	for in, want := range map[string]string{"a\n": "a", "a\r\n": "a", "a": "a", "a\nb\n\n": "a\nb\n", " a ": " a "} {
		got, err := term.ReadSecret(t.Context(), strings.NewReader(in), &bytes.Buffer{}, "value", 100)
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "\n", strings.Repeat("x", 101), strings.Repeat("x", 5000)} {
		if got, err := term.ReadSecret(t.Context(), strings.NewReader(in), &bytes.Buffer{}, "value", 100); err == nil {
			t.Errorf("%d bytes: got %d bytes, want a refusal", len(in), len(got))
		}
	}
}

func TestColoured_KeepsColoursAndNothingElse(t *testing.T) {
	color := term.Style{Color: true}
	for in, want := range map[string]string{
		"plain":                                 "plain",
		"\x1b[32m  + add\x1b[0m":                "\x1b[32m  + add\x1b[0m\x1b[0m",
		"\x1b[1;38;5;208mx":                     "\x1b[1;38;5;208mx\x1b[0m",
		"\x1b[38;2;1;2;3mx":                     "\x1b[38;2;1;2;3mx\x1b[0m",
		"\x1b[mx":                               "\x1b[mx\x1b[0m",
		"\x1b[8mhidden":                         "hidden",
		"\x1b[1;8mhidden":                       "hidden",
		"\x1b[2K\x1b[1Ax\r\x07":                 "x",
		"\x1b]0;title\x07x":                     "x",
		"\x1b[31;1Hx\x1b[?25lx":                 "xx",
		"\x1b[31":                               "",
		"\u202e\x1b[31mx\x1b]8;;http://x\x1b\\": "[U+202E]\x1b[31mx\x1b[0m",
		"10%\r\x1b[32m20%\x1b[K\r":              "\x1b[32m20%\x1b[0m",
	} {
		if got := color.Coloured(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		if got := (term.Style{}).Coloured(in); strings.Contains(got, "\x1b") {
			t.Errorf("%q where colours are not wanted: got %q", in, got)
		}
	}
}
