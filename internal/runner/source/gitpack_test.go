package source_test

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	packBlob  = 3
	packDelta = 6 // of an object before it in the pack

	packRefDelta = 7 // of an object that it names by its hash
)

// varint is a number as a pack has it: the lowest bits first, of which the first byte holds fewer.
func varint(n uint64, first uint, kind byte) []byte {
	b := []byte{kind<<4 | byte(n&(1<<first-1))}
	for n >>= first; n > 0; n >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(n&0x7f))
	}
	return b
}

// packed is an object of a pack. Its size is what the pack says of it.
func packed(kind byte, size uint64, content []byte) []byte {
	b := varint(size, 4, kind)
	if kind == packDelta {
		b = append(b, 1) // the distance of its base, which is read only when it is resolved
	}
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(content)
	_ = w.Close()
	return append(b, z.Bytes()...)
}

// delta begins as a delta does that makes an object of one size into one of another.
func delta(from, to uint64) []byte { return append(varint(from, 7, 0), varint(to, 7, 0)...) }

func pack(count uint32, objects ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("PACK"), 2), count)
	return append(b, bytes.Join(objects, nil)...)
}

// R2: what a pack says of its objects is checked before they are inflated.
func TestWeigh_RefusesObjectsBeforeTheyAreInflated(t *testing.T) {
	small := packed(packBlob, 5, []byte("small"))
	half := func(object []byte) []byte { return object[:5] } // its size, and nothing to inflate
	changes := func(from, to uint64) []byte { d := delta(from, to); return packed(packDelta, uint64(len(d)), d) }
	for name, tc := range map[string]struct {
		pack    []byte
		refused bool
	}{
		"small ones":        {pack(2, small, small), false},
		"a large one":       {pack(2, small, packed(packBlob, 1001, nil)), true},
		"not inflated":      {pack(1, half(packed(packBlob, 3<<30, nil))), true},
		"a delta to large":  {pack(2, small, changes(5, 3<<30)), true},
		"a delta of large":  {pack(2, small, changes(1001, 5)), true},
		"a delta to 2^63":   {pack(2, small, changes(5, 1<<63)), true},
		"a delta":           {pack(2, small, changes(5, 1000)), false},
		"too many":          {pack(11, small), true},
		"as many as may be": {pack(10, bytes.Repeat(small, 10)), false},
	} {
		err := source.Weigh(t.Context(), bytes.NewReader(tc.pack), 10, 1000)
		if errors.Is(err, workflow.ErrTooLarge) != tc.refused || err != nil && !tc.refused {
			t.Errorf("%s: got %v", name, err)
		}
	}
	liar := pack(1, packed(packBlob, 5, make([]byte, 1<<20)))
	if err := source.Weigh(t.Context(), bytes.NewReader(liar), 10, 1000); err == nil {
		t.Error("an object was inflated beyond the size that the pack says")
	}
}

// To make the last of a chain of deltas, all of it is held in memory: a pack of some kilobytes would take gigabytes.
func TestWeigh_RefusesAChainOfLargeObjects(t *testing.T) {
	large := packed(packBlob, 900, make([]byte, 900))
	chain := func(n, size int, ref bool) []byte {
		objects, before := [][]byte{large}, len(large)
		for range n - 1 {
			d := delta(uint64(size), uint64(size))
			o := append(varint(uint64(len(d)), 4, packDelta), 0x80|byte(before>>7-1), byte(before&0x7f))
			if ref {
				o = append(varint(uint64(len(d)), 4, packRefDelta), make([]byte, 20)...)
			} else if before < 0x80 {
				o = append(varint(uint64(len(d)), 4, packDelta), byte(before))
			}
			o = append(o, packed(packBlob, 1, d)[1:]...)
			objects, before = append(objects, o), len(o)
		}
		return pack(uint32(n), objects...)
	}
	for name, tc := range map[string]struct {
		pack    []byte
		refused bool
	}{
		"a short chain":         {chain(3, 900, false), false},
		"a long chain":          {chain(4, 900, false), true},
		"a long one of small":   {chain(10, 9, false), false},
		"of too many small":     {chain(90, 40, false), true},
		"named by hash":         {chain(5, 900, true), true},
		"many, but not a chain": {pack(9, bytes.Repeat(large, 9)), false},
	} {
		err := source.Weigh(t.Context(), bytes.NewReader(tc.pack), 100, 1000)
		if errors.Is(err, workflow.ErrTooLarge) != tc.refused || err != nil && !tc.refused {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFetch_GitRefusesAHugeObject(t *testing.T) {
	needGit(t)
	base := t.TempDir()
	r := newRepository(t, filepath.Join(base, "bomb.git"))
	r.set(plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main"))
	r.commit("main", file("main.tf", "1"), file("zeros", strings.Repeat("\x00", 101<<20)))
	s := newHTTPServer(t, base, "", "", true)
	_, err := source.Fetch(t.Context(), source.WithCA(source.Request{
		Source: api.Source{Git: &api.GitSource{URL: s.URL + "/bomb.git"}}, Dest: filepath.Join(t.TempDir(), "to"), TempDir: t.TempDir(),
	}, s.ca()))
	if !errors.Is(err, workflow.ErrTooLarge) || !strings.Contains(err.Error(), "101 MiB") {
		t.Errorf("got %v, want that the object is too large", err)
	}
}

func FuzzWeigh(f *testing.F) {
	f.Add(pack(2, packed(packBlob, 5, []byte("small")), packed(packDelta, 2, delta(5, 7))))
	f.Add([]byte("PACK"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = source.Weigh(t.Context(), bytes.NewReader(b), 100, 1<<10) // any answer, but no panic
	})
}
