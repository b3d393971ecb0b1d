package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// mode is a way in which a poller learns of work.
type mode struct {
	name    string
	window  string // PollingWindow of the pool's stack
	trigger trigger
	// The aims, from the sending of the submit on: with functions that are warm, and with a dispatcher that is not, as
	// in a quiet pool.
	p50, p95, quiet time.Duration
}

// trigger is what invokes the poller.
type trigger int

const (
	byWake     trigger = iota // the control plane, and the schedule each minute
	bySchedule                // the schedule each minute
	byTick                    // the schedule, when this program fires it
)

var (
	wake   = mode{name: "wake", window: "0s", trigger: byWake, p50: 500 * time.Millisecond, p95: time.Second, quiet: 600 * time.Millisecond}
	window = mode{name: "window", window: "60s", trigger: bySchedule, p50: time.Second, p95: 2 * time.Second, quiet: time.Second}
	// ownShare is the aim for everything but RunTask, with warm functions that are woken.
	ownShare = 200 * time.Millisecond
	once     = mode{name: "one-shot", window: "0s", trigger: byTick}
)

func (m mode) String() string {
	switch m.trigger {
	case byWake:
		return "woken by the control plane (the default)"
	case bySchedule:
		return "a window of " + m.window + " each minute, on the machine's clock; no wakes"
	case byTick:
	}
	return "one pass each minute, no wakes. Measured from the schedule on; the wait for it is any part of a minute, and is not included here"
}

// load is one row: so many workflows at once, so many times.
type load struct {
	pending, times int
	cold           cold
	rest           time.Duration // before, at least: the buckets of ECS fill meanwhile
	judged         bool
}

// cold is which functions have no environment.
type cold int

const (
	warm       cold = iota
	quiet           // no job for a while: poller and control plane run each minute, the dispatcher was not needed, and every connection is new
	everything      // as after a deployment
)

func (c cold) String() string { return [...]string{"", ", dispatcher cold", ", all cold"}[c] }

func (l load) String() string { return fmt.Sprintf("%3d pending%-17s", l.pending, l.cold) }

func loads(quick bool, by trigger) []load {
	out := []load{
		{pending: 1, times: 40, rest: 500 * time.Millisecond, judged: true},
		{pending: 1, times: 20, rest: 500 * time.Millisecond, judged: true, cold: quiet},
		{pending: 1, times: 20, rest: 500 * time.Millisecond, judged: true, cold: everything},
		{pending: 20, times: 8, rest: 2 * time.Second},
		{pending: 200, times: 2, rest: 12 * time.Second},
	}
	if by == bySchedule {
		// A poller that is killed is not there until the next minute, so none is. The pauses spread the others over
		// some minutes, with whatever lies between two windows.
		out = slices.DeleteFunc(out, func(l load) bool { return l.cold == everything })
		out[0].times, out[0].rest = 60, 2500*time.Millisecond
	}
	if quick {
		for i := range out {
			out[i].times = (out[i].times + 3) / 4
		}
	}
	return out
}

// pickup measures one mode.
func pickup(ctx context.Context, b *bench, m mode) error {
	b.out.heading("Submitted to RunTask accepted, %s: %s", m.name, m)
	for _, l := range []latency{nothing, stated} {
		if b.single && l.name == nothing.name {
			continue
		}
		if err := pickupWith(ctx, b, m, l); err != nil {
			return fmt.Errorf("latency %s: %w", l.name, err)
		}
	}
	return nil
}

func pickupWith(ctx context.Context, b *bench, m mode, l latency) error {
	w, err := open(ctx, b, l, map[string]string{"PollingWindow": m.window})
	if err != nil {
		return err
	}
	defer w.Close()
	defer w.problems(b)
	if err := w.begin(ctx, m.trigger); err != nil {
		return err
	}
	for _, one := range loads(b.quick, m.trigger) {
		if b.single && one.pending > 1 {
			continue
		}
		took, err := w.measure(ctx, one, m.trigger)
		if err != nil {
			return fmt.Errorf("%d pending: %w", one.pending, err)
		}
		what := fmt.Sprintf("%s, latency %s", one, l.name)
		b.row(what, took, fmt.Sprintf("  (%d workflows; load average %s)", len(took), figures.LoadAverage()))
		if m.trigger == byTick {
			b.row("    and the wait for the schedule", spread(took, time.Minute), "")
		} else if one.pending == 1 {
			b.judge(m, l, one, what, took)
		}
	}
	if b.why {
		return w.trace(ctx, b, m.trigger)
	}
	return nil
}

// judge holds a row to its aims, and says what people wait for.
func (b *bench) judge(m mode, l latency, one load, what string, took figures.Sample) {
	half, most := took.At(0.5), took.At(0.95)
	own := half - l.calls["ecs.RunTask"]
	if l.name != nothing.name {
		b.out.line("    p50 without RunTask %s; submit to first line, with a start of Fargate of %s and %s of the runner: %s",
			seconds(own), seconds(fargateStart), seconds(b.firstLine), seconds(half+fargateStart+b.firstLine))
	}
	if !one.judged || m.p50 == 0 {
		return
	}
	aim := m.p50
	if one.cold == quiet {
		aim = m.quiet
	}
	if one.cold != everything {
		b.out.judge(half <= aim, m.name+", "+what+", p50", seconds(half), "<= "+seconds(aim))
		b.out.judge(most <= m.p95, m.name+", "+what+", p95", seconds(most), "<= "+seconds(m.p95))
	}
	if one.cold == warm && m.trigger == byWake {
		b.out.judge(own <= ownShare, m.name+", "+what+", p50 without RunTask", seconds(own), "<= "+seconds(ownShare))
	}
}

// row prints one sample.
func (b *bench) row(what string, s figures.Sample, more string) {
	b.out.line("%-49s p50 %s  p95 %s  p99 %s  max %s%s", what, seconds(s.At(0.5)), seconds(s.At(0.95)), seconds(s.At(0.99)), seconds(s.At(1)), more)
}

// spread adds to each duration a wait, as even over the period as there are durations.
func spread(s figures.Sample, period time.Duration) figures.Sample {
	out := slices.Clone(s)
	for i, at := range rand.Perm(len(s)) { //nolint:gosec // an order
		out[i] += time.Duration((float64(at) + 0.5) / float64(len(s)) * float64(period))
	}
	return out
}

// measure submits so many at once, so many times, after pauses of different lengths.
func (w *world) measure(ctx context.Context, l load, by trigger) (all figures.Sample, err error) {
	if l.cold != everything {
		if _, err := w.pick(ctx, 1, by); err != nil {
			return nil, err
		}
	}
	for range l.times {
		if err := wait.For(ctx, l.rest+rand.N(time.Second)); err != nil { //nolint:gosec // a pause
			return nil, err
		}
		w.cool(l.cold)
		took, err := w.pick(ctx, l.pending, by)
		if err != nil {
			return nil, err
		}
		all = append(all, took...)
	}
	return all, nil
}

// most is how long a pick-up may take: a minute for the schedule, and the launches.
const most = 3 * time.Minute

// pick submits n workflows, each to a workspace of its own, and returns how long each of them took since its submit was
// sent; where the schedule is fired by hand, from that on.
func (w *world) pick(ctx context.Context, n int, by trigger) (figures.Sample, error) {
	names, err := w.workspaces(ctx, n)
	if err != nil {
		return nil, err
	}
	since, err := w.submit(ctx, names)
	if err != nil {
		return nil, err
	}
	if by == byTick {
		now := time.Now()
		for id := range since {
			since[id] = now
		}
		if err := w.Tick(w.Pool, w.schedule); err != nil {
			return nil, err
		}
	}
	return w.await(ctx, since, most)
}
