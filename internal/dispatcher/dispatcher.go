// Package dispatcher turns launch messages into tasks: at most one task per attempt and placement,
// and every outcome reported upstream. It asks whether an attempt is still wanted before it launches,
// repeats a launch whose answer was lost before it tries anything else, and gives up when the launch
// window is over, never after a number of deliveries. It does not know what a task does, and it does
// not end workflows: it reports, and the control plane decides.
//
// # Consistency model
//
// A message may come twice, late, or to two dispatchers at once. The launcher recognises a request by
// (workflow, attempt, placement), so each of them gets the same task; the control plane grants one
// start, whatever was launched. A message is deleted only when the launch was reported (or refused
// for good, or is unwanted); if the dispatcher dies before that, it comes back and the launch is
// repeated into the same task. What is only approximate is which placement is next while the answer
// of an earlier one is lost: that is remembered in memory, and after a crash in that moment two
// placements of one attempt may live until the second is refused its start.
package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Queue delivers launch messages.
type Queue interface {
	Receive(ctx context.Context, maxMessages int, wait time.Duration) ([]queue.Message, error)
	Hide(ctx context.Context, receipt string, d time.Duration) error
	Delete(ctx context.Context, receipt string) error
}

// Launcher starts tasks.
type Launcher interface {
	Launch(ctx context.Context, r launcher.Request) (launcher.Task, error)
}

// Upstream says what is wanted and takes launch reports.
type Upstream interface {
	States(ctx context.Context, in api.StatesQuery) (api.States, error)
	Launch(ctx context.Context, id string, in api.Launch) error
}

// Config says how a dispatcher works.
type Config struct {
	// Relay is the address that the task of a job reports to; required.
	Relay func(job string) string
	// Placements names the tries of a launch in their order, for instance a subnet and a capacity
	// provider each. It must give the same answer for the same message. Nil means one, "default".
	Placements func(m api.LaunchMessage) []string
	Workers    int           // messages handled at once by Loop; 0 means 4
	Visibility time.Duration // for how long a message is kept hidden while it is handled, again and again; 0 means 1 min
	// Done is told how each message ended, before it is settled with the queue; nil means nobody is.
	Done func(Disposition)
	Now  func() time.Time // nil means time.Now
	Log  *slog.Logger     // nil means no log
}

// Times of a dispatcher.
const (
	outcomeTime  = 20 * time.Second // to report what became of a launch, also when told to stop
	receiveWait  = 20 * time.Second // of one Receive
	leastHide    = time.Second      // shortest time for which a message goes back
	mostHide     = 2 * time.Minute  // longest
	sameAgain    = 3                // times that a launch whose answer was lost is repeated at once
	receivePause = 2 * time.Second  // after a Receive that failed; doubled up to a minute
)

// Dispatcher launches what the queue delivers.
type Dispatcher struct {
	queue    Queue
	launcher Launcher
	upstream Upstream
	cfg      Config

	mu      sync.Mutex
	hold    time.Time            // no launch is likely to be taken before
	unknown map[string]placement // by job and attempt: the answer to this one was lost
}

type placement struct {
	name  string
	until time.Time // when the window is over and it may be forgotten
}

// New returns a dispatcher.
func New(q Queue, l Launcher, upstream Upstream, cfg Config) (*Dispatcher, error) {
	if cfg.Relay == nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "relay", "a dispatcher needs the address that its tasks report to")
	}
	if cfg.Placements == nil {
		cfg.Placements = func(api.LaunchMessage) []string { return []string{"default"} }
	}
	cfg.Workers = max(1, cmp.Or(cfg.Workers, 4))
	cfg.Visibility = cmp.Or(cfg.Visibility, time.Minute)
	if cfg.Done == nil {
		cfg.Done = func(Disposition) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Dispatcher{queue: q, launcher: l, upstream: upstream, cfg: cfg, unknown: map[string]placement{}}, nil
}

// Disposition is what is to become of a message, and why.
type Disposition struct {
	Delete bool          // else it goes back
	Hide   time.Duration // how long it stays hidden when it goes back
	Why    string        // a constant per case, for the log
	// Of which job, where the message could be read.
	Job     string
	Attempt int
	Task    string // the launched task, if there is one
}

func done(m api.LaunchMessage, why string) Disposition {
	return Disposition{Delete: true, Why: why, Job: m.Job, Attempt: m.Attempt}
}

func back(m api.LaunchMessage, hide time.Duration, why string) Disposition {
	return Disposition{Hide: hide, Why: why, Job: m.Job, Attempt: m.Attempt}
}

// Hold is the time until which a further launch would likely be refused, because the latest one was,
// for want of quota or capacity. The zero time means that there is no such reason.
func (d *Dispatcher) Hold() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hold
}

// Handle does what one message asks for and says what is to become of it. It does not touch the
// queue. When ctx ends, it begins nothing more, but it does report a launch that was made.
func (d *Dispatcher) Handle(ctx context.Context, msg queue.Message) Disposition {
	m, err := api.DecodeLaunchMessage(msg.Body)
	if err != nil {
		// Deleted, not kept: it would be as broken each time. Nothing is lost with it, because the
		// claim that it may have stood for lapses and the workflow is claimed again.
		d.cfg.Log.Error("launch message dropped", "message_id", msg.ID, "bytes", len(msg.Body), "receives", msg.Receives, "err", err)
		return Disposition{Delete: true, Why: "it cannot be read"}
	}
	log := d.cfg.Log.With("job_id", m.Job, "attempt", m.Attempt)
	now := d.cfg.Now()
	if ctx.Err() != nil {
		return back(m, 0, "the dispatcher is stopping")
	}
	if m.Window(now) <= 0 {
		log.Info("launch given up", "reason", "launch window over")
		return done(m, "the launch window is over")
	}
	states, err := d.upstream.States(ctx, api.StatesQuery{IDs: []string{m.Job}})
	if err != nil {
		log.Warn("job not asked after", "err", err)
		return back(m, Backoff(m, now), "the control plane could not be asked whether it is still wanted")
	}
	if why := Unwanted(states, m); why != "" {
		log.Debug("launch dropped", "reason", why)
		d.forget(m)
		return done(m, why)
	}
	return d.launch(ctx, log, m)
}

// Unwanted says why the attempt must not be launched, or "".
func Unwanted(s api.States, m api.LaunchMessage) string {
	if len(s.Jobs) != 1 || s.Jobs[0].ID != m.Job {
		return "the control plane does not know the job"
	}
	switch job := s.Jobs[0]; {
	case !job.Known:
		return "the control plane does not know the job"
	case job.Attempt != m.Attempt:
		return "the attempt is over"
	case !job.Active:
		return "the job is over or waits for a new claim"
	case job.Started:
		return "the attempt was started already"
	case !job.Wanted(m.Attempt):
		return "the job is cancelled"
	}
	return ""
}

// launch tries the placements in their order until one takes the task.
func (d *Dispatcher) launch(ctx context.Context, log *slog.Logger, m api.LaunchMessage) Disposition {
	var last *launcher.Refusal
	for _, name := range d.order(m) {
		task, refusal := d.try(ctx, m, name)
		if refusal == nil {
			d.forget(m)
			d.setHold(time.Time{})
			log.Info("job launched", "task", task.Ref, "placement", name)
			return d.reportLaunched(ctx, log, m, task)
		}
		last = refusal
		log.Info("launch refused", "placement", name, "reason", refusal.Reason, "permanent", refusal.Permanent,
			"unknown", refusal.Unknown, "text", refusal.Text)
		if refusal.Unknown {
			d.remember(m, name) // it may live: no other placement before this one is known
			break
		}
		d.forget(m)
		if refusal.Permanent || ctx.Err() != nil {
			break
		}
	}
	if last == nil {
		return back(m, Backoff(m, d.cfg.Now()), "there is no placement to try")
	}
	if last.Permanent && !last.Unknown {
		return d.reportFailed(ctx, log, m, last)
	}
	return d.reportRefused(ctx, log, m, last)
}

// try launches with one placement, and does so again while the answer is lost.
func (d *Dispatcher) try(ctx context.Context, m api.LaunchMessage, name string) (launcher.Task, *launcher.Refusal) {
	r := launcher.Request{
		Workflow: m.Job, Attempt: m.Attempt, Placement: name,
		Organization: m.Organization, Workspace: m.Workspace, Pool: m.Pool,
		Ticket: m.Ticket, Relay: d.cfg.Relay(m.Job), Size: m.Size,
		StateKind: m.StateKind, ReadsState: m.ReadsState, Deadline: m.MaxRuntime(),
		SourceDir: m.SourceDirectory, SecretRefs: m.SecretRefs,
	}
	var refusal *launcher.Refusal
	for range sameAgain {
		task, err := d.launcher.Launch(ctx, r)
		if err == nil {
			return task, nil
		}
		refusal = asRefusal(err)
		if !refusal.Unknown || ctx.Err() != nil {
			break
		}
	}
	return launcher.Task{}, refusal
}

// order puts the placement whose answer was lost first: it is the only one that may be tried.
func (d *Dispatcher) order(m api.LaunchMessage) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.cfg.Placements(m)
	if p, ok := d.unknown[key(m)]; ok {
		order := []string{p.name}
		for _, n := range names {
			if n != p.name {
				order = append(order, n)
			}
		}
		return order
	}
	return names
}

func (d *Dispatcher) remember(m api.LaunchMessage, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	for k, p := range d.unknown {
		if now.After(p.until) {
			delete(d.unknown, k)
		}
	}
	d.unknown[key(m)] = placement{name, now.Add(m.Window(now))}
}

func (d *Dispatcher) forget(m api.LaunchMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.unknown, key(m))
}

func (d *Dispatcher) setHold(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hold = until
}

func key(m api.LaunchMessage) string { return fmt.Sprintf("%s/%d", m.Job, m.Attempt) }

// reportLaunched must get through before the message goes: only a reported task is granted a start.
// If it does not, the message comes back, the same launch gives the same task, and it is reported
// again; if the job has moved on meanwhile, that is seen before, and the message is dropped then.
func (d *Dispatcher) reportLaunched(ctx context.Context, log *slog.Logger, m api.LaunchMessage, task launcher.Task) Disposition {
	out := done(m, "launched")
	if err := d.report(ctx, m, api.Launch{Kind: api.LaunchAccepted, Task: task.Ref}); err != nil {
		log.Warn("launch not reported", "task", task.Ref, "err", err)
		out = back(m, min(Backoff(m, d.cfg.Now()), 10*time.Second), "launched, but the control plane did not take the report")
	}
	out.Task = task.Ref
	return out
}

func (d *Dispatcher) reportFailed(ctx context.Context, log *slog.Logger, m api.LaunchMessage, r *launcher.Refusal) Disposition {
	if err := d.report(ctx, m, api.Launch{Kind: api.LaunchFailed, Reason: r.Reason, Text: api.ReportText(r.Text)}); err != nil {
		log.Warn("failed launch not reported", "err", err)
		return back(m, Backoff(m, d.cfg.Now()), "the launch failed for good, but the control plane did not take the report")
	}
	return done(m, "the launch failed for good")
}

// reportRefused makes the reason visible; whether that is taken changes nothing.
func (d *Dispatcher) reportRefused(ctx context.Context, log *slog.Logger, m api.LaunchMessage, r *launcher.Refusal) Disposition {
	now := d.cfg.Now()
	hide := Backoff(m, now)
	if left := m.Window(now); left > 0 {
		hide = min(hide, left)
	}
	if r.Reason == workflow.ReasonQuota || r.Reason == workflow.ReasonCapacity {
		d.setHold(now.Add(hide))
	}
	if ctx.Err() != nil {
		hide = 0 // told to stop: somebody else may take it at once
	}
	err := d.report(ctx, m, api.Launch{
		Kind: api.LaunchRefused, Reason: r.Reason, Text: api.ReportText(r.Text), RetrySeconds: hide.Seconds(),
	})
	if err != nil {
		log.Warn("refused launch not reported", "err", err)
	}
	return back(m, hide, "the launch was refused for now")
}

// report sends a launch report, also when ctx has ended: it records an outcome.
func (d *Dispatcher) report(ctx context.Context, m api.LaunchMessage, in api.Launch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTime)
	defer cancel()
	in.Attempt = m.Attempt
	if err := d.upstream.Launch(ctx, m.Job, in); err != nil {
		return fmt.Errorf("report launch of job %s: %w", m.Job, err)
	}
	return nil
}

// Backoff is how long a message goes back for: the longer the older it is, so that it grows without
// anybody counting; spread by job, so that what failed together does not come back together.
func Backoff(m api.LaunchMessage, now time.Time) time.Duration {
	most := min(max(m.Age(now)/2, 2*leastHide), mostHide)
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d/%d", m.Job, m.Attempt, m.Age(now)/time.Second)
	full := float64(h.Sum64()>>11) / (1 << 53)
	return leastHide + time.Duration(full*float64(most-leastHide))
}

// Settle does with a message what was decided. If the queue does not take it, the message comes back
// after its visibility time-out, and a duplicate is harmless.
func (d *Dispatcher) Settle(ctx context.Context, msg queue.Message, out Disposition) error {
	if out.Delete {
		if err := d.queue.Delete(ctx, msg.Receipt); err != nil {
			return fmt.Errorf("delete launch message of job %s: %w", out.Job, err)
		}
		return nil
	}
	if err := d.queue.Hide(ctx, msg.Receipt, out.Hide); err != nil {
		return fmt.Errorf("hide launch message of job %s: %w", out.Job, err)
	}
	return nil
}

// Loop handles messages until ctx ends, a bounded number at once, and then waits for those that it
// is at.
func (d *Dispatcher) Loop(ctx context.Context) error {
	workers := semaphore.NewWeighted(int64(d.cfg.Workers))
	var group sync.WaitGroup
	defer group.Wait()
	pause := receivePause
	for {
		if err := workers.Acquire(ctx, 1); err != nil {
			return nil // told to stop
		}
		room := 1 // no more is received than can be handled now: it would wait hidden from others
		for room < queue.MaxBatch && workers.TryAcquire(1) {
			room++
		}
		got, err := d.queue.Receive(ctx, room, receiveWait)
		workers.Release(int64(room - len(got)))
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Warn("launch messages not received", "err", err)
			sleep(ctx, pause)
			pause = min(2*pause, time.Minute)
			continue
		}
		pause = receivePause
		for _, msg := range got {
			group.Go(func() {
				defer workers.Release(1)
				d.one(ctx, msg)
			})
		}
	}
}

// one handles one message from end to end, and keeps it hidden meanwhile.
func (d *Dispatcher) one(ctx context.Context, msg queue.Message) {
	kept, stop := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { d.keepHidden(kept, msg) })
	out := d.Handle(ctx, msg)
	stop()
	keeper.Wait() // so that it cannot hide again what is given back now
	d.cfg.Done(out)
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTime)
	defer cancel()
	if err := d.Settle(settling, msg, out); err != nil {
		d.cfg.Log.Warn("launch message not settled", "job_id", out.Job, "attempt", out.Attempt, "err", err)
		return
	}
	d.cfg.Log.Debug("launch message settled", "job_id", out.Job, "attempt", out.Attempt, "deleted", out.Delete,
		"hidden_for", out.Hide, "reason", out.Why)
}

func (d *Dispatcher) keepHidden(ctx context.Context, msg queue.Message) {
	t := time.NewTicker(d.cfg.Visibility / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := d.queue.Hide(ctx, msg.Receipt, d.cfg.Visibility); err != nil && ctx.Err() == nil {
			d.cfg.Log.Debug("launch message not kept hidden", "message_id", msg.ID, "err", err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
