package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/storefault"
)

// controlPlane is the rules over one store, in as many processes as there are calls at once: a process that is
// stopped in the middle of a call does not stop the others.
type controlPlane struct {
	w       *world
	inner   *memory.Store
	flaky   bool // the store is
	calls   int
	servers []*server
	down    time.Duration // until when it is away
	step    time.Duration // by which its clock is wrong
	steps   int           // of it, so far
}

// now is the time as the control plane sees it.
func (cp *controlPlane) now() time.Time { return cp.w.now().Add(cp.step) }

// stepBy sets the control plane's clock.
func (cp *controlPlane) stepBy(d time.Duration) string {
	cp.step += d
	cp.steps++
	return fmt.Sprintf("the control plane's clock steps by %s", d)
}

// crash ends every process of the control plane: what they were doing is no longer committed.
func (cp *controlPlane) crash(down time.Duration) {
	for _, s := range cp.servers {
		s.crashed = s.busy
	}
	cp.servers, cp.down = nil, max(cp.down, down)
}

// server is one process of the control plane.
type server struct {
	cp      *controlPlane
	rules   *controlplane.Plane
	handler http.Handler
	busy    bool
	mu      sync.Mutex // of what follows: targets may be woken at once
	woken   []string   // targets, by the call that it is at
	crashed bool
	call    string        // that it is at
	faulty  store.Store   // as that call has it, while it is flaky
	begun   time.Duration // when that call began
	looked  int           // the last commit of all before it read what can be claimed
}

func newControlPlane(w *world) *controlPlane {
	return &controlPlane{w: w, inner: memory.New()}
}

// server returns a process that has nothing to do.
func (cp *controlPlane) server() *server {
	for _, s := range cp.servers {
		if !s.busy {
			return s
		}
	}
	s := &server{cp: cp}
	log := slog.New(cp.w.guard)
	s.rules = controlplane.New(&simStore{cp, s}, controlplane.Config{
		Now: cp.now, Alone: cp.w.alone, Log: log, OrganizationLimit: cp.w.truth.orgLimit, DefaultState: api.StateDirectory, Waker: s,
	})
	s.handler = httpapi.New(s.rules, httpapi.Config{Log: log})
	cp.servers = append(cp.servers, s)
	return s
}

// Wake implements controlplane.Waker.
func (s *server) Wake(_ context.Context, target string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken = append(s.woken, target)
	return nil
}

// died is the panic of a process of the control plane that dies in a call.
type died struct{}

// do makes one call in a process of the control plane.
func (cp *controlPlane) do(call string, f func(*controlplane.Plane) error) error {
	return cp.serve(call, func(s *server) error { return f(s.rules) })
}

func (cp *controlPlane) serve(call string, f func(*server) error) (err error) {
	if cp.w.clock < cp.down {
		return errLost
	}
	s := cp.server()
	cp.calls++
	s.begun = cp.w.clock
	s.busy, s.crashed, s.call, s.woken, s.looked, s.faulty = true, false, call, nil, math.MaxInt, nil
	defer func() {
		s.busy = false
		cause := recover()
		cp.w.wake(s.woken)
		if _, ok := cause.(died); !ok && cause != nil {
			panic(cause)
		}
		if s.crashed { // also where somebody in between took the panic for an answer
			cp.w.tell("the control plane died in %s", call)
			err = errLost
		}
	}()
	return f(s)
}

// RoundTrip implements http.RoundTripper: a request that reached the control plane.
func (cp *controlPlane) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	err = cp.serve(path.Base(r.URL.Path), func(s *server) error {
		resp, err = exchange(s.handler, r) //nolint:bodyclose // its caller closes it
		return err
	})
	return resp, err
}

// exchange is a request and its answer without a network.
func exchange(h http.Handler, r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	served := r.Clone(r.Context())
	served.RequestURI = r.URL.RequestURI()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, served)
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	return rec.Result(), nil
}

// simStore is the store as one process sees it.
type simStore struct {
	cp *controlPlane
	s  *server
}

// store is the store as this call has it. Each call of a flaky store has faults of its own: how often a call tries
// again depends on chance that no seed sets, and must not change the outcome of the others.
func (st *simStore) store() store.Store {
	if !st.cp.flaky {
		return st.cp.inner
	}
	if st.s.faulty == nil {
		seed := st.cp.w.roll("flaky", st.cp.calls).Uint64()
		st.s.faulty = storefault.New(st.cp.inner, seed, storefault.Faults{Busy: .15, LostRequest: .1, LostAnswer: .15, BusyRead: .05, Stale: .5})
	}
	return st.s.faulty
}

// Get implements store.Store.
func (st *simStore) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	return st.store().Get(ctx, keys...)
}

// Range implements store.Store.
func (st *simStore) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	if books := st.cp.w.truth.books; strings.HasPrefix(s.Part, claimable) && s.After == "" {
		st.s.looked = min(st.s.looked, books.commits)
	}
	return st.store().Range(ctx, s)
}

// Query implements store.Store.
func (st *simStore) Query(ctx context.Context, index store.Index, s store.Scan) (store.Page, error) {
	return st.store().Query(ctx, index, s)
}

// Commit implements store.Store.
func (st *simStore) Commit(ctx context.Context, id string, ops ...store.Op) error {
	w := st.cp.w
	if st.s.crashed {
		st.die()
	}
	t := w.sprung(w.other(plane), "store", st.s.call, true)
	if t != nil {
		w.tell("%s of %s", t.do, st.s.call)
		switch t.do { //nolint:exhaustive // the others are not the store's
		case storeBusy:
			return store.ErrBusy
		case storeLostRequest:
			return store.ErrUnknown
		case storeStop:
			if w.stop(plane+" in "+st.s.call, t.last); st.s.crashed {
				st.die()
			}
		case storeCrashBefore:
			st.die()
		}
	}
	err := st.store().Commit(ctx, id, ops...)
	w.truth.plans.read = st.s.begun
	w.truth.committed(ops, st.s.call, st.s.looked)
	st.s.looked = math.MaxInt
	if t != nil {
		switch t.do { //nolint:exhaustive // the others are not the store's
		case storeLostAnswer:
			return store.ErrUnknown
		case storeCrashAfter:
			st.die()
		}
	}
	return err
}

func (st *simStore) die() {
	st.s.crashed = true
	panic(died{})
}
