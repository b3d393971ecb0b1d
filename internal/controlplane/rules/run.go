package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Standing is the state of a run as its runner's call finds it.
type Standing int

// The values of Standing.
const (
	MayStart Standing = iota + 1 // claimed, and no boot holds it
	Holds                        // this boot holds the run, or its slot
	Ended                        // this boot held it, and its end was recorded
)

// Admit decides what a call in the name of run may do. It is a pure function of the record.
func Admit(w *record.Workflow, run api.Run) (Standing, error) {
	over := func(why string) error {
		return workflow.Refuse(workflow.ErrOver, "", "attempt %d of %s is over: %s; stop the engine and exit", run.Attempt, w.ID, why)
	}
	if run.Attempt != w.Attempt {
		return 0, over(fmt.Sprintf("attempt %d came after it", w.Attempt))
	}
	mine := w.Holder.Is(run)
	switch w.State {
	case workflow.Claimed:
		return MayStart, nil // Start decides which task and boot
	case workflow.Running:
		if mine {
			return Holds, nil
		}
		return 0, workflow.Refuse(workflow.ErrAlreadyStarted, "", "attempt %d of %s was started by another boot; exit and do nothing", run.Attempt, w.ID)
	case workflow.Pending:
		return 0, over("its claim has lapsed")
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		switch {
		case mine && w.SlotHeld:
			return Holds, nil // lost, but it is not stopped
		case mine:
			return Ended, nil
		case w.Holder.Boot != "":
			return 0, workflow.Refuse(workflow.ErrAlreadyStarted, "", "attempt %d of %s was started by another boot; exit and do nothing", run.Attempt, w.ID)
		}
		return 0, over("the workflow is " + string(w.State))
	}
	return 0, fmt.Errorf("workflow %s has the unknown state %q", w.ID, w.State)
}

// CheckRun refuses a run that is not named in full.
func CheckRun(run api.Run) error {
	if err := record.CheckID(run.Workflow); err != nil {
		return err
	}
	if run.Attempt < 1 || run.Attempt > 9999 {
		return workflow.Refuse(workflow.ErrInvalid, api.HeaderAttempt, "the attempt is a number from 1")
	}
	if run.Task == "" || len(run.Task) > 512 {
		return workflow.Refuse(workflow.ErrInvalid, api.HeaderTask, "the task is named in 1 to 512 bytes")
	}
	if len(run.Boot) != 32 {
		return workflow.Refuse(workflow.ErrInvalid, api.HeaderBoot, "the boot is 32 hexadecimal digits")
	}
	return nil
}

// Control is the answer to a runner.
func Control(w *record.Workflow, t Time) api.Control {
	return api.Control{
		Cancel:           !w.CancelAt.IsZero() && w.State == workflow.Running,
		RemainingSeconds: Deadline(w).Sub(t.Service).Seconds(),
		HeartbeatSeconds: workflow.HeartbeatInterval.Seconds(),
	}
}

// NeedsHold refuses a call of a run that has not started or has ended.
func NeedsHold(s Standing) error {
	switch s {
	case MayStart:
		return workflow.Refuse(workflow.ErrNotStarted, "", "ask for the start first")
	case Ended:
		return workflow.Refuse(workflow.ErrOver, "", "the run has ended")
	case Holds:
	}
	return nil
}

// Start grants the run of an attempt to one boot of one task that was reported as launched. The same boot asking
// again is granted nothing new. A runner that does not know a feature that the run needs ends the run: the setting
// that it would ignore may be the place of the state. So does a run that the permit refuses.
func Start(w *record.Workflow, s Standing, run api.Run, knows []string, permit Permit, t Time) (out Outcome, err error) {
	switch s {
	case Holds:
		return out, nil
	case Ended:
		return out, workflow.Refuse(workflow.ErrOver, "", "the run has ended")
	case MayStart:
	}
	if !slices.ContainsFunc(w.Tasks, func(t record.Task) bool { return t.Ref == run.Task && !t.Stopped }) {
		return out, &workflow.Error{Kind: workflow.ErrNotReported, Message: "task " + text.Cut(run.Task, 100) + " has not been reported as launched yet; ask again", RetryAfter: time.Second}
	}
	needs := permit.needs(w)
	if i := slices.IndexFunc(needs, func(one string) bool { return !slices.Contains(knows, one) }); i >= 0 {
		out.Detail = fmt.Sprintf("the runner is of an older version and does not know %q, which this run needs; upgrade the program or the image that runs jobs", needs[i])
		out.noteTask("runner_too_old", out.Detail, run.Task)
		out.Proven = true
		return out, out.next(w, workflow.OnRunnerTooOld)
	}
	if on, why := permit.refusal(w); on != "" {
		out.noteTask(string(on), why, run.Task)
		out.Detail, out.Proven = why, true
		return out, out.next(w, on)
	}
	if err := out.next(w, workflow.OnStart); err != nil {
		return out, err
	}
	// From here on the holder is fixed: every later call must name this task and this boot.
	w.Starts++
	w.Started, w.Service.Deadline = t.Now, t.Service.Add(w.MaxRuntime).UnixMilli()
	w.Holder = record.Holder{Attempt: run.Attempt, Task: run.Task, Boot: run.Boot}
	w.Lease, w.Held = time.Time{}, record.Held{}
	out.noteTask("started", "started; at most "+w.MaxRuntime.String(), run.Task)
	return out, nil
}

// Result decides by the result of a run, which was not reported before. A result of the boot that holds the run is
// final. A late one never changes a terminal state, but it goes to the timeline, and proves the end.
func Result(w *record.Workflow, s Standing, run api.Run, in api.Result, now time.Time) (out Outcome, err error) {
	switch {
	case s == MayStart:
		return out, NeedsHold(s)
	case w.State == workflow.Running:
		f := facts(w)
		f.Outcome, f.Reason = in.Outcome, in.Reason
		if out.Move, err = workflow.Next(w.State, workflow.OnResult, f); err != nil {
			return out, err
		}
		out.noteTask("result", resultText(w, in), run.Task)
		out.Detail, out.Proven = in.Detail, true
		return out, nil
	case now.Sub(w.Ended) > workflow.ReportRetention:
		return out, workflow.Refuse(workflow.ErrOver, "", "the run ended more than %s ago", workflow.ReportRetention)
	}
	// The note shows the effect of the engine on the state, which the workflow's state does not show. It must be
	// noticed.
	out.noteTask("late_result", fmt.Sprintf("LATE RESULT: this workflow was already %s (%s), but its runner has finished after all: %s", w.State, w.Reason, resultText(w, in)), run.Task)
	out.Over = w.SlotHeld
	return out, nil
}

// Remember returns the known state of a workspace after a run reported one. A slow reader may report an older state
// than the known one. It is a pure function.
func Remember(known, found api.StateFound) api.StateFound {
	found.Taken = ""
	if known.Lineage == found.Lineage {
		found.Serial = max(known.Serial, found.Serial)
	}
	return found
}

// CheckResult refuses a result that contradicts itself.
func CheckResult(in api.Result) error {
	switch in.Outcome {
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
	default:
		return workflow.Refuse(workflow.ErrInvalid, "outcome", "an outcome is succeeded, failed or cancelled")
	}
	if !in.Reason.Known() {
		return workflow.Refuse(workflow.ErrInvalid, "reason", "reason %q is not in the list of reasons", text.Cut(string(in.Reason), 40))
	}
	if in.Outcome == workflow.Failed && in.Reason == workflow.ReasonNone {
		return workflow.Refuse(workflow.ErrInvalid, "reason", "a failure has a reason")
	}
	if in.Outcome == workflow.Succeeded && in.Reason != workflow.ReasonNone {
		return workflow.Refuse(workflow.ErrInvalid, "reason", "a success has no reason")
	}
	if in.Plan != nil {
		if err := checkPlan(*in.Plan); err != nil {
			return err
		}
	}
	if in.Changes != nil {
		if err := checkChanges(*in.Changes); err != nil {
			return err
		}
	}
	if c := in.Checks; c != nil && (c.Failing < len(c.Names) || len(c.Names) > 10 || slices.ContainsFunc(c.Names, func(s string) bool { return len(s) > 255 })) {
		return workflow.Refuse(workflow.ErrInvalid, "checks", "of failing checks at most 10 are named, with 255 bytes each")
	}
	if len(in.OmittedOutputs) > 50 || slices.ContainsFunc(in.OmittedOutputs, func(s string) bool { return len(s) > 255 }) {
		return workflow.Refuse(workflow.ErrInvalid, "omitted_outputs", "at most 50 outputs that were left out are named, with 255 bytes each")
	}
	return checkPolicies(in.Policies)
}

// checkPolicies refuses impossible results of policies, and those that are too large to be kept.
func checkPolicies(all []api.PolicyResult) error {
	const groups = 50
	if len(all) > groups {
		return workflow.Refuse(workflow.ErrTooLarge, "policies", "a run is held to at most %d policy groups", groups)
	}
	for _, r := range all {
		if err := checkPolicy(r); err != nil {
			return err
		}
	}
	return nil
}

// checkPolicy is checkPolicies for the result of one group.
func checkPolicy(r api.PolicyResult) error {
	const findings, short, long = 500, 255, 1000
	if !slices.Contains([]string{api.PolicyAdvisory, api.PolicyMandatory, api.PolicyWaivable}, r.Enforcement) || min(r.Rules, r.Denied, r.Warned, r.Waived) < 0 {
		return workflow.Refuse(workflow.ErrInvalid, "policies", "the result of policy group %q has no enforcement, or a negative count", text.Cut(r.Group, 64))
	}
	bad := len(r.Findings) > findings || len(r.Waivers) > findings || len(r.Group) > short || len(r.Error) > long
	for _, f := range r.Findings {
		if !slices.Contains([]string{api.FindingDenied, api.FindingWarned, api.FindingWaived}, f.Outcome) {
			return workflow.Refuse(workflow.ErrInvalid, "policies", "the outcome of a finding is denied, warned or waived, not %q", text.Cut(f.Outcome, 40))
		}
		bad = bad || max(len(f.Rule), len(f.Waiver)) > short || max(len(f.Address), len(f.Message)) > long
	}
	for _, w := range r.Waivers {
		bad = bad || max(len(w.Name), len(w.Rule), len(w.GivenBy)) > short || max(len(w.Address), len(w.Reason)) > long
	}
	if bad {
		return workflow.Refuse(workflow.ErrTooLarge, "policies", "the result of a policy group has at most %d findings and waivers, and %d bytes in a text", findings, long)
	}
	return nil
}

// checkPlan refuses a plan that is not named in full.
func checkPlan(in api.PlanMade) error {
	if err := api.CheckArtifactName(in.Artifact); err != nil || !strings.HasPrefix(in.Artifact, api.PlanDir) {
		return workflow.Refuse(workflow.ErrInvalid, "plan.artifact", "the bundle of a plan is an artifact below %s; %.250q is not", api.PlanDir, in.Artifact)
	}
	if !IsSHA256(in.SHA256) || !IsSHA256(in.Summary) {
		return workflow.Refuse(workflow.ErrInvalid, "plan", "sha256 and summary are 64 hexadecimal digits in lower case each")
	}
	if in.Values != "" && !IsSHA256(in.Values) {
		return workflow.Refuse(workflow.ErrInvalid, "plan.values", "values is 64 hexadecimal digits in lower case, or nothing")
	}
	if in.Size < 1 || in.Size > api.MaxArtifactSize || len(in.Source) > 100 {
		return workflow.Refuse(workflow.ErrInvalid, "plan", "a bundle has 1 to %d bytes, and its source at most 100 characters", api.MaxArtifactSize)
	}
	return nil
}

// IsSHA256 says whether s is a SHA-256 in lower-case hexadecimal digits.
func IsSHA256(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// checkChanges refuses changes that are too large to be kept.
func checkChanges(in api.Changes) error {
	const resources, outputs, names, name = 1000, 500, 100, 255
	bad := len(in.Resources) > resources || len(in.Outputs) > outputs
	for _, r := range in.Resources {
		bad = bad || len(r.Changed) > names || len(r.Forces) > names || slices.ContainsFunc(slices.Concat(r.Changed, r.Forces), func(s string) bool { return len(s) > name })
	}
	for _, o := range in.Outputs {
		bad = bad || len(o.Name) > name
	}
	if min(in.Add, in.Change, in.Destroy, in.Drift, in.Replace, in.Import, in.Move, in.Forget) < 0 {
		return workflow.Refuse(workflow.ErrInvalid, "changes", "a count is not negative")
	}
	if bad {
		return workflow.Refuse(workflow.ErrTooLarge, "changes", "a plan has at most %d resources, %d outputs, %d attributes of a resource, and %d bytes in a name", resources, outputs, names, name)
	}
	return nil
}

func resultText(w *record.Workflow, in api.Result) string {
	text := runtext.Ended(string(in.Outcome), in.Reason) + Because(in.Detail)
	if ch := in.Changes; ch != nil {
		text += "; " + runtext.Counted(api.Workflow{Type: w.Type, Operation: w.Op, State: in.Outcome}, *ch)
	}
	if f := in.State; f != nil && f.Taken != "" {
		text += fmt.Sprintf("; the state was taken over from %s (%s)", f.Taken, runtext.WhichState(f.Lineage, f.Serial))
	}
	if in.Lock != nil {
		text += fmt.Sprintf("; STATE LOCK STILL HELD: %s by %s", in.Lock.ID, cmp.Or(in.Lock.Who, "unknown"))
	}
	return text
}
