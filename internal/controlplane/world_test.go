package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(time.Microsecond) // no two records at the same time
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// world is a control plane with an organization, an admin and a pool.
type world struct {
	t     *testing.T
	plane *controlplane.Plane
	store store.Store
	clock *clock
	admin controlplane.Principal
	pool  controlplane.Principal
}

func newWorld(t *testing.T, st store.Store) *world {
	t.Helper()
	w := &world{t: t, store: st, clock: &clock{t: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}}
	issuers, err := oidc.New(oidc.Config{Private: []string{"127.0.0.0/8"}})
	w.must(err)
	w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Issuers: issuers, ReportWait: time.Millisecond, WebhookKey: func(context.Context) ([]byte, error) { return []byte("of the secrets of webhooks"), nil }})
	w.signIn()
	w.pass()
	return w
}

// signIn makes the organization, and gets its admin and its pool.
func (w *world) signIn() {
	w.t.Helper()
	token, err := w.plane.Bootstrap(w.ctx(), "default")
	w.must(err)
	w.admin, err = w.plane.Authenticate(w.ctx(), token)
	w.must(err)
	poolToken, err := w.plane.EnsurePoolToken(w.ctx(), "default", "default", "agent")
	w.must(err)
	w.pool, err = w.plane.Authenticate(w.ctx(), poolToken)
	w.must(err)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// commit writes records as they are, past the rules, also in a store that is busy and loses answers.
func (w *world) commit(id string, ops ...store.Op) {
	w.t.Helper()
	err := store.ErrBusy
	for range 100 {
		if err = w.store.Commit(w.ctx(), id, ops...); !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrUnknown) {
			break
		}
	}
	w.must(err)
}

func (w *world) ctx() context.Context { return w.t.Context() }

// inBubble runs f in virtual time, where a call that is notified takes none.
func inBubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		w := &world{t: t, plane: controlplane.New(st, controlplane.Config{}), store: st}
		w.signIn()
		f(w)
	})
}

// workspace applies a command workspace.
func (w *world) workspace(name string, change ...func(*api.Workspace)) {
	w.t.Helper()
	ws := api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
			Commands: map[string]string{"preview": "true", "update": "true", "refresh": "true", "destroy": "true", "insights_scan": "true"},
		},
	}
	for _, c := range change {
		c(&ws)
	}
	_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
	w.must(err)
}

func (w *world) submit(workspace string, op workflow.Operation) api.Workflow {
	w.t.Helper()
	in := api.Submit{Workspace: workspace, Operation: op}
	if op == "" {
		in.Type = workflow.InsightsScan
	}
	wf, err := w.plane.Submit(w.ctx(), w.admin, "", in)
	w.must(err)
	return wf
}

func (w *world) claim(n int) []api.Job {
	w.t.Helper()
	out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: n})
	w.must(err)
	return out.Jobs
}

// claimOne claims exactly one job.
func (w *world) claimOne() api.Job {
	w.t.Helper()
	jobs := w.claim(10)
	if len(jobs) != 1 {
		w.t.Fatalf("claimed %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

func (w *world) launch(job api.Job, task string) {
	w.t.Helper()
	w.must(w.plane.Launch(w.ctx(), w.pool, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: task}))
}

func run(job api.Job, task string, boot byte) api.Run {
	return api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: task, Boot: strings.Repeat(string(boot), 32)}
}

// started claims and starts the one workflow that can be claimed.
func (w *world) started() (api.Job, api.Run) {
	w.t.Helper()
	job := w.claimOne()
	task := "task-" + job.ID + fmt.Sprint(job.Attempt)
	w.launch(job, task)
	r := run(job, task, 'a')
	_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
	w.must(err)
	return job, r
}

func (w *world) result(job api.Job, r api.Run, outcome workflow.State) error {
	in := api.Result{Outcome: outcome}
	if outcome == workflow.Failed {
		in.Reason = workflow.ReasonStepFailed
	}
	_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: in})
	return err
}

func (w *world) lost(job api.Job, r api.Run, exit int) {
	w.t.Helper()
	w.must(w.plane.Lost(w.ctx(), w.pool, job.ID, api.Lost{Attempt: job.Attempt, Task: r.Task, ExitCode: &exit}))
}

func (w *world) pass() {
	w.t.Helper()
	_, err := w.plane.Pass(w.ctx())
	w.must(err)
}

// polls makes a call of the pool, as its stack does all the time.
func (w *world) polls() {
	w.t.Helper()
	_, err := w.plane.Held(w.ctx(), w.pool, "", "")
	w.must(err)
}

// live lets time pass with a call of the pool and a pass each minute, as while a control plane is running.
func (w *world) live(d time.Duration) {
	w.t.Helper()
	for d > 0 {
		step := min(d, time.Minute)
		w.clock.advance(step)
		w.polls()
		w.pass()
		d -= step
	}
}

func (w *world) show(id string) api.Workflow {
	w.t.Helper()
	wf, err := w.plane.Workflow(w.ctx(), w.admin, id)
	w.must(err)
	return wf
}

func (w *world) is(id string, state workflow.State, reason workflow.Reason) api.Workflow {
	w.t.Helper()
	wf := w.show(id)
	if wf.State != state || wf.Reason != reason {
		w.t.Errorf("workflow is %s (%s), want %s (%s)\n%s", wf.State, wf.Reason, state, reason, w.story(id))
	}
	return wf
}

// story prints a timeline for a failing test.
func (w *world) story(id string) string {
	page, err := w.plane.Timeline(w.ctx(), w.admin, id, "", 0)
	w.must(err)
	var b strings.Builder
	for _, e := range page.Items {
		fmt.Fprintf(&b, "  %s %d %-16s %s\n", e.At.Format("15:04:05"), e.Attempt, e.Kind, e.Text)
	}
	return b.String()
}

func wantErr(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error is %v, want %v", err, kind)
	}
}
