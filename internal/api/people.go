// Package api holds the types that cross the wire between the control plane and everybody
// else, and the one table between errors and statuses. It has no logic beyond checking and
// translating its own values. Times that a runner acts on cross as remaining seconds, never as
// clock times.
package api

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Roles of a user token. Each includes those before it.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

// Page is one page of a list. A page may have fewer items than were asked for, and still a next one.
type Page[T any] struct {
	Items []T    `json:"items" nullable:"false" doc:"The items of the page"`
	Next  string `json:"next,omitempty" doc:"Cursor of the following page; empty at the end"`
}

// Pool is a named group of runners.
type Pool struct {
	ID                     string          `json:"id" doc:"Id of the pool" example:"pool_01k1xz4m2p7q9r3s5t8v"`
	Name                   string          `json:"name" doc:"Name of the pool" example:"default"`
	Description            string          `json:"description,omitempty" doc:"Purpose of the pool"`
	BuiltIn                bool            `json:"built_in" doc:"Whether it is the pool that every organization starts with" example:"true"`
	Status                 string          `json:"status" enum:"inactive,healthy,offline,closed" doc:"inactive until its first poll, then healthy or offline; closed when it was deleted but still serves runs that were submitted before" example:"healthy"`
	IsDisabled             bool            `json:"is_disabled" doc:"Whether the pool is disabled: then it claims nothing"`
	AllowMultipleInstances bool            `json:"allow_multiple_instances" doc:"Whether several instances of different names may poll"`
	AssignedToAll          bool            `json:"is_assigned_to_all_workspaces" doc:"Whether every workspace may use the pool" example:"true"`
	AssignedWorkspaces     []string        `json:"assigned_workspaces,omitempty" doc:"The workspaces that may use it where not all may"`
	AssignedProjects       []string        `json:"assigned_projects,omitempty" doc:"The projects whose workspaces may use it, with all projects below them"`
	AssignedStacks         []string        `json:"assigned_stacks,omitempty" doc:"The stacks whose workspaces may use it"`
	AssignedNamespaces     []string        `json:"assigned_namespaces,omitempty" doc:"The namespaces whose workspaces may use it"`
	Labels                 []string        `json:"labels,omitempty" doc:"A workspace may want labels instead of a pool: any pool that has them all may run it"`
	EnabledTypes           []workflow.Type `json:"enabled_workflow_types,omitempty" doc:"Types that the pool takes; an empty list means all"`
	Concurrency            int             `json:"concurrency" doc:"Maximum number of active workflows; 0 means no limit of its own" example:"50"`
	RolePath               string          `json:"role_path,omitempty" doc:"Path of the roles that its tasks may assume; empty leaves that to the account's policies" example:"/dayfly/default/"`
	WakeTarget             string          `json:"wake_target,omitempty" doc:"Lambda function that is invoked when work becomes claimable for the pool" example:"dayfly-wake-default"`
	Active                 int             `json:"active" doc:"Workflows that are claimed, running, or ended with their slot still held" example:"3"`
	Pending                int             `json:"pending,omitempty" doc:"Workflows that it could claim now; only in the answer about one pool, which counts at most 200 of each type and set of labels" example:"2"`
	OldestPending          *time.Time      `json:"oldest_pending,omitempty" doc:"When the oldest of them was submitted"`
	Refused                []Refused       `json:"refused,omitempty" doc:"Launches that were refused and are tried again; only in the answer about one pool"`
	LastSeen               *time.Time      `json:"last_seen,omitempty" doc:"When its stack last polled"`
	CreatedAt              time.Time       `json:"created_at" doc:"When the pool was created"`
	Version                int64           `json:"version" doc:"Version of the stored record" example:"7"`
}

// Refused counts claimed workflows whose launch was refused for a reason.
type Refused struct {
	Reason  workflow.Reason `json:"reason" doc:"Why" example:"capacity"`
	Text    string          `json:"text,omitempty" doc:"A message about one of them"`
	Count   int             `json:"count" doc:"How many workflows" example:"2"`
	RetryAt time.Time       `json:"retry_at" doc:"When the first of them is tried again"`
}

// RunnerKept is how long it is remembered when an instance was seen under a pool.
const RunnerKept = 24 * time.Hour

// PoolSettings creates or changes a pool. On change, a field that is left out stays as it is.
type PoolSettings struct {
	Name                   *string          `json:"name,omitempty" doc:"3 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"production"`
	Description            *string          `json:"description,omitempty" maxLength:"1000" doc:"Purpose of the pool" example:"Runners of the production account"`
	IsDisabled             *bool            `json:"is_disabled,omitempty" doc:"Whether the pool is disabled: then it claims nothing"`
	AllowMultipleInstances *bool            `json:"allow_multiple_instances,omitempty" doc:"Whether several instances of different names may poll; default false"`
	AssignedToAll          *bool            `json:"is_assigned_to_all_workspaces,omitempty" doc:"Whether every workspace may use the pool; default true"`
	AssignedWorkspaces     *[]string        `json:"assigned_workspaces,omitempty" maxItems:"500" doc:"Names of the workspaces that may use the pool where not all may"`
	AssignedProjects       *[]string        `json:"assigned_projects,omitempty" maxItems:"500" doc:"Names of projects whose workspaces may use the pool, with all projects below them"`
	AssignedStacks         *[]string        `json:"assigned_stacks,omitempty" maxItems:"500" doc:"Stacks whose workspaces may use the pool"`
	AssignedNamespaces     *[]string        `json:"assigned_namespaces,omitempty" maxItems:"500" doc:"Namespaces whose workspaces may use the pool"`
	Labels                 *[]string        `json:"labels,omitempty" maxItems:"20" doc:"Labels of the pool, 1 to 63 characters of A-Z, a-z, 0-9 and ._:=- each"`
	EnabledTypes           *[]workflow.Type `json:"enabled_workflow_types,omitempty" maxItems:"3" doc:"Types that the pool takes; an empty list means all"`
	Concurrency            *int             `json:"concurrency,omitempty" minimum:"0" maximum:"100000" doc:"Maximum number of active workflows; 0 means no limit of its own" example:"50"`
	RolePath               *string          `json:"role_path,omitempty" maxLength:"512" doc:"Path of the roles that its tasks may assume, such as /dayfly/POOL/" example:"/dayfly/production/"`
	WakeTarget             *string          `json:"wake_target,omitempty" maxLength:"256" doc:"ARN or name of a Lambda function named dayfly-wake-...; empty for none"`
	Version                int64            `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// PoolToken is a pool with its token, which is shown this once.
type PoolToken struct {
	Pool  Pool   `json:"pool" doc:"The pool"`
	Token string `json:"token" doc:"Shown once: keep it now" example:"dfp_..."`
}

// LogValue keeps the token out of logs.
func (t PoolToken) LogValue() slog.Value { return slog.StringValue("pool token of " + t.Pool.Name) }

// RotateToken asks for a new pool token. Older ones stay valid for the overlap.
type RotateToken struct {
	OverlapSeconds int `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" doc:"Seconds for which the previous token stays valid; 0 ends it at once" example:"3600"`
}

// Runner is one runner instance seen under a pool.
type Runner struct {
	Name      string    `json:"name" doc:"Name of the instance" example:"dayfly-default"`
	Version   string    `json:"version,omitempty" doc:"Version of its program" example:"1.0.0"`
	Running   []Running `json:"running,omitempty" doc:"Runs that it has claimed and that are not proven over; at most 500 for all runners of a pool"`
	FirstSeen time.Time `json:"first_seen" doc:"When it was first seen"`
	LastSeen  time.Time `json:"last_seen" doc:"When it was last seen"`
}

// Running is a workflow that an instance has claimed.
type Running struct {
	Workflow  string             `json:"workflow" doc:"Id of the workflow" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Workspace string             `json:"workspace" doc:"Name of the workspace" example:"network"`
	Type      workflow.Type      `json:"type" doc:"Type of the run" example:"deployment"`
	Operation workflow.Operation `json:"operation,omitempty" doc:"Operation of a deployment" example:"preview"`
	State     workflow.State     `json:"state" doc:"Where it stands" example:"running"`
	Task      string             `json:"task,omitempty" doc:"Its task; none before its launch" example:"arn:aws:ecs:eu-central-1:123456789012:task/dayfly/0f8a1c2d3e4b5a697887766554433221"`
	Since     time.Time          `json:"since" doc:"Since when it is in its state"`
}

// NewToken asks for a user token.
type NewToken struct {
	Name           string            `json:"name" minLength:"1" maxLength:"64" doc:"Name of the token: letters, digits and . _ @ + -. Without principal it is also the name of the principal that is made with it" example:"ci"`
	Principal      string            `json:"principal,omitempty" maxLength:"320" doc:"Principal of the token: the name of a principal, or ISSUER/SUBJECT of an issuer. Without it a new principal is made, whose name must not be taken" example:"admin"`
	Role           string            `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Role of its holder in the whole organization; each role includes those before it. Required without grants" example:"operator"`
	Grants         map[string]string `json:"grants,omitempty" doc:"Roles in projects and in all below them, by the names of the projects; at most 50"`
	ExpiresSeconds int64             `json:"expires_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"Lifetime in seconds; 0 means until revoked" example:"2592000"`
}

// FirstAdmin is the name of the principal that an organization begins with.
const FirstAdmin = "admin"

// PrincipalRef names a principal. Its id identifies it; its name is only shown.
type PrincipalRef struct {
	ID   string `json:"id" doc:"Id of the principal, which never changes" example:"prn_01k1xz4m2p7q9r3s5t8v"`
	Name string `json:"name" doc:"Its name" example:"ann"`
}

// PrincipalRefs are several principals.
type PrincipalRefs []PrincipalRef

// Has says whether the principal with an id is one of them.
func (ps PrincipalRefs) Has(id string) bool {
	return slices.ContainsFunc(ps, func(p PrincipalRef) bool { return p.ID == id })
}

// Names are their names, in their order.
func (ps PrincipalRefs) Names() (names []string) {
	for _, p := range ps {
		names = append(names, p.Name)
	}
	return names
}

// Principal is a person or a program that can hold tokens. Its name is never reused.
type Principal struct {
	PrincipalRef
	CreatedAt time.Time `json:"created_at" doc:"When it was made"`
}

// NewPrincipal asks for a principal.
type NewPrincipal struct {
	Name string `json:"name" minLength:"1" maxLength:"64" doc:"1 to 64 letters, digits and . _ @ + -" example:"ann"`
}

// Token is a user token without its value.
type Token struct {
	ID        string            `json:"id" doc:"Id of the token" example:"tok_01k1xz4m2p7q9r3s5t8v"`
	Name      string            `json:"name" doc:"Name of the token" example:"ci"`
	Principal PrincipalRef      `json:"principal" doc:"Principal that it speaks for"`
	Role      string            `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Role of its holder in the whole organization; none where it has roles in projects only" example:"operator"`
	Grants    map[string]string `json:"grants,omitempty" doc:"Roles in projects and in all below them"`
	CreatedAt time.Time         `json:"created_at" doc:"When it was made"`
	ExpiresAt *time.Time        `json:"expires_at,omitempty" doc:"When it expires; none means never"`
	Revoked   bool              `json:"revoked" doc:"Whether it was revoked"`
}

// TokenValue is a new token with its value, which is shown this once.
type TokenValue struct {
	Token Token  `json:"token" doc:"The token"`
	Value string `json:"value" doc:"Shown once: keep it now" example:"dfu_..."`
}

// Roles says which roles somebody has, in words: in the organization and in projects.
func Roles(role string, grants map[string]string) string {
	var all []string
	if role != "" {
		all = append(all, role)
	}
	for _, project := range slices.Sorted(maps.Keys(grants)) {
		all = append(all, project+"="+grants[project])
	}
	return strings.Join(all, ", ")
}

// LogValue keeps the value out of logs.
func (t TokenValue) LogValue() slog.Value { return slog.StringValue("token " + t.Token.ID) }

// Identity is the principal or pool that a token speaks for.
type Identity struct {
	Organization string            `json:"organization" doc:"Organization of the token" example:"default"`
	Name         string            `json:"name" doc:"Name of the principal that the token speaks for; of a pool's token, that of the token" example:"ann"`
	PrincipalID  string            `json:"principal_id" doc:"Id of the principal, or of the pool" example:"prn_01k1xz4m2p7q9r3s5t8v"`
	Audience     string            `json:"audience" enum:"user,pool" doc:"Kind of the token"`
	Role         string            `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Role in the whole organization, of a user token" example:"operator"`
	Grants       map[string]string `json:"grants,omitempty" doc:"Roles in projects and in all below them, of a user token"`
	Pool         string            `json:"pool,omitempty" doc:"Pool of a pool token"`
	Kind         string            `json:"kind,omitempty" enum:"user,service,pool" doc:"Kind of the caller: a person, a program or a pool"`
	Issuer       string            `json:"issuer,omitempty" doc:"Name of the issuer whose token was exchanged for this one; name is its name there" example:"github"`
	Pipeline     *Pipeline         `json:"pipeline,omitempty" doc:"Of a token that was exchanged for that of a pipeline: its claims about the pipeline"`
	TokenID      string            `json:"token_id,omitempty" doc:"Id of the token" example:"tok_01k1xz4m2p7q9r3s5t8v"`
	ExpiresAt    *time.Time        `json:"expires_at,omitempty" doc:"When the token ends; none means never"`
}

// Pipeline is the pipeline of a git host that a token was exchanged by.
type Pipeline struct {
	Protected  bool   `json:"is_protected" doc:"Whether neither a pull request nor an unprotected ref determines its content. One that is not protected only views, submits previews of its commit, and cancels those" example:"false"`
	Host       string `json:"host" doc:"Host of its repository" example:"github.com"`
	Repository string `json:"repository" doc:"Path of its repository there" example:"example/infra"`
	Commit     string `json:"commit,omitempty" doc:"Commit that it is of" example:"6dcb09b5b57875f334f61aebed695e2e4193db5e"`
	Ref        string `json:"ref,omitempty" doc:"Ref that it is of" example:"refs/pull/17/merge"`
	Number     int    `json:"number,omitempty" doc:"Number of its pull request, where its token says it" example:"17"`
}

// Submit asks for a run of a workspace.
type Submit struct {
	Workspace string             `json:"workspace" minLength:"1" maxLength:"64" doc:"Name of the workspace" example:"network"`
	Type      workflow.Type      `json:"type,omitempty" doc:"Type of the run; default deployment" example:"deployment"`
	Operation workflow.Operation `json:"operation,omitempty" doc:"Operation of a deployment; required for one" example:"preview"`
	Priority  *int               `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"Higher first; default the workspace's default_priority" example:"10"`
	// A string, as in Workspace.
	MaxRuntime string `json:"max_runtime,omitempty" maxLength:"40" doc:"Go duration, at most the workspace's max_runtime, or 24h where the workspace names none; default the workspace's" example:"20m"`
	Message    string `json:"message,omitempty" maxLength:"200" doc:"Why it is submitted, for people" example:"add a subnet"`

	// At most one of TakeOver and BeginAnew.
	TakeOver     bool   `json:"take_over,omitempty" doc:"Copy the state that exists elsewhere into the workspace's place, where that is empty"`
	TakeOverFrom string `json:"take_over_from,omitempty" maxLength:"90" doc:"With take_over: which of several, such as the engine's workspace below terraform.tfstate.d"`
	BeginAnew    bool   `json:"begin_anew,omitempty" doc:"Use the state in the workspace's place, even if another one exists elsewhere"`

	Commit string `json:"commit,omitempty" maxLength:"40" pattern:"^[0-9a-f]{40}$" doc:"Of a preview: the commit of the workspace's git source that it is of, as a run of a pull request, with preview_role and secrets marked for previews only. A pipeline's own commit where a pipeline submits; one that is protected may update with it too, and has the workspace's role" example:"6dcb09b5b57875f334f61aebed695e2e4193db5e"`
	Number int    `json:"number,omitempty" minimum:"0" doc:"With commit: number of its pull request, for people" example:"17"`

	LockID string `json:"lock_id,omitempty" maxLength:"255" doc:"With operation state_unlock: id of the lock"`

	Options *Options `json:"options,omitempty" doc:"Options of this run"`

	Push     *PushedState `json:"push,omitempty" doc:"With operation state_push: the state, which must have been placed before"`
	Register *Workspace   `json:"register,omitempty" doc:"Makes or changes the workspace in the commit that makes the run: if the run is refused, nothing is left behind. A directory source of an existing workspace stays as it is"`
}

// Workflow is one requested run, as people see it.
type Workflow struct {
	ID              string             `json:"id" doc:"Id of the workflow" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Organization    string             `json:"organization" doc:"Name of the organization" example:"default"`
	Workspace       string             `json:"workspace" doc:"Name of the workspace" example:"network"`
	Pool            string             `json:"pool" doc:"Name of the pool that may claim it" example:"default"`
	Type            workflow.Type      `json:"type" doc:"Type of the run" example:"deployment"`
	Operation       workflow.Operation `json:"operation,omitempty" doc:"Operation of a deployment" example:"preview"`
	State           workflow.State     `json:"state" doc:"Where it stands" example:"running"`
	Reason          workflow.Reason    `json:"reason,omitempty" doc:"Why it is in its state"`
	Detail          string             `json:"detail,omitempty" doc:"The reason in a sentence"`
	Priority        int                `json:"priority,omitempty" doc:"Higher first"`
	Message         string             `json:"message,omitempty" doc:"Why it was submitted" example:"add a subnet"`
	Attempt         int                `json:"attempt" doc:"Number of the latest attempt; 0 before the first claim" example:"1"`
	Instance        string             `json:"instance,omitempty" doc:"Name of the instance of the pool that claimed it; none while it is pending" example:"dayfly-default"`
	MaxRuntime      string             `json:"max_runtime,omitempty" doc:"How long it may take from its start" example:"1h0m0s"`
	Task            string             `json:"task,omitempty" doc:"The task of the latest start" example:"arn:aws:ecs:eu-central-1:123456789012:task/dayfly/0f8a1c2d3e4b5a697887766554433221"`
	CancelRequested bool               `json:"cancel_requested,omitempty" doc:"Whether its cancellation was requested"`
	SlotHeld        bool               `json:"slot_held,omitempty" doc:"Whether it holds the right to change its workspace's state"`
	RetryOf         string             `json:"retry_of,omitempty" doc:"Id of the workflow that it repeats"`
	For             workflow.Operation `json:"for,omitempty" doc:"Of a preview whose plan can be approved: operation of the run that applies it" example:"update"`
	Applies         string             `json:"applies,omitempty" doc:"Id of the preview whose plan it applies, exactly"`
	Changes         *Changes           `json:"changes,omitempty" doc:"Counts of the changes that its plan has, or that it made" example:"{\"add\":1,\"change\":0,\"destroy\":0}"`
	Options         *Options           `json:"options,omitempty" doc:"Its options; only in the answer about one workflow"`
	Step            string             `json:"step,omitempty" doc:"Of a running one in a list: the step at its last sign of life" example:"apply"`
	Trigger         *Trigger           `json:"trigger,omitempty" doc:"Its trigger; none where a person submitted it"`
	Review          *Review            `json:"review,omitempty" doc:"Review of the plan of a preview that was submitted for an approval"`
	ToApprove       bool               `json:"to_approve,omitempty" doc:"Whether it has succeeded and its plan waits for an approval: show that as its state"`
	SubmittedBy     string             `json:"submitted_by" doc:"Name of the principal that submitted it" example:"ann"`
	SubmittedByID   string             `json:"submitted_by_id,omitempty" doc:"Its id" example:"prn_01k1xz4m2p7q9r3s5t8v"`
	SubmittedAt     time.Time          `json:"submitted_at" doc:"When it was submitted"`
	ClaimedAt       *time.Time         `json:"claimed_at,omitempty" doc:"When its latest attempt was claimed"`
	StartedAt       *time.Time         `json:"started_at,omitempty" doc:"When its latest attempt started"`
	EndedAt         *time.Time         `json:"ended_at,omitempty" doc:"When it ended"`
	Result          *Result            `json:"result,omitempty" doc:"Result that its runner reported"`
	Steps           []Step             `json:"steps,omitempty" doc:"Steps of the latest attempt; only in the answer about one workflow"`
	Version         int64              `json:"version" doc:"Version of the stored record" example:"3"`
	Revision        string             `json:"revision,omitempty" doc:"Changes with anything else that is said here; only in the answer about one workflow" example:"2pbm1vq6u7mzi"`
}

// Did says whether the changes of its result were made; else they were planned. A run that failed reports none but
// those that it had made before.
func (w Workflow) Did() bool {
	return w.State.Terminal() && workflow.ChangesState(w.Type, w.Operation)
}

// Slot is the right to change a workspace's state, with its holder.
type Slot struct {
	Workspace string     `json:"workspace" doc:"Name of the workspace" example:"network"`
	Holder    *Workflow  `json:"holder,omitempty" doc:"The workflow that holds it; none where the workspace is free"`
	IsUnsaved bool       `json:"is_unsaved,omitempty" doc:"Whether the holder has ended and could not write its state: no other run changes it until one was pushed, or it is unlocked"`
	LastSign  *time.Time `json:"last_sign_of_life,omitempty" doc:"When the holder's runner last called"`
	FreeAt    *time.Time `json:"free_at,omitempty" doc:"When the slot of a run that has ended is free at the latest"`
	Refusal   string     `json:"refusal,omitempty" doc:"Why it cannot be unlocked; none where it can" example:"the workspace is free"`
}

// Activity is the running and waiting work of a workspace.
type Activity struct {
	Workspace string      `json:"workspace" doc:"Name of the workspace" example:"network"`
	Project   string      `json:"project" doc:"Name of its project" example:"global"`
	Engine    string      `json:"engine" enum:"terraform,tofu,terragrunt,pulumi,command" doc:"Program that runs the code" example:"tofu"`
	Last      *Workflow   `json:"last,omitempty" doc:"The workflow that was submitted last"`
	Holder    string      `json:"holder,omitempty" doc:"Id of the workflow that holds the right to change the state" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Waiting   int         `json:"waiting,omitempty" doc:"Workflows that wait for others of this workspace"`
	Drift     *Drift      `json:"drift,omitempty" doc:"Drift that the last scan found; none without a recent scan, or if the state was changed since"`
	Checks    *RunChecks  `json:"checks,omitempty" doc:"Check blocks that failed in the last successful scan, or run that may have changed the state; absent if none did"`
	State     *StateFound `json:"state,omitempty" doc:"Where the last run found the engine's state; only in the answer about one workspace"`
	Approvals []string    `json:"approvals,omitempty" doc:"Requirements of approvals, and the plans that need them; only in the answer about one workspace" example:"the workspace: required for destroys"`

	WaitsFor  []Dependency `json:"waits_for,omitempty" doc:"Workspaces that it depends on, of those that the caller may see; only in the answer about one workspace"`
	Feeds     []Dependency `json:"feeds,omitempty" doc:"Workspaces that depend on it, of those that the caller may see; only in the answer about one workspace"`
	OutputsAt *time.Time   `json:"outputs_at,omitempty" doc:"When the run ended whose outputs others get; only in the answer about one workspace"`
}

// Drift is the differences that a scan found.
type Drift struct {
	Workflow  string    `json:"workflow" doc:"Id of the scan" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Resources int       `json:"resources" doc:"Resources that differ from the state" example:"1"`
	At        time.Time `json:"at" doc:"When it ended"`
}

// RunChecks counts the failing check blocks that a run found.
type RunChecks struct {
	Workflow string    `json:"workflow" doc:"Id of the run, whose result names them" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Failing  int       `json:"failing" doc:"How many fail, or could not be evaluated" example:"1"`
	At       time.Time `json:"at" doc:"When it ended"`
}

// Unlock asks for the slot of a workspace to be freed, whose holder has ended and is not proven over.
type Unlock struct {
	Workflow string `json:"workflow" minLength:"1" maxLength:"64" doc:"Id of the workflow that holds it; refused if another one does" example:"wf_01k1xz4m2p7q9r3s5t8v"`
}

// Own says whose the states are from now on that a run was refused.
type Own struct {
	IsCopy bool `json:"is_copy,omitempty" doc:"Whether they are copies, or lie in places that only look the same: then the other workspaces keep theirs"`
}

// Owned lists the states that were decided about.
type Owned struct {
	States []OthersState `json:"states" doc:"The states, with the workspaces that had them alone until now"`
}

// Event is one line of a workflow's timeline.
type Event struct {
	Seq     int64     `json:"seq" doc:"Its place in the timeline, counted from 1" example:"1"`
	At      time.Time `json:"at" doc:"When it happened"`
	Kind    string    `json:"kind" doc:"Such as submitted, claimed, queued, launched, started, result" example:"submitted"`
	Attempt int       `json:"attempt,omitempty" doc:"Number of the attempt that it is about"`
	Task    string    `json:"task,omitempty" doc:"The launcher's reference to the task"`
	Actor   string    `json:"actor,omitempty" doc:"Name of the principal or instance that did it" example:"ann"`
	Text    string    `json:"text" doc:"The event in a sentence" example:"submitted by ci"`
}

// Why says what a workflow waits for.
type Why struct {
	Workflow           Workflow   `json:"workflow" doc:"The workflow"`
	Summary            string     `json:"summary" doc:"Where it stands, in a sentence" example:"running since 09:30:00Z"`
	Waiting            string     `json:"waiting_for,omitempty" doc:"What it waits for" example:"the run to end; last sign of life at 09:31:00Z"`
	Code               string     `json:"code,omitempty" doc:"Stable code of its reason to wait" example:"end"`
	WaitingForWorkflow string     `json:"waiting_for_workflow,omitempty" doc:"Id of the workflow that must end first, if it waits for one" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Since              time.Time  `json:"since" doc:"Since when"`
	Next               string     `json:"next" doc:"What happens next, and when" example:"it ends when its engine ends, at the latest at its deadline"`
	NextAt             *time.Time `json:"next_at,omitempty" doc:"When that is, at the latest; none where nothing is due" example:"2026-01-31T09:31:00Z"`
	Timeline           []Event    `json:"timeline" doc:"Its events, the oldest first"`
}

// LogPage is a piece of a workflow's log.
type LogPage struct {
	Attempt int       `json:"attempt" doc:"Number of the attempt whose log this is" example:"1"`
	Lines   []LogLine `json:"lines" nullable:"false" doc:"The lines"`
	Next    int64     `json:"next" doc:"Number of the line after these" example:"120"`
	Done    bool      `json:"done" doc:"Whether no more lines will come"`
}

// Health is the answer of the health address.
type Health struct {
	Status  string `json:"status" enum:"ok" doc:"Always ok"`
	Version string `json:"version" doc:"Version of the control plane" example:"1.0.0"`
}
