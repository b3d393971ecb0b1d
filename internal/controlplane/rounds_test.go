package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// requests is a store that notes the requests that a call makes of it, one after the other.
type requests struct {
	store.Store
	mu   sync.Mutex
	made []string
}

func (r *requests) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, what)
}

func (r *requests) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	r.note("get")
	return r.Store.Get(ctx, keys...)
}

func (r *requests) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	r.note("range")
	return r.Store.Range(ctx, s)
}

// Ranges is one request, as in DynamoDB's store, which reads them at the same time.
func (r *requests) Ranges(ctx context.Context, scans ...store.Scan) (pages []store.Page, err error) {
	r.note("range")
	for _, s := range scans {
		page, err := r.Store.Range(ctx, s)
		if err != nil {
			return nil, err
		}
		pages = append(pages, page)
	}
	return pages, nil
}

func (r *requests) Query(ctx context.Context, index store.Index, s store.Scan) (store.Page, error) {
	r.note("query")
	return r.Store.Query(ctx, index, s)
}

func (r *requests) Commit(ctx context.Context, id string, ops ...store.Op) error {
	r.note("commit")
	return r.Store.Commit(ctx, id, ops...)
}

// of are the requests that a call makes.
func (r *requests) of(call func()) string {
	r.made = nil
	call()
	return strings.Join(r.made, " ")
}

// A pick-up begins with the store requests of the submit. The process caches pools and workspaces, which saves the
// requests that only lead from one record to the next.
func TestSubmit_ReadsInTwoRoundsAndAnswersFromItsCommit(t *testing.T) {
	st := &requests{Store: memory.New()}
	w := newWorld(t, st)
	token, err := w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "ci", Role: api.RoleOperator})
	w.must(err)
	for _, name := range []string{"first", "second", "third"} {
		w.workspace(name)
	}
	w.workspace("tofu", func(ws *api.Workspace) {
		ws.Engine, ws.Commands = api.EngineTofu, nil
	})
	keys := 0
	submit := func(workspace string) string {
		keys++
		return st.of(func() {
			who, err := w.plane.Authenticate(w.ctx(), token.Value)
			w.must(err)
			_, err = w.plane.Submit(w.ctx(), who, fmt.Sprint("key", keys), api.Submit{Workspace: workspace, Operation: workflow.Preview})
			w.must(err)
		})
	}
	for _, c := range []struct{ what, workspace, want string }{
		{"the first of a process", "first", "get get get get commit"},
		{"where its mark is set, it looks after the commit", "second", "get get get commit get"},
		{"another one of a workspace", "first", "get get commit get"},
	} {
		if d := cmp.Diff(c.want, submit(c.workspace)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, d)
		}
	}
	for _, c := range []struct{ what, workspace, want string }{
		{"a workspace that this process has not seen", "third", "get get get commit"},
		{"one that it has seen", "third", "get get commit"},
		{"one of which no run has found a state: its deleted namesakes", "tofu", "get get get range commit"},
	} {
		w.claim(10) // clears the mark
		if d := cmp.Diff(c.want, submit(c.workspace)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, d)
		}
	}
}

// A repeated submit answers as the workflow is now.
func TestSubmit_ThatIsRepeatedAnswersAsItStands(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	in := api.Submit{Workspace: "net", Operation: workflow.Update, Message: "why"}
	first, err := w.plane.Submit(w.ctx(), w.admin, "key", in)
	w.must(err)
	if d := cmp.Diff(w.show(first.ID), first); d != "" {
		t.Errorf("the answer is not the stored record (-stored +answered):\n%s", d)
	}
	w.claimOne()
	again, err := w.plane.Submit(w.ctx(), w.admin, "key", in)
	w.must(err)
	if again.ID != first.ID || again.State != workflow.Claimed {
		t.Errorf("repeated: %s is %s, want %s to be claimed", again.ID, again.State, first.ID)
	}
}

// crowd lets the first commits of n submits begin only when all of them have read.
type crowd struct {
	store.Store
	mu    sync.Mutex
	n     int
	all   chan struct{}
	tried map[string]int // commits by workflow
	lost  int            // of them
}

func (s *crowd) Commit(ctx context.Context, id string, ops ...store.Op) error {
	wf := ""
	for _, op := range ops {
		if part := op.Key().Part; strings.HasPrefix(part, "wf/") {
			wf = part
		}
	}
	if wf == "" {
		return s.Store.Commit(ctx, id, ops...)
	}
	s.mu.Lock()
	s.tried[wf]++
	if len(s.tried) == s.n && s.tried[wf] == 1 {
		close(s.all)
	}
	s.mu.Unlock()
	<-s.all
	err := s.Store.Commit(ctx, id, ops...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, store.ErrConflict) {
		s.lost++
	}
	return err
}

// All of them find the mark clear. One sets it; each of the others loses that race once, and leaves the mark alone
// then.
func TestSubmit_OfManyAtOnceEachLosesOneRaceAtMost(t *testing.T) {
	const n = 100
	wk := &waker{}
	w := waking(t, wk)
	for i := range n {
		w.workspace(fmt.Sprintf("net%d", i))
	}
	st := &crowd{Store: w.store, n: n, all: make(chan struct{}), tried: map[string]int{}}
	w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now, Waker: wk})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { w.submit(fmt.Sprintf("net%d", i), workflow.Update) })
	}
	all.Wait()
	for wf, tries := range st.tried {
		if tries > 2 {
			t.Errorf("%s was committed %d times", wf, tries)
		}
	}
	if len(st.tried) != n || st.lost != n-1 {
		t.Errorf("%d submits lost %d races, want %d that lost one each but for the first", len(st.tried), st.lost, n)
	}
	if d := cmp.Diff([]string{"dayfly-wake-default"}, wk.all()); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
}

// contested is a store in which somebody else writes a wake mark before each commit of work that sets it.
type contested struct {
	store.Store
	times int
}

func (s *contested) Commit(ctx context.Context, id string, ops ...store.Op) error {
	for _, op := range ops {
		if k := op.Key(); len(ops) > 1 && k.Sort == "wake" {
			s.times++
			was, err := s.Get(ctx, k)
			if err != nil {
				return err
			}
			mark := store.Put(record.Encode(k, record.Wake{}), store.Absent)
			if len(was) > 0 {
				mark = store.Put(record.Encode(k, record.Wake{}), was[0].Version)
			}
			if err := s.Store.Commit(ctx, fmt.Sprint("other", s.times), mark); err != nil {
				return err
			}
		}
	}
	return s.Store.Commit(ctx, id, ops...)
}

func TestSubmit_WritesTheMarkSeparatelyAfterALostRace(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	w.workspace("net")
	st := &contested{Store: w.store}
	w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now, Waker: wk})
	w.submit("net", workflow.Update)
	if st.times != 1 {
		t.Errorf("the mark was set in %d commits of the submit, want 1", st.times)
	}
	if d := cmp.Diff([]string{"dayfly-wake-default"}, wk.all()); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
}

// The heartbeat of the instance is in the claim's own commit.
func TestClaim_WaitsForNoCommitBesidesItsOwnAndTheMarks(t *testing.T) {
	st := &requests{Store: memory.New()}
	w := newWorld(t, st)
	w.workspace("net")
	claim := func() (jobs []api.Job) {
		w.clock.advance(time.Minute)
		who := w.pool
		made := st.of(func() {
			out, err := w.plane.Claim(w.ctx(), who, api.Claim{Instance: "one", Max: 10})
			w.must(err)
			jobs = out.Jobs
		})
		want := "get range commit"
		if len(jobs) > 0 {
			want = "get commit range get commit"
		}
		if d := cmp.Diff(want, made); d != "" {
			t.Errorf("a claim of %d jobs (-want +got):\n%s", len(jobs), d)
		}
		return jobs
	}
	claim()
	w.submit("net", workflow.Preview)
	if len(claim()) != 1 {
		t.Error("the claim got nothing")
	}
	pool, err := w.plane.Pool(w.ctx(), w.admin, "default")
	w.must(err)
	runners, err := w.plane.Runners(w.ctx(), w.admin, "default")
	w.must(err)
	if pool.Status != "healthy" || len(runners.Items) != 1 || w.clock.now().Sub(runners.Items[0].LastSeen) > time.Second {
		t.Errorf("pool is %s, instances %v", pool.Status, runners.Items)
	}
}
