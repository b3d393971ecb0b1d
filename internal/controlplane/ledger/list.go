package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Read is a set of records that a decision was made on.
type Read map[store.Key]store.Record

// Version is the version that the commit must name: 0 if there was no record.
func (r Read) Version(k store.Key) int64 { return r[k].Version }

// Into decodes the record of a key into v, which is a pointer. Without a record, v stays as it is.
func (r Read) Into(k store.Key, v any) error {
	rec, ok := r[k]
	if !ok {
		return nil
	}
	return record.DecodeInto(rec, v)
}

// Get decodes the record of a key; ok is false if there is none.
func Get[T any](r Read, k store.Key) (v T, ok bool, err error) {
	rec, ok := r[k]
	if !ok {
		return v, false, nil
	}
	v, err = record.Decode[T](rec)
	return v, true, err
}

// Load reads a key into a change and decodes its record; ok is false if there is none.
func Load[T any](ctx context.Context, c *Change, k store.Key) (v T, ok bool, err error) {
	if err := c.Load(ctx, k); err != nil {
		return v, false, err
	}
	return Get[T](c.Read, k)
}

// PageOf decodes a page of records.
func PageOf[R, V any](page store.Page, view func(R, int64) V) (api.Page[V], error) {
	out := api.Page[V]{Items: []V{}, Next: page.Next}
	for _, r := range page.Records {
		v, err := record.Decode[R](r)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, view(v, r.Version))
	}
	return out, nil
}

// AsStored is the view of a page whose records are shown as they are.
func AsStored[R any](r R, _ int64) R { return r }

// PageSize bounds the size of a page: to limit, which is also the default.
func PageSize(asked, limit int) int {
	if asked <= 0 || asked > limit {
		return limit
	}
	return asked
}

// cursorSum is how many bytes of its checksum a cursor has. The checksum guards against mistakes. A cursor is not a
// secret, and a forged one reads nothing outside its list.
const cursorSum = 6

// ListOf is List for a list that shows its records one by one.
func ListOf[R, V any](ctx context.Context, l *Ledger, s store.Scan, cursor string, view func(R, int64) V) (api.Page[V], error) {
	page, err := l.List(ctx, s, cursor)
	if err != nil {
		return api.Page[V]{}, err
	}
	return PageOf(page, view)
}

// maxFiltered is how many pages a list reads for one answer when it shows only some of its records.
const maxFiltered = 10

// ListWhere is ListOf for a list of which a caller may see only some records. Its reads are bounded, so a page may
// have fewer items than were asked for, or none, and still a next.
func ListWhere[R, V any](ctx context.Context, l *Ledger, s store.Scan, cursor string, sees func(R) (bool, error), view func(R, int64) V) (api.Page[V], error) {
	out := api.Page[V]{Items: []V{}, Next: cursor}
	for n := 0; n == 0 || n < maxFiltered && s.Limit > 0 && out.Next != ""; n++ {
		page, err := l.List(ctx, s, out.Next)
		if err != nil {
			return out, err
		}
		for _, r := range page.Records {
			v, err := record.Decode[R](r)
			if err != nil {
				return out, err
			}
			if ok, err := sees(v); err != nil {
				return out, err
			} else if ok {
				out.Items = append(out.Items, view(v, r.Version))
				s.Limit--
			}
		}
		out.Next = page.Next
	}
	return out, nil
}

// List is Range for a list whose pages are requested by API callers, by the cursor of the previous page.
func (l *Ledger) List(ctx context.Context, s store.Scan, cursor string) (store.Page, error) {
	after, err := OpenCursor(s.Part+" "+s.From, cursor)
	if err != nil {
		return store.Page{}, err
	}
	s.After = after
	page, err := l.Range(ctx, s)
	page.Next = SealCursor(s.Part+" "+s.From, page.Next)
	return page, err
}

// SealCursor makes a cursor of the place where a list's next page begins. A cursor has only characters that a URL can
// have, and is valid for that list alone. The end of the list has no cursor.
func SealCursor(list, after string) string {
	if after == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(sumOf(list, after), after...))
}

// OpenCursor returns the place that a cursor was made from.
func OpenCursor(list, cursor string) (after string, err error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) <= cursorSum || !bytes.Equal(b[:cursorSum], sumOf(list, string(b[cursorSum:]))) {
		return "", workflow.Refuse(workflow.ErrInvalid, "cursor", "%q is not a cursor of this list: pass the next of the previous page unchanged, or begin without a cursor", text.Cut(cursor, 60))
	}
	return string(b[cursorSum:]), nil
}

func sumOf(list, after string) []byte {
	sum := sha256.Sum256([]byte(list + "\x00" + after))
	return sum[:cursorSum]
}
