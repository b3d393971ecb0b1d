package controlplane_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// flood is a store with very many timers that have run out, in one range of one partition. They are made when they are
// read: a million records would take minutes. All name one workflow, whose record names none of them, so the pass
// deletes each that it looks at.
type flood struct {
	store.Store
	part, from string // of the range
	id         string
	many       int
	gone       map[string]bool
	pages      int
	done       func(ops []store.Op) // after each commit
}

func (f *flood) key(i int) store.Key {
	return store.Key{Part: f.part, Sort: fmt.Sprintf("%s%015d/%s", f.from, i+1, f.id)}
}

func (f *flood) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	if s.Part != f.part || s.From != f.from {
		return f.Store.Range(ctx, s)
	}
	f.pages++
	var page store.Page
	for i := len(f.gone); i < f.many && len(page.Records) < s.Limit; i++ {
		if k := f.key(i); k.Sort > s.After && !f.gone[k.Sort] {
			r := record.Encode(k, record.Name{ID: f.id})
			r.Version = 1
			page.Records, page.Next = append(page.Records, r), k.Sort
		}
	}
	return page, nil
}

func (f *flood) Get(ctx context.Context, keys ...store.Key) (out []store.Record, err error) {
	for _, k := range keys {
		if k.Part == f.part && strings.HasSuffix(k.Sort, "/"+f.id) && strings.HasPrefix(k.Sort, f.from) && !f.gone[k.Sort] {
			return []store.Record{{Key: k, Version: 1}}, nil
		}
	}
	return f.Store.Get(ctx, keys...)
}

func (f *flood) Commit(ctx context.Context, id string, ops ...store.Op) error {
	rest := ops[:0:0]
	for _, op := range ops {
		if k := op.Key(); op.IsDelete() && k.Part == f.part && strings.HasPrefix(k.Sort, f.from) {
			f.gone[k.Sort] = true
		} else {
			rest = append(rest, op)
		}
	}
	err := f.Store.Commit(ctx, id, rest...)
	f.done(ops)
	return err
}

// A million timers have run out, and one lease has lapsed after them. The lease is looked at in the same pass,
// before the third page of them, also if it is of another organization. The pass goes on with them and ends in time,
// and the next passes go on from there.
func TestPass_AMillionTimeOutsDoNotHoldBackALease(t *testing.T) {
	for name, of := range map[string]struct {
		kind      string // of the timers
		pages     int    // that may be read before the lease is moved
		elsewhere bool   // the lease is of the next organization
	}{
		"queue time-outs":         {record.WaitTimers, 0, false},
		"of runs":                 {record.ServiceTimers, 2, false},
		"of another organization": {record.ServiceTimers, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			st := &flood{Store: memory.New(), many: 1_000_000, gone: map[string]bool{}, done: func([]store.Op) {}}
			w := newWorld(t, st)
			w.workspace("web")
			claimed, id := *w, ""
			if of.elsewhere {
				claimed, id = w.organizations(1)
			} else {
				w.workspace("net")
				id = w.submit("net", workflow.Update).ID
				w.claimOne()
			}
			st.id = w.submit("web", workflow.Update).ID
			st.part, st.from = record.TimerKey("default", "", st.id).Part, of.kind
			pages := -1
			st.done = func(ops []store.Op) {
				if moves(id, workflow.Pending, func() {})(ops) != nil && pages < 0 {
					pages = st.pages
				}
			}
			w.clock.advance(workflow.FirstLease + time.Second)
			sum, err := w.plane.Pass(w.ctx())
			w.must(err)
			claimed.is(id, workflow.Pending, "")
			if pages < 0 || pages > of.pages {
				t.Errorf("the lease was moved after %d pages of time-outs, want at most %d", pages, of.pages)
			}
			first := len(st.gone)
			if !sum.More || first < 1000 || first > 10_000 {
				t.Errorf("the pass looked at %d time-outs: %+v", first, sum)
			}
			w.pass()
			if len(st.gone) < 2*first-10 {
				t.Errorf("the next pass came from %d to %d time-outs", first, len(st.gone))
			}
		})
	}
}

// atOnce is a store that reads several ranges at once, as DynamoDB does: so the pass works on several things at once.
type atOnce struct{ store.Store }

func (a atOnce) Ranges(ctx context.Context, scans ...store.Scan) ([]store.Page, error) {
	pages, errs := make([]store.Page, len(scans)), make([]error, len(scans))
	var all sync.WaitGroup
	for i, s := range scans {
		all.Go(func() { pages[i], errs[i] = a.Range(ctx, s) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// A pass that works on several things at once moves each of them once.
func TestPass_ManyAtOnce(t *testing.T) {
	w := newWorld(t, atOnce{memory.New()})
	const claimed, waiting = 40, 300
	w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 1000 })
	for range claimed + waiting {
		w.submit("net", workflow.Preview)
	}
	var jobs []api.Job
	for len(jobs) < claimed {
		jobs = append(jobs, w.claim(10)...)
	}
	w.clock.advance(workflow.FirstLease + time.Second)
	sum, err := w.plane.Pass(w.ctx())
	w.must(err)
	if sum.Moved != claimed || sum.Looked != claimed || sum.More {
		t.Errorf("%+v, want %d claims moved", sum, claimed)
	}
	w.clock.advance(workflow.QueueTimeout)
	if sum, err = w.plane.Pass(w.ctx()); err != nil || sum.Moved != claimed+waiting || sum.Looked != claimed+waiting || sum.More {
		t.Errorf("%+v, %v, want all %d ended", sum, err, claimed+waiting)
	}
	if active, _, freed := w.counter(record.OrganizationLimitKey("default")); active != 0 || freed != 0 {
		t.Errorf("%d counted, %d freed", active, freed)
	}
}

// slow is a store in which a look at an organization takes a while.
type slow struct {
	store.Store
	clock *clock
	took  time.Duration
	looks int
}

func (s *slow) Range(ctx context.Context, scan store.Scan) (store.Page, error) {
	if s.clock != nil && strings.HasPrefix(scan.Part, "limit/") {
		s.clock.advance(s.took)
		s.looks++
	}
	return s.Store.Range(ctx, scan)
}

// organizations makes more of them. The last one has a claim that has lapsed.
func (w *world) organizations(n int) (last world, id string) {
	w.t.Helper()
	last = *w
	for i := range n {
		admin, err := w.plane.Bootstrap(w.ctx(), fmt.Sprintf("org%04d", i))
		w.must(err)
		if i < n-1 {
			continue
		}
		last.admin, err = w.plane.Authenticate(w.ctx(), admin)
		w.must(err)
		token, err := w.plane.EnsurePoolToken(w.ctx(), last.admin.Organization, "default", "agent")
		w.must(err)
		last.pool, err = w.plane.Authenticate(w.ctx(), token)
		w.must(err)
	}
	last.workspace("net")
	id = last.submit("net", workflow.Update).ID
	last.claimOne()
	w.clock.advance(workflow.FirstLease + time.Second)
	return last, id
}

// There are more organizations than a read returns.
func TestPass_OfMoreThanAThousandOrganizations(t *testing.T) {
	w := newWorld(t, memory.New())
	last, id := w.organizations(1050)
	w.pass()
	last.is(id, workflow.Pending, "")
}

// A pass that has no time for every organization is followed by one that goes on where it ended.
func TestPass_ContinuesWithUnvisitedOrganizations(t *testing.T) {
	st := &slow{Store: memory.New()}
	w := newWorld(t, st)
	last, id := w.organizations(400)
	st.clock, st.took = w.clock, 200*time.Millisecond
	passes, left := 0, true
	for ; left && last.show(id).State == workflow.Claimed && passes < 10; passes++ {
		sum, err := w.plane.Pass(w.ctx())
		w.must(err)
		left = sum.More
	}
	last.is(id, workflow.Pending, "")
	if passes < 2 || passes > 5 {
		t.Errorf("the last of 400 organizations was reached in pass %d", passes)
	}
	for range 5 { // and the first ones are not forgotten
		before := st.looks
		w.pass()
		if st.looks == before {
			t.Error("a pass looked at no organization")
		}
	}
}
