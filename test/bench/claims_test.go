package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
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
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// shape is how what waits lies.
type shape int

const (
	spread    shape = iota // all of it can be claimed now, in a hundred workspaces
	oneBusy                // 99 % of it waits in one workspace, behind the run that holds its slot
	fullPool               // 99 % of it waits in a pool that is at its limit
	manyPools              // of 1,000 pools and 10,000 workspaces, against 10 and 100; half of them want labels
)

func (s shape) String() string {
	return [...]string{"all claimable", "99 % behind one busy workspace", "99 % in a full pool", "many pools and workspaces"}[s]
}

// waiting is a control plane in which work waits.
type waiting struct {
	plane *controlplane.Plane
	ops   *counted
	token string // of the pool that claims
	who   controlplane.Principal
	full  controlplane.Principal // of the full pool
}

// BenchmarkClaims measures claims, one job each, one after the other, through the rules over SQLite: with little and with
// much waiting, in turns, so that whatever else the machine does meets both alike.
func BenchmarkClaims(b *testing.B) {
	for _, s := range []shape{spread, oneBusy, fullPool} {
		b.Run(s.String(), func(b *testing.B) { claims(b, s, [2]int{1000, quick(100_000, 10_000)}, quick(2000, 500)) })
	}
	// As many wait for the pool that claims in both worlds.
	b.Run(manyPools.String(), func(b *testing.B) { claims(b, manyPools, [2]int{100, 10_000}, quick(2000, 500)) })
}

func claims(b *testing.B, s shape, sizes [2]int, total int) {
	b.Helper()
	var worlds [2]*waiting
	for i, n := range sizes {
		worlds[i] = fill(b, s, n)
		worlds[i].measure(b, 50, worlds[i].claim) // the first ones fill caches
		worlds[i].ops.reset()
	}
	var took [2]figures.Sample
	for len(took[0]) < total {
		for i, w := range worlds {
			took[i] = append(took[i], w.measure(b, group, w.claim)...)
		}
	}
	for i, w := range worlds {
		b.Logf("%7d: %s", sizes[i], claimed(took[i]))
		b.Logf("         a claim and its release: %s", w.ops.per(total))
		switch s {
		case oneBusy, manyPools:
		case fullPool:
			b.Logf("         claims of the full pool itself: %s", claimed(w.refused(b, total/2)))
		case spread:
			jobs, batches := w.batches(b, total/2)
			b.Logf("         in batches of 50: %.0f jobs/s, p50 %s, p99 %s", rate(jobs, batches.Total()), ms(batches.At(0.5)), ms(batches.At(0.99)))
			b.Logf("         over HTTP in memory: %s", claimed(w.overHTTP(b, total/2)))
		}
	}
	ratio := func(p float64) float64 { return float64(took[1].At(p)) / float64(max(took[0].At(p), 1)) }
	p99 := took[1].At(0.99)
	judge(b, p99 <= 10*time.Millisecond, fmt.Sprintf("claim p99, %d, %s", sizes[1], s), ms(p99), "<= 10 ms")
	judge(b, ratio(0.99) <= 1.5, fmt.Sprintf("claim p99, %d to %d, %s", sizes[1], sizes[0], s), fmt.Sprintf("x%.2f (p50 x%.2f)", ratio(0.99), ratio(0.5)), "flat (<= x1.5)")
	metric(b, milliseconds(took[1].At(0.5)), "p50-ms")
	metric(b, milliseconds(p99), "p99-ms")
	metric(b, ratio(0.99), "p99-ratio")
}

func claimed(t figures.Sample) string {
	return fmt.Sprintf("%.0f claims/s, p50 %s, p99 %s, max %s", rate(len(t), t.Total()), ms(t.At(0.5)), ms(t.At(0.99)), ms(t.At(1)))
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

// timed makes one claim, which must get so many jobs.
func timed(b *testing.B, claim claimer, most int) ([]api.Job, time.Duration) {
	b.Helper()
	began := time.Now()
	jobs, err := claim(b.Context(), most)
	took := time.Since(began)
	check(b, err)
	if len(jobs) != most {
		b.Fatalf("a claim got %d jobs, want %d", len(jobs), most)
	}
	return jobs, took
}

// measure claims total jobs one at a time and gives them back in groups, outside of the time taken.
func (w *waiting) measure(b *testing.B, total int, claim claimer) (out figures.Sample) {
	b.Helper()
	var held []api.Job
	for len(out) < total {
		jobs, took := timed(b, claim, 1)
		out = append(out, took)
		if held = append(held, jobs...); len(held) == group {
			w.release(b, held)
			held = held[:0]
		}
	}
	w.release(b, held)
	return out
}

func (w *waiting) release(b *testing.B, jobs []api.Job) {
	b.Helper()
	for _, job := range jobs {
		check(b, w.plane.Release(b.Context(), w.who, job.ID, api.Release{Attempt: job.Attempt}))
	}
}

// batches claims about total jobs, as many at once as may be.
func (w *waiting) batches(b *testing.B, total int) (jobs int, out figures.Sample) {
	b.Helper()
	for jobs < total {
		got, took := timed(b, w.claim, 50)
		out = append(out, took)
		jobs += len(got)
		w.release(b, got)
	}
	return jobs, out
}

// overHTTP measures the same through client and handler.
func (w *waiting) overHTTP(b *testing.B, total int) figures.Sample {
	b.Helper()
	cl, err := client.New(client.Config{
		URL: "http://bench", Token: func() redact.String { return redact.New(w.token) },
		HTTPClient: &http.Client{Transport: client.InMemory(httpapi.New(w.plane, httpapi.Config{}))},
	})
	check(b, err)
	return w.measure(b, total, func(ctx context.Context, most int) ([]api.Job, error) {
		out, err := cl.Claim(ctx, api.Claim{Instance: "bench", Max: most})
		return out.Jobs, err
	})
}

// refused measures the claims of the pool that is full.
func (w *waiting) refused(b *testing.B, total int) (took figures.Sample) {
	b.Helper()
	for range total {
		began := time.Now()
		out, err := w.plane.Claim(b.Context(), w.full, api.Claim{Instance: "bench", Max: 1})
		took = append(took, time.Since(began))
		check(b, err)
		if len(out.Jobs) > 0 {
			b.Fatal("the full pool was given work")
		}
	}
	return took
}

// fill makes a data file in which n workflows wait. They are submitted through the rules over a
// store in memory, and the records that this made are copied: to wait for as many fsyncs would
// measure nothing more.
func fill(b *testing.B, s shape, n int) *waiting {
	b.Helper()
	made := &kept{Store: memory.New(), last: map[store.Key]store.Record{}}
	config := controlplane.Config{DefaultState: api.StateDirectory, OrganizationLimit: 1 << 20}
	token, full := submitAll(b, controlplane.New(made, config), s, n)
	db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), sqlite.Config{})
	check(b, err)
	b.Cleanup(func() { _ = db.Close() })
	check(b, made.copyTo(b.Context(), db))
	ops := &counted{Store: db}
	w := &waiting{plane: controlplane.New(ops, config), ops: ops, token: token}
	w.who, err = w.plane.Authenticate(b.Context(), token)
	check(b, err)
	if full != "" {
		w.full, err = w.plane.Authenticate(b.Context(), full)
		check(b, err)
	}
	return w
}

// submitAll submits n workflows in a shape. It returns the token of the pool that can claim, and of
// the one that is full.
func submitAll(b testing.TB, plane *controlplane.Plane, s shape, n int) (token, full string) {
	b.Helper()
	first, err := plane.Bootstrap(b.Context(), "default")
	check(b, err)
	admin, err := plane.Authenticate(b.Context(), first)
	check(b, err)
	token, err = plane.EnsurePoolToken(b.Context(), "default", "default", "bench")
	check(b, err)
	const workspaces = 100
	put := func(name, pool string) {
		_, _, err := plane.PutWorkspace(b.Context(), admin, api.Workspace{
			Name: name, RunSettings: api.RunSettings{
				Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
				Commands: map[string]string{"preview": "true", "update": "true"},
			},
			Pool:      pool,
			MaxActive: 1000,
		})
		check(b, err)
	}
	submit := func(workspace string, op workflow.Operation) {
		_, err := plane.Submit(b.Context(), admin, "", api.Submit{Workspace: workspace, Operation: op})
		check(b, err)
	}
	// take lets a pool claim the one workflow that it can.
	take := func(token string) {
		who, err := plane.Authenticate(b.Context(), token)
		check(b, err)
		got, err := plane.Claim(b.Context(), who, api.Claim{Instance: "bench", Max: 1})
		check(b, err)
		if len(got.Jobs) != 1 {
			b.Fatalf("a claim got %d jobs, want 1", len(got.Jobs))
		}
	}
	if s == manyPools {
		return submitToMany(b, plane, admin, n), ""
	}
	for i := range workspaces {
		put(fmt.Sprintf("ws-%02d", i), "")
	}
	claimable := n
	switch s {
	case spread, manyPools:
	case oneBusy:
		claimable = n / 100
		put("busy", "")
		submit("busy", workflow.Update)
		take(token)
		for range n - claimable {
			submit("busy", workflow.Update)
		}
	case fullPool:
		claimable = n / 100
		name, one := "full", 1
		pool, err := plane.CreatePool(b.Context(), admin, "", api.PoolSettings{Name: &name, Concurrency: &one})
		check(b, err)
		full = pool.Token
		for i := range workspaces {
			put(fmt.Sprintf("full-%02d", i), name)
		}
		submit("full-00", workflow.Preview)
		take(full)
		for i := range n - claimable {
			submit(fmt.Sprintf("full-%02d", i%workspaces), workflow.Preview)
		}
	}
	for i := range claimable {
		submit(fmt.Sprintf("ws-%02d", i%workspaces), workflow.Preview)
	}
	return token, full
}

// labelSets are all that are in use: one for each tenth of the pools, so that claims of each pool merge two keys.
const labelSets = 10

// submitToMany makes n workspaces in a tree of projects and a tenth as many pools, and submits a preview of each. Half of
// the workspaces belong to the pool of their project; the others want labels. It returns the token of the first pool.
func submitToMany(b testing.TB, plane *controlplane.Plane, admin controlplane.Principal, n int) (token string) {
	b.Helper()
	pools := n / 10
	label := func(i int) []string { return []string{fmt.Sprint("set-", i%labelSets)} }
	for i := range pools {
		name, labels := fmt.Sprintf("pool-%d", i), label(i)
		pool, err := plane.CreatePool(b.Context(), admin, "", api.PoolSettings{Name: &name, Labels: &labels})
		check(b, err)
		if i == 0 {
			token = pool.Token
		}
		project := api.ProjectSettings{Name: &name, Pool: &name}
		if above := fmt.Sprintf("pool-%d", i%labelSets); i >= labelSets {
			project.Parent = &above
		}
		_, err = plane.CreateProject(b.Context(), admin, "", project)
		check(b, err)
	}
	for i := range n {
		ws := api.Workspace{
			Name: fmt.Sprintf("ws-%d", i), Project: fmt.Sprintf("pool-%d", i%pools), RunSettings: api.RunSettings{
				Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
				Commands: map[string]string{"preview": "true"},
			},
		}
		if i/pools%2 == 1 {
			ws.Labels = label(i)
		}
		_, _, err := plane.PutWorkspace(b.Context(), admin, ws)
		check(b, err)
		_, err = plane.Submit(b.Context(), admin, "", api.Submit{Workspace: ws.Name, Operation: workflow.Preview})
		check(b, err)
	}
	return token
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
