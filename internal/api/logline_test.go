package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
)

func TestLogLine_ShortFormIsReadBack(t *testing.T) {
	at := time.Date(2026, 11, 21, 9, 0, 0, 123456789, time.UTC)
	want := []api.LogLine{
		{At: at, Step: "apply", Text: "a line"}, {At: at}, {At: at, Text: strings.Repeat("é", api.MaxLogText/2), More: true},
	}
	var b []byte
	for _, l := range want {
		b = l.Append(b)
	}
	var got []api.LogLine
	for len(b) > 0 {
		l, n, err := api.ParseLogLine(b)
		if err != nil || n == 0 {
			t.Fatalf("after %d lines: %v", len(got), err)
		}
		for cut := range min(n, 100) { // a part of a line is none yet
			if _, n, err := api.ParseLogLine(b[:cut]); n != 0 || err != nil {
				t.Fatalf("%d bytes of %d are read as a line: %v", cut, n, err)
			}
		}
		got, b = append(got, l), b[n:]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestLogBatch_FitsIntoACall(t *testing.T) {
	long, short := api.LogLine{Text: strings.Repeat("<", api.MaxLogText)}, api.LogLine{Text: "x"}
	for name, c := range map[string]struct {
		lines []api.LogLine
		want  int
	}{
		"none":                       {nil, 0},
		"one that is too long alone": {[]api.LogLine{long, short}, 1},
		"a few":                      {[]api.LogLine{short, short, long}, 2},
		"very many":                  {make([]api.LogLine, 2*api.MaxLogLines), api.MaxLogBatch / 96},
	} {
		if got := api.LogBatch(c.lines); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// Files in the spool of a container may be the engine's.
func FuzzParseLogLine(f *testing.F) {
	f.Add(api.LogLine{At: time.Unix(1, 2), Step: "apply", Text: "a line", More: true}.Append(nil))
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1})
	f.Add([]byte{2, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add([]byte{2, 0, 1, 0xff, 1, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, n, err := api.ParseLogLine(b)
		if n < 0 || n > len(b) || err != nil && n != 0 {
			t.Fatalf("%d of %d bytes, %v", n, len(b), err)
		}
		if n == 0 {
			return
		}
		if len(l.Text) > api.MaxLogText || len(l.Step) > api.MaxLogStep || !utf8.ValidString(l.Text) || !utf8.ValidString(l.Step) {
			t.Errorf("a line beyond its bounds: %d bytes of text in %q", len(l.Text), l.Step)
		}
		if _, err := json.Marshal(l); err != nil {
			t.Errorf("it cannot be sent: %v", err)
		}
	})
}

func pack(t testing.TB, text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack_RefusesWhatIsTooMuch(t *testing.T) {
	one := api.LogLine{Text: "x"}.Append(nil)
	for name, c := range map[string]struct {
		tail api.LogTail
		ok   bool
	}{
		"a line":           {api.LogTail{First: 7, Lines: pack(t, one)}, true},
		"no line":          {api.LogTail{Lines: pack(t, nil)}, true},
		"not compressed":   {api.LogTail{Lines: one}, false},
		"before the log":   {api.LogTail{First: -1, Lines: pack(t, one)}, false},
		"half a line":      {api.LogTail{Lines: pack(t, one[:len(one)-1])}, false},
		"cut off":          {api.LogTail{Lines: pack(t, one)[:20]}, false},
		"a bomb":           {api.LogTail{Lines: pack(t, make([]byte, 64<<20))}, false},
		"a bomb of lines":  {api.LogTail{Lines: pack(t, bytes.Repeat(one, 1<<20))}, false},
		"beyond the limit": {api.LogTail{Lines: make([]byte, api.MaxLogTail+1)}, false},
	} {
		lines, err := c.tail.Unpack()
		if (err == nil) != c.ok {
			t.Errorf("%s: %d lines, %v", name, len(lines), err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(int64(0), pack(f, api.LogLine{Text: "x"}.Append(nil)))
	f.Add(int64(-1), []byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, first int64, b []byte) {
		lines, err := api.LogTail{First: first, Lines: b}.Unpack()
		weight := int64(0)
		for _, l := range lines {
			weight += l.Weight()
		}
		if err == nil && (weight > api.MaxLogTailText || first < 0) {
			t.Errorf("%d bytes of lines from %d on", weight, first)
		}
	})
}
