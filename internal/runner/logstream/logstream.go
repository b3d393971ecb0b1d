// Package logstream takes the lines of a run and sends them in order, in batches, until each is
// taken. It does not mask and does not split: it is given lines as they may leave.
//
// # Consistency model
//
// Lines are numbered from 0 over the whole run. A line is dropped only when the other end says that
// it has it, so none is lost while the other end is away, and none is there twice, because
// the other end knows the numbers. What waits is kept in memory up to a bound and beyond it in a file that has
// no name, and ends with the process. Only a disk that fails or is full loses lines; then a line
// says so at the place.
package logstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// How lines are batched: the first with those of the same moment, then so many, or so much, or after so
// long. What piled up goes in larger batches, so that catching up is quick.
const (
	FirstWait  = 50 * time.Millisecond
	BatchWait  = 5 * time.Second
	BatchLines = 50
	BatchBytes = 256 << 10 // as they cross the wire
	MostLines  = 5000      // in one batch, when behind

	firstRetry = 500 * time.Millisecond
	mostRetry  = 15 * time.Second
)

// Config says where lines go and what may be used to keep them.
type Config struct {
	// Send sends lines and returns the number of the next one that is wanted. A *api.LogGapError
	// names that too. Required.
	Send func(ctx context.Context, in api.Logs) (next int64, err error)
	// Over reports whether an error of Send means that no line will ever be taken again; nil means that
	// none does.
	Over   func(error) bool
	Memory int              // bytes of lines kept in memory; 0 means 4 MiB
	Disk   int64            // bytes of lines kept in the file; 0 means 1 GiB
	Dir    string           // where the file is made; empty means the system's temporary directory
	Now    func() time.Time // time of a line; nil means time.Now
	Log    *slog.Logger     // nil means no log
}

// Stream is the log of one run. Its methods may be called concurrently.
type Stream struct {
	cfg  Config
	wake chan struct{} // something changed; holds one

	mu       sync.Mutex
	base     int64     // number of the first line that is kept
	next     int64     // number of the next line that is added
	began    time.Time // when the first line was added
	memory   queue     // the lines from base on
	spill    spill     // those after them
	lost     int       // lines that could not be kept since the last one that could
	flushes  int       // calls of Flush that wait
	err      error     // why nothing is sent any more
	progress chan struct{}
}

// New returns a stream. Run sends its lines.
func New(cfg Config) *Stream {
	cfg.Memory = cmp.Or(cfg.Memory, 4<<20)
	cfg.Disk = cmp.Or(cfg.Disk, 1<<30)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Stream{
		cfg: cfg, wake: make(chan struct{}, 1), progress: make(chan struct{}),
		spill: spill{dir: cfg.Dir, most: cfg.Disk},
	}
}

// Add adds a line, or a piece of one that goes on in the next call. It never waits for the other end.
func (s *Stream) Add(step, text string, more bool) {
	l := api.LogLine{At: s.cfg.Now().UTC(), Step: step, Text: strings.ToValidUTF8(text, "?"), More: more}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	if !s.settle(l.At, step) || !s.keep(l) {
		s.lost++
	}
	s.signal()
}

// settle puts a line in the place of those that were lost, once there is room again.
func (s *Stream) settle(at time.Time, step string) bool {
	if s.lost == 0 {
		return true
	}
	text := fmt.Sprintf("[dayfly] %d lines are missing here: they could not be kept until they were sent", s.lost)
	if !s.keep(api.LogLine{At: at, Step: step, Text: text}) {
		return false
	}
	s.lost = 0
	return true
}

// keep takes a line to the end of what waits.
func (s *Stream) keep(l api.LogLine) bool {
	if s.spill.lines == 0 && s.memory.bytes+cost(l) <= s.cfg.Memory {
		s.memory.push(l)
	} else if err := s.spill.push(l); err != nil {
		if s.lost == 0 {
			s.cfg.Log.Error("log lines could not be kept", "err", err)
		}
		return false
	}
	s.next++
	return true
}

// Next returns the number of the next line, which is the number of lines so far.
func (s *Stream) Next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// Flush sends what waits without waiting for more, until all of it is taken. Its error says that
// ctx ended first, or why nothing can be sent any more. Run must be running.
func (s *Stream) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushes++
	defer func() { s.flushes-- }()
	for (s.base < s.next || s.lost > 0) && s.err == nil {
		if s.settle(s.cfg.Now().UTC(), ""); s.base == s.next {
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
			return fmt.Errorf("%d log lines are not sent: %w", s.next-s.base, context.Cause(ctx))
		}
	}
	if s.base < s.next {
		return s.err
	}
	return nil
}

// Run sends lines until ctx ends or no more can be sent.
func (s *Stream) Run(ctx context.Context) error {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = cmp.Or[error](s.err, errStopped)
		s.spill.close()
		s.advance()
	}()
	retry := backoff.ExponentialBackOff{InitialInterval: firstRetry, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: mostRetry}
	retry.Reset()
	var last time.Time // of the last batch
	limit := MostLines
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
			return s.end(fmt.Errorf("send log: the other end asks for line %d again, which it took before", next))
		case err == nil && next > batch.First:
			s.taken(next)
			limit = MostLines
			retry.Reset()
			continue
		case err != nil && s.cfg.Over != nil && s.cfg.Over(err):
			return s.end(err)
		case errors.Is(err, workflow.ErrTooLarge):
			if limit = min(limit, len(batch.Lines)) / 2; limit == 0 {
				s.replaceFirst(batch.First)
				limit = 1
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

// due returns what is to be sent now, or how long to wait for it; no wait means until something
// changes.
func (s *Stream) due(last time.Time, limit int) (api.Logs, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill()
	waiting := s.next - s.base
	if waiting == 0 {
		return api.Logs{}, 0
	}
	left := FirstWait - time.Since(s.began)
	if !last.IsZero() {
		left = BatchWait - time.Since(last)
	}
	if left > 0 && s.flushes == 0 && waiting < BatchLines && s.memory.bytes < BatchBytes {
		return api.Logs{}, left
	}
	out := api.Logs{First: s.base}
	size := 0
	for _, l := range s.memory.lines() {
		if size += cost(l); len(out.Lines) == limit || size > BatchBytes && len(out.Lines) > 0 {
			break
		}
		out.Lines = append(out.Lines, l)
	}
	return out, 0
}

// refill brings lines back from the file for the next batch.
func (s *Stream) refill() {
	for s.spill.lines > 0 && (s.memory.len() == 0 || s.memory.bytes < min(BatchBytes, s.cfg.Memory)) {
		s.memory.push(s.spill.pop())
	}
}

// taken drops the lines before next.
func (s *Stream) taken(next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for next = min(next, s.next); s.base < next; s.base++ {
		if s.memory.len() > 0 {
			s.memory.pop()
		} else {
			s.spill.pop()
		}
	}
	s.advance()
}

// replaceFirst makes a line that is too large for the other end one that is not.
func (s *Stream) replaceFirst(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == number && s.memory.len() > 0 {
		s.memory.replace(fmt.Sprintf("[dayfly] a line of %d bytes is missing here: it was refused as too large", len(s.memory.lines()[0].Text)))
	}
}

func (s *Stream) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

// advance tells those who wait for progress.
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

// sleep waits so long, or until something changes; a pause after a failure ends early only for a
// Flush that begins.
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
		begun := s.flushes > flushes
		s.mu.Unlock()
		if !pause || begun {
			return
		}
	}
}

// cost is about what a line takes on the wire, and no less than in memory.
func cost(l api.LogLine) int {
	n := 96 + len(l.Step) + len(l.Text)
	for i := range len(l.Text) {
		switch c := l.Text[i]; {
		case c < ' ', c == '<', c == '>', c == '&', c == 0x7f:
			n += 5
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

// queue holds lines in memory.
type queue struct {
	all   []api.LogLine
	head  int // the lines before it are gone
	bytes int
}

func (q *queue) len() int             { return len(q.all) - q.head }
func (q *queue) lines() []api.LogLine { return q.all[q.head:] }
func (q *queue) push(l api.LogLine)   { q.all = append(q.all, l); q.bytes += cost(l) }
func (q *queue) pop() (l api.LogLine) {
	l, q.all[q.head] = q.all[q.head], api.LogLine{}
	q.head++
	q.bytes -= cost(l)
	if q.head == len(q.all) || q.head > 1024 && q.head > len(q.all)/2 {
		n := copy(q.all, q.all[q.head:])
		clear(q.all[n:])
		q.all, q.head = q.all[:n], 0
	}
	return l
}

// replace changes the text of the first line.
func (q *queue) replace(text string) {
	l := &q.all[q.head]
	q.bytes -= cost(*l)
	l.Text = text
	q.bytes += cost(*l)
}
