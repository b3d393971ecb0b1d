package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/dayfly-dev/dayfly/functions/internal/batch"
	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/launches"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/queue"
)

// The modes of the function. One queue invokes one function: the launches, or their dead letters.
const (
	modeLaunches    = "launches"
	modeDeadLetters = "dead-letters"
)

// settings are the settings in the environment.
type settings struct {
	mode       string
	serviceURL string
	queue      string // that invokes the function
	tasks      ecs.Config
	launches   dispatcher.Config // of modeLaunches
}

// endMargin is kept of an invocation's time at its end, to report and to give back.
const endMargin = 5 * time.Second

// unreadHide hides a message that cannot be read. After the 120 receives of its queue, ten minutes later, it is a
// dead letter; until then a newer dispatcher may read it.
const unreadHide = 5 * time.Second

func read(env *boot.Env) settings {
	out := settings{
		mode:       env.OneOf("DAYFLY_MODE", modeLaunches, modeLaunches, modeDeadLetters),
		serviceURL: env.URL("DAYFLY_SERVICE_URL", "the address of the control plane"),
		queue:      env.URL("DAYFLY_JOBS_QUEUE_URL", "the URL of the queue that invokes this function"),
		tasks:      launches.Tasks(env),
	}
	if out.mode == modeLaunches {
		out.launches = launches.Dispatcher(env, out.tasks, 1)
	}
	return out
}

// decider decides about the messages of a batch, in their order.
type decider func(ctx context.Context, msgs []queue.Message) []dispatcher.Disposition

// each makes a decider of one that decides about one message.
func each(handle func(ctx context.Context, msg queue.Message) dispatcher.Disposition) decider {
	return func(ctx context.Context, msgs []queue.Message) []dispatcher.Disposition {
		out := make([]dispatcher.Disposition, len(msgs))
		for i, msg := range msgs {
			out[i] = handle(ctx, msg)
		}
		return out
	}
}

// decider makes the decider of the mode.
func (s settings) decider(upstream dispatcher.Upstream, tasks launcher.Launcher) (decider, error) {
	if s.mode == modeDeadLetters {
		return each(dispatcher.NewDeadLetters(upstream, tasks, nil, s.tasks.Log).Handle), nil
	}
	d, err := dispatcher.New(nil, tasks, upstream, s.launches) // Lambda receives
	if err != nil {
		return nil, err
	}
	return d.Batch, nil
}

// function handles batches, one at a time.
type function struct {
	mode   string
	decide decider
	queue  hider
	log    *slog.Logger
}

// hider hides a delivery for a while.
type hider interface {
	Hide(ctx context.Context, receipt string, d time.Duration) error
}

// handle decides about each message of a batch and answers which of them go back. Those are hidden for the time of
// their disposition; Lambda deletes the others. A message that cannot be read goes back until it is a dead letter,
// of which an alarm tells; as a dead letter it is deleted.
func (f *function) handle(ctx context.Context, event json.RawMessage) (events.SQSEventResponse, error) {
	boot.Began(ctx, f.log, "")
	began := time.Now()
	msgs, err := batch.Decode(event)
	if err != nil {
		return events.SQSEventResponse{}, err
	}
	if end, ok := ctx.Deadline(); ok && f.mode == modeLaunches && time.Until(end) < endMargin+launches.Margin {
		f.log.Error("launches put off: the function's timeout leaves no time for one", "remaining", time.Until(end))
	}
	ctx, cancel := boot.Until(ctx, endMargin)
	defer cancel()
	var back []queue.Message
	count := map[string]int{}
	for i, out := range f.decide(ctx, msgs) {
		if out.Unread && f.mode == modeLaunches {
			out.Delete, out.Hide = false, unreadHide
		}
		how := outcome(out)
		count[how]++
		f.log.Debug("message decided", "job_id", out.Job, "attempt", out.Attempt, "outcome", how, "hidden_for", out.Hide, "reason", out.Why)
		if how == returned {
			f.hide(ctx, msgs[i], out)
			back = append(back, msgs[i])
		}
	}
	f.log.Info("batch ended", "mode", f.mode, "messages", len(msgs), "launched", count[launched],
		"deleted", count[deleted], "returned", count[returned], "took_ms", time.Since(began).Milliseconds())
	return batch.Answer(back), nil
}

// How a message ended.
const (
	launched = "launched"
	deleted  = "deleted"
	returned = "returned"
)

func outcome(out dispatcher.Disposition) string {
	switch {
	case !out.Delete:
		return returned
	case out.Task != "":
		return launched
	}
	return deleted
}

// hide hides a message that goes back. If that fails, it comes back after the queue's visibility time-out.
func (f *function) hide(ctx context.Context, msg queue.Message, out dispatcher.Disposition) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endMargin) // also when the time for launches is over
	defer cancel()
	if err := f.queue.Hide(ctx, msg.Receipt, out.Hide); err != nil {
		f.log.Warn("message not hidden", "job_id", out.Job, "attempt", out.Attempt, "err", err)
	}
}
