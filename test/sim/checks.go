package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	orphanTime   = 6 * time.Minute // how long an unwanted task may live, of whole sweeps
	orphanSweeps = 5
	aliveFor     = 90 * time.Second // a heartbeat that was taken since proves a task's life
	stampError   = 30 * time.Second // by which a sign of life may be stamped too early: 20 s unwritten, 10 s of a clock that was read
	maxTick      = time.Minute      // that one step of the wall clock may add to the service clock
)

// moved is called with every change of a workflow's record.
func (w *world) moved(old, r *record, call string) {
	w.heardIsNotLost(old, r, call)
	w.terminalIsFinal(old, r)
	w.noClaimLapsesEarly(old, r, call)
	w.startsAreFew(r)
	switch {
	case old.State == r.State:
	case r.State == workflow.Succeeded && r.PlanOf != "":
		w.met[metApplied]++
	case r.Reason == workflow.ReasonPlanStale:
		w.met[metStale]++
	case r.Reason == workflow.ReasonNotApproved:
		w.met[metUnasked]++
	}
}

func (w *world) terminalIsFinal(old, r *record) {
	if old.State.Terminal() && r.State != old.State {
		w.fail("a terminal state is final", "workflow %s was %s and is %s", r.ID, old.State, r.State)
	}
}

func (w *world) noClaimLapsesEarly(old, r *record, call string) {
	if call != "pass" || old.State != workflow.Claimed || r.Lapses == old.Lapses {
		return
	}
	if lease := w.truth.leases[attempt{old.ID, old.Attempt}]; w.cp.now().Before(lease) {
		w.fail("no claim lapses before its lease", "attempt %d of %s lapsed %s before it", old.Attempt, old.ID, lease.Sub(w.cp.now()))
	}
}

// heardIsNotLost: a run is not given up for silence while its heartbeats are accepted.
func (w *world) heardIsNotLost(old, r *record, call string) {
	if call != "pass" || old.State != workflow.Running || r.State != workflow.Pending && r.Reason != workflow.ReasonRunnerLost {
		return
	}
	least := workflow.Silence - stampError - time.Duration(w.cp.steps)*maxTick
	w.engines(func(b *boot, _ *record) {
		if b.id == old.Holder.Boot && w.clock-b.heard < least {
			w.fail("no run that is heard is given up", "attempt %d of %s is %s, and its heartbeat was taken %s ago", old.Attempt, r.ID, r.State, w.clock-b.heard)
		}
	})
}

func (w *world) startsAreFew(r *record) {
	most := 1
	if r.Type != workflow.Deployment {
		most = workflow.MaxStarts
	}
	if r.Starts > most {
		w.fail("starts are few", "%s %s was started %d times", r.Type, r.ID, r.Starts)
	}
}

// granted is called when a runner is told that it may start.
func (w *world) granted(b *boot) {
	a := b.attempt()
	boots := w.truth.granted[a]
	if boots == nil {
		boots = map[string]bool{}
		w.truth.granted[a] = boots
	}
	if boots[b.id] {
		return
	}
	boots[b.id] = true
	w.truth.starts[a.job]++
	r := w.truth.of(a.job)
	switch {
	case len(boots) > 1:
		w.fail("an attempt starts once", "attempt %d of %s was granted to %d boots", a.n, a.job, len(boots))
	case r.Type == workflow.Deployment && w.truth.starts[a.job] > 1:
		w.fail("a deployment starts once", "%s was started %d times", a.job, w.truth.starts[a.job])
	case w.truth.starts[a.job] > workflow.MaxStarts:
		w.fail("a scan starts at most three times", "%s was started %d times", a.job, w.truth.starts[a.job])
	}
}

// engines calls f with every runner whose engine is alive.
func (w *world) engines(f func(b *boot, r *record)) {
	for _, s := range w.stacks {
		for _, t := range s.launcher.tasks {
			for _, b := range t.boots {
				if b.engine {
					f(b, w.truth.of(t.request.Workflow))
				}
			}
		}
	}
}

// checkEngines is called when an engine begins.
func (w *world) checkEngines(b *boot) {
	mine := w.truth.of(b.t.request.Workflow)
	if !mine.changesState() {
		return
	}
	w.engines(func(other *boot, r *record) {
		if other != b && r.changesState() && r.WorkspaceID == mine.WorkspaceID {
			w.fail("engines that change a workspace never overlap", "%s begins in %s while %s still runs in %s",
				mine.ID, b.t.ref, r.ID, other.t.ref)
		}
	})
}

// check looks at the world after every step.
func (w *world) check() {
	w.slotsCoverEngines()
	w.noteOrphans()
}

// slotsCoverEngines: while an engine that changes state lives, its run holds the slot.
func (w *world) slotsCoverEngines() {
	w.engines(func(b *boot, r *record) {
		if r.changesState() && !r.SlotHeld {
			w.fail("the slot outlives the engine", "%s (%s %s) has no slot any more, and its engine lives in %s", r.ID, r.State, r.Reason, b.t.ref)
		}
	})
}

// owned reports whether a task may still be wanted.
func (w *world) owned(t *task) bool {
	r := w.truth.of(t.request.Workflow)
	return r.wants(t.request.Attempt) || r.Active && r.Attempt == t.request.Attempt && r.Holder.Task == t.ref
}

func (w *world) noteOrphans() {
	for _, s := range w.stacks {
		for _, t := range s.launcher.tasks {
			switch {
			case !t.live():
			case t.told || w.clock < t.hidden || w.owned(t):
				t.unowned = 0
			case t.unowned == 0:
				t.unowned, t.unownedAt = w.clock, s.sweeps
			}
		}
	}
}

// checkOrphans is called after a whole sweep.
func (w *world) checkOrphans(s *stack) {
	for _, t := range s.launcher.tasks {
		if !t.live() || t.unowned == 0 {
			continue
		}
		t.unownedAt = min(t.unownedAt, s.sweeps-1)
		if w.clock-t.unowned > orphanTime && s.sweeps-t.unownedAt > orphanSweeps && w.out == nil {
			w.fail("no task lives without an owner past the grace", "%s of attempt %d of %s has had none for %s and %d sweeps",
				t.ref, t.request.Attempt, t.request.Workflow, w.clock-t.unowned, s.sweeps-t.unownedAt)
		}
	}
}

// checkStop is called when a task is to be stopped.
func (l *simLauncher) checkStop(t *task, why string) {
	w, r := l.w, l.w.truth.of(t.request.Workflow)
	wanted := r.Active && r.Holder.Task == t.ref && r.CancelAt.IsZero() && w.now().Before(w.truth.ends[r.ID])
	for _, b := range t.boots {
		if wanted && b.granted && !b.gone && w.clock-b.heard < aliveFor {
			w.fail("no wanted task that reports is stopped", "%s of %s is stopped (%s), and its heartbeat was taken %s ago",
				t.ref, r.ID, why, w.clock-b.heard)
		}
	}
}

// guard is a log that is not read, and that must not contain a secret.
type guard struct {
	w       *world
	secrets []string
}

// secret adds a value that must not be seen.
func (g *guard) secret(value string) { g.secrets = append(g.secrets, value) }

// token matches the beginning of every token of the product. In the middle of a word a match is a coincidence.
var token = regexp.MustCompile(`(^|[^A-Za-z0-9_-])df[jpu]_`)

// scan looks for secrets in what others can read.
func (g *guard) scan(where, text string) {
	if token.MatchString(text) {
		g.w.fail("no secret is seen", "%s holds a token: %.200s", where, text)
	}
	for _, s := range g.secrets {
		if strings.Contains(text, s) {
			g.w.fail("no secret is seen", "%s holds a secret: %.200s", where, text)
		}
	}
}

// Enabled implements slog.Handler.
func (g *guard) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (g *guard) Handle(_ context.Context, r slog.Record) error {
	g.line(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		g.line(a.Value.Resolve().String())
		return true
	})
	return nil
}

func (g *guard) line(text string) {
	// The characters of a token never match in a log by chance: its lines have no long random words.
	if strings.Contains(text, "df") && token.MatchString(text) {
		g.w.fail("no secret is seen", "a log line holds a token: %.200s", text)
	}
	if strings.Contains(text, ticketHead) {
		g.w.fail("no secret is seen", "a log line holds a ticket: %.200s", text)
	}
}

// WithAttrs implements slog.Handler.
func (g *guard) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		g.line(a.Value.Resolve().String())
	}
	return g
}

// WithGroup implements slog.Handler.
func (g *guard) WithGroup(string) slog.Handler { return g }

// ticketHead is how the header of every ticket begins: {"alg":"dir","enc" in base64url.
const ticketHead = "eyJhbGciOiJkaXIiLCJlbmMi"

// quiet reports whether only the ticks of the clocks are still to come.
func (w *world) quiet() bool {
	for _, id := range w.truth.order {
		if r := w.truth.records[id]; !r.State.Terminal() || r.Active {
			return false
		}
	}
	for _, s := range w.stacks {
		for _, t := range s.launcher.tasks {
			if t.live() {
				return false
			}
		}
		if len(s.queue.copies) > 0 || s.reports > 0 || s.buried > 0 {
			return false
		}
	}
	for _, t := range w.truth.trees {
		if t.State == api.TreeRunning {
			return false
		}
	}
	return w.healed && w.people.idle()
}

// end checks what must be true when everything has come to rest.
func (w *world) end() {
	for _, id := range w.truth.order {
		r := w.truth.records[id]
		switch {
		case !r.State.Terminal():
			w.fail("every workflow ends", "%s is still %s", id, r.State)
		case r.State != workflow.Succeeded && r.Reason == workflow.ReasonNone:
			w.fail("every end has a reason", "%s is %s and does not say why", id, r.State)
		case r.Active || r.SlotHeld:
			w.fail("every slot is free at the end", "%s is %s and still holds its place (slot %t)", id, r.State, r.SlotHeld)
		}
	}
	for _, s := range w.stacks {
		for _, t := range s.launcher.tasks {
			if t.phase != launcher.Stopped {
				w.fail("every task ends", "%s is still %s", t.ref, t.phase)
			}
		}
		w.empty("active/" + s.who.PoolID)
		for _, typ := range workflow.Types() {
			w.empty(fmt.Sprintf("claim/pool:%s/%s", s.who.PoolID, typ))
		}
	}
	w.empty("timer/default")
	for i := range 4 {
		w.empty(fmt.Sprintf("timer/default/%d", i))
	}
	for k, v := range w.truth.partition("limit/default") {
		var l struct {
			Active int `json:"active"`
		}
		freed := len(w.truth.books.freed[k]) // since the last pass
		if err := json.Unmarshal(v, &l); err != nil || l.Active != freed {
			w.fail("every limit is back at zero", "%s counts %d active workflows, %d are freed (%v)", k, l.Active, freed, err)
		}
	}
	for _, s := range w.stacks {
		for _, t := range s.launcher.tasks {
			for _, b := range t.boots {
				w.logIsWhole(b)
				w.resultIsKnown(b)
			}
		}
	}
	w.decisionsAreKept()
	w.treesEnd()
	workspaces := map[string]bool{}
	for _, r := range w.truth.records {
		workspaces[r.WorkspaceID] = true
	}
	for ws := range workspaces {
		w.workspaceIsFree(ws)
	}
}

// empty checks that nothing is left in a partition.
func (w *world) empty(part string) {
	for k := range w.truth.partition(part) {
		w.fail("nothing is left behind", "%s holds %s", part, k)
	}
}

func (w *world) workspaceIsFree(ws string) {
	for k, v := range w.truth.partition("lane/" + ws) {
		var l struct {
			Changer string   `json:"changer"`
			Placed  []string `json:"placed"`
			WaitC   int      `json:"wait_c"`
			WaitO   int      `json:"wait_o"`
		}
		if err := json.Unmarshal(v, &l); err != nil || k != "lane" || l.Changer != "" || len(l.Placed) != 0 || l.WaitC != 0 || l.WaitO != 0 {
			w.fail("every slot is free at the end", "workspace %s: %s is %s", ws, k, v)
		}
	}
}
