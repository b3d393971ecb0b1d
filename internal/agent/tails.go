package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxSpool is how much of a spool is read at most: workflow code may write one without end.
const maxSpool = 1 << 30

// tails is an upstream that delivers the undelivered rest of a task's log before it reports the task's end.
type tails struct {
	Upstream
	spools   launcher.Spooler // nil: the launcher keeps none
	launcher launcher.Launcher
	took     func(job string, attempt int, task string) bool // whether the control plane has a task's result: the relay's
	mask     func(ctx context.Context) (func(line string) string, error)
	log      *slog.Logger

	mu sync.Mutex // held during a delivery, so that each is made once
}

var _ reaper.Upstream = (*tails)(nil)

func newTails(cfg Config) *tails {
	t := &tails{Upstream: cfg.Upstream, launcher: cfg.Launcher, mask: cfg.Mask, log: cfg.Log}
	t.spools, _ = cfg.Launcher.(launcher.Spooler)
	if t.mask == nil {
		t.mask = func(context.Context) (func(string) string, error) { return func(s string) string { return s }, nil }
	}
	return t
}

// Lost implements reaper.Upstream. The end of a task whose result was taken is known already: that call is spared.
func (t *tails) Lost(ctx context.Context, id string, in api.Lost) error {
	if err := t.deliver(ctx, id, in.Attempt, in.Task); err != nil || t.took(id, in.Attempt, in.Task) {
		return err
	}
	return t.Upstream.Lost(ctx, id, in)
}

// deliverAll delivers the logs that could not be delivered when their tasks ended.
func (t *tails) deliverAll(ctx context.Context) {
	if t.spools == nil {
		return
	}
	refs, err := t.spools.Spools()
	var tasks []launcher.Task
	if len(refs) > 0 {
		var unknown error
		tasks, unknown = t.launcher.Describe(ctx, refs...)
		err = errors.Join(err, unknown)
	}
	for _, task := range tasks {
		if task.Phase == launcher.Stopped {
			err = errors.Join(err, t.deliver(ctx, task.Workflow, task.Attempt, task.Ref))
		}
	}
	if err != nil && ctx.Err() == nil {
		t.log.Warn("rests of logs not delivered; trying again", "err", err)
	}
}

// deliver sends the rest of a task's log, and removes it. Its error means that the control plane must be asked
// again; a log that it will never take is removed too. An error on this machine does not hold up the end of a run:
// deliverAll tries again.
func (t *tails) deliver(ctx context.Context, id string, attempt int, task string) error {
	if t.spools == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	file, err := t.spools.Spool(task)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	log := t.log.With("job_id", id, "attempt", attempt, "task", task)
	var sent int64
	if err == nil {
		defer func() { _ = file.Close() }() // it is only read
		hide, unmasked := t.mask(ctx)
		if unmasked != nil {
			log.Warn("rest of a log not delivered: the secrets to hide in it cannot be read", "err", unmasked)
			return nil
		}
		sent, err = t.send(ctx, id, api.Tail{Attempt: attempt, Task: task}, file, hide)
		if err != nil && !refused(err) {
			return fmt.Errorf("deliver the rest of the log of task %s: %w", task, err)
		}
	}
	if err != nil {
		log.Warn("rest of a log dropped", "lines", sent, "err", err)
	} else {
		log.Info("rest of a log delivered", "lines", sent)
	}
	if err := t.spools.DropSpool(task); err != nil {
		log.Warn("rest of a log not removed", "err", err)
	}
	return nil
}

// refused reports whether the control plane will never take the log.
func refused(err error) bool {
	return slices.ContainsFunc([]error{
		workflow.ErrNotFound, workflow.ErrConflict, workflow.ErrOver, workflow.ErrInvalid, workflow.ErrTooLarge, workflow.ErrLogGap,
	}, func(kind error) bool { return errors.Is(err, kind) })
}

// peek reads a line without taking it; n is 0 at the end.
func peek(lines *bufio.Reader) (l api.LogLine, n int) {
	for _, size := range []int{lines.Buffered(), lines.Size()} {
		window, _ := lines.Peek(size)
		var err error
		if l, n, err = api.ParseLogLine(window); err != nil || n > 0 {
			break
		}
	}
	return l, n
}

// send sends the lines of a spool, from the first that the control plane wants to the first that is malformed.
func (t *tails) send(ctx context.Context, id string, in api.Tail, spool io.Reader, hide func(string) string) (sent int64, err error) {
	taken, err := t.Tail(ctx, id, in)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewReaderSize(io.LimitReader(spool, maxSpool), 2*(api.MaxLogText+api.MaxLogStep))
	for number, more := int64(0), true; more && !taken.Full; {
		in.First, in.Lines = taken.Next, in.Lines[:0]
		for size := 0; len(in.Lines) < api.MaxLogLines; number++ {
			l, n := peek(lines)
			if more = n > 0; !more {
				break
			}
			if number >= taken.Next {
				l.Step, l.Text = hide(l.Step), hide(l.Text)
				if l.Wire() > api.MaxLogBatch {
					l.Text = fmt.Sprintf("[dayfly] a line of %d bytes is missing here: it is too large to be sent", len(l.Text))
				}
				if size += l.Wire(); size > api.MaxLogBatch && len(in.Lines) > 0 {
					break
				}
				in.Lines = append(in.Lines, l)
			}
			_, _ = lines.Discard(n) // the peeked line
		}
		if len(in.Lines) == 0 {
			break
		}
		if taken, err = t.Tail(ctx, id, in); err != nil {
			return sent, err
		}
		sent += int64(len(in.Lines))
	}
	return sent, nil
}
