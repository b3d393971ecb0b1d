package relay

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

// event is the reason to answer a held heartbeat early.
type event int

const (
	nothing event = iota
	cancelled
	over
)

const (
	perQuery  = 100              // jobs in one question
	queryWait = 15 * time.Second // how long the control plane may wait with its answer
	minGap    = time.Second      // between the beginnings of two rounds of questions
	maxPause  = 15 * time.Second // after a round that failed
)

// watcher asks for the states of the jobs whose heartbeats are held, in batches, with one goroutine.
type watcher struct {
	upstream Upstream
	log      *slog.Logger
	joined   chan struct{} // holds one token when a heartbeat joined since the last round began

	mu      sync.Mutex
	on      bool
	held    map[*waiter]bool
	begun   time.Time          // of the round that is under way
	restart context.CancelFunc // ends its questions, for a new round with those that joined
}

// waiter is one held heartbeat.
type waiter struct {
	job     string
	attempt int
	events  chan event // takes one
}

func newWatcher(upstream Upstream, log *slog.Logger) watcher {
	return watcher{upstream: upstream, log: log, joined: make(chan struct{}, 1), held: map[*waiter]bool{}}
}

func (w *watcher) holding() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.on
}

// wait holds the caller until there is an event, d is over, ctx ends or the watcher does.
func (w *watcher) wait(ctx context.Context, job string, attempt int, d time.Duration) event {
	me := &waiter{job, attempt, make(chan event, 1)}
	if !w.join(me) {
		return nothing
	}
	defer w.leave(me)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case e := <-me.events:
		return e
	case <-t.C:
	case <-ctx.Done():
	}
	return nothing
}

func (w *watcher) join(me *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.on {
		return false
	}
	w.held[me] = true
	select {
	case w.joined <- struct{}{}:
	default:
	}
	// The question under way does not name this job: it is asked again, but not once for each of many jobs.
	if w.restart != nil && time.Since(w.begun) >= minGap {
		w.restart()
	}
	return true
}

func (w *watcher) leave(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, me)
}

func (w *watcher) run(ctx context.Context) error {
	w.mu.Lock()
	w.on = true
	w.mu.Unlock()
	defer w.stop()
	pause := minGap
	for ctx.Err() == nil {
		select {
		case <-w.joined: // before the jobs are listed: a heartbeat that joins after that is seen by the next round
		default:
		}
		ids := w.jobs()
		if len(ids) == 0 {
			select {
			case <-ctx.Done():
			case <-w.joined:
			}
			continue
		}
		begun := time.Now()
		if err := w.round(ctx, begun, ids); err != nil {
			w.log.Warn("held jobs not watched", "jobs", len(ids), "err", err)
			_ = wait.For(ctx, pause)
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minGap
		// Also after an answer that came at once: it may be about a job whose heartbeat is no longer held.
		_ = wait.For(ctx, minGap-time.Since(begun))
	}
	return nil
}

// round asks once for each job. A single question may wait for an event; several are asked one after the other and do
// not wait.
func (w *watcher) round(ctx context.Context, begun time.Time, ids []string) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.begun, w.restart = begun, cancel
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.restart = nil
	}()
	wait := queryWait
	if len(ids) > perQuery {
		wait = 0
	}
	// A heartbeat may have joined in the first second, when a round is not ended for it.
	late := time.AfterFunc(minGap, func() {
		if len(w.joined) > 0 {
			cancel()
		}
	})
	defer late.Stop()
	for batch := range slices.Chunk(ids, perQuery) {
		out, err := w.upstream.States(asking, api.StatesQuery{IDs: batch, WaitSeconds: int(wait / time.Second)})
		if asking.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.notify(out.Jobs)
	}
	return nil
}

// jobs lists the held jobs, once each.
func (w *watcher) jobs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for h := range w.held {
		ids = append(ids, h.job)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// notify answers the held heartbeats whose jobs were cancelled or are over.
func (w *watcher) notify(jobs []api.JobState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	states := make(map[string]api.JobState, len(jobs))
	for _, s := range jobs {
		states[s.ID] = s
	}
	for h := range w.held {
		s, ok := states[h.job]
		if !ok {
			continue
		}
		if e := eventOf(s, h.attempt); e != nothing {
			h.events <- e
			delete(w.held, h)
		}
	}
}

// eventOf reads the event for the run of one attempt from the state of its job.
func eventOf(s api.JobState, attempt int) event {
	switch {
	case !s.Known || !s.Active || s.Attempt != attempt:
		return over
	case s.Cancel:
		return cancelled
	}
	return nothing
}

// stop answers everybody, and holds nobody from now on.
func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
	for h := range w.held {
		h.events <- nothing
	}
	clear(w.held)
}
