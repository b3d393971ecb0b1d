// Package api holds the types that cross the wire between the control plane and everybody
// else, and the one table between errors and statuses. It has no logic beyond checking and
// translating its own values. Times that a runner acts on cross as remaining seconds, never as
// clock times.
package api

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Roles of a user token. Each may do what those before it may.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

// Page is what every long list carries. Next is empty at the end; else it is the cursor of the
// following page.
type Page[T any] struct {
	Items []T    `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty"`
}

// Pool is a named group of runners.
type Pool struct {
	ID                     string          `json:"id"`
	Name                   string          `json:"name"`
	Description            string          `json:"description,omitempty"`
	BuiltIn                bool            `json:"built_in" doc:"The pool that every organization starts with"`
	Status                 string          `json:"status" enum:"inactive,healthy,offline,closed" doc:"inactive until its first poll, then healthy or offline; closed when it was deleted and serves what was submitted meanwhile"`
	IsDisabled             bool            `json:"is_disabled" doc:"A disabled pool claims nothing"`
	AllowMultipleInstances bool            `json:"allow_multiple_instances" doc:"Whether several instances of different names may poll"`
	AssignedToAll          bool            `json:"is_assigned_to_all_workspaces" doc:"Whether every workspace may use the pool"`
	AssignedWorkspaces     []string        `json:"assigned_workspaces,omitempty" doc:"The workspaces that may use it where not all may"`
	EnabledTypes           []workflow.Type `json:"enabled_workflow_types,omitempty" doc:"Types that the pool takes; none named means all"`
	Concurrency            int             `json:"concurrency" doc:"Most active workflows; 0 means no limit of its own"`
	RolePath               string          `json:"role_path,omitempty" doc:"Path of the roles that its tasks may assume; none leaves that to the account's policies"`
	WakeTarget             string          `json:"wake_target,omitempty" doc:"Lambda function that is invoked when work becomes claimable for the pool"`
	Active                 int             `json:"active" doc:"Workflows that are claimed, running, or ended with their slot still held"`
	LastSeen               *time.Time      `json:"last_seen,omitempty"`
	CreatedAt              time.Time       `json:"created_at"`
	Version                int64           `json:"version"`
}

// RunnerKept is how long it is remembered when an instance was seen under a pool.
const RunnerKept = 24 * time.Hour

// PoolSettings creates or changes a pool. On change, a nil field stays as it is.
type PoolSettings struct {
	Name                   *string          `json:"name,omitempty" doc:"3 to 64 characters of A-Z, a-z, 0-9, _ and -"`
	Description            *string          `json:"description,omitempty" maxLength:"1000"`
	IsDisabled             *bool            `json:"is_disabled,omitempty"`
	AllowMultipleInstances *bool            `json:"allow_multiple_instances,omitempty"`
	AssignedToAll          *bool            `json:"is_assigned_to_all_workspaces,omitempty" doc:"Default true"`
	AssignedWorkspaces     *[]string        `json:"assigned_workspaces,omitempty" maxItems:"500"`
	EnabledTypes           *[]workflow.Type `json:"enabled_workflow_types,omitempty" maxItems:"3"`
	Concurrency            *int             `json:"concurrency,omitempty" minimum:"0" maximum:"100000"`
	RolePath               *string          `json:"role_path,omitempty" maxLength:"512" doc:"Path of the roles that its tasks may assume, such as /dayfly/POOL/"`
	WakeTarget             *string          `json:"wake_target,omitempty" maxLength:"256" doc:"ARN or name of a Lambda function named dayfly-wake-...; empty for none"`
}

// PoolToken is a pool with its token, which is shown this once.
type PoolToken struct {
	Pool  Pool   `json:"pool"`
	Token string `json:"token" doc:"Shown once: keep it now"`
}

// LogValue keeps the token out of logs.
func (t PoolToken) LogValue() slog.Value { return slog.StringValue("pool token of " + t.Pool.Name) }

// RotateToken asks for a new pool token. Older ones stay valid for the overlap.
type RotateToken struct {
	OverlapSeconds int `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" doc:"How long the previous token stays valid; 0 ends it at once"`
}

// Runner is one runner instance seen under a pool.
type Runner struct {
	Name      string    `json:"name"`
	Version   string    `json:"version,omitempty"`
	Task      string    `json:"task,omitempty"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// NewToken asks for a user token.
type NewToken struct {
	Name           string `json:"name" minLength:"1" maxLength:"64"`
	Role           string `json:"role" enum:"viewer,operator,admin"`
	ExpiresSeconds int64  `json:"expires_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"Lifetime; 0 means until revoked"`
}

// Token is a user token without its value.
type Token struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Revoked   bool       `json:"revoked"`
}

// TokenValue is a new token with its value, which is shown this once.
type TokenValue struct {
	Token Token  `json:"token"`
	Value string `json:"value" doc:"Shown once: keep it now"`
}

// LogValue keeps the value out of logs.
func (t TokenValue) LogValue() slog.Value { return slog.StringValue("token " + t.Token.ID) }

// Identity is who a token speaks for.
type Identity struct {
	Organization string `json:"organization"`
	Name         string `json:"name"`
	Audience     string `json:"audience" enum:"user,pool"`
	Role         string `json:"role,omitempty"`
	Pool         string `json:"pool,omitempty"`
}

// AuditEvent is one change or refusal, and who made it.
type AuditEvent struct {
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Target  string    `json:"target"`
	Outcome string    `json:"outcome" enum:"done,refused"`
	Detail  string    `json:"detail,omitempty"`
}

// Submit asks for a run of a workspace.
type Submit struct {
	Workspace string             `json:"workspace" minLength:"1" maxLength:"64"`
	Type      workflow.Type      `json:"type,omitempty" doc:"Default deployment"`
	Operation workflow.Operation `json:"operation,omitempty" doc:"Required for a deployment"`
	Priority  int                `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"Higher first; default 0"`
	Message   string             `json:"message,omitempty" maxLength:"200"`

	// What to do about a state that exists elsewhere than where the workspace keeps it; at most one of both.
	TakeOver     bool   `json:"take_over,omitempty" doc:"Copy the state that exists elsewhere into the workspace's place, where that is empty"`
	TakeOverFrom string `json:"take_over_from,omitempty" maxLength:"90" doc:"With take_over: which of several, such as the engine's workspace below terraform.tfstate.d"`
	BeginAnew    bool   `json:"begin_anew,omitempty" doc:"Go on with what is in the workspace's place, whatever exists elsewhere"`

	LockID string `json:"lock_id,omitempty" maxLength:"255" doc:"With operation state_unlock: the id of the lock"`

	// Register makes the workspace, or changes it, in the commit that makes the run: what is refused leaves
	// nothing behind. Its name is the workspace's, and its directory stays what it was.
	Register *Workspace `json:"register,omitempty" doc:"Makes or changes the workspace together with the run"`
}

// Workflow is one requested run, as people see it.
type Workflow struct {
	ID              string             `json:"id"`
	Organization    string             `json:"organization"`
	Workspace       string             `json:"workspace"`
	Pool            string             `json:"pool" doc:"Name of the pool that may claim it"`
	Type            workflow.Type      `json:"type"`
	Operation       workflow.Operation `json:"operation,omitempty"`
	State           workflow.State     `json:"state"`
	Reason          workflow.Reason    `json:"reason,omitempty"`
	Detail          string             `json:"detail,omitempty" doc:"The reason in a sentence"`
	Priority        int                `json:"priority,omitempty"`
	Message         string             `json:"message,omitempty"`
	Attempt         int                `json:"attempt"`
	Task            string             `json:"task,omitempty" doc:"The task of the latest start"`
	CancelRequested bool               `json:"cancel_requested,omitempty"`
	SlotHeld        bool               `json:"slot_held,omitempty" doc:"It holds the right to change its workspace's state"`
	RetryOf         string             `json:"retry_of,omitempty"`
	SubmittedBy     string             `json:"submitted_by"`
	SubmittedAt     time.Time          `json:"submitted_at"`
	ClaimedAt       *time.Time         `json:"claimed_at,omitempty"`
	StartedAt       *time.Time         `json:"started_at,omitempty"`
	EndedAt         *time.Time         `json:"ended_at,omitempty"`
	Result          *Result            `json:"result,omitempty"`
	Steps           []Step             `json:"steps,omitempty" doc:"Of the latest attempt; only in the answer about one workflow"`
	Version         int64              `json:"version"`
}

// Aftermath says what to do after a run that was cut off while it could change the state; empty after any other.
func (w Workflow) Aftermath() string {
	cutOff := []workflow.Reason{workflow.ReasonTaskStopped, workflow.ReasonRunnerLost, workflow.ReasonResultMissing, workflow.ReasonDeadline}
	if w.StartedAt == nil || !workflow.ChangesState(w.Type, w.Operation) || !slices.Contains(cutOff, w.Reason) {
		return ""
	}
	return fmt.Sprintf("the state of %s may be half changed: a preview (dayfly run %s) shows what is left to do; "+
		"if the state is still locked, the next update says by whom and how to release the lock", w.Workspace, w.Workspace)
}

// Slot is the right to change a workspace's state, and who holds it.
type Slot struct {
	Workspace string     `json:"workspace"`
	Holder    *Workflow  `json:"holder,omitempty" doc:"The workflow that holds it; none where the workspace is free"`
	LastSign  *time.Time `json:"last_sign_of_life,omitempty" doc:"Of the holder's run"`
	FreeAt    *time.Time `json:"free_at,omitempty" doc:"When the slot of a run that has ended is free at the latest"`
	Refusal   string     `json:"refusal,omitempty" doc:"Why it cannot be unlocked; none where it can"`
}

// Unlock asks for the slot of a workspace to be freed, whose holder has ended and is not proven over.
type Unlock struct {
	Workflow string `json:"workflow" minLength:"1" maxLength:"64" doc:"Id of the workflow that holds it: another one is not touched"`
}

// Event is one line of a workflow's timeline.
type Event struct {
	Seq     int64     `json:"seq"`
	At      time.Time `json:"at"`
	Kind    string    `json:"kind" doc:"Such as submitted, claimed, queued, launched, started, result"`
	Attempt int       `json:"attempt,omitempty"`
	Task    string    `json:"task,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Text    string    `json:"text" doc:"What happened, in a sentence"`
}

// Why says what a workflow waits for.
type Why struct {
	Workflow Workflow  `json:"workflow"`
	Summary  string    `json:"summary" doc:"Where it stands, in a sentence"`
	Waiting  string    `json:"waiting_for,omitempty" doc:"What it waits for"`
	Code     string    `json:"code,omitempty" doc:"Stable kind of what it waits for"`
	Since    time.Time `json:"since"`
	Next     string    `json:"next" doc:"What happens next, and when"`
	Timeline []Event   `json:"timeline"`
}

// LogPage is a piece of a workflow's log.
type LogPage struct {
	Attempt int       `json:"attempt" doc:"The attempt whose log this is"`
	Lines   []LogLine `json:"lines" nullable:"false"`
	Next    int64     `json:"next" doc:"Offset of the following line"`
	Done    bool      `json:"done" doc:"Whether no more lines will come"`
}

// Health is the answer of the health address.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version"`
}
