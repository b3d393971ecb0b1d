package dynamodb

import (
	"cmp"
	"slices"
	"strings"
)

// The limits of the service. (Developer Guide, "Quotas".)
const (
	maxItem       = 400 << 10
	maxPartKey    = 2048
	maxSortKey    = 1024
	maxPage       = 1 << 20  // bytes of items that one Query reads
	maxBatch      = 16 << 20 // bytes that one BatchGetItem returns
	maxBatchKeys  = 100
	maxTransact   = 100
	maxTransacted = 4 << 20
)

// keys are the attributes of a primary key or of the key of an index.
type keys struct{ part, sort string }

// table is one table with its indexes.
type table struct {
	name    string
	spec    createTable
	primary keys
	kinds   map[string]string // of key attributes
	rows    map[string]*rows  // by partition
	indexes map[string]*index
	ttl     string
	backups bool
	locks   map[string]bool // items that a transaction is at
}

// stored is how many bytes of storage the items count, 100 more for each than it has. (Developer Guide, "DynamoDB item
// sizes and formats".)
func (t *table) stored() (n int64) {
	for _, r := range t.rows {
		for _, one := range r.list {
			n += int64(one.it.size()) + 100
		}
	}
	return n
}

// index is a global secondary index. It is behind the table by what waits.
type index struct {
	keys
	all     bool // projects all attributes, otherwise the keys
	rows    map[string]*rows
	waiting []func() // the changes that it does not show yet, oldest first
}

// rows are the items of one partition in their order.
type rows struct{ list []row }

type row struct {
	at string // the sort key; in an index followed by the primary key
	it item
}

func (r *rows) find(at string) (int, bool) {
	return slices.BinarySearchFunc(r.list, at, func(one row, at string) int { return cmp.Compare(one.at, at) })
}

func put(all map[string]*rows, part, at string, it item) {
	r := all[part]
	if r == nil {
		r = &rows{}
		all[part] = r
	}
	if i, ok := r.find(at); ok {
		r.list[i].it = it
	} else {
		r.list = slices.Insert(r.list, i, row{at, it})
	}
}

func remove(all map[string]*rows, part, at string) {
	if r := all[part]; r != nil {
		if i, ok := r.find(at); ok {
			r.list = slices.Delete(r.list, i, i+1)
		}
		if len(r.list) == 0 {
			delete(all, part)
		}
	}
}

// place is where an item lies in an index: behind its sort key its primary key, which only breaks ties.
func (t *table) place(k keys, it item) string {
	return escapeZero(it[k.sort].text) + "\x00\x01" + escapeZero(it[t.primary.part].text) + "\x00\x01" + it[t.primary.sort].text
}

func escapeZero(s string) string { return strings.ReplaceAll(s, "\x00", "\x00\xff") }

func (t *table) get(key item) item {
	if r := t.rows[key[t.primary.part].text]; r != nil {
		if i, ok := r.find(key[t.primary.sort].text); ok {
			return r.list[i].it
		}
	}
	return nil
}

// lockName names an item among the locks.
func (t *table) lockName(key item) string { return key.project(t.primary.part, t.primary.sort).spell() }

// store replaces an item, or removes it where now is nil, and returns the units that the indexes cost.
// A change of an index becomes visible once lag further queries of an index were made.
func (t *table) store(key, now item, lag int) (indexUnits float64) {
	was := t.get(key)
	part, at := key[t.primary.part].text, key[t.primary.sort].text
	if now == nil {
		remove(t.rows, part, at)
	} else {
		put(t.rows, part, at, now)
	}
	for _, x := range t.indexes {
		old, fresh := t.projected(x, was), t.projected(x, now)
		moved := old != nil && fresh != nil && (old[x.part] != fresh[x.part] || old[x.sort] != fresh[x.sort])
		switch {
		case old == nil && fresh == nil, old != nil && fresh != nil && old.spell() == fresh.spell():
			continue
		case old == nil || fresh == nil:
			indexUnits += writeUnits(max(old.size(), fresh.size()))
		case moved:
			indexUnits += writeUnits(old.size()) + writeUnits(fresh.size())
		default:
			indexUnits += writeUnits(max(old.size(), fresh.size()))
		}
		x.later(lag, func() {
			if old != nil {
				remove(x.rows, old[x.part].text, t.place(x.keys, old))
			}
			if fresh != nil {
				put(x.rows, fresh[x.part].text, t.place(x.keys, fresh), fresh)
			}
		})
	}
	return indexUnits
}

func (x *index) later(lag int, change func()) {
	x.waiting = append(x.waiting, change)
	x.catchUp(lag)
}

// catchUp shows all changes but the latest few.
func (x *index) catchUp(but int) {
	n := max(0, len(x.waiting)-but)
	for _, change := range x.waiting[:n] {
		change()
	}
	x.waiting = slices.Clone(x.waiting[n:])
}

// projected is what an index has of an item, nil where it is not in it.
func (t *table) projected(x *index, it item) item {
	_, hasPart := it[x.part]
	_, hasSort := it[x.sort]
	if !hasPart || !hasSort {
		return nil
	}
	if x.all {
		return it
	}
	return it.project(t.primary.part, t.primary.sort, x.part, x.sort)
}

// checkKey refuses what is not a primary key of the table.
func (t *table) checkKey(key item) error {
	if len(key) != 2 {
		return invalid("The provided key element does not match the schema")
	}
	return t.checkKeys(key, t.primary, true)
}

// checkItem refuses an item that cannot be stored.
func (t *table) checkItem(it item) error {
	if err := t.checkKeys(it, t.primary, true); err != nil {
		return err
	}
	for _, x := range t.indexes {
		if err := t.checkKeys(it, x.keys, false); err != nil {
			return err
		}
	}
	if it.size() > maxItem {
		return invalid("Item size has exceeded the maximum allowed size")
	}
	return nil
}

func (t *table) checkKeys(it item, k keys, required bool) error {
	if err := t.checkAttr(it, k.part, maxPartKey, required); err != nil {
		return err
	}
	return t.checkAttr(it, k.sort, maxSortKey, required)
}

func (t *table) checkAttr(it item, name string, most int, required bool) error {
	v, ok := it[name]
	switch {
	case !ok && required:
		return invalid("One of the required keys was not given a value: %s", name)
	case !ok:
	case v.kind != t.kinds[name]:
		return invalid("Type mismatch for key %s expected: %s actual: %s", name, t.kinds[name], v.kind)
	case v.text == "":
		return invalid("One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: %s", name)
	case len(v.text) > most:
		return invalid("One or more parameter values were invalid: Size of key %s has exceeded the maximum size limit of %d bytes", name, most)
	}
	return nil
}

// writeUnits and readUnits are what so many bytes cost.
func writeUnits(n int) float64 { return float64(max(1, (n+1023)/1024)) }
func readUnits(n int, consistent bool) float64 {
	units := float64(max(1, (n+4095)/4096))
	if !consistent {
		units /= 2
	}
	return units
}
