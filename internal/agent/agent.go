// Package agent runs the stages of a pool stack (poller, dispatcher, relay, reaper and deliverer) as loops of one
// process, with a launcher. It adds the parts that only loops need: a limit on jobs at once, adoption of the jobs of
// an earlier process of the same instance, and an orderly end.
//
// # Consistency model
//
// The agent owns only the count of its jobs, which is in memory and is corrected from the launcher's list. The
// control plane knows the truth about claims, the launcher about tasks. So the agent may be killed at any
// instruction: the next process of the same instance releases claims that were not launched, or they expire; it
// adopts living tasks and reports those that ended meanwhile; the reaper finds the rest. Of two agents with one instance
// name, the control plane refuses the second while the first is live, and the one that is refused for long ends.
package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/deliverer"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Upstream is the control plane, as the stages call it.
type Upstream interface {
	poller.Upstream
	dispatcher.Upstream
	reaper.Upstream
	deliverer.Upstream
	Tail(ctx context.Context, id string, in api.Tail) (api.TailTaken, error)
}

// Keyring seals tickets for the poller and opens them for the relay.
type Keyring interface {
	poller.Sealer
	relay.Opener
}

// Config configures an agent. The first group is required, except for Transport.
type Config struct {
	Upstream   Upstream
	ControlURL string            // where the relay forwards the calls of runners
	Transport  http.RoundTripper // how it does; nil means http.DefaultTransport
	Launcher   launcher.Launcher // a launcher.Watcher and a launcher.Spooler, if it can be one
	// CloseLauncher ends every task, each with its grace until ctx ends and then by force, or leaves them to the next
	// process. It is called once, when Run ends, while the relay still takes results.
	CloseLauncher func(ctx context.Context) error

	Queue    queue.Queue
	Keyring  Keyring
	Instance string // name of this agent: the same over restarts, and unique

	// Artifacts is the directory of the artifacts of runs. Empty means that runs have none.
	Artifacts string

	// Secrets resolves the references that deliveries name, and decides which may be read. Nil means that the agent
	// performs no deliveries.
	Secrets           secrets.Resolver
	PrivateDeliveries outbound.Private // private addresses that deliveries may call; the zero value is none

	// Admitted is called once, when the control plane has let this process work as its instance. Nil means no call.
	Admitted func() error

	TokenAdvice string // what to do if the pool token is refused; empty means to give the agent another one
	// Waiting is called with the runs that a drain waits for: when it begins, and whenever one has ended. Nil means no
	// call.
	Waiting func(runs []Run)

	// Acknowledged is called with each attempt whose task has ended, once the control plane knows its end. Nil
	// means no call.
	Acknowledged func(job string, attempt int)

	// Lines gets each piece of a job's log that the control plane has taken. It must not block. Nil means no call.
	Lines func(job string, lines []api.LogLine)

	// Mask returns a function that hides secrets in the logs that runners left. It is called for each log. Nil hides
	// nothing.
	Mask func(ctx context.Context) (func(line string) string, error)

	Version     string          // of this agent, shown in the pool's list of runners
	Types       []workflow.Type // workflow types to claim; none means all
	Concurrency int             // jobs at once, from their claim to the end of their task; 0 means DefaultConcurrency
	// RelayListen is the TCP address of the relay; empty means a free port of 127.0.0.1. If tasks outlive the agent, it
	// must name a port.
	RelayListen string
	RelayURL    string      // address at which tasks reach the relay; empty means where it listens
	RelayTLS    *tls.Config // with which it speaks TLS; nil means that it does not
	// RelaySockets is a directory in which each job gets its own Unix socket to the relay, which then listens on
	// nothing else. Empty means that it listens on RelayListen.
	RelaySockets string

	// Placements names the placements that a launch tries, in order; nil means one, "default".
	Placements func(m api.LaunchMessage) []string
	LaunchRate float64 // limit of launches a second; 0 means none

	Providers Providers // the cache that jobs share; nil means that they share none

	PollingInterval    time.Duration // longest pause between claims; 0 means 1 min
	PollingOverride    bool          // the control plane cannot ask for another pause
	StatusLoopInterval time.Duration // between two lists of the tasks; 0 means 30 s
	HealthThreshold    time.Duration // without a sign of life before Health fails; 0 means twice the longer of the two
	ShutdownGrace      time.Duration // for running tasks to end, once Run is told to; 0 means 2 min
	Policy             reaper.Policy // of the reaper
	Now                func() time.Time
	Log                *slog.Logger // nil means no log
}

// Providers is a cache of providers.
type Providers interface {
	// Run takes in the providers that tasks left for it, until ctx ends.
	Run(ctx context.Context)
	// Sweep removes evicted providers, once no task lives that may use them. living are the tasks that have not ended.
	Sweep(living []string)
}

// DefaultConcurrency is how many jobs an agent runs at once by default.
const DefaultConcurrency = 10

// Time limits of the end.
const (
	handBackTime = 15 * time.Second // to release jobs that were not launched
	lastReports  = 15 * time.Second // to report the ends of the last tasks
	serverTime   = 5 * time.Second  // for the last answers of the relay
	lookAgain    = 5 * time.Second  // between two lists of a drain, if the launcher does not report ends
	maxPause     = 30 * time.Second // between two attempts to adopt
)

// Agent is the stages of one pool in one process.
type Agent struct {
	cfg      Config
	log      *slog.Logger
	places   *places
	tails    *tails
	sockets  *sockets // nil if the relay listens on an address
	token    *tokenWatch
	alive    *alive
	draining chan struct{}
	drain    sync.Once
	aborted  chan struct{}
	abort    sync.Once

	deliveries chan struct{} // holds a value where some wait
}

// New returns an agent. Run starts it.
func New(cfg Config) (*Agent, error) {
	var missing workflow.Mistakes
	require := func(there bool, field, part string) {
		if !there {
			missing.Add(field, "an agent needs %s", part)
		}
	}
	require(cfg.Upstream != nil, "upstream", "a control plane")
	require(cfg.ControlURL != "", "control_url", "the control plane's address")
	require(cfg.Launcher != nil, "launcher", "a launcher")
	require(cfg.CloseLauncher != nil, "close_launcher", "an end for its launcher")
	require(cfg.Queue != nil, "queue", "a queue")
	require(cfg.Keyring != nil, "keyring", "a keyring for tickets")
	require(cfg.Instance != "", "instance", "the name of its instance")
	require(cfg.Concurrency >= 0, "concurrency", "a concurrency of 1 or more")
	if err := missing.Err(); err != nil {
		return nil, err
	}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	cfg.RelayListen = cmp.Or(cfg.RelayListen, "127.0.0.1:0")
	cfg.PollingInterval = cmp.Or(cfg.PollingInterval, time.Minute)
	cfg.StatusLoopInterval = cmp.Or(cfg.StatusLoopInterval, 30*time.Second)
	cfg.ShutdownGrace = cmp.Or(cfg.ShutdownGrace, 2*time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.HealthThreshold = cmp.Or(cfg.HealthThreshold, 2*max(cfg.PollingInterval, cfg.StatusLoopInterval))
	a := &Agent{log: cfg.Log, alive: &alive{}, places: newPlaces(cfg.Concurrency, cfg.Now), draining: make(chan struct{}), aborted: make(chan struct{}), deliveries: make(chan struct{}, 1)}
	a.token = &tokenWatch{Upstream: cfg.Upstream, polled: a.alive.sign, url: cfg.ControlURL, advice: cfg.TokenAdvice, now: cfg.Now, log: cfg.Log, giveUp: a.Drain, admitted: cfg.Admitted}
	cfg.Upstream = a.token
	a.cfg, a.tails = cfg, newTails(cfg)
	a.alive.sign(cfg.Now()) // its start is one
	return a, nil
}

// Drain makes Run take no more work, wait for running tasks as long as they take, and end. It may be called at
// any time and more than once.
func (a *Agent) Drain() { a.drain.Do(func() { close(a.draining) }) }

// Abort makes a Run that is ending stop waiting for running tasks. It may be called at any time and
// more than once.
func (a *Agent) Abort() { a.abort.Do(func() { close(a.aborted) }) }

// stages are the parts of a Run.
type stages struct {
	poller     *poller.Poller
	dispatcher *dispatcher.Dispatcher
	relay      *relay.Relay
	reaper     *reaper.Reaper
	deliverer  *deliverer.Deliverer // nil: it performs none
}

func (a *Agent) build(ctx context.Context, relayURL string) (s stages, err error) {
	cfg := a.cfg
	relayConfig := relay.Config{URL: cfg.ControlURL, Transport: cfg.Transport, Lines: cfg.Lines, Now: cfg.Now, Log: a.log.With("stage", "relay")}
	if cfg.Artifacts != "" {
		relayConfig.Places = artifact.NewDirectory(cfg.Artifacts)
	}
	s.relay, err = relay.New(cfg.Keyring, cfg.Upstream, relayConfig)
	if err != nil {
		return s, err
	}
	a.tails.took = s.relay.TookResult
	s.reaper = reaper.New(a.tails, cfg.Launcher, reaper.Config{
		Instance: cfg.Instance, Policy: cfg.Policy, LastHeartbeat: s.relay.LastHeartbeat, Acknowledged: a.acknowledge,
		Interval: cfg.StatusLoopInterval, Now: cfg.Now, Log: a.log.With("stage", "reaper"),
	})
	to := cfg.Launcher
	if cfg.RelaySockets != "" {
		if a.sockets, err = newSockets(cfg.RelaySockets, func(job string, attempt int) *http.Server {
			return a.server(ctx, s.relay.For(job, attempt), MaxConnections, "job_id", job, "attempt", attempt)
		}, cfg.Now, a.log.With("stage", "relay")); err != nil {
			return s, err
		}
		to = socketed{cfg.Launcher, a.sockets}
	}
	s.dispatcher, err = dispatcher.New(cfg.Queue, to, cfg.Upstream, dispatcher.Config{
		Relay:      func(string) string { return relayURL },
		Placements: cfg.Placements, Rate: cfg.LaunchRate,
		Workers: min(cfg.Concurrency, 8), Done: a.places.dispatched,
		Now: cfg.Now, Log: a.log.With("stage", "dispatcher"),
	})
	if err != nil {
		return s, err
	}
	if s.deliverer, err = a.newDeliverer(); err != nil {
		return s, err
	}
	s.poller, err = poller.New(counted{cfg.Upstream, a.places}, cfg.Queue, cfg.Keyring, poller.Config{
		Instance: cfg.Instance, Version: cfg.Version, Types: cfg.Types,
		Batch: min(cfg.Concurrency, 50), Wait: queue.MaxWait, PollingInterval: cfg.PollingInterval, Override: cfg.PollingOverride,
		Free: a.places.free, Hold: s.dispatcher.Hold, Wake: a.places.freed, Deliveries: a.deliveriesWait,
		Now: cfg.Now, Log: a.log.With("stage", "poller"),
	})
	return s, err
}

// Run works until ctx ends. Then it stops claiming, releases jobs that it has not launched, ends running tasks
// while the relay still takes their results, and reports how they ended. After Drain it first lets them end by
// themselves, until ctx ends. It returns nil if it was told to end and nothing went wrong. It is called once.
func (a *Agent) Run(ctx context.Context) error {
	listener, relayURL, err := a.listen(ctx)
	if err != nil {
		return fmt.Errorf("listen for runners: %w", err)
	}
	s, err := a.build(context.WithoutCancel(ctx), relayURL)
	if err != nil {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
		return err
	}

	// Parts that serve running tasks outlive ctx: they end last, when no task remains.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	working, stopWorking := context.WithCancelCause(ctx)
	defer stopWorking(nil)
	var background, work sync.WaitGroup

	server := a.server(context.WithoutCancel(ctx), s.relay, MaxConnections*a.cfg.Concurrency)
	if listener != nil {
		background.Go(func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				stopWorking(fmt.Errorf("serve runners: %w", err))
			}
		})
	}
	background.Go(func() { _ = s.relay.Run(serving) })
	background.Go(func() { a.watch(serving, s.reaper) })
	background.Go(func() { _ = s.reaper.Loop(serving) })
	background.Go(func() { a.tend(serving) })
	background.Go(func() { a.sweepArtifacts(serving) })
	if a.cfg.Providers != nil {
		background.Go(func() { a.cfg.Providers.Run(serving) })
	}
	background.Go(func() { a.deliver(working, s.deliverer) })
	background.Go(func() {
		select {
		case <-a.draining:
			stopWorking(errDrained)
		case <-working.Done():
		}
	})
	a.log.Info("agent started", "instance", a.cfg.Instance, "relay", relayURL, "concurrency", a.cfg.Concurrency)

	dispatching, stopDispatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopDispatching()
	if a.adopt(working) {
		polled := make(chan struct{})
		work.Go(func() { _ = s.dispatcher.Loop(dispatching) })
		work.Go(func() { defer close(polled); _ = s.poller.Loop(working) })
		<-polled // nothing is claimed from here on
	}
	cause := context.Cause(working)
	a.log.Info("agent stopping", "reason", cause)
	stopDispatching()
	work.Wait() // nothing is launched from here on

	a.handBack(context.WithoutCancel(ctx))
	if errors.Is(cause, errDrained) {
		a.await(ctx)
	}
	err = a.windDown(context.WithoutCancel(ctx), s.reaper)
	stopServing()
	shut(context.WithoutCancel(ctx), server)
	if a.sockets != nil {
		a.sockets.close(context.WithoutCancel(ctx))
	}
	background.Wait()
	if ctx.Err() == nil && !errors.Is(cause, errDrained) {
		err = errors.Join(cause, err) // it was not told to end
	}
	err = errors.Join(a.token.ended(), err)
	a.log.Info("agent stopped", "err", err)
	return err
}

// watch receives the ends of tasks from the launcher, if it reports them.
func (a *Agent) watch(ctx context.Context, r *reaper.Reaper) {
	w, ok := a.cfg.Launcher.(launcher.Watcher)
	if !ok {
		return // the sweeps find them
	}
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		err := w.Watch(ctx, func(ctx context.Context, t launcher.Task) {
			a.places.ended(t)
			if a.sockets != nil {
				a.sockets.ended(t)
			}
			r.Stopped(ctx, t)
		})
		if ctx.Err() != nil {
			return
		}
		a.log.Warn("launcher no longer watched; trying again", "err", err)
		_ = wait.For(ctx, pause)
	}
}

// acknowledge notes that a task's end need not be reported any more.
func (a *Agent) acknowledge(t launcher.Task) {
	if w, ok := a.cfg.Launcher.(launcher.Watcher); ok {
		w.Acknowledge(t.Ref)
	}
	if a.cfg.Acknowledged != nil {
		a.cfg.Acknowledged(t.Workflow, t.Attempt)
	}
}

// sweepArtifacts deletes expired artifacts, now and each hour.
func (a *Agent) sweepArtifacts(ctx context.Context) {
	for ctx.Err() == nil && a.cfg.Artifacts != "" {
		deleted, err := artifact.NewDirectory(a.cfg.Artifacts).Sweep(a.cfg.Now())
		if deleted > 0 || err != nil {
			a.log.Info("artifacts deleted", "files", deleted, "err", err)
		}
		_ = wait.For(ctx, time.Hour)
	}
}

// livingOf names the tasks that have not ended.
func livingOf(tasks []launcher.Task) (refs []string) {
	for _, t := range tasks {
		if t.Phase != launcher.Stopped {
			refs = append(refs, t.Ref)
		}
	}
	return refs
}

// tend corrects the count of jobs from the launcher's list.
func (a *Agent) tend(ctx context.Context) {
	for ctx.Err() == nil {
		begun := a.cfg.Now()
		if tasks, err := a.cfg.Launcher.List(ctx); err == nil {
			a.alive.sign(a.cfg.Now())
			a.places.correct(tasks, begun)
			a.tails.deliverAll(ctx)
			if a.cfg.Providers != nil {
				a.cfg.Providers.Sweep(livingOf(tasks))
			}
			if a.sockets != nil {
				a.sockets.correct(ctx, tasks, begun)
			}
		} else if ctx.Err() == nil {
			a.log.Warn("tasks not listed", "err", err)
		}
		_ = wait.For(ctx, a.cfg.StatusLoopInterval)
	}
}

// adopt takes over the jobs of an earlier process, and retries until it can. It must be done before anything
// is claimed: later an old claim could not be distinguished from a new one. It returns false if ctx ended first.
func (a *Agent) adopt(ctx context.Context) bool {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		err := a.takeStock(ctx, "the agent was restarted before it was launched")
		if err == nil {
			return true
		}
		if ctx.Err() == nil && !refusal(err) { // which is logged already
			a.log.Warn("earlier claims not taken over; trying again", "err", err, "pause", pause)
		}
		_ = wait.For(ctx, pause)
	}
	return false
}

// errDrained is why a draining agent takes no more work.
var errDrained = errors.New("the agent drains")

// handBack releases jobs that were claimed and not launched.
func (a *Agent) handBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handBackTime)
	defer cancel()
	if err := a.takeStock(ctx, "the agent was told to stop before it was launched"); err != nil && !refusal(err) {
		a.log.Warn("claims not released; they lapse", "err", err)
	}
}

// await waits until no task remains, or ctx ends.
func (a *Agent) await(ctx context.Context) {
	for reported := 0; ctx.Err() == nil; {
		tasks, err := a.cfg.Launcher.List(ctx)
		runs := a.places.runs(tasks)
		switch {
		case err != nil:
			a.log.Warn("tasks not listed", "err", err)
		case len(runs) == 0:
			return
		case len(runs) != reported:
			reported = len(runs)
			a.log.Info("agent draining", "tasks", reported)
			if a.cfg.Waiting != nil {
				a.cfg.Waiting(runs)
			}
		}
		soon, cancel := context.WithTimeout(ctx, lookAgain)
		select {
		case <-a.places.freed: // a task has ended
		case <-soon.Done():
		}
		cancel()
	}
}

// windDown ends running tasks and reports them. Every step has a time limit.
func (a *Agent) windDown(ctx context.Context, r *reaper.Reaper) error {
	grace, cancel := context.WithTimeout(ctx, a.cfg.ShutdownGrace)
	defer cancel()
	ended := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-a.aborted:
			cancel()
		case <-ended:
		}
	})
	err := a.cfg.CloseLauncher(grace)
	if err != nil {
		err = fmt.Errorf("close launcher: %w", err)
	}
	close(ended)
	waiting.Wait()

	last, cancel := context.WithTimeout(ctx, lastReports)
	defer cancel()
	if _, failed := r.Pass(last); failed != nil {
		a.log.Warn("last sweep failed; the next start repeats it", "err", failed)
	}
	a.tails.deliverAll(last)
	return err
}
