// Package logstream takes the lines of a run and sends them in order, in batches, until each is
// accepted. It neither masks nor splits them: its caller did.
//
// # Consistency model
//
// Lines are numbered from 0 over the whole run, by their place in a file that each is written to before it is sent.
// The control plane says which number it wants next, so no line is lost while it is unavailable, and none is stored
// twice. The file outlives a process that is killed: the agent sends the rest under the same numbers. Lines are lost
// only if a disk fails or is full, and a log that is full ends; a line says so at that place.
package logstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// How lines are batched. The first batch is sent after FirstWait, each other one after BatchWait, unless SetWait says
// another time, or when it is as large as a call may be: each batch is a call and a write of the control plane. While
// somebody reads, the first batches are sent sooner, see growing, and so does the end of a step.
const (
	FirstWait = 50 * time.Millisecond
	BatchWait = 5 * time.Second
	MaxWait   = 30 * time.Second // the part that a killed task may lose if its disk is gone

	// reserve is the part of the quota that is kept for the runner's own lines, which say why a run failed.
	reserve = 1 << 20

	maxPending = 64 << 10 // bytes that are not in the file yet

	firstRetry = 500 * time.Millisecond
	maxRetry   = 15 * time.Second
)

// growing is how long lines are gathered for the batches after a reader came; after these, as SetWait says.
func growing() []time.Duration {
	return []time.Duration{FirstWait, 100 * time.Millisecond, 200 * time.Millisecond}
}

// Config names the receiver of lines and the bounds of their storage.
type Config struct {
	// Send sends lines and returns the number of the next one that is wanted. A *api.LogGapError
	// names that too. Required.
	Send func(ctx context.Context, in api.Logs) (next int64, err error)
	// Over reports whether an error of Send means that no line will be accepted any more; nil means that
	// none does.
	Over func(error) bool
	Dir  string // where the file is made; empty means the system's temporary directory
	// Name is the name of the file, by which the agent finds the lines that this process could not send. Empty means
	// that the file has no name and is gone with the process; so it is without a Dir.
	Name string
	Now  func() time.Time // time of a line; nil means time.Now
	Log  *slog.Logger     // nil means no log
}

// Stream is the log of one run. Its methods may be called concurrently.
type Stream struct {
	cfg  Config
	wake chan struct{} // something changed; holds one

	mu       sync.Mutex
	spool    spool
	out      pending       // lines that are not in the file yet
	base     int64         // number of the first line that is not accepted
	next     int64         // number of the next line of the file
	wire     int           // of the lines between them
	began    time.Time     // when the first line was added
	wait     time.Duration // between two batches, when it has grown
	batches  int           // since a reader came
	ended    int64         // the lines before it are of steps that have ended
	quota    int64         // bytes that the log may hold
	used     int64         // of the quota
	full     bool          // a line says that it is used up
	lost     int           // lines that the disk had no room for since the last one that was written
	tooLarge int64         // a line that the control plane refuses, or -1
	flushes  int           // calls of Flush that wait
	held     bool          // nothing is sent but by Flush
	err      error         // why nothing is sent any more
	progress chan struct{}
}

// New returns a stream. Run sends its lines.
func New(cfg Config) *Stream {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Stream{
		cfg: cfg, wake: make(chan struct{}, 1), progress: make(chan struct{}),
		spool: spool{dir: cfg.Dir, name: cfg.Name}, wait: BatchWait, quota: api.DefaultLogQuota, tooLarge: -1,
	}
}

// SetQuota says how much the log may hold; 0 means api.DefaultLogQuota.
func (s *Stream) SetQuota(quota int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quota = cmp.Or(quota, api.DefaultLogQuota)
}

// SetWait says how long lines are gathered for a batch, up to MaxWait; 0 means BatchWait. Less than BatchWait means
// that somebody reads.
func (s *Stream) SetWait(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d = cmp.Or(min(d, MaxWait), BatchWait)
	if !s.isRead() && d < BatchWait {
		s.batches = 0
	}
	s.wait = d
}

// isRead reports whether somebody reads. The lock is held.
func (s *Stream) isRead() bool { return s.wait < BatchWait }

// EndStep sends the lines so far without waiting for more, if somebody reads.
func (s *Stream) EndStep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
	s.ended = s.next
	s.signal()
}

// Add adds a line of the program that runs, or a piece of one that goes on in the next call. It never waits for the
// control plane. Lines that come together are written together, by Sync or before they are sent. A line cannot pose
// as one of the runner's own, see Foreign; nor can a piece, for a reader that shows each on its own.
func (s *Stream) Add(step, line string, more bool) { s.add(step, Foreign(line), more, reserve) }

// Say is Add for the runner's own lines, which may use all of the quota.
func (s *Stream) Say(step, line string, more bool) { s.add(step, line, more, 0) }

func (s *Stream) add(step, line string, more bool, spare int64) {
	l := api.LogLine{At: s.cfg.Now().UTC(), Step: text.Head(step, api.MaxLogStep), Text: text.Head(line, api.MaxLogText), More: more}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	if s.used+s.out.weight+l.Weight() > s.quota-min(spare, s.quota/4) {
		if s.full {
			return
		}
		s.full, l.More = true, false
		l.Text = fmt.Sprintf(api.RunnerLine+"log_full: a log holds at most %d MiB; further output of the run is not kept", s.quota>>20)
	}
	if s.out.add(l); len(s.out.short) >= maxPending {
		s.write()
	}
	s.signal()
}

// Full reports whether lines were left out because the log is full.
func (s *Stream) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// pending are the lines to be written to the file next.
type pending struct {
	short  []byte // the lines in their short form
	lines  int
	wire   int
	weight int64
}

func (p *pending) add(l api.LogLine) {
	p.short = l.Append(p.short)
	p.lines, p.wire, p.weight = p.lines+1, p.wire+l.Wire(), p.weight+l.Weight()
}

// Sync writes the added lines to the file. From then on it is sent even if this process is killed.
func (s *Stream) Sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
}

// write is Sync with the lock held. When the disk has room again, one line stands for those that it had no room for.
func (s *Stream) write() {
	p := s.out
	if s.lost > 0 {
		var all pending
		all.add(api.LogLine{At: s.cfg.Now().UTC(), Text: fmt.Sprintf(api.RunnerLine+"%s missing here: the disk had no room", text.Are(s.lost, "line"))})
		p = pending{append(all.short, p.short...), p.lines + 1, p.wire + all.wire, p.weight + all.weight}
	}
	if p.lines == 0 {
		return
	}
	if err := s.spool.write(p.short); err != nil {
		if s.lost == 0 {
			s.cfg.Log.Error("log lines could not be kept", "err", err)
		}
		s.lost += s.out.lines
	} else {
		s.next, s.wire, s.used, s.lost = s.next+int64(p.lines), s.wire+p.wire, s.used+p.weight, 0
	}
	s.out = pending{short: s.out.short[:0]}
}

// Next returns the number of the next line, which is the number of lines so far.
func (s *Stream) Next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
	return s.next
}

// Flush sends the waiting lines without waiting for more, until all are accepted. Its error says that ctx ended
// first, or why nothing can be sent any more. Run must be running.
func (s *Stream) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushes++
	defer func() { s.flushes-- }()
	for s.write(); (s.base < s.next || s.lost > 0) && s.err == nil; s.write() {
		if s.base == s.next {
			return errors.New("log lines could not be kept") // and neither can the line that says so
		}
		s.signal()
		progress := s.progress
		s.mu.Unlock()
		select {
		case <-progress:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil && s.base < s.next {
			return fmt.Errorf("%s not sent: %w", text.Are(int(s.next-s.base), "log line"), context.Cause(ctx))
		}
	}
	if s.base < s.next {
		return s.err
	}
	return nil
}

// Hold keeps the waiting lines for the result, which takes them as a Tail, until Release. It does nothing and returns
// false if they are more than a batch, or cannot be read.
func (s *Stream) Hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
	s.held = s.wire <= api.MaxLogBatch && s.next-s.base <= api.MaxLogLines && s.lost == 0 && s.spool.broken == nil && s.err == nil
	return s.held
}

// Release undoes Hold.
func (s *Stream) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	s.signal()
}

// Run sends lines until ctx ends or no more can be sent.
func (s *Stream) Run(ctx context.Context) error {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = cmp.Or[error](s.err, errStopped)
		s.spool.close(s.base == s.next)
		s.advance()
	}()
	retry := backoff.ExponentialBackOff{InitialInterval: firstRetry, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: maxRetry}
	retry.Reset()
	var last time.Time // of the last batch
	limit := api.MaxLogLines
	for ctx.Err() == nil {
		batch, wait := s.due(last, limit)
		if len(batch.Lines) == 0 {
			s.sleep(ctx, wait, false)
			continue
		}
		last = time.Now()
		next, err := s.cfg.Send(ctx, batch)
		if gap, ok := errors.AsType[*api.LogGapError](err); ok && gap.Next != batch.First {
			next, err = gap.Next, nil
		}
		switch {
		case err == nil && next < batch.First:
			return s.end(fmt.Errorf("send log: the control plane asks for line %d again, which it had accepted", next))
		case err == nil && next > batch.First:
			s.Taken(next)
			limit = api.MaxLogLines
			retry.Reset()
			continue
		case err != nil && s.cfg.Over != nil && s.cfg.Over(err):
			return s.end(err)
		case errors.Is(err, workflow.ErrTooLarge):
			if limit = min(limit, len(batch.Lines)) / 2; limit == 0 {
				s.mu.Lock()
				s.tooLarge, limit = batch.First, 1
				s.mu.Unlock()
			}
			continue
		}
		pause := max(retry.NextBackOff(), api.RetryAfter(err))
		s.cfg.Log.Debug("log batch not taken", "first", batch.First, "lines", len(batch.Lines), "retry", pause, "err", err)
		s.sleep(ctx, pause, true)
	}
	return nil
}

var errStopped = errors.New("the log is closed")

// due returns the lines to send now, or how long to wait; 0 means until something changes.
func (s *Stream) due(last time.Time, limit int) (api.Logs, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
	waiting := s.next - s.base
	if waiting == 0 || s.held && s.flushes == 0 {
		return api.Logs{}, 0
	}
	rest := FirstWait - time.Since(s.began)
	if !last.IsZero() {
		rest = s.gather() - time.Since(last)
	}
	if s.isRead() && s.base < s.ended {
		rest = 0
	}
	if rest > 0 && s.flushes == 0 && waiting < api.MaxLogLines && s.wire < api.MaxLogBatch {
		return api.Logs{}, rest
	}
	out := api.Logs{First: s.base}
	size := 0
	s.each(func(l api.LogLine, _ int64) bool {
		if size += l.Wire(); len(out.Lines) == limit || size > api.MaxLogBatch && len(out.Lines) > 0 {
			return false
		}
		if s.base == s.tooLarge {
			l.Text = fmt.Sprintf(api.RunnerLine+"a line of %d bytes is missing here: it was refused as too large", len(l.Text))
		}
		out.Lines = append(out.Lines, l)
		return len(out.Lines) < limit
	})
	s.batches++
	return out, 0
}

// gather is how long lines are gathered for the next batch. The lock is held.
func (s *Stream) gather() time.Duration {
	if waits := growing(); s.isRead() && s.batches < len(waits) {
		return min(waits[s.batches], s.wait)
	}
	return s.wait
}

// each calls f with the lines that are not accepted yet, and with where each of them ends.
func (s *Stream) each(f func(l api.LogLine, end int64) (more bool)) {
	n, more := s.base, true
	if s.spool.broken == nil {
		err := s.spool.read(s.spool.at, func(l api.LogLine, end int64) bool { n++; more = f(l, end); return more })
		if err == nil {
			return
		}
		s.cfg.Log.Error("log lines could not be read back", "err", err)
		s.spool.broken = err
	}
	for ; n < s.next && more; n++ {
		more = f(s.spool.missing(), s.spool.end)
	}
}

// Taken notes that the lines before next were accepted, by Send or as a Tail.
func (s *Stream) Taken(next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next = min(next, s.next); next <= s.base {
		return
	}
	if next == s.next {
		s.base, s.spool.at, s.wire = next, s.spool.end, 0
	} else {
		s.each(func(l api.LogLine, end int64) bool {
			s.base, s.spool.at, s.wire = s.base+1, end, s.wire-l.Wire()
			return s.base < next
		})
	}
	s.advance()
}

func (s *Stream) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

// advance wakes the callers that wait for progress.
func (s *Stream) advance() {
	close(s.progress)
	s.progress = make(chan struct{})
}

func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// sleep waits for d, or until something changes. A pause after a failure ends early only when a Flush begins.
func (s *Stream) sleep(ctx context.Context, d time.Duration, pause bool) {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	s.mu.Lock()
	flushes := s.flushes
	s.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-after:
			return
		case <-s.wake:
		}
		s.mu.Lock()
		flushed := s.flushes > flushes
		s.mu.Unlock()
		if !pause || flushed {
			return
		}
	}
}
