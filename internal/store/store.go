// Package store keeps versioned records and commits conditional changes to several
// of them at once. It knows nothing of workflows.
//
// # Consistency model
//
// Get and Range are consistent: they see every commit that was answered before they
// were called. A Range call sees each record consistently but is not a snapshot of the whole range, and two calls are
// never one snapshot: a commit that depends on earlier reads must name the versions that it saw. Query reads an
// index and may be stale by any amount: it may miss a new record and may return one
// as it was. Commit is atomic over all its operations, which may lie in any partitions.
//
// A version is 1 when a record is made and grows by one with each write. A record that
// was deleted and made again starts at 1 again, so a key that can come back must not be
// guarded by its version alone.
//
// These are promises that DynamoDB (TransactWriteItems, consistent Query, a global
// secondary index) and SQLite can both keep; storetest holds every implementation to
// them.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits that every implementation enforces in the same way.
const (
	MaxOps   = 100       // operations in one commit
	MaxValue = 350 << 10 // bytes of one record's value; DynamoDB's item limit is 400 KB
	MaxGet   = 100       // keys in one Get
	// MaxCommit is the maximum of bytes in all values of one commit; DynamoDB takes 4 MB in a
	// transaction, keys and index entries counted.
	MaxCommit = 3 << 20
)

// ErrConflict means that a condition of the commit did not hold, because another commit
// changed a record first. It is a normal outcome. Nothing was written.
var ErrConflict = errors.New("store: version conflict")

// ErrBusy means that nothing was written and nothing is known to be wrong: try again with
// jitter. It does not mean a lost race.
var ErrBusy = errors.New("store: busy")

// ErrUnknown means that the answer was lost: the commit was applied or it was not. Repeat it
// with the same ID: if it was applied, the repeat is recognised and answered as done. A commit whose
// context ended on the way has an error that is both this one and the context's.
var ErrUnknown = errors.New("store: outcome unknown")

// ErrFull means that there is no room to write. Together with ErrUnknown it leaves the outcome open; alone it means
// that nothing was written.
var ErrFull = errors.New("store: no room left")

// Key names a record: its partition, and its place in the order of that partition.
// Both are any bytes, non-empty, and compared as bytes; the partition has at most 1,024 of them, and the
// sort key at most a SortSize of 1,024.
type Key struct {
	Part string
	Sort string
}

func (k Key) String() string { return k.Part + "|" + k.Sort }

// Index names one of the two secondary indexes.
type Index string

// The secondary indexes. A record is in an index when it has an entry for it.
const (
	Index1 Index = "index1"
	Index2 Index = "index2"
)

// Entry places a record in a secondary index. Sort ties are broken by the record's key: by its
// partition, then by its sort key. Its Place has at most a SortSize of MaxPlace.
type Entry struct {
	Part string
	Sort string
}

// Record is one stored value.
type Record struct {
	Key     Key
	Version int64
	Value   []byte
	Indexes map[Index]Entry // nil: in none
	// Expires is a Unix time in seconds after which the store may delete the record on its
	// own, at any time or never; 0 means never. Readers must not rely on it.
	Expires int64
}

// Op is one operation of a commit. Make it with Put, Append, Delete or Check.
type Op struct {
	kind    opKind
	record  Record // for Check and Delete only the key
	version int64  // the version that must be there; 0 means that no record may be there
	stays   bool   // no commit deletes the record soon
}

type opKind uint8

const (
	opPut opKind = iota + 1
	opDelete
	opCheck
)

// Absent is the version of a record that must not exist.
const Absent int64 = 0

// Put writes a record provided that its stored version is the given one (Absent: provided
// that it does not exist). r.Version is ignored; the stored version becomes version+1.
func Put(r Record, version int64) Op { return Op{kind: opPut, record: r, version: version} }

// Append writes a record that must not exist yet and that no commit deletes while its own may be repeated. A commit of
// an Append alone may cost less than one of a Put, because the record itself shows whether a repeat was applied
// before.
func Append(r Record) Op { return Op{kind: opPut, record: r, stays: true} }

// Delete removes a record provided that its stored version is the given one, which must not be
// Absent.
func Delete(k Key, version int64) Op {
	return Op{kind: opDelete, record: Record{Key: k}, version: version}
}

// Check writes nothing and fails the commit unless the stored version is the given one
// (Absent: unless there is no record).
func Check(k Key, version int64) Op {
	return Op{kind: opCheck, record: Record{Key: k}, version: version}
}

// Key returns the key that the operation is about.
func (o Op) Key() Key { return o.record.Key }

// IsPut reports whether the operation writes its record. It, IsDelete and IsCheck give an
// implementation the kind of operation; Record and Expect give it the rest.
func (o Op) IsPut() bool { return o.kind == opPut }

// Stays reports whether no commit deletes the record that the operation writes while that may be repeated.
func (o Op) Stays() bool { return o.stays }

// IsDelete reports whether the operation removes its record.
func (o Op) IsDelete() bool { return o.kind == opDelete }

// IsCheck reports whether the operation only checks.
func (o Op) IsCheck() bool { return o.kind == opCheck }

// Record returns the record that a Put writes, with the version that it will have.
func (o Op) Record() Record {
	r := o.record
	r.Version = o.version + 1
	return r
}

// Until is a Put whose record expires at a time.
func (o Op) Until(at time.Time) Op {
	o.record.Expires = at.Unix()
	return o
}

// Expect returns the version that must be there.
func (o Op) Expect() int64 { return o.version }

// Scan asks for records of one partition (of a table or an index) in the order of their sort
// key.
type Scan struct {
	Part    string
	From    string // first sort key, inclusive; empty means from the start (from the end when Reverse)
	To      string // bound, exclusive; empty means to the end (to the start when Reverse)
	Limit   int    // maximum number of records to return; required, 1 to 1000
	Reverse bool   // from high to low: From is then the highest key, inclusive, and To the lower bound, exclusive
	// After continues behind the last record of an earlier page; it is that page's Next. The other
	// fields must be the same. Records that were added or removed in between may or may not be
	// seen; a record that stayed is returned once, unless the index is stale.
	After string
}

// Page is the answer to a Scan. Next is empty when there is no more; a full page may be the last
// and still have a Next whose page is empty. A page that is not full is the last. Next is the sort
// key of the page's last record, in an index its Place.
type Page struct {
	Records []Record
	Next    string
}

// Store is implemented by each storage. All methods may be called concurrently.
// Errors other than the three sentinels and a context's are failures of the storage itself.
type Store interface {
	// Get returns the records that exist among keys, in the order of keys, absent ones left
	// out; at most MaxGet keys. Each is consistent by itself; together they are not a snapshot. A
	// key that is named twice is answered twice.
	Get(ctx context.Context, keys ...Key) ([]Record, error)
	// Range reads a partition, consistently.
	Range(ctx context.Context, s Scan) (Page, error)
	// Query reads an index partition; it may be stale.
	Query(ctx context.Context, index Index, s Scan) (Page, error)
	// Commit applies all operations or none. id makes a repeat recognisable for at least
	// ten minutes: the same id with the same operations answers as the first time did if it was
	// applied. An id is 1 to 36 characters and must be new for each commit that is not a repeat.
	// No two operations may name the same key. The same id with other operations is a mistake,
	// and refused if it is noticed. With a context that has ended before the call, the call writes
	// nothing (which says nothing of an earlier one with the same id); one that ends during it
	// leaves the outcome unknown (ErrUnknown).
	Commit(ctx context.Context, id string, ops ...Op) error
}

// CheckCommit refuses a commit that breaks the rules. Every implementation calls it first, so that
// a mistake shows in each of them.
func CheckCommit(id string, ops []Op) error {
	if id == "" || len(id) > 36 {
		return fmt.Errorf("store: commit id %q: want 1 to 36 characters", id)
	}
	if len(ops) == 0 || len(ops) > MaxOps {
		return fmt.Errorf("store: commit of %d operations: want 1 to %d", len(ops), MaxOps)
	}
	seen, size := make(map[Key]bool, len(ops)), 0
	for _, op := range ops {
		k := op.Key()
		if err := CheckKey(k); err != nil {
			return err
		}
		if seen[k] {
			return fmt.Errorf("store: two operations of one commit name %s", k)
		}
		seen[k] = true
		if err := op.check(k); err != nil {
			return err
		}
		if size += len(op.record.Value); size > MaxCommit {
			return fmt.Errorf("store: the values of one commit have more than %d bytes", MaxCommit)
		}
		if err := checkEntries(op.record, k); err != nil {
			return err
		}
	}
	return nil
}

// check refuses an operation on a key that is wrong by itself.
func (o Op) check(k Key) error {
	switch {
	case o.kind == 0:
		return fmt.Errorf("store: empty operation")
	case o.version < 0 || o.IsDelete() && o.version == Absent:
		return fmt.Errorf("store: operation on %s expects version %d", k, o.version)
	case o.IsPut() && len(o.record.Value) > MaxValue:
		return fmt.Errorf("store: value of %s has %d bytes, the maximum is %d", k, len(o.record.Value), MaxValue)
	}
	return nil
}

// checkEntries refuses entries of a record that an index could not hold.
func checkEntries(r Record, k Key) error {
	for index, e := range r.Indexes {
		if index != Index1 && index != Index2 {
			return fmt.Errorf("store: unknown index %q", index)
		}
		if err := CheckKey(Key(e)); err != nil {
			return err
		}
		if n := SortSize(Place(e, k)); n > MaxPlace {
			return fmt.Errorf("store: the place of %s in %s has the size %d, the maximum is %d", k, index, n, MaxPlace)
		}
	}
	return nil
}

// CheckKey refuses a key that not every implementation could hold.
func CheckKey(k Key) error {
	if k.Part == "" || k.Sort == "" || len(k.Part) > maxKey || SortSize(k.Sort) > maxKey {
		return fmt.Errorf("store: key %q: partition and sort key have 1 to %d bytes each; in a sort key, bytes that are 0, 1 or not ASCII count twice", k, maxKey)
	}
	return nil
}

const maxKey = 1024 // bytes of each half of a key; DynamoDB's bound for a sort key

// CheckScan refuses a scan that breaks the rules.
func CheckScan(s Scan) error {
	if s.Part == "" {
		return errors.New("store: scan without a partition")
	}
	if len(s.Part) > maxKey || len(s.From) > maxKey || len(s.To) > maxKey {
		return fmt.Errorf("store: scan: partition and bounds have at most %d bytes each", maxKey)
	}
	if s.Limit < 1 || s.Limit > 1000 {
		return fmt.Errorf("store: scan limit %d: want 1 to 1000", s.Limit)
	}
	return nil
}
