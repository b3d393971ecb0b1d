// Package main_test counts what a workflow costs the store and shows how a claim grows with what
// waits. Ratios and counts are the result; times depend on the machine.
package main_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// counted counts the calls of a store and the operations of its commits.
type counted struct {
	store.Store
	gets, ranges, commits, ops atomic.Int64
}

func (c *counted) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, keys...)
}

func (c *counted) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	c.ranges.Add(1)
	return c.Store.Range(ctx, s)
}

func (c *counted) Commit(ctx context.Context, id string, ops ...store.Op) error {
	c.commits.Add(1)
	c.ops.Add(int64(len(ops)))
	return c.Store.Commit(ctx, id, ops...)
}

func (c *counted) report(b *testing.B) {
	per := func(n *atomic.Int64, unit string) { b.ReportMetric(float64(n.Load())/float64(b.N), unit) }
	per(&c.gets, "gets/op")
	per(&c.ranges, "ranges/op")
	per(&c.commits, "commits/op")
	per(&c.ops, "writes/op")
}

func (c *counted) reset() {
	for _, n := range []*atomic.Int64{&c.gets, &c.ranges, &c.commits, &c.ops} {
		n.Store(0)
	}
}

// world is a control plane with one workspace, an admin and a pool.
type world struct {
	b           *testing.B
	store       *counted
	plane       *controlplane.Plane
	admin, pool controlplane.Principal
}

func newWorld(b *testing.B, st store.Store) *world {
	b.Helper()
	w := &world{b: b, store: &counted{Store: st}}
	w.plane = controlplane.New(w.store, controlplane.Config{DefaultState: api.StateDirectory, OrganizationLimit: 1 << 20})
	token, err := w.plane.Bootstrap(b.Context(), "default")
	w.must(err)
	w.admin, err = w.plane.Authenticate(b.Context(), token)
	w.must(err)
	token, err = w.plane.EnsurePoolToken(b.Context(), "default", "default", "agent")
	w.must(err)
	w.pool, err = w.plane.Authenticate(b.Context(), token)
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.b.Helper()
	if err != nil {
		w.b.Fatal(err)
	}
}

func (w *world) workspace(name string) {
	w.b.Helper()
	_, _, err := w.plane.PutWorkspace(w.b.Context(), w.admin, api.Workspace{
		Name: name, Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
		Commands: map[string]string{"preview": "true", "update": "true"}, MaxActive: 1000,
	})
	w.must(err)
}

func (w *world) submit(workspace string, op workflow.Operation) {
	w.b.Helper()
	_, err := w.plane.Submit(w.b.Context(), w.admin, "", api.Submit{Workspace: workspace, Operation: op})
	w.must(err)
}

func (w *world) claim() api.Job {
	w.b.Helper()
	out, err := w.plane.Claim(w.b.Context(), w.pool, api.Claim{Instance: "one", Max: 1})
	w.must(err)
	if len(out.Jobs) != 1 {
		w.b.Fatalf("claimed %d jobs, want 1", len(out.Jobs))
	}
	return out.Jobs[0]
}

// life takes a claimed job from the queue to its result.
func (w *world) life(job api.Job) {
	w.b.Helper()
	ctx := w.b.Context()
	w.must(w.plane.Queued(ctx, w.pool, job.ID, api.Attempt{Attempt: job.Attempt}))
	run := api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: "task-" + job.ID, Boot: strings.Repeat("a", 32)}
	w.must(w.plane.Launch(ctx, w.pool, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: run.Task}))
	_, err := w.plane.Start(ctx, job.Token, run, api.Start{Knows: api.RunnerKnows()})
	w.must(err)
	_, err = w.plane.Spec(ctx, job.Token, run)
	w.must(err)
	_, err = w.plane.Heartbeat(ctx, job.Token, run, api.Heartbeat{})
	w.must(err)
	_, err = w.plane.Result(ctx, job.Token, run, api.Result{Outcome: workflow.Succeeded})
	w.must(err)
}

// BenchmarkWorkflow is the life of one update, from submission to result, on each store.
func BenchmarkWorkflow(b *testing.B) {
	b.Run("memory", func(b *testing.B) { workflows(b, memory.New()) })
	b.Run("sqlite", func(b *testing.B) {
		st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), sqlite.Config{})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		workflows(b, st)
	})
}

func workflows(b *testing.B, st store.Store) {
	w := newWorld(b, st)
	w.workspace("net")
	w.store.reset()
	for b.Loop() {
		w.submit("net", workflow.Update)
		w.life(w.claim())
	}
	w.store.report(b)
}

// BenchmarkClaim claims one job while many others wait: the ratio between the sizes is to stay near 1.
func BenchmarkClaim(b *testing.B) {
	for _, waiting := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			w := newWorld(b, memory.New())
			for i := range waiting {
				name := fmt.Sprintf("ws-%04d", i)
				w.workspace(name)
				w.submit(name, workflow.Update)
			}
			w.store.reset()
			for b.Loop() {
				job := w.claim()
				w.must(w.plane.Release(b.Context(), w.pool, job.ID, api.Release{Attempt: job.Attempt}))
			}
			w.store.report(b)
		})
	}
}
