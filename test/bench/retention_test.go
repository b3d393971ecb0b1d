package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// table is a store that knows how many records it holds.
type table struct {
	store.Store
	records atomic.Int64
}

// Commit implements store.Store.
func (t *table) Commit(ctx context.Context, id string, ops ...store.Op) error {
	err := t.Store.Commit(ctx, id, ops...)
	for _, op := range ops {
		switch {
		case err != nil:
		case op.IsPut() && op.Expect() == store.Absent:
			t.records.Add(1)
		case op.IsDelete():
			t.records.Add(-1)
		}
	}
	return err
}

// years is a control plane in virtual time.
type years struct {
	table       *table
	plane       *controlplane.Plane
	admin, pool controlplane.Principal
	offset      atomic.Int64 // of its clock, in nanoseconds
}

func (y *years) now() time.Time { return time.Now().Add(time.Duration(y.offset.Load())) }

func openYears(b *testing.B, st store.Store, expires bool) *years {
	b.Helper()
	y := &years{table: &table{Store: st}}
	y.plane = controlplane.New(y.table, controlplane.Config{Now: y.now, DefaultState: api.StateDirectory, OrganizationLimit: 100_000, Expires: expires})
	token, err := y.plane.Bootstrap(b.Context(), "default")
	check(b, err)
	y.admin, err = y.plane.Authenticate(b.Context(), token)
	check(b, err)
	token, err = y.plane.EnsurePoolToken(b.Context(), "default", "default", "bench")
	check(b, err)
	y.pool, err = y.plane.Authenticate(b.Context(), token)
	check(b, err)
	_, _, err = y.plane.PutWorkspace(b.Context(), y.admin, api.Workspace{
		Name: "ws", RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true"}}, MaxActive: 1000,
	})
	check(b, err)
	return y
}

// live runs one workflow through the rules, from its submission to its end.
func (y *years) live(b *testing.B) string {
	b.Helper()
	wf, err := y.plane.Submit(b.Context(), y.admin, "", api.Submit{Workspace: "ws", Operation: workflow.Preview})
	check(b, err)
	out, err := y.plane.Claim(b.Context(), y.pool, api.Claim{Instance: "bench", Max: 1})
	check(b, err)
	job := out.Jobs[0]
	run := api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: "task", Boot: strings.Repeat("a", 32)}
	check(b, y.plane.Launch(b.Context(), y.pool, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: run.Task}))
	_, err = y.plane.Start(b.Context(), job.Token, run, api.Start{Knows: api.RunnerKnows()})
	check(b, err)
	_, err = y.plane.Steps(b.Context(), job.Token, run, api.Steps{Steps: []api.Step{{Seq: 1, Name: "plan", Status: workflow.StepSucceeded}}})
	check(b, err)
	_, err = y.plane.AppendLogs(b.Context(), job.Token, run, api.Logs{Lines: slices.Repeat([]api.LogLine{{Text: "Refreshing state... [id=vpc-0a1b2c3d4e5f]"}}, 10)})
	check(b, err)
	_, err = y.plane.Result(b.Context(), job.Token, run, api.Handover{Result: api.Result{Outcome: workflow.Succeeded}})
	check(b, err)
	return wf.ID
}

// past fills the store with runs like one that was, as many as make so many records, spread over the days for which
// they are kept. It returns how many there are of each day.
func (y *years) past(b *testing.B, id string, records int) (perDay int) {
	b.Helper()
	page, err := y.table.Range(b.Context(), store.Scan{Part: record.WorkflowKey(id).Part, Limit: 1000})
	check(b, err)
	perDay = records / (api.DefaultWorkflowRetention * len(page.Records)) // most have no log any more, but a line in the audit trail
	step := record.Day / time.Duration(perDay)
	var next atomic.Int64
	total, now := int64(perDay*api.DefaultWorkflowRetention), y.now()
	var group sync.WaitGroup
	for range 16 { // one fsync serves them all
		group.Go(func() {
			var ops []store.Op
			flush := func() {
				if len(ops) > 0 {
					check(b, y.table.Commit(b.Context(), record.Random(18), ops...))
				}
				ops = ops[:0]
			}
			for i := next.Add(1); i <= total; i = next.Add(1) {
				at := now.Add(-time.Duration(i) * step)
				if len(ops)+len(page.Records) >= store.MaxOps {
					flush()
				}
				ops = append(ops, like(b, page.Records, at, now)...)
				ops = append(ops, store.Put(record.Encode(record.AuditKey("default", at), api.AuditEvent{At: at, Action: "workflow.submit"}), store.Absent))
			}
			flush()
		})
	}
	group.Wait()
	return perDay
}

// like makes the records of a run of another time.
func like(b *testing.B, records []store.Record, at, now time.Time) (ops []store.Op) {
	b.Helper()
	id := record.NewID("wf_", at)
	for _, r := range records {
		switch {
		case r.Key.Sort == "wf":
			w, err := record.Decode[record.Workflow](r)
			check(b, err)
			w.ID, w.Submitted = id, at
			r = record.EncodeWorkflow(&w)
		case strings.HasPrefix(r.Key.Sort, record.LogsPrefix) && at.Before(record.Before(now, api.DefaultLogRetention)):
			continue
		}
		r.Key.Part = record.WorkflowKey(id).Part
		ops = append(ops, store.Put(r, store.Absent))
	}
	return ops
}

// passes makes passes until nothing is left to the next one.
func (y *years) passes(b *testing.B) (deleted int, took time.Duration) {
	b.Helper()
	began := time.Now()
	for {
		sum, err := y.plane.Pass(b.Context())
		check(b, err)
		deleted += sum.Deleted
		if !sum.More {
			return deleted, time.Since(began)
		}
	}
}

// BenchmarkRetention shows that a table with a million old records does not grow while as much comes as goes, what it
// takes to delete most of them at once, and what that means for others.
func BenchmarkRetention(b *testing.B) {
	path := filepath.Join(b.TempDir(), "dayfly.db")
	disk, err := sqlite.Open(b.Context(), path, sqlite.Config{})
	check(b, err)
	b.Run("memory", func(b *testing.B) { flat(b, openYears(b, memory.New(), false), func() int64 { return 0 }) })
	b.Run("sqlite", func(b *testing.B) {
		y := openYears(b, disk, false)
		size := func() int64 {
			info, err := os.Stat(path)
			check(b, err)
			return info.Size()
		}
		flat(b, y, size)
		y.shorten(b, size)
		before := size()
		check(b, disk.Close())
		began := time.Now()
		disk, err := sqlite.Open(b.Context(), path, sqlite.Config{})
		check(b, err)
		b.Logf("the next start takes %s and makes a file of %.0f MB of one of %.0f MB", time.Since(began).Round(time.Millisecond), mb(size()), mb(before))
		check(b, disk.Close())
	})
	b.Run("times", times)
}

// flat fills a table, plays days of real work, and looks at its size after each.
func flat(b *testing.B, y *years, size func() int64) {
	b.Helper()
	days, kept := quick(12, 6), api.DefaultWorkflowRetention
	_, err := y.plane.UpdateOrganization(b.Context(), y.admin, api.OrganizationSettings{AuditRetention: &kept})
	check(b, err)
	perDay := y.past(b, y.live(b), quick(1_000_000, 100_000))
	y.passes(b) // what became too old while the table was filled, and what was purged before
	first, file := y.table.records.Load(), size()
	least, most, deleted := first, first, 0
	for range days {
		for range perDay {
			y.live(b)
		}
		y.offset.Add(int64(record.Day))
		n, _ := y.passes(b)
		deleted += n
		now := y.table.records.Load()
		least, most = min(least, now), max(most, now)
	}
	b.Logf("%d records; %d days of %d runs: between %d and %d records after each, %d deleted; the file: %.0f MB, then %.0f MB",
		first, days, perDay, least, most, deleted, mb(file), mb(size()))
	grown := float64(most)/float64(first) - 1
	judge(b, grown < 0.01, "growth of the table at a constant rate", fmt.Sprintf("%.2f %%", 100*grown), "none")
	metric(b, float64(y.table.records.Load())/float64(first), "of-the-records")
}

// shorten lets three quarters of the runs expire at once, and submits others meanwhile.
func (y *years) shorten(b *testing.B, size func() int64) {
	b.Helper()
	submits := func(n int, stop <-chan struct{}) (took figures.Sample) {
		for range n {
			select {
			case <-stop:
				return took
			default:
			}
			began := time.Now()
			_, err := y.plane.Submit(b.Context(), y.admin, "", api.Submit{Workspace: "ws", Operation: workflow.Preview})
			check(b, err)
			took = append(took, time.Since(began))
		}
		return took
	}
	alone := submits(300, nil)
	days := 100
	_, err := y.plane.UpdateOrganization(b.Context(), y.admin, api.OrganizationSettings{WorkflowRetention: &days})
	check(b, err)
	y.offset.Add(int64(time.Minute))
	stop, result := make(chan struct{}), make(chan figures.Sample, 1)
	go func() { result <- submits(1<<30, stop) }()
	deleted, took := y.passes(b)
	close(stop)
	during := <-result
	b.Logf("400 to 100 days: %d records deleted in %s, %.0f a second; a submit takes p50 %s, p99 %s alone, and p50 %s, p99 %s meanwhile",
		deleted, took.Round(time.Second), rate(deleted, took), ms(alone.At(0.5)), ms(alone.At(0.99)), ms(during.At(0.5)), ms(during.At(0.99)))
	b.Logf("left: %d records in a file of %.0f MB", y.table.records.Load(), mb(size()))
}

// times measures what it would cost to give every record of a run its time in SQLite, where the purge needs none.
func times(b *testing.B) {
	const runs = 5 // the log begins anew after a thousand pages
	bytes := func(expires bool) float64 {
		path := filepath.Join(b.TempDir(), "dayfly.db")
		st, err := sqlite.Open(b.Context(), path, sqlite.Config{})
		check(b, err)
		y := openYears(b, st, expires)
		for range 200 { // its indexes have some depth
			y.live(b)
		}
		check(b, st.Close()) // which empties the log
		st, err = sqlite.Open(b.Context(), path, sqlite.Config{})
		check(b, err)
		y.table.Store = st
		var written float64
		for range runs {
			y.live(b)
			info, err := os.Stat(path + "-wal")
			check(b, err)
			written = max(written, float64(info.Size()))
		}
		check(b, st.Close())
		return written / runs
	}
	without, with := bytes(false), bytes(true)
	b.Logf("bytes of the write-ahead log for a life: %.0f without times, %.0f with a time on each record of it (x%.2f)", without, with, with/without)
	metric(b, with/without, "with/without")
}
