package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
)

func contextOpen(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func contextEnded(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := contextOpen(t)
	cancel()
	return ctx, cancel
}

func create(sort, value string) store.Op {
	return store.Put(store.Record{Key: store.Key{Part: "p", Sort: sort}, Value: []byte(value)}, store.Absent)
}

// In one transaction, one commit that loses leaves the others whole.
func TestCommit_LoserOfAGroupIsUndoneAlone(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	release := make(chan struct{})
	if err := s.Hold(t.Context(), release); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var won, lost atomic.Int32
	for i := range 40 {
		wg.Go(func() {
			// All want "one"; each would also write a record of its own before it.
			err := s.Commit(t.Context(), fmt.Sprint("id", i), create(fmt.Sprintf("own %02d", i), "x"), create("the one", "x"))
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, store.ErrConflict):
				lost.Add(1)
			default:
				t.Errorf("commit %d: %v", i, err)
			}
			if err := s.Commit(t.Context(), fmt.Sprint("other", i), create(fmt.Sprintf("other %02d", i), "x")); err != nil {
				t.Errorf("neighbour %d: %v", i, err)
			}
		})
	}
	close(release)
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 39 {
		t.Errorf("%d won and %d lost, want 1 and 39", won.Load(), lost.Load())
	}
	if got := len(values(t, s)); got != 1+1+40 {
		t.Errorf("got %d records, want the winner's two and one of each neighbour", got)
	}
}

func TestCommit_StoreSurvivesAFailedTransaction(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	put(t, s, "zero", "a", "a")
	if err := s.FailNextCommit(t.Context()); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	errs := map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	// Commits that share the failed transaction get its error; none is reported as lost.
	for _, id := range []string{"b", "b again", "c"} {
		wg.Go(func() {
			<-release
			err := s.Commit(t.Context(), id, create(id[:1], id))
			mu.Lock()
			defer mu.Unlock()
			errs[id] = err
		})
	}
	close(release)
	wg.Wait()
	unknown := 0
	for id, err := range errs {
		switch {
		case errors.Is(err, store.ErrUnknown):
			unknown++
		case err == nil, errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrConflict):
		default:
			t.Errorf("%s: %v", id, err)
		}
	}
	if unknown == 0 {
		t.Errorf("got %v, want an outcome that is unknown", errs)
	}
	// Repeated with the same ids, it becomes certain.
	for id := range errs {
		if err := s.Commit(t.Context(), id, create(id[:1], id)); err != nil && !errors.Is(err, store.ErrConflict) {
			t.Errorf("repeat of %s: %v", id, err)
		}
	}
	if got := values(t, s); len(got) != 3 || got[0] != "a" || got[1][0] != 'b' || got[2] != "c" {
		t.Errorf("the store holds %q", got)
	}
}

// Commits that share a transaction with a failure get their own outcome.
func TestCommit_ThatFindsNoRoomSaysSoAndTheLogOnce(t *testing.T) {
	var said bytes.Buffer
	s := open(t, dataFile(t), sqlite.Config{Log: slog.New(slog.NewTextHandler(&said, nil))})
	big := strings.Repeat("x", 100_000)
	for i := range 2 {
		if err := s.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), fmt.Sprint("full ", i), create(fmt.Sprint(i), big)); !errors.Is(err, store.ErrFull) {
			t.Errorf("commit %d: got %v, want ErrFull", i, err)
		}
	}
	for i := range 2 {
		if err := s.Commit(t.Context(), fmt.Sprint("room ", i), create(fmt.Sprint(i), big)); err != nil {
			t.Errorf("commit %d with room again: %v", i, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(said.String(), "records cannot be written"); got != 1 || !strings.Contains(said.String(), "no room left") {
		t.Errorf("the log says %d times that it fails, want once with the cause:\n%s", got, said.String())
	}
	if got := strings.Count(said.String(), "records are written again"); got != 1 {
		t.Errorf("the log says %d times that it works again, want once:\n%s", got, said.String())
	}
}

func TestCommit_FailureDoesNotFailItsNeighbours(t *testing.T) {
	good, loser, known := []store.Op{create("good", "x")}, []store.Op{create("good", "y")}, []store.Op{create("known", "x")}
	for name, tt := range map[string]struct {
		commits   [][]store.Op
		failAtEnd bool
		want      []error
		left      []string
	}{
		"no failure":         {[][]store.Op{good, loser, known}, false, []error{nil, store.ErrConflict, nil}, []string{"x", "x"}},
		"one fails":          {[][]store.Op{good, loser, nil, known}, false, []error{store.ErrBusy, store.ErrBusy, sqlite.ErrDisk, store.ErrBusy}, nil},
		"the commit fails":   {[][]store.Op{good, loser, known}, true, []error{store.ErrUnknown, store.ErrBusy, store.ErrUnknown}, nil},
		"nothing to lose in": {[][]store.Op{nil}, false, []error{sqlite.ErrDisk}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, dataFile(t), sqlite.Config{})
			got, err := s.Together(t.Context(), tt.failAtEnd, tt.commits...)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if !errors.Is(got[i], tt.want[i]) {
					t.Errorf("commit %d was answered %v, want %v", i, got[i], tt.want[i])
				}
			}
			if left := values(t, s); !slices.Equal(left, tt.left) {
				t.Errorf("the store holds %q, want %q", left, tt.left)
			}
			put(t, s, "after", "zz", "x") // the store goes on
		})
	}
}

func TestCommit_IsBusyWhileAnotherProcessWrites(t *testing.T) {
	path := dataFile(t)
	s := open(t, path, sqlite.Config{BusyTimeout: time.Millisecond})
	other, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Commit(t.Context(), "one", create("a", "x")); !errors.Is(err, store.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
	}
	if got := values(t, s); len(got) != 0 { // reading goes on
		t.Errorf("something was written: %q", got)
	}
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	put(t, s, "one", "a", "x")
}

// The file may be open in several processes: each store has its own connections.
func TestCommit_TwoStoresOnOneFileLoseNothing(t *testing.T) {
	path := dataFile(t)
	const workers, each = 6, 20
	stores := []*sqlite.Store{open(t, path, sqlite.Config{}), open(t, path, sqlite.Config{})}
	k := store.Key{Part: "p", Sort: "counter"}
	var wg sync.WaitGroup
	for worker := range workers {
		s := stores[worker%2]
		wg.Go(func() {
			for i := 0; i < each; {
				got, err := s.Get(t.Context(), k)
				if err != nil {
					t.Error(err)
					return
				}
				version := store.Absent
				if len(got) == 1 {
					version = got[0].Version
				}
				err = s.Commit(t.Context(), fmt.Sprintf("%d.%d.%d", worker, i, version), store.Put(store.Record{Key: k}, version))
				switch {
				case err == nil:
					i++
				case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrBusy):
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i, s := range stores {
		if got, err := s.Get(t.Context(), k); err != nil || len(got) != 1 || got[0].Version != workers*each {
			t.Errorf("store %d sees %+v (%v), want version %d", i, got, err, workers*each)
		}
	}
}

func TestCommit_CancelledMidwayHasAnUnknownOutcome(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	release := make(chan struct{})
	if err := s.Hold(t.Context(), release); err != nil {
		t.Fatal(err)
	}
	// The writer is busy: this commit is never handed over, and certainly not written.
	ctx, cancel := contextOpen(t)
	waiting := make(chan error, 1)
	go func() { waiting <- s.Commit(ctx, "never", create("never", "x")) }()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("before it was handed over: got %v, want the context's error alone", err)
	}
	close(release)
	put(t, s, "after", "after", "x")
	if got := values(t, s); !slices.Equal(got, []string{"x"}) {
		t.Errorf("the store holds %q", got)
	}

	// This one's context ends as the writer works on it.
	value := []byte("mine")
	ctx, cancel = contextOpen(t)
	theirs := func() { copy(value, "THEY") } // once answered, it is the caller's again
	err := s.CommitWhileWriterWaits(ctx, cancel, theirs, "slow", store.Put(store.Record{Key: store.Key{Part: "p", Sort: "slow"}, Value: value}, store.Absent))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnknown) {
		t.Errorf("after it was handed over: got %v, want ErrUnknown and the context's error", err)
	}
	put(t, s, "slow", "slow", "mine") // the repeat makes it certain
	if got := values(t, s); !slices.Equal(got, []string{"x", "mine"}) {
		t.Errorf("the store holds %q", got)
	}
}

func TestClose_FinishesWhatWasTakenAndRefusesTheRest(t *testing.T) {
	path := dataFile(t)
	s := open(t, path, sqlite.Config{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var done []string
	started := make(chan struct{}, 8)
	for worker := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%d.%04d", worker, i)
				if err := s.Commit(t.Context(), name, create(name, name)); err != nil {
					if !strings.Contains(err.Error(), "closed") {
						t.Errorf("commit while closing: %v", err)
					}
					return
				}
				mu.Lock()
				done = append(done, name)
				mu.Unlock()
				if i == 3 {
					started <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-started
	}
	for range 2 { // closing twice is harmless
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if _, err := s.Get(t.Context(), store.Key{Part: "p", Sort: "a"}); err == nil {
		t.Error("a closed store answers")
	}
	if _, err := s.Purge(t.Context(), time.Now()); err == nil {
		t.Error("a closed store purges")
	}
	s = open(t, path, sqlite.Config{})
	got := map[string]bool{}
	for _, v := range values(t, s) {
		got[v] = true
	}
	for _, name := range done[:min(len(done), 900)] {
		if !got[name] && len(got) < 1000 {
			t.Errorf("commit %s was answered and is lost", name)
		}
	}
}

func TestPurge_DeletesWhatExpiredInBoundedSteps(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	now := time.Unix(1_900_000_000, 0)
	const expired = sqlite.PurgeLimit + 50
	var ops []store.Op
	for i := range expired + 150 {
		r := store.Record{Key: store.Key{Part: "p", Sort: fmt.Sprintf("%04d", i)}, Indexes: map[store.Index]store.Entry{store.Index1: {Part: "i", Sort: "s"}}}
		switch {
		case i < expired:
			r.Expires = now.Unix() - 1 - int64(i)
		case i%3 == 0:
			r.Expires = now.Unix() // not yet: it may be deleted after
		case i%3 == 1:
			r.Expires = now.Unix() + 100
		}
		ops = append(ops, store.Put(r, store.Absent))
	}
	for chunk := range slices.Chunk(ops, store.MaxOps) {
		if err := s.Commit(t.Context(), chunk[0].Key().Sort, chunk...); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{sqlite.PurgeLimit, 50, 0} {
		if got, err := s.Purge(t.Context(), now); err != nil || got != want {
			t.Errorf("purge %d deleted %d (%v), want %d", i, got, err, want)
		}
	}
	if got := len(values(t, s)); got != 150 {
		t.Errorf("%d records are left, want the 150 that did not expire", got)
	}
	page, err := s.Query(t.Context(), store.Index1, store.Scan{Part: "i", Limit: 1000})
	if err != nil || len(page.Records) != 150 {
		t.Errorf("the index has %d records (%v), want 150", len(page.Records), err)
	}
}

func TestCommit_KnowsIDsForTenMinutesAndNotForEver(t *testing.T) {
	var clock atomic.Int64
	clock.Store(1_900_000_000)
	path := dataFile(t)
	cfg := sqlite.Config{Now: func() time.Time { return time.Unix(clock.Load(), 0) }}
	s := open(t, path, cfg)
	const n = 200
	for i := range n {
		put(t, s, fmt.Sprint("id", i), fmt.Sprint(i), "x")
	}
	clock.Add(600)
	put(t, s, "later", "later", "x")
	for i := range n {
		put(t, s, fmt.Sprint("id", i), fmt.Sprint(i), "x") // would fail, were it not known
	}
	// Past their time they go, a bounded number with each commit.
	clock.Add(600)
	counts := []int{n + 1}
	for i := range 20 {
		put(t, s, fmt.Sprint("new", i), fmt.Sprint("new", i), "x")
		got, err := s.CountCommitIDs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, got)
	}
	for i := 1; i < len(counts); i++ {
		if gone := counts[i-1] - counts[i]; gone > 100 {
			t.Errorf("one commit forgot %d ids", gone)
		}
	}
	if last := counts[len(counts)-1]; last > 25 {
		t.Errorf("%d ids are left of %d that are past their time: %v", last, n, counts)
	}
}

// Every scan is a search in an index: none reads or sorts a partition for a page of it.
func TestScan_NeverReadsMoreThanItsPage(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	plans, err := s.Plans(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(plans) != 12 {
		t.Fatalf("got %d kinds of scan, want 12", len(plans))
	}
	for kind, plan := range plans {
		if strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") || !strings.Contains(plan, "SEARCH records USING INDEX") {
			t.Errorf("%s: %s", kind, plan)
		}
	}
}
