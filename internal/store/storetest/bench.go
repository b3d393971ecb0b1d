package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Benchmark measures the calls that callers wait for: commits alone and at once, and reading a page of a partition
// that holds few or many records, which should cost the same.
func Benchmark(b *testing.B, open func(b *testing.B) store.Store) {
	b.Helper()
	for _, workers := range []int{1, 32} {
		b.Run(fmt.Sprintf("Commit/committers=%d", workers), func(b *testing.B) { benchmarkCommit(b, open(b), workers) })
	}
	for _, records := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("Partition/records=%d", records), func(b *testing.B) {
			s := open(b)
			fill(b, s, records)
			benchmarkReads(b, s, records)
		})
	}
}

// small is a record of the usual size: a few hundred bytes, in one index.
func small(part, sort string) store.Record {
	return store.Record{
		Key:     store.Key{Part: part, Sort: sort},
		Value:   make([]byte, 300),
		Indexes: map[store.Index]store.Entry{store.Index1: {Part: part, Sort: sort}},
	}
}

func benchmarkCommit(b *testing.B, s store.Store, workers int) {
	var next atomic.Int64
	b.ResetTimer()
	done := make(chan error, workers)
	for range workers {
		go func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					done <- nil
					return
				}
				if err := s.Commit(b.Context(), newID(), store.Put(small(fmt.Sprint("p", i%100), fmt.Sprint(i)), store.Absent)); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	var errs []error
	for range workers {
		errs = append(errs, <-done)
	}
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

func fill(b *testing.B, s store.Store, records int) {
	b.Helper()
	for i := 0; i < records; {
		var ops []store.Op
		for ; len(ops) < store.MaxOps && i < records; i++ {
			// Out of order, as keys that begin otherwise than with a time are.
			ops = append(ops, store.Put(small("p", fmt.Sprintf("%09d", (i*7919)%records)), store.Absent))
		}
		if err := s.Commit(b.Context(), newID(), ops...); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkReads(b *testing.B, s store.Store, records int) {
	spot := func(i int) string { return fmt.Sprintf("%09d", (i*104729)%records) }
	b.Run("Get", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if got, err := s.Get(b.Context(), store.Key{Part: "p", Sort: spot(i)}); err != nil || len(got) != 1 {
				b.Fatal(got, err)
			}
		}
	})
	for _, reverse := range []bool{false, true} {
		b.Run(fmt.Sprintf("Range10/reverse=%v", reverse), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, err := s.Range(b.Context(), store.Scan{Part: "p", From: spot(i), Limit: 10, Reverse: reverse}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Query10", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := s.Query(b.Context(), store.Index1, store.Scan{Part: "p", From: spot(i), Limit: 10}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Replace", func(b *testing.B) { // a record goes and comes back
		for i := 0; b.Loop(); i++ {
			r := small("p", spot(i))
			if err := s.Commit(b.Context(), newID(), store.Delete(r.Key, 1)); err != nil {
				b.Fatal(err)
			}
			if err := s.Commit(b.Context(), newID(), store.Put(r, store.Absent)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
