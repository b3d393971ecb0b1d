package bench_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The load of docs/scale.md, once: jobs in the busiest hour, and how long each of them runs, in seconds.
const (
	busiestHour = 300.0
	jobSeconds  = 300.0
)

// Calls of an active run: lines of its log every 25 s, or every 2 s for the fifth of the runs that somebody reads. A
// run without lines calls less often.
const callsPerSecond = 0.8/25 + 0.2/2

// BenchmarkScale prints what docs/scale.md is made of: the write units of a job by the partition that they go to,
// counted from its submit to its result, and for each part of an installation on AWS what the load needs at 1, 10, 100
// and 1,000 times, beside its bound.
func BenchmarkScale(b *testing.B) {
	const jobs = 50
	st := &partitions{Store: memory.New(), units: map[string]float64{}, commits: map[store.Key]float64{}}
	plane := controlplane.New(st, controlplane.Config{DefaultState: api.StateDirectory, OrganizationLimit: 1 << 20})
	first, err := plane.Bootstrap(b.Context(), "default")
	check(b, err)
	admin, err := plane.Authenticate(b.Context(), first)
	check(b, err)
	token, err := plane.EnsurePoolToken(b.Context(), "default", "default", "bench")
	check(b, err)
	_, _, err = plane.PutWorkspace(b.Context(), admin, api.Workspace{
		Name: "net", RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true"}},
	})
	check(b, err)
	clear(st.units)
	clear(st.commits)
	for i := range jobs {
		_, err := plane.Submit(b.Context(), admin, fmt.Sprint("key", i), api.Submit{Workspace: "net", Operation: workflow.Preview})
		check(b, err)
		check(b, job(b.Context(), plane, token))
	}
	all, hot, commits := st.report(b, jobs)
	bounds(b, all, hot, commits)
	metric(b, all, "write-units")
	b.ReportMetric(hot, "hottest-partition-units")
	b.ReportMetric(commits, "hottest-record-commits")
}

// partitions is a store that adds up the write units of its commits by the partition that they go to, and the commits
// that write a record.
type partitions struct {
	store.Store
	mu      sync.Mutex
	units   map[string]float64
	commits map[store.Key]float64
}

// Commit implements store.Store.
func (p *partitions) Commit(ctx context.Context, id string, ops ...store.Op) error {
	before := map[store.Key]store.Record{}
	for _, op := range ops {
		found, err := p.Get(ctx, op.Key())
		if err != nil {
			return err
		}
		for _, r := range found {
			before[r.Key] = r
		}
	}
	if err := p.Store.Commit(ctx, id, ops...); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range ops {
		u := dynamodbtest.CommitUnits([]store.Op{op, op}, before).Write / 2 // its part of a transaction
		if len(ops) == 1 {
			u = dynamodbtest.CommitUnits(ops, before).Write
		}
		p.units[op.Key().Part] += u
		if op.IsPut() || op.IsDelete() {
			p.commits[op.Key()]++
		}
	}
	return nil
}

// ofOne are the partitions of which each workflow or workspace has its own. An organization or a pool has one of each
// other kind, which all of its jobs write to.
var ofOne = []string{"wf", "lane", "token"}

// report prints the units of a job by partition, and returns all of them, those that go to the hottest partition that
// many jobs share, and in how many commits a job writes the hottest record that many jobs share.
func (p *partitions) report(b *testing.B, jobs float64) (all, hot, commits float64) {
	used, most := map[string]float64{}, map[string]float64{}
	for part, units := range p.units {
		kind, _, _ := strings.Cut(part, "/")
		used[kind] += units / jobs
		most[kind] = max(most[kind], units/jobs)
		all += units / jobs
	}
	for _, kind := range slices.SortedFunc(maps.Keys(used), func(x, y string) int { return cmp.Compare(used[y], used[x]) }) {
		whose := "one for each workflow, workspace or token"
		if !slices.Contains(ofOne, kind) {
			whose = fmt.Sprintf("shared, and %.1f in the hottest: 1,000 units a second are %.0f jobs", most[kind], 1000/most[kind])
			hot = max(hot, most[kind])
		}
		b.Logf("%-8s %6.1f write units of a job; %s", kind, used[kind], whose)
	}
	var record store.Key
	for k, n := range p.commits {
		kind, _, _ := strings.Cut(k.Part, "/")
		// A wake mark that is set already is left alone: under load it is written once for each claim and no more.
		if !slices.Contains(ofOne, kind) && k.Sort != "wake" && n/jobs > commits {
			record, commits = k, n/jobs
		}
	}
	b.Logf("%-8s %6.1f write units of a job; the hottest record that jobs share is %s %s, in %.2f commits of a job", "all", all, record.Part, record.Sort, commits)
	return all, hot, commits
}

// bounds prints what each part needs at so many times the load.
func bounds(b *testing.B, units, hot, commits float64) {
	b.Logf("once: %.0f jobs in the busiest hour, of %.0f s each", busiestHour, jobSeconds)
	times := []float64{1, 10, 100, 1000}
	for _, part := range []struct {
		what  string
		bound float64
		need  func(perSecond, active float64) float64
	}{
		{"vCPU of Fargate, 1 for each active run (quota of a new account)", 6, func(_, active float64) float64 { return active }},
		{"active runs of an organization (OrganizationLimit)", 150, func(_, active float64) float64 { return active }},
		{"addresses of a VPC that the stack creates (VpcCidr)", 1000, func(_, active float64) float64 { return active }},
		{"network interfaces of a Region (quota)", 5000, func(_, active float64) float64 { return active }},
		{"launches a second (Fargate's limit of an account and Region)", 20, func(perSecond, _ float64) float64 { return perSecond }},
		{"requests a second of API Gateway, for status API and control plane (quota)", 10_000, func(_, active float64) float64 { return 2 * callsPerSecond * active }},
		{"concurrent invocations, 0.2 s for each of these calls (quota of 1,000, less 100)", 900, func(_, active float64) float64 { return 0.2 * callsPerSecond * active }},
		{"write units a second of the hottest partition of an organization", 1000, func(perSecond, _ float64) float64 { return perSecond * hot }},
		{"commits a second that write the hottest record, one after the other (30 ms each), if each claim takes one job", 33, func(perSecond, _ float64) float64 { return perSecond * commits }},
		{"write units a second of the table (quota)", 40_000, func(perSecond, _ float64) float64 { return perSecond * units }},
	} {
		var row []string
		breaks := "holds"
		for _, n := range times {
			perSecond := n * busiestHour / 3600
			need := part.need(perSecond, perSecond*jobSeconds)
			row = append(row, fmt.Sprintf("%8.2f", need))
			if breaks == "holds" && math.Round(need) > part.bound {
				breaks = fmt.Sprintf("breaks at %.0f times", n)
			}
		}
		b.Logf("%s of %5.0f: %s; %s", strings.Join(row, " "), part.bound, part.what, breaks)
	}
}
