package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	queuedLease = workflow.QueuedLease
	stopTimeout = 2 * time.Minute // between being told to stop and being killed
	listed      = 2 * time.Hour   // for how long an ended task is listed
)

// simLauncher is a launcher: a request is a task, told apart by attempt and placement.
type simLauncher struct {
	w     *world
	s     *stack
	tasks []*task // in the order of their launch
	// refuse is why launches are refused until a time, at a placement or (empty) at all of them.
	refuse []refusal
	slow   int // tasks whose provisioning takes long
	double int // tasks in which two runners begin
	again  int // tasks whose runner is started again when it has died
}

type refusal struct {
	placement string
	until     time.Duration
	as        launcher.Refusal
}

// task is one task.
type task struct {
	l         *simLauncher
	n         int
	request   launcher.Request
	ref       string
	phase     launcher.Phase
	created   time.Time
	since     time.Duration
	boots     []*boot
	hidden    time.Duration // until when lists do not show it; never for long, and not again soon
	cut       time.Duration // until when its runners do not reach the relay
	exit      *int
	text      string
	told      bool // to stop
	ended     time.Duration
	restarts  int
	unowned   time.Duration // since when it is unwanted; 0: it is wanted
	unownedAt int           // the sweeps by then
}

func (t *task) live() bool { return t.phase != launcher.Stopped }

func (t *task) view() launcher.Task {
	return launcher.Task{
		Ref: t.ref, Workflow: t.request.Workflow, Attempt: t.request.Attempt, Phase: t.phase,
		CreatedAt: t.created, ExitCode: t.exit, Text: t.text,
	}
}

// launch carries out a request.
func (l *simLauncher) launch(r launcher.Request) (launcher.Task, error) {
	l.w.guard.scan("a launch request", fmt.Sprintf("%+v", r))
	for _, f := range l.refuse {
		if l.w.clock < f.until && f.as.Reason == workflow.ReasonThrottled {
			out := f.as
			return launcher.Task{}, &out
		}
	}
	for _, t := range l.tasks {
		if t.request.Workflow == r.Workflow && t.request.Attempt == r.Attempt && t.request.Placement == r.Placement {
			return t.view(), nil
		}
	}
	for _, f := range l.refuse {
		if l.w.clock < f.until && (f.placement == "" || f.placement == r.Placement) {
			out := f.as
			return launcher.Task{}, &out
		}
	}
	t := &task{
		l: l, n: len(l.tasks) + 1, request: r, phase: launcher.Starting, created: l.s.now(), since: l.w.clock,
		ref: fmt.Sprintf("task-%s-%03d", l.s.name, len(l.tasks)+1),
	}
	l.tasks = append(l.tasks, t)
	provision := between(l.w.roll("provision", r.Workflow, r.Attempt, r.Placement), time.Second, 50*time.Second)
	if l.slow > 0 {
		l.slow--
		provision += 12 * time.Minute
	}
	l.w.tell("%s begins for %s/%d at %s, provisioning for %s", t.ref, r.Workflow, r.Attempt, r.Placement, provision)
	l.w.after(provision, "provisioned", func() {
		if t.phase != launcher.Starting {
			return
		}
		t.phase = launcher.Running
		t.run()
		if l.double > 0 {
			l.double--
			t.run()
		}
	})
	return t.view(), nil
}

// maxHidden is how long a launcher's lists may lack a living task: they catch up, and do not fall behind again at
// once. Acting on two looks, a minute apart, relies on that.
const maxHidden = 45 * time.Second

// hide keeps a task out of the lists for a while.
func (t *task) hide(d time.Duration) string {
	if !t.live() || t.l.w.healed || t.hidden > 0 && t.l.w.clock < t.hidden+5*time.Minute {
		return t.ref + " stays listed"
	}
	t.hidden = t.l.w.clock + d
	return fmt.Sprintf("%s is not listed for %s", t.ref, d)
}

// run begins a runner in a task.
func (t *task) run() {
	b := newBoot(t, len(t.boots))
	t.boots = append(t.boots, b)
	t.l.w.tell("runner %s begins in %s", b.short(), t.ref)
	b.start()
}

// over is called when a runner has ended, with everything that it had started.
func (t *task) over(code int, text string) {
	for _, b := range t.boots {
		if !b.gone {
			return
		}
	}
	if code != 0 && t.l.again > 0 && !t.told {
		t.l.again--
		t.restarts++
		t.l.w.tell("%s: its runner has died and is started again", t.ref)
		t.run()
		return
	}
	t.phase = launcher.Stopping
	for _, b := range t.boots {
		code = max(code, b.code)
	}
	t.l.w.after(between(t.l.w.roll("proof", t.ref), 200*time.Millisecond, 4*time.Second), "task over", func() {
		t.stopped(code, text)
	})
}

func (t *task) stopped(code int, text string) {
	if !t.live() {
		return
	}
	t.phase, t.exit, t.text, t.ended = launcher.Stopped, &code, text, t.l.w.clock
	t.l.w.tell("%s has stopped with %d: %s", t.ref, code, text)
	t.l.s.ended(t.view())
}

// kill ends everything in a task at once.
func (t *task) kill(text string) {
	if !t.live() {
		return
	}
	if len(t.boots) == 0 {
		t.phase = launcher.Stopping
		t.l.w.after(time.Second, "task over", func() { t.stopped(137, text) })
		return
	}
	for _, b := range t.boots {
		b.code = 137
		b.gone = true
		b.endEngine()
	}
	t.over(137, text)
}

// seen is the launcher as the reaper calls it.
type seen struct {
	l *simLauncher
	p *process
}

// List implements reaper.Launcher.
func (v seen) List(ctx context.Context) ([]launcher.Task, error) {
	return ask(ctx, v.l.w, v.p, launchers, "list", func(context.Context) ([]launcher.Task, error) {
		var out []launcher.Task
		for _, t := range v.l.tasks {
			if v.l.w.clock >= t.hidden && (t.live() || v.l.w.clock-t.ended < listed) {
				out = append(out, t.view())
			}
		}
		return out, nil
	})
}

// Describe implements reaper.Launcher.
func (v seen) Describe(ctx context.Context, refs ...string) ([]launcher.Task, error) {
	return ask(ctx, v.l.w, v.p, launchers, "describe", func(context.Context) ([]launcher.Task, error) {
		var out []launcher.Task
		for _, t := range v.l.tasks {
			if v.l.w.clock >= t.hidden && slices.Contains(refs, t.ref) && (t.live() || v.l.w.clock-t.ended < listed) {
				out = append(out, t.view())
			}
		}
		return out, nil
	})
}

// Stop implements reaper.Launcher.
func (v seen) Stop(ctx context.Context, ref, why string) error {
	return tells(ctx, v.l.w, v.p, launchers, "stop", func(context.Context) error {
		t := v.l.find(ref)
		if t == nil || !t.live() {
			return launcher.ErrNotFound
		}
		v.l.checkStop(t, why)
		if t.told {
			return nil
		}
		t.told = true
		if len(t.boots) == 0 {
			t.kill("stopped before it ran: " + why)
			return nil
		}
		t.phase = launcher.Stopping
		for _, b := range t.boots {
			b.interrupt()
		}
		v.l.w.after(stopTimeout, "kill", func() { t.kill("killed after its stop timeout: " + why) })
		return nil
	})
}

func (l *simLauncher) find(ref string) *task {
	for _, t := range l.tasks {
		if t.ref == ref {
			return t
		}
	}
	return nil
}

// kept remembers what lies in the queue of reports.
func (l *simLauncher) kept(r relay.Report) {
	t := l.find(r.Task)
	if t == nil {
		return
	}
	for _, b := range t.boots {
		if b.id != r.Boot {
			continue
		}
		b.accepted = true
		if r.Tail != nil {
			b.kept = max(b.kept, r.Tail.First+int64(len(must(r.Tail.Unpack()))))
		}
	}
}

// checkEnd compares a report of an end with the truth.
func (l *simLauncher) checkEnd(in api.Lost) {
	if t := l.find(in.Task); t != nil && t.live() {
		l.w.fail("no end is reported of a task that lives", "%s of attempt %d is reported as ended (%s)", in.Task, in.Attempt, in.Text)
	}
}
