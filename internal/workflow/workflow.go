// Package workflow is the vocabulary of Dayfly: what a workflow is, the states it
// passes through, the reasons it ends, the one table of allowed moves, and the
// sentinel errors that every other package classifies into.
//
// It does no input or output and depends on the standard library only.
package workflow

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Type is the kind of run that was requested.
type Type string

// The types of workflow.
const (
	Deployment       Type = "deployment"
	InsightsScan     Type = "insights_scan"
	PolicyEvaluation Type = "policy_evaluation"
)

// Types lists every type, in the order in which people read them.
func Types() []Type { return []Type{Deployment, InsightsScan, PolicyEvaluation} }

// Operation is the action of a deployment. Other types have none.
type Operation string

// The operations of a deployment.
const (
	Preview Operation = "preview"
	Update  Operation = "update"
	Refresh Operation = "refresh"
	Destroy Operation = "destroy"

	// Operations on the engine's state itself. They run as jobs because state never passes through the control plane.
	// These two need no slot: one only reads, and the other releases a lock by its id, which belongs to one holder
	// only.
	StateList   Operation = "state_list"
	StateUnlock Operation = "state_unlock"
	// Pulling a state reads it into an artifact. Pushing one replaces it, which needs the slot.
	StatePull Operation = "state_pull"
	StatePush Operation = "state_push"
)

// Operations lists every operation.
func Operations() []Operation {
	return []Operation{Preview, Update, Refresh, Destroy, StateList, StateUnlock, StatePull, StatePush}
}

// Plans says whether a run of this type and operation makes a plan.
func Plans(t Type, op Operation) bool {
	return t == InsightsScan || t == Deployment && (op == Preview || op == Update || op == Refresh || op == Destroy)
}

// Policed says whether a run of this type and operation is held to policies: deployments that make a plan and policy
// evaluations are. Scans, and operations on the state itself, are not.
func Policed(t Type, op Operation) bool {
	return t == PolicyEvaluation || t == Deployment && Plans(t, op)
}

// ChangesState says whether a run of this type and operation writes the
// workspace's state, and therefore needs its slot.
func ChangesState(t Type, op Operation) bool {
	return t == Deployment && (op == Update || op == Refresh || op == Destroy || op == StatePush)
}

// State is where a workflow stands.
type State string

// The states. The last three are terminal: a workflow never leaves them.
const (
	Pending   State = "pending"
	Claimed   State = "claimed"
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// States lists every state in the order of the diagram.
func States() []State {
	return []State{Pending, Claimed, Running, Succeeded, Failed, Cancelled}
}

// Terminal reports whether a workflow can never leave s.
func (s State) Terminal() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Reason says why a workflow is in its state. People write alert and retry rules for it, so none is renamed or taken
// away. A later version may have others.
type Reason string

// The reasons. ReasonNone is for a workflow that succeeded or has not ended.
const (
	ReasonNone Reason = ""

	// Ends decided by the control plane.
	ReasonCancelled      Reason = "cancelled"        // cancellation was requested
	ReasonExpiredInQueue Reason = "expired_in_queue" // pending longer than its queue time-out
	ReasonNeverStarted   Reason = "never_started"    // five claims lapsed before a start
	ReasonLaunchFailed   Reason = "launch_failed"    // the launcher says that no retry can help
	ReasonLaunchWindow   Reason = "launch_window"    // not started within the launch window
	ReasonRunnerLost     Reason = "runner_lost"      // ten minutes of silence while running
	ReasonTaskStopped    Reason = "task_stopped"     // its task ended without a result
	ReasonResultMissing  Reason = "result_missing"   // its task said the result was handed over; it never came
	ReasonDeadline       Reason = "deadline"         // longer than its max runtime
	ReasonRunnerTooOld   Reason = "runner_too_old"   // the runner lacks a feature that the run needs
	ReasonNotApproved    Reason = "not_approved"     // an approval is required by now, and the run has none
	ReasonInputMissing   Reason = "input_missing"    // an output of another workspace is missing that the run needs
	ReasonSpotTaken      Reason = "spot_taken"       // AWS took back the Spot capacity of its task
	ReasonRelayLost      Reason = "relay_lost"       // its runner ended without reaching the relay with its result

	// Ends reported by the runner.
	ReasonStepFailed        Reason = "step_failed"        // a step of the engine or command failed
	ReasonSourceFailed      Reason = "source_failed"      // the source could not be fetched
	ReasonSecretUnavailable Reason = "secret_unavailable" // a secret reference did not resolve
	ReasonRoleUnavailable   Reason = "role_unavailable"   // the workspace's role could not be assumed
	ReasonEngineNotFound    Reason = "engine_not_found"   // no engine of that name and version
	ReasonStateNotKept      Reason = "state_not_kept"     // the state would die with the task
	ReasonStateElsewhere    Reason = "state_elsewhere"    // another state exists than the one that would be used
	ReasonStateOwned        Reason = "state_owned"        // the state is that of another workspace
	ReasonSourceMoved       Reason = "source_moved"       // the directory's files changed after the submission
	ReasonPlanStale         Reason = "plan_stale"         // the approved plan does not fit any more; also decided by the control plane
	ReasonArtifactFailed    Reason = "artifact_failed"    // an artifact that the run needs could not be placed or fetched
	ReasonHookFailed        Reason = "hook_failed"        // a hook of the workspace failed, and no step did
	ReasonHookRefused       Reason = "hook_refused"       // the pool does not allow a hook of the workspace
	ReasonPolicyFailed      Reason = "policy_failed"      // a policy denies it, or could not be evaluated
	ReasonInterrupted       Reason = "interrupted"        // its task was told to stop
	ReasonRunnerError       Reason = "runner_error"       // the runner itself failed
	ReasonOutOfMemory       Reason = "out_of_memory"      // the system killed a process of it for memory; also by the end of its task
	ReasonDiskFull          Reason = "disk_full"          // the disk was full, or it used more than it may

	// Why a claimed workflow is not launched yet: transient, retried.
	ReasonThrottled   Reason = "throttled"   // the launcher's API throttled the calls
	ReasonQuota       Reason = "quota"       // the account's quota is used up
	ReasonCapacity    Reason = "capacity"    // no capacity where it was asked for
	ReasonUnavailable Reason = "unavailable" // the launcher's API failed or did not answer
)

// Reasons lists the closed set, without ReasonNone.
func Reasons() []Reason {
	return []Reason{
		ReasonCancelled, ReasonExpiredInQueue, ReasonNeverStarted, ReasonLaunchFailed,
		ReasonLaunchWindow, ReasonRunnerLost, ReasonTaskStopped, ReasonResultMissing, ReasonDeadline, ReasonRunnerTooOld, ReasonNotApproved, ReasonInputMissing,
		ReasonSpotTaken, ReasonRelayLost,
		ReasonStepFailed, ReasonSourceFailed, ReasonSecretUnavailable, ReasonRoleUnavailable, ReasonEngineNotFound,
		ReasonStateNotKept, ReasonStateElsewhere, ReasonStateOwned, ReasonSourceMoved, ReasonPlanStale, ReasonArtifactFailed,
		ReasonHookFailed, ReasonHookRefused, ReasonPolicyFailed, ReasonInterrupted, ReasonRunnerError, ReasonOutOfMemory, ReasonDiskFull,
		ReasonThrottled, ReasonQuota, ReasonCapacity, ReasonUnavailable,
	}
}

// Known reports whether r is in the list (or is ReasonNone).
func (r Reason) Known() bool { return r == ReasonNone || slices.Contains(Reasons(), r) }

// EndsTask reports whether a launcher may give r as the cause of a task's end, in place of ReasonTaskStopped.
func (r Reason) EndsTask() bool {
	return r == ReasonOutOfMemory || r == ReasonSpotTaken || r == ReasonRelayLost
}

// Held reports whether a launch that was refused for r may still succeed without any action, so that the end of the
// launch window is not counted as a failure.
func (r Reason) Held() bool {
	return r == ReasonThrottled || r == ReasonQuota || r == ReasonCapacity
}

// StepStatus is where one step of a run stands.
type StepStatus string

// The statuses of a step.
const (
	StepRunning   StepStatus = "running"
	StepSucceeded StepStatus = "succeeded"
	StepFailed    StepStatus = "failed"
	StepSkipped   StepStatus = "skipped"
)

// The limits of the state machine. They are fixed by the contract, not settings: every part uses the same ones.
const (
	// FirstLease is how long a claim lasts until the poller says it was queued.
	FirstLease = 60 * time.Second
	// QueuedLease is how long it lasts from then on; launch events extend it.
	QueuedLease = 15 * time.Minute
	// LaunchWindow is how long after its claim an attempt may be launched.
	LaunchWindow = 60 * time.Minute
	// Silence is how long a running workflow may go without a heartbeat.
	Silence = 10 * time.Minute
	// ResultGrace is how long a result may be on its way after its task ended well.
	ResultGrace = 10 * time.Minute
	// Patience is how long a workflow may wait to be claimed, or to be started, before it counts as stuck.
	Patience = 30 * time.Minute
	// QueueTimeout is how long a workflow may be pending.
	QueueTimeout = 24 * time.Hour
	// MaxLapses is the number of lapsed claims that ends a workflow.
	MaxLapses = 5
	// MaxStarts is how often a scan or evaluation may start.
	MaxStarts = 3
	// HeartbeatInterval is how often a runner reports.
	HeartbeatInterval = 30 * time.Second
	// DeadlineGrace is how long after its deadline a run is proven over without a report. A runner kills its engine
	// some time before that, so that the engine is dead before it is assumed to be.
	DeadlineGrace = 2 * time.Minute
	// LateLogs is how long after the end of a run its readers are told that the rest of its log may still come.
	LateLogs = time.Hour
	// ReportRetention is how long a result, or the rest of a log, may be on its way at all.
	ReportRetention = 4 * 24 * time.Hour
	// DefaultMaxRuntime is the deadline of a workspace that sets none.
	DefaultMaxRuntime = time.Hour
	// MaxMaxRuntime is the longest deadline that can be asked for.
	MaxMaxRuntime = 24 * time.Hour
)

// Patterns are compiled when they are first used, here and elsewhere: every job starts this program again, and needs
// hardly any of them.
var poolName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{3,64}$`) })

// CheckPoolName refuses a name that breaks the rule for pools.
func CheckPoolName(name string) error {
	if !poolName().MatchString(name) {
		return Refuse(ErrInvalid, "name", "a pool name has 3 to 64 characters of A-Z, a-z, 0-9, _ and -; %s does not", quote(name))
	}
	return CheckNoID(name)
}

// idPrefixes begin the ids of records.
var idPrefixes = []string{
	"dlv_", "gh_", "iss_", "ntf_", "pgr_", "pool_", "prj_", "prn_", "sch_", "sec_", "ses_", "sp_", "tok_", "tree_", "wf_", "ws_", "wvr_",
}

// CheckNoID refuses a name that begins as an id does, so that a name is never taken for an id.
func CheckNoID(name string) error {
	for _, prefix := range idPrefixes {
		if strings.HasPrefix(name, prefix) {
			return Refuse(ErrInvalid, "name", "%s begins with %s, as ids do, and no name may; choose another name", quote(name), prefix)
		}
	}
	return nil
}

// NoID proposes a name in place of one that begins as an id does: ws-core for ws_core.
func NoID(name string) string {
	if CheckNoID(name) != nil {
		return strings.Replace(name, "_", "-", 1)
	}
	return name
}

// CheckText refuses a free text, such as a description, of more than limit bytes or with control characters. Newlines
// and tabs are allowed.
func CheckText(field, s string, limit int) error {
	if len(s) > limit {
		return Refuse(ErrInvalid, field, "it has %d bytes, at most %d are taken: shorten it", len(s), limit)
	}
	if !utf8.ValidString(s) {
		return Refuse(ErrInvalid, field, "it is not UTF-8: write it in that encoding")
	}
	for i, r := range s {
		if unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) {
			return Refuse(ErrInvalid, field, "it has the control character U+%04X at byte %d: leave it out", r, i)
		}
	}
	return nil
}

var workspaceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`) })

// CheckWorkspaceName refuses invalid names of workspaces and projects.
func CheckWorkspaceName(name string) error {
	if !IsPathPart(name) {
		return Refuse(ErrInvalid, "name", "a workspace name has 1 to 64 characters of A-Z, a-z, 0-9, _ and -, the first a letter or a digit; %s does not", quote(name))
	}
	return CheckNoID(name)
}

// IsPathPart says whether a name or an id can be a part of a path or of the key of a state.
func IsPathPart(s string) bool { return workspaceName().MatchString(s) }

// quote shows foreign text in an error: quoted, and cut where it is long.
func quote(s string) string {
	const limit = 80
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	return fmt.Sprintf("%q", s)
}
