// Package poller claims jobs and puts a launch message for each into the queue. It claims before it
// sends, never sends a job that it did not claim, and releases jobs that the queue did not take. It keeps nothing:
// the truth about a claim is in the control plane. Where it has a Direct, it launches the first few jobs of a short
// queue at once.
//
// # Consistency model
//
// A claim is exclusive and ends by itself: one that is not reported as queued lapses after
// workflow.FirstLease, one that is not launched after workflow.QueuedLease, and the workflow is
// pending again. So the control plane's clock repairs the claims of a poller that died half-way (claimed and not
// sent, sent and not reported), and the dispatcher drops a message whose claim has lapsed. A claim whose answer was
// lost is the same case.
//
// A direct launch is a shortcut, and never the only way: its message lies in the queue, delayed for longer than the
// launch may take. If the poller dies in between, or its launch gets any answer but a task, that message is the launch.
//
// The message of a direct launch names its placement, so nobody else tries another one meanwhile. After any answer but a
// task, nothing is launched directly for five minutes. The poller has a quarter of the pool's launch rate, and leaves all
// launches to the dispatcher as soon as ten messages wait.
package poller

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Upstream hands out work.
type Upstream interface {
	Claim(ctx context.Context, in api.Claim) (api.Claimed, error)
	Queued(ctx context.Context, id string, in api.Attempt) error
	Release(ctx context.Context, id string, in api.Release) error
}

// Queue takes launch messages.
type Queue interface {
	// SendBatch takes up to queue.MaxBatch messages; see queue.Queue.
	SendBatch(ctx context.Context, messages []queue.Outgoing) []error
	Depth(ctx context.Context) (int, error)
}

// Sealer makes tickets.
type Sealer interface {
	Seal(c ticket.Claims) (string, error)
}

// Bounds of a pass and of the waiting between passes.
const (
	maxBatch      = 50                     // jobs in one claim; the API takes no more
	maxRounds     = 100                    // claims in one pass
	outcomeTime   = 10 * time.Second       // to release claimed jobs, once the pass is told to end
	sendTime      = 3 * time.Second        // that a pass keeps for sending before its deadline
	maxRetryAfter = 10 * time.Minute       // longest Retry-After that is obeyed; longer is a mistake
	firstPause    = time.Second            // after the first failure, or the first empty answer
	minPause      = 100 * time.Millisecond // after a pass that found no room
	roomPause     = time.Second            // between two looks at whether there is room
	depthPause    = 5 * time.Second        // between two looks at a queue that was too full
)

// Config says how a poller works.
type Config struct {
	Instance string          // the claimant; stable over restarts; required
	Version  string          // ours, shown in the pool's list of runners
	Types    []workflow.Type // the types to claim; empty means all
	Batch    int             // jobs in one claim, at most 50; 0 means 10
	// Wait is how long the first claim of a pass may wait for work, at most 20 s. 0 means that it does
	// not wait.
	Wait time.Duration
	// Reports is how many reports of queued jobs are under way at once, so that those of a batch do not delay the
	// next one. 0 means 1.
	Reports         int
	PollingInterval time.Duration // longest pause between two passes of Loop, but for Retry-After; 0 means 1 min
	// Override makes Loop pause for PollingInterval where the control plane asks for another pause.
	Override bool
	MaxDepth int // the queue's depth from which nothing is claimed; 0 means 300
	// DepthFor is how long a reading of the queue's depth is good while the queue is less than half full, counting the
	// jobs that this poller has sent since. A claim then does not wait for another reading, and two pollers of one queue
	// do not fill it beyond MaxDepth. 0 means that each claim reads it.
	DepthFor time.Duration
	// Free is how many more jobs may be taken on now. Nil means that only Batch limits a claim.
	Free func() int
	// Direct launches jobs at once. Nil means that every job is launched from the queue.
	Direct Direct
	// Hold is the time until which nothing is to be claimed, because the latest launch was refused for
	// quota or capacity. Nil means never.
	Hold func() time.Time
	// Deliveries is called when deliveries wait for the pool's side. It must not block. Nil means no call.
	Deliveries func()
	// Wake ends early a pause of Loop that waits for room: Free grew. Nil means that nothing does.
	Wake <-chan struct{}
	Now  func() time.Time // nil means time.Now
	Log  *slog.Logger     // nil means no log
}

// Poller claims jobs and queues them.
type Poller struct {
	upstream Upstream
	queue    Queue
	sealer   Sealer
	cfg      Config

	mu     sync.Mutex
	sent   int       // messages, ever
	depth  int       // of the queue when it was last looked at
	before int       // sent then
	looked time.Time // when that was; zero is never
}

// New returns a poller.
func New(upstream Upstream, queue Queue, sealer Sealer, cfg Config) (*Poller, error) {
	if cfg.Instance == "" {
		return nil, workflow.Refuse(workflow.ErrInvalid, "instance", "a poller needs the name of its instance")
	}
	if cfg.Batch < 0 || cfg.Batch > maxBatch {
		return nil, workflow.Refuse(workflow.ErrInvalid, "batch", "a claim takes 1 to %d jobs, not %d", maxBatch, cfg.Batch)
	}
	cfg.Batch = cmp.Or(cfg.Batch, 10)
	if cfg.Reports < 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "reports", "%d reports cannot be under way at once", cfg.Reports)
	}
	cfg.Reports = cmp.Or(cfg.Reports, 1)
	cfg.Wait = min(max(cfg.Wait, 0), 20*time.Second)
	cfg.PollingInterval = cmp.Or(cfg.PollingInterval, time.Minute)
	cfg.MaxDepth = cmp.Or(cfg.MaxDepth, 300)
	if cfg.Free == nil {
		cfg.Free = func() int { return maxBatch }
	}
	if cfg.Hold == nil {
		cfg.Hold = func() time.Time { return time.Time{} }
	}
	if cfg.Deliveries == nil {
		cfg.Deliveries = func() {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Poller{upstream: upstream, queue: queue, sealer: sealer, cfg: cfg}, nil
}

// Summary counts the work of one pass.
type Summary struct {
	Claims   int // claims that were answered
	Claimed  int // jobs in their answers
	Sent     int
	Released int
	// Blocked says why the pass did not ask for more, if there may be more work; Recheck is when to look again.
	Blocked string
	Recheck time.Duration
	// Note and RetryAfter are the control plane's, of the last answer.
	Note       string
	RetryAfter time.Duration
	Waited     time.Duration // how long the last answer took
}

// Pass claims and queues until nothing more can start, there is no room, or ctx ends. It releases claimed
// jobs that the queue did not take. An error is why the pass ended early; the summary counts the work done before.
func (p *Poller) Pass(ctx context.Context) (Summary, error) { return p.pass(ctx, p.cfg.Wait) }

// pass is Pass; first is how long its first claim may wait for work.
func (p *Poller) pass(ctx context.Context, first time.Duration) (s Summary, err error) {
	for round := 0; round < maxRounds; round++ {
		n, why, again, err := p.room(ctx)
		if err != nil {
			return s, ended(ctx, err)
		}
		if n == 0 {
			s.Blocked, s.Recheck = why, again
			return s, nil
		}
		wait := first
		if round > 0 {
			wait = 0
		}
		wait, ok := within(ctx, wait)
		if !ok {
			s.Blocked, s.Recheck = "too little time remains to send claimed jobs", p.cfg.PollingInterval
			return s, nil
		}
		asked := p.cfg.Now()
		out, err := p.upstream.Claim(ctx, api.Claim{
			Instance: p.cfg.Instance, Version: p.cfg.Version, Max: n, Types: p.cfg.Types,
			WaitSeconds: int(wait / time.Second),
		})
		if err != nil {
			s.RetryAfter = api.RetryAfter(err)
			return s, ended(ctx, fmt.Errorf("claim for %s: %w", p.cfg.Instance, err))
		}
		if out.Deliveries {
			p.cfg.Deliveries()
		}
		s.Claims++
		s.Claimed += len(out.Jobs)
		s.Waited, s.Note, s.RetryAfter = p.cfg.Now().Sub(asked), out.Note, api.Seconds(out.RetryAfterSeconds)
		sent, released, err := p.hand(ctx, out.Jobs, p.cfg.Now().Add(directTime))
		s.Sent += sent
		s.Released += released
		if err != nil {
			return s, ended(ctx, err)
		}
		if out.Short || len(out.Jobs) == 0 || s.RetryAfter > 0 {
			return s, nil
		}
	}
	return s, nil
}

// ended drops the error of a call that was cut short by the end of ctx: being told to stop is not a failure.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // see above
	}
	return err
}

// room asks everything that may keep the poller from claiming.
func (p *Poller) room(ctx context.Context) (n int, why string, again time.Duration, err error) {
	free, hold, now := p.cfg.Free(), p.cfg.Hold(), p.cfg.Now()
	if n, why, again = Room(free, 0, hold, now, p.cfg); n == 0 {
		return n, why, again, nil // without asking the queue
	}
	depth, age := p.known(now)
	if age >= p.cfg.DepthFor || depth >= p.cfg.MaxDepth/2 {
		if depth, err = p.look(ctx); err != nil {
			return 0, "", 0, err
		}
	}
	n, why, again = Room(free, depth, hold, now, p.cfg)
	return n, why, again, nil
}

// known is the last known depth of the queue, and how old that is.
func (p *Poller) known(now time.Time) (depth int, age time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.looked.IsZero() {
		return 0, math.MaxInt64
	}
	// Without the monotonic reading, which may stand still while a function is frozen.
	return p.depth + p.sent - p.before, now.Round(0).Sub(p.looked)
}

// look asks the queue for its depth.
func (p *Poller) look(ctx context.Context) (int, error) {
	p.mu.Lock()
	before := p.sent // messages sent from now on may not be in the answer
	p.mu.Unlock()
	depth, err := p.queue.Depth(ctx)
	if err != nil {
		return 0, fmt.Errorf("depth of the launch queue: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.depth, p.before, p.looked = depth, before, p.cfg.Now().Round(0)
	return depth, nil
}

// Look looks at the queue's depth if the last look is older than that, so that the next claim need not. A failure is
// only logged.
func (p *Poller) Look(ctx context.Context, older time.Duration) {
	if _, age := p.known(p.cfg.Now()); age < older || ctx.Err() != nil {
		return
	}
	if _, err := p.look(ctx); err != nil {
		p.cfg.Log.Debug("queue not looked at", "err", err)
	}
}

// Room decides how many jobs may be claimed, and if none, why not and when to look again.
func Room(free, depth int, hold, now time.Time, cfg Config) (n int, why string, again time.Duration) {
	switch {
	case now.Before(hold):
		return 0, "the latest launch was refused for want of quota or capacity", hold.Sub(now)
	case free <= 0:
		return 0, "everything that may run at once is running", roomPause
	case depth >= cfg.MaxDepth:
		return 0, fmt.Sprintf("%d launches are waiting already", depth), depthPause
	}
	return min(free, cfg.Batch, cfg.MaxDepth-depth), "", 0
}

// within shortens a wait so that jobs claimed at its end can still be sent before the deadline.
func within(ctx context.Context, wait time.Duration) (time.Duration, bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return wait, ctx.Err() == nil
	}
	remaining := time.Until(deadline) - sendTime
	return min(wait, remaining), remaining > 0
}

// Loop makes passes until ctx ends, and returns nil then. With Wait set, each pass is a long poll.
func (p *Poller) Loop(ctx context.Context) error {
	streak := 0
	var complained string
	for n := 0; ctx.Err() == nil; n++ {
		s, err := p.Pass(ctx) // whose error is logged and waited out
		d, why := Pause(s, err, streak, jitter(p.cfg.Instance, n), p.cfg)
		if err == nil && (s.Claimed > 0 || s.Blocked != "" || worked(s, p.cfg)) {
			streak = 0
		} else {
			streak++
		}
		p.note(ctx, s, err, d, why, &complained)
		wake := p.cfg.Wake
		if s.Blocked == "" {
			wake = nil // the pass did not lack room: a failing control plane gets its pause
		}
		_ = wait.Until(ctx, d, wake)
	}
	return nil
}

// note logs a pass. A failure is a warning when it begins or changes, after that it is logged at debug only.
func (p *Poller) note(ctx context.Context, s Summary, err error, d time.Duration, why string, complained *string) {
	attrs := []any{"claimed", s.Claimed, "sent", s.Sent, "released", s.Released, "next_in", d, "reason", why}
	trouble := s.Note
	if err != nil {
		trouble = api.Said(err)
		attrs = append(attrs, "err", err)
	}
	level := slog.LevelDebug
	switch {
	case trouble != "" && trouble != *complained:
		level = slog.LevelWarn
	case s.Claimed > 0:
		level = slog.LevelInfo
	}
	if s.Note != "" {
		attrs = append(attrs, "note", s.Note)
	}
	if s.Blocked == "" {
		*complained = trouble // a blocked pass says nothing about the trouble
	}
	p.cfg.Log.Log(ctx, level, "poll ended", attrs...)
}

// worked reports whether the control plane held the last claim for a good part of the wait: then the next long poll
// may follow at once.
func worked(s Summary, cfg Config) bool {
	return s.Claims > 0 && cfg.Wait > 0 && s.Waited >= max(cfg.Wait/2, time.Second)
}

// Pause decides how long to wait after a pass. streak counts the passes before it that failed or
// found nothing; jitter is from 0 to 1.
func Pause(s Summary, err error, streak int, jitter float64, cfg Config) (time.Duration, string) {
	growing := min(firstPause<<min(streak, 20), cfg.PollingInterval)
	spread := growing/2 + time.Duration(jitter*float64(growing/2))
	after := min(s.RetryAfter, maxRetryAfter)
	if after > 0 && cfg.Override {
		after = cfg.PollingInterval
	}
	if after > 0 { // never sooner than asked, and not all at the same time
		after += time.Duration(jitter * float64(after) / 10)
	}
	switch {
	case err != nil:
		return max(spread, after), "the pass failed"
	case after > 0:
		return after, "the control plane asked to wait"
	case s.Blocked != "":
		return min(max(s.Recheck, minPause), cfg.PollingInterval), s.Blocked
	case s.Claimed > 0:
		return 0, "there was work"
	case worked(s, cfg):
		return 0, "the wait for work ended without any"
	}
	return spread, "nothing to do"
}

// jitter is a number from 0 to 1 that differs between instances and passes, and is the same each time.
func jitter(name string, n int) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", name, n)
	return float64(h.Sum64()>>11) / (1 << 53)
}
