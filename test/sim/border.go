package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/client"
)

// errLost is the error of a caller that got no answer.
var errLost = fmt.Errorf("%w: the connection broke", client.ErrUnreachable)

// What a trap does to the call that it waits for.
type mischief int

const (
	crashBefore mischief = iota
	crashAfter
	stopBefore
	stopAfter
	loseRequest
	loseAnswer
	delayRequest // it arrives later, when its caller has given up
	repeat       // it is done twice

	// In the store.
	storeBusy
	storeLostRequest
	storeLostAnswer
	storeStop // between what was read and the commit
	storeCrashBefore
	storeCrashAfter
)

var mischiefs = [...]string{
	"crash before a call", "crash after a call", "stop before a call", "stop after a call", "lost request", "lost answer",
	"late request", "repeated request", "busy store", "lost commit", "commit without an answer", "stop before a commit",
	"death before a commit", "death after a commit",
}

func (m mischief) String() string { return "trap: " + mischiefs[m] }

// trap waits for a call.
type trap struct {
	from, to, call string // empty fits any
	do             mischief
	last           time.Duration // how long, where that is a question
	then           func()        // what comes with it; nil: nothing
	skip           int           // how many calls it lets pass before
	left           int           // how many calls it meets
}

func (w *world) set(t trap) {
	t.left = max(t.left, 1)
	w.traps = append(w.traps, &t)
}

// sprung returns the first trap that waits for a call.
func (w *world) sprung(p *process, to, call string, inStore bool) *trap {
	from := p.part
	for i, t := range w.traps {
		if (t.do >= storeBusy) != inStore || t.from != "" && t.from != from || t.to != "" && t.to != to || t.call != "" && t.call != call {
			continue
		}
		if !p.mortal && (t.do == stopBefore || t.do == stopAfter || t.do == crashBefore || t.do == crashAfter) {
			continue // a runner's clock never stops, and its death is a fault of its own
		}
		if t.skip > 0 {
			t.skip--
			continue
		}
		w.met[t.do.String()]++
		if t.then != nil {
			t.then()
		}
		if t.left--; t.left == 0 {
			w.traps = slices.Delete(w.traps, i, i+1)
		}
		return t
	}
	return nil
}

func (w *world) cut(a, b string) bool {
	return w.clock < w.cuts[[2]string{a, b}] || w.clock < w.cuts[[2]string{b, a}]
}

// ask makes one call from one part to another, with what the schedule does to it.
func ask[T any](ctx context.Context, w *world, p *process, to, call string, do func(ctx context.Context) (T, error)) (out T, err error) {
	var none T
	from := p.part
	if p.dead || w.out != nil {
		return none, errLost // or the run is over: let everybody go home
	}
	if w.cut(from, to) {
		w.tell("%s -> %s %s: cut off", from, to, call)
		return none, errLost
	}
	t := w.sprung(p, to, call, false)
	if t == nil {
		out, err = do(ctx)
		w.told(from, to, call, err)
		return out, err
	}
	switch t.do { //nolint:exhaustive // the others are the store's
	case crashBefore:
		w.tell("%s -> %s %s: crashes before", from, to, call)
		p.dead = true
		return none, errLost
	case crashAfter:
		_, err = do(ctx)
		w.told(from, to, call, err)
		w.tell("%s -> %s %s: crashes after", from, to, call)
		p.dead = true
		return none, errLost
	case stopBefore:
		w.stop(from, t.last)
		out, err = do(ctx)
	case stopAfter:
		out, err = do(ctx)
		w.told(from, to, call, err)
		w.stop(from, t.last)
	case loseRequest:
		w.tell("%s -> %s %s: lost", from, to, call)
		return none, errLost
	case loseAnswer:
		_, err = do(ctx)
		w.told(from, to, call, err)
		w.tell("%s -> %s %s: answer lost", from, to, call)
		return none, errLost
	case delayRequest:
		w.tell("%s -> %s %s: takes %s", from, to, call, t.last)
		w.after(t.last, "late "+call, func() {
			_, err := do(w.ctx)
			w.told("late "+from, to, call, err)
		})
		return none, errLost
	case repeat:
		_, err = do(ctx)
		w.told(from, to, call, err)
		out, err = do(ctx)
	}
	w.told(from, to, call, err)
	return out, err
}

// tells makes a call without an answer.
func tells(ctx context.Context, w *world, p *process, to, call string, do func(ctx context.Context) error) error {
	_, err := ask(ctx, w, p, to, call, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

func (w *world) told(from, to, call string, err error) {
	switch {
	case w.trace == nil:
	case err != nil:
		w.tell("%s -> %s %s: %v", from, to, call, err)
	default:
		w.tell("%s -> %s %s", from, to, call)
	}
}

// other is a process that never dies.
func (w *world) other(part string) *process {
	if w.others[part] == nil {
		w.others[part] = &process{part: part}
	}
	return w.others[part]
}
