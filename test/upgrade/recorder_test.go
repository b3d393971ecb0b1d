package upgrade_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// recorder is a control plane whose calls are written down.
type recorder struct {
	ctx     context.Context //nolint:containedctx // a recording is one call
	clock   *clock
	store   *noting
	plane   *controlplane.Plane
	handler http.Handler
	calls   []call
	side    string // token of the pool that claims and launches
	// middleAt is how many calls there were when the records were written down.
	middleAt int
	scene    scene
	order    []string // of the jobs
	boots    int
	trees    []string // ids
	merged   bool     // the pull request is
	delivery string   // id of one on its way
	replayed string   // and of one that has failed
}

func newRecorder(ctx context.Context, st *noting) *recorder {
	r := &recorder{
		ctx: ctx, store: st, side: "pool", clock: &clock{t: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)},
		scene: scene{Tokens: map[string]string{}, Workflows: map[string]string{}, Jobs: map[string]api.Job{}, Runs: map[string]api.Run{}},
	}
	cfg := config(r.clock.now)
	var err error
	cfg.Issuers, err = oidc.New(oidc.Config{Private: []string{"127.0.0.0/8"}})
	must(err)
	r.plane = controlplane.New(st, cfg)
	r.handler = httpapi.New(r.plane, httpapi.Config{})
	return r
}

// config is that of the control plane, when it is recorded and in each replay.
func config(now func() time.Time) controlplane.Config {
	return controlplane.Config{
		Now: now, DefaultState: api.StateDirectory, Waker: elsewhere{}, Forward: elsewhere{}, Address: "https://dayfly.example.com",
		WebhookKey: func(context.Context) ([]byte, error) { return []byte("of the secrets of webhooks"), nil },
	}
}

// elsewhere is woken, and takes the audit trail.
type elsewhere struct{}

func (elsewhere) Wake(context.Context, string) error { return nil }

func (elsewhere) Forward(context.Context, string, []api.AuditEvent, api.Seal) error { return nil }

func (elsewhere) Place() string { return "s3://trail" }

// RoundTrip implements http.RoundTripper: it calls the control plane and writes the call down. A millisecond goes by,
// so that ids of two calls have one order.
func (r *recorder) RoundTrip(in *http.Request) (*http.Response, error) {
	r.clock.set(r.clock.last().Add(time.Millisecond))
	c := call{At: r.clock.last(), Method: in.Method, Path: in.URL.RequestURI(), Header: map[string]string{}}
	for name := range in.Header {
		if name == "Authorization" || name == "Idempotency-Key" || name == "Content-Type" || strings.HasPrefix(name, "Dayfly-") || strings.HasPrefix(name, "X-") {
			c.Header[name] = in.Header.Get(name)
		}
	}
	var body []byte
	if in.Body != nil {
		var err error
		if body, err = io.ReadAll(in.Body); err != nil {
			return nil, err
		}
	}
	if c.Request = body; !json.Valid(body) {
		c.Request, c.Form = nil, string(body)
	}
	served := in.Clone(in.Context())
	served.RequestURI, served.Body = in.URL.RequestURI(), io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	r.handler.ServeHTTP(answer, served)
	c.Status = answer.Code
	if answer.Body.Len() > 0 {
		c.Response = bytes.Clone(bytes.TrimSpace(answer.Body.Bytes()))
	}
	r.calls = append(r.calls, c)
	return answer.Result(), nil
}

func (r *recorder) client(who string) *client.Client {
	c, err := client.New(client.Config{
		URL: "http://control.test", HTTPClient: &http.Client{Transport: r}, RetryCount: -1,
		Token: func() redact.String { return redact.New(r.scene.Tokens[who]) },
	})
	must(err)
	return c
}

func (r *recorder) admin() *client.Client { return r.client("admin") }
func (r *recorder) pool() *client.Client  { return r.client(r.side) }

// failure ends a recording: must panics with it, and record catches it.
type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// ok is the answer of a call that is to be taken.
func ok[T any](answer T, err error) T {
	must(err)
	return answer
}

// refused is for calls that are to fail.
func refused(err error) {
	if err == nil {
		panic(failure{fmt.Errorf("a call was taken that is to be refused")})
	}
}

func (r *recorder) record(save func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			f, ok := cause.(failure)
			if !ok {
				panic(cause)
			}
			last := r.calls[len(r.calls)-1]
			err = fmt.Errorf("after %d calls, the last %s %s %s: %w\n%s", len(r.calls), last.Method, last.Path, last.Request, f.error, debug.Stack())
		}
	}()
	r.before()
	if err := save(); err != nil {
		return err
	}
	r.middleAt = len(r.calls)
	r.after()
	return nil
}

func (r *recorder) pass() {
	r.calls = append(r.calls, call{At: r.clock.last(), Pass: true})
	ok(r.plane.Pass(r.ctx))
}

// live lets time pass as it does for a control plane that is up, and for a pool whose agent asks what it holds.
func (r *recorder) live(d time.Duration) {
	for ; d > 0; d -= time.Minute {
		r.clock.set(r.clock.last().Add(min(d, time.Minute)))
		ok(r.client("pool").Held(r.ctx, "one", ""))
		r.pass()
	}
}

// dies makes calls whose process ends before it removes a record: the next pass has to do the rest.
func (r *recorder) dies(part string, calls func()) {
	r.store.before = func(ops []store.Op) error {
		if slices.ContainsFunc(ops, func(op store.Op) bool { return op.IsDelete() && strings.HasPrefix(op.Key().String(), part) }) {
			return errors.New("the process has ended")
		}
		return nil
	}
	calls()
	r.store.before = nil
}

func (r *recorder) workspace(name string, change ...func(*api.Workspace)) {
	ws := api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: "/srv/" + name},
			Commands: map[string]string{"preview": "true", "update": "true", "refresh": "true", "destroy": "true", "insights_scan": "true"},
		},
	}
	if r.side != "pool" {
		ws.Pool, ws.Project = r.side, "shop"
	}
	for _, c := range change {
		c(&ws)
	}
	_, _, err := r.admin().PutWorkspace(r.ctx, ws)
	must(err)
}

// submit asks for a run of the workspace of that name; no operation means a scan.
func (r *recorder) submit(name string, op workflow.Operation) string {
	in := api.Submit{Workspace: name, Operation: op, Message: "for " + name}
	if op == "" {
		in.Type = workflow.InsightsScan
	}
	wf := ok(r.admin().Submit(r.ctx, in))
	return wf.ID
}

// fresh makes a workspace of that name and asks for its first run.
func (r *recorder) fresh(name string, op workflow.Operation) {
	r.workspace(name)
	r.scene.Workflows[name] = r.submit(name, op)
}

// claimed claims the next workflow that can be claimed, under a name.
func (r *recorder) claimed(name string) api.Job {
	got := ok(r.pool().Claim(r.ctx, api.Claim{Instance: "one", Version: "recorded", Max: 1}))
	if len(got.Jobs) != 1 || r.scene.Workflows[name] != "" && got.Jobs[0].ID != r.scene.Workflows[name] {
		must(fmt.Errorf("claimed %d jobs (%+v), want the one of %s", len(got.Jobs), got, name))
	}
	r.scene.Jobs[name] = got.Jobs[0]
	return got.Jobs[0]
}

func (r *recorder) queued(name string) {
	job := r.scene.Jobs[name]
	must(r.pool().Queued(r.ctx, job.ID, api.Attempt{Attempt: job.Attempt}))
}

func (r *recorder) launched(name string) {
	job := r.scene.Jobs[name]
	r.boots++
	run := api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: fmt.Sprintf("task-%s-%d", name, job.Attempt), Boot: fmt.Sprintf("%032x", r.boots)}
	r.scene.Runs[name] = run
	must(r.pool().Launch(r.ctx, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: run.Task}))
	must(r.pool().Launch(r.ctx, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchProgress, Task: run.Task, Text: "provisioning"}))
}

func (r *recorder) runner(name string) *client.Runner { return r.runnerAs(name, r.scene.Runs[name]) }

func (r *recorder) runnerAs(name string, run api.Run) *client.Runner {
	c, err := client.NewRunner(client.RunnerConfig{
		URL: "http://control.test", HTTPClient: &http.Client{Transport: r}, Run: run,
		Credential: redact.New(r.scene.Jobs[name].Token),
	})
	must(err)
	return c
}

func (r *recorder) start(name string) {
	ok(r.runner(name).Start(r.ctx))
	ok(r.runner(name).Spec(r.ctx))
	ok(r.runner(name).Heartbeat(r.ctx, api.Heartbeat{Step: "source"}))
}

// running brings a fresh workflow up to running.
func (r *recorder) running(name string, op workflow.Operation) {
	r.fresh(name, op)
	r.toRunning(name)
}

func (r *recorder) toRunning(name string) {
	r.claimed(name)
	r.queued(name)
	r.launched(name)
	r.start(name)
}

// work reports steps and logs from a line on.
func (r *recorder) work(name string, seq int, first int64) {
	ok(r.runner(name).Steps(r.ctx, api.Steps{Steps: []api.Step{{Seq: seq, Name: fmt.Sprintf("step%d", seq), Status: workflow.StepRunning, StartedAt: r.clock.last()}}}))
	ok(r.runner(name).Logs(r.ctx, api.Logs{First: first, Lines: []api.LogLine{
		{At: r.clock.last(), Step: "apply", Text: fmt.Sprintf("line %d of %s", first, name)},
		{At: r.clock.last(), Step: "apply", Text: "a piece", More: true},
	}}))
}

func (r *recorder) result(name string, in api.Result) {
	ok(r.runner(name).Result(r.ctx, in))
}

// done ends a run well, or as the result says.
func (r *recorder) done(name string, in api.Result) {
	in.Outcome = cmp.Or(in.Outcome, workflow.Succeeded)
	r.result(name, in)
	r.lost(name, 0, "")
}

// leaves announces a file of a run and says that it has arrived.
func (r *recorder) leaves(name, kind, file string, place ...api.Place) {
	at := append(place, api.Place{Kind: api.PlaceDirectory})[0]
	ok(r.runner(name).Artifacts(r.ctx, api.NewArtifacts{Artifacts: []api.NewArtifact{{Name: file, Kind: kind, Size: 10, SHA256: sum}}, Place: &at}))
	ok(r.runner(name).Artifacts(r.ctx, api.NewArtifacts{Placed: []string{file}}))
}

func (r *recorder) lost(name string, exit int, text string) {
	job := r.scene.Jobs[name]
	must(r.pool().Lost(r.ctx, job.ID, api.Lost{Attempt: job.Attempt, Task: r.scene.Runs[name].Task, ExitCode: &exit, Text: text}))
}

// names returns the keys in order.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
