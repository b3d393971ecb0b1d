package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dayfly-dev/dayfly/internal/store"
)

var concurrencyTests = []test{
	{"IncrementsLoseNone", incrementsLoseNone},
	{"CreateHasOneWinner", createHasOneWinner},
	{"RepeatsAtOnceApplyOnce", repeatsAtOnce},
	{"TransfersKeepTheSum", transfersKeepTheSum},
	{"ChecksPreventWriteSkew", checksPreventSkew},
	{"DisjointCommitsAllSucceed", disjointCommits},
	{"AnsweredCommitsAreSeenByAll", answeredIsSeen},
	{"ContextsThatEndLeaveNothingHalfDone", contextsThatEnd},
}

// each runs n workers at once and waits for them. They report with Errorf only.
func (f fixture) each(n int, work func(f fixture, i int)) {
	f.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { work(f, i) })
	}
	wg.Wait()
	if f.Failed() {
		f.FailNow()
	}
}

func (f fixture) try(ops ...store.Op) error {
	return f.store.Commit(f.Context(), newID(), ops...)
}

// number reads a record that holds a number; an absent one holds 0.
func (f fixture) number(k store.Key) (n int, version int64, err error) {
	got, err := f.store.Get(f.Context(), k)
	if err != nil || len(got) == 0 {
		return 0, store.Absent, err
	}
	n, err = strconv.Atoi(string(got[0].Value))
	return n, got[0].Version, err
}

func numberOf(k store.Key, n int) store.Record { return value(k, strconv.Itoa(n)) }

// add changes a number whatever the races; it returns how often it lost one.
func (f fixture) add(k store.Key, by int) (lost int, err error) {
	for {
		n, version, err := f.number(k)
		if err != nil {
			return lost, err
		}
		err = f.try(store.Put(numberOf(k, n+by), version))
		if !errors.Is(err, store.ErrConflict) {
			return lost, err
		}
		lost++
	}
}

func incrementsLoseNone(f fixture) {
	const workers, each = 8, 25
	k := f.key("p", "counter")
	// The others may write so often while one waits to repeat a lost answer that its outcome stays unknown: then the
	// increment was made, or it was not.
	var unknown atomic.Int32
	f.each(workers, func(f fixture, _ int) {
		for range each {
			switch _, err := f.add(k, 1); {
			case errors.Is(err, store.ErrUnknown):
				unknown.Add(1)
			case err != nil:
				f.Errorf("add: %v", err)
				return
			}
		}
	})
	n, version, err := f.number(k)
	if sure := workers*each - int(unknown.Load()); err != nil || n < sure || n > workers*each || version != int64(n) || sure < workers*each-workers {
		f.Errorf("got %d at version %d (%v), want %d to %d at the same version", n, version, err, sure, workers*each)
	}
}

func createHasOneWinner(f fixture) {
	const rounds, workers = 20, 8
	for round := range rounds {
		k := f.key("p", fmt.Sprint(round))
		var won atomic.Int32
		var winner atomic.Value
		f.each(workers, func(f fixture, i int) {
			mine := fmt.Sprint("worker ", i)
			// The second record of the commit is lost with the first.
			err := f.try(store.Put(value(k, mine), store.Absent), store.Put(value(f.key("with", fmt.Sprint(round, i)), mine), store.Absent))
			switch {
			case err == nil:
				won.Add(1)
				winner.Store(mine)
			case !errors.Is(err, store.ErrConflict):
				f.Errorf("create: %v", err)
			}
		})
		if won.Load() != 1 {
			f.Fatalf("round %d has %d winners, want 1", round, won.Load())
		}
		f.wantSame([]store.Record{at(value(k, winner.Load().(string)), 1)}, f.get(k))
	}
	if got := f.rangeAll(store.Scan{Part: f.part("with"), Limit: 1000}); len(got) != rounds {
		f.Errorf("got %d records of winners, want %d", len(got), rounds)
	}
}

func repeatsAtOnce(f fixture) {
	const rounds = 20
	k := f.key("p", "counter")
	for round := range rounds {
		id := newID()
		r := numberOf(k, round+1)
		log := value(f.key("log", fmt.Sprintf("%02d", round)), "x")
		f.each(6, func(f fixture, _ int) {
			if err := f.store.Commit(f.Context(), id, store.Put(r, int64(round)), store.Put(log, store.Absent)); err != nil {
				f.Errorf("round %d: %v", round, err)
			}
		})
	}
	f.wantSame([]store.Record{at(numberOf(k, rounds), rounds)}, f.get(k))
}

func transfersKeepTheSum(f fixture) {
	const accounts, workers, each, start = 5, 6, 15, 100
	account := func(i int) store.Key { return f.key(fmt.Sprint("account", i%accounts), "balance") }
	for i := range accounts {
		f.create(numberOf(account(i), start))
	}
	f.each(workers, func(f fixture, worker int) {
		for i := range each {
			from, to := account(worker+i), account(worker+i*3+i%2+1)
			if from == to {
				continue
			}
			for {
				a, va, err1 := f.number(from)
				b, vb, err2 := f.number(to)
				if err := errors.Join(err1, err2); err != nil {
					f.Errorf("read: %v", err)
					return
				}
				err := f.try(store.Put(numberOf(from, a-1), va), store.Put(numberOf(to, b+1), vb))
				if err == nil {
					break
				}
				if !errors.Is(err, store.ErrConflict) {
					f.Errorf("transfer: %v", err)
					return
				}
			}
		}
	})
	sum := 0
	for i := range accounts {
		n, _, err := f.number(account(i))
		if err != nil {
			f.Fatal(err)
		}
		sum += n
	}
	if sum != accounts*start {
		f.Errorf("the accounts hold %d, want %d", sum, accounts*start)
	}
}

// Two callers each see that the other has not acted, and act: one of them must lose.
func checksPreventSkew(f fixture) {
	for round := range 20 {
		keys := []store.Key{f.key(fmt.Sprint(round), "a"), f.key(fmt.Sprint(round), "b")}
		var won atomic.Int32
		f.each(2, func(f fixture, i int) {
			err := f.try(store.Check(keys[1-i], store.Absent), store.Put(value(keys[i], "x"), store.Absent))
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrConflict):
				f.Errorf("act: %v", err)
			}
		})
		// DynamoDB may cancel both; then nothing is there.
		if got := f.get(keys...); won.Load() > 1 || len(got) != int(won.Load()) {
			f.Fatalf("round %d: %d acted, %d records are there", round, won.Load(), len(got))
		}
	}
}

func disjointCommits(f fixture) {
	const workers, each = 8, 20
	f.each(workers, func(f fixture, i int) {
		for n := range each {
			// One partition, different records.
			if err := f.try(store.Put(value(f.key("p", fmt.Sprintf("%d/%02d", i, n)), "x"), store.Absent)); err != nil {
				f.Errorf("worker %d: %v", i, err)
			}
		}
	})
	if got := f.rangeAll(store.Scan{Part: f.part("p"), Limit: 1000}); len(got) != workers*each {
		f.Errorf("got %d records, want %d", len(got), workers*each)
	}
}

func answeredIsSeen(f fixture) {
	const each = 40
	k := f.key("p", "counter")
	var answered atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				minVersion := answered.Load()
				_, version, err := f.number(k)
				if err != nil || version < minVersion {
					f.Errorf("got version %d (%v) after version %d was answered", version, err, minVersion)
					return
				}
				page, err := f.store.Range(f.Context(), store.Scan{Part: k.Part, Limit: 5})
				if err != nil || minVersion > 0 && (len(page.Records) != 1 || page.Records[0].Version < version) {
					f.Errorf("range after version %d: %v (%v)", version, page.Records, err)
					return
				}
			}
		})
	}
	for i := range each {
		if err := f.try(store.Put(numberOf(k, i), int64(i))); err != nil {
			f.Errorf("write %d: %v", i, err)
			break
		}
		answered.Store(int64(i) + 1)
	}
	close(stop)
	wg.Wait()
}

// Contexts end while commits are on their way. Each was applied as a whole or not at all, and a
// repeat with the same id makes it certain.
func contextsThatEnd(f fixture) {
	const workers, each = 6, 15
	f.each(workers, func(f fixture, worker int) {
		for i := range each {
			a := value(f.key(fmt.Sprint("a", worker), fmt.Sprint(i)), "x")
			b := value(f.key(fmt.Sprint("b", worker), fmt.Sprint(i)), "x")
			ops := []store.Op{store.Put(a, store.Absent), store.Put(b, store.Absent)}
			id := newID()
			ctx, cancel := context.WithCancel(f.Context())
			go cancel()
			err := f.bare.Commit(ctx, id, ops...)
			cancel()
			switch {
			case err == nil, errors.Is(err, store.ErrUnknown):
			case errors.Is(err, context.Canceled), errors.Is(err, store.ErrBusy):
				if got, err := f.store.Get(f.Context(), a.Key, b.Key); err != nil || len(got) != 0 {
					f.Errorf("a commit that is certain to have failed left %v (%v)", got, err)
				}
			default:
				f.Errorf("commit: %v", err)
			}
			if err := f.store.Commit(f.Context(), id, ops...); err != nil {
				f.Errorf("repeat: %v", err)
			}
			got, err := f.store.Get(f.Context(), a.Key, b.Key)
			if diff := same([]store.Record{at(a, 1), at(b, 1)}, got); err != nil || diff != "" {
				f.Errorf("after the repeat: %v (-want +got):\n%s", err, diff)
			}
		}
	})
}
