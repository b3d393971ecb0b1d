package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// trail reads all entries, as a verifier does.
func (w *world) trail(f api.AuditFilter) iter.Seq2[api.AuditEvent, error] {
	return func(yield func(api.AuditEvent, error) bool) {
		for f.Order = api.OldestFirst; ; {
			page, err := w.plane.Audit(w.ctx(), w.admin, f)
			w.must(err)
			for _, e := range page.Items {
				if !yield(e, nil) {
					return
				}
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return
			}
		}
	}
}

func (w *world) verify(anchors map[int64]api.AuditAnchor) api.AuditReport {
	w.t.Helper()
	state, err := w.plane.Seals(w.ctx(), w.admin, "", 1)
	w.must(err)
	seals := func(yield func(api.Seal, error) bool) {
		for cursor := ""; ; {
			page, err := w.plane.Seals(w.ctx(), w.admin, cursor, 2)
			w.must(err)
			for _, s := range page.Items {
				if !yield(s, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
	r, err := api.VerifyAudit("default", state, seals, w.trail(api.AuditFilter{}), anchors)
	w.must(err)
	return r
}

// happens makes n entries, a second apart.
func (w *world) happens(n int) {
	w.t.Helper()
	for range n {
		w.clock.advance(time.Second)
		if _, err := w.plane.Workspaces(w.ctx(), w.pool, "", 1); err == nil { // an audited refusal
			w.t.Fatal("a pool may list workspaces")
		}
	}
}

func (w *world) sealed(seals, each int) {
	w.t.Helper()
	for range seals {
		w.happens(each)
		w.clock.advance(6 * time.Minute)
		w.pass()
		w.pass() // the first one may have lost the answer of a commit, and left it to this one
	}
}

// O14: entries older than five minutes are sealed, later ones are not, and both are reported.
func TestSeal_HasWhatIsOlderThanFiveMinutes(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.sealed(3, 4)
		w.happens(2)
		w.pass()
		got := w.verify(nil)
		if got.Broken != "" || got.First != 1 || got.Last != 3 || got.Unsealed != 2 || got.Entries < 12 {
			t.Errorf("verified: %+v", got)
		}
		w.clock.advance(5*time.Minute + time.Second)
		w.pass()
		if got := w.verify(nil); got.Broken != "" || got.Last != 4 || got.Unsealed != 0 {
			t.Errorf("after five minutes: %+v", got)
		}
		before := w.verify(nil)
		w.clock.advance(time.Hour)
		w.pass()
		if got := w.verify(nil); got != before {
			t.Errorf("a pass with nothing to seal made %+v of %+v", got, before)
		}
	})
}

// O14: a seal is bounded, and one pass makes several.
func TestSeal_ManyEntriesAreSealedByOnePass(t *testing.T) {
	w := newWorld(t, memory.New())
	var ops []store.Op
	for i := range 1203 {
		k := record.AuditKey("default", w.clock.now())
		ops = append(ops, store.Put(record.Encode(k, api.AuditEvent{At: w.clock.now(), Action: fmt.Sprint(i)}), store.Absent))
		if len(ops) == 50 || i == 1202 {
			w.commit(record.Random(18), ops...)
			ops = nil
		}
	}
	w.clock.advance(6 * time.Minute)
	w.pass()
	if got := w.verify(nil); got.Broken != "" || got.Last != 7 || got.Entries < 1203 || got.Unsealed != 0 {
		t.Errorf("verified: %+v", got)
	}
}

// rewrite changes the value of a record, past the rules.
func rewrite[T any](w *world, k store.Key, change func(*T)) {
	w.t.Helper()
	records, err := w.store.Get(w.ctx(), k)
	w.must(err)
	v, err := record.Decode[T](records[0])
	w.must(err)
	change(&v)
	w.commit(record.Random(18), store.Put(record.Encode(k, v), records[0].Version))
}

func (w *world) remove(k store.Key) {
	w.t.Helper()
	records, err := w.store.Get(w.ctx(), k)
	w.must(err)
	w.commit(record.Random(18), store.Delete(k, records[0].Version))
}

// O14: after any change behind the program's back, the first broken link is named.
func TestVerify_NamesTheFirstBrokenLink(t *testing.T) {
	type scene struct {
		*world
		entries []api.AuditEvent // of seal 2
		seals   []api.Seal
		all     []api.AuditEvent
	}
	entry := func(id string) store.Key { return store.Key{Part: record.AuditPart("default"), Sort: id} }
	for name, test := range map[string]struct {
		tamper          func(s scene)
		want            string // without the forwarded trail
		anchored        string // with it; empty: the same
		onlyWithAnchors bool
	}{
		"changed": {tamper: func(s scene) {
			rewrite(s.world, entry(s.entries[1].ID), func(e *api.AuditEvent) { e.Actor = "somebody else" })
		}, want: "seal 2 (2026-05-04 12:00:03Z to 2026-05-04 12:06:06Z): an entry of it was changed, or the seal itself", anchored: " was changed: it was agent workspace.list"},
		"deleted":                    {tamper: func(s scene) { s.remove(entry(s.entries[0].ID)) }, want: "seal 2 (2026-05-04 12:00:03Z to 2026-05-04 12:06:06Z): it has 3 entries, and there are 2", anchored: " was deleted: agent workspace.list"},
		"the last of a seal deleted": {tamper: func(s scene) { s.remove(entry(s.entries[2].ID)) }, want: "it has 3 entries, and there are 2"},
		"inserted": {tamper: func(s scene) {
			at := s.entries[0].At.Add(time.Millisecond)
			s.commit(record.Random(18), store.Put(record.Encode(record.AuditKey("default", at), api.AuditEvent{At: at, Actor: "late"}), store.Absent))
		}, want: " was added, after the seal was made: by somebody who can write the records"},
		"not readable": {tamper: func(s scene) {
			records, err := s.store.Get(s.ctx(), entry(s.entries[0].ID))
			s.must(err)
			s.commit(record.Random(18), store.Put(store.Record{Key: records[0].Key, Value: []byte("?")}, records[0].Version))
		}, want: "seal 2 (2026-05-04 12:00:03Z to 2026-05-04 12:06:06Z): an entry of it was changed"},
		"reordered": {tamper: func(s scene) {
			a, b := s.entries[0], s.entries[1]
			rewrite(s.world, entry(a.ID), func(e *api.AuditEvent) { *e = b; e.ID = "" })
			rewrite(s.world, entry(b.ID), func(e *api.AuditEvent) { *e = a; e.ID = "" })
		}, want: "seal 2 (2026-05-04 12:00:03Z to 2026-05-04 12:06:06Z): an entry of it was changed"},
		"a seal deleted":  {tamper: func(s scene) { s.remove(record.SealKey("default", 2)) }, want: "seal 2 is missing: the next one is seal 3"},
		"a seal changed":  {tamper: func(s scene) { rewrite(s.world, record.SealKey("default", 2), func(x *api.Seal) { x.Count-- }) }, want: "seal 2 (", anchored: "the entries are those that were forwarded; the seal was changed"},
		"seals exchanged": {tamper: func(s scene) { rewrite(s.world, record.SealKey("default", 2), func(x *api.Seal) { *x = s.seals[0] }) }, want: "seal 1 is in the place of seal 2"},
		"a seal and its entries deleted": {tamper: func(s scene) {
			for _, e := range s.entries {
				s.remove(entry(e.ID))
			}
			s.remove(record.SealKey("default", 2))
		}, want: "seal 2 is missing: the next one is seal 3"},
		"the last seal deleted": {tamper: func(s scene) { s.remove(record.SealKey("default", 3)) }, want: "seal 3 is missing, and so is all that comes after it: there was a seal 3"},
		"the beginning deleted": {tamper: func(s scene) { s.remove(record.SealKey("default", 1)) }, want: "seal 1 is missing: the next one is seal 2"},
		// A writer of all records can end the trail earlier, or compute it anew. Only the forwarded seals reveal that.
		"the end cut off": {tamper: func(s scene) {
			for _, e := range s.all {
				if e.ID > s.seals[1].To {
					s.remove(entry(e.ID))
				}
			}
			s.remove(record.SealKey("default", 3))
			rewrite(s.world, record.SealedKey("default"), func(x *record.Sealed) { x.Number, x.To, x.Digest = 2, s.seals[1].To, s.seals[1].Digest })
		}, want: "seal 3 is missing, and so is all that comes after it: there was a seal 3", onlyWithAnchors: true},
		"sealed anew": {tamper: func(s scene) {
			rewrite(s.world, entry(s.all[len(s.all)-1].ID), func(e *api.AuditEvent) { e.Actor = "somebody else" })
			anew := s.seals[2]
			var in []api.AuditEvent
			for e, err := range s.trail(api.AuditFilter{After: anew.After}) {
				s.must(err)
				in = append(in, e)
			}
			anew.Digest = anew.Sum("default", in)
			rewrite(s.world, record.SealKey("default", 3), func(x *api.Seal) { *x = anew })
		}, want: "it is not the seal that was forwarded", onlyWithAnchors: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.sealed(3, 3)
			page, err := w.plane.Seals(w.ctx(), w.admin, "", 10)
			w.must(err)
			s := scene{world: w, seals: page.Items}
			anchors := map[int64]api.AuditAnchor{}
			for e, err := range w.trail(api.AuditFilter{}) {
				w.must(err)
				s.all = append(s.all, e)
				for _, seal := range s.seals {
					if e.ID > seal.After && e.ID <= seal.To {
						a := anchors[seal.Number]
						anchors[seal.Number] = api.AuditAnchor{Seal: seal, Entries: append(a.Entries, e)}
					}
				}
			}
			s.entries = anchors[2].Entries
			if got := w.verify(anchors); got.Broken != "" || got.Anchored != 3 {
				t.Fatalf("before: %+v", got)
			}
			test.tamper(s)
			if got := w.verify(nil); test.onlyWithAnchors != (got.Broken == "") || !test.onlyWithAnchors && !strings.Contains(got.Broken, test.want) {
				t.Errorf("alone: %q, want %q", got.Broken, test.want)
			}
			want := test.anchored
			if want == "" && test.onlyWithAnchors {
				want = test.want
			}
			if got := w.verify(anchors); got.Broken == "" || !strings.Contains(got.Broken, want) {
				t.Errorf("with the forwarded trail: %q, want %q", got.Broken, want)
			}
		})
	}
}

// O14: each field of an entry and of a seal is in the digest.
func TestSum_CoversEveryField(t *testing.T) {
	seal, entries := api.Seal{Number: 1, Count: 1, At: time.Unix(1, 0)}, []api.AuditEvent{{ID: "i", At: time.Unix(1, 0), Actor: "ab", Action: "c"}}
	was := seal.Sum("o", entries)
	change := func(v reflect.Value) {
		switch x := v.Addr().Interface().(type) {
		case *string:
			*x += "x"
		case *int:
			*x++
		case *int64:
			*x++
		case *time.Time:
			*x = x.Add(1)
		default:
			t.Fatalf("a field of type %s: say what it is in the digest", v.Type())
		}
	}
	for f := range reflect.TypeFor[api.Seal]().Fields() {
		other := seal
		if change(reflect.ValueOf(&other).Elem().FieldByIndex(f.Index)); f.Name != "Digest" && other.Sum("o", entries) == was {
			t.Errorf("the digest is the same with another %s of the seal", f.Name)
		}
	}
	for f := range reflect.TypeFor[api.AuditEvent]().Fields() {
		other := slices.Clone(entries)
		if change(reflect.ValueOf(&other[0]).Elem().FieldByIndex(f.Index)); seal.Sum("o", other) == was {
			t.Errorf("the digest is the same with another %s of an entry", f.Name)
		}
	}
	for name, other := range map[string][]api.AuditEvent{
		"a letter moved": {{ID: "i", At: time.Unix(1, 0), Actor: "a", Action: "bc"}},
		"fields moved":   {{ID: "i", At: time.Unix(1, 0), Actor: "ab", Target: "c"}},
		"cut in two":     {{ID: "i", At: time.Unix(1, 0), Actor: "ab"}, {Action: "c"}},
	} {
		if seal.Sum("o", other) == was {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	if seal.Sum("p", entries) == was {
		t.Error("the digest is the same for another organization")
	}
	// Other programs compute digests from these bytes: they never change.
	if want := "69dec25b5d3619d81a340aae111a2dc3514866eae542041b047812fadf48735e"; was != want {
		t.Errorf("the digest of known entries is %s, was %s", was, want)
	}
}

// dying is a store that fails from some commit on.
type dying struct {
	store.Store
	left int
}

var errDead = errors.New("the process has died")

func (d *dying) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return d.Store.Commit(ctx, id, ops...)
}

// O14: the purge deletes whole seals, none that is young, and wherever it dies, nothing is missed.
func TestPurge_OfTheTrailIsOfWholeSealsAndMayDie(t *testing.T) {
	for dies := range 12 {
		st := &dying{memory.New(), 1 << 30}
		w := newWorld(t, st)
		days := 10
		_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{AuditRetention: &days})
		w.must(err)
		w.sealed(2, 30) // entries of day 0, two purge commits each
		w.clock.advance(9 * day)
		w.sealed(1, 3)
		w.clock.advance(day)
		st.left = dies
		_, _ = w.plane.Pass(w.ctx())
		st.left = 1 << 30
		if got := w.verify(nil); got.Broken != "" {
			t.Fatalf("died at commit %d: %+v", dies, got)
		}
		w.pass()
		got := w.verify(nil)
		if got.Broken != "" || got.First != 3 || got.Last != 3 || got.Entries != 3 {
			t.Fatalf("died at commit %d, after the next pass: %+v", dies, got)
		}
		for e, err := range w.trail(api.AuditFilter{}) {
			w.must(err)
			if w.clock.now().Sub(e.At) > 10*day {
				t.Fatalf("died at commit %d: %+v is left", dies, e)
			}
		}
	}
}

// elsewhere is a place that takes the trail, and may be down.
type elsewhere struct {
	name string
	down bool
	got  []api.AuditLine
}

func (e *elsewhere) Place() string { return e.name }

func (e *elsewhere) Forward(_ context.Context, org string, entries []api.AuditEvent, s api.Seal) error {
	if e.down {
		return errors.New("nobody listens there")
	}
	for _, one := range entries {
		e.got = append(e.got, api.AuditLine{Organization: org, Entry: &one})
	}
	e.got = append(e.got, api.AuditLine{Organization: org, Seal: &s})
	return nil
}

func (e *elsewhere) seals() (out []int64) {
	for _, l := range e.got {
		if l.Seal != nil {
			out = append(out, l.Seal.Number)
		}
	}
	return out
}

// O14: every seal is forwarded once it is made, in order; what a place that is down misses is forwarded later, and not
// deleted before.
func TestForward_IsInOrderAndLosesNothing(t *testing.T) {
	to := &elsewhere{name: "there"}
	w := newWorld(t, memory.New())
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Forward: to})
	forwarded := func() api.Forwarding {
		page, err := w.plane.Seals(w.ctx(), w.admin, "", 1)
		w.must(err)
		if page.Forwarded == nil {
			return api.Forwarding{}
		}
		return *page.Forwarded
	}
	w.sealed(2, 2)
	to.down = true
	w.sealed(2, 2)
	if got := forwarded(); got.Seal != 2 || got.Failed != "nobody listens there" || got.Since == nil {
		t.Errorf("while it is down: %+v", got)
	}
	days := 10
	_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{AuditRetention: &days})
	w.must(err)
	w.clock.advance(11 * day)
	w.pass()
	to.down = false
	w.pass()
	if got := forwarded(); got != (api.Forwarding{Seal: 5}) || !slices.Equal(to.seals(), []int64{1, 2, 3, 4, 5}) {
		t.Errorf("forwarded %v: %+v", to.seals(), got)
	}
	w.pass()
	if got := w.verify(nil); got.Broken != "" || got.First != 6 {
		t.Errorf("what is forwarded is past its retention, but: %+v", got)
	}
	to.name, to.got = "another place", nil
	w.sealed(1, 1)
	if !slices.Equal(to.seals(), []int64{6}) {
		t.Errorf("the other place got %v, want all that is kept", to.seals())
	}
	if data, _ := json.Marshal(to.got[len(to.got)-1]); !strings.Contains(string(data), `"seal":{"number":6`) {
		t.Errorf("the last line is %s", data)
	}
}
