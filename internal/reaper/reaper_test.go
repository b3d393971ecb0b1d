package reaper_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var _ reaper.Launcher = launcher.Launcher(nil)

// place is a control plane and a launcher. It writes down every call.
type place struct {
	mu     sync.Mutex
	jobs   []api.JobState
	pages  int // jobs in one page; 0 means all
	tasks  map[string]*launcher.Task
	hidden map[string]bool // tasks that List leaves out
	calls  []string
	fail   map[string]error // by call
	lost   []api.Lost
	log    strings.Builder
}

func (p *place) call(format string, args ...any) error {
	c := fmt.Sprintf(format, args...)
	p.calls = append(p.calls, c)
	return p.fail[strings.Fields(c)[0]]
}

func (p *place) Held(_ context.Context, instance, cursor string) (api.Page[api.JobState], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.call("held %s%s", instance, cursor); err != nil {
		return api.Page[api.JobState]{}, err
	}
	var active []api.JobState
	for _, j := range p.jobs {
		if j.Active {
			active = append(active, j)
		}
	}
	from := 0
	_, _ = fmt.Sscan(cursor, &from)
	to := len(active)
	if p.pages > 0 {
		to = min(to, from+p.pages)
	}
	out := api.Page[api.JobState]{Items: active[from:to]}
	if to < len(active) {
		out.Next = fmt.Sprint(to)
	}
	return out, nil
}

func (p *place) States(_ context.Context, in api.StatesQuery) (api.States, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.call("states %s", strings.Join(in.IDs, ",")); err != nil {
		return api.States{}, err
	}
	var out api.States
	for _, id := range in.IDs {
		s := api.JobState{ID: id}
		for _, j := range p.jobs {
			if j.ID == id {
				s = j
			}
		}
		out.Jobs = append(out.Jobs, s)
	}
	return out, nil
}

func (p *place) Lost(_ context.Context, id string, in api.Lost) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.call("lost %s %s", id, in.Task); err != nil {
		return err
	}
	p.lost = append(p.lost, in)
	for i := range p.jobs {
		if p.jobs[i].ID == id && p.jobs[i].Task == in.Task {
			p.jobs[i].Active, p.jobs[i].State = false, workflow.Failed
		}
	}
	return nil
}

func (p *place) List(context.Context) ([]launcher.Task, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.call("list"); err != nil {
		return nil, err
	}
	var out []launcher.Task
	for ref, t := range p.tasks {
		if !p.hidden[ref] {
			out = append(out, *t)
		}
	}
	return out, nil
}

func (p *place) Describe(_ context.Context, refs ...string) ([]launcher.Task, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.call("describe %s", strings.Join(refs, ",")); err != nil {
		return nil, err
	}
	var out []launcher.Task
	for _, ref := range refs {
		if t, ok := p.tasks[ref]; ok {
			out = append(out, *t)
		}
	}
	return out, nil
}

func (p *place) Stop(_ context.Context, ref, why string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.call("stop %s", ref); err != nil {
		return err
	}
	if why == "" {
		return errors.New("no reason")
	}
	t, ok := p.tasks[ref]
	if !ok {
		return launcher.ErrNotFound
	}
	t.Phase = launcher.Stopped
	return nil
}

func (p *place) reaper(cfg reaper.Config) *reaper.Reaper {
	cfg.Log = slog.New(slog.NewTextHandler(&p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return reaper.New(p, p, cfg)
}

func (p *place) took() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []string{}
	for _, c := range p.calls {
		if strings.HasPrefix(c, "stop") || strings.HasPrefix(c, "lost") {
			out = append(out, c)
		}
	}
	return out
}

func ptr(t launcher.Task) *launcher.Task { return &t }

func old(t *launcher.Task) { t.CreatedAt = time.Now().Add(-time.Hour) }

// Habit 10: candidates for deletion are listed first, the second witness is asked last.
func TestPass_ListsDeletionCandidatesFirst(t *testing.T) {
	p := &place{
		jobs:  []api.JobState{running("gone"), {ID: "b", Known: true, State: workflow.Failed}},
		tasks: map[string]*launcher.Task{"t": ptr(task("t", func(t *launcher.Task) { t.Workflow = "b" }))},
	}
	if _, err := p.reaper(reaper.Config{Instance: "i"}).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"list", "held i", "states b", "list", "describe gone"}, p.calls); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

func TestLoop_StopsAnOrphanInTheSecondLookAndReportsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{jobs: []api.JobState{over(workflow.Cancelled)}, tasks: map[string]*launcher.Task{"t": ptr(task("t", old))}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := p.reaper(reaper.Config{}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"stop t"}, p.took()); d != "" {
			t.Errorf("actions (-want +got):\n%s", d)
		}
	})
}

func TestLoop_FinishesARunWhoseStopEventWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := 137
		p := &place{jobs: []api.JobState{running("t")}, tasks: map[string]*launcher.Task{"t": ptr(task("t", stopped, func(t *launcher.Task) {
			t.ExitCode, t.Text = &code, "killed"
		}))}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := p.reaper(reaper.Config{}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]api.Lost{{Attempt: 1, Task: "t", ExitCode: &code, Text: "killed"}}, p.lost); d != "" {
			t.Errorf("reports (-want +got):\n%s", d)
		}
	})
}

// Lesson 18: jobs beyond the first page are active too.
func TestPass_ReadsEveryPage(t *testing.T) {
	p := &place{pages: 2, tasks: map[string]*launcher.Task{}}
	for i := range 7 {
		ref := fmt.Sprintf("t%d", i)
		j := running(ref)
		j.ID = fmt.Sprintf("wf%d", i)
		p.jobs = append(p.jobs, j)
		p.tasks[ref] = ptr(task(ref, func(t *launcher.Task) { t.Workflow = j.ID }))
	}
	out, err := p.reaper(reaper.Config{}).Pass(t.Context())
	if err != nil || len(out.Spared) != 0 || len(out.Actions) != 0 {
		t.Errorf("%+v, %v: want all seven wanted", out, err)
	}
	if n := strings.Count(strings.Join(p.calls, " "), "held"); n != 4 {
		t.Errorf("%d pages read, want 4", n)
	}
	for _, c := range p.calls {
		if strings.HasPrefix(c, "states") {
			t.Errorf("asked for single jobs: %s", c)
		}
	}
}

func TestPass_DoesNothingWhenAPartOfTheWorldIsNotSeen(t *testing.T) {
	for _, part := range []string{"list", "held", "states", "describe"} {
		p := &place{
			jobs:  []api.JobState{over(workflow.Failed), func() api.JobState { j := running("gone"); j.ID = "b"; return j }()},
			tasks: map[string]*launcher.Task{"t": ptr(task("t"))}, fail: map[string]error{},
		}
		r := p.reaper(reaper.Config{Now: func() time.Time { return now }, Policy: reaper.Policy{ConfirmFor: 1, AbsenceProves: 1}})
		if _, err := r.Pass(t.Context()); err != nil { // it suspects
			t.Fatal(err)
		}
		p.fail[part] = errors.New("away")
		if _, err := r.Pass(t.Context()); err == nil {
			t.Errorf("%s: want an error", part)
		}
		if got := p.took(); len(got) != 0 {
			t.Errorf("%s: acted on a part of the world: %v", part, got)
		}
	}
}

func TestPass_OneFailedActionDoesNotKeepTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := over(workflow.Failed), running("t2")
		a.ID, b.ID = "a", "b"
		p := &place{jobs: []api.JobState{a, b}, fail: map[string]error{"lost": workflow.ErrBusy}, tasks: map[string]*launcher.Task{
			"t":  ptr(task("t", old, func(t *launcher.Task) { t.Workflow = "a" })),
			"t2": ptr(task("t2", stopped, old, func(t *launcher.Task) { t.Workflow = "b" })),
		}}
		r := p.reaper(reaper.Config{})
		for range 2 {
			if _, err := r.Pass(t.Context()); !errors.Is(err, workflow.ErrBusy) {
				t.Errorf("pass: %v, want the failed action's error", err)
			}
			<-time.After(2 * time.Minute)
		}
		if d := cmp.Diff([]string{"lost b t2", "lost b t2", "stop t"}, p.took()); d != "" {
			t.Errorf("actions (-want +got):\n%s", d)
		}
	})
}

func TestPass_ADryRunOnlySaysWhatItWouldDo(t *testing.T) {
	p := &place{jobs: []api.JobState{running("t")}, tasks: map[string]*launcher.Task{"t": ptr(task("t", stopped))}}
	r := p.reaper(reaper.Config{DryRun: true})
	out, err := r.Pass(t.Context())
	r.Stopped(t.Context(), task("t", stopped))
	if err != nil || len(out.Actions) != 1 || len(p.took()) != 0 {
		t.Errorf("planned %v, took %v, %v", did(out), p.took(), err)
	}
	if !strings.Contains(p.log.String(), "dry run") {
		t.Errorf("log:\n%s", p.log.String())
	}
}

func TestPass_SparesWhatTheRelayHears(t *testing.T) {
	p := &place{jobs: []api.JobState{over(workflow.Failed)}, tasks: map[string]*launcher.Task{"t": ptr(task("t"))}}
	at := now
	r := p.reaper(reaper.Config{Now: func() time.Time { return at }, LastHeartbeat: func(job string, attempt int, ref string) (time.Time, bool) {
		return at, job == "wf" && attempt == 1 && ref == "t"
	}})
	for range 5 {
		if _, err := r.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Minute)
	}
	if got := p.took(); len(got) != 0 {
		t.Errorf("stopped a task whose heartbeats are taken: %v", got)
	}
}

func TestStopped_RepeatsUntilTheControlPlaneTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{fail: map[string]error{"lost": workflow.ErrBusy}}
		time.AfterFunc(40*time.Second, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.fail = nil
		})
		code := 1
		p.reaper(reaper.Config{}).Stopped(t.Context(), task("t", stopped, func(t *launcher.Task) {
			t.ExitCode, t.Text = &code, strings.Repeat("ö", 600)
		}))
		if len(p.lost) != 1 || *p.lost[0].ExitCode != 1 || len(p.lost[0].Text) != 1000 || p.lost[0].Attempt != 1 {
			t.Errorf("reports %+v: want one that fits", p.lost)
		}
	})
}

func TestStopped_LeavesTheRestToTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{fail: map[string]error{"lost": workflow.ErrBusy}}
		begun := time.Now()
		p.reaper(reaper.Config{}).Stopped(t.Context(), task("t", stopped))
		if took := time.Since(begun); took > 3*time.Minute {
			t.Errorf("one event kept the others waiting for %s", took)
		}
		if n := len(p.calls); n < 5 || n > 30 {
			t.Errorf("%d tries", n)
		}
	})
}

func TestStopped_AnEndThatNobodyWaitsForIsQuiet(t *testing.T) {
	for _, err := range []error{workflow.ErrNotFound, workflow.ErrConflict, workflow.ErrOver} {
		p := &place{fail: map[string]error{"lost": err}}
		p.reaper(reaper.Config{}).Stopped(t.Context(), task("t", stopped))
		if len(p.calls) != 1 || strings.Contains(p.log.String(), "WARN") {
			t.Errorf("%v: %d tries, log:\n%s", err, len(p.calls), p.log.String())
		}
	}
}

// Events that do not say that a task ended are not taken for it.
func TestStopped_TakesOnlyEndsForEnds(t *testing.T) {
	p := &place{}
	r := p.reaper(reaper.Config{})
	r.Stopped(t.Context(), task("t"))
	r.Stopped(t.Context(), task("t", stopped, func(t *launcher.Task) { t.Workflow = "" }))
	if len(p.calls) != 0 {
		t.Errorf("calls %v", p.calls)
	}
}

func TestStopped_ASweepDoesNotSayItAgain(t *testing.T) {
	p := &place{jobs: []api.JobState{running("t")}, tasks: map[string]*launcher.Task{"t": ptr(task("t", stopped))}}
	r := p.reaper(reaper.Config{})
	r.Stopped(t.Context(), task("t", stopped))
	p.jobs[0] = running("t") // the result is still on its way
	if _, err := r.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.took(); len(got) != 1 {
		t.Errorf("actions %v, want one report", got)
	}
}

func TestLoop_SaysOnceThatTheControlPlaneIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{fail: map[string]error{"held": errors.New("away")}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.reaper(reaper.Config{}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(p.log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	})
}
