package runtext

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// reasons say what each reason means, and what to do about it. The detail of a run has the specifics. WORKSPACE and
// WORKFLOW stand for those of the run.
var reasons = map[workflow.Reason]struct{ means, toDo string }{
	workflow.ReasonCancelled:         {"somebody asked for it", ""},
	workflow.ReasonExpiredInQueue:    {"it waited for a day and was not started", "start an agent or a stack for its pool"},
	workflow.ReasonNeverStarted:      {"five claims ended without a start", "the last launch in dayfly why WORKFLOW says more"},
	workflow.ReasonLaunchFailed:      {"it could not be launched, and trying again would not help", "check image, role, size and network of the pool"},
	workflow.ReasonLaunchWindow:      {"it did not start within an hour of its claim", "the last launch in dayfly why WORKFLOW says more"},
	workflow.ReasonRunnerLost:        {"its runner sent no heartbeat for ten minutes", "look at the log of its task"},
	workflow.ReasonTaskStopped:       {"its task ended without a result", "memory, Spot and the machine are the usual causes"},
	workflow.ReasonResultMissing:     {"its result never arrived", "look at the state before you run it again"},
	workflow.ReasonDeadline:          {"it ran for longer than its maximum", "raise max_runtime of the workspace, or find what hangs"},
	workflow.ReasonRunnerTooOld:      {"its runner is too old for the run", "upgrade the image or the agent of its pool"},
	workflow.ReasonNotApproved:       {"an approval is required by now, and it has none", "retry it: that makes a plan first"},
	workflow.ReasonInputMissing:      {"an output of another workspace is missing that it needs", "run an update of that workspace, then retry it"},
	workflow.ReasonStepFailed:        {"a step failed", "the end of its log has the cause"},
	workflow.ReasonSourceFailed:      {"the source could not be fetched", "check its address, ref, token (source.git.token_ref) and network"},
	workflow.ReasonSecretUnavailable: {"a secret could not be read", "store the secret where the runners are, with dayfly secret set, or correct its ref; check the rights of the role"},
	workflow.ReasonRoleUnavailable:   {"the role of the workspace could not be assumed", "let the role trust the pool, or correct role; check its path"},
	workflow.ReasonEngineNotFound:    {"there is no engine with that name and version", "install that version for the runners, or change engine_version of the workspace"},
	workflow.ReasonStateNotKept:      {"the state would be gone with the task", "declare a backend in the code, or set state.kind of the workspace to s3 or directory"},
	workflow.ReasonStateElsewhere: {
		"another state exists than the one that would be used",
		"see what is in it with dayfly takeover report WORKSPACE --take-over, then take it over once with dayfly run WORKSPACE --op update --take-over; --begin-anew goes on without it",
	},
	workflow.ReasonStateOwned:     {"the state belongs to another workspace", "go on with the workspace that has the state, or ask an admin of both: dayfly repair own WORKFLOW"},
	workflow.ReasonSourceMoved:    {"the files of its directory changed while it waited", "retry it"},
	workflow.ReasonPlanStale:      {"the approved plan does not fit any more", "make a new preview, and approve its plan"},
	workflow.ReasonArtifactFailed: {"a file that it needs could not be placed or fetched", "look at the log; then retry it"},
	workflow.ReasonHookFailed:     {"a hook of the workspace failed", "the log of that hook has the cause; changes applied before it stay"},
	workflow.ReasonPolicyFailed:   {"a policy that must hold denied it, or could not be evaluated", "change the code, or ask an admin for a waiver where its group is waivable"},
	workflow.ReasonHookRefused:    {"its pool does not allow a hook of the workspace", "add the digest of the hook to preapproved_hooks of the pool, or remove the hook"},
	workflow.ReasonInterrupted:    {"its task was told to stop", "look at the state; then retry it"},
	workflow.ReasonRunnerError:    {"the runner itself failed", "this may be a bug to report"},
	workflow.ReasonOutOfMemory:    {"the system killed a process of it for memory", "give the workspace a larger size"},
	workflow.ReasonDiskFull:       {"the disk was full, or it used more than its limit", "give the workspace a larger disk_gib"},
	workflow.ReasonSpotTaken:      {"AWS took the Spot capacity of its task back", "look at the state; then retry it. spot: never keeps the workspace off Spot"},
	workflow.ReasonRelayLost:      {"its runner could not reach the relay with its result", "check the network of the pool, and look at the state"},
	workflow.ReasonThrottled:      {"AWS throttles the requests", ""},
	workflow.ReasonQuota:          {"the quota of the account is used up", "ask AWS for more"},
	workflow.ReasonCapacity:       {"there is no capacity where it was asked for", "add zones to the pool"},
	workflow.ReasonUnavailable:    {"the launcher's service does not answer", ""},
}

// Reason is the meaning of a reason, in a clause; its name where it is not known.
func Reason(r workflow.Reason) string { return cmp.Or(reasons[r].means, string(r)) }

// Cause is why a run failed or was cancelled: the detail, or the meaning of its reason.
func Cause(w api.Workflow) string { return cmp.Or(w.Detail, Reason(w.Reason)) }

// ToDo says what to do about a run that failed; empty about any other, or where nothing is to be done.
func ToDo(w api.Workflow) string {
	if w.State != workflow.Failed {
		return ""
	}
	return cmp.Or(Aftermath(w), strings.NewReplacer("WORKSPACE", w.Workspace, "WORKFLOW", w.ID).Replace(reasons[w.Reason].toDo))
}

// Aftermath says what to do after a run that was cut off while it could change the state; empty after any other.
func Aftermath(w api.Workflow) string {
	cutOff := []workflow.Reason{
		workflow.ReasonTaskStopped, workflow.ReasonRunnerLost, workflow.ReasonResultMissing, workflow.ReasonDeadline,
		workflow.ReasonOutOfMemory, workflow.ReasonDiskFull, workflow.ReasonSpotTaken, workflow.ReasonRelayLost,
	}
	if w.StartedAt == nil || !workflow.ChangesState(w.Type, w.Operation) || !slices.Contains(cutOff, w.Reason) {
		return ""
	}
	// While they apply, OpenTofu saves any state, and Terraform one in a remote backend, every 20 seconds.
	return fmt.Sprintf("the state of %s may be half changed, and lack what was made in its last 20 seconds: compare a preview (dayfly run %s) "+
		"with what there is before you apply it; if the state is still locked, the next update says by whom and how to release the lock", w.Workspace, w.Workspace)
}
