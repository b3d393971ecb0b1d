package dynamodbtest

import (
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Units are the units that DynamoDB charges for: a read unit is a strongly consistent read of up to 4 KB, a
// write unit a write of up to 1 KB. Writes in a transaction count twice. (Developer Guide, "DynamoDB read
// and write operations" and "Working with transactions".)
type Units struct{ Read, Write float64 }

// Plus adds.
func (u Units) Plus(v Units) Units { return Units{Read: u.Read + v.Read, Write: u.Write + v.Write} }

const (
	readUnit  = 4 << 10
	writeUnit = 1 << 10
)

// units is how many units of a size n bytes are; nothing costs as much as little.
func units(n, size int) float64 { return float64(max(1, (n+size-1)/size)) }

// ItemSize is the billed size in bytes of a record that package dynamodb wrote: names and values of all
// attributes, including the marks of its latest writes.
func ItemSize(r store.Record) int {
	size := keySize(r.Key) + len("ver") + numberSize(r.Version)
	if len(r.Value) > 0 {
		size += len("val") + len(r.Value)
	}
	if r.Expires != 0 {
		size += len("exp") + numberSize(r.Expires)
	}
	for index := range r.Indexes {
		size += placeSize(r, index)
	}
	const marks, mark = 16, len("w0") + 11
	return size + int(min(r.Version, marks))*mark
}

// entrySize is the billed size of a record's entry in an index, which has the keys alone.
func entrySize(r store.Record, index store.Index) int { return keySize(r.Key) + placeSize(r, index) }

// keySize is the size of the primary key. The text of a key is as long as its SortSize.
func keySize(k store.Key) int {
	return len("pk") + store.SortSize(k.Part) + len("sk") + store.SortSize(k.Sort)
}

// placeSize is the size of the attributes that place a record in an index.
func placeSize(r store.Record, index store.Index) int {
	e := r.Indexes[index]
	return len("i1pk") + store.SortSize(e.Part) + len("i1sk") + store.SortSize(store.Place(e, r.Key))
}

// numberSize is the size of a number that is not negative: a byte for two significant digits, and one more.
// (Developer Guide, "DynamoDB item sizes and formats".)
func numberSize(n int64) int {
	return (len(strings.TrimRight(strconv.FormatInt(n, 10), "0"))+1)/2 + 1
}

// GetUnits is the cost of a Get that found these records among so many keys, each named once.
func GetUnits(keys int, found []store.Record) Units {
	u := Units{Read: float64(keys - len(found))}
	for _, r := range found {
		u.Read += units(ItemSize(r), readUnit)
	}
	return u
}

// RangeUnits is the cost of a Range that returned these records, if it took one call.
func RangeUnits(found []store.Record) Units {
	size := 0
	for _, r := range found {
		size += ItemSize(r)
	}
	return Units{Read: units(size, readUnit)}
}

// QueryUnits is the cost of a Query that returned these records: half of a consistent read for the
// entries of the index, and the records themselves.
func QueryUnits(index store.Index, found []store.Record) Units {
	size := 0
	for _, r := range found {
		size += entrySize(r, index)
	}
	u := Units{Read: units(size, readUnit) / 2}
	return u.Plus(GetUnits(len(found), found))
}

// CommitUnits is the cost of a commit that is applied; before are the records as they were, by key. One that
// loses its race costs as much of the table, and nothing of the indexes.
func CommitUnits(ops []store.Op, before map[store.Key]store.Record) Units {
	times := 2.0
	if len(ops) == 1 && ops[0].IsPut() && (ops[0].Expect() != store.Absent || ops[0].Stays()) {
		times = 1 // a lone update or append is not a transaction
	}
	var u Units
	for _, op := range ops {
		was, there := before[op.Key()]
		size := 0
		if there {
			size = ItemSize(was)
		}
		now := was
		switch {
		case op.IsPut():
			now = op.Record()
			size = max(size, ItemSize(now))
		case op.IsDelete():
			now = store.Record{}
		}
		u.Write += times * units(size, writeUnit)
		for _, index := range []store.Index{store.Index1, store.Index2} {
			u.Write += entryUnits(was, now, index)
		}
	}
	return u
}

// entryUnits is the cost of an index when a record changes: nothing where its entry stays, one write to make
// or to remove it, two to move it.
func entryUnits(was, now store.Record, index store.Index) float64 {
	from, had := was.Indexes[index]
	to, has := now.Indexes[index]
	var n float64
	if had && (!has || from != to) {
		n += units(entrySize(was, index), writeUnit)
	}
	if has && (!had || from != to) {
		n += units(entrySize(now, index), writeUnit)
	}
	return n
}
