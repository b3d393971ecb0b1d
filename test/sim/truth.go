package sim

import (
	"context"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// record is a workflow as the store has it: what docs/store.md says about its fields.
type record struct {
	ID          string                       `json:"id"`
	Workspace   string                       `json:"ws"`
	WorkspaceID string                       `json:"wsid"`
	PoolID      string                       `json:"pool"`
	Instance    string                       `json:"instance"`
	Type        workflow.Type                `json:"type"`
	Op          workflow.Operation           `json:"op"`
	Trigger     *struct{ Kind, Name string } `json:"trigger"`
	State       workflow.State               `json:"state"`
	Reason      workflow.Reason              `json:"reason"`
	Claimed     time.Time                    `json:"claimed"`
	Attempt     int                          `json:"attempt"`
	Starts      int                          `json:"starts"`
	Lapses      int                          `json:"lapses"`
	Holder      struct {
		Attempt int    `json:"attempt"`
		Task    string `json:"task"`
		Boot    string `json:"boot"`
	} `json:"holder"`
	Started  time.Time          `json:"started"`
	Max      time.Duration      `json:"max"`
	CancelAt time.Time          `json:"cancel"`
	Active   bool               `json:"active"`
	SlotHeld bool               `json:"slot_held"`
	Message  string             `json:"msg"`
	RetryOf  string             `json:"retry_of"`
	By       string             `json:"by"`
	For      workflow.Operation `json:"for"`
	PlanOf   string             `json:"plan_of"`
	Ended    time.Time          `json:"ended"`
}

func (r *record) changesState() bool { return workflow.ChangesState(r.Type, r.Op) }

// wants reports whether an attempt is to be launched.
func (r *record) wants(attempt int) bool {
	return r.State == workflow.Claimed && r.Attempt == attempt && r.CancelAt.IsZero()
}

// attempt names one.
type attempt struct {
	job string
	n   int
}

// truth is the real state of the world, which no part of it can see: what is in the store, and which promises were
// made.
type truth struct {
	w        *world
	orgLimit int
	records  map[string]*record
	order    []string              // ids, in the order of their submission
	leases   map[attempt]time.Time // until when a claim was promised to last, at least
	reported map[string]bool       // tasks that were reported as launched
	granted  map[attempt]map[string]bool
	starts   map[string]int       // granted to a workflow, over all attempts
	active   map[string]int       // by pool, as the workflows' records say
	made     map[string]int       // workflows, by what asked for them
	ends     map[string]time.Time // of runs: when their runners have killed their engines, by a clock that never steps
	books    *books
	plans    *reviews
	trees    map[string]*tree
	left     map[string]string // the last success that may have changed the state, by the workspace's id
}

func newTruth(w *world) *truth {
	return &truth{
		w: w, records: map[string]*record{}, leases: map[attempt]time.Time{}, reported: map[string]bool{},
		granted: map[attempt]map[string]bool{}, starts: map[string]int{}, active: map[string]int{}, made: map[string]int{}, ends: map[string]time.Time{}, books: newBooks(w), plans: newReviews(), trees: map[string]*tree{}, left: map[string]string{},
	}
}

// committed notes what a commit did to workflows.
func (t *truth) committed(ops []store.Op, call string, seen int) {
	var claimed []*record
	for _, op := range ops {
		if k := op.Key(); k.Sort == "wf" && strings.HasPrefix(k.Part, "wf/") && !op.IsCheck() {
			if r := t.look(k, call); r != nil {
				claimed = append(claimed, r)
			}
		}
	}
	for _, op := range ops {
		switch k := op.Key(); {
		case op.IsCheck():
		case k.Sort == "review":
			t.w.reviewed(strings.TrimPrefix(k.Part, "wf/"))
		case k.Part == "tree/default":
			t.w.grew(k.Sort)
		case k.Part == "org/default":
			t.plans.changed = t.w.clock
		}
	}
	t.books.follow(ops, claimed, seen)
}

// look reads a workflow again, and returns it if it was claimed.
func (t *truth) look(k store.Key, call string) (claimed *record) {
	found, ok := stored[record](t.w, k)
	if !ok {
		return nil
	}
	r, old := &found, t.records[found.ID]
	t.records[r.ID] = r
	if old == nil {
		t.order = append(t.order, r.ID)
		t.submitted(r)
		return nil
	}
	if old.Active {
		t.active[old.PoolID]--
	}
	if r.Active {
		t.active[r.PoolID]++
	}
	if old.State != workflow.Running && r.State == workflow.Running {
		t.ends[r.ID] = r.Started.Add(r.Max + workflow.DeadlineGrace - t.w.cp.step)
	}
	if old.State == workflow.Claimed && r.State == workflow.Running && r.changesState() {
		t.w.permitted(r)
	}
	t.w.moved(old, r, call)
	switch {
	case old.State == workflow.Running && r.State == workflow.Succeeded && r.changesState():
		t.left[r.WorkspaceID] = r.ID
	case old.State == workflow.Claimed && r.State == workflow.Running:
		t.w.isFed(r)
	case old.State == workflow.Claimed && r.Reason == workflow.ReasonInputMissing:
		t.w.lacks(r)
	}
	if old.State == workflow.Pending && r.State == workflow.Claimed {
		if r.PlanOf != "" {
			t.w.hasPlan(r)
		}
		return r
	}
	return nil
}

func (t *truth) of(job string) *record {
	if r := t.records[job]; r != nil {
		return r
	}
	return &record{}
}

// promise remembers how long a claim was said to last, counted from the beginning of the call.
func (t *truth) promise(job string, n int, from time.Time, d time.Duration) {
	r := t.of(job)
	end := from.Add(d)
	if window := r.Claimed.Add(workflow.LaunchWindow); window.Before(end) {
		end = window
	}
	if a := (attempt{job, n}); end.After(t.leases[a]) {
		t.leases[a] = end
	}
}

// partition reads a partition of the store as it is.
func (t *truth) partition(part string) map[string][]byte {
	out := map[string][]byte{}
	page, err := t.w.cp.inner.Range(context.Background(), store.Scan{Part: part, Limit: 1000})
	if err != nil {
		t.w.fail("readable", "partition %s: %v", part, err)
	}
	for _, r := range page.Records {
		out[r.Key.Sort] = r.Value
	}
	return out
}
