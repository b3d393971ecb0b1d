package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Intervals and limits of a follower.
const (
	askEvery   = 10 * time.Millisecond  // between requests that wait: changes of one moment come in one answer
	whyEvery   = 5 * time.Second        // between requests for why it waits
	frameEvery = 120 * time.Millisecond // between drawings of the live line
	changeWait = 10 * time.Second       // how long one request waits for a change, or for lines
	stepsWait  = time.Second            // for the report of a step whose lines are there
	logPage    = 1000                   // lines of one answer
	awayShown  = 5 * time.Second        // without an answer before the follower says so
	maxDrain   = 10 * time.Second       // for last lines after the end
	stepWait   = 6 * time.Second        // for the last lines of a step that has ended, if its runner does not say how many there are
)

// ending is the exit of a command by how its workflow ended. With --detailed-exitcode changes are an exit code too.
func ending(a *cli.App, last api.Workflow) error {
	if a.Detailed && last.State == workflow.Succeeded && cli.Differs(last) {
		return &cli.ExitError{Code: cli.ExitDiffers}
	}
	return outcome(last.State)
}

// outcome is the exit of a command by the state in which its workflow ended.
func outcome(state workflow.State) error {
	switch state {
	case workflow.Failed:
		return &cli.ExitError{Code: cli.ExitFailed}
	case workflow.Cancelled:
		return &cli.ExitError{Code: cli.ExitCancelled}
	case workflow.Succeeded, workflow.Pending, workflow.Claimed, workflow.Running:
		return nil
	}
	return nil
}

// followRun shows a workflow's log and steps until it ends, then its result. The outcome determines the exit code.
func followRun(a *cli.App, cl *client.Client, id string, v logView) error {
	last, live, err := watch(a, cl, id, v)
	if err != nil {
		return err
	}
	return ended(a, live, last)
}

// watch shows a workflow's log and steps until it ends.
func watch(a *cli.App, cl *client.Client, id string, v logView) (api.Workflow, *term.Live, error) {
	w := a.Stdout
	if a.JSON() || v.none {
		w = a.Stderr // standard output is for the result
	}
	f := &follower{
		cl: cl, id: id, view: v, live: term.NewLive(w, a.StyleOf(w)),
		states: make(chan api.Workflow), lines: make(chan api.LogPage), waits: make(chan string),
		steps: map[int]workflow.StepStatus{}, places: map[string]int{},
	}
	last, err := f.run(a.Ctx)
	f.live.Status("")
	if err != nil && a.Ctx.Err() != nil {
		err = interrupted(a, cl, id)
	}
	return last, f.live, err
}

// ended shows the result of a workflow that was watched.
func ended(a *cli.App, live *term.Live, last api.Workflow) error {
	if a.JSON() {
		if err := a.Encode(last); err != nil {
			return err
		}
		return ending(a, last)
	}
	for _, line := range summary(live.Style(), last) {
		live.Line(line)
	}
	if page := a.RunPage(last.ID); page != "" {
		live.Line(page)
	}
	return errors.Join(live.Err(), ending(a, last))
}

// interrupted says after an interrupt whether the workflow goes on.
func interrupted(a *cli.App, cl *client.Client, id string) error {
	// The command's context has ended: this last request gets a short time of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Ctx), 3*time.Second)
	defer cancel()
	w, err := cl.Workflow(ctx, id)
	switch {
	case err != nil:
		a.Say("\nstopped following %s; the control plane does not say whether it goes on: try dayfly workflow show %s", id, id)
	case w.State.Terminal():
		a.Say("\n%s is over: %s", id, w.State)
	case w.CancelRequested:
		a.Say("\nstopped following %s, which is being cancelled; follow it again with dayfly workflow logs -f %s", id, id)
	default:
		a.Say("\nstopped following: %s goes on (%s)\n  follow it again: dayfly workflow logs -f %s\n  cancel it:       dayfly workflow cancel %s", id, w.State, id, id)
	}
	return &cli.ExitError{Code: cli.ExitInterrupted}
}

// follower shows one workflow. Three goroutines send requests, one draws.
type follower struct {
	cl   *client.Client
	id   string
	view logView
	live *term.Live

	states chan api.Workflow
	lines  chan api.LogPage
	waits  chan string
	polls  cli.Poll

	steps    map[int]workflow.StepStatus // seen so far, of the latest attempt
	places   map[string]int              // of the steps, by name
	ends     []stepEnd                   // of steps, not shown yet
	attempt  int                         // whose log is shown
	next     int64                       // number of the next line of it
	drained  bool                        // it has no more lines
	changes  progress                    // of an apply
	wait     string                      // why it waits
	open     bool                        // a line of the log has no end yet
	saidAway bool                        // it was said that the control plane does not answer
}

// stepEnd is a step that has ended, and when that was seen.
type stepEnd struct {
	step api.Step
	at   time.Time
}

// run returns the workflow as it ended.
func (f *follower) run(ctx context.Context) (api.Workflow, error) {
	defer f.showEnds(func(stepEnd) bool { return true })
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	asking := 0
	for _, ask := range []func(context.Context) error{f.askStates, f.askLines, f.askWaits} {
		asking++
		go func() {
			if err := ask(ctx); err != nil {
				cancel(err)
			}
			done <- struct{}{}
		}()
	}
	defer func() {
		cancel(nil)
		for ; asking > 0; asking-- {
			<-done
		}
	}()

	frame := time.NewTicker(frameEvery)
	defer frame.Stop()
	var (
		last   api.Workflow
		drain  <-chan time.Time // fires when no more lines are waited for
		frames int
	)
	for {
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-drain:
			return last, nil
		case <-frame.C:
			frames++
			now := time.Now()
			f.showDue(now)
			f.noteAway(now)
			f.live.Status(f.status(last, frames, now))
		case w := <-f.states:
			if isOld(w, last) {
				continue
			}
			last = w
			f.noteSteps(last, time.Now())
			if last.State.Terminal() && drain == nil {
				drain = time.After(maxDrain)
			}
		case page := <-f.lines:
			f.showLines(page)
			f.drained = page.Done
		case f.wait = <-f.waits:
			if f.wait != "" && !f.live.Style().Live {
				f.live.Line("waiting: " + f.wait)
			}
		case <-done:
			asking--
		}
		if last.State.Terminal() && (f.drained || last.StartedAt == nil) {
			return last, nil
		}
	}
}

// isOld reports whether an answer about a workflow is from before another one: two goroutines ask, and the one whose
// answer is older may be the later to send it.
func isOld(w, than api.Workflow) bool {
	reported := func(w api.Workflow) (n int) {
		for _, s := range w.Steps {
			n++
			if s.Status != workflow.StepRunning {
				n++
			}
		}
		return n
	}
	return w.Version < than.Version || w.Version == than.Version && reported(w) < reported(than)
}

// askStates reads the workflow's state and steps, each time that they change, until it has ended.
func (f *follower) askStates(ctx context.Context) error {
	var w api.Workflow
	return f.polls.Until(ctx, func() (done bool, err error) {
		if w, err = f.cl.WorkflowAfter(ctx, f.id, w.Revision, changeWait); err != nil {
			return false, err
		}
		return w.State.Terminal(), send(ctx, f.states, w)
	}, askEvery)
}

// askLines reads the log of each attempt in turn. It does not end by itself: after the last line of one attempt
// there may be another attempt.
func (f *follower) askLines(ctx context.Context) error {
	attempt, offset := f.view.attempt, f.view.from
	over := 0                  // attempt whose log was shown to its end
	begun := map[string]bool{} // steps
	return f.polls.Until(ctx, func() (bool, error) {
		page, err := f.cl.Logs(ctx, f.id, attempt, offset, logPage, changeWait)
		if err != nil {
			return false, err
		}
		if page.Attempt == over && over != 0 {
			return false, wait.For(ctx, cli.LookEvery) // no other attempt has started
		}
		if page.Attempt != attempt {
			// This page is of another attempt, read from the wrong place: begin at its first line.
			attempt, offset = page.Attempt, 0
			if attempt != 0 {
				return false, nil
			}
		}

		// When a step begins, another has ended: its end is shown between their lines.
		before := len(begun)
		for _, l := range page.Lines {
			begun[l.Step] = true
		}
		if len(begun) > before {
			w, err := f.cl.Workflow(ctx, f.id)
			if err == nil && isBehind(w, page) {
				w, err = f.cl.WorkflowAfter(ctx, f.id, w.Revision, stepsWait)
			}
			if err == nil {
				err = send(ctx, f.states, w)
			}
			if err != nil {
				return false, err
			}
		}

		if len(page.Lines) > 0 || page.Done {
			if err := send(ctx, f.lines, page); err != nil {
				return false, err
			}
		}
		offset = page.Next
		if page.Done {
			over, attempt, offset = page.Attempt, 0, 0
			return false, wait.For(ctx, cli.LookEvery)
		}
		return false, nil
	}, askEvery)
}

// isBehind reports whether a workflow does not have the step of a page's last line yet: runners report lines and
// steps in calls of their own.
func isBehind(w api.Workflow, page api.LogPage) bool {
	step := page.Lines[len(page.Lines)-1].Step
	return step != "" && page.Attempt == w.Attempt && !w.State.Terminal() &&
		!slices.ContainsFunc(w.Steps, func(s api.Step) bool { return s.Name == step })
}

// askWaits asks why the workflow waits, until it runs.
func (f *follower) askWaits(ctx context.Context) error {
	if err := wait.For(ctx, whyEvery/2); err != nil {
		return err
	}
	sent := ""
	return f.polls.Until(ctx, func() (bool, error) {
		why, err := f.cl.Why(ctx, f.id)
		if err != nil {
			return false, err
		}
		waits := why.Workflow.State == workflow.Pending || why.Workflow.State == workflow.Claimed
		text := ""
		if waits {
			text = term.Clean(strings.TrimSuffix(why.Waiting, "."))
		}
		if text == sent {
			return !waits, nil
		}
		sent = text
		return !waits, send(ctx, f.waits, text)
	}, whyEvery)
}

func send[T any](ctx context.Context, to chan<- T, v T) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case to <- v:
		return nil
	}
}

func (f *follower) showLines(page api.LogPage) {
	if page.Attempt != f.attempt && len(page.Lines) > 0 {
		if f.attempt != 0 {
			f.live.Line(fmt.Sprintf("attempt %d", page.Attempt))
		}
		f.attempt = page.Attempt
	}
	f.next = page.Next - int64(len(page.Lines))
	for _, l := range page.Lines {
		place := f.places[l.Step]
		f.showEnds(func(e stepEnd) bool { return f.complete(e) || e.step.LogEnd == 0 && e.step.Seq < place })
		f.next++
		f.changes.read(l)
		if !f.view.shows(l) {
			continue
		}
		text := f.live.Style().Coloured(l.Text)
		if !f.open && l.Step != "" {
			text = f.live.Style().Dim(fmt.Sprintf("%-8s │ ", term.Clean(l.Step))) + text
		}
		if !f.open && f.view.timestamps {
			text = f.live.Style().Dim(l.At.UTC().Format("2006-01-02T15:04:05.000Z ")) + text
		}
		f.live.Text(text, !l.More)
		f.open = l.More
	}
}

// complete reports whether all lines of a step were shown; false if its runner did not say how many there are.
func (f *follower) complete(e stepEnd) bool {
	return e.step.LogEnd > 0 && (e.step.LogEnd <= f.next || f.drained)
}

// noteAway says, where there is no live line, that the control plane does not answer, and that it answers again.
func (f *follower) noteAway(now time.Time) {
	silent := f.polls.Silent(now)
	switch {
	case f.live.Style().Live:
	case silent > awayShown && !f.saidAway:
		f.saidAway = true
		f.live.Line(fmt.Sprintf("waiting: the control plane does not answer; trying for %s", cli.MaxAway))
	case silent == 0 && f.saidAway:
		f.saidAway = false
		f.live.Line("the control plane answers again")
	}
}

// noteSteps keeps the steps that ended since the last answer.
func (f *follower) noteSteps(w api.Workflow, now time.Time) {
	for _, s := range w.Steps {
		f.places[s.Name] = s.Seq
		if f.steps[s.Seq] == s.Status {
			continue
		}
		f.steps[s.Seq] = s.Status
		if s.Status != workflow.StepRunning {
			f.ends = append(f.ends, stepEnd{s, now})
		}
	}
}

// showDue shows the ends of steps whose lines were all shown, or were waited for long enough.
func (f *follower) showDue(now time.Time) {
	f.showEnds(func(e stepEnd) bool { return f.complete(e) || e.step.LogEnd == 0 && now.Sub(e.at) > stepWait })
}

// showEnds shows ends of steps, in their order, up to the first that is not due.
func (f *follower) showEnds(due func(stepEnd) bool) {
	for len(f.ends) > 0 && due(f.ends[0]) {
		s := f.ends[0].step
		f.ends = f.ends[1:]
		if f.view.none {
			continue
		}
		f.live.Line(f.live.Style().Step(s.Status) + " " + term.Clean(runtext.Step(s)))
	}
}

var frames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// status is the live line at the bottom of a terminal.
func (f *follower) status(w api.Workflow, frame int, now time.Time) string {
	sign := string(frames[frame%len(frames)])
	if silent := f.polls.Silent(now); silent > awayShown {
		return fmt.Sprintf("%s the control plane does not answer (%s); trying again for %s", sign, text.Duration(silent), f.id) // the trouble first: a terminal may be narrow
	}
	if w.ID == "" {
		return sign + " " + f.id
	}
	said := fmt.Sprintf("%s %s %s", sign, w.ID, runtext.State(w))
	if w.State == workflow.Pending || w.State == workflow.Claimed {
		said += " for " + text.Duration(now.Sub(w.SubmittedAt))
		if f.wait != "" {
			said += ": " + f.wait
		}
		return said
	}
	for _, s := range w.Steps {
		if s.Status == workflow.StepRunning {
			return said + fmt.Sprintf(", %s for %s", term.Clean(s.Name), text.Duration(now.Sub(s.StartedAt))) + f.changes.text(s.Name, now)
		}
	}
	return said
}

// summary describes a workflow that has ended.
func summary(style term.Style, w api.Workflow) []string {
	head := fmt.Sprintf("%s %s: %s", style.Bold(w.ID), runtext.Title(w), style.State(runtext.State(w)))
	if d := runtext.Took(w, time.Now()); d != "" {
		head += " in " + d
	}
	lines := []string{runtext.Ended(head, w.Reason)}
	add := func(said string) {
		if said != "" {
			lines = append(lines, "  "+said)
		}
	}
	add(term.Clean(runtext.Cause(w)))
	if r := w.Result; r != nil {
		add(runtext.Changed(w))
		if r.Inventory != nil {
			add("the state has " + term.Clean(runtext.Inventory(r.Inventory)))
		}
		if checks := runtext.Checks(r.Checks); checks != "" {
			add("checks: " + term.Clean(checks))
		}
		for _, line := range resultLines(*r) {
			add(line)
		}
		if r.Lock != nil {
			add("the state lock is " + stateLock(w))
		}
	}
	add(term.Clean(runtext.ToDo(w)))
	if w.State != workflow.Succeeded {
		add("dayfly why " + w.ID + " shows what happened")
	}
	return lines
}
