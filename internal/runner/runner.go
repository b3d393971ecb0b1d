// Package runner runs inside a task. It asks for the start of one run, executes its spec, and hands over one result.
// It launches no task, does not retry an engine and keeps no state.
//
// # Consistency model
//
// The runner does nothing before start is granted to this boot. When the relay says that the run is over,
// it kills the engine's group at once and reports nothing more. If the relay is unavailable, the run goes
// on: heartbeats are tried at each tick, steps and log lines are kept, and the result is repeated until it
// is taken. The result is sent only when no process of the engine remains. Only the runner keeps the deadline, on a
// clock that goes on while the machine sleeps.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/runner/logstream"
	"github.com/dayfly-dev/dayfly/internal/runner/mask"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	// DefaultGrace is the time from an engine's interrupt to its end. ECS gives a task 120 s.
	DefaultGrace = 90 * time.Second

	// killMargin is how long before the end of the deadline's grace the engine is killed. No process of it may remain
	// at the end, when the next run gets the workspace's slot.
	killMargin = 15 * time.Second
	// flushBefore bounds the sending of logs and steps before the result is tried.
	flushBefore = 15 * time.Second
	// flushAfter bounds it after the result was taken.
	flushAfter = 5 * time.Minute
	// reportStopped bounds the handover of the result by a runner that was told to stop.
	reportStopped = 60 * time.Second

	firstRetry = 200 * time.Millisecond
	maxRetry   = 15 * time.Second
)

// Relay takes the reports of a runner; *client.Runner is one.
type Relay interface {
	Start(ctx context.Context) (api.Started, error)
	Spec(ctx context.Context) (api.Spec, error)
	Heartbeat(ctx context.Context, in api.Heartbeat) (api.Control, error)
	Steps(ctx context.Context, in api.Steps) (api.Control, error)
	Logs(ctx context.Context, in api.Logs) (api.LogsTaken, error)
	HandOver(ctx context.Context, in api.Handover) (api.HandedOver, error)
	WhoseStates(ctx context.Context, in api.StateRefs) (api.WhoseStates, error)
	Artifacts(ctx context.Context, in api.NewArtifacts) (api.ArtifactsTaken, error)
	Input(ctx context.Context) (api.Input, error)
	InputOf(ctx context.Context, n int) (api.Input, error)
	Upload(ctx context.Context, by api.Transfer, name string, size int64, body io.ReadSeeker) error
	Download(ctx context.Context, by api.Transfer, to io.Writer, limit int64) error
}

// Config is the job of a runner and its settings.
type Config struct {
	Run     api.Run          // required
	Relay   Relay            // required
	Secrets secrets.Resolver // nil means that no reference resolves
	Cloud   Cloud            // the task's identity in a cloud; nil means that it has none
	Objects source.Objects   // opens archives in buckets for runs without a role; nil means none

	WorkDir     string    // the run's own directory; empty means a temporary one, removed at the end
	Spool       string    // name of a file of WorkDir that remains if not all of the log was taken; empty means none
	Unsaved     string    // where the machine keeps task.UnsavedName of WorkDir after the task, in words; empty: nowhere
	StateDir    string    // the workspace's own directory for its engine's state; empty means none
	StateOlds   []string  // other such directories, named as their states, which are only looked at
	StateStore  string    // id of the root that these lie below
	Bucket      api.State // bucket, region and key where the state of a workspace is kept that names no place; none means nowhere
	SourceDir   string    // where the run's directory source is; removed after use if it lies in WorkDir; empty means below SourceRoots
	SourceRoots []string  // a directory source must be below one of them; none refuses all
	EnginePath  []string  // directories in which engines are looked for first
	Path        string    // the engine's PATH after those; empty means DefaultPath
	// Tools has the engines that are not installed; nil means none. Without a directory, downloads are removed after
	// the run.
	Tools *toolcache.Cache
	// Providers is the cache of providers, which the run reads and adds to; empty means none. ProviderMirror is the
	// https address of a network mirror of them, with a slash at its end; empty means none.
	Providers, ProviderMirror string
	Forward                   []string // variables for the engine, KEY=VALUE; masked, unless they are public
	Hide                      []string // values to mask beside those of the spec's secrets and of Forward

	PolicyProgram string // path of the program that evaluates policies; empty means the one beside this program, else in PATH

	Hooks []string // SHA-256 of the hooks that may run, see api.Hook.Allowed; none means every hook

	Processes int  // limit of processes and threads of the task's own cgroup; 0 means none
	Alone     bool // nothing but this run is in its cgroup, as in a container

	DiskBytes int64         // limit of disk for WorkDir, in bytes; 0 means none
	DiskEvery time.Duration // between two looks at that; 0 means 10 s

	Notice string // first line of the log; empty means none

	Engine  *child.User   // user of the engine; nil means the runner's own
	Grace   time.Duration // between the engine's interrupt and its end; 0 means DefaultGrace
	Orphans bool          // every child that this process has after the engine's end is the engine's, and is ended
	Log     *slog.Logger  // nil means no log
}

// stop is why a run ends before its engine did.
type stop struct {
	outcome workflow.State
	reason  workflow.Reason
	text    string
	atOnce  bool // without a grace
}

func (s *stop) Error() string { return s.text }

var (
	stopCancelled   = &stop{outcome: workflow.Cancelled, reason: workflow.ReasonCancelled, text: "the workflow was cancelled"}
	stopDeadline    = &stop{outcome: workflow.Failed, reason: workflow.ReasonDeadline, text: "the workflow ran longer than its max_runtime"}
	stopInterrupted = &stop{outcome: workflow.Failed, reason: workflow.ReasonInterrupted, text: "the task of the workflow was told to stop"}
)

// run is one run.
type run struct {
	cfg   Config
	log   *slog.Logger
	clock func() time.Duration // goes on while the machine sleeps

	end  context.CancelCauseFunc // of the context of the engine, with a *stop
	lose context.CancelCauseFunc // of the context of the run, when it is not ours or not any more
	lost chan struct{}           // closed with that

	given *api.Spec // by the answer to start; nil means that it could not be read there, and is to be asked for

	hidden       mask.Set
	logs         *logstream.Stream
	steps        *steps
	own          stream // the runner's own lines
	dirs         dirs
	role         *assumedRole   // the run's role; nil means that it has none
	providers    providerUpdate // for the cache of providers
	spoilt       bool           // the cache of packages may be why an installer failed
	processLimit processLimit

	exhausted atomic.Pointer[stop] // resource whose exhaustion made a command fail

	kept      int // artifacts that were placed
	keptBytes int64

	mu            sync.Mutex
	deadline      time.Duration // on clock; 0 means not known yet
	firstDeadline time.Duration // the first deadline: an outage stops the control plane's clock, but not this one
	killBy        time.Duration // on clock; 0 means that nothing is to be killed yet
	interval      time.Duration // between signs of life
	hold          time.Duration // how long the next heartbeat may be held
	answered      time.Duration // on clock: when the last answered call was sent
	gather        time.Duration // how long lines of the log are gathered; 0 means as long as is usual
	step          string        // the step that the run is in

	cancelled atomic.Bool // cancellation was requested
	gone      atomic.Bool // lost is closed
	reporting atomic.Bool // no process of the engine remains

	processes sync.Mutex // held while one is started, and while orphans are reaped
	pids      map[int]bool
}

// RunJob runs one job. It returns nil when the result was handed over, or when the run does not belong to
// this boot. After an error, only the end of the task tells the control plane. When ctx ends, RunJob
// interrupts the engine and reports the run as interrupted.
func RunJob(ctx context.Context, cfg Config) (err error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)).With("job_id", cfg.Run.Workflow, "attempt", cfg.Run.Attempt, "task", cfg.Run.Task)
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	cfg.Path = cmp.Or(cfg.Path, DefaultPath)
	cfg.DiskEvery = cmp.Or(cfg.DiskEvery, diskEvery)
	r := &run{
		cfg: cfg, log: cfg.Log, clock: bootClock(), interval: workflow.HeartbeatInterval,
		lost: make(chan struct{}), pids: map[int]bool{}, processLimit: newProcessLimit(cfg.Processes),
	}
	veil := veiled{cfg.Log.Handler(), &r.hidden}
	r.log = slog.New(veil)
	r.cfg.Log = r.log
	defer func() { err = veil.hide(err) }()
	r.answered = r.clock()
	r.hidden.Add(cfg.Hide...)
	for _, v := range cfg.Forward {
		name, value, _ := strings.Cut(v, "=")
		of := secretsOf(name, value)
		r.hidden.Add(of.values...)
		r.log.Debug("variable forwarded", "name", name, "masked", len(of.values) > 0, "reason", of.reason)
	}
	// The end of ctx is a request to stop, which takes time, so the run has its own contexts. held ends when
	// the run is over. life is derived from it and ends when the engine must end.
	held, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	life, end := context.WithCancelCause(held)
	defer end(nil)
	r.lose, r.end = lose, end

	granted, err := r.start(ctx)
	if !granted {
		return err
	}
	r.log.Info("run started")
	if err := r.prepare(); err != nil {
		r.log.Error("no work directory", "err", err)
		r.dirs.broken = err
	}
	defer r.cleanup()
	r.steps = newSteps(r.sendSteps, func() int64 { return r.logs.Next() })
	r.logs = logstream.New(logstream.Config{Send: r.sendLogs, Over: client.RunOver, Dir: r.dirs.work, Name: cfg.Spool, Log: r.log})
	r.logs.SetWait(r.gather)
	r.own = stream{mask.NewWriter(&r.hidden, func(text string, more bool) { r.logs.Say(r.stepName(), text, more) }), r.logs}

	if cfg.Notice != "" {
		r.logf("%s", cfg.Notice)
	}

	background, endBackground := context.WithCancel(held)
	logging, endLogging := context.WithCancel(context.WithoutCancel(ctx)) // a run that is over may still send its log
	var wg sync.WaitGroup
	defer wg.Wait()
	defer endBackground()
	defer endLogging()
	wg.Go(func() { r.heartbeats(background) })
	wg.Go(func() { r.watch(background) })
	wg.Go(func() { r.watchProcessLimit(background) })
	wg.Go(func() { r.watchDisk(background) })
	wg.Go(func() { r.steps.run(background) })
	wg.Go(func() {
		if err := r.logs.Run(logging); err != nil {
			r.log.Warn("log not sent to its end", "err", err)
		}
	})
	if cfg.Orphans {
		wg.Go(func() { r.reap(background) })
	}
	defer context.AfterFunc(ctx, func() { r.stop(stopInterrupted) })()

	result := r.work(life)
	r.endOrphans(held)
	if held.Err() == nil {
		r.keepFiles(held, life)
	}
	r.closeRole()
	r.handOverProviders()
	r.dirs.removeSecrets(r.log)
	if held.Err() != nil {
		r.log.Info("run is over", "err", context.Cause(held))
		last, cancel := context.WithTimeout(logging, flushBefore)
		defer cancel()
		if err := r.logs.Flush(last); err != nil {
			r.log.Warn("log not sent", "err", err)
		}
		return nil
	}
	r.reporting.Store(true)
	return r.report(held, ctx, result)
}

// start asks for the run until it is granted or refused.
func (r *run) start(ctx context.Context) (granted bool, err error) {
	bounded, cancel := context.WithTimeoutCause(ctx, workflow.LaunchWindow, errors.New("no answer within the launch window"))
	defer cancel()
	err = r.persist(bounded, "start", func(ctx context.Context) (api.Control, error) {
		out, err := r.cfg.Relay.Start(ctx)
		r.given = out.Spec
		return out.Control, err
	})
	switch {
	case err == nil:
		return true, nil
	case client.RunOver(err):
		r.log.Info("start refused", "err", err)
		return false, nil
	default:
		return false, fmt.Errorf("start: %w", err)
	}
}

// persist repeats a call until it has a final answer, and acts on that. It also repeats lost races, because
// only this runner reports this run.
func (r *run) persist(ctx context.Context, name string, call func(context.Context) (api.Control, error)) error {
	retry := newBackoff()
	for {
		sent := r.clock()
		control, err := call(ctx)
		switch {
		case err == nil:
			r.observe(sent, control)
			return nil
		case client.RunOver(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !client.Transient(err) && !errors.Is(err, workflow.ErrConflict):
			return err
		}
		pause := max(retry.NextBackOff(), api.RetryAfter(err))
		r.log.Debug("call not answered", "call", name, "retry", pause, "err", err)
		if err := wait.For(ctx, pause); err != nil {
			return err
		}
	}
}

// work executes the spec and returns the result. When it returns, no engine is running.
func (r *run) work(ctx context.Context) (result api.Result) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("runner failed", "panic", p, "stack", string(debug.Stack()))
			result = r.conclude(ctx, engine.Outcome{}, errors.New("the runner itself failed; the log of its task has the cause"))
		}
		// Otherwise the failed step is in the log, if there was room.
		if result.Outcome != workflow.Succeeded && (!r.steps.any() || r.logs.Full()) {
			r.logf("%s (%s): %s", result.Outcome, result.Reason, result.Detail)
		}
		r.own.Flush()
	}()
	outcome, err := r.do(ctx)
	if err != nil && r.processLimit.met() {
		r.stop(r.processLimit.stop) // if it was not checked since
	}
	if err != nil && ctx.Err() == nil {
		if why := r.explain(ctx, err); why != nil {
			r.stop(why)
		}
	}
	return r.conclude(ctx, outcome, err)
}

// conclude makes a result of an outcome, and of why ctx ended if it did.
func (r *run) conclude(ctx context.Context, out engine.Outcome, err error) api.Result {
	// The outcome of a failed engine has only lasting changes. A successful one has all, also if a hook failed.
	result := api.Result{
		Outcome: workflow.Succeeded, Changes: out.Changes, Units: out.Units, Outputs: out.Outputs, OmittedOutputs: out.OmittedOutputs, Inventory: out.Inventory,
		Lock: out.Lock, State: out.State, SensitiveOutputs: out.SensitiveOutputs, Policies: out.Policies, Checks: out.Checks, Truncated: out.Truncated,
	}
	if err == nil {
		result.Plan = out.Plan
		return r.hide(result)
	}
	result.Outcome, result.Reason, result.Detail = workflow.Failed, workflow.ReasonRunnerError, err.Error()
	if f, ok := errors.AsType[*engine.Failure](err); ok {
		result.Reason, result.Detail = f.Reason, f.Detail
		result.Lock = cmp.Or(f.Lock, out.Lock)
	}
	if s, ok := errors.AsType[*stop](context.Cause(ctx)); ok {
		if result.Reason != workflow.ReasonInterrupted && !errors.Is(err, s) {
			result.Detail = s.text + "; " + result.Detail
		}
		result.Outcome, result.Reason = s.outcome, s.reason
	}
	return r.hide(result)
}

// errUnreported means that the relay was not reached for as long as this runner could try.
var errUnreported = errors.New("result not handed over")

// report hands the result over. It sends as much of the log as it can before the result, and the rest after
// it. stopped ends when the task is told to stop.
func (r *run) report(ctx, stopped context.Context, result api.Result) error {
	retained, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	giveUp := func(after time.Duration, why string) *time.Timer {
		return time.AfterFunc(after, func() { cancel(errors.New(why)) })
	}
	defer giveUp(workflow.ReportRetention, "the relay did not take it before the result expired").Stop()
	// A task that was told to stop is killed soon.
	defer context.AfterFunc(stopped, func() { giveUp(reportStopped, "the relay did not take it, and the task was told to stop") })()

	together := r.steps.hold() && r.logs.Hold() // the rest goes with the result, if it is small
	if !together {
		r.steps.release()
		r.flush(retained, flushBefore)
	}
	result.LogEnd = r.logs.Next()
	// If the disk is removed with the task, the relay keeps the rest of the log beside a result that it must keep.
	withTail := together || r.cfg.Spool == ""
	send := func(ctx context.Context) (api.Control, error) {
		in := api.Handover{Result: result}
		var reported func()
		if together {
			in.Steps, reported = r.steps.rest()
		}
		if withTail {
			in.Tail = r.logs.Tail()
		}
		out, err := r.cfg.Relay.HandOver(ctx, in)
		if err == nil && together {
			reported()
			r.logs.Taken(out.Next)
		}
		// If it is to be repeated, steps and lines need not wait for that.
		r.steps.release()
		r.logs.Release()
		return out.Control, err
	}
	err := r.persist(retained, "result", send)
	for _, less := range []func(){
		func() { withTail, together = false, false },
		func() { result = result.Slim() },
		func() {
			if result.Outcome == workflow.Failed { // for a reason that the control plane does not know: the runner may be newer
				result.Reason = workflow.ReasonRunnerError
			}
		},
	} {
		if err == nil || client.RunOver(err) || retained.Err() != nil {
			break
		}
		// The result will never be taken as it is. Only its outcome is essential.
		r.log.Error("result refused; sent again with less", "err", err)
		less()
		err = r.persist(retained, "result", send)
	}
	switch {
	case err == nil:
		r.log.Info("result handed over", "state", result.Outcome, "reason", result.Reason)
		r.flush(retained, flushAfter)
		return nil
	case client.RunOver(err):
		r.log.Info("run is over", "err", err)
		return nil
	case retained.Err() != nil:
		return fmt.Errorf("%w: %w", errUnreported, err)
	default:
		return fmt.Errorf("result refused: %w", err)
	}
}

// flush sends the waiting steps and log lines, for at most this long.
func (r *run) flush(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.steps.flush(ctx); err != nil {
		r.log.Warn("steps not sent", "err", err)
	}
	if err := r.logs.Flush(ctx); err != nil {
		r.log.Warn("log not sent", "err", err)
	}
}
