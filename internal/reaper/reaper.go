// Package reaper compares the tasks that live with the runs that are wanted, and repairs the differences: it stops
// tasks that are not wanted or have overstayed, and it reports the proven ends of tasks that a run still counts on. A
// pure function, Plan, decides; the rest acts. How silence, a lease or a deadline changes a workflow is decided by
// the control plane alone.
//
// # Consistency model
//
// Control plane and launcher are asked one after the other, so a snapshot is never of one moment.
// Candidates for deletion are listed first: tasks before jobs for unwanted tasks, jobs before tasks for lost ones. A
// suspicion is believed only after a second look in a later pass, and never against a fresh heartbeat. The suspicions
// are kept in memory; a restart costs a pass. A process that does not live from one pass to the next makes a Sweep,
// which takes the second look itself. Every action names one task by a reference that is never reused, and may be
// repeated, be late, or be done by two at once. A run whose task cannot be proven to have ended is left to the
// control plane's clock.
package reaper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Upstream knows the wanted runs and takes reports of ends.
type Upstream interface {
	Held(ctx context.Context, instance, cursor string) (api.Page[api.JobState], error)
	States(ctx context.Context, in api.StatesQuery) (api.States, error)
	Lost(ctx context.Context, id string, in api.Lost) error
}

// Launcher knows the tasks and stops them.
type Launcher interface {
	List(ctx context.Context) ([]launcher.Task, error)
	Describe(ctx context.Context, refs ...string) ([]launcher.Task, error)
	Stop(ctx context.Context, ref, why string) error
}

// Config says how a reaper works.
type Config struct {
	// Instance is the claimant of the jobs of the launcher's tasks; empty means the whole pool. Several
	// agents of one pool must each name their own, because none knows the tasks of the others.
	Instance string
	Policy   Policy
	DryRun   bool // decide and log, but do nothing
	// LastHeartbeat gives a task's last heartbeat, if a relay saw it; nil means that there is no relay.
	LastHeartbeat func(job string, attempt int, task string) (time.Time, bool)
	// Acknowledged is called with each task whose end need not be reported any more: the control plane has taken the
	// report, or no longer counts on the task. Nil means no call.
	Acknowledged func(t launcher.Task)
	Interval     time.Duration // between two passes of Loop; 0 means 30 s
	Now          func() time.Time
	Log          *slog.Logger // nil means no log
}

// Bounds of a pass.
const (
	maxPages   = 1000             // of Held; a longer list is an error
	perQuery   = 100              // jobs in one States, references in one Describe
	retryFirst = time.Second      // before the second try of a report
	maxRetry   = 15 * time.Second // between two tries
	retryTime  = 2 * time.Minute  // after which a report is left to the next pass
)

// Reaper makes passes.
type Reaper struct {
	upstream Upstream
	launcher Launcher
	cfg      Config

	mu        sync.Mutex
	suspected map[string]time.Time
	reported  map[string]time.Time
	pruned    time.Time // when old reports were last forgotten
}

// New returns a reaper.
func New(upstream Upstream, l Launcher, cfg Config) *Reaper {
	cfg.Interval = cmp.Or(cfg.Interval, 30*time.Second)
	if cfg.LastHeartbeat == nil {
		cfg.LastHeartbeat = func(string, int, string) (time.Time, bool) { return time.Time{}, false }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Acknowledged == nil || cfg.DryRun {
		cfg.Acknowledged = func(launcher.Task) {}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Reaper{upstream: upstream, launcher: l, cfg: cfg, suspected: map[string]time.Time{}, reported: map[string]time.Time{}}
}

// Pass looks at the world once and repairs it. If a part of the world cannot be seen, it does nothing and returns an
// error.
func (r *Reaper) Pass(ctx context.Context) (Outcome, error) {
	s, err := r.look(ctx)
	if err != nil {
		// A suspicion needs passes without a break between them.
		r.remember(nil)
		return Outcome{}, err
	}
	out := Plan(s, r.cfg.Now(), r.cfg.Policy)
	r.remember(out.Suspected)
	for _, t := range out.Acknowledged {
		r.cfg.Acknowledged(t)
	}
	for _, why := range out.Refused {
		r.cfg.Log.Error("snapshot not believed", "reason", why)
	}
	for _, a := range out.Spared {
		r.cfg.Log.Debug("task spared", "job_id", a.Task.Workflow, "attempt", a.Task.Attempt, "task", a.Task.Ref, "reason", a.Why)
	}
	if out.Deferred > 0 {
		r.cfg.Log.Warn("actions left to the next pass", "deferred", out.Deferred)
	}
	return out, r.Execute(ctx, out.Actions)
}

// Sweep is a pass for a process that does not live from one to the next, such as a function: it takes a second look
// at new suspicions, Policy.ConfirmFor later. It does not wait if nothing looks wrong. If ctx ends before the second
// look could, nothing is done, and the next sweep begins again. The outcome is that of the last look, with the
// actions of both.
func (r *Reaper) Sweep(ctx context.Context) (Outcome, error) {
	first, err := r.Pass(ctx)
	rest := unconfirmed(first.Suspected, r.cfg.Now(), r.cfg.Policy.withDefaults().ConfirmFor)
	if rest <= 0 {
		return first, err
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < rest+lookTime {
		r.cfg.Log.Warn("no time for a second look; the next sweep begins again", "wait", rest)
		return first, err
	}
	r.cfg.Log.Info("something looks wrong; looking again", "suspicions", len(first.Suspected), "wait", rest)
	if ended := wait.For(ctx, rest); ended != nil {
		return first, errors.Join(err, ended)
	}
	second, again := r.Pass(ctx)
	second.Actions = append(first.Actions, second.Actions...)
	return second, errors.Join(err, again)
}

// lookTime is how long a second look may take; if less time remains, there is none.
const lookTime = 10 * time.Second

// unconfirmed says how long it takes until every suspicion is old enough to act on: a pure function.
func unconfirmed(suspected map[string]time.Time, now time.Time, confirmFor time.Duration) (wait time.Duration) {
	for _, since := range suspected {
		wait = max(wait, since.Add(confirmFor).Sub(now))
	}
	return wait
}

func (r *Reaper) remember(suspected map[string]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.suspected = suspected
}

// look takes a snapshot, in the order that Snapshot asks for.
func (r *Reaper) look(ctx context.Context) (s Snapshot, err error) {
	s.Begun = r.cfg.Now()
	if s.Before, err = r.launcher.List(ctx); err != nil {
		return s, fmt.Errorf("list tasks: %w", err)
	}
	if s.Jobs, err = r.jobs(ctx, s.Before); err != nil {
		return s, err
	}
	if s.After, err = r.launcher.List(ctx); err != nil {
		return s, fmt.Errorf("list tasks again: %w", err)
	}
	s.Asked, s.Described = map[string]bool{}, map[string]launcher.Task{}
	for batch := range slices.Chunk(Suspects(s), perQuery) {
		tasks, err := r.launcher.Describe(ctx, batch...)
		if err != nil {
			return s, fmt.Errorf("describe tasks: %w", err)
		}
		for _, ref := range batch {
			s.Asked[ref] = true
		}
		maps.Copy(s.Described, index(tasks))
	}
	s.Heartbeats = map[string]time.Time{}
	addHeartbeat := func(job string, attempt int, ref string) {
		if at, ok := r.cfg.LastHeartbeat(job, attempt, ref); ok {
			s.Heartbeats[ref] = at
		}
	}
	for _, t := range s.Before {
		addHeartbeat(t.Workflow, t.Attempt, t.Ref)
	}
	now := r.cfg.Now()
	for _, job := range s.Jobs {
		addHeartbeat(job.ID, job.Attempt, job.Task)
		// A call that the control plane itself took counts too, also if the relay saw none.
		if job.Active && job.Started && job.Task != "" && job.SilentSeconds > 0 {
			if at := now.Add(-api.Seconds(job.SilentSeconds)); at.After(s.Heartbeats[job.Task]) {
				s.Heartbeats[job.Task] = at
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Suspected, s.Reported = maps.Clone(r.suspected), maps.Clone(r.reported)
	return s, nil
}

// jobs asks for all active jobs, and for the other jobs that living tasks name. A task that has ended
// matters only to an active job.
func (r *Reaper) jobs(ctx context.Context, tasks []launcher.Task) (map[string]api.JobState, error) {
	jobs := map[string]api.JobState{}
	cursor := ""
	for page := 0; ; page++ {
		if page == maxPages {
			return nil, fmt.Errorf("list active jobs: no end after %d pages", maxPages)
		}
		held, err := r.upstream.Held(ctx, r.cfg.Instance, cursor)
		if err != nil {
			return nil, fmt.Errorf("list active jobs: %w", err)
		}
		for _, job := range held.Items {
			jobs[job.ID] = job
		}
		if cursor = held.Next; cursor == "" {
			break
		}
	}
	var ask []string
	for _, t := range tasks {
		if _, known := jobs[t.Workflow]; !known && t.Workflow != "" && t.Phase != launcher.Stopped {
			ask = append(ask, t.Workflow)
		}
	}
	slices.Sort(ask)
	for batch := range slices.Chunk(slices.Compact(ask), perQuery) {
		states, err := r.upstream.States(ctx, api.StatesQuery{IDs: batch})
		if err != nil {
			return nil, fmt.Errorf("ask for the jobs of tasks: %w", err)
		}
		// A job that is not in the answer cannot be read: its task is left alone.
		for _, job := range states.Jobs {
			jobs[job.ID] = job
		}
	}
	return jobs, nil
}

// Execute takes the actions. A failed one is left to the next pass; the others are taken.
func (r *Reaper) Execute(ctx context.Context, actions []Action) error {
	var errs []error
	for _, a := range actions {
		log := r.cfg.Log.With("job_id", a.Task.Workflow, "attempt", a.Task.Attempt, "task", a.Task.Ref, "reason", a.Why)
		if r.cfg.DryRun {
			log.Info("action not taken in a dry run", "action", string(a.Kind))
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		var err error
		switch a.Kind {
		case Stop:
			err = r.launcher.Stop(ctx, a.Task.Ref, a.Why)
			if errors.Is(err, launcher.ErrNotFound) {
				err = nil // ended meanwhile
			}
		case Report:
			err = r.report(ctx, a.Task)
		default:
			err = fmt.Errorf("unknown action %q", a.Kind)
		}
		if err != nil {
			log.Warn("action failed", "action", string(a.Kind), "err", err)
			errs = append(errs, fmt.Errorf("%s task %s: %w", a.Kind, a.Task.Ref, err))
			continue
		}
		log.Info("action taken", "action", string(a.Kind))
	}
	return errors.Join(errs...)
}

// report tells the control plane of an end, once.
func (r *Reaper) report(ctx context.Context, t launcher.Task) error {
	err := r.upstream.Lost(ctx, t.Workflow, api.Lost{Attempt: t.Attempt, Task: t.Ref, ExitCode: t.ExitCode, Reason: t.Reason, Text: api.ReportText(t.Text)})
	if err != nil && !moot(err) {
		return err
	}
	r.cfg.Acknowledged(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	now, repeat := r.cfg.Now(), r.cfg.Policy.withDefaults().Repeat
	if now.Sub(r.pruned).Abs() >= repeat {
		r.pruned = now
		maps.DeleteFunc(r.reported, func(_ string, at time.Time) bool { return now.Sub(at) >= repeat })
	}
	r.reported[t.Ref] = now
	return nil
}

// moot reports whether the control plane will never take a report.
func moot(err error) bool {
	return errors.Is(err, workflow.ErrNotFound) || errors.Is(err, workflow.ErrConflict) || errors.Is(err, workflow.ErrOver)
}

// Ended reports once that a task has ended, as a launcher or one of its events says. An error means that the control
// plane did not take the report: call it again, or a later pass reports the end. A call twice, late or out of order
// does no harm. A task that has not ended, or that belongs to no job, is ignored.
func (r *Reaper) Ended(ctx context.Context, t launcher.Task) error {
	log := r.cfg.Log.With("job_id", t.Workflow, "attempt", t.Attempt, "task", t.Ref)
	if t.Phase != launcher.Stopped || t.Workflow == "" {
		log.Debug("not the end of a job's task", "phase", string(t.Phase))
		return nil
	}
	if r.cfg.DryRun {
		log.Info("action not taken in a dry run", "action", string(Report))
		return nil
	}
	if err := r.report(ctx, t); err != nil {
		return fmt.Errorf("report the end of task %s: %w", t.Ref, err)
	}
	log.Info("task end reported", "unstarted", t.Unstarted, "text", t.Text) // an alarm reads this line
	return nil
}

// Stopped is Ended for a caller that gets each event only once: it repeats the report for some time while the control
// plane does not take it; after that, a later pass reports the end.
func (r *Reaper) Stopped(ctx context.Context, t launcher.Task) {
	log := r.cfg.Log.With("job_id", t.Workflow, "attempt", t.Attempt, "task", t.Ref)
	if t.Phase != launcher.Stopped || t.Workflow == "" {
		log.Warn("stop event not understood", "phase", string(t.Phase))
		return
	}
	giveUp := r.cfg.Now().Add(retryTime)
	for pause := retryFirst; ; pause = min(2*pause, maxRetry) {
		err := r.Ended(ctx, t)
		if err == nil {
			return
		}
		pause = max(pause, min(api.RetryAfter(err), maxRetry))
		if ctx.Err() != nil || r.cfg.Now().Add(pause).After(giveUp) {
			log.Warn("task end not reported; a later pass reports it", "err", err)
			return
		}
		log.Debug("task end not taken yet", "err", err)
		_ = wait.For(ctx, pause)
	}
}

// Loop makes a pass now and then until ctx ends, and returns nil then.
func (r *Reaper) Loop(ctx context.Context) error {
	var complained string
	for ctx.Err() == nil {
		out, err := r.Pass(ctx) // whose error is logged; the next pass is the retry
		level, trouble := slog.LevelDebug, ""
		if err != nil && ctx.Err() == nil {
			trouble = api.Said(err)
		}
		if trouble != "" && trouble != complained {
			level = slog.LevelWarn
		} else if len(out.Actions) > 0 {
			level = slog.LevelInfo
		}
		complained = trouble
		r.cfg.Log.Log(ctx, level, "sweep ended", "actions", len(out.Actions), "spared", len(out.Spared),
			"deferred", out.Deferred, "refused", len(out.Refused), "err", err)
		_ = wait.For(ctx, r.cfg.Interval)
	}
	return nil
}
