package ledger

import (
	"context"
	"sync"
	"time"
)

// waiting has the calls of this process that wait for a change under a name: a pool's id for work, or one of the
// names below. The notification is only a shortcut: every waiting call also looks again on its own.
type waiting struct {
	mu     sync.Mutex
	byName map[string]*callers
}

type callers struct {
	changed chan struct{} // closed at the next change
	n       int
}

// wait returns a channel that is closed at the next change under a name, and a function that ends the wait.
func (b *waiting) wait(name string) (<-chan struct{}, func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byName == nil {
		b.byName = map[string]*callers{}
	}
	g := b.byName[name]
	if g == nil {
		g = &callers{changed: make(chan struct{})}
		b.byName[name] = g
	}
	g.n++
	return g.changed, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if g.n--; g.n == 0 && b.byName[name] == g {
			delete(b.byName, name)
		}
	}
}

// StatesOf is the name under which a pool waits for one of its jobs to end.
func StatesOf(poolID string) string { return "states/" + poolID }

// RunOf is the name under which calls wait for a change of a workflow: of its state, or of one of its steps.
func RunOf(id string) string { return "run/" + id }

// LogOf is the name under which readers of a workflow's log wait for lines, or for its end.
func LogOf(id string) string { return "log/" + id }

// moved wakes the calls that wait for a workflow that a commit has written.
func (l *Ledger) moved(id string) {
	l.Notify(RunOf(id))
	l.Notify(LogOf(id))
}

// Notify wakes the calls of this process that wait under a name.
func (l *Ledger) Notify(name string) {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	if g := l.waiting.byName[name]; g != nil {
		close(g.changed)
		delete(l.waiting.byName, name)
	}
}

// lookAgain is how often a waiting call looks on its own, for changes by other processes. On Lambda other processes
// make nearly all changes, so this is half of the time that a long poll takes to pick work up. A look is one small
// read.
const lookAgain = 500 * time.Millisecond

// maxWait is the longest time that a call waits.
const maxWait = 20 * time.Second

// Await calls look until it reports a find, the wait (at most maxWait) is over, or ctx ends. It looks again when it
// is notified under the name, and every lookAgain. It begins to wait before the first look, and again before each
// look that follows a notification, so that it cannot miss a change.
func (l *Ledger) Await(ctx context.Context, name string, wait time.Duration, look func(notified bool) (bool, error)) error {
	over := time.NewTimer(min(wait, maxWait))
	defer over.Stop()
	changed, stop := l.waiting.wait(name)
	defer func() { stop() }()
	notified := true
	for {
		found, err := look(notified)
		if found || err != nil || wait <= 0 {
			return err
		}
		again := time.NewTimer(lookAgain)
		notified = false
		select {
		case <-changed:
			notified = true
			stop()
			changed, stop = l.waiting.wait(name)
		case <-again.C:
		case <-over.C:
			wait = 0
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		again.Stop()
		if wait <= 0 || err != nil {
			return err
		}
	}
}
