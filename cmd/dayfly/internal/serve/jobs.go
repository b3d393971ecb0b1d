package serve

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	lookJobs = 2 * time.Second // the longest time between two requests for a job
	maxOver  = 1000            // jobs that have ended and are remembered: the log names their tasks later too
	maxSeen  = 1000            // ids that wait for a request
)

// jobLines say in a line each that a job of dayfly up has started, and how it ended. The log names the jobs about
// which something happens; their states are read from the control plane. Where that fails, only lines are missing.
type jobLines struct {
	style term.Style
	say   func(format string, args ...any)
	ids   chan string // of jobs that the log has named
}

// seen notes that something has happened to a job. It does not wait.
func (j *jobLines) seen(id string) {
	select {
	case j.ids <- id:
	default:
	}
}

// watch reports the starts and ends of jobs until ctx ends, and once more then.
func (j *jobLines) watch(ctx context.Context, cl *client.Client) {
	started := map[string]bool{} // by id of a job that is watched: whether that was said
	var over []string
	look := func(id string) {
		w, err := cl.Workflow(context.WithoutCancel(ctx), id)
		if err != nil {
			return
		}
		if w.StartedAt != nil && !started[id] {
			started[id] = true
			j.say("%s %s", j.style.Step(workflow.StepRunning), cli.JobLine(w, "started"))
		}
		if w.State.Terminal() {
			j.say("%s", j.ended(w))
			over = append(over[max(0, len(over)-maxOver+1):], id)
		}
		if w.State.Terminal() || w.State == workflow.Pending { // a pending one is seen again when it is claimed
			delete(started, id)
		}
	}

	tick := time.NewTicker(lookJobs)
	defer tick.Stop()
	for {
		select {
		case id := <-j.ids:
			if slices.Contains(over, id) {
				continue
			}
			if _, known := started[id]; !known {
				started[id] = false
			}
			look(id)
			continue
		case <-tick.C:
		case <-ctx.Done():
		}
		for id := range started {
			look(id)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// ended is the line of a job that is over.
func (j *jobLines) ended(w api.Workflow) string {
	line := cli.JobLine(w, cli.Dash(runtext.Took(w, time.Now())))
	if w.State == workflow.Succeeded {
		return j.style.Step(workflow.StepSucceeded) + " " + line
	}
	return j.style.Step(workflow.StepFailed) + " " + line + ": " + term.Clean(cmp.Or(runtext.Cause(w), string(w.State)))
}

// jobLog is a log that reports the ids of the jobs in its records.
type jobLog struct {
	slog.Handler // writes the records of its level beside the lines
	job          string
	seen         func(id string)
}

func (h jobLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

func (h jobLog) Handle(ctx context.Context, r slog.Record) error {
	job := h.job
	r.Attrs(func(at slog.Attr) bool {
		job = jobOf(job, at)
		return true
	})
	if job != "" && r.Level >= slog.LevelInfo && r.Message != "plan decided on" { // that job is over
		h.seen(job)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h jobLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, at := range attrs {
		h.job = jobOf(h.job, at)
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func jobOf(before string, at slog.Attr) string {
	if at.Key == "job_id" || at.Key == "workflow" {
		return cmp.Or(at.Value.String(), before)
	}
	return before
}

// upWorker is dayfly up with its lines.
type upWorker struct {
	*embedded.Up
	watch func(ctx context.Context) // nil: no lines
}

// Run serves and works, and prints the last lines, after an interrupt too.
func (u upWorker) Run(ctx context.Context) error {
	if u.watch != nil {
		watching, stop := context.WithCancel(context.WithoutCancel(ctx))
		var group sync.WaitGroup
		group.Go(func() { u.watch(watching) })
		defer group.Wait()
		defer stop()
	}
	return u.Up.Run(ctx)
}
