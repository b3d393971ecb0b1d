package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// readConnections bounds how many reads run at once; more wait for one of them.
const readConnections = 4

// getKeys is how many keys one statement looks up. Each statement is a transaction of its own, whose
// locks cost more than the look-up of another key.
const getKeys = 8

const columns = "part, sort, version, expires, part1, place1, part2, place2, value"

// getSQL is the text that looks up so many keys, and answers in their order.
func getSQL(keys int) string {
	one := "SELECT " + columns + " FROM records INDEXED BY records_key WHERE part = ? AND sort = ?"
	return one + strings.Repeat(" UNION ALL "+one, keys-1)
}

// scanKind determines the SQL text of a scan.
type scanKind struct {
	index   store.Index // empty: the table
	bounded bool        // has an upper bound
	reverse bool
}

// scanSQL returns the texts of all scans. Each names the index that it reads, so that SQLite refuses it
// instead of reading a whole partition if the schema changes.
func scanSQL() map[scanKind]string {
	all := map[scanKind]string{}
	for index, by := range map[store.Index]struct{ name, part, at string }{
		"":           {"records_key", "part", "sort"},
		store.Index1: {"records_index1", "part1", "place1"},
		store.Index2: {"records_index2", "part2", "place2"},
	} {
		for _, bounded := range []bool{false, true} {
			for _, reverse := range []bool{false, true} {
				text := "SELECT " + columns + " FROM records INDEXED BY " + by.name +
					" WHERE " + by.part + " = ? AND " + by.at + " >= ?"
				if bounded {
					text += " AND " + by.at + " < ?"
				}
				text += " ORDER BY " + by.at
				if reverse {
					text += " DESC"
				}
				// SQLite plans a statement again for each value of a bare "LIMIT ?", which takes longer
				// than running it. It does not do that for a sum.
				all[scanKind{index, bounded, reverse}] = text + " LIMIT ? + 0"
			}
		}
	}
	return all
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	if err := store.CheckGet(keys); err != nil {
		return nil, err
	}
	var found []store.Record
	for some := range slices.Chunk(keys, getKeys) {
		args := make([]any, 0, 2*len(some))
		for _, k := range some {
			args = append(args, []byte(k.Part), []byte(k.Sort))
		}
		records, err := s.read(ctx, s.gets[len(some)-1], args...)
		if err != nil {
			return nil, fmt.Errorf("get %s and %d more: %w", some[0], len(some)-1, err)
		}
		found = append(found, records...)
	}
	return found, nil
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, scan store.Scan) (store.Page, error) {
	low, high := scan.Bounds()
	page, err := s.page(ctx, "", scan, low, high)
	if err != nil {
		return store.Page{}, fmt.Errorf("range of %q: %w", scan.Part, err)
	}
	return page, nil
}

// Query implements store.Store. It is never stale.
func (s *Store) Query(ctx context.Context, index store.Index, scan store.Scan) (store.Page, error) {
	if index != store.Index1 && index != store.Index2 {
		return store.Page{}, fmt.Errorf("store: unknown index %q", index)
	}
	low, high := scan.IndexBounds()
	page, err := s.page(ctx, index, scan, low, high)
	if err != nil {
		return store.Page{}, fmt.Errorf("query of %s %q: %w", index, scan.Part, err)
	}
	return page, nil
}

func (s *Store) page(ctx context.Context, index store.Index, scan store.Scan, low, high string) (store.Page, error) {
	if err := store.CheckScan(scan); err != nil {
		return store.Page{}, err
	}
	args := []any{[]byte(scan.Part), []byte(low)}
	if high != "" {
		args = append(args, []byte(high))
	}
	args = append(args, scan.Limit)
	found, err := s.read(ctx, s.scans[scanKind{index, high != "", scan.Reverse}], args...)
	if err != nil {
		return store.Page{}, err
	}
	return store.PageOf(index, found, scan.Limit), nil
}

// read runs a statement and returns the records that it finds.
func (s *Store) read(ctx context.Context, stmt *sql.Stmt, args ...any) (found []store.Record, err error) {
	defer func() { err = readError(ctx, err) }()
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, rows.Err()
}

func scanRecord(rows *sql.Rows) (store.Record, error) {
	var r store.Record
	var part, sort, part1, place1, part2, place2 sql.RawBytes
	if err := rows.Scan(&part, &sort, &r.Version, &r.Expires, &part1, &place1, &part2, &place2, &r.Value); err != nil {
		return store.Record{}, err
	}
	r.Key = store.Key{Part: string(part), Sort: string(sort)}
	for _, in := range []struct {
		index       store.Index
		part, place sql.RawBytes
	}{{store.Index1, part1, place1}, {store.Index2, part2, place2}} {
		if in.part == nil {
			continue
		}
		entrySort, _, err := store.ParsePlace(string(in.place))
		if err != nil {
			return store.Record{}, fmt.Errorf("%s: %w", r.Key, err)
		}
		if r.Indexes == nil {
			r.Indexes = make(map[store.Index]store.Entry, 2)
		}
		r.Indexes[in.index] = store.Entry{Part: string(in.part), Sort: entrySort}
	}
	return r, nil
}

// readError gives a failed read its meaning: SQLite says "interrupted" where it is the context that
// ended.
func readError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	case isBusy(err):
		return fmt.Errorf("%w: %w", store.ErrBusy, err)
	default:
		return err
	}
}
