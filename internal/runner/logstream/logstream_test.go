package logstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/logstream"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var errAway = errors.New("away")

// keeper is the other end: it keeps lines by the rules of the control plane.
type keeper struct {
	mu      sync.Mutex
	lines   []api.LogLine
	batches []int
	calls   int
	answer  func(call int, in api.Logs) (take bool, err error) // nil takes all
	limit   int                                                // lines taken of one batch; 0 means all
}

func (k *keeper) Send(_ context.Context, in api.Logs) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	take, err := true, error(nil)
	if k.answer != nil {
		take, err = k.answer(k.calls, in)
	}
	if take {
		end := int64(len(k.lines))
		if in.First > end {
			return 0, &api.LogGapError{Next: end}
		}
		if skip := end - in.First; skip < int64(len(in.Lines)) {
			more := in.Lines[skip:]
			if k.limit > 0 {
				more = more[:min(k.limit, len(more))]
			}
			k.lines = append(k.lines, more...)
		}
		k.batches = append(k.batches, len(in.Lines))
	}
	return int64(len(k.lines)), err
}

func (k *keeper) called() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls
}

func (k *keeper) texts() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for _, l := range k.lines {
		out = append(out, l.Text)
	}
	return out
}

// run runs f in a bubble with a stream that is running.
func run(t *testing.T, cfg logstream.Config, f func(t *testing.T, s *logstream.Stream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Dir = t.TempDir()
		s := logstream.New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Run(ctx)
		}()
		f(t, s)
		cancel()
		_ = <-done
		if left, err := os.ReadDir(cfg.Dir); err != nil || len(left) > 0 {
			t.Errorf("files left: %v, %v", left, err)
		}
	})
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("line %d", i)
	}
	return out
}

func TestRun_FirstLinesSoonThenInBatches(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		s.Add("init", "first", false)
		pass(logstream.FirstWait - time.Millisecond)
		synctest.Wait()
		if got, want := len(k.texts()), 0; got != want {
			t.Fatalf("got %d lines at once, want %d", got, want)
		}
		pass(time.Millisecond)
		synctest.Wait()
		if got, want := len(k.texts()), 1; got != want {
			t.Fatalf("got %d lines soon, want %d", got, want)
		}
		s.Add("init", "second", false)
		pass(logstream.BatchWait - time.Millisecond)
		synctest.Wait()
		if got, want := len(k.texts()), 1; got != want {
			t.Errorf("got %d lines before the wait is over, want %d", got, want)
		}
		pass(time.Millisecond)
		synctest.Wait()
		if got, want := len(k.texts()), 2; got != want {
			t.Errorf("got %d lines after the wait, want %d", got, want)
		}
		const many = 1000
		for range many {
			s.Add("plan", "x", false)
		}
		synctest.Wait()
		if got, want := len(k.texts()), 2; got != want {
			t.Errorf("got %d lines of a batch that is not full, want %d", got, want)
		}
		s.Add("plan", strings.Repeat("y", 64<<10), true)
		s.Add("plan", strings.Repeat("\x01", 64<<10), false)
		synctest.Wait()
		if got := len(k.texts()); got <= 2+many {
			t.Errorf("got %d lines of a full batch, want more than %d", got, 2+many)
		}
		want := api.LogLine{At: time.Now().UTC(), Step: "plan", Text: strings.Repeat("y", 64<<10), More: true}
		if diff := cmp.Diff(want, k.lines[2+many]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFlush_SendsWhatWaits(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		s.Add("", "first", false)
		synctest.Wait()
		s.Add("", "second", false)
		before := time.Now()
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(before); got != 0 {
			t.Errorf("it took %s, want no wait", got)
		}
		if diff := cmp.Diff([]string{"first", "second"}, k.texts()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFlush_EndsWithItsContext(t *testing.T) {
	k := &keeper{answer: func(int, api.Logs) (bool, error) { return false, errAway }}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		s.Add("", "first", false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// R5: the whole log arrives, in order, while the relay is away for part of the time.
func TestRun_KeepsLinesWhileTheOtherEndIsAway(t *testing.T) {
	const count = 200_000
	away := true
	k := &keeper{}
	k.answer = func(int, api.Logs) (bool, error) {
		if away {
			return false, errAway
		}
		return true, nil
	}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		want := numbered(count)
		for i, text := range want {
			s.Add("apply", text, false)
			if i == count/2 {
				pass(11 * time.Minute)
			}
		}
		if got := s.Next(); got != count {
			t.Errorf("got %d lines, want %d", got, count)
		}
		k.mu.Lock()
		away, k.calls = false, 0
		k.mu.Unlock()
		before := time.Now()
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(k.texts(), want) {
			t.Error("the log is not complete and in order")
		}
		if got := time.Since(before); got > 20*time.Second {
			t.Errorf("catching up took %s", got)
		}
		if got := k.called(); got > 150 {
			t.Errorf("catching up took %d calls, want larger batches", got)
		}
		s.Add("apply", "after", false)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := k.texts()[count]; got != "after" {
			t.Errorf("got %q", got)
		}
	})
}

// Whatever the other end answers, every line is there once and in order.
func TestRun_NeverLosesAndNeverDoubles(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		k := &keeper{limit: rnd.IntN(60)}
		other := rand.New(rand.NewPCG(seed, 2))
		k.answer = func(int, api.Logs) (bool, error) {
			switch other.IntN(6) {
			case 0:
				return false, errAway // it did not arrive
			case 1:
				return true, errAway // the answer was lost
			case 2:
				return false, &api.LogGapError{Next: int64(len(k.lines))}
			case 3:
				return false, workflow.Refuse(workflow.ErrTooLarge, "lines", "too large")
			default:
				return true, nil
			}
		}
		run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
			want := numbered(1500)
			for i, text := range want {
				s.Add("", text, false)
				if i%100 == 0 {
					pass(time.Duration(rnd.IntN(10)) * time.Second)
				}
			}
			k.mu.Lock()
			k.answer = nil
			k.mu.Unlock()
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := k.texts()
			for i := range got {
				if strings.HasPrefix(got[i], "[dayfly] a line of") { // too large even alone: said, and in its place
					got[i] = want[i]
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: the log is not complete and in order: %s", seed, cmp.Diff(want, got))
			}
		})
	}
}

func TestRun_EndsWhenTheRunIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := logstream.New(logstream.Config{
			Send: func(context.Context, api.Logs) (int64, error) { return 0, workflow.ErrOver },
			Over: func(err error) bool { return errors.Is(err, workflow.ErrOver) },
		})
		s.Add("", "line", false)
		flushed := make(chan error)
		go func() { flushed <- s.Flush(t.Context()) }()
		if err := s.Run(t.Context()); !errors.Is(err, workflow.ErrOver) {
			t.Errorf("Run: got %v, want %v", err, workflow.ErrOver)
		}
		if err := <-flushed; !errors.Is(err, workflow.ErrOver) {
			t.Errorf("Flush: got %v, want %v", err, workflow.ErrOver)
		}
	})
}

func TestRun_WaitsAsLongAsItIsTold(t *testing.T) {
	k := &keeper{answer: func(call int, _ api.Logs) (bool, error) {
		if call == 1 {
			return false, &workflow.Error{Kind: workflow.ErrBusy, RetryAfter: time.Minute}
		}
		return true, nil
	}}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		s.Add("", "line", false)
		pass(time.Minute - time.Millisecond)
		synctest.Wait()
		if got := k.called(); got != 1 {
			t.Errorf("got %d calls, want 1", got)
		}
		pass(time.Second)
		synctest.Wait()
		if got := len(k.texts()); got != 1 {
			t.Errorf("got %d lines, want 1", got)
		}
	})
}

// fillDisk makes writes beyond so many bytes of a file fail, until the disk is emptied again.
func fillDisk(t *testing.T, limit uint64) (empty func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	empty = sync.OnceFunc(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(empty)
	return empty
}

func TestAdd_LinesThatCannotBeKeptAreNamed(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGXFSZ) // whose default is the end of the process
	defer signal.Stop(signals)
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		empty := fillDisk(t, 1000)
		add := func(from, to int) {
			for n := from; n < to; n++ {
				s.Add("", fmt.Sprintf("line %d", n), false)
				s.Sync()
			}
		}
		add(0, 150)
		if err := s.Flush(t.Context()); err == nil {
			t.Error("a log whose lines could not be kept counts as sent")
		}
		empty()
		add(150, 200)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Where lines are missing, a line says how many.
		next, notices := 0, 0
		for _, text := range k.texts() {
			var missing int
			if _, err := fmt.Sscanf(text, "[dayfly] %d lines are missing here", &missing); err == nil {
				next += missing
				notices++
				continue
			}
			if want := fmt.Sprintf("line %d", next); text != want {
				t.Fatalf("got %q, want %q", text, want)
			}
			next++
		}
		if next != 200 || notices != 1 {
			t.Errorf("got %d lines with %d notices, want 200 with 1", next, notices)
		}
	})
}

// read returns the lines of a spool.
func read(t *testing.T, path string) (out []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		l, n, err := api.ParseLogLine(b)
		if err != nil || n == 0 {
			t.Fatalf("after %d lines: %v", len(out), err)
		}
		out, b = append(out, l.Text), b[n:]
	}
	return out
}

// R5: who is killed leaves every line, also those that were taken: they are counted by it.
func TestSync_TheFileOutlivesTheProcess(t *testing.T) {
	away := false
	k := &keeper{}
	k.answer = func(int, api.Logs) (bool, error) { return !away, map[bool]error{true: errAway}[away] }
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := logstream.New(logstream.Config{Send: k.Send, Dir: dir, Name: "spool"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		s.Add("", "line 0", false)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.mu.Lock()
		away = true
		k.mu.Unlock()
		for _, text := range numbered(10)[1:] {
			s.Add("", text, false)
		}
		s.Sync()
		path := filepath.Join(dir, "spool")
		if d := cmp.Diff(numbered(10), read(t, path)); d != "" {
			t.Errorf("the file at once (-want +got):\n%s", d)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		cancel()
		_ = <-done
		if d := cmp.Diff(numbered(10), read(t, path)); d != "" {
			t.Errorf("the file at the end (-want +got):\n%s", d)
		}
	})
}

// The file goes when nobody needs it any more; run sees to it that none is left.
func TestRun_RemovesTheFileOfALogThatIsTaken(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send, Name: "spool"}, func(t *testing.T, s *logstream.Stream) {
		s.Add("", "line", false)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// In a container the engine has the runner's user: what it does to the file costs lines of its own log alone.
func TestRun_AFileThatWasChangedCostsItsLines(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"cut":         func(path string) error { return os.Truncate(path, 20) },
		"overwritten": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte{0xff}, 1<<10), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			away := true
			k := &keeper{}
			k.answer = func(int, api.Logs) (bool, error) { return !away, map[bool]error{true: errAway}[away] }
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				s := logstream.New(logstream.Config{Send: k.Send, Dir: dir, Name: "spool"})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- s.Run(ctx) }()
				for _, text := range numbered(50) {
					s.Add("", text, false)
				}
				s.Sync()
				if err := change(filepath.Join(dir, "spool")); err != nil {
					t.Fatal(err)
				}
				k.mu.Lock()
				away = false
				k.mu.Unlock()
				if err := s.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := k.texts()
				if len(got) != 50 || !strings.Contains(got[49], "could not be read back") {
					t.Errorf("got %d lines, the last %q", len(got), got[len(got)-1])
				}
				cancel()
				_ = <-done
			})
		})
	}
}

// O15: what runs leaves room for the line that says so, and for why the run failed.
func TestAdd_FullLogSaysSoAndKeepsRoomForRunner(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		s.SetQuota(4 << 20)
		long := strings.Repeat("x", 1000)
		for range 5 << 10 {
			s.Add("apply", long, false)
		}
		if !s.Full() {
			t.Error("it is not full")
		}
		for range 100 {
			s.Say("apply", "why it failed", false)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		weight, notices, own := int64(0), 0, 0
		for _, l := range k.lines {
			weight += l.Weight()
			if strings.HasPrefix(l.Text, "[dayfly] log_full: a log holds at most 4 MiB") {
				notices++
			}
			if l.Text == "why it failed" {
				own++
			}
		}
		if weight > 4<<20 || weight < 3<<20-2000 || notices != 1 || own != 100 {
			t.Errorf("got %d bytes, %d notices, %d lines of its own", weight, notices, own)
		}
		for range 2 << 20 / 32 {
			s.Say("apply", "", false) // the runner's own has an end too
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		weight = 0
		for _, l := range k.lines {
			weight += l.Weight()
		}
		if weight > 4<<20 {
			t.Errorf("got %d bytes beyond the quota", weight-4<<20)
		}
	})
}

// R5: where each call is paid for and nobody reads, lines are gathered for long.
func TestSetWait_SaysHowLongLinesAreGathered(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		s.Add("", "first", false)
		pass(logstream.FirstWait)
		synctest.Wait()
		s.SetWait(0)
		s.Add("", "second", false)
		pass(logstream.BatchWait - time.Millisecond)
		synctest.Wait()
		if got := len(k.texts()); got != 1 {
			t.Errorf("got %d lines although nobody reads, want 1", got)
		}
		pass(time.Millisecond)
		synctest.Wait()
		s.SetWait(time.Hour)
		s.Add("", "third", false)
		pass(logstream.MaxWait - time.Millisecond)
		synctest.Wait()
		if got := len(k.texts()); got != 2 {
			t.Errorf("got %d lines before the longest wait is over, want 2", got)
		}
		pass(time.Millisecond)
		synctest.Wait()
		if got := len(k.texts()); got != 3 {
			t.Errorf("got %d lines after it, want 3", got)
		}
	})
}

// R5: what goes with a result is the end of what was not taken, and all of it where it fits.
func TestTail_HoldsTheEndOfWhatIsNotTaken(t *testing.T) {
	noise := func(n int) string {
		rnd := rand.New(rand.NewPCG(uint64(n), 1))
		out := make([]byte, 4000)
		for i := range out {
			out[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/"[rnd.IntN(64)]
		}
		return string(out)
	}
	for name, c := range map[string]struct {
		lines int
		text  func(n int) string
		whole bool
	}{
		"short":            {10, func(n int) string { return fmt.Sprintf("line %d", n) }, true},
		"long":             {30_000, func(n int) string { return fmt.Sprintf("line %d %s", n, strings.Repeat("which compresses well ", 15)) }, false},
		"not compressible": {300, noise, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := &keeper{answer: func(call int, _ api.Logs) (bool, error) { return call == 1, map[bool]error{true: errAway}[call > 1] }}
			run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
				if s.Tail() != nil {
					t.Error("a log without lines has a tail")
				}
				s.Add("", "line 0", false)
				pass(time.Minute)
				for n := 1; n < c.lines; n++ {
					s.Add("apply", c.text(n), n%7 == 0)
				}
				s.Sync()
				tail := s.Tail()
				if tail == nil {
					t.Fatal("no tail")
				}
				lines, err := tail.Unpack()
				if err != nil {
					t.Fatal(err)
				}
				if int(tail.First)+len(lines) != c.lines || c.whole != (tail.First == 1) || len(lines) < c.lines/20 {
					t.Errorf("%d lines from %d on, of %d", len(lines), tail.First, c.lines)
				}
				for i, l := range lines {
					if n := int(tail.First) + i; l.Text != c.text(n) || l.More != (n%7 == 0) || l.Step != "apply" {
						t.Fatalf("line %d is %+v", n, l)
					}
				}
				k.mu.Lock()
				k.answer = nil
				k.mu.Unlock()
				if err := s.Flush(t.Context()); err != nil { // so that no file is left
					t.Fatal(err)
				}
			})
		})
	}
}

func TestAdd_TextIsMadeValid(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		s.Add("", "a\xff\xfeb", false)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := k.texts()[0], "a?b"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A run that is over in a moment has one batch, and nobody waits for it.
func TestFlush_DoesNotWaitForTheFirstBatch(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		began := time.Now()
		for _, text := range numbered(3) {
			s.Add("source", text, false)
			pass(time.Millisecond)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(began), 3*time.Millisecond; got != want {
			t.Errorf("flushed after %s, want %s", got, want)
		}
		if d := cmp.Diff([]int{3}, k.batches); d != "" {
			t.Errorf("batches (-want +got):\n%s", d)
		}
	})
}

// R5: while somebody reads, the first batches leave sooner than later ones.
func TestSetWait_GrowsForAReader(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		read := func(want ...time.Duration) {
			t.Helper()
			for _, wait := range want {
				before := len(k.texts())
				s.Add("", "x", false)
				pass(wait - time.Millisecond)
				synctest.Wait()
				if got := len(k.texts()); got != before {
					t.Errorf("got a line before %s, want none", wait)
				}
				pass(time.Millisecond)
				synctest.Wait()
				if got := len(k.texts()); got != before+1 {
					t.Errorf("got %d lines after %s, want one", got-before, wait)
				}
			}
		}
		grown := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond}
		s.SetWait(500 * time.Millisecond)
		read(append([]time.Duration{logstream.FirstWait}, grown...)...)
		s.SetWait(25 * time.Second)
		read(25 * time.Second)
		s.SetWait(500 * time.Millisecond) // another reader
		read(append([]time.Duration{logstream.FirstWait}, grown...)...)
	})
}

// R5: while somebody reads, the end of a step does not wait for more.
func TestEndStep_SendsAtOnceForAReader(t *testing.T) {
	k := &keeper{}
	run(t, logstream.Config{Send: k.Send}, func(t *testing.T, s *logstream.Stream) {
		for _, c := range []struct {
			wait time.Duration
			want int
		}{{500 * time.Millisecond, 1}, {25 * time.Second, 0}} {
			s.SetWait(c.wait)
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := len(k.texts())
			s.Add("plan", "its last line", false)
			s.EndStep()
			synctest.Wait()
			if got := len(k.texts()) - before; got != c.want {
				t.Errorf("wait %s: got %d lines at once, want %d", c.wait, got, c.want)
			}
		}
	})
}
