package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Times for viewers who follow a run.
const (
	stateEvery = 2 * time.Second       // between looks at the run's state while no line comes
	maxWait    = 5 * time.Second       // most of one request for a run that has not started: why it waits may change
	laterEvery = 5 * time.Second       // between requests for a run that may change but prints no more
	fullEvery  = 3 * time.Second       // between requests while too many others wait
	crowdEvery = 60 * time.Millisecond // for each viewer who shared the look, before the next request
	linger     = time.Second           // how long new lines are kept for viewers who ask a little later than others
	lookMargin = 10 * time.Second
)

// liveData is the position from which the script of a page goes on.
type liveData struct {
	seen  string // the state of the run that the page has
	done  bool   // the log will have no more lines
	from  int64  // number of the next line; -1: the page wants none
	again string // milliseconds until the next request; empty: nothing will change
}

// liveOf says how a page goes on after a look.
func liveOf(w api.Workflow, done bool, from int64) liveData {
	d := liveData{seen: w.Revision, done: done, from: from}
	reviewed := w.Review == nil || w.Review.Status != api.ReviewWaiting
	switch over := w.State.Terminal() && !w.SlotHeld; {
	case over && reviewed && (done || from < 0):
	case over && (done || from < 0), from < 0:
		d.again = strconv.FormatInt(laterEvery.Milliseconds(), 10)
	default:
		d.again = "0"
	}
	return d
}

// live answers with the changes of a run as HTML: the parts of its page, if the run changed, and lines of its log.
// It waits until there is something. The right to see the run is decided for each viewer; reading and rendering is shared.
func (c *Console) live(w http.ResponseWriter, r *http.Request) {
	v, ok := c.enter(w, r)
	if !ok {
		return
	}
	content, err := c.whatIsNew(r, v)
	if err != nil {
		c.fail(w, r, v, err)
		return
	}
	c.write(w, r, content, http.StatusOK)
}

func (c *Console) whatIsNew(r *http.Request, v *view) (templ.Component, error) {
	ctx, q := r.Context(), r.URL.Query()
	attempt, err := number(q, "attempt")
	if err != nil {
		return nil, err
	}
	from, err := number(q, "from")
	if err != nil {
		return nil, err
	}
	k := lookKey{org: v.who.Organization, base: v.base, run: r.PathValue("id"), attempt: int(attempt), from: from, seen: q.Get("seen"), wait: c.cfg.Wait}
	if _, _, err := v.plane.LogEnd(ctx, v.who, k.run, k.attempt); err != nil {
		return nil, err
	}
	if from < 0 {
		k.wait = 0
	}
	n, others, full, err := c.looks.share(ctx, k, c.cfg.Waiting, func(ctx context.Context, k lookKey) (update, error) { return look(ctx, v, k) })
	if err != nil {
		return nil, err
	}
	if n.live.again == "0" {
		again := min(time.Duration(others)*crowdEvery, fullEvery)
		if full {
			again = fullEvery
		}
		n.live.again = strconv.FormatInt(again.Milliseconds(), 10)
	}
	var parts templ.Component
	if n.live.seen != k.seen || n.waits {
		d, err := c.readRun(r, v)
		if err != nil {
			return nil, err
		}
		v.title, parts = d.title(), runParts(v, d)
	}
	return liveAnswer(v, n, parts), nil
}

// update is the finding of a look, the same for all who may see the run.
type update struct {
	attempt int
	latest  int // attempt of the run
	waits   bool
	live    liveData
	html    []byte // of steps and lines
}

// look waits until a run or its log has changed. Only the lines and the steps of its log become HTML here.
func look(ctx context.Context, v *view, k lookKey) (n update, err error) {
	var w api.Workflow
	for began := time.Now(); ; {
		if w, err = v.plane.Workflow(ctx, v.who, k.run); err != nil {
			return n, err
		}
		n.waits = w.StartedAt == nil && !w.State.Terminal()
		left := k.wait - time.Since(began)
		if n.waits {
			left = min(left, maxWait-time.Since(began))
		}
		if w.Revision != k.seen || k.from < 0 {
			left = 0
		}
		if k.from < 0 {
			break
		}
		page, err := v.plane.Logs(ctx, v.who, k.run, k.attempt, k.from, 1, max(0, min(left, stateEvery)))
		if err != nil {
			return n, err
		}
		if n.attempt = page.Attempt; len(page.Lines) > 0 || page.Done || left <= 0 {
			break
		}
	}
	l := logData{run: k.run, attempt: n.attempt, latest: max(w.Attempt, n.attempt)}
	done := k.from < 0
	next := k.from
	if !done {
		var lines []logLine
		if lines, next, done, err = readLines(ctx, v, k.run, n.attempt, k.from, logPage); err != nil {
			return n, err
		}
		l.groups = groups(lines, stepsOf(w, n.attempt), 0)
	}
	l.live = liveOf(w, done, next)
	n.latest, n.live = l.latest, l.live
	var b bytes.Buffer
	shared := &view{base: k.base} // nothing of one viewer goes to the others
	err = logUpdate(shared, l, stepsOf(w, n.attempt)).Render(ctx, &b)
	n.html = b.Bytes()
	return n, err
}

// lookKey has the values that viewers share in a look.
type lookKey struct {
	org, base, run, seen string
	attempt              int
	from                 int64
	wait                 time.Duration
}

// looks are those under way in this process. A look ends when nobody waits for it any more.
type looks struct {
	mu      sync.Mutex
	byKey   map[lookKey]*shared
	waiting int // viewers
}

type shared struct {
	done    chan struct{} // closed when update and err are there
	update  update
	err     error
	viewers int
	most    int // viewers so far
	cancel  context.CancelFunc
}

// share looks, or waits for the look of another viewer. others is how many shared it; full says that it did not wait, because too many others do.
func (l *looks) share(ctx context.Context, k lookKey, most int, look func(context.Context, lookKey) (update, error)) (n update, others int, full bool, err error) {
	l.mu.Lock()
	if full = k.wait > 0 && l.waiting >= most; full {
		k.wait = 0
	}
	if l.byKey == nil {
		l.byKey = map[lookKey]*shared{}
	}
	s := l.byKey[k]
	if s == nil {
		s = &shared{done: make(chan struct{})}
		l.byKey[k] = s
		// It must not end with the viewer who happened to be the first.
		var own context.Context
		own, s.cancel = context.WithTimeout(context.WithoutCancel(ctx), k.wait+lookMargin)
		go func() {
			defer s.cancel()
			s.update, s.err = unbroken(own, k, look)
			close(s.done)
			if s.err == nil && s.update.live.from > k.from {
				time.AfterFunc(linger, func() { l.forget(k, s) })
				return
			}
			l.forget(k, s)
		}()
	}
	s.viewers++
	s.most++
	if k.wait > 0 {
		l.waiting++
	}
	l.mu.Unlock()
	select {
	case <-s.done:
		n, err = s.update, s.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.wait > 0 {
		l.waiting--
	}
	if s.viewers--; s.viewers == 0 && err != nil {
		s.cancel()
		if l.byKey[k] == s {
			delete(l.byKey, k)
		}
	}
	return n, s.most - 1, full, err
}

// unbroken turns a panic into an error: no handler stands above a look, and one broken log must not end the process.
func unbroken(ctx context.Context, k lookKey, look func(context.Context, lookKey) (update, error)) (n update, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return look(ctx, k)
}

// forget ends the sharing of a look.
func (l *looks) forget(k lookKey, s *shared) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey[k] == s {
		delete(l.byKey, k)
	}
}

// written is HTML that templates of ours have made before.
func written(b []byte) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
