package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// jobLines say in a line each that a job of dayfly up has started, and how it ended. The log names the jobs about which
// something happens; what becomes of them is asked of the control plane. Only lines are missed where that fails.
type jobLines struct {
	style term.Style
	say   func(format string, args ...any)

	mu      sync.Mutex
	cl      *client.Client  // nil before the control plane is there
	ctx     context.Context //nolint:containedctx // of the goroutines below, which begin with records of the log
	stop    context.CancelFunc
	watched map[string]chan struct{} // by id; holds one when there is news
	over    []string                 // ids of those that ended last: their tasks are spoken of later too
	group   sync.WaitGroup
}

// mostOver is how many of these are known.
const mostOver = 1000

// lookJobs is the longest time between two looks at a job.
const lookJobs = 2 * time.Second

// open gives the client with which jobs are looked at.
func (j *jobLines) open(ctx context.Context, cl *client.Client) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cl, j.watched = cl, map[string]chan struct{}{}
	j.ctx, j.stop = context.WithCancel(context.WithoutCancel(ctx)) // the end of a job is said after an interrupt too
}

// seen notes that something has happened to a job. It does not wait.
func (j *jobLines) seen(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cl == nil || j.ctx.Err() != nil || slices.Contains(j.over, id) {
		return
	}
	news, known := j.watched[id]
	if !known {
		news = make(chan struct{}, 1)
		j.watched[id] = news
		j.group.Go(func() { j.watch(id, news) })
	}
	select {
	case news <- struct{}{}:
	default:
	}
}

// watch says what becomes of a job until it is over.
func (j *jobLines) watch(id string, news <-chan struct{}) {
	started := false
	for last := false; ; {
		w, err := j.cl.Workflow(context.WithoutCancel(j.ctx), id)
		if err == nil && w.StartedAt != nil && !started {
			started = true
			j.say("%s %s", j.style.Step(workflow.StepRunning), jobLine(w, "started"))
		}
		if err == nil && w.State.Terminal() {
			j.say("%s", j.ended(w))
		}
		if last || err == nil && (w.State.Terminal() || w.State == workflow.Pending) {
			j.mu.Lock()
			delete(j.watched, id) // a pending one is seen again when it is claimed
			if err == nil && w.State.Terminal() {
				j.over = append(j.over[max(0, len(j.over)-mostOver+1):], id)
			}
			j.mu.Unlock()
			return
		}
		ctx, cancel := context.WithTimeout(j.ctx, lookJobs)
		select {
		case <-news:
		case <-ctx.Done():
		}
		cancel()
		last = j.ctx.Err() != nil
	}
}

func jobLine(w api.Workflow, after string) string {
	return fmt.Sprintf("%s of %s %s  %s", cmp.Or(string(w.Operation), string(w.Type)), w.Workspace, after, w.ID)
}

// ended is the line of a job that is over.
func (j *jobLines) ended(w api.Workflow) string {
	line := jobLine(w, took(w, time.Now()))
	if w.State == workflow.Succeeded {
		return j.style.Step(workflow.StepSucceeded) + " " + line
	}
	return j.style.Step(workflow.StepFailed) + " " + line + ": " + term.Clean(cmp.Or(w.Detail, string(w.Reason), string(w.State)))
}

// close says the last lines.
func (j *jobLines) close() {
	j.mu.Lock()
	stop := j.stop
	j.mu.Unlock()
	if stop != nil {
		stop()
		j.group.Wait()
	}
}

// jobLog is a log that tells of which jobs it speaks.
type jobLog struct {
	slog.Handler // writes what is wanted beside the lines
	job          string
	seen         func(id string)
}

// waiting are the records of jobs that do not run yet.
var waitingRecords = []string{"workflow submitted", "plan decided on"}

func (h jobLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

func (h jobLog) Handle(ctx context.Context, r slog.Record) error {
	job := h.job
	r.Attrs(func(at slog.Attr) bool {
		job = jobOf(job, at)
		return true
	})
	if job != "" && r.Level >= slog.LevelInfo && !slices.Contains(waitingRecords, r.Message) {
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

func (h jobLog) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
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
	lines *jobLines
}

// Run serves and works, and says the last lines.
func (u upWorker) Run(ctx context.Context) error {
	defer u.lines.close()
	return u.Up.Run(ctx)
}
