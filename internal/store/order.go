package store

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxPlace is the largest SortSize that a place in an index may have; it is the length of a sort key of
// a DynamoDB index.
const MaxPlace = 1024

// SortSize is the size of a sort key, or of a place, by which it is limited: two for each byte that is 0, 1 or
// not ASCII, one for each other. It is the length of the text that DynamoDB keeps of it.
func SortSize(s string) int {
	n := len(s)
	for i := range len(s) {
		if c := s[i]; c <= 1 || c >= 0x80 {
			n++
		}
	}
	return n
}

// A place is built of three parts. A zero byte within a part is written 00 FF, and each of the first
// two parts ends with 00 01, so that comparing places as bytes compares part after part.
const (
	escapedZero = "\x00\xff"
	partEnd     = "\x00\x01"
	behindEnd   = "\x00\x02" // behind everything that continues with partEnd, before everything longer
)

var escaper = strings.NewReplacer("\x00", escapedZero)

// Place is where an index keeps a record: one string that orders by the entry's sort key and then by
// the record's key.
func Place(e Entry, k Key) string {
	return escaper.Replace(e.Sort) + partEnd + escaper.Replace(k.Part) + partEnd + escaper.Replace(k.Sort)
}

// ParsePlace takes a place apart again: into the entry's sort key and the record's key.
func ParsePlace(place string) (entrySort string, k Key, err error) {
	parts := [3]string{}
	part, b := 0, strings.Builder{}
	for i := 0; i < len(place); i++ {
		if place[i] != 0 {
			b.WriteByte(place[i])
			continue
		}
		i++
		switch {
		case i < len(place) && place[i] == escapedZero[1]:
			b.WriteByte(0)
		case i < len(place) && place[i] == partEnd[1] && part < 2:
			parts[part] = b.String()
			part++
			b.Reset()
		default:
			return "", Key{}, errors.New("store: not a place in an index")
		}
	}
	if part != 2 {
		return "", Key{}, errors.New("store: not a place in an index")
	}
	parts[2] = b.String()
	return parts[0], Key{Part: parts[1], Sort: parts[2]}, nil
}

// Bounds says which sort keys of a partition the scan covers: those from low, inclusive, up to
// high, exclusive; an empty high means to the end. After can only narrow the scan, so that a forged
// one reads nothing that the scan itself could not.
func (s Scan) Bounds() (low, high string) {
	if s.Reverse {
		return s.bounds(successor(s.To), successor(s.From))
	}
	return s.bounds(s.From, s.To)
}

// IndexBounds is Bounds for an index: it says which places the scan covers.
func (s Scan) IndexBounds() (low, high string) {
	if s.Reverse {
		return s.bounds(behind(s.To), behind(s.From))
	}
	return s.bounds(escaper.Replace(s.From), escaper.Replace(s.To))
}

func (s Scan) bounds(low, high string) (string, string) {
	switch {
	case s.After == "":
	case s.Reverse:
		if high == "" || s.After < high {
			high = s.After
		}
	default:
		low = max(low, successor(s.After))
	}
	return low, high
}

// successor is the smallest string behind s. The empty string stays empty, because it means that there is no bound.
func successor(s string) string {
	if s == "" {
		return ""
	}
	return s + "\x00"
}

// behind is successor for an entry's sort key among places: behind all that have it.
func behind(s string) string {
	if s == "" {
		return ""
	}
	return escaper.Replace(s) + behindEnd
}

// Fingerprint is a hash of operations: a commit id that comes back with another fingerprint is not a
// repeat but a mistake.
func Fingerprint(ops []Op) [sha256.Size]byte {
	h := sha256.New()
	b := make([]byte, 0, 512)
	number := func(n int64) { b = binary.BigEndian.AppendUint64(b, uint64(n)) } //nolint:gosec // bits, not a quantity
	text := func(s string) { number(int64(len(s))); b = append(b, s...) }
	for _, op := range ops {
		b = append(b[:0], byte(op.kind))
		r := op.record
		number(op.version)
		text(r.Key.Part)
		text(r.Key.Sort)
		number(r.Expires)
		number(int64(len(r.Indexes)))
		for _, index := range slices.Sorted(maps.Keys(r.Indexes)) {
			text(string(index))
			text(r.Indexes[index].Part)
			text(r.Indexes[index].Sort)
		}
		number(int64(len(r.Value)))
		h.Write(b)
		h.Write(r.Value)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Clone returns a copy of the record that shares nothing with it that can change.
func (r Record) Clone() Record {
	r.Value = slices.Clone(r.Value)
	r.Indexes = maps.Clone(r.Indexes)
	return r
}

// PageOf is the page that answers a scan of a partition, or with an index a scan of one of its: records are all
// that were read, at most limit.
func PageOf(index Index, records []Record, limit int) Page {
	page := Page{Records: records}
	if n := len(records); n == limit {
		last := records[n-1]
		page.Next = last.Key.Sort
		if index != "" {
			page.Next = Place(last.Indexes[index], last.Key)
		}
	}
	return page
}

// CheckGet refuses a Get that breaks the rules.
func CheckGet(keys []Key) error {
	if len(keys) > MaxGet {
		return fmt.Errorf("store: get of %d keys: the maximum is %d", len(keys), MaxGet)
	}
	for _, k := range keys {
		if err := CheckKey(k); err != nil {
			return err
		}
	}
	return nil
}
