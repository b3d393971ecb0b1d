package sim

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/ticket"
)

const (
	pollEvery = time.Minute
	stopTries = 5 // of a stop event that could not be dealt with
)

// stack is the parts of one pool.
type stack struct {
	w         *world
	pool      string
	name      string // of the instance
	who       controlplane.Principal
	queue     *simQueue
	launcher  *simLauncher
	keys      *ticket.Keyring
	relay     *relay.Relay
	place     *place
	poller    *poller.Poller
	sweeper   *reaper.Reaper
	heard     bool // the reaper is told what the relay heard, as in an agent
	direct    bool // the poller launches too, as on AWS
	placement []string
	batch     int

	lives       map[string]*process
	dispatchers []*dispatching
	polling     bool
	polled      time.Duration // when it last did so, and was not refused
	uncalled    time.Duration // until when it gets no calls
	sweeping    bool
	wakeLost    int           // wakes that do not arrive
	skew        time.Duration // of the clocks of this stack
	sweeps      int           // whole sweeps since the reaper last died or failed
	stopLost    int           // stop events that do not arrive
	stopTwice   int           // those that come twice
	reports     int           // results that are kept
	buried      int           // dead letters that are to be dealt with
}

func (s *stack) now() time.Time    { return s.w.now().Add(s.skew) }
func (s *stack) log() *slog.Logger { return slog.New(s.w.guard) }

// build makes the parts again, as in a process that starts.
func (s *stack) build(part string) {
	var err error
	p := begin(part)
	s.lives[part] = p
	switch part {
	case poll:
		cfg := poller.Config{Instance: "stack-" + s.name, Batch: s.batch, Now: s.now, Log: s.log(), Hold: s.hold}
		if s.direct {
			cfg.Direct = must(dispatcher.New(nil, directly{s, p}, upstream{s, p, nil}, s.launches()))
		}
		s.poller, err = poller.New(upstream{s, p, nil}, sender{s.queue, p}, s.keys, cfg)
	case reap:
		cfg := reaper.Config{Instance: "stack-" + s.name, Now: s.now, Log: s.log()}
		if s.heard {
			cfg.LastHeartbeat = func(job string, n int, task string) (time.Time, bool) { return s.relay.LastHeartbeat(job, n, task) }
		} else {
			cfg.Policy.AbsenceProves = 10 * time.Minute
		}
		s.sweeper, s.sweeps = reaper.New(upstream{s, p, nil}, seen{s.launcher, p}, cfg), 0
	case relays:
		s.relay, err = relay.New(s.keys, upstream{s, p, nil}, relay.Config{
			URL: "http://control-plane", Transport: toPlane{s.w, p}, Hold: -1, Now: s.now, Log: s.log(), Reports: s.kept(p), Places: s.place,
		})
	}
	if err != nil {
		panic(err) // of constants
	}
}

// hold is the reason of the last refused launch, in the process that is asked.
func (s *stack) hold() time.Time {
	if len(s.dispatchers) == 0 {
		return time.Time{}
	}
	return s.dispatchers[0].d.Hold()
}

// revive makes a dead part again.
func (s *stack) revive(part string) bool {
	if !s.lives[part].dead {
		return false
	}
	s.w.tell("the %s of %s begins again", part, s.name)
	s.build(part)
	return true
}

// pollOnce is one invocation of the poller.
func (s *stack) pollOnce() {
	if s.polling || s.w.clock < s.uncalled {
		return
	}
	s.polling = true
	defer func() { s.polling = false }()
	sum, err := s.poller.Pass(s.w.ctx)
	switch {
	case s.revive(poll):
	case err != nil:
		s.w.tell("poll of %s: %v", s.name, err)
		return
	case sum.Claimed > 0:
		s.w.tell("poll of %s: %d claimed, %d sent", s.name, sum.Claimed, sum.Sent)
	}
	s.polled = s.w.clock
}

// sweep is one invocation of the reaper.
func (s *stack) sweep() {
	if s.sweeping {
		return
	}
	s.sweeping = true
	defer func() { s.sweeping = false }()
	out, err := s.sweeper.Pass(s.w.ctx)
	if s.revive(reap) || err != nil || len(out.Refused) > 0 {
		s.w.tell("sweep of %s: %v %v", s.name, err, out.Refused)
		s.sweeps = 0
		return
	}
	s.sweeps++
	for _, a := range out.Actions {
		s.w.tell("sweep of %s: %s %s: %s", s.name, a.Kind, a.Task.Ref, a.Why)
	}
	s.w.checkOrphans(s)
}

// ended is the launcher's event that a task has ended.
func (s *stack) ended(t launcher.Task) {
	copies := 1
	if s.stopLost > 0 {
		s.stopLost--
		copies = 0
	} else if s.stopTwice > 0 {
		s.stopTwice--
		copies = 2
	}
	r := s.w.roll("stop event", t.Ref)
	for range copies {
		s.w.after(between(r, 200*time.Millisecond, 5*time.Second), "stop event", func() { s.handle(t, 1) })
	}
}

// handle gives a stop event to the reaper, and again if the reaper failed.
func (s *stack) handle(t launcher.Task, n int) {
	err := s.sweeper.Ended(s.w.ctx, t)
	if s.revive(reap) || err != nil && n < stopTries {
		s.w.after(time.Duration(n)*10*time.Second, "stop event again", func() { s.handle(t, n+1) })
	}
}

// kept is where results go that the control plane cannot accept now; an agent has no such place.
func (s *stack) kept(p *process) relay.Reports {
	if s.heard {
		return nil
	}
	return reports{s, p}
}

// reports is the queue of kept results as one process of the relay sees it.
type reports struct {
	s *stack
	p *process
}

// Send implements relay.Reports.
func (q reports) Send(ctx context.Context, body []byte, _ string) error {
	return tells(ctx, q.s.w, q.p, queues, "keep", func(context.Context) error {
		q.s.w.guard.scan("a kept result", string(body))
		q.s.launcher.kept(must(relay.DecodeReport(body)))
		q.s.reports++
		q.s.report(slices.Clone(body), 1)
		return nil
	})
}

// report sends a kept result to the control plane after a while.
func (s *stack) report(body []byte, n int) {
	s.w.after(relay.Later(n), "kept result", func() {
		err := s.relay.Deliver(s.w.ctx, body)
		if s.revive(relays) || err != nil {
			s.report(body, n+1)
			return
		}
		s.reports--
	})
}

// bury makes a message a dead letter after a while, until it is handled.
func (s *stack) bury(body []byte, receives int, in time.Duration) {
	s.buried++
	s.w.after(in, "dead letter", func() {
		s.buried--
		p := begin(dispatch)
		letters := dispatcher.NewDeadLetters(upstream{s, p, nil}, seen{s.launcher, p}, s.now, s.log())
		out := letters.Handle(s.w.ctx, queue.Message{ID: "dead", Body: body, Receives: receives})
		s.w.tell("dead letter of %s/%d: %s, deleted %t", out.Job, out.Attempt, out.Why, out.Delete)
		if p.dead || !out.Delete {
			s.bury(body, receives+1, max(out.Hide, visibility))
		}
	})
}

// dispatching is one process of the dispatcher.
type dispatching struct {
	s    *stack
	p    *process
	d    *dispatcher.Dispatcher
	busy bool
	job  attempt // that it is at
	want bool    // whether that was wanted when it was last asked after
}

func (s *stack) dispatcher() *dispatching {
	for _, d := range s.dispatchers {
		if !d.busy {
			return d
		}
	}
	d := &dispatching{s: s}
	s.dispatchers = append(s.dispatchers, d)
	d.build()
	return d
}

// launches is how the stack launches, whoever does it.
func (s *stack) launches() dispatcher.Config {
	return dispatcher.Config{
		Relay:      func(string) string { return "http://relay" },
		Placements: func(api.LaunchMessage) []string { return s.placement },
		Now:        s.now, Log: s.log(),
	}
}

// directly is the launcher as the poller calls it. Nobody asks whether a job is wanted that was claimed a moment ago.
type directly struct {
	s *stack
	p *process
}

// Launch implements dispatcher.Launcher.
func (d directly) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	d.s.w.met[metDirect]++
	return ask(ctx, d.s.w, d.p, launchers, "launch", func(context.Context) (launcher.Task, error) { return d.s.launcher.launch(r) })
}

func (d *dispatching) build() {
	var err error
	d.p = begin(dispatch)
	d.d, err = dispatcher.New(receiver{d.s.queue, d.p}, d, upstream{d.s, d.p, d}, d.s.launches())
	if err != nil {
		panic(err) // of constants
	}
}

// deliver gives the waiting messages of the queue to a dispatcher.
func (s *stack) deliver() {
	d := s.dispatcher()
	d.busy = true
	defer func() {
		d.busy = false
		if d.p.dead {
			d.build()
		}
	}()
	got, err := receiver{s.queue, d.p}.Receive(s.w.ctx, 3, 0)
	if err != nil {
		s.w.after(5*time.Second, "receive again", s.deliver)
		return
	}
	for _, m := range got {
		if !d.p.dead {
			d.one(m)
		}
	}
}

func (d *dispatching) one(m queue.Message) {
	w := d.s.w
	if msg, err := api.DecodeLaunchMessage(m.Body); err == nil {
		d.job = attempt{msg.Job, msg.Attempt}
		d.want = w.truth.of(msg.Job).wants(msg.Attempt)
	}
	out := d.d.Handle(w.ctx, m)
	w.tell("message of %s/%d: %s, hidden %s, deleted %t", out.Job, out.Attempt, out.Why, out.Hide, out.Delete)
	if err := d.d.Finish(w.ctx, m, out); err != nil {
		w.tell("message of %s not settled: %v", out.Job, err)
	}
}

// Launch implements dispatcher.Launcher.
func (d *dispatching) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	want := d.want
	return ask(ctx, d.s.w, d.p, launchers, "launch", func(context.Context) (launcher.Task, error) {
		if !want {
			d.s.w.fail("no launch of what is not wanted", "attempt %d of %s is launched, which was not wanted when it was to be asked after", r.Attempt, r.Workflow)
		}
		return d.s.launcher.launch(r)
	})
}

// upstream is the control plane as the parts of a stack call it.
type upstream struct {
	s *stack
	p *process
	d *dispatching // whose call it is, where that matters
}

func call[T any](ctx context.Context, u upstream, name string, f func(context.Context, *controlplane.Plane) (T, error)) (T, error) {
	return ask(ctx, u.s.w, u.p, plane, name, func(ctx context.Context) (out T, err error) {
		lost := u.s.w.cp.do(name, func(p *controlplane.Plane) error {
			out, err = f(ctx, p)
			return err
		})
		return out, lost
	})
}

func report(ctx context.Context, u upstream, name string, f func(context.Context, *controlplane.Plane) error) error {
	_, err := call(ctx, u, name, func(ctx context.Context, p *controlplane.Plane) (struct{}, error) { return struct{}{}, f(ctx, p) })
	return err
}

// Claim implements poller.Upstream.
func (u upstream) Claim(ctx context.Context, in api.Claim) (api.Claimed, error) {
	return call(ctx, u, "claim", func(ctx context.Context, p *controlplane.Plane) (api.Claimed, error) {
		out, err := p.Claim(ctx, u.s.who, in)
		for _, j := range out.Jobs {
			u.s.w.guard.secret(j.Token)
		}
		return out, err
	})
}

// Queued implements poller.Upstream.
func (u upstream) Queued(ctx context.Context, id string, in api.Attempt) error {
	return report(ctx, u, "queued", func(ctx context.Context, p *controlplane.Plane) error {
		return u.promised(id, in.Attempt, func() error { return p.Queued(ctx, u.s.who, id, in) })
	})
}

// promised remembers the lease that an accepted report gives.
func (u upstream) promised(id string, n int, f func() error) error {
	t, begun := u.s.w.truth, u.s.w.cp.now()
	wanted := t.of(id).wants(n)
	err := f()
	if err == nil && wanted {
		t.promise(id, n, begun, queuedLease)
	}
	return err
}

// Release implements poller.Upstream.
func (u upstream) Release(ctx context.Context, id string, in api.Release) error {
	return report(ctx, u, "release", func(ctx context.Context, p *controlplane.Plane) error { return p.Release(ctx, u.s.who, id, in) })
}

// States implements the upstream of dispatcher, reaper and relay.
func (u upstream) States(ctx context.Context, in api.StatesQuery) (api.States, error) {
	return call(ctx, u, "states", func(ctx context.Context, p *controlplane.Plane) (api.States, error) {
		if u.d != nil && len(in.IDs) == 1 && in.IDs[0] == u.d.job.job {
			u.d.want = u.s.w.truth.of(u.d.job.job).wants(u.d.job.n)
		}
		return p.States(ctx, u.s.who, in)
	})
}

// Launch implements dispatcher.Upstream.
func (u upstream) Launch(ctx context.Context, id string, in api.Launch) error {
	return report(ctx, u, "launches", func(ctx context.Context, p *controlplane.Plane) error {
		known := u.s.w.truth.reported[in.Task]
		if in.Task != "" {
			u.s.w.truth.reported[in.Task] = true
		}
		if in.Kind == api.LaunchFailed || known { // neither prolongs anything
			return p.Launch(ctx, u.s.who, id, in)
		}
		return u.promised(id, in.Attempt, func() error { return p.Launch(ctx, u.s.who, id, in) })
	})
}

// Held implements reaper.Upstream.
func (u upstream) Held(ctx context.Context, instance, cursor string) (api.Page[api.JobState], error) {
	return call(ctx, u, "held", func(ctx context.Context, p *controlplane.Plane) (api.Page[api.JobState], error) {
		return p.Held(ctx, u.s.who, instance, cursor)
	})
}

// tail delivers what the runner of an ended task left of its log on the disk of an agent, before its end is reported.
func (u upstream) tail(ctx context.Context, id string, in api.Lost) error {
	t := u.s.launcher.find(in.Task)
	if !u.s.heard || t == nil {
		return nil
	}
	for _, b := range t.boots {
		lines := b.unsent()
		if !b.granted || len(lines) == 0 {
			continue
		}
		taken, err := call(ctx, u, "tail", func(ctx context.Context, p *controlplane.Plane) (api.TailTaken, error) {
			return p.AppendTail(ctx, u.s.who, id, api.Tail{Attempt: in.Attempt, Task: in.Task, First: b.taken, Lines: lines})
		})
		if client.Transient(err) {
			return err
		}
		b.taken = max(b.taken, taken.Next)
	}
	return nil
}

// Lost implements reaper.Upstream.
func (u upstream) Lost(ctx context.Context, id string, in api.Lost) error {
	if !u.p.dead {
		u.s.launcher.checkEnd(in)
	}
	if err := u.tail(ctx, id, in); err != nil {
		return err
	}
	return report(ctx, u, "lost", func(ctx context.Context, p *controlplane.Plane) error { return p.Lost(ctx, u.s.who, id, in) })
}

// toPlane is the relay's way to the control plane.
type toPlane struct {
	w *world
	p *process
}

// RoundTrip implements http.RoundTripper.
func (t toPlane) RoundTrip(r *http.Request) (*http.Response, error) {
	return ask(r.Context(), t.w, t.p, plane, lastOf(r.URL.Path), func(ctx context.Context) (*http.Response, error) {
		again, err := rewound(ctx, r)
		if err != nil {
			return nil, err
		}
		return t.w.cp.RoundTrip(again)
	})
}
