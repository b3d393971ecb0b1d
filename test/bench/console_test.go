package bench_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// reader is a person with a browser: their cookie, and the server.
type reader struct {
	url    string
	cookie *http.Cookie
	client *http.Client
}

// signedIn signs in with a token.
func signedIn(b *testing.B, server, token string) *reader {
	b.Helper()
	r := &reader{url: server, client: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1000},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server+"/signin", strings.NewReader(url.Values{"token": {token}}.Encode()))
	check(b, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", server)
	res, err := r.client.Do(req)
	check(b, err)
	check(b, res.Body.Close())
	for _, c := range res.Cookies() {
		if strings.HasSuffix(c.Name, "dayfly") {
			r.cookie = c
		}
	}
	if r.cookie == nil {
		b.Fatalf("nobody is signed in: %s", res.Status)
	}
	return r
}

// get fetches a page.
func (r *reader) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return "", err
	}
	req.AddCookie(r.cookie)
	req.Header.Set("Dayfly-Live", "1")
	res, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	page, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, res.Status)
	}
	return string(page), err
}

var (
	fragment = regexp.MustCompile(`<div id="live" data-attempt="(\d*)" data-last="\d*" data-from="(-?\d*)" data-seen="(\w*)" data-again="(\d*)">`)
	printed  = regexp.MustCompile(`>(\d{19})<`)
)

// follow reads what is new about a run until it is over, as the script of its page does.
func (r *reader) follow(ctx context.Context, id string, each func(fragment string)) error {
	attempt, from, seen := "0", "0", ""
	for {
		page, err := r.get(ctx, "/runs/"+id+"/live?"+url.Values{"attempt": {attempt}, "from": {from}, "seen": {seen}}.Encode())
		if err != nil {
			return err
		}
		m := fragment.FindStringSubmatch(page)
		if m == nil {
			return fmt.Errorf("this is no answer about a run: %.200s", page)
		}
		each(page)
		if attempt, from, seen = m[1], m[2], m[3]; m[4] == "" {
			return nil
		}
		again, err := strconv.Atoi(m[4])
		if err == nil {
			err = wait.For(ctx, time.Duration(again)*time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
}

// BenchmarkConsole measures the pages: how long they take with many runs behind them, how long a line takes from a
// command to a page, and what many viewers of one log cost the server.
func BenchmarkConsole(b *testing.B) {
	b.Run("Pages", pages)
	b.Run("Line", lineToPage)
	b.Run("Viewers", manyViewers)
}

// pages measures pages over SQLite.
func pages(b *testing.B) {
	runs := quick(100_000, 5_000)
	st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "dayfly.db"), sqlite.Config{})
	check(b, err)
	b.Cleanup(func() { check(b, st.Close()) })
	began := time.Now()
	token, admin := seedRuns(b, st, runs)
	plane := controlplane.New(st, controlplane.Config{DefaultState: api.StateDirectory, OrganizationLimit: 1 << 20})
	b.Logf("%d runs behind, all of them waiting, made in %s", runs, time.Since(began).Round(time.Second))
	job, run := startOne(b, plane, token)
	lines := make([]api.LogLine, 2000)
	for i := range lines {
		lines[i] = api.LogLine{At: time.Now(), Step: "plan", Text: fmt.Sprintf("\x1b[32m+\x1b[0m attribute_%d = \"value\"", i)}
	}
	_, err = plane.AppendLogs(b.Context(), job.Token, run, api.Logs{Lines: lines})
	check(b, err)
	changes := &api.Changes{Add: 1000}
	for i := range 1000 {
		changes.Resources = append(changes.Resources, api.ResourceChange{Address: fmt.Sprintf("module.app[%d].aws_instance.this", i), Action: "create"})
	}
	planned, plannedRun := startOne(b, plane, token)
	_, err = plane.Result(b.Context(), planned.Token, plannedRun, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, Changes: changes}})
	check(b, err)
	server := httptest.NewServer(console.New(plane, console.Config{}))
	b.Cleanup(server.Close)
	r := signedIn(b, server.URL, admin)
	for _, p := range []struct {
		name, path string
		aim        time.Duration
	}{
		{"home", "/", 50 * time.Millisecond},
		{"runs", "/runs", 50 * time.Millisecond},
		{"a run with 2,000 lines of log", "/runs/" + job.ID, 50 * time.Millisecond},
		{"a plan of 1,000 resources", "/runs/" + planned.ID, 300 * time.Millisecond},
	} {
		var took figures.Sample
		size := 0
		for i := range quick(200, 60) {
			began := time.Now()
			page, err := r.get(b.Context(), p.path)
			check(b, err)
			if size = len(page); i >= 5 { // it is warm by then
				took = append(took, time.Since(began))
			}
		}
		p95 := took.At(0.95)
		b.Logf("%s: p50 %s, p95 %s, %d kB", p.name, ms(took.At(0.5)), ms(p95), size>>10)
		judge(b, p95 <= p.aim, fmt.Sprintf("page with %d runs behind: %s, p95", runs, p.name), ms(p95), "<= "+p.aim.String())
	}
	metric(b, float64(runs), "runs")
}

// seedRuns fills a store with runs that wait in a hundred workspaces. They are submitted in memory, and their records
// copied: so 100,000 take seconds.
func seedRuns(b *testing.B, to store.Store, n int) (pool, admin string) {
	b.Helper()
	ctx := b.Context()
	from := &noted{Store: memory.New(), keys: map[store.Key]bool{}}
	plane := controlplane.New(from, controlplane.Config{DefaultState: api.StateDirectory, OrganizationLimit: 1 << 20})
	admin, err := plane.Bootstrap(ctx, "default")
	check(b, err)
	who, err := plane.Authenticate(ctx, admin)
	check(b, err)
	pool, err = plane.EnsurePoolToken(ctx, "default", "default", "bench")
	check(b, err)
	_, err = plane.Pass(ctx) // from then on the list of active runs is whole
	check(b, err)
	for i := range 100 {
		_, _, err := plane.PutWorkspace(ctx, who, api.Workspace{
			Name: fmt.Sprintf("ws-%02d", i), RunSettings: api.RunSettings{
				Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
				Commands: map[string]string{"preview": "true"},
			},
		})
		check(b, err)
	}
	for i := range n {
		_, err := plane.Submit(ctx, who, "", api.Submit{Workspace: fmt.Sprintf("ws-%02d", i%100), Operation: workflow.Preview})
		check(b, err)
	}
	commits := 0
	for keys := range slices.Chunk(slices.Collect(maps.Keys(from.keys)), min(store.MaxGet, store.MaxOps)) {
		records, err := from.Get(ctx, keys...)
		check(b, err)
		var ops []store.Op
		for _, r := range records {
			ops = append(ops, store.Put(r, store.Absent))
		}
		commits++
		if len(ops) > 0 {
			check(b, to.Commit(ctx, fmt.Sprintf("seed-%d", commits), ops...))
		}
	}
	return pool, admin
}

// noted is a store that knows the keys of all that was written.
type noted struct {
	store.Store
	keys map[store.Key]bool
}

// Commit implements store.Store.
func (n *noted) Commit(ctx context.Context, id string, ops ...store.Op) error {
	for _, op := range ops {
		n.keys[op.Key()] = true
	}
	return n.Store.Commit(ctx, id, ops...)
}

// lineToPage measures how long a line takes from a command, which prints one each 70 ms, to a page that follows it.
func lineToPage(b *testing.B) {
	const aim = time.Second
	lines := quick(400, 150)
	w := open(b, 4)
	w.put(b, "follow", fmt.Sprintf("for n in $(seq %d); do date +%%s%%N; sleep 0.07; done", lines))
	token, err := w.up.AdminToken()
	check(b, err)
	r := signedIn(b, w.up.URL(), token)
	wf, err := w.cl.Submit(b.Context(), api.Submit{Workspace: "follow", Operation: workflow.Update})
	check(b, err)
	var took figures.Sample
	check(b, r.follow(b.Context(), wf.ID, func(page string) {
		for _, m := range printed.FindAllStringSubmatch(page, -1) {
			at, err := strconv.ParseInt(m[1], 10, 64)
			check(b, err)
			took = append(took, time.Since(time.Unix(0, at)))
		}
	}))
	if len(took) != lines {
		b.Fatalf("%d lines of %d came", len(took), lines)
	}
	p95 := took.At(0.95)
	b.Logf("line to page, %d lines: p50 %s, p95 %s, the slowest %s", len(took), ms(took.At(0.5)), ms(p95), ms(took.At(1)))
	judge(b, p95 <= aim, "line to page, p95", ms(p95), "<= "+aim.String())
	metric(b, milliseconds(p95), "p95-ms")
}

// manyViewers measures what 200 viewers of one log cost `up`, beyond what the run itself costs with one.
func manyViewers(b *testing.B) {
	const viewers, aim = 200, 0.1
	seconds := quick(30, 12)
	w := withHistory(b, 0)
	w.put(b, "watched", fmt.Sprintf("for n in $(seq %d); do echo line $n of a plan, as long as most; sleep 0.1; done", 10*(seconds+2)))
	var people []*reader // a person may send so many requests a second
	for i := range 10 {
		token, err := w.cl.CreateToken(b.Context(), api.NewToken{Name: fmt.Sprintf("viewer-%d", i), Role: api.RoleViewer})
		check(b, err)
		people = append(people, signedIn(b, w.up.URL, token.Value))
	}
	share := func(viewers int) (share float64, answers int64) {
		wf, err := w.cl.Submit(b.Context(), api.Submit{Workspace: "watched", Operation: workflow.Update})
		check(b, err)
		var begun, seen atomic.Int64
		all := make(chan struct{})
		var group sync.WaitGroup
		for i := range viewers {
			group.Go(func() {
				first := true
				err := people[i%len(people)].follow(b.Context(), wf.ID, func(page string) {
					seen.Add(1)
					if first && strings.Contains(page, "of a plan") {
						first = false
						if begun.Add(1) == int64(viewers) {
							close(all)
						}
					}
				})
				if err != nil {
					b.Error(err)
				}
			})
		}
		<-all
		before, _ := w.cpu(b)
		counted, from := seen.Load(), time.Now()
		<-time.After(time.Duration(seconds-2) * time.Second)
		after, _ := w.cpu(b)
		share, answers = (after-before).Seconds()/time.Since(from).Seconds(), seen.Load()-counted
		group.Wait()
		return share, answers
	}
	one, _ := share(1)
	many, answers := share(viewers)
	b.Logf("`up` takes %.1f %% of a core with one viewer, %.1f %% with %d, who got %d answers of a log with ten lines a second", 100*one, 100*many, viewers, answers)
	judge(b, many-one < aim, fmt.Sprintf("%d viewers of one log", viewers), fmt.Sprintf("%.1f %% of a core", 100*(many-one)), "< 10 %")
	metric(b, 100*(many-one), "percent")
}
