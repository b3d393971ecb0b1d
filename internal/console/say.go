package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// saying is what the page of a run says first: where the run stands, and what happens next or what to do.
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

// reasons says what each reason means, and what to do about it where its sentence does not say.
var reasons = map[workflow.Reason][2]string{
	workflow.ReasonCancelled:         {"somebody asked for it", ""},
	workflow.ReasonExpiredInQueue:    {"it waited for a day and was not started", "Look at its pool: is an agent or a stack running?"},
	workflow.ReasonNeverStarted:      {"five claims ended without a start", "The last launch below says more."},
	workflow.ReasonLaunchFailed:      {"it could not be launched, and trying again would not help", "Check image, role, size and network of the pool."},
	workflow.ReasonLaunchWindow:      {"it did not start within an hour of its claim", "The last launch below says more."},
	workflow.ReasonRunnerLost:        {"nothing was heard of its runner for ten minutes", "Look at the log of its task."},
	workflow.ReasonTaskStopped:       {"its task ended without a result", "Memory, Spot and the machine are the usual causes."},
	workflow.ReasonResultMissing:     {"its result never came", "Look at the state before you run it again."},
	workflow.ReasonDeadline:          {"it ran for longer than it may", "Raise max_runtime of the workspace, or find what hangs."},
	workflow.ReasonRunnerTooOld:      {"its runner does not know what the run needs", "Upgrade the image or the agent."},
	workflow.ReasonNotApproved:       {"an approval is required by now, and it has none", "Retry it: that makes a plan first."},
	workflow.ReasonInputMissing:      {"an output of another workspace is missing that it needs", "Run an update of that workspace, then retry it."},
	workflow.ReasonStepFailed:        {"a step failed", "The end of the log has the cause."},
	workflow.ReasonSourceFailed:      {"the source could not be fetched", "Check its address, ref, token and network."},
	workflow.ReasonSecretUnavailable: {"a secret could not be read", "Check its reference, and the rights of the role."},
	workflow.ReasonRoleUnavailable:   {"the role of the workspace could not be assumed", "Check its trust policy and its path."},
	workflow.ReasonEngineNotFound:    {"there is no engine with that name and version", "Install it, or change engine_version of the workspace."},
	workflow.ReasonStateNotKept:      {"the state would be gone with the task", "Give the workspace a place for its state."},
	workflow.ReasonStateElsewhere:    {"another state exists than the one that would be used", ""},
	workflow.ReasonStateOwned:        {"the state is that of another workspace", "Go on with the other workspace, or ask an admin of both: dayfly repair own."},
	workflow.ReasonSourceMoved:       {"the files of its directory changed while it waited", "Retry it."},
	workflow.ReasonPlanStale:         {"the approved plan does not fit any more", "Make a new preview, and approve its plan."},
	workflow.ReasonArtifactFailed:    {"a file that it needs could not be placed or fetched", "Look at the log; then retry it."},
	workflow.ReasonHookFailed:        {"a hook of the workspace failed", "The log of that hook has the cause. What was applied before it stays."},
	workflow.ReasonPolicyFailed:      {"a policy that must hold denied it, or could not be evaluated", "Change the code, or ask an admin for a waiver where its group is waivable."},
	workflow.ReasonHookRefused:       {"its pool does not allow a hook of the workspace", "Let preapproved_hooks of the pool have its digest, or remove the hook."},
	workflow.ReasonInterrupted:       {"its task was told to stop", "Look at the state; then retry it."},
	workflow.ReasonRunnerError:       {"the runner itself failed", "This may be a bug to report."},
	workflow.ReasonOutOfMemory:       {"the system killed a process of it for memory", "Give the workspace a larger size."},
	workflow.ReasonDiskFull:          {"no disk was left for it, or it used more than it may", "Give the workspace a larger disk_gib."},
	workflow.ReasonSpotTaken:         {"AWS took the Spot capacity of its task back", "Look at the state; then retry it. Spot never keeps the workspace off Spot."},
	workflow.ReasonRelayLost:         {"its runner could not reach the relay with its result", "Check the network of the pool, and look at the state."},
	workflow.ReasonThrottled:         {"AWS asks for patience", ""},
	workflow.ReasonQuota:             {"the quota of the account is used up", "Ask AWS for more."},
	workflow.ReasonCapacity:          {"there is no capacity where it was asked for", "Add zones to the pool."},
	workflow.ReasonUnavailable:       {"the launcher's service does not answer", ""},
}

// say says where a run stands, for somebody called me. It is a pure function.
func say(why api.Why, me string) saying {
	w := why.Workflow
	s := saying{mark: markOf(w)}
	switch w.State {
	case workflow.Pending:
		s.lead, s.behind = "for "+why.Waiting, why.WaitingForWorkflow
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
		s.lead = told(w)
		s.ended(w)
		s.reviewed(w.Review, me)
	case workflow.Failed:
		words := reasons[w.Reason]
		s.lead = capital(cmp.Or(words[0], string(w.Reason)))
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
		s.note(nil, "%s", capital(cmp.Or(w.Aftermath(), words[1])))
	case workflow.Cancelled:
		s.lead = strings.TrimPrefix(w.Detail, "cancelled ")
		s.ended(w)
	}
	if w.SlotHeld && w.State.Terminal() {
		s.note(why.NextAt, "Workspace %s is still held, because nothing proves that the task has ended; it is free at the latest", w.Workspace)
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
		s.note(w.EndedAt, "It ran for %s and ended", long(w.EndedAt.Sub(*w.StartedAt)))
	} else {
		s.note(w.EndedAt, "It ended")
	}
}

// reviewed says what became of a plan, or what it waits for.
func (s *saying) reviewed(r *api.Review, me string) {
	if r == nil {
		return
	}
	switch r.Status {
	case api.ReviewWaiting:
		s.mark = mark{"warn", "◇", "waits for approval"}
		who := "Anyone with the operator role"
		if r.NotBySubmitter {
			who += " but " + strings.Join(r.Submitters.Names(), " and ")
			if r.Submitters.Has(me) {
				who += " (you are among the submitters)"
			}
		}
		s.notes = nil
		s.note(nil, "%s can approve it", who)
		if r.Needed > 1 {
			because := ""
			if r.NeededWhy != "" {
				because = ", because " + r.NeededWhy
			}
			s.note(nil, "It needs %d approvals of different people and has %d%s", r.Needed, len(r.Votes), because)
		}
		if r.AfterMerge {
			s.note(nil, "It is not applied before the merge: its approvals carry over to the plan of the merged commit, if all planned changes are equal")
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
		s.note(nil, "The plan is approved and waits for the merge: its approvals carry over to the plan of the merged commit, if all planned changes are equal")
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

// doing is what a run does, in few words.
func doing(w api.Workflow) string {
	switch {
	case w.Type == workflow.InsightsScan:
		return "scan"
	case w.Type == workflow.PolicyEvaluation:
		return "policy evaluation"
	case w.Applies != "":
		return string(w.Operation) + " as approved"
	case w.For != "":
		return "preview for " + string(w.For)
	}
	return strings.ReplaceAll(string(w.Operation), "_", " ")
}

// count is a number of resources, with what happens to them.
type count struct {
	n          int
	would, did string
}

// counts are those of a plan, what cannot be undone first. Replaced resources count as that only.
func counts(c api.Changes) []count {
	all := []count{
		{c.Destroy - c.Replace, "destroy", "destroyed"}, {c.Replace, "replace", "replaced"},
		{c.Change, "change", "changed"}, {c.Add - c.Replace, "add", "added"},
		{c.Import, "import", "imported"}, {c.Move, "move", "moved"}, {c.Forget, "forget", "forgotten"},
	}
	return slices.DeleteFunc(all, func(one count) bool { return one.n <= 0 })
}

// verb is what happens to resources, or has happened.
func (c count) verb(did bool) string {
	if did {
		return c.did
	}
	return c.would
}

// numbers are the counts in words: "3 to add", "3 added".
func numbers(c api.Changes, did bool) (out []string) {
	for _, one := range counts(c) {
		if did {
			out = append(out, fmt.Sprintf("%d %s", one.n, one.did))
		} else {
			out = append(out, fmt.Sprintf("%d to %s", one.n, one.would))
		}
	}
	if c.Drift > 0 {
		out = append(out, fmt.Sprintf("%d drifted", c.Drift))
	}
	return out
}

// inNumbers says what the plan of a run would do, or what the run did; "" where that is not known.
func inNumbers(w api.Workflow) string {
	if w.Changes == nil || !w.State.Terminal() {
		return ""
	}
	switch out := numbers(*w.Changes, w.Did()); {
	case len(out) > 0:
		return strings.Join(out, ", ")
	case w.State != workflow.Succeeded:
		return ""
	case w.Type == workflow.InsightsScan:
		return "no drift"
	}
	return "no changes"
}

// under is the line below a run in a list: why it failed, where it is, or what it did.
func under(w api.Workflow) string {
	switch {
	case w.State == workflow.Failed:
		return brief(cmp.Or(w.Detail, strings.ReplaceAll(string(w.Reason), "_", " ")))
	case w.State == workflow.Running && w.Step != "":
		return "in step " + brief(w.Step)
	}
	return inNumbers(w)
}

// latest is what happened to a run last, and when.
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

// lasted is how long a run has run, or ran; "" before its start.
func lasted(v *view, w api.Workflow) string {
	if w.StartedAt == nil {
		return ""
	}
	return long(cmp.Or(at(w.EndedAt).Time, v.now).Sub(*w.StartedAt))
}

// told says what a run that succeeded would change, or has changed.
func told(w api.Workflow) string {
	if w.Result == nil || w.Result.Changes == nil {
		return "Everything that it had to do is done"
	}
	c, did := *w.Result.Changes, w.Did()
	out, other := "It would ", count{would: "change", did: "changed"}
	if did {
		out = "It "
	}
	var parts []string
	for i, one := range counts(c) {
		n := fmt.Sprint(one.n)
		if i == 0 {
			n = text.Count(one.n, "resource")
		}
		parts = append(parts, one.verb(did)+" "+n)
	}
	switch n := len(c.Outputs); {
	case len(parts) > 0:
	case n > 0:
		parts = append(parts, other.verb(did)+" "+text.Count(n, "output")+" only")
	default:
		parts = append(parts, other.verb(did)+" nothing")
	}
	if out += list(parts); c.Drift > 0 {
		out += fmt.Sprintf("; %s changed outside the code", text.Count(c.Drift, "resource"))
	}
	return out
}
