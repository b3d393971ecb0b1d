package dynamodb

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// item is a record as DynamoDB has it.
type item = map[string]types.AttributeValue

// The attributes of an item. All keys are of type S; see encode.
const (
	attrPart    = "pk"   // S: the partition of the key
	attrSort    = "sk"   // S: the sort key
	attrVersion = "ver"  // N
	attrValue   = "val"  // S where it is printable text, else B; left out where it is empty
	attrExpires = "exp"  // N: Unix seconds, the time to live; left out where there is none
	attrPart1   = "i1pk" // S: the partition in the index; left out where the record is not in it
	attrPlace1  = "i1sk" // S: the place in the index
	attrPart2   = "i2pk"
	attrPlace2  = "i2sk"
)

// indexAttrs are the attributes that place a record in an index.
var indexAttrs = map[store.Index][2]string{
	store.Index1: {attrPart1, attrPlace1},
	store.Index2: {attrPart2, attrPlace2},
}

// A record carries a mark of each of its latest writes, by which the repeat of a write whose answer was lost
// recognises that the first try was applied. The write that makes version n leaves its mark in the attribute w(n
// modulo marks), where it stays until version n+marks. More marks would recognise older repeats, and cost 13 bytes
// each.
const (
	marks    = 16
	markID   = 8 // characters of a mark that stand for the commit's id; the others for its operations
	markSize = 11
)

// attrMark names the attribute of the mark of a version.
func attrMark(version int64) string { return "w" + strconv.FormatInt(version%marks, 16) }

// markOf is the mark that a commit leaves in each record that it writes. Its parts are checked one by one: the same
// id with other operations is a mistake and not a repeat.
func markOf(id string, ops []store.Op) string {
	ofID := sha256.Sum256([]byte(id))
	ofOps := store.Fingerprint(ops)
	return base64.RawURLEncoding.EncodeToString(ofID[:])[:markID] + base64.RawURLEncoding.EncodeToString(ofOps[:])[:markSize-markID]
}

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func binary(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// valueAttr is a value as text, which people can read in a console, where it is such.
func valueAttr(value []byte) types.AttributeValue {
	if printable(value) {
		return text(string(value))
	}
	return binary(value)
}

func printable(value []byte) bool {
	for _, c := range value {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return utf8.Valid(value)
}

// keyOf is the primary key of a record.
func keyOf(k store.Key) item {
	return item{attrPart: text(encode(k.Part)), attrSort: text(encode(k.Sort))}
}

// content returns all attributes of a record except the key and the marks.
func content(r store.Record) item {
	out := item{attrVersion: number(r.Version)}
	if len(r.Value) > 0 {
		out[attrValue] = valueAttr(r.Value)
	}
	if r.Expires != 0 {
		out[attrExpires] = number(r.Expires)
	}
	for index, e := range r.Indexes {
		names := indexAttrs[index]
		out[names[0]], out[names[1]] = text(encode(e.Part)), text(encode(store.Place(e, r.Key)))
	}
	return out
}

// optional are the attributes that content may leave out, in the order in which an update names them.
var optional = []string{attrValue, attrExpires, attrPart1, attrPlace1, attrPart2, attrPlace2}

// record reads an item. It checks everything, because another program may have written the item: the result obeys
// the rules of a record, or is an error.
func record(it item) (store.Record, error) {
	var r store.Record
	var err error
	if r.Key, err = keyIn(it); err != nil {
		return store.Record{}, err
	}
	fail := func(op string, err error) (store.Record, error) {
		return store.Record{}, fmt.Errorf("the item %s: %s: %w", r.Key, op, err)
	}
	if r.Version, err = numberOf(it, attrVersion); err != nil {
		return fail(attrVersion, err)
	}
	if r.Version < 1 {
		return fail(attrVersion, fmt.Errorf("%d is not a version", r.Version))
	}
	if _, ok := it[attrExpires]; ok {
		if r.Expires, err = numberOf(it, attrExpires); err != nil {
			return fail(attrExpires, err)
		}
	}
	switch v := it[attrValue].(type) {
	case nil:
	case *types.AttributeValueMemberS:
		r.Value = []byte(v.Value)
	case *types.AttributeValueMemberB:
		r.Value = bytes.Clone(v.Value)
	default:
		return fail(attrValue, fmt.Errorf("is neither text nor binary but %T", v))
	}
	for _, index := range []store.Index{store.Index1, store.Index2} {
		names := indexAttrs[index]
		if _, ok := it[names[0]]; !ok {
			continue
		}
		entry, err := entryOf(it, names, r.Key)
		if err != nil {
			return fail(string(index), err)
		}
		if r.Indexes == nil {
			r.Indexes = make(map[store.Index]store.Entry, 2)
		}
		r.Indexes[index] = entry
	}
	return r, nil
}

// keyIn reads the primary key of an item.
func keyIn(it item) (store.Key, error) {
	part, errPart := keyAttr(it, attrPart)
	sort, errSort := keyAttr(it, attrSort)
	if err := errors.Join(errPart, errSort); err != nil {
		return store.Key{}, fmt.Errorf("an item without a key: %w", err)
	}
	k := store.Key{Part: part, Sort: sort}
	return k, store.CheckKey(k)
}

// entryOf reads where an item lies in an index, and refuses a place that is not the record's own.
func entryOf(it item, names [2]string, k store.Key) (store.Entry, error) {
	part, errPart := keyAttr(it, names[0])
	at, errPlace := keyAttr(it, names[1])
	if err := errors.Join(errPart, errPlace); err != nil {
		return store.Entry{}, err
	}
	sort, own, err := store.ParsePlace(at)
	if err != nil {
		return store.Entry{}, err
	}
	if own != k {
		return store.Entry{}, errors.New("is the place of another record")
	}
	return store.Entry{Part: part, Sort: sort}, store.CheckKey(store.Key{Part: part, Sort: sort})
}

func textOf(it item, name string) (string, bool) {
	v, ok := it[name].(*types.AttributeValueMemberS)
	if !ok {
		return "", false
	}
	return v.Value, true
}

func numberOf(it item, name string) (int64, error) {
	v, ok := it[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0, errors.New("is not a number")
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		return 0, errors.New("is not a whole number of 64 bits")
	}
	return n, nil
}

// verdict is the evidence that a record, whose version did not match a Put, has of an earlier try of the same commit.
type verdict int

const (
	others verdict = iota // another commit wrote the version that this commit was to make
	ours                  // this commit wrote it, so it was applied
	reused                // the id of this commit wrote something else
	silent                // the record does not show it: it is gone, was made again, or was written too often since
)

// judge looks for the mark of a Put in the record that did not have the expected version; nil means that there was no
// record. A record shows the writer of a version only while it has the mark of that version, which is as long as it
// was written fewer than marks times since; known says so. A lower version than the one to be made means that the
// record was deleted and made again, or that no try was applied: both are silent.
func judge(was item, put store.Op, mark string) verdict {
	if was == nil {
		return silent
	}
	version, err := numberOf(was, attrVersion)
	if err != nil {
		return silent
	}
	made := put.Expect() + 1
	inRecord := func(v int64) string {
		m, _ := textOf(was, attrMark(v))
		return m
	}
	known := version >= made && version-made < marks
	if known && inRecord(made) == mark {
		return ours
	}
	for v := max(1, version-marks+1); v <= version; v++ {
		if strings.HasPrefix(inRecord(v), mark[:markID]) {
			return reused
		}
	}
	if known {
		return others
	}
	return silent
}
