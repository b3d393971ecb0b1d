package ledger

import (
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Read is a set of records that a decision was made on.
type Read map[store.Key]store.Record

// Version is what the commit must name: 0 where there was no record.
func (r Read) Version(k store.Key) int64 { return r[k].Version }

// Get decodes the record of a key; ok is false where there is none.
func Get[T any](r Read, k store.Key) (v T, ok bool, err error) {
	rec, ok := r[k]
	if !ok {
		return v, false, nil
	}
	v, err = record.Decode[T](rec)
	return v, true, err
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

// PageSize bounds what a list answers.
func PageSize(asked, most int) int {
	if asked <= 0 || asked > most {
		return most
	}
	return asked
}
