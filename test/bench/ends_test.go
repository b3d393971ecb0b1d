package bench_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fake "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

// What calls of DynamoDB take, as test/bench/pickup states it with its sources. Time is virtual, so that it is this and
// nothing else that a rate shows.
const (
	readTime        = 5 * time.Millisecond
	updateTime      = 8 * time.Millisecond
	transactionTime = 30 * time.Millisecond // in which the transaction holds its items
)

// BenchmarkEnds measures how many runs of one organization can end in a second, when a hundred functions report
// results at the same time and the organization is at its limit, so that every claim waits for an end. It runs the
// rules over the real store and a table that refuses what DynamoDB refuses: transactions that meet, and more than a
// partition serves. In one pool its list of active runs is such a partition. It takes 500 ends a second.
func BenchmarkEnds(b *testing.B) {
	const callers = 100
	for _, pools := range []int{1, 4} {
		out := endAtOnce(b, callers, quick(1000, 300), pools)
		b.Logf("%d pools: %d ends by %d callers in %s (virtual): %.0f ends/s; %d claimed meanwhile",
			pools, out.ends, callers, out.took.Round(time.Millisecond), rate(out.ends, out.took), out.claimed)
		judge(b, out.perCommit() <= 1.2 && out.refused == 0, fmt.Sprintf("ends of %d callers in %d pools: transactions per commit, refused", callers, pools),
			fmt.Sprintf("%.2f, %d of %d", out.perCommit(), out.refused, out.ends), "<= 1.2, none")
		metric(b, rate(out.ends, out.took), "ends/s")
		metric(b, out.perCommit(), "transactions/commit")
	}
}

// A hundred functions that report results at the same time do not race one another.
func TestEnds_OfOneOrganizationDoNotRace(t *testing.T) {
	out := endAtOnce(t, 100, 200, 1)
	if out.refused != 0 || out.perCommit() > 1.2 {
		t.Errorf("%d of %d ends were refused, %.2f transactions per commit", out.refused, out.ends, out.perCommit())
	}
	if out.claimed == 0 {
		t.Error("nothing was claimed meanwhile")
	}
}

// ended is what came of it.
type ended struct {
	ends, refused, claimed int
	took                   time.Duration // virtual
	sent, lost             int64         // transactions of those that report ends
}

func (e ended) perCommit() float64 { return float64(e.sent) / float64(max(e.sent-e.lost, 1)) }

// counting counts the transactions of a client, and those that were cancelled.
type counting struct {
	dynamodb.Client
	sent, lost *atomic.Int64
}

// TransactWriteItems implements dynamodb.Client.
func (c counting) TransactWriteItems(ctx context.Context, in *sdk.TransactWriteItemsInput, opts ...func(*sdk.Options)) (*sdk.TransactWriteItemsOutput, error) {
	out, err := c.Client.TransactWriteItems(ctx, in, opts...)
	c.sent.Add(1)
	if err != nil {
		c.lost.Add(1)
	}
	return out, err
}

// near is a table without a network, so that it can be called in virtual time.
type near struct {
	http.RoundTripper
	slow *atomic.Bool
}

// Do implements aws.HTTPClient.
func (n near) Do(r *http.Request) (*http.Response, error) {
	if n.slow.Load() {
		switch call := r.Header.Get("X-Amz-Target"); {
		case strings.HasSuffix(call, "TransactWriteItems"): // the table takes that time
		case strings.HasSuffix(call, "UpdateItem"):
			<-time.After(updateTime)
		default:
			<-time.After(readTime)
		}
	}
	return n.RoundTrip(r)
}

// endAtOnce lets runs of an organization that is at its limit end, reported by so many functions at the same time.
func endAtOnce(t testing.TB, callers, runs, pools int) (out ended) {
	t.Helper()
	inVirtualTime(t, func(t *testing.T) {
		w := newTable(t, runs, pools)
		all := w.running(runs)
		w.submit(runs, 2*runs) // these wait for the others to end
		out.ends = runs
		w.atWork()
		began := time.Now()
		var group errgroup.Group
		for caller := range callers {
			plane := w.function(counting{w.client, &w.sent, &w.lost})
			group.Go(func() error {
				for i := caller; i < len(all); i += callers {
					_, err := plane.Result(t.Context(), all[i].token, all[i].run, api.Handover{Result: api.Result{Outcome: workflow.Succeeded}})
					if errors.Is(err, workflow.ErrBusy) {
						w.refused.Add(1)
					} else if err != nil {
						return err
					}
				}
				return nil
			})
		}
		ended, claimed := make(chan struct{}), make(chan int, pools)
		for _, pool := range w.pools {
			go w.claims(pool, ended, claimed)
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		out.took = time.Since(began)
		close(ended)
		for range w.pools {
			out.claimed += <-claimed
		}
		out.sent, out.lost, out.refused = w.sent.Load(), w.lost.Load(), int(w.refused.Load())
	})
	return out
}

// inVirtualTime runs f in a bubble of its own. A bubble needs a test, which a benchmark is not.
func inVirtualTime(t testing.TB, f func(*testing.T)) {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		synctest.Test(t, f)
		return
	}
	all := func(string, string) (bool, error) { return true, nil }
	if !testing.RunTests(all, []testing.InternalTest{{Name: t.Name(), F: func(t *testing.T) { synctest.Test(t, f) }}}) {
		t.Fatal("it did not work")
	}
}

// aTable is an organization whose records lie in a table, and the functions over it.
type aTable struct {
	*testing.T
	service             *fake.Service
	slow                *atomic.Bool // calls take their time
	client              *sdk.Client
	limit               int // of the organization
	plane               *controlplane.Plane
	admin               controlplane.Principal
	pools               []controlplane.Principal
	sent, lost, refused atomic.Int64
}

func newTable(t *testing.T, limit, pools int) *aTable {
	t.Helper()
	w := &aTable{T: t, service: &fake.Service{}, slow: &atomic.Bool{}, limit: limit}
	credentials := sigv4.NewTable(nil)
	config := awsim.ClientConfig("http://dynamodb.test", credentials.User("bench"))
	config.HTTPClient = near{client.InMemory(awsim.New(awsim.Config{Credentials: credentials, Services: map[string]awsim.Service{"dynamodb": w.service}})), w.slow}
	w.client = sdk.NewFromConfig(config)
	w.must(dynamodbtest.Create(t.Context(), w.client, "table", time.Minute))
	w.plane = w.function(w.client)
	admin, err := w.plane.Bootstrap(t.Context(), "default")
	w.must(err)
	w.admin, err = w.plane.Authenticate(t.Context(), admin)
	w.must(err)
	for i := range pools {
		name := fmt.Sprint("pool", i)
		made, err := w.plane.CreatePool(t.Context(), w.admin, "", api.PoolSettings{Name: &name})
		w.must(err)
		pool, err := w.plane.Authenticate(t.Context(), made.Token)
		w.must(err)
		w.pools = append(w.pools, pool)
	}
	return w
}

func (w *aTable) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// function is a process of its own, as each invocation of a function at the same time is.
func (w *aTable) function(c dynamodb.Client) *controlplane.Plane {
	st, err := dynamodb.New(c, "table", dynamodb.Config{})
	w.must(err)
	return controlplane.New(st, controlplane.Config{DefaultState: api.StateDirectory, OrganizationLimit: w.limit})
}

// submit submits one run to each of some workspaces.
func (w *aTable) submit(from, to int) {
	for i := from; i < to; i++ {
		name := fmt.Sprintf("ws-%d", i)
		_, _, err := w.plane.PutWorkspace(w.Context(), w.admin, api.Workspace{
			Name: name, Pool: w.pools[i%len(w.pools)].Pool, RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"update": "true"}},
		})
		w.must(err)
		_, err = w.plane.Submit(w.Context(), w.admin, "", api.Submit{Workspace: name, Operation: workflow.Update})
		w.must(err)
	}
}

// started is a run that has started, and the token of its job.
type started struct {
	token string
	run   api.Run
}

// running starts so many runs.
func (w *aTable) running(n int) (all []started) {
	w.submit(0, n)
	for round := 0; len(all) < n; round++ {
		pool := w.pools[round%len(w.pools)]
		got, err := w.plane.Claim(w.Context(), pool, api.Claim{Instance: "bench", Max: 50})
		w.must(err)
		if len(got.Jobs) == 0 && round > n {
			w.Fatalf("%d of %d were claimed", len(all), n)
		}
		for _, j := range got.Jobs {
			run := api.Run{Workflow: j.ID, Attempt: j.Attempt, Task: "task-" + j.ID, Boot: strings.Repeat("b", 32)}
			w.must(w.plane.Launch(w.Context(), pool, j.ID, api.Launch{Attempt: j.Attempt, Kind: api.LaunchAccepted, Task: run.Task}))
			_, err := w.plane.Start(w.Context(), j.Token, run, api.Start{Knows: api.RunnerKnows()})
			w.must(err)
			all = append(all, started{j.Token, run})
		}
	}
	return all
}

// atWork makes calls take their time, and the table refuse what a table refuses.
func (w *aTable) atWork() {
	w.service.Load = &fake.Load{Transaction: transactionTime}
	w.slow.Store(true)
}

// claims claims until all have ended, as the poller of a pool that is woken does, and then says how many.
func (w *aTable) claims(pool controlplane.Principal, ended <-chan struct{}, claimed chan<- int) {
	plane, n := w.function(w.client), 0
	for {
		got, err := plane.Claim(w.Context(), pool, api.Claim{Instance: "bench", Max: 10})
		if err != nil && !errors.Is(err, workflow.ErrBusy) {
			w.Error(err)
		}
		n += len(got.Jobs)
		select {
		case <-ended:
			claimed <- n
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}
