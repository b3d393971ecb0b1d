package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	troubleFor = 130 * time.Minute // for how long there is work and there are faults
	restBy     = 40 * time.Hour    // by when everything must have come to rest
	passEvery  = time.Minute
	settled    = 45 * time.Minute // after the last fault: people have set everything back, and passes have followed
)

// Outcome is the result of a run.
type Outcome struct {
	Violation *Violation
	Applied   []string // the entries of the schedule, in words
	Workflows int
	Steps     int
	Lasted    time.Duration // of virtual time
	States    map[string]int
	Met       map[string]int // how often what Everything names happened
}

// Run plays a schedule. It must be called in a bubble of testing/synctest, with the source of
// cryptographic randomness set from the same seed; trace, which may be nil, takes a line of each event.
func Run(ctx context.Context, seed uint64, schedule []Entry, trace func(string)) Outcome {
	w := &world{ctx: ctx, seed: seed, begun: time.Now(), trace: trace, cuts: map[[2]string]time.Duration{}, others: map[string]*process{}, met: map[string]int{}}
	w.guard = &guard{w: w}
	w.truth = newTruth(w)
	w.build()
	for _, e := range schedule {
		w.after(e.At, e.Kind, func() { w.apply(e) })
	}
	w.after(troubleFor, "heal", w.heal)
	for w.out == nil && w.clock < restBy && !w.quiet() {
		w.runUntil(w.clock + 10*time.Minute)
	}
	w.runUntil(w.clock + 2*passEvery) // the last ends are told
	if w.out == nil {
		w.end()
	}
	if w.out == nil {
		w.toldAll()
	}
	out := Outcome{
		Violation: w.out, Applied: w.applied, Workflows: len(w.truth.order), Steps: w.steps, Lasted: w.clock, States: map[string]int{}, Met: w.met,
	}
	for _, r := range w.truth.records {
		out.States[strings.TrimSpace(fmt.Sprintf("%s %s", r.State, r.Reason))]++
	}
	return out
}

// must panics if a run cannot even begin: there are no faults before the schedule begins.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// build makes the world of a seed.
func (w *world) build() {
	r := w.roll("world")
	w.truth.orgLimit = []int{3, 6, 150}[r.IntN(3)]
	big := w.seed%bigEvery == bigEvery/2
	if big {
		w.truth.orgLimit = crowd + 10
	}
	w.alone = r.IntN(2) == 0
	w.cp = newControlPlane(w)
	rules := w.cp.server().rules
	admin := must(rules.Bootstrap(w.ctx, "default"))
	w.guard.secret(admin)
	w.people = &people{w: w, admin: must(rules.Authenticate(w.ctx, admin)), ids: map[int]string{}, retried: map[string]int{}, settings: map[string]api.Workspace{}}

	pools := []string{"default"}
	if r.IntN(3) == 0 {
		pools = append(pools, "second")
	}
	spare := "spare" // it has no agent
	_ = must(rules.CreatePool(w.ctx, w.people.admin, "", api.PoolSettings{Name: &spare}))
	w.pools = append(slices.Clone(pools), spare)
	w.keys = must(ticket.NewKeyring(ticket.Key{ID: "k1", Secret: redact.New(strings.Repeat("k", ticket.KeySize))}))
	for i, name := range pools {
		target, several := wakeTarget(name), r.IntN(2) == 0
		settings := api.PoolSettings{WakeTarget: &target, AllowMultipleInstances: &several}
		if i > 0 {
			settings.Name = &name
			_ = must(rules.CreatePool(w.ctx, w.people.admin, "", settings))
		} else {
			_ = must(rules.UpdatePool(w.ctx, w.people.admin, name, settings))
		}
		if n := r.IntN(3) * 2; n > 0 {
			_ = must(rules.UpdatePool(w.ctx, w.people.admin, name, api.PoolSettings{Concurrency: &n}))
		}
		w.addStack(r, name, name)
		if r.IntN(2) == 0 { // another instance, which the pool allows or does not
			w.addStack(r, name, name+"-b")
		}
	}
	for i, name := range projects[1:] {
		_ = must(rules.CreateProject(w.ctx, w.people.admin, "", api.ProjectSettings{Name: &name, Parent: &projects[i]}))
	}
	for i := range 2 + r.IntN(3) {
		name := fmt.Sprintf("ws%d", i)
		pool := pools[r.IntN(len(pools))]
		if pool == pools[0] {
			pool = "" // it goes to the default pool, whichever that is
		}
		w.addWorkspace(name, pool, between(r, 12*time.Minute, 50*time.Minute), 1+r.IntN(3))
		w.people.workspaces = append(w.people.workspaces, name)
	}
	w.feeds(w.roll("inputs"))
	w.requires(w.roll("approvals"))
	if big {
		w.grow(r)
	}
	w.notifies(w.roll("notifications"))
	w.schedules()
	w.trees(w.roll("trees"))
	w.every(passEvery, 0, "pass", w.pass)
}

// every makes something happen again and again.
func (w *world) every(d, first time.Duration, name string, do func()) {
	w.after(first, name, func() {
		w.every(d, d, name, do)
		do()
	})
}

// clocks makes the control plane's passes.
const clocks = "schedule"

func (w *world) pass() {
	began := w.clock
	err := tells(w.ctx, w, w.other(clocks), plane, "pass", func(ctx context.Context) error {
		return w.cp.do("pass", func(p *controlplane.Plane) error {
			sum, err := p.Pass(ctx)
			if sum.Looked > 200 {
				w.met[metTimers]++
			}
			if sum.Moved > 0 {
				w.tell("pass: %d looked at, %d moved", sum.Looked, sum.Moved)
			}
			return err
		})
	})
	switch {
	case err != nil:
		w.tell("pass: %v", err)
	case w.clock == began:
		w.notHeldBack()
	}
}

// wakeTarget is what is woken for a pool.
func wakeTarget(pool string) string { return "dayfly-wake-" + pool }

// wake is a wake of the control plane: pools have work.
func (w *world) wake(targets []string) {
	for _, s := range w.stacks {
		if !slices.Contains(targets, wakeTarget(s.pool)) {
			continue
		}
		if s.wakeLost > 0 {
			s.wakeLost--
			continue
		}
		w.after(200*time.Millisecond, "wake", s.pollOnce)
	}
}

// heal ends all faults: from here on everything that is left must come to its end.
func (w *world) heal() {
	w.tell("no faults from here on")
	w.traps, w.cuts, w.healed = nil, map[[2]string]time.Duration{}, true
	w.cp.flaky, w.cp.down = false, 0
	w.after(settled, "look at the routes", w.truth.books.routed)
	w.after(settled, "give up", func() { // who has the plan may never come back
		for _, id := range w.truth.order {
			if r := w.truth.of(id); r.PlanOf != "" && r.State == workflow.Pending {
				w.people.cancelID(id)
			}
		}
	})
	w.after(settled, "decide on all plans", w.decideAll)
	for _, s := range w.stacks {
		s.wakeLost, s.stopLost, s.stopTwice = 0, 0, 0
		s.queue.doubles, s.queue.delays, s.queue.poison = 0, 0, 0
		s.launcher.refuse, s.launcher.slow, s.launcher.double, s.launcher.again = nil, 0, 0, 0
		for _, t := range s.launcher.tasks {
			t.hidden, t.cut = 0, 0
		}
	}
}
