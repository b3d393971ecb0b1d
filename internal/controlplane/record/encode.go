package record

import (
	"encoding/json"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Encode makes the record of a value under a key. The types of this package always encode.
func Encode(k store.Key, v any) store.Record {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("controlplane: encode %s: %v", k, err))
	}
	return store.Record{Key: k, Value: data}
}

// EncodeWorkflow encodes a workflow with its places in the indexes of the lists for people.
func EncodeWorkflow(w *Workflow) store.Record {
	r := Encode(WorkflowKey(w.ID), w)
	at := At(w.Submitted)
	r.Indexes = map[store.Index]store.Entry{
		store.Index1: {Part: OrganizationRuns(w.Org), Sort: at},
		store.Index2: {Part: "ws/" + w.WorkspaceID, Sort: at},
	}
	return r
}

// ActiveIndex is the partition of Index1 that lists the active workflows of an organization, however many others
// there are.
func ActiveIndex(org string) string { return "active/" + org }

// EncodeActive encodes the entry of an active workflow. Its place in the index is that of the workflow.
func EncodeActive(w *Workflow) store.Record {
	r := Encode(ActiveKey(w.PoolID, w.ID), Active{Instance: w.Instance})
	r.Indexes = map[store.Index]store.Entry{store.Index1: {Part: ActiveIndex(w.Org), Sort: At(w.Submitted)}}
	return r
}

// Decode reads the value of a record.
func Decode[T any](r store.Record) (v T, err error) {
	err = DecodeInto(r, &v)
	return v, err
}

// DecodeInto decodes the value of a record into v, which is a pointer.
func DecodeInto(r store.Record, v any) error {
	if err := json.Unmarshal(r.Value, v); err != nil {
		return fmt.Errorf("cannot decode record %s: %w", r.Key, err)
	}
	return nil
}

// DecodeAll reads the values of records.
func DecodeAll[T any](records []store.Record) ([]T, error) {
	out := make([]T, len(records))
	for i, r := range records {
		var err error
		if out[i], err = Decode[T](r); err != nil {
			return nil, err
		}
	}
	return out, nil
}
