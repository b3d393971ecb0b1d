package controlplane

import (
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// read is a set of records that a decision was made on.
type read map[store.Key]store.Record

// version is what the commit must name: 0 where there was no record.
func (r read) version(k store.Key) int64 { return r[k].Version }

// get decodes the record of a key; ok is false where there is none.
func get[T any](r read, k store.Key) (v T, ok bool, err error) {
	rec, ok := r[k]
	if !ok {
		return v, false, nil
	}
	v, err = record.Decode[T](rec)
	return v, true, err
}
