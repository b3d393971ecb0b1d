package controlplane

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// WakeForTest is what a commit for a client does that leaves while it is answered.
func (p *Plane) WakeForTest(ctx context.Context, leave context.CancelFunc, pool string) {
	leave()
	p.owe(ctx, []string{pool})
}

// Changed is what the audit trail says of a change of a pool.
var Changed = changed

// RecordFieldsForTest lists the fields of every record as they are stored: the record's name, a dot and the
// path of names in its JSON. A function of an older version that writes a record again drops those that it
// does not know.
func RecordFieldsForTest() []string {
	var out []string
	for name, v := range map[string]any{
		"wf": wfRec{}, "beat": beatRec{}, "attempt": attemptRec{}, "entry": entryRec{}, "lane": laneRec{}, "active": activeRec{},
		"limit": limitRec{}, "org": orgRec{}, "pool": poolRec{}, "name": nameRec{}, "workspace": workspaceRec{}, "secret": secretRec{},
		"runner": runnerRec{}, "pass": passRec{}, "wake": wakeRec{}, "wake-target": wakeTargetRec{}, "hold": poolHoldRec{}, "cursor": cursorRec{}, "idem": idemRec{}, "logend": logEndRec{},
		"spec": api.Spec{}, "step": api.Step{}, "line": api.LogLine{}, "result": api.Result{}, "event": api.Event{}, "audit": api.AuditEvent{},
	} {
		out = append(out, fieldsOf(name, reflect.TypeOf(v))...)
	}
	slices.Sort(out)
	return out
}

func fieldsOf(at string, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return []string{at}
	}
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, fieldsOf(at+"."+name, f.Type)...)
	}
	return out
}
