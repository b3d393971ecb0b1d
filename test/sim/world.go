// Package sim runs the real rules, poller, dispatcher, relay and reaper, and the protocol of a runner, through hours
// of faults in virtual time. After every step it checks that nothing has happened that must never happen. One seed is
// one schedule of work and faults, and always the same run: the schedule says what comes when, every other choice is
// drawn from the seed and from the question, and one part acts at a time. A part may be stopped in the middle of its
// work; the rest of the world then continues inside that call, which makes the races.
//
// # What is real
//
// The control plane with its HTTP handler, the stages, the relay, the tickets and the runner's client are
// the product's own. The queue, the launcher and the tasks are models: a task makes the calls of
// a runner in their order, obeys what it is answered, and keeps its own deadline. Calls between parts are
// function calls through a border, where the schedule's faults happen.
package sim

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/ticket"
)

// The parts, as faults and traces name them.
const (
	person    = "person"
	poll      = "poller"
	dispatch  = "dispatcher"
	relays    = "relay"
	reap      = "reaper"
	plane     = "control plane"
	runners   = "runner"
	launchers = "launcher"
	queues    = "queue"
	places    = "place of artifacts"
	maxNested = 3 // parts that may be stopped at once, each inside a call of another
)

// Violation is something that must never happen, and happened in a run.
type Violation struct {
	Invariant string
	Text      string
	At        time.Duration
	Step      int
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s: %s (at %s, step %d)", v.Invariant, v.Text, clockText(v.At), v.Step)
}

// world is one run.
type world struct {
	ctx   context.Context
	seed  uint64
	begun time.Time     // of virtual time
	clock time.Duration // since then; stands still during a step but where a part is stopped in it

	events eventHeap
	next   int // number of the next event
	steps  int
	nested int  // parts that are stopped in the middle of a call
	healed bool // no faults any more

	out     *Violation
	trace   func(string) // nil: it is not read
	applied []string     // the entries of the schedule that came, in words

	traps []*trap
	met   map[string]int              // how often each kind of entry came, and each mischief was done
	cuts  map[[2]string]time.Duration // until when nothing passes between two parts

	others map[string]*process // that never die: people, runners, schedules

	cp     *controlPlane
	stacks []*stack
	alone  bool     // the control plane is a server, which makes all passes itself
	pools  []string // whose settings change
	keys   *ticket.Keyring
	people *people
	truth  *truth
	guard  *guard

	sent    map[string]int  // deliveries, by id: how often each reached its receiver
	refused map[string]bool // for good
}

// event is something that happens at a time.
type event struct {
	at   time.Duration
	n    int
	name string
	do   func()
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].n < h[j].n
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *eventHeap) Push(x any) { *h = append(*h, x.(*event)) }

// Pop implements heap.Interface.
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// now is the time of every part whose clock is right.
func (w *world) now() time.Time { return w.begun.Add(w.clock) }

// after makes something happen later.
func (w *world) after(d time.Duration, name string, do func()) {
	w.next++
	heap.Push(&w.events, &event{at: w.clock + max(d, 0), n: w.next, name: name, do: do})
}

// runUntil takes the steps up to a time.
func (w *world) runUntil(end time.Duration) {
	for w.out == nil && len(w.events) > 0 && w.events[0].at <= end {
		w.step(heap.Pop(&w.events).(*event))
	}
	w.clock = max(w.clock, end)
	w.follow()
}

// step makes one event happen and checks the world after it. Two steps are never at the same time.
func (w *world) step(e *event) {
	w.clock = max(w.clock+time.Millisecond, e.at)
	w.follow()
	w.steps++
	e.do()
	if w.out == nil {
		w.check()
	}
}

// follow sets the clock of the bubble, which the product's own timers use, to the world's.
func (w *world) follow() {
	if d := time.Until(w.now()); d > 0 {
		<-time.After(d)
	}
}

// process is one life of a part. A dead process does nothing: its calls are not made.
type process struct {
	part   string
	mortal bool
	dead   bool
}

func begin(part string) *process { return &process{part: part, mortal: true} }

// stop stops a part while the rest of the world continues for a time.
func (w *world) stop(part string, d time.Duration) {
	if w.nested >= maxNested || w.out != nil {
		return
	}
	w.tell("%s stands still for %s", part, d)
	w.nested++
	w.runUntil(w.clock + d)
	w.nested--
	w.tell("%s goes on", part)
}

// fail records the first violation; the run ends with it.
func (w *world) fail(invariant, format string, args ...any) {
	if w.out == nil {
		w.out = &Violation{Invariant: invariant, Text: fmt.Sprintf(format, args...), At: w.clock, Step: w.steps}
		w.tell("VIOLATION %s", w.out)
	}
}

// tell writes a line of the trace.
func (w *world) tell(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%s %s%s", clockText(w.clock), strings.Repeat("  | ", w.nested), fmt.Sprintf(format, args...)))
	}
}

func clockText(d time.Duration) string {
	s := int(d / time.Second)
	return fmt.Sprintf("%02d:%02d:%02d.%03d", s/3600, s/60%60, s%60, d/time.Millisecond%1000)
}

// roll is a random source for one question: the same seed and the same question always give the same answer. So a run
// stays the same when something is taken out of its schedule.
func (w *world) roll(about ...any) *rand.Rand { return roll(w.seed, about...) }

func roll(seed uint64, about ...any) *rand.Rand {
	h := fnv.New64a()
	for _, a := range about {
		_, _ = fmt.Fprintf(h, "%v|", a)
	}
	return rand.New(rand.NewPCG(seed, h.Sum64())) //nolint:gosec // chance that can be repeated, not a secret
}

// between draws a duration.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return (low + time.Duration(r.Int64N(int64(high-low)+1))).Round(time.Millisecond)
}
