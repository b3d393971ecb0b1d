package dynamodb

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Units are what DynamoDB counts and charges for: a read unit is a strongly consistent read of up to 4 KB, a
// write unit a write of up to 1 KB. What a transaction writes counts twice. (Developer Guide, "DynamoDB read
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

// ItemSize is what a record that was written by this package counts, in bytes: names and values of all
// attributes, the marks included.
func ItemSize(r store.Record) int {
	size := 0
	for _, it := range []item{keyOf(r.Key), content(r)} {
		for name, v := range it {
			size += len(name) + attrSize(v)
		}
	}
	return size + int(min(r.Version, marks))*(len(attrMark(0))+markSize)
}

// entrySize is what a record counts in an index, which has the keys alone.
func entrySize(r store.Record, index store.Index) int {
	size, e := 0, r.Indexes[index]
	for _, at := range []item{keyOf(r.Key), {
		indexAttrs[index][0]: text(encode(e.Part)), indexAttrs[index][1]: text(encode(store.Place(e, r.Key))),
	}} {
		for name, v := range at {
			size += len(name) + attrSize(v)
		}
	}
	return size
}

// attrSize is the size of a value of the kinds that items have here. (Developer Guide, "DynamoDB item
// sizes and formats": a number has about a byte for two significant digits, and one more.)
func attrSize(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		digits := strings.TrimRight(strings.TrimPrefix(v.Value, "-"), "0")
		return (len(digits)+1)/2 + 1 + strings.Count(v.Value, "-")
	}
	return 0
}

// GetUnits is what a Get costs that found these records among so many keys, each named once.
func GetUnits(keys int, found []store.Record) Units {
	u := Units{Read: float64(keys - len(found))}
	for _, r := range found {
		u.Read += units(ItemSize(r), readUnit)
	}
	return u
}

// RangeUnits is what a Range costs that returned these records, if it took one call.
func RangeUnits(found []store.Record) Units {
	size := 0
	for _, r := range found {
		size += ItemSize(r)
	}
	return Units{Read: units(size, readUnit)}
}

// QueryUnits is what a Query costs that returned these records: half of a consistent read for the
// entries of the index, and the records themselves.
func QueryUnits(index store.Index, found []store.Record) Units {
	size := 0
	for _, r := range found {
		size += entrySize(r, index)
	}
	u := Units{Read: units(size, readUnit) / 2}
	return u.Plus(GetUnits(len(found), found))
}

// CommitUnits is what a commit costs that is applied; before are the records as they were, by key. One that
// loses its race costs as much of the table, and nothing of the indexes.
func CommitUnits(ops []store.Op, before map[store.Key]store.Record) Units {
	times := 2.0
	if alone(ops) {
		times = 1
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
		for index := range indexAttrs {
			u.Write += entryUnits(was, now, index)
		}
	}
	return u
}

// entryUnits is what an index costs when a record changes: nothing where its entry stays, one write to make
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

// alone reports whether a commit is a lone update, which is no transaction.
func alone(ops []store.Op) bool {
	return len(ops) == 1 && ops[0].IsPut() && ops[0].Expect() != store.Absent
}
