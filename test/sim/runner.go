package sim

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The timing of a runner; see the package runner.
const (
	beatTimeout   = 10 * time.Second
	callTimeout   = 30 * time.Second
	runnerGrace   = 90 * time.Second
	killMargin    = 15 * time.Second
	firstRetry    = 200 * time.Millisecond
	maxRetry      = 15 * time.Second
	reportStopped = time.Minute
)

// boot is one runner: it makes the calls of the package runner, in its order, and obeys the answers.
type boot struct {
	t     *task
	w     *world
	id    string
	relay *client.Runner
	begun time.Duration

	granted  bool
	spec     bool // it has it
	together bool // it got the spec with its start, and sends its last steps and lines with its result
	deadline time.Duration
	interval time.Duration
	heard    time.Duration // when a call was last taken
	stopping string        // why it ends before its engine does, if it does
	stopAt   time.Duration // since when
	killBy   time.Duration
	told     bool // to stop

	job       api.Spec
	plan      *bundle // that it leaves, or applies
	fed       bool    // it has its sensitive inputs
	conflicts int     // refusals of them
	engine    bool    // one runs
	engined   bool    // one has run
	reporting bool
	result    api.Result
	last      []api.Step // that go with the result
	lines     int64      // of the log, so far
	taken     int64      // those that were acknowledged
	kept      int64      // those that lie in the queue of reports
	accepted  bool       // its result was
	gone      bool
	code      int
}

func newBoot(t *task, n int) *boot {
	w := t.l.w
	r := w.roll("boot", t.ref, n)
	var id [16]byte
	for i := range id {
		id[i] = byte(r.IntN(256))
	}
	b := &boot{t: t, w: w, id: hex.EncodeToString(id[:]), begun: w.clock, interval: workflow.HeartbeatInterval}
	var err error
	b.relay, err = client.NewRunner(client.RunnerConfig{
		URL: t.request.Relay, Credential: redact.New(t.request.Ticket),
		Run:        api.Run{Workflow: t.request.Workflow, Attempt: t.request.Attempt, Task: t.ref, Boot: b.id},
		HTTPClient: &http.Client{Transport: toRelay{w, t}},
	})
	if err != nil {
		panic(err) // of constants
	}
	return b
}

func (b *boot) short() string { return b.id[:6] }

func (b *boot) attempt() attempt { return attempt{b.t.request.Workflow, b.t.request.Attempt} }

// toRelay is a runner's way to the relay of its stack.
type toRelay struct {
	w *world
	t *task
}

// RoundTrip implements http.RoundTripper. A runner that waited too long has given up: its clock goes
// on while others stand still.
func (t toRelay) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	name := lastOf(r.URL.Path)
	patience := callTimeout
	if name == "heartbeat" {
		patience = beatTimeout
	}
	if t.w.clock < t.t.cut {
		return nil, errLost
	}
	begun := t.w.clock
	resp, err = ask(r.Context(), t.w, t.w.other(runners), relays, name, func(ctx context.Context) (resp *http.Response, err error) {
		again, err := rewound(ctx, r)
		if err != nil {
			return nil, err
		}
		s := t.t.l.s
		p := s.lives[relays]
		resp, err = exchange(s.relay, again)
		if p.dead { // what it would have answered is not sent any more
			if s.lives[relays] == p {
				s.revive(relays)
			}
			return nil, errLost
		}
		return resp, err
	})
	if err == nil && t.w.clock-begun > patience {
		return nil, errLost
	}
	return resp, err
}

func lastOf(p string) string { return path.Base(p) }

// rewound is a request that can be made once more.
func rewound(ctx context.Context, r *http.Request) (*http.Request, error) {
	again := r.Clone(ctx)
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		again.Body = body
	}
	return again, nil
}

// soon makes the runner do something later, if it is still alive then.
func (b *boot) soon(d time.Duration, name string, do func()) {
	b.w.after(d, name, func() {
		if !b.gone {
			do()
		}
	})
}

// observe acts on the answer to what was sent at a time.
func (b *boot) observe(sent time.Duration, c api.Control) {
	if c.HeartbeatSeconds > 0 || c.RemainingSeconds != 0 {
		b.deadline = sent + api.Seconds(c.RemainingSeconds)
	}
	if c.HeartbeatSeconds > 0 {
		b.interval = api.Seconds(c.HeartbeatSeconds)
		b.heard = max(b.heard, sent)
	}
	if c.Cancel {
		b.stop("cancelled")
	}
}

// retry is the wait before the next try of a call, and the one after that.
func (b *boot) retry(wait time.Duration, err error) (now, next time.Duration) {
	return max(wait, api.RetryAfter(err)), min(2*wait, maxRetry)
}

func transient(err error) bool {
	return client.Transient(err) || errors.Is(err, workflow.ErrConflict)
}

// start asks for the run until it is granted or refused.
func (b *boot) start() { b.soon(0, "start", func() { b.tryStart(firstRetry) }) }

func (b *boot) tryStart(wait time.Duration) {
	sent := b.w.clock
	control, err := b.relay.Start(b.w.ctx)
	switch {
	case b.gone:
	case err == nil:
		b.w.granted(b)
		b.granted, b.heard = true, b.w.clock
		b.observe(sent, control.Control)
		b.beat()
		b.watch()
		if spec := control.Spec; spec != nil && b.w.roll("new", b.id).Float64() < .5 { // the others ask for it, as where it could not be read
			b.spec, b.together = true, true
			b.soon(between(b.w.roll("prepare", b.t.ref, b.id), time.Second, 20*time.Second), "engine", func() { b.begin(*spec) })
			return
		}
		b.trySpec(firstRetry)
	case client.RunOver(err):
		b.exit(0, "it may not run")
	case b.told, !transient(err), b.w.clock-b.begun > workflow.LaunchWindow:
		b.exit(1, "no start")
	default:
		var now time.Duration
		now, wait = b.retry(wait, err)
		b.soon(now, "start", func() { b.tryStart(wait) })
	}
}

// beat reports at each tick. The next tick is set before the call, so that a hanging call does not delay it. A runner
// of this version sends none while another call was answered within the interval.
func (b *boot) beat() {
	sent := b.w.clock
	if left := b.heard + b.interval - sent; b.together && left > 0 {
		b.soon(left, "heartbeat", b.beat)
		return
	}
	b.soon(b.interval, "heartbeat", b.beat)
	control, err := b.relay.Heartbeat(b.w.ctx, api.Heartbeat{Step: "apply"})
	switch {
	case b.gone:
	case err == nil:
		b.observe(sent, control)
	case client.RunOver(err):
		b.over()
	}
}

// watch keeps the deadline, and kills an engine that does not obey.
func (b *boot) watch() {
	b.soon(time.Second*5, "watch", b.watch)
	if b.deadline > 0 && b.w.clock >= b.deadline {
		b.stop("deadline")
	}
}

func (b *boot) trySpec(wait time.Duration) {
	spec, err := b.relay.Spec(b.w.ctx)
	switch {
	case b.gone:
	case err == nil:
		b.spec = true
		b.soon(between(b.w.roll("prepare", b.t.ref, b.id), time.Second, 20*time.Second), "engine", func() { b.begin(spec) })
	case client.RunOver(err):
		b.over()
	case !transient(err), b.stopping != "":
		b.conclude(workflow.Failed, workflow.ReasonRunnerError)
	default:
		var now time.Duration
		now, wait = b.retry(wait, err)
		b.soon(now, "spec", func() { b.trySpec(wait) })
	}
}

// begin starts the engine.
func (b *boot) begin(spec api.Spec) {
	if b.stopping != "" {
		b.finish()
		return
	}
	if b.job = spec; spec.Plan != nil && b.plan == nil {
		b.fetch(firstRetry)
		return
	}
	if len(spec.Inputs) > 0 && !b.fed {
		b.takeInput(firstRetry)
		return
	}
	b.preview()
	r := b.w.roll("engine", b.t.request.Workflow)
	most := api.Seconds(spec.MaxRuntimeSeconds)
	takes := between(r, 20*time.Second, 12*time.Minute)
	switch x := r.Float64(); {
	case x < .25:
		takes = between(r, 10*time.Minute, most)
	case x < .32:
		takes = most + time.Hour // it would go on beyond its deadline
	}
	b.engine, b.engined = true, true
	b.w.tell("engine of %s begins in %s, boot %s, for %s", b.t.request.Workflow, b.t.ref, b.short(), takes)
	b.w.checkEngines(b)
	b.steps(api.Step{Seq: 1, Name: "apply", Status: workflow.StepRunning, StartedAt: b.w.now()})
	b.log()
	b.soon(takes, "engine done", func() {
		if b.engine {
			b.finish()
		}
	})
}

// log writes lines now and then, and sends them.
func (b *boot) log() {
	if b.reporting {
		return
	}
	b.soon(90*time.Second, "log", b.log)
	b.lines += 1 + b.lines%3
	b.sendLog()
}

// unsent are the lines that were not acknowledged.
func (b *boot) unsent() (lines []api.LogLine) {
	for n := b.taken; n < b.lines; n++ {
		lines = append(lines, api.LogLine{At: b.w.now().UTC(), Step: "apply", Text: fmt.Sprintf(logText, n, b.id)})
	}
	return lines
}

// logText is what a line says: its number and its runner.
const logText = "line %d of %s"

func (b *boot) sendLog() {
	lines := b.unsent()
	if len(lines) == 0 {
		return
	}
	sent := b.w.clock
	taken, err := b.relay.Logs(b.w.ctx, api.Logs{First: b.taken, Lines: lines})
	gap := (*api.LogGapError)(nil)
	switch {
	case b.gone:
	case err == nil:
		b.taken = min(taken.Next, b.lines)
		b.observe(sent, taken.Control)
	case errors.As(err, &gap):
		b.taken = min(gap.Next, b.lines)
	case client.RunOver(err):
		b.over()
	}
}

// tail is the rest of the log, which goes with the result, or for a relay that keeps results; an agent finds it on its
// disk.
func (b *boot) tail() *api.LogTail {
	if b.t.l.s.heard && !b.together || b.taken == b.lines {
		return nil
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for _, l := range b.unsent() {
		_ = must(z.Write(l.Append(nil)))
	}
	must(0, z.Close())
	return &api.LogTail{First: b.taken, Lines: out.Bytes()}
}

func (b *boot) steps(s api.Step) {
	sent := b.w.clock
	control, err := b.relay.Steps(b.w.ctx, api.Steps{Steps: []api.Step{s}})
	switch {
	case b.gone:
	case err == nil:
		b.observe(sent, control)
	case client.RunOver(err):
		b.over()
	}
}

// stop interrupts the engine, and kills it after its grace. The first reason counts.
func (b *boot) stop(why string) {
	by := b.w.clock + runnerGrace
	if last := b.deadline + workflow.DeadlineGrace - killMargin; why == "deadline" || b.deadline > 0 && last < by {
		by = last
	}
	if b.killBy == 0 || by < b.killBy {
		b.killBy = by
		if b.engine {
			b.soon(by-b.w.clock, "kill engine", func() {
				if b.engine {
					b.finish()
				}
			})
		}
	}
	if b.stopping != "" {
		return
	}
	b.stopping, b.stopAt = why, b.w.clock
	b.w.tell("runner %s of %s is stopped: %s", b.short(), b.t.request.Workflow, why)
	if b.engine { // it obeys, or does not
		b.soon(between(b.w.roll("obey", b.id), time.Second, 3*time.Minute), "engine obeys", func() {
			if b.engine {
				b.finish()
			}
		})
	}
}

// interrupt is the launcher's request to stop.
func (b *boot) interrupt() {
	b.told = true
	if b.granted {
		b.stop("interrupted")
	}
}

// finish ends the engine and makes its result.
func (b *boot) finish() {
	b.endEngine()
	switch b.stopping {
	case "cancelled":
		b.conclude(workflow.Cancelled, workflow.ReasonCancelled)
	case "deadline":
		b.conclude(workflow.Failed, workflow.ReasonDeadline)
	case "interrupted":
		b.conclude(workflow.Failed, workflow.ReasonInterrupted)
	default:
		if b.w.roll("outcome", b.t.request.Workflow).Float64() < .2 {
			b.conclude(workflow.Failed, workflow.ReasonStepFailed)
			return
		}
		if b.job.For != "" {
			b.leave(firstRetry)
			return
		}
		b.conclude(workflow.Succeeded, workflow.ReasonNone)
	}
}

func (b *boot) endEngine() {
	if b.engine {
		b.engine = false
		if workflow.ChangesState(b.job.Type, b.job.Operation) {
			b.w.truth.plans.serials[b.job.WorkspaceID]++
		}
		b.w.tell("engine of %s has ended in %s", b.t.request.Workflow, b.t.ref)
	}
}

// conclude reports the result.
func (b *boot) conclude(outcome workflow.State, reason workflow.Reason) {
	if b.reporting {
		return
	}
	b.reporting = true
	b.result = api.Result{Outcome: outcome, Reason: reason, LogEnd: b.lines}
	if outcome == workflow.Succeeded && b.job.For != "" {
		b.result.Plan, b.result.Changes = &b.plan.made, &b.plan.changes
	}
	if b.produce(); b.gone {
		return
	}
	if b.engined {
		code := 0
		b.last = []api.Step{{Seq: 1, Name: "apply", Status: workflow.StepSucceeded, StartedAt: b.w.now(), ExitCode: &code}}
	}
	if b.engined && !b.together {
		b.steps(b.last[0])
		b.last = nil
		if !b.gone {
			b.sendLog()
		}
	}
	if !b.gone {
		b.tryResult(firstRetry)
	}
}

func (b *boot) tryResult(wait time.Duration) {
	sent := b.w.clock
	control, err := b.relay.HandOver(b.w.ctx, api.Handover{Result: b.result, Steps: b.last, Tail: b.tail()})
	b.accepted = b.accepted || err == nil
	switch {
	case b.gone:
	case err == nil:
		b.observe(sent, control.Control)
		b.taken = max(b.taken, min(control.Next, b.lines))
		b.sendLog() // what is left of it
		b.exit(0, "result handed over")
	case client.RunOver(err):
		b.exit(0, "the run is over")
	case !transient(err), b.told && b.w.clock-b.stopAt > reportStopped+runnerGrace:
		b.exit(1, "result not handed over")
	default:
		var now time.Duration
		now, wait = b.retry(wait, err)
		b.soon(now, "result", func() { b.tryResult(wait) })
	}
}

// over abandons the run: another boot holds it, or none does. Once the engine has ended there is
// nothing to give up but the result.
func (b *boot) over() {
	if b.reporting {
		return
	}
	b.endEngine()
	b.exit(0, "the run is over")
}

func (b *boot) exit(code int, text string) {
	if b.gone {
		return
	}
	b.gone, b.code = true, code
	b.w.tell("runner %s of %s exits with %d: %s", b.short(), b.t.request.Workflow, code, text)
	b.t.over(code, text)
}
