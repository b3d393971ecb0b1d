package record_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

var at = time.Date(2026, 11, 22, 9, 0, 0, 123_000_000, time.UTC)

func TestPackLines_ComeBack(t *testing.T) {
	var many []api.LogLine
	for n := range 3000 {
		many = append(many, api.LogLine{At: at.Add(time.Duration(n*n%977) * time.Millisecond), Step: []string{"plan", "apply", ""}[n/7%3], Text: fmt.Sprint("line ", n), More: n%5 == 0})
	}
	for name, lines := range map[string][]api.LogLine{
		"none":             {},
		"one":              {{At: at, Step: "plan", Text: "a line"}},
		"without a time":   {{Text: "x"}},
		"odd texts":        {{At: at, Text: "a\nb\r\x00"}, {At: at.Add(-time.Hour), Text: "é☂\U0010FFFF", More: true}, {At: at}},
		"many":             many,
		"as long as lines": {{At: at, Step: strings.Repeat("s", api.MaxLogStep), Text: strings.Repeat("x", api.MaxLogText)}},
	} {
		got, err := record.UnpackLines(record.PackLines(lines))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if d := cmp.Diff(lines, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	// Times are kept to the millisecond, and bytes that are not text become so.
	got, err := record.UnpackLines(record.PackLines([]api.LogLine{{At: at.Add(999 * time.Microsecond), Text: "a\xff\xfeb"}}))
	if err != nil || !got[0].At.Equal(at) || got[0].Text != "a?b" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestChunk_ComesBack(t *testing.T) {
	for name, want := range map[string]record.Chunk{
		"lines":   {First: 7, Next: 12, Bytes: 1 << 30, Lines: []byte{0, 1, 2}},
		"a blob":  {First: 0, Next: 1, Blob: record.BlobName(90, "wf_1", 1, []byte("x"))},
		"the end": {First: 99_999_999_999, Next: 100_000_000_000, Bytes: 5, Full: true, Lines: []byte("x")},
	} {
		r := want.Encode("wf_1", 3)
		if r.Key != record.LogKey("wf_1", 3, want.First) {
			t.Errorf("%s: it lies at %s", name, r.Key)
		}
		got, err := record.DecodeChunk(r)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}
}

func TestUnpackLines_RefusesABomb(t *testing.T) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if lines, err := record.UnpackLines(b.Bytes()); err == nil {
		t.Errorf("got %d lines, want it refused", len(lines))
	}
}

// A record or a blob may have been written by anybody: it is refused or has lines within their bounds.
func FuzzUnpackLines(f *testing.F) {
	f.Add(record.PackLines([]api.LogLine{{At: at, Step: "plan", Text: "a line", More: true}, {At: at, Text: "b"}}))
	f.Add(record.PackLines(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, err := record.UnpackLines(b)
		if err != nil {
			return
		}
		if _, err := json.Marshal(lines); err != nil {
			t.Errorf("they cannot be sent: %v", err)
		}
		again, err := record.UnpackLines(record.PackLines(lines))
		if d := cmp.Diff(lines, again); err != nil || d != "" {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
	})
}

func FuzzDecodeChunk(f *testing.F) {
	f.Add(record.Chunk{First: 5, Next: 7, Bytes: 99, Lines: []byte("x")}.Encode("wf", 1).Value)
	f.Add(record.Chunk{First: 5, Next: 7, Blob: "logs/a"}.Encode("wf", 1).Value)
	f.Add([]byte(`[{"text":"x"}]`))
	f.Fuzz(func(t *testing.T, value []byte) {
		c, err := record.DecodeChunk(store.Record{Key: record.LogKey("wf", 1, 5), Value: value})
		if err == nil && (c.First != 5 || c.Next < c.First || c.Bytes < 0) {
			t.Errorf("got %+v", c)
		}
	})
}
