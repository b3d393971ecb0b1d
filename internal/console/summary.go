package console

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// saying is the top of the page of a run: its state, and the next step or what to do.
type saying struct {
	mark   mark
	lead   string // goes on from the word of the mark if it begins with a small letter; else it is a sentence of its own
	behind string // the run that must end first
	notes  []phrase
}

// phrase is a sentence. It may end with a moment: "The plan expires" in 2d.
type phrase struct {
	text string
	at   stamp
}

func (s *saying) note(when *time.Time, format string, args ...any) {
	s.notes = append(s.notes, phrase{fmt.Sprintf(format, args...), at(when)})
}

// say says where a run stands, for somebody called me. It is a pure function.
func say(why api.Why, me string) saying {
	w := why.Workflow
	s := saying{mark: markOf(w)}
	switch w.State {
	case workflow.Pending:
		s.lead, s.behind = "It waits for "+why.Waiting, why.WaitingForWorkflow
		s.note(&w.SubmittedAt, "Submitted by %s", w.SubmittedBy)
		s.note(why.NextAt, "It fails if it still waits")
	case workflow.Claimed:
		s.lead = "It waits for " + why.Waiting
		s.note(w.ClaimedAt, "Attempt %d was claimed by %s", w.Attempt, w.Instance)
		next := "If it does not start, it is claimed again"
		if why.Code == "launch" {
			next = "The launch is tried again"
		}
		s.note(why.NextAt, "%s", next)
	case workflow.Running:
		s.running(why)
	case workflow.Succeeded:
		s.lead = runtext.Summary(w)
		s.ended(w)
		s.reviewed(w.Review, me)
	case workflow.Failed:
		s.lead = capital(runtext.Reason(w.Reason))
		step, how, found := strings.Cut(w.Detail, " failed with ")
		switch {
		case w.Reason == workflow.ReasonStepFailed && found:
			s.lead = "in " + step + " with " + how
		case w.Reason == workflow.ReasonStepFailed && w.Detail != "":
			s.lead = capital(w.Detail)
		case w.Detail != "":
			s.lead += ": " + w.Detail
		}
		s.failed(w)
		s.ended(w)
		s.note(nil, "%s", capital(runtext.ToDo(w)))
	case workflow.Cancelled:
		s.lead = strings.TrimPrefix(w.Detail, "cancelled ")
		s.ended(w)
	}
	if held := runtext.Slot(w); held != "" {
		s.note(why.NextAt, "%s; it is free at the latest", capital(held))
		s.note(nil, "If you are certain that the task is gone, unlock it on the page of the workspace")
	}
	s.lead = sentence(s.lead)
	s.notes = slices.DeleteFunc(s.notes, func(p phrase) bool { return p.text == "" })
	for i, p := range s.notes {
		if s.notes[i].text = clean(p.text); p.at.IsZero() {
			s.notes[i].text = sentence(p.text)
		}
	}
	return s
}

// head is the mark as the lead's sentence begins, or as a sentence before it.
func (s *saying) head() mark {
	m := s.mark
	m.word = capital(m.word)
	if first, _ := utf8.DecodeRuneInString(s.lead); !unicode.IsLower(first) {
		m.word += "."
	}
	return m
}

func (s *saying) running(why api.Why) {
	w, isRunning := why.Workflow, func(one api.Step) bool { return one.Status == workflow.StepRunning }
	switch i := slices.IndexFunc(w.Steps, isRunning); {
	case why.Code == "result":
		s.lead = "Its task has ended well, and its result is on its way"
		s.note(why.NextAt, "Without the result it fails")
		return
	case w.CancelRequested:
		s.lead = "Its engine is interrupted and gets time to stop"
		for _, e := range why.Timeline {
			if e.Kind == "cancel_requested" {
				s.note(&e.At, "%s asked for it", e.Actor)
			}
		}
		s.note(nil, "An engine that does not stop is killed")
		return
	case i >= 0:
		s.lead = "step " + w.Steps[i].Name
		s.note(&w.Steps[i].StartedAt, "The step began")
	case len(w.Steps) == 0:
		s.lead = "Its runner gets ready"
	default:
		s.lead = fmt.Sprintf("Step %s is done", w.Steps[len(w.Steps)-1].Name)
	}
	s.note(why.NextAt, "It is stopped if it still runs")
}

// failed notes the text of the step that failed, if it says more than the run's detail.
func (s *saying) failed(w api.Workflow) {
	for _, one := range w.Steps {
		if one.Status == workflow.StepFailed && one.Text != "" && !strings.Contains(w.Detail, one.Text) && !strings.Contains(one.Text, w.Detail) {
			s.note(nil, "Step %s: %s", one.Name, one.Text)
		}
	}
}

func (s *saying) ended(w api.Workflow) {
	if w.StartedAt != nil && w.EndedAt != nil {
		s.note(w.EndedAt, "It ran for %s and ended", runtext.Took(w, time.Time{}))
	} else {
		s.note(w.EndedAt, "It ended")
	}
}

// reviewed says how a review of a plan ended, or which decision it waits for.
func (s *saying) reviewed(r *api.Review, me string) {
	if r == nil {
		return
	}
	switch r.Status {
	case api.ReviewWaiting:
		s.mark = mark{"warn", "◇", runtext.ForApproval}
		who := "Anyone with the operator role"
		if r.NotBySubmitter {
			who += " but " + strings.Join(r.Submitters.Names(), " and ")
			if r.Submitters.Has(me) {
				who += " (you are among the submitters)"
			}
		}
		s.notes = nil
		s.note(nil, "%s can approve it", who)
		if needed := runtext.Needed(*r); needed != "" {
			s.note(nil, "It needs %s", needed)
		}
		if r.AfterMerge {
			s.note(nil, "%s", capital(runtext.CarryOver))
		}
		s.carried(r)
		s.note(&r.ExpiresAt, "The plan expires")
		if len(r.Why) > 0 {
			s.note(nil, "An approval is required by %s", strings.Join(r.Why, "; "))
		}
	case api.ReviewApproved:
		s.note(nil, "The plan is approved, and another run applies it")
		s.carried(r)
	case api.ReviewMerge:
		s.note(nil, "The plan is approved: %s", runtext.CarryOver)
	case api.ReviewCarried:
		s.note(nil, "Its approvals were carried over to the plan of %s, because all planned changes are equal", r.CarriedTo)
	case api.ReviewRejected:
		s.note(nil, "The plan is rejected: a new preview makes a new one")
	case api.ReviewExpired:
		s.note(&r.ExpiresAt, "The plan was not approved in time, and expired")
	case api.ReviewStale:
		s.mark = mark{"warn", "◇", "plan is stale"}
		s.notes = nil
		s.note(nil, "The plan cannot be approved: %s", r.Stale)
	}
}

// carried says whose approvals a plan has.
func (s *saying) carried(r *api.Review) {
	if r.CarriedFrom != "" {
		s.note(nil, "Approvals were carried over from %s, because all planned changes are equal", r.CarriedFrom)
	}
}

// under is the line below a run in a list: why it failed, where it is, or its changes.
func under(w api.Workflow) string {
	switch {
	case w.State == workflow.Failed:
		return brief(runtext.Cause(w))
	case w.State == workflow.Running && w.Step != "":
		return "in step " + brief(w.Step)
	}
	return runtext.Changed(w)
}

// latest is the last event of a run, and its time.
func latest(w api.Workflow) (verb string, when stamp) {
	switch {
	case w.EndedAt != nil:
		return "ended", at(w.EndedAt)
	case w.StartedAt != nil:
		return "started", at(w.StartedAt)
	case w.ClaimedAt != nil:
		return "claimed", at(w.ClaimedAt)
	}
	return "submitted", stamp{w.SubmittedAt}
}

// last is when that was.
func last(w api.Workflow) stamp {
	_, when := latest(w)
	return when
}
