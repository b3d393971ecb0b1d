package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

// Finish deletes or hides a message, as was decided. If that fails, the message comes back after its visibility
// time-out, and a duplicate is harmless.
func (d *Dispatcher) Finish(ctx context.Context, msg queue.Message, out Disposition) error {
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

// Loop handles messages until ctx ends, a bounded number at once, and then waits for those under way.
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
			_ = wait.For(ctx, pause)
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
	keeper.Wait() // so that it cannot hide a message again that goes back now
	d.cfg.Done(out)
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTime)
	defer cancel()
	if err := d.Finish(finishing, msg, out); err != nil {
		d.cfg.Log.Warn("launch message not finished", "job_id", out.Job, "attempt", out.Attempt, "err", err)
		return
	}
	d.cfg.Log.Debug("launch message finished", "job_id", out.Job, "attempt", out.Attempt, "deleted", out.Delete,
		"hidden_for", out.Hide, "reason", out.Why)
}

func (d *Dispatcher) keepHidden(ctx context.Context, msg queue.Message) {
	for wait.For(ctx, d.cfg.Visibility/2) == nil {
		if err := d.queue.Hide(ctx, msg.Receipt, d.cfg.Visibility); err != nil && ctx.Err() == nil {
			d.cfg.Log.Debug("launch message not kept hidden", "message_id", msg.ID, "err", err)
		}
	}
}
