package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// fault is one kind of fault. To add one, add a row.
type fault struct {
	name   string
	weight int
	apply  func(w *world, r *rand.Rand) string // does it and says what, in words
}

// Calls between parts, for faults that wait for one. An empty name fits any call.
var borders = []struct{ from, to, call string }{
	{poll, plane, "claim"}, {poll, plane, "queued"}, {poll, plane, "release"}, {poll, queues, "send"}, {poll, queues, "depth"},
	{poll, launchers, "launch"}, {poll, plane, "launches"},
	{dispatch, queues, "receive"}, {dispatch, plane, "states"}, {dispatch, launchers, "launch"}, {dispatch, plane, "launches"},
	{dispatch, queues, "delete"}, {dispatch, queues, "hide"},
	{relays, plane, "start"}, {relays, plane, "spec"}, {relays, plane, "heartbeat"}, {relays, plane, "logs"}, {relays, plane, "result"},
	{runners, relays, "start"}, {runners, relays, "spec"}, {runners, relays, "heartbeat"}, {runners, relays, "result"},
	{reap, launchers, "list"}, {reap, plane, "held"}, {reap, plane, "states"}, {reap, launchers, "describe"},
	{reap, launchers, "stop"}, {reap, plane, "lost"}, {clocks, plane, "pass"}, {person, plane, "submit"}, {person, plane, "cancel"},
	{person, plane, "decide"}, {person, plane, "tree"}, {runners, relays, "artifacts"}, {runners, relays, "input"}, {runners, places, "put"},
}

// immortal are the parts whose clocks never stop. Their deaths, if they die, are faults of their own.
var immortal = []string{runners, person, clocks}

// storeCalls are calls of the control plane whose commits faults wait for.
var storeCalls = []string{"claim", "queued", "release", "launches", "start", "heartbeat", "logs", "result", "lost", "pass", "submit", "cancel", "decide", "tree", "artifacts"}

// patient are the parts whose callers wait for long.
var patient = []string{"claim", "queued", "launches", "lost", "pass", "submit", "cancel", "decide", "tree"}

// atBorder sets a trap for one call.
func atBorder(verb string, do mischief, low, high time.Duration) func(w *world, r *rand.Rand) string {
	return func(w *world, r *rand.Rand) string {
		at := borders[r.IntN(len(borders))]
		for (do == crashBefore || do == crashAfter || do == stopBefore || do == stopAfter) && slices.Contains(immortal, at.from) {
			at = borders[r.IntN(len(borders))]
		}
		t := trap{from: at.from, to: at.to, call: at.call, do: do, skip: r.IntN(3), left: 1 + r.IntN(2)}
		if high > 0 {
			t.last = between(r, low, high)
		}
		w.set(t)
		if t.last > 0 {
			verb := fmt.Sprintf("%s for %s", verb, t.last)
			return fmt.Sprintf("%d x %s at %s -> %s %s", t.left, verb, at.from, at.to, at.call)
		}
		return fmt.Sprintf("%d x %s at %s -> %s %s", t.left, verb, at.from, at.to, at.call)
	}
}

// inStore sets a trap for one commit of any of some calls; with no names, of all calls.
func inStore(verb string, do mischief, low, high time.Duration, calls ...string) func(w *world, r *rand.Rand) string {
	return func(w *world, r *rand.Rand) string {
		if len(calls) == 0 {
			calls = storeCalls
		}
		t := trap{from: plane, to: "store", call: calls[r.IntN(len(calls))], do: do, skip: r.IntN(3), left: 1 + r.IntN(2)}
		if high > 0 {
			t.last = between(r, low, high)
		}
		w.set(t)
		return fmt.Sprintf("%d x %s in %s (%s)", t.left, verb, t.call, t.last)
	}
}

// cutOff separates two parts for a while.
func cutOff(high time.Duration, pairs ...[2]string) func(w *world, r *rand.Rand) string {
	return func(w *world, r *rand.Rand) string {
		d := between(r, 20*time.Second, high)
		for _, p := range pairs {
			w.cuts[p] = max(w.cuts[p], w.clock+d)
		}
		return fmt.Sprintf("%v cut off for %s", pairs, d)
	}
}

func anyStack(w *world, r *rand.Rand) *stack { return w.stacks[r.IntN(len(w.stacks))] }

// aTask picks a task that lives, a running one where there is one.
func aTask(w *world, r *rand.Rand, f func(*task) string) string {
	var live []*task
	for _, s := range w.stacks {
		for _, t := range s.launcher.tasks {
			if t.live() {
				live = append(live, t)
			}
		}
	}
	if len(live) == 0 {
		return "no task to meet"
	}
	return f(live[r.IntN(len(live))])
}

func refuseLaunches(reason workflow.Reason, onlyOne bool) func(w *world, r *rand.Rand) string {
	return func(w *world, r *rand.Rand) string {
		s := anyStack(w, r)
		f := refusal{until: w.clock + between(r, 30*time.Second, 15*time.Minute), as: launcher.Refusal{Reason: reason, Text: "not now"}}
		if onlyOne {
			f.placement = s.placement[0]
		}
		s.launcher.refuse = append(s.launcher.refuse, f)
		return fmt.Sprintf("launches of %s at %q refused (%s) for %s", s.name, f.placement, reason, f.until-w.clock)
	}
}

func count(what string, n func(s *stack) *int) func(w *world, r *rand.Rand) string {
	return func(w *world, r *rand.Rand) string {
		s := anyStack(w, r)
		*n(s) += 1 + r.IntN(3)
		return fmt.Sprintf("%s of %s", what, s.name)
	}
}

// faults is the table.
var faults = append(settings, []fault{
	{"crash before a call", 4, atBorder("crash before", crashBefore, 0, 0)},
	{"crash after a call", 4, atBorder("crash after", crashAfter, 0, 0)},
	{"stop before a call", 4, atBorder("stop before", stopBefore, 5*time.Second, 15*time.Minute)},
	{"stop after a call", 4, atBorder("stop after", stopAfter, 5*time.Second, 15*time.Minute)},
	{"lose a request", 3, atBorder("lose request", loseRequest, 0, 0)},
	{"lose an answer", 4, atBorder("lose answer", loseAnswer, 0, 0)},
	{"delay a request", 4, atBorder("delay request", delayRequest, time.Second, 20*time.Minute)},
	{"repeat a request", 3, atBorder("repeat", repeat, 0, 0)},

	{"store is busy", 3, inStore("busy", storeBusy, 0, 0)},
	{"store loses a commit", 3, inStore("lost commit", storeLostRequest, 0, 0)},
	{"store loses an answer", 2, inStore("lost answer", storeLostAnswer, 0, 0)},
	{"control plane stops for a moment before a commit", 5, inStore("stop before commit", storeStop, time.Second, 25*time.Second)},
	{"control plane stops for long before a commit", 7, inStore("stop before commit", storeStop, 25*time.Second, 8*time.Minute, patient...)},
	{"control plane dies before a commit", 3, inStore("death before commit", storeCrashBefore, 0, 0)},
	{"control plane dies after a commit", 3, inStore("death after commit", storeCrashAfter, 0, 0)},
	{"store is flaky for a while", 2, func(w *world, r *rand.Rand) string {
		d := between(r, 10*time.Second, 10*time.Minute)
		w.cp.flaky = true
		w.after(d, "store is well", func() { w.cp.flaky = false })
		return fmt.Sprintf("the store is flaky for %s", d)
	}},

	{"runners cut off from the relay", 2, cutOff(14*time.Minute, [2]string{runners, relays})},
	{"relay cut off from the control plane", 2, cutOff(14*time.Minute, [2]string{relays, plane})},
	{"stack cut off from the control plane", 2, cutOff(14*time.Minute, [2]string{poll, plane}, [2]string{dispatch, plane}, [2]string{reap, plane})},
	{"reaper cut off from the launcher", 2, cutOff(14*time.Minute, [2]string{reap, launchers})},
	{"control plane away", 2, cutOff(14*time.Minute, [2]string{poll, plane}, [2]string{dispatch, plane}, [2]string{reap, plane},
		[2]string{relays, plane}, [2]string{person, plane}, [2]string{clocks, plane})},
	{"a task cut off from the relay", 8, func(w *world, r *rand.Rand) string {
		d := between(r, time.Minute, 30*time.Minute)
		return aTask(w, r, func(t *task) string {
			t.cut = w.clock + d
			return fmt.Sprintf("%s cut off from the relay for %s", t.ref, d)
		})
	}},

	{"message twice", 4, count("messages twice", func(s *stack) *int { return &s.queue.doubles })},
	{"message late", 3, func(w *world, r *rand.Rand) string {
		s := anyStack(w, r)
		s.queue.delays, s.queue.delay = s.queue.delays+1+r.IntN(2), between(r, time.Second, 20*time.Minute)
		return fmt.Sprintf("messages of %s come %s late", s.name, s.queue.delay)
	}},
	{"dead letters", 2, count("dead letters", func(s *stack) *int { return &s.queue.poison })},
	{"wake lost", 2, count("lost wakes", func(s *stack) *int { return &s.wakeLost })},
	{"stop event lost", 3, count("lost stop events", func(s *stack) *int { return &s.stopLost })},
	{"stop event twice", 2, count("stop events twice", func(s *stack) *int { return &s.stopTwice })},

	{"launches throttled", 2, refuseLaunches(workflow.ReasonThrottled, false)},
	{"no capacity", 2, refuseLaunches(workflow.ReasonCapacity, false)},
	{"no capacity at the first placement", 2, refuseLaunches(workflow.ReasonCapacity, true)},
	{"capacity comes and goes while a dispatcher stands still", 6, func(w *world, r *rand.Rand) string {
		d := between(r, time.Minute, 4*time.Minute)
		w.set(trap{from: dispatch, to: launchers, call: "launch", do: stopBefore, skip: r.IntN(2), last: d, then: func() {
			for _, s := range w.stacks {
				s.launcher.refuse = append(s.launcher.refuse, refusal{
					placement: s.placement[0], until: w.clock + d - time.Second,
					as: launcher.Refusal{Reason: workflow.ReasonCapacity, Text: "not here, not now"},
				})
			}
		}})
		return fmt.Sprintf("a dispatcher will stand still before a launch for %s, and the first placement have no capacity for that time", d)
	}},
	{"launch answers lost, then a crash", 4, func(w *world, r *rand.Rand) string {
		s := anyStack(w, r)
		w.set(trap{from: dispatch, to: launchers, call: "launch", do: loseAnswer, left: 1})
		w.set(trap{from: dispatch, to: launchers, call: "launch", do: crashBefore, left: 1})
		return "launch answers of " + s.name + " lost and the dispatcher dies"
	}},
	{"a poller is not called for a while", 4, func(w *world, r *rand.Rand) string {
		s, d := anyStack(w, r), between(r, 2*time.Minute, 10*time.Minute)
		for range 5 { // rather one that polls
			if s.polled > w.clock-2*pollEvery {
				break
			}
			s = anyStack(w, r)
		}
		s.uncalled = w.clock + d
		return fmt.Sprintf("the poller of %s is not called for %s", s.name, d)
	}},
	{"slow provisioning", 2, count("slow tasks", func(s *stack) *int { return &s.launcher.slow })},
	{"two runners in a task", 3, count("tasks with two runners", func(s *stack) *int { return &s.launcher.double })},
	{"a runner is started again", 2, count("restarts", func(s *stack) *int { return &s.launcher.again })},
	{"somebody retries what has ended", 3, func(w *world, r *rand.Rand) string {
		return w.people.retry(r)
	}},
	{"somebody submits again", 3, func(w *world, r *rand.Rand) string { return w.people.repeat(r.IntN(100), false) }},
	{"somebody uses a key twice", 2, func(w *world, r *rand.Rand) string { return w.people.repeat(r.IntN(100), true) }},
	{"a task dies", 4, func(w *world, r *rand.Rand) string {
		return aTask(w, r, func(t *task) string {
			t.kill("it died")
			return t.ref + " dies"
		})
	}},
	{"the launcher does not see a task", 4, func(w *world, r *rand.Rand) string {
		return aTask(w, r, func(t *task) string { return t.hide(between(r, 5*time.Second, maxHidden)) })
	}},
	{"a zone is cut off", 5, func(w *world, r *rand.Rand) string {
		d, hidden := between(r, 3*time.Minute, 14*time.Minute), between(r, maxHidden/2, maxHidden)
		return aTask(w, r, func(t *task) string {
			t.cut = max(t.cut, w.clock+d)
			skip, still := r.IntN(4), between(r, time.Minute, 5*time.Minute)
			w.after(d-maxHidden, "hidden", func() {
				t.hide(hidden)
				if skip < 2 { // and who has looked in vain thinks about it for a while
					w.set(trap{from: reap, to: launchers, call: "describe", do: stopAfter, skip: skip, last: still})
				}
			})
			return fmt.Sprintf("%s cut off from the relay for %s, and for a part of that not listed", t.ref, d)
		})
	}},
}...)

// Everything names all faults that a schedule may have, as Outcome.Met does: entries, and what traps did.
func Everything() []string {
	out := []string{"submit", "cancel", metHeld, metTimers, metRefused, metTakeover, metDirect, "pool is gone", "workspace is gone", metApplied, metByRule, metRejects, metExpired, metStale, metUnasked, metDelivered, metSentTwice, metRefusedBy, metScheduled, metTree, metTreeFail, metTreeEnd, metTreePlan, metFed, metFetched, metLacks}
	for _, f := range faults {
		if f.weight > 0 {
			out = append(out, f.name)
		}
	}
	for m := crashBefore; m <= storeCrashAfter; m++ {
		out = append(out, m.String())
	}
	return out
}

// Entry is one line of a schedule.
type Entry struct {
	Index int // its place in the schedule of its seed
	At    time.Duration
	Kind  string // submit, cancel, or the name of a fault
	Of    int    // with cancel: the index of what is cancelled
}

// Schedule is what happens under a seed.
func Schedule(seed uint64) []Entry {
	r := roll(seed, "schedule")
	var all []Entry
	add := func(e Entry) int {
		e.Index = len(all)
		all = append(all, e)
		return e.Index
	}
	for range 12 + r.IntN(10) {
		at := between(r, 0, troubleFor*2/3)
		n := add(Entry{At: at, Kind: "submit"})
		if r.IntN(4) == 0 {
			add(Entry{At: at + between(r, 0, 3*time.Minute<<r.IntN(4)), Kind: "cancel", Of: n})
		}
	}
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	for range r.IntN(80) {
		x := r.IntN(total)
		i := slices.IndexFunc(faults, func(f fault) bool { x -= f.weight; return x < 0 })
		add(Entry{At: between(r, 0, troubleFor-time.Minute), Kind: faults[i].name})
	}
	return all
}

// apply carries out an entry of the schedule.
func (w *world) apply(e Entry) {
	if w.healed {
		return
	}
	r := w.roll("entry", e.Index)
	text := ""
	switch e.Kind {
	case "submit":
		text = w.people.submit(e.Index, r)
	case "cancel":
		w.people.cancel(e.Of)
		text = fmt.Sprintf("cancel what entry %d submitted", e.Of)
	default:
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == e.Kind })
		text = faults[i].apply(w, r)
	}
	w.met[e.Kind]++
	w.applied = append(w.applied, fmt.Sprintf("%3d  %s  %s", e.Index, clockText(w.clock), text))
	w.tell("ENTRY %d: %s", e.Index, text)
}
