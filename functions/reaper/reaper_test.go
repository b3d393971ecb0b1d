package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const task = "arn:aws:ecs:us-east-1:123456789012:task/dayfly/0123456789abcdef0123456789abcdef"

func sample(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "events", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// world is the function before a real control plane, with a launcher of the test's.
type world struct {
	t     *testing.T
	f     *function
	plane *controlplane.Plane
	admin controlplane.Principal
	pool  controlplane.Principal
	job   api.Job

	mu      sync.Mutex
	away    bool
	log     strings.Builder
	tasks   []launcher.Task
	stopped []string
}

func (w *world) List(context.Context) ([]launcher.Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.tasks), nil
}

func (w *world) Describe(ctx context.Context, refs ...string) ([]launcher.Task, error) {
	all, _ := w.List(ctx)
	return slices.DeleteFunc(all, func(t launcher.Task) bool { return !slices.Contains(refs, t.Ref) }), nil
}

func (w *world) Stop(_ context.Context, ref, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = append(w.stopped, ref)
	return nil
}

// RoundTrip is the way to the control plane.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	away := w.away
	w.mu.Unlock()
	if away {
		return nil, errors.New("connection refused")
	}
	return client.InMemory(httpapi.New(w.plane, httpapi.Config{})).RoundTrip(r)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// newWorld is one in which a job is claimed and launched as the task of the samples.
func newWorld(t *testing.T, cfg reaper.Config) *world {
	t.Helper()
	w := &world{t: t, plane: controlplane.New(memory.New(), controlplane.Config{})}
	ctx := t.Context()
	token, err := w.plane.Bootstrap(ctx, "default")
	w.must(err)
	w.admin, err = w.plane.Authenticate(ctx, token)
	w.must(err)
	token, err = w.plane.EnsurePoolToken(ctx, "default", "default", "stack")
	w.must(err)
	w.pool, err = w.plane.Authenticate(ctx, token)
	w.must(err)
	for _, name := range []string{"net", "web"} {
		_, _, err = w.plane.PutWorkspace(ctx, w.admin, api.Workspace{
			Name: name, RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Git: &api.GitSource{URL: "https://github.com/example/infra.git"}}, Commands: map[string]string{"update": "true"}},
			State: &api.State{Kind: api.StateSource},
		})
		w.must(err)
	}
	_, err = w.plane.Submit(ctx, w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update})
	w.must(err)
	claimed, err := w.plane.Claim(ctx, w.pool, api.Claim{Instance: "stack", Max: 1})
	w.must(err)
	w.job = claimed.Jobs[0]
	w.must(w.plane.Launch(ctx, w.pool, w.job.ID, api.Launch{Attempt: 1, Kind: api.LaunchAccepted, Task: task}))
	upstream, err := client.New(client.Config{URL: "https://cp.example.com", Token: func() redact.String { return redact.New(token) }, HTTPClient: &http.Client{Transport: w}})
	w.must(err)
	cfg.Log = slog.New(slog.NewJSONHandler(&w.log, nil))
	w.f = &function{log: cfg.Log, reaper: reaper.New(upstream, w, cfg)}
	return w
}

func (w *world) start() {
	w.t.Helper()
	_, err := w.plane.Start(w.t.Context(), w.job.Token, api.Run{Workflow: w.job.ID, Attempt: 1, Task: task, Boot: strings.Repeat("a", 32)}, api.Start{Knows: api.RunnerKnows()})
	w.must(err)
}

// event is a sample about the world's job.
func (w *world) event(name string) []byte {
	w.t.Helper()
	return []byte(strings.ReplaceAll(string(sample(w.t, name)), "wf_0000000000000000", w.job.ID))
}

func (w *world) state() api.Workflow {
	w.t.Helper()
	wf, err := w.plane.Workflow(w.t.Context(), w.admin, w.job.ID)
	w.must(err)
	return wf
}

func TestHandle_RepeatedStopEndsARunWithItsReason(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "stack"})
	w.start()
	for range 3 {
		w.must(w.f.Handle(t.Context(), w.event("ecs-task-stopped")))
	}
	wf := w.state()
	if wf.State != workflow.Failed || wf.Reason != workflow.ReasonOutOfMemory || !strings.Contains(strings.ToLower(wf.Detail), "memory") {
		t.Errorf("workflow is %s (%s): %s", wf.State, wf.Reason, wf.Detail)
	}
	page, err := w.plane.Timeline(t.Context(), w.admin, w.job.ID, "", 0)
	w.must(err)
	told := 0
	for _, e := range page.Items {
		if e.Kind == "task_stopped" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the timeline tells the stop %d times", told)
	}
}

// Lesson 7: no container is listed, and the job must not wait for its lease.
func TestHandle_ATaskThatFailedToStartGivesItsJobBack(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "stack"})
	for range 2 {
		w.must(w.f.Handle(t.Context(), w.event("ecs-task-failed-to-start")))
	}
	if wf := w.state(); wf.State != workflow.Pending {
		t.Errorf("workflow is %s (%s)", wf.State, wf.Reason)
	}
	page, err := w.plane.Timeline(t.Context(), w.admin, w.job.ID, "", 0)
	w.must(err)
	if !slices.ContainsFunc(page.Items, func(e api.Event) bool { return strings.Contains(strings.ToLower(e.Text), "image") }) {
		t.Errorf("nobody is told why: %+v", page.Items)
	}
}

// Events come in any order: one from before the end must not undo it.
func TestHandle_ALateEventOfALivingTaskChangesNothing(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "stack"})
	w.start()
	w.must(w.f.Handle(t.Context(), w.event("ecs-task-stopped")))
	before := w.state()
	running := strings.NewReplacer(`"lastStatus": "STOPPED"`, `"lastStatus": "RUNNING"`, `"desiredStatus": "STOPPED"`, `"desiredStatus": "RUNNING"`, `"version": 6`, `"version": 3`).Replace(string(w.event("ecs-task-stopped")))
	w.must(w.f.Handle(t.Context(), []byte(running)))
	if d := cmp.Diff(before, w.state()); d != "" {
		t.Errorf("changed (-want +got):\n%s", d)
	}
}

// Two minutes' notice is not an end: the runner may still hand over its result.
func TestHandle_ASpotWarningIsNoEnd(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "stack"})
	w.start()
	warning := strings.NewReplacer(`"lastStatus": "STOPPED"`, `"lastStatus": "RUNNING"`, "EssentialContainerExited", "SpotInterruption", `"exitCode": 137,`, "").Replace(string(w.event("ecs-task-stopped")))
	w.must(w.f.Handle(t.Context(), []byte(warning)))
	if wf := w.state(); wf.State != workflow.Running {
		t.Errorf("workflow is %s (%s)", wf.State, wf.Reason)
	}
}

func TestHandle_AnEndThatCannotBeReportedIsAnError(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "stack"})
	w.start()
	ctx, cancel := context.WithTimeout(t.Context(), margin+500*time.Millisecond)
	defer cancel()
	w.setAway(true)
	if err := w.f.Handle(ctx, w.event("ecs-task-stopped")); err == nil {
		t.Error("Lambda is not told to try again")
	}
	w.setAway(false)
	w.must(w.f.Handle(t.Context(), w.event("ecs-task-stopped")))
	if wf := w.state(); wf.State != workflow.Failed {
		t.Errorf("workflow is %s", wf.State)
	}
}

// Lambda would repeat a failed sweep, and then keep it with the dead letters: the next tick comes sooner. On a new stack
// the first ticks fail, until somebody fills its secrets.
func TestHandle_AFailedSweepIsOnlyNotCounted(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "stack"})
	ctx, cancel := context.WithTimeout(t.Context(), margin+500*time.Millisecond)
	defer cancel()
	w.setAway(true)
	w.must(w.f.Handle(ctx, sample(t, "sweep")))
	w.counts("SweepMetric", 0)
	w.setAway(false)
	w.must(w.f.Handle(t.Context(), sample(t, "sweep")))
	w.counts("SweepMetric", 1)
	if !strings.Contains(w.log.String(), "connection refused") {
		t.Errorf("the log does not say why: %s", w.log.String())
	}
}

func TestHandle_TasksThatNeverRanAreCounted(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "stack"})
	w.must(w.f.Handle(t.Context(), w.event("ecs-task-stopped")))
	w.counts("UnstartedMetric", 0)
	w.must(w.f.Handle(t.Context(), w.event("ecs-task-failed-to-start")))
	w.counts("UnstartedMetric", 1)
}

// counts expects that a metric filter of the stack counts so many lines of the log.
func (w *world) counts(filter string, want int) {
	w.t.Helper()
	tmpl, err := templates.Load("../../infra/transformed/pool.json")
	w.must(err)
	got, err := tmpl.Counted(filter, w.log.String())
	if err != nil || got != want {
		w.t.Errorf("%s counts %d lines (%v), want %d: %s", filter, got, err, want, w.log.String())
	}
}

func (w *world) setAway(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

func TestHandle_ASweepFindsTheEndThatNoEventTold(t *testing.T) {
	for _, raw := range [][]byte{sample(t, "sweep"), []byte("{}")} {
		w := newWorld(t, reaper.Config{Instance: "stack"})
		w.start()
		code := 1
		w.tasks = []launcher.Task{{Ref: task, Workflow: w.job.ID, Attempt: 1, Phase: launcher.Stopped, ExitCode: &code, Text: "exited"}}
		w.must(w.f.Handle(t.Context(), raw))
		if wf := w.state(); wf.State != workflow.Failed || wf.Reason != workflow.ReasonTaskStopped {
			t.Errorf("workflow is %s (%s)", wf.State, wf.Reason)
		}
	}
}

func TestHandle_ASweepStopsAnOrphanAtItsSecondLook(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "stack", Policy: reaper.Policy{ConfirmFor: time.Millisecond}})
	_, err := w.plane.Cancel(t.Context(), w.admin, w.job.ID, api.WithReason{})
	w.must(err)
	w.tasks = []launcher.Task{{Ref: task, Workflow: w.job.ID, Attempt: 1, Phase: launcher.Running, CreatedAt: time.Now().Add(-time.Hour)}}
	w.must(w.f.Handle(t.Context(), sample(t, "sweep")))
	if d := cmp.Diff([]string{task}, w.stopped); d != "" {
		t.Errorf("stopped (-want +got):\n%s", d)
	}
}

// The pool's other instances have their tasks elsewhere.
func TestHandle_ASweepSparesJobsOfOtherInstances(t *testing.T) {
	w := newWorld(t, reaper.Config{Instance: "another", Policy: reaper.Policy{ConfirmFor: time.Millisecond, AbsenceProves: time.Nanosecond}})
	w.start()
	w.must(w.f.Handle(t.Context(), sample(t, "sweep")))
	if wf := w.state(); wf.State != workflow.Running {
		t.Errorf("workflow is %s (%s)", wf.State, wf.Reason)
	}
}

func TestDecode_TellsTheEventsApart(t *testing.T) {
	for name, want := range map[string]string{
		"ecs-task-stopped": "stopped", "ecs-task-failed-to-start": "stopped", "sweep": "sweep", "controlplane-pass": "sweep",
		"status-start": "error", "sqs-reports": "error",
	} {
		e, err := decode(sample(t, name))
		got := "error"
		switch {
		case err == nil && e.sweep:
			got = "sweep"
		case err == nil:
			got = string(e.task.Phase)
		}
		if got != want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, want)
		}
		if want == "stopped" && (e.task.Ref != task || e.task.Workflow == "" || e.task.Attempt != 1 || e.task.Text == "" || e.version == 0) {
			t.Errorf("%s: %+v, version %d", name, e.task, e.version)
		}
	}
	for _, raw := range []string{"", "null", "[]", `"x"`, `{"detail-type":"ECS Service Action"}`, `{"detail-type":7}`} {
		if _, err := decode([]byte(raw)); err == nil {
			t.Errorf("%q was taken", raw)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"ecs-task-stopped", "ecs-task-failed-to-start", "sweep"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "events", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := decode(raw)
		if err == nil && !e.sweep && e.task.Ref == "" {
			t.Errorf("%q names no task", raw)
		}
		if !json.Valid(raw) && err == nil {
			t.Errorf("%q was taken", raw)
		}
	})
}

var stack = map[string]string{
	"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "ASIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "session",
	"DAYFLY_SERVICE_URL": "https://cp.example.com", "DAYFLY_POOL_TOKEN_SECRET": "arn:aws:secretsmanager:us-east-1:123456789012:secret:pool",
	"DAYFLY_INSTANCE": "stack", "DAYFLY_CLUSTER": "dayfly", "DAYFLY_TASK_DEFINITION": "dayfly-default-runner:1", "DAYFLY_CONTAINER": "runner",
	"DAYFLY_POOL": "default", "DAYFLY_SUBNETS": "subnet-0123456789abcdef0",
}

func TestBuild_TellsEveryMistakeAtOnce(t *testing.T) {
	_, err := build(func(name string) string {
		if name == "DAYFLY_REAPER_DRY_RUN" {
			return "perhaps"
		}
		return ""
	}, &strings.Builder{})
	if err == nil {
		t.Fatal("an empty environment was taken")
	}
	for name := range stack {
		if name != "AWS_SESSION_TOKEN" && !strings.Contains(err.Error(), name+":") {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
	if !strings.Contains(err.Error(), "DAYFLY_REAPER_DRY_RUN:") {
		t.Errorf("DAYFLY_REAPER_DRY_RUN is not named in: %v", err)
	}
}

func TestBuild_TakesWhatTheStackSets(t *testing.T) {
	f, err := build(func(name string) string { return stack[name] }, &strings.Builder{})
	if err != nil || f == nil {
		t.Fatal(err)
	}
	if _, err := build(func(name string) string {
		if name == "DAYFLY_CLUSTER" {
			return "no cluster"
		}
		return stack[name]
	}, &strings.Builder{}); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("a cluster that is none: %v", err)
	}
}

var (
	_ reaper.Launcher = (*ecs.Launcher)(nil)
	_ reaper.Upstream = (*client.Client)(nil)
)
