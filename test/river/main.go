// Command river runs jobs that start `sh -c true` with River (riverqueue.com) over SQLite, and prints how many a second
// and how much processor time each takes. It is the floor that make bench prints beside whole lifecycles: a queue in
// the same kind of file, and the same process at its end. It has no runner, no fence between a claim and a start, no
// log, no steps, no result but an exit code, and no other user for what runs.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"
)

// Floor is what the program prints.
type Floor struct {
	Jobs      int           `json:"jobs"`
	Took      time.Duration `json:"took"`
	Processor time.Duration `json:"processor"` // of each job, with what it starts
}

func main() {
	jobs := flag.Int("jobs", 250, "how many jobs")
	workers := flag.Int("workers", 16, "how many at once")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	floor, err := run(ctx, *jobs, *workers)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(floor)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		cancel()
		os.Exit(1) //nolint:gocritic // cancelled above
	}
}

type job struct{}

// Kind implements river.JobArgs.
func (job) Kind() string { return "command" }

type worker struct {
	river.WorkerDefaults[job]
	done atomic.Int64
}

// Work implements river.Worker.
func (w *worker) Work(ctx context.Context, _ *river.Job[job]) error {
	if err := exec.CommandContext(ctx, "/bin/sh", "-c", "true").Run(); err != nil {
		return err
	}
	w.done.Add(1)
	return nil
}

func run(ctx context.Context, jobs, workers int) (_ Floor, err error) {
	dir, err := os.MkdirTemp("", "dayfly-river-")
	if err != nil {
		return Floor{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// As durable as ours. River asks for one connection, so that no transaction finds the file busy.
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "river.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return Floor{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	driver := riversqlite.New(db)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return Floor{}, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return Floor{}, err
	}
	w := &worker{}
	all := river.NewWorkers()
	river.AddWorker(all, w)
	client, err := river.NewClient(driver, &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: all,
		// It has nobody who wakes it over SQLite, so it looks often.
		FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 10 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
	})
	if err != nil {
		return Floor{}, err
	}
	if err := client.Start(ctx); err != nil {
		return Floor{}, err
	}
	if err := several(ctx, client, w, 50); err != nil { // until everything is warm
		return Floor{}, err
	}
	began, before := time.Now(), processor()
	if err := several(ctx, client, w, jobs); err != nil {
		return Floor{}, err
	}
	floor := Floor{Jobs: jobs, Took: time.Since(began), Processor: (processor() - before) / time.Duration(jobs)}
	return floor, client.Stop(ctx)
}

// several submits jobs, a few at once, and waits until all have been run.
func several(ctx context.Context, client *river.Client[*sql.Tx], w *worker, n int) error {
	target := w.done.Load() + int64(n)
	var next atomic.Int64
	g, inner := errgroup.WithContext(ctx)
	for range 4 {
		g.Go(func() error {
			for next.Add(1) <= int64(n) {
				if _, err := client.Insert(inner, job{}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for w.done.Load() < target {
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// processor is the processor time of this process and of those that it started and that have ended.
func processor() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
