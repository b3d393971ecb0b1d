// Package dispatcher turns launch messages into tasks: at most one task per attempt and placement, and every outcome
// reported upstream. It asks whether an attempt is still wanted before it launches. It repeats a launch whose answer was
// lost before it tries anything else. It gives up when the launch window is over, never after a number of deliveries.
// It does not know the work of a task, and it does not end workflows: it reports, and the control plane decides.
//
// # Consistency model
//
// A message may come twice, late, or to two dispatchers at once. The launcher recognises a request by
// (workflow, attempt, placement), so each of them gets the same task; the control plane grants one
// start, however many tasks were launched. A message is deleted only when the launch was reported (or refused
// for good, or is unwanted); if the dispatcher dies before that, it comes back and the launch is
// repeated into the same task.
//
// It keeps nothing about a job between two deliveries, because the next may reach another process. The first placement of
// a message is always the same; before another is tried, its name is written into the control plane's record of the job,
// so that the next delivery begins with it. So a launch whose answer was lost, or whose dispatcher died, is repeated
// before anything else is tried. Only approximate: two dispatchers that handle one message at the same moment may be at
// two placements; the task that asks second is refused its start.
package dispatcher

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

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

// Upstream knows the wanted attempts and takes launch reports.
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
	Workers    int // messages handled at once by Loop or Batch; 0 means 4
	// Rate is how many launch calls per second this dispatcher makes at most, all workers together; it is
	// halved while they are throttled. 0 means no limit.
	Rate float64
	// Margin is the time that must remain until the deadline of ctx when a launch begins; 0 means 10 s.
	Margin     time.Duration
	Visibility time.Duration // for how long a message is hidden, again and again, while it is handled; 0 means 1 min
	// Done is called with each disposition before it is carried out in the queue; nil means no call.
	Done func(Disposition)
	Now  func() time.Time // nil means time.Now
	Log  *slog.Logger     // nil means no log
}

// Times of a dispatcher.
const (
	outcomeTime  = 20 * time.Second // to report the outcome of a launch, also when told to stop
	receiveWait  = 20 * time.Second // of one Receive
	minHide      = time.Second      // shortest time for which a message goes back
	maxHide      = 2 * time.Minute  // longest
	sameAgain    = 3                // times that a launch whose answer was lost is repeated at once
	receivePause = 2 * time.Second  // after a Receive that failed; doubled up to a minute
)

// Dispatcher launches the jobs whose messages the queue delivers.
type Dispatcher struct {
	queue    Queue
	launcher Launcher
	upstream Upstream
	cfg      Config
	pace     *Pace
	hold     atomic.Value // time.Time: no launch is likely to be taken before
}

// New returns a dispatcher. For Handle and Batch alone, which do not touch the queue, it may be nil.
func New(q Queue, l Launcher, upstream Upstream, cfg Config) (*Dispatcher, error) {
	if cfg.Relay == nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "relay", "a dispatcher needs the address that its tasks report to")
	}
	if cfg.Placements == nil {
		cfg.Placements = func(api.LaunchMessage) []string { return []string{"default"} }
	}
	cfg.Workers = max(1, cmp.Or(cfg.Workers, 4))
	cfg.Visibility = cmp.Or(cfg.Visibility, time.Minute)
	cfg.Margin = cmp.Or(cfg.Margin, 10*time.Second)
	if cfg.Rate < 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "rate", "a dispatcher cannot launch %g times a second", cfg.Rate)
	}
	if cfg.Done == nil {
		cfg.Done = func(Disposition) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Dispatcher{queue: q, launcher: l, upstream: upstream, cfg: cfg, pace: NewPace(cfg.Rate)}, nil
}

// Disposition is the decision about a message, and why.
type Disposition struct {
	Delete bool          // else it goes back
	Hide   time.Duration // how long it stays hidden when it goes back
	Why    string        // a constant per case, for the log
	Unread bool          // the message cannot be read: a queue with dead letters may keep it for them instead
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

// Hold is the time until which another launch would probably be refused, because the latest one was, for want of quota
// or capacity. The zero time means that nothing is expected to refuse it.
func (d *Dispatcher) Hold() time.Time {
	hold, _ := d.hold.Load().(time.Time)
	return hold
}

// Handle makes the launch that one message asks for and decides about the message. It does not touch the queue. When
// ctx ends, it begins nothing more, but it does report a launch that was made.
func (d *Dispatcher) Handle(ctx context.Context, msg queue.Message) Disposition {
	return d.Batch(ctx, []queue.Message{msg})[0]
}

// Batch is Handle for several messages: it asks once which of them are still wanted, and makes a bounded number of
// launches at once. A message that is broken or refused does not affect the others. It returns when all are decided, in
// their order.
func (d *Dispatcher) Batch(ctx context.Context, msgs []queue.Message) []Disposition {
	out := make([]Disposition, len(msgs))
	read := make([]api.LaunchMessage, len(msgs))
	var ask []string
	var ready []int
	for i, msg := range msgs {
		var ok bool
		if read[i], out[i], ok = d.read(ctx, msg); !ok {
			continue
		}
		ready = append(ready, i)
		if !slices.Contains(ask, read[i].Job) {
			ask = append(ask, read[i].Job)
		}
	}
	if len(ready) == 0 {
		return out
	}
	states, err := d.upstream.States(ctx, api.StatesQuery{IDs: ask})
	if err != nil {
		d.cfg.Log.Warn("jobs not asked after", "jobs", ask, "err", err)
		for _, i := range ready {
			out[i] = back(read[i], Backoff(read[i], d.cfg.Now()), "the control plane cannot be asked whether it is still wanted")
		}
		return out
	}
	var group errgroup.Group
	group.SetLimit(d.cfg.Workers)
	for _, i := range ready {
		group.Go(func() error {
			out[i] = d.launch(ctx, read[i], find(states, read[i].Job))
			return nil
		})
	}
	_ = group.Wait() // no member fails
	return out
}

// read decides about broken messages and those whose window is over, which needs no question to the control plane.
func (d *Dispatcher) read(ctx context.Context, msg queue.Message) (m api.LaunchMessage, out Disposition, ok bool) {
	m, err := api.DecodeLaunchMessage(msg.Body)
	if err != nil {
		// Deleted, because it would be as broken each time. Nothing is lost: the claim that it may have
		// stood for lapses, and the workflow is claimed again.
		d.cfg.Log.Error("launch message not read", "message_id", msg.ID, "bytes", len(msg.Body), "receives", msg.Receives, "err", err)
		return m, Disposition{Delete: true, Unread: true, Why: "it cannot be read"}, false
	}
	if ctx.Err() != nil {
		return m, back(m, 0, "the dispatcher is stopping"), false
	}
	if m.Window(d.cfg.Now()) <= 0 {
		d.cfg.Log.Info("launch given up", "job_id", m.Job, "attempt", m.Attempt, "reason", "launch window over")
		return m, done(m, "the launch window is over"), false
	}
	return m, Disposition{}, true
}

// find returns a job's state; a job that is not in the answer is not known.
func find(s api.States, id string) api.JobState {
	if i := slices.IndexFunc(s.Jobs, func(job api.JobState) bool { return job.ID == id }); i >= 0 {
		return s.Jobs[i]
	}
	return api.JobState{ID: id}
}

// Unwanted says why the attempt must not be launched, or "".
func Unwanted(job api.JobState, m api.LaunchMessage) string {
	switch {
	case job.ID != m.Job || !job.Known:
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

// Order is the order in which placements are tried: the one whose answer may have been lost comes first. If it is no
// longer among them, it is left out, and the start fence stops its task, if there is one.
func Order(names []string, pending string) []string {
	i := slices.Index(names, pending)
	if i <= 0 {
		return names
	}
	return slices.Concat([]string{pending}, names[:i], names[i+1:])
}

// launch tries the placements in their order until one takes the task, if that is still wanted.
func (d *Dispatcher) launch(ctx context.Context, m api.LaunchMessage, job api.JobState) Disposition {
	log, pending := d.cfg.Log.With("job_id", m.Job, "attempt", m.Attempt), job.PendingPlacement
	if why := Unwanted(job, m); why != "" {
		log.Debug("launch dropped", "reason", why)
		return done(m, why)
	}
	if job.Task != "" { // by an earlier delivery, or by the sender of the message: see Direct
		log.Debug("launch dropped", "reason", "launched before", "task", job.Task)
		out := done(m, "it is launched already, and its task has not stopped")
		out.Task = job.Task // a count of jobs must not take it for one that is not launched
		return out
	}
	var last *launcher.Refusal
	var said []string
	for i, name := range Order(d.cfg.Placements(m), cmp.Or(pending, m.Placement)) {
		if i > 0 && (ctx.Err() != nil || !d.writeDown(ctx, log, m, last, name)) {
			break
		}
		if wait, ok := d.pace.slot(ctx, d.cfg.Now(), d.cfg.Margin); !ok {
			if last != nil {
				break
			}
			if ctx.Err() != nil {
				wait = 0 // another dispatcher may take it at once
			}
			return back(m, min(wait, maxHide), "too little time remains to launch it")
		}
		var task launcher.Task
		if task, last = d.try(ctx, m, name, name == pending); last == nil {
			d.hold.Store(time.Time{})
			log.Info("job launched", "task", task.Ref, "placement", name)
			return d.reportLaunched(ctx, log, m, task)
		}
		if !slices.Contains(said, last.Text) {
			said = append(said, last.Text)
		}
		log.Info("launch refused", "placement", name, "reason", last.Reason, "permanent", last.Permanent,
			"unknown", last.Unknown, "text", last.Text, "waited_s", int(m.Age(d.cfg.Now())/time.Second)) // an alarm reads this line
		if last.Unknown { // it may live: no other placement is tried before this one is known
			return d.reportRefused(ctx, log, m, last, said, name)
		}
		if last.Permanent {
			return d.reportFailed(ctx, log, m, last, name)
		}
		if last.Reason != workflow.ReasonCapacity && last.Reason != workflow.ReasonQuota {
			break // the calls are too many, or do not get through, wherever they go
		}
	}
	if last == nil {
		return back(m, Backoff(m, d.cfg.Now()), "there is no placement to try")
	}
	return d.reportRefused(ctx, log, m, last, said, "")
}

// request is the launch of a message at a placement. It is the same in every process that has the same configuration.
func (d *Dispatcher) request(m api.LaunchMessage, placement string) (launcher.Request, *launcher.Refusal) {
	states, err := m.StateDirs()
	if err != nil {
		return launcher.Request{}, launcher.Never("%v", err)
	}
	return launcher.Request{
		Needs: m.Needs, Workflow: m.Job, Placement: placement, Ticket: m.Ticket, Relay: d.cfg.Relay(m.Job),
		States: states, ReadsState: m.ReadsState,
	}, nil
}

// try launches with one placement, and repeats that while the answer is lost. The first call has had its slot.
func (d *Dispatcher) try(ctx context.Context, m api.LaunchMessage, name string, mayHaveStarted bool) (launcher.Task, *launcher.Refusal) {
	r, refusal := d.request(m, name)
	if refusal != nil {
		return launcher.Task{}, refusal
	}
	r.MayHaveStarted = mayHaveStarted
	for n := range sameAgain {
		if n > 0 {
			if _, ok := d.pace.slot(ctx, d.cfg.Now(), d.cfg.Margin); !ok {
				break
			}
		}
		task, err := d.launcher.Launch(ctx, r)
		if err == nil {
			d.pace.Answered(d.cfg.Now(), false)
			return task, nil
		}
		refusal = asRefusal(err)
		d.pace.Answered(d.cfg.Now(), refusal.Reason == workflow.ReasonThrottled)
		if !refusal.Unknown || refusal.Reason == workflow.ReasonThrottled || ctx.Err() != nil {
			break
		}
		r.MayHaveStarted = true
	}
	return launcher.Task{}, refusal
}
