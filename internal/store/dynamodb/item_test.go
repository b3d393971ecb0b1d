package dynamodb

import (
	"bytes"
	"maps"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// An item may have been written by anybody: it is refused, or read as a record that obeys the rules and
// would be written as the same item.
func FuzzRecord(f *testing.F) {
	f.Add("p", "s", "1", "value", true, "0", "i", "a\x01\x01\x01\x02p\x01\x01\x01\x02s")
	f.Add("p", "s", "9223372036854775807", "\x00", false, "-1", "", "")
	f.Add("", "", "x", "", true, "1e9", "i", "\x01")
	f.Add("p", "s\x00", "0", "\xff", false, "", "i", "a")
	f.Fuzz(func(t *testing.T, part, sort, version, value string, isText bool, expires, indexPart, place string) {
		it := item{
			attrPart: text(part), attrSort: text(sort), attrVersion: &types.AttributeValueMemberN{Value: version},
			attrMark(1): text("mark"),
		}
		if value != "" {
			it[attrValue] = binary([]byte(value))
			if isText {
				it[attrValue] = text(value)
			}
		}
		if expires != "" {
			it[attrExpires] = &types.AttributeValueMemberN{Value: expires}
		}
		if indexPart != "" {
			it[attrPart1], it[attrPlace1] = text(indexPart), text(place)
		}
		r, err := record(it)
		if err != nil {
			return
		}
		if err := store.CheckKey(r.Key); err != nil || r.Version < 1 {
			t.Errorf("read as %+v, which is not a record (%v)", r, err)
		}
		if !bytes.Equal(r.Value, []byte(value)) {
			t.Errorf("value %q was read as %q", value, r.Value)
		}
		again := content(r)
		maps.Copy(again, keyOf(r.Key))
		for _, name := range []string{attrPart, attrSort, attrPart1, attrPlace1} {
			want, _ := textOf(it, name)
			if got, _ := textOf(again, name); got != want {
				t.Errorf("attribute %s is %q, and would be written as %q", name, want, got)
			}
		}
		if n, err := strconv.ParseInt(version, 10, 64); err != nil || n != r.Version {
			t.Errorf("version %q was read as %d", version, r.Version)
		}
	})
}

func TestRecord_RefusesWhatIsNotOurs(t *testing.T) {
	good := func() item {
		r := store.Record{Key: store.Key{Part: "p", Sort: "s"}, Version: 3, Value: []byte("{}"), Expires: 7,
			Indexes: map[store.Index]store.Entry{store.Index1: {Part: "i", Sort: "a"}}}
		it := content(r)
		maps.Copy(it, keyOf(r.Key))
		return it
	}
	if _, err := record(good()); err != nil {
		t.Fatalf("a good item is refused: %v", err)
	}
	for name, spoil := range map[string]func(item){
		"no key":            func(it item) { delete(it, attrPart) },
		"key of bytes":      func(it item) { it[attrSort] = binary([]byte("s")) },
		"no version":        func(it item) { delete(it, attrVersion) },
		"version zero":      func(it item) { it[attrVersion] = number(0) },
		"version of text":   func(it item) { it[attrVersion] = text("1") },
		"broken version":    func(it item) { it[attrVersion] = &types.AttributeValueMemberN{Value: "1.5"} },
		"expiry of text":    func(it item) { it[attrExpires] = text("7") },
		"value of a number": func(it item) { it[attrValue] = number(7) },
		"half an entry":     func(it item) { delete(it, attrPlace1) },
		"another's place": func(it item) {
			it[attrPlace1] = text(encode(store.Place(store.Entry{Sort: "a"}, store.Key{Part: "p", Sort: "t"})))
		},
		"not a place":        func(it item) { it[attrPlace1] = text("a") },
		"entry without part": func(it item) { it[attrPart1] = text("") },
	} {
		it := good()
		spoil(it)
		if r, err := record(it); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
}

// The bounds of a query are inclusive and no longer than a sort key, and cover all that the span covers.
func FuzzBounds(f *testing.F) {
	long := string(bytes.Repeat([]byte("x"), 1023))
	f.Add("a", "b", "a")
	f.Add(long+"y", long+"\xff", long+"z")
	f.Add(long+"\x00", long+"\x80\x00", long+"\x7f")
	f.Add("", "\x00", "\x00")
	f.Fuzz(func(t *testing.T, low, high, key string) {
		sp := span{part: "p", low: low, high: high}
		inside := key != "" && store.SortSize(key) <= maxSort && sp.covers(key)
		in, ok := sp.query()
		if !ok {
			if inside {
				t.Errorf("from %q to %q nothing is read, and %q lies there", low, high, key)
			}
			return
		}
		k := encode(key)
		if v, ok := textOf(in.ExpressionAttributeValues, ":low"); ok && (len(v) > maxSort || inside && k < v) {
			t.Errorf("the lower bound %q of %q is too long, or above %q", v, low, key)
		}
		if v, ok := textOf(in.ExpressionAttributeValues, ":high"); ok && (len(v) > maxSort || inside && k > v) {
			t.Errorf("the upper bound %q of %q is too long, or below %q", v, high, key)
		}
	})
}
