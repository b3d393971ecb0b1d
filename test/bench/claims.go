package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/figures"
)

// shape is how what waits lies.
type shape int

const (
	spread   shape = iota // all of it can be claimed now, in a hundred workspaces
	oneBusy               // 99 % of it waits in one workspace, behind the run that holds its slot
	fullPool              // 99 % of it waits in a pool that is at its limit
)

func (s shape) String() string {
	return [...]string{"all claimable", "99 % behind one busy workspace", "99 % in a full pool"}[s]
}

// waiting is a control plane in which work waits.
type waiting struct {
	plane *controlplane.Plane
	ops   *counted
	token string // of the pool that claims
	who   controlplane.Principal
	full  controlplane.Principal // of the full pool
}

// claims measures claims with little and with much waiting, in turns, so that whatever else the
// machine does meets both alike.
func claims(ctx context.Context, b *bench) error {
	sizes := [2]int{1000, 100_000}
	if b.quick {
		sizes[1] = 10_000
	}
	b.out.Heading("Claims: one job each, one after the other, through the rules over SQLite")
	for _, s := range []shape{spread, oneBusy, fullPool} {
		if err := claimsOf(ctx, b, s, sizes); err != nil {
			return err
		}
	}
	return nil
}

// claimsOf measures one shape.
func claimsOf(ctx context.Context, b *bench, s shape, sizes [2]int) (err error) {
	dir, err := os.MkdirTemp(b.temp, "claims-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var worlds [2]*waiting
	for i, n := range sizes {
		var closeStore func() error
		if worlds[i], closeStore, err = fill(ctx, filepath.Join(dir, fmt.Sprintf("%d.db", n)), s, n); err != nil {
			return fmt.Errorf("fill with %d: %w", n, err)
		}
		defer func() { err = errors.Join(err, closeStore()) }()
		if _, err := worlds[i].measure(ctx, 50, worlds[i].claim); err != nil { // the first ones fill caches
			return err
		}
		worlds[i].ops.reset()
	}
	total := 2000
	if b.quick {
		total = 500
	}
	var took [2]figures.Sample
	for len(took[0]) < total {
		for i, w := range worlds {
			more, err := w.measure(ctx, group, w.claim)
			if err != nil {
				return err
			}
			took[i] = append(took[i], more...)
		}
	}
	for i, w := range worlds {
		t := took[i]
		b.out.Line("%7d, %-31s %6.0f claims/s  p50 %s  p99 %s  max %s", sizes[i], s, rate(len(t), t.Total()), ms(t.At(0.5)), ms(t.At(0.99)), ms(t.At(1)))
		b.out.Line("        a claim and its release: %s", w.ops.per(total))
		if err := w.more(ctx, b, s, total/2); err != nil {
			return err
		}
	}
	ratio := func(p float64) float64 { return float64(took[1].At(p)) / float64(max(took[0].At(p), 1)) }
	p99 := took[1].At(0.99)
	b.out.Judge(p99 <= 10*time.Millisecond, fmt.Sprintf("claim p99, %d, %s", sizes[1], s), ms(p99), "<= 10 ms")
	b.out.Judge(ratio(0.99) <= 1.5, fmt.Sprintf("claim p99, %d to %d, %s", sizes[1], sizes[0], s), fmt.Sprintf("x%.2f (p50 x%.2f)", ratio(0.99), ratio(0.5)), "flat (<= x1.5)")
	return nil
}

// more measures what only one shape has.
func (w *waiting) more(ctx context.Context, b *bench, s shape, total int) error {
	switch s {
	case oneBusy:
		return nil
	case fullPool:
		return w.refused(ctx, b, total)
	case spread:
	}
	jobs, batches, err := w.batches(ctx, total)
	if err != nil {
		return err
	}
	b.out.Line("        in batches of 50:                  %6.0f jobs/s    p50 %s  p99 %s", rate(jobs, batches.Total()), ms(batches.At(0.5)), ms(batches.At(0.99)))
	over, err := w.overHTTP(ctx, total)
	if err != nil {
		return err
	}
	b.out.Line("        over HTTP in memory:               %6.0f claims/s  p50 %s  p99 %s", rate(len(over), over.Total()), ms(over.At(0.5)), ms(over.At(0.99)))
	return nil
}

// group is how many claims are made before they are given back: as many as can be claimed in the
// smallest world.
const group = 10

// claimer claims up to most jobs.
type claimer func(ctx context.Context, most int) ([]api.Job, error)

func (w *waiting) claim(ctx context.Context, most int) ([]api.Job, error) {
	out, err := w.plane.Claim(ctx, w.who, api.Claim{Instance: "bench", Max: most})
	return out.Jobs, err
}

// measure claims total jobs one at a time and gives them back in groups, outside of the time taken.
func (w *waiting) measure(ctx context.Context, total int, claim claimer) (took figures.Sample, err error) {
	var held []api.Job
	for len(took) < total {
		began := time.Now()
		jobs, err := claim(ctx, 1)
		took = append(took, time.Since(began))
		if err != nil {
			return nil, err
		}
		if len(jobs) != 1 {
			return nil, fmt.Errorf("a claim got %d jobs, want 1", len(jobs))
		}
		if held = append(held, jobs...); len(held) == group {
			if err := w.release(ctx, held); err != nil {
				return nil, err
			}
			held = held[:0]
		}
	}
	return took, w.release(ctx, held)
}

func (w *waiting) release(ctx context.Context, jobs []api.Job) error {
	for _, job := range jobs {
		if err := w.plane.Release(ctx, w.who, job.ID, api.Release{Attempt: job.Attempt}); err != nil {
			return err
		}
	}
	return nil
}

// batches claims about total jobs, as many at once as may be.
func (w *waiting) batches(ctx context.Context, total int) (jobs int, took figures.Sample, err error) {
	for jobs < total {
		began := time.Now()
		got, err := w.claim(ctx, 50)
		took = append(took, time.Since(began))
		if err != nil {
			return 0, nil, err
		}
		if len(got) != 50 {
			return 0, nil, fmt.Errorf("a claim got %d jobs, want 50", len(got))
		}
		jobs += len(got)
		if err := w.release(ctx, got); err != nil {
			return 0, nil, err
		}
	}
	return jobs, took, nil
}

// overHTTP measures the same through client and handler.
func (w *waiting) overHTTP(ctx context.Context, total int) (figures.Sample, error) {
	cl, err := client.New(client.Config{
		URL: "http://bench", Token: func() redact.String { return redact.New(w.token) },
		HTTPClient: &http.Client{Transport: client.InMemory(httpapi.New(w.plane, httpapi.Config{}))},
	})
	if err != nil {
		return nil, err
	}
	return w.measure(ctx, total, func(ctx context.Context, most int) ([]api.Job, error) {
		out, err := cl.Claim(ctx, api.Claim{Instance: "bench", Max: most})
		return out.Jobs, err
	})
}

// refused measures the claims of the pool that is full.
func (w *waiting) refused(ctx context.Context, b *bench, total int) error {
	var took figures.Sample
	for range total {
		began := time.Now()
		out, err := w.plane.Claim(ctx, w.full, api.Claim{Instance: "bench", Max: 1})
		took = append(took, time.Since(began))
		if err != nil {
			return err
		}
		if len(out.Jobs) > 0 {
			return errors.New("the full pool was given work")
		}
	}
	b.out.Line("        claims of the full pool itself:    %6.0f claims/s  p50 %s  p99 %s", rate(total, took.Total()), ms(took.At(0.5)), ms(took.At(0.99)))
	return nil
}

// fill makes a data file in which n workflows wait. They are submitted through the rules over a
// store in memory, and the records that this made are copied: to wait for as many fsyncs would
// measure nothing more.
func fill(ctx context.Context, path string, s shape, n int) (w *waiting, closeStore func() error, err error) {
	made := &kept{Store: memory.New(), last: map[store.Key]store.Record{}}
	config := controlplane.Config{DefaultState: api.StateDirectory, OrganizationLimit: 1 << 20}
	token, full, err := submitAll(ctx, controlplane.New(made, config), s, n)
	if err != nil {
		return nil, nil, err
	}
	db, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	if err := made.copyTo(ctx, db); err != nil {
		return nil, nil, err
	}
	ops := &counted{Store: db}
	w = &waiting{plane: controlplane.New(ops, config), ops: ops, token: token}
	if w.who, err = w.plane.Authenticate(ctx, token); err != nil {
		return nil, nil, err
	}
	if full != "" {
		if w.full, err = w.plane.Authenticate(ctx, full); err != nil {
			return nil, nil, err
		}
	}
	return w, db.Close, nil
}

// submitAll submits n workflows in a shape. It returns the token of the pool that can claim, and of
// the one that is full.
func submitAll(ctx context.Context, plane *controlplane.Plane, s shape, n int) (token, full string, err error) {
	first, err := plane.Bootstrap(ctx, "default")
	if err != nil {
		return "", "", err
	}
	admin, err := plane.Authenticate(ctx, first)
	if err != nil {
		return "", "", err
	}
	if token, err = plane.EnsurePoolToken(ctx, "default", "default", "bench"); err != nil {
		return "", "", err
	}
	claimer, err := plane.Authenticate(ctx, token)
	if err != nil {
		return "", "", err
	}
	const workspaces = 100
	for i := range workspaces {
		if err := putWorkspace(ctx, plane, admin, fmt.Sprintf("ws-%02d", i), ""); err != nil {
			return "", "", err
		}
	}
	submit := func(workspace string, op workflow.Operation) error {
		_, err := plane.Submit(ctx, admin, "", api.Submit{Workspace: workspace, Operation: op})
		return err
	}
	claimable := n
	switch s {
	case spread:
	case oneBusy:
		claimable = n / 100
		if err := putWorkspace(ctx, plane, admin, "busy", ""); err != nil {
			return "", "", err
		}
		for i := range n - claimable + 1 {
			if err := submit("busy", workflow.Update); err != nil {
				return "", "", err
			}
			if i > 0 {
				continue
			}
			if got, err := plane.Claim(ctx, claimer, api.Claim{Instance: "bench", Max: 1}); err != nil || len(got.Jobs) != 1 {
				return "", "", errors.Join(errors.New("the workspace did not become busy"), err)
			}
		}
	case fullPool:
		claimable = n / 100
		if full, err = makeFull(ctx, plane, admin, workspaces); err != nil {
			return "", "", err
		}
		for i := range n - claimable {
			if err := submit(fmt.Sprintf("full-%02d", i%workspaces), workflow.Preview); err != nil {
				return "", "", err
			}
		}
	}
	for i := range claimable {
		if err := submit(fmt.Sprintf("ws-%02d", i%workspaces), workflow.Preview); err != nil {
			return "", "", err
		}
	}
	return token, full, nil
}

// makeFull makes a pool with a limit of one, and takes that one.
func makeFull(ctx context.Context, plane *controlplane.Plane, admin controlplane.Principal, workspaces int) (token string, err error) {
	name, one := "full", 1
	pool, err := plane.CreatePool(ctx, admin, "", api.PoolSettings{Name: &name, Concurrency: &one})
	if err != nil {
		return "", err
	}
	for i := range workspaces {
		if err := putWorkspace(ctx, plane, admin, fmt.Sprintf("full-%02d", i), name); err != nil {
			return "", err
		}
	}
	if _, err := plane.Submit(ctx, admin, "", api.Submit{Workspace: "full-00", Operation: workflow.Preview}); err != nil {
		return "", err
	}
	who, err := plane.Authenticate(ctx, pool.Token)
	if err != nil {
		return "", err
	}
	if got, err := plane.Claim(ctx, who, api.Claim{Instance: "bench", Max: 1}); err != nil || len(got.Jobs) != 1 {
		return "", errors.Join(errors.New("the pool did not become full"), err)
	}
	return pool.Token, nil
}

func putWorkspace(ctx context.Context, plane *controlplane.Plane, admin controlplane.Principal, name, pool string) error {
	_, _, err := plane.PutWorkspace(ctx, admin, api.Workspace{
		Name: name, Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Pool: pool,
		Commands: map[string]string{"preview": "true", "update": "true"}, MaxActive: 1000,
	})
	return err
}

// kept is a store that remembers every record that it holds.
type kept struct {
	store.Store
	mu   sync.Mutex
	last map[store.Key]store.Record
}

// Commit implements store.Store.
func (k *kept) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if err := k.Store.Commit(ctx, id, ops...); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, op := range ops {
		switch {
		case op.IsPut():
			k.last[op.Key()] = op.Record()
		case op.IsDelete():
			delete(k.last, op.Key())
		}
	}
	return nil
}

// copyTo puts all records into an empty store. Their versions begin anew there, which nothing that
// is decided from then on can tell.
func (k *kept) copyTo(ctx context.Context, to store.Store) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	var batch []store.Op
	n := 0
	flush := func() {
		ops, id := batch, fmt.Sprintf("copy-%d", n)
		batch = nil
		n++
		g.Go(func() error { return to.Commit(ctx, id, ops...) })
	}
	for _, r := range k.last {
		if batch = append(batch, store.Put(r, store.Absent)); len(batch) == store.MaxOps {
			flush()
		}
	}
	if len(batch) > 0 {
		flush()
	}
	return g.Wait()
}
