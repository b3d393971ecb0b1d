package main

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
)

// maxWindow lasts until the next minute's schedule, so that one invocation always waits for work. There may be two
// at once: claims are exclusive.
const maxWindow = time.Minute

// The triggers of an invocation.
const (
	bySchedule = "schedule"
	byWake     = "wake"
)

// trigger reads from the event whether a wake, which is empty, or a schedule invoked the function. It is pure.
func trigger(event []byte) (string, error) {
	members, kind, err := boot.Shape(event)
	switch {
	case err != nil:
		return "", err
	case len(members) == 0:
		return byWake, nil
	case kind == boot.Scheduled:
		return bySchedule, nil
	}
	return "", boot.WrongTrigger("the event is %.80q, neither a wake nor a schedule", kind)
}

// depthFor is longer than the time between two schedules, each of which looks at the queue: so a wake need not.
const depthFor = 2 * time.Minute

// held is a queue whose depth counts also messages that were received and not deleted: launches that are under way.
type held struct{ *sqs.Queue }

// Depth implements poller.Queue.
func (h held) Depth(ctx context.Context) (int, error) { return h.Held(ctx) }

// margin is kept of an invocation's time for giving back jobs that could not be queued.
const margin = 5 * time.Second

// function handles invocations, one at a time.
type function struct {
	poller     *poller.Poller
	keys       *boot.Keys
	token      *boot.Secret
	deliveries *deliveries
	window     time.Duration // of an invocation by the schedule; 0: one pass without waiting
	log        *slog.Logger
}

// handle polls once: for the window when the schedule invoked it; on a wake until a claim comes back
// short, so that wakes do not pile up behind one another.
func (f *function) handle(ctx context.Context, event []byte) error {
	boot.Began(ctx, f.log, "")
	began := time.Now()
	ctx, cancel := boot.Until(ctx, margin)
	defer cancel()
	by, err := trigger(event)
	if err != nil {
		return err
	}
	window := f.window
	if by == byWake {
		window = 0
	}
	if err := f.prepare(ctx); err != nil {
		f.log.Error("poll not begun", "trigger", by, "err", err)
		return err
	}
	got, err := f.poller.Window(ctx, window)
	// Now, while nothing waits for it, rather than when a wake comes.
	f.poller.Look(ctx, depthFor/4)
	f.deliveries.invoked()
	attrs := []any{
		"trigger", by, "passes", got.Passes, "claims", got.Claims, "claimed", got.Claimed, "sent", got.Sent,
		"released", got.Released, "reason", got.Why, "note", got.Note, "took_ms", time.Since(began).Milliseconds(),
	}
	if err != nil {
		f.log.Warn("poll failed", append(attrs, "err", err)...)
		return err
	}
	f.log.Info("poll ended", attrs...)
	return nil
}

// prepare reads, all at once, what this process does not know yet or no longer. It fails if the ticket keys or the
// pool's token cannot be read: nothing could be sealed or claimed then, and a claim would wait for the token again.
// The depth of the queue is read again when it is needed, and that call reports the error.
func (f *function) prepare(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return f.keys.Load(ctx) })
	group.Go(func() error {
		_, err := f.token.Get(ctx)
		return err
	})
	group.Go(func() error {
		f.poller.Look(ctx, depthFor)
		return nil
	})
	return group.Wait()
}
