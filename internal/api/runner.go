package api

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Headers in which every call of a runner names its run.
const (
	HeaderAttempt = "Dayfly-Attempt"
	HeaderTask    = "Dayfly-Task"
	HeaderBoot    = "Dayfly-Boot"
)

// HeaderTicket holds the ticket of a call to a relay whose gateway needs the Authorization header for
// itself, as one that checks AWS signatures does. Elsewhere the ticket is the call's bearer token.
const HeaderTicket = "Dayfly-Ticket"

// Run names a start: which attempt of which workflow, by which boot of which task.
type Run struct {
	Workflow string
	Attempt  int
	Task     string // the launcher's reference, never reused
	Boot     string // 32 hexadecimal digits, made in memory when the runner begins
}

// Start asks for a run. It names the features that the runner knows: kinds of state, operations, instructions. An
// older runner would not notice one that it does not know.
type Start struct {
	Knows []string `json:"knows,omitempty" maxItems:"50" doc:"Features of this runner that older ones lack" example:"take_over"`
}

// Instructions of a spec that an older runner would pass over.
const (
	knowsTakeOver   = "take_over"
	knowsBeginAnew  = "begin_anew"
	knowsArchive    = "archive"
	knowsPlan       = "plan"            // to store a plan that can be approved, and to apply one
	knowsTreePlan   = "plan_terragrunt" // the same with this engine
	knowsPulumiPlan = "plan_pulumi"     // the same with this engine
	knowsPulumiFile = "state_pulumi"    // to pull and push states of this engine
	knowsPath       = "directory_path"
	knowsPull       = "pull_request" // to keep the machine's credentials for engines from the code of a pull request

	knowsVersion    = "git_version"
	knowsSubmodules = "git_submodules"
	knowsModules    = "modules"
	knowsFlags      = "flags"
	knowsVarFiles   = "var_files"
	knowsAbove      = "var_files_above" // to read files of variables above the root module
	knowsOptions    = "options"
	knowsFiles      = "files"
	knowsHooks      = "hooks"
	knowsInputs     = "inputs"        // to get sensitive outputs of other workspaces
	knowsSecure     = "inputs_pulumi" // the same with this engine: encrypted by its stack
	knowsSteps      = "secret_steps"  // to keep a secret from the steps that do not get it
	knowsNoInstall  = "no_install"    // to leave out pulumi install
	KnowsPolicies   = "policies"      // to hold its run to policies, and to evaluate a state
)

// RunnerKnows is the features that a runner of this version names at its start.
func RunnerKnows() []string {
	return []string{
		string(workflow.StateList), string(workflow.StateUnlock), knowsTakeOver, knowsBeginAnew, knowsArchive,
		knowsPlan, string(workflow.StatePull), string(workflow.StatePush), knowsPath, knowsPull,
		knowsVersion, knowsSubmodules, knowsModules, knowsFlags, knowsVarFiles, knowsOptions,
		knowsFiles, knowsHooks, knowsSteps, knowsInputs, KnowsPolicies, knowsAbove, knowsNoInstall, knowsPulumiPlan, knowsTreePlan, knowsSecure, knowsPulumiFile,
	}
}

// Needs is the features that a run of the spec needs of its runner.
func (s Spec) Needs() []string {
	var out []string
	kind := s.State.Kind
	if s.Engine == EngineCommand && s.State.Directory() == "" {
		kind = "" // its commands get nothing else
	}
	for _, feature := range RunnerKnows() {
		switch {
		case feature == kind, feature == string(s.Operation), feature == knowsTakeOver && s.TakeOver, feature == knowsBeginAnew && s.BeginAnew,
			feature == knowsArchive && s.Source.Archive != nil, feature == knowsPlan && s.keepsPlan(), feature == knowsPulumiPlan && s.keepsPlan() && s.Engine == EnginePulumi,
			feature == knowsPulumiFile && s.Engine == EnginePulumi && slices.Contains([]workflow.Operation{workflow.StatePull, workflow.StatePush}, cmp.Or(s.For, s.Operation)),
			feature == knowsTreePlan && s.keepsPlan() && s.Engine == EngineTerragrunt, feature == knowsPath && s.Source.Path != "",
			feature == knowsPull && s.PullRequest, feature == knowsVersion && s.Source.Git != nil && s.Source.Git.Version != "",
			feature == knowsSubmodules && s.Source.Git != nil && s.Source.Git.Submodules, feature == knowsModules && len(s.Modules) > 0,
			feature == knowsFlags && len(s.Flags) > 0, feature == knowsVarFiles && len(s.VarFiles) > 0, feature == knowsOptions && s.Options != nil,
			feature == knowsAbove && slices.ContainsFunc(slices.Concat(s.VarFiles, s.asked().VarFiles), above),
			feature == knowsFiles && len(s.Files) > 0, feature == knowsHooks && len(s.Hooks) > 0,
			feature == knowsInputs && s.takesSensitive(), feature == knowsSecure && s.takesSensitive() && s.Engine == EnginePulumi,
			feature == knowsNoInstall && s.Install != nil && !*s.Install,
			feature == KnowsPolicies && (len(s.Policies) > 0 || s.Type == workflow.PolicyEvaluation),
			feature == knowsSteps && slices.ContainsFunc(s.Secrets, func(one Secret) bool { return len(one.Steps) > 0 }):
			out = append(out, feature)
		}
	}
	return out
}

// keepsPlan says that the run stores a plan for its approval, or applies one.
func (s Spec) keepsPlan() bool { return s.For != "" || s.Plan != nil }

// takesSensitive says that the run gets sensitive outputs of other workspaces.
func (s Spec) takesSensitive() bool {
	return slices.ContainsFunc(s.Inputs, func(one WorkspaceInput) bool { return one.Sensitive })
}

// asked are the options of the run; never nil.
func (s Spec) asked() *Options { return cmp.Or(s.Options, &Options{}) }

// above reports whether a file lies above the root module, or beside it.
func above(file string) bool { return strings.HasPrefix(file, "../") }

// Control is part of every answer to a runner. Seconds count from when the request was
// sent.
type Control struct {
	Cancel           bool    `json:"cancel" doc:"Whether the runner is to interrupt its engine and end"`
	RemainingSeconds float64 `json:"remaining_seconds" doc:"Seconds until the deadline" example:"3480"`
	HeartbeatSeconds float64 `json:"heartbeat_seconds" doc:"Seconds until the next heartbeat" example:"30"`
	HoldSeconds      float64 `json:"hold_seconds,omitempty" doc:"Seconds for which the next heartbeat may be held before it is answered" example:"20"`
	LogSeconds       float64 `json:"log_seconds,omitempty" doc:"Seconds for which lines of the log are gathered; 0 means 5"`
}

// Started answers a start that is granted.
type Started struct {
	Control
	Spec *Spec `json:"spec,omitempty" doc:"The run. A control plane that sends it also takes steps and lines with the result; without it, ask for the spec"`
}

// Heartbeat says that a runner lives.
type Heartbeat struct {
	Step string `json:"step,omitempty" maxLength:"64" doc:"Name of the step that it is in" example:"plan"`
}

// Spec specifies a run. It holds references to secrets, never values.
type Spec struct {
	Workflow     string             `json:"workflow" doc:"Id of the workflow" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Attempt      int                `json:"attempt" doc:"Number of the attempt, counted from 1" example:"1"`
	Organization string             `json:"organization" doc:"Name of the organization" example:"default"`
	WorkspaceID  string             `json:"workspace_id" doc:"Id of the workspace" example:"ws_01k1xz4m2p7q9r3s5t8v"`
	Workspace    string             `json:"workspace" doc:"Name of the workspace" example:"network"`
	Type         workflow.Type      `json:"type" doc:"Type of the run"`
	Operation    workflow.Operation `json:"operation,omitempty" doc:"Operation of a deployment" example:"preview"`

	RunSettings

	SourceDigest      string             `json:"source_digest,omitempty" doc:"With a directory source: digest of its files when the run was submitted; empty where nobody looked"`
	State             State              `json:"state" doc:"Where the engine's state is kept"`
	Known             *StateFound        `json:"known,omitempty" doc:"State that the last run of the workspace found; absent if unknown"`
	Withheld          bool               `json:"withheld,omitempty" doc:"Whether a deleted workspace of this name in another project has a state, which this run must not get"`
	Namesakes         []Namesake         `json:"namesakes,omitempty" doc:"Deleted workspaces of this name, the latest first; only while nothing is known"`
	TakeOver          bool               `json:"take_over,omitempty" doc:"Whether to copy the state that exists elsewhere into the workspace's place"`
	TakeOverFrom      string             `json:"take_over_from,omitempty" doc:"With take_over: which of several states"`
	BeginAnew         bool               `json:"begin_anew,omitempty" doc:"Whether to use the state in the workspace's place, even if another one exists elsewhere"`
	LockID            string             `json:"lock_id,omitempty" doc:"With operation state_unlock: id of the lock"`
	Role              *Role              `json:"role,omitempty" doc:"The run's role in the cloud. Without it, secrets are read with the role of the task, and the engine has none"`
	PullRequest       bool               `json:"pull_request,omitempty" doc:"Whether its code is that of a pull request which nobody has approved: then the engine gets no forwarded variable that may be secret"`
	MaxRuntimeSeconds float64            `json:"max_runtime_seconds" doc:"Maximum seconds of the run" example:"3600"`
	For               workflow.Operation `json:"for,omitempty" doc:"With operation preview: leave the plan, so that a run of this operation can apply it once it is approved" example:"update"`
	Plan              *PlanRef           `json:"plan,omitempty" doc:"The approved plan that the run applies, and nothing else"`
	Push              *PushedState       `json:"push,omitempty" doc:"With operation state_push, or with for: the state"`
	LogQuota          int64              `json:"log_quota,omitempty" doc:"Bytes that the log may hold; 0 means 64 MiB" example:"67108864"`

	Options  *Options `json:"options,omitempty" doc:"Options of this run"`
	Policies []Policy `json:"policies,omitempty" doc:"Policy groups that it is held to"`
	// Of a frozen spec all inputs of the workspace. A runner gets the sensitive ones alone: the control plane has put the
	// values of the others among the variables.
	Inputs       []WorkspaceInput `json:"inputs,omitempty" doc:"Sensitive outputs of other workspaces that the run gets as variables, in the order in which it asks for them"`
	ShareOutputs bool             `json:"share_outputs,omitempty" doc:"Whether to store the values of sensitive outputs as an artifact, because another workspace takes some of them"`
}

// Options are the settings of one run beside those of its workspace. They are audited and shown with the run.
type Options struct {
	Targets     []string `json:"targets,omitempty" maxItems:"100" doc:"Only these resources and their dependencies, as terraform's -target" example:"aws_subnet.a"`
	Replace     []string `json:"replace,omitempty" maxItems:"100" doc:"Resources to make anew, as terraform's -replace" example:"aws_instance.web"`
	Variables   Values   `json:"variables,omitempty" doc:"Variables that win over the workspace's; a text is read by the declared type, as the engine's own -var; never a secret"`
	VarFiles    []string `json:"var_files,omitempty" maxItems:"20" doc:"Files of variables in the source, after those of the workspace"`
	Ref         string   `json:"ref,omitempty" maxLength:"255" doc:"Branch, tag or commit of the git source instead of the workspace's"`
	RefreshOnly bool     `json:"refresh_only,omitempty" doc:"Change no resource, only the state"`
	Imports     []Import `json:"imports,omitempty" maxItems:"100" doc:"Resources that exist and are taken into the state"`
}

// Import takes a resource that exists into the state.
type Import struct {
	To string `json:"to" minLength:"1" maxLength:"1000" doc:"Its address in the code" example:"aws_vpc.main"`
	ID string `json:"id" minLength:"1" maxLength:"1000" doc:"Its id, as its provider knows it" example:"vpc-0abc"`
}

// Inventory is the content of the state that a scan found, without any value.
type Inventory struct {
	Resources int              `json:"resources" doc:"How many there are" example:"42"`
	Types     []InventoryCount `json:"types,omitempty" maxItems:"200" doc:"Of which types, the most frequent first"`
}

// InventoryCount counts resources of one type.
type InventoryCount struct {
	Type  string `json:"type" maxLength:"255" doc:"Type of the resources" example:"aws_subnet"`
	Count int    `json:"count" doc:"How many there are" example:"3"`
}

// Step is a named piece of a run.
type Step struct {
	Seq       int                 `json:"seq" minimum:"1" doc:"Its place in the run" example:"1"`
	Name      string              `json:"name" minLength:"1" maxLength:"64" doc:"Name of the step" example:"plan"`
	Status    workflow.StepStatus `json:"status" enum:"running,succeeded,failed,skipped" doc:"Where it stands" example:"succeeded"`
	StartedAt time.Time           `json:"started_at" doc:"When it started"`
	Seconds   float64             `json:"seconds,omitempty" doc:"Seconds that it took" example:"4.2"`
	ExitCode  *int                `json:"exit_code,omitempty" doc:"Exit code of its process, where there was one"`
	Text      string              `json:"text,omitempty" maxLength:"1000" doc:"Its findings, or why it failed" example:"1 to add, 0 to change, 0 to destroy"`
	LogEnd    int64               `json:"log_end,omitempty" minimum:"0" doc:"Number of lines of the log at its end" example:"120"`
}

// StateRefs asks whose the states are that a run is about to change or to take over, or that it reads.
type StateRefs struct {
	States []StateRef `json:"states" minItems:"1" maxItems:"25" doc:"The states"`
}

// MaxStates is how many states one call asks about.
const MaxStates = 25

// StateRef says which state is meant, without saying where it is.
type StateRef struct {
	Place   string `json:"place" minLength:"64" maxLength:"64" pattern:"^[0-9a-f]+$" doc:"SHA-256 of all that identifies its place" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Lineage string `json:"lineage,omitempty" maxLength:"255" doc:"With terraform and tofu: lineage of the state that is there, or that is taken over; empty where there is none"`
	Unit    string `json:"unit,omitempty" maxLength:"1000" doc:"With terragrunt: path of the unit that it is of"`
}

// WhoseStates says which of the states are those of other workspaces. If there are none, a run that changes the state of
// its workspace holds all of them for the workspace from then on.
type WhoseStates struct {
	Control
	Others []OthersState `json:"others,omitempty" doc:"States of other workspaces"`
}

// OthersState is a state of another workspace.
type OthersState struct {
	StateRef
	Workspace string `json:"workspace,omitempty" doc:"Name of the other workspace; empty if the reader of the run may not see that workspace" example:"network"`
}

// Steps reports steps.
type Steps struct {
	Steps []Step `json:"steps" minItems:"1" maxItems:"50" doc:"The steps; a later report of the same seq replaces the earlier"`
}

// LogLine is one line of a log, or a piece of one that is longer than 64 KiB.
type LogLine struct {
	At   time.Time `json:"at" doc:"When it was written"`
	Step string    `json:"step,omitempty" maxLength:"64" doc:"Name of the step that wrote it" example:"plan"`
	Text string    `json:"text" doc:"The line, without its end and with its escape sequences, such as colours" example:"Plan: 1 to add, 0 to change, 0 to destroy."`
	More bool      `json:"more,omitempty" doc:"Whether the line goes on in the next one: a line that is too long is sent in pieces"`
}

// The runner's own lines of a log begin with one of these. A line of a program that looks like one of them gets a mark, so
// that it begins with neither.
const (
	RunnerLine  = "[dayfly] "
	CommandLine = "$ " // names a command that the runner calls
)

// IsRunner reports whether the runner wrote a line itself, not a program.
func (l LogLine) IsRunner() bool {
	return strings.HasPrefix(l.Text, RunnerLine) || strings.HasPrefix(l.Text, CommandLine)
}

// Logs sends lines.
type Logs struct {
	First int64     `json:"first" minimum:"0" maximum:"100000000000" doc:"Number of the first of the lines, counted from 0 over the run" example:"0"`
	Lines []LogLine `json:"lines" minItems:"1" maxItems:"5000" doc:"The lines"`
	Lost  bool      `json:"lost,omitempty" doc:"Whether lines before these that are missing will never be sent"`
}

// LogsTaken says how far the log is now.
type LogsTaken struct {
	Control
	Next int64 `json:"next" doc:"Number of the next line that is wanted" example:"120"`
}

// Tail sends the rest of an ended task's log; without lines it asks which line is wanted next.
type Tail struct {
	Attempt int       `json:"attempt" minimum:"1" doc:"Number of the attempt, counted from 1" example:"1"`
	Task    string    `json:"task" minLength:"1" maxLength:"512" doc:"The launcher's reference to the task" example:"arn:aws:ecs:eu-central-1:123456789012:task/dayfly/0f8a1c2d3e4b5a697887766554433221"`
	First   int64     `json:"first" minimum:"0" maximum:"100000000000" doc:"Number of the first of the lines, counted from 0 over the run" example:"0"`
	Lines   []LogLine `json:"lines,omitempty" maxItems:"5000" doc:"The lines; without any, the answer says which is wanted next"`
}

// TailTaken says how far the log is now.
type TailTaken struct {
	Next int64 `json:"next" doc:"Number of the next line that is wanted" example:"120"`
	Full bool  `json:"full,omitempty" doc:"Whether the log holds all that it may, so that no line is wanted any more"`
}

// Changes counts the changes of a plan, or of drift.
type Changes struct {
	Add       int              `json:"add" doc:"Resources to add, or that were added" example:"1"`
	Change    int              `json:"change" doc:"Resources to change, or that were changed" example:"0"`
	Destroy   int              `json:"destroy" doc:"Resources to destroy, or that were destroyed" example:"0"`
	Drift     int              `json:"drift,omitempty" doc:"Resources that differ from the state"`
	Replace   int              `json:"replace,omitempty" doc:"Resources that are destroyed and made anew; they count in add and destroy too"`
	Import    int              `json:"import,omitempty" doc:"Resources that are imported"`
	Move      int              `json:"move,omitempty" doc:"Resources whose address changes"`
	Forget    int              `json:"forget,omitempty" doc:"Resources that are taken out of the state, and go on to exist"`
	Resources []ResourceChange `json:"resources,omitempty" maxItems:"1000" doc:"Changes of each resource, without values: destroyed and replaced ones first"`
	Outputs   []OutputChange   `json:"outputs,omitempty" maxItems:"500" doc:"Outputs that change, without values"`
}

// Any says whether anything becomes of a resource.
func (c Changes) Any() bool {
	return c.Add+c.Change+c.Destroy+c.Replace+c.Import+c.Move+c.Forget > 0
}

// ResourceChange is one line of a plan, without any value.
type ResourceChange struct {
	Address  string   `json:"address" maxLength:"1000" doc:"Address of the resource" example:"aws_subnet.a"`
	Action   string   `json:"action" maxLength:"32" doc:"Such as create, update, delete, replace, read, forget, move, drift" example:"create"`
	Provider string   `json:"provider,omitempty" maxLength:"255" doc:"Source of its provider" example:"registry.terraform.io/hashicorp/aws"`
	Changed  []string `json:"changed,omitempty" maxItems:"100" doc:"Names of the attributes that change" example:"tags"`
	Forces   []string `json:"forces,omitempty" maxItems:"100" doc:"Names of the attributes that force the replacement" example:"cidr_block"`
	From     string   `json:"from,omitempty" maxLength:"1000" doc:"The address that it had before"`
	Imported bool     `json:"imported,omitempty" doc:"Whether it is imported"`
	Drifted  bool     `json:"drifted,omitempty" doc:"Whether it was changed outside the code"`
}

// UnitResult is the result of one unit of a Terragrunt run.
type UnitResult struct {
	Unit    string   `json:"unit" maxLength:"1000" doc:"Its path from the directory of the run" example:"app"`
	Result  string   `json:"result" maxLength:"32" doc:"As Terragrunt reports it: succeeded, failed, early exit, excluded; also error ignored" example:"succeeded"`
	Changes *Changes `json:"changes,omitempty" doc:"Counts of its changes, planned or made" example:"{\"add\":1,\"change\":0,\"destroy\":0}"`
	Outputs int      `json:"outputs,omitempty" minimum:"0" maximum:"100000" doc:"How many outputs change or were changed"`
	Planned bool     `json:"planned,omitempty" doc:"Whether the unit was applied and these changes are only its plan, because the engine did not print what it did"`
}

// OutputChange is an output that a plan changes, without its value.
type OutputChange struct {
	Name   string `json:"name" maxLength:"255" doc:"Name of the output" example:"subnet_id"`
	Action string `json:"action" maxLength:"32" doc:"create, update or delete" example:"update"`
}

// Checks counts the check blocks of the code that fail. Their messages are in the log alone: they may have values.
type Checks struct {
	Failing int      `json:"failing" minimum:"0" doc:"How many fail, or could not be evaluated" example:"1"`
	Names   []string `json:"names,omitempty" maxItems:"10" doc:"Addresses of the first of them" example:"check.health"`
}

// Output is one output of the engine; a sensitive one has no value.
type Output struct {
	Name      string `json:"name" maxLength:"255" doc:"Name of the output" example:"subnet_id"`
	Sensitive bool   `json:"sensitive,omitempty" doc:"Whether the code marks it as sensitive"`
	Value     any    `json:"value,omitempty" doc:"Its value; none where it is sensitive" example:"\"subnet-0abc\""`
	Masked    bool   `json:"masked,omitempty" doc:"Whether a part of the value is hidden, because the run had a secret with that text: no workspace gets it as an input"`
}

// SensitiveOutputs names the artifact that has the values of sensitive outputs.
type SensitiveOutputs struct {
	Artifact string `json:"artifact" minLength:"1" maxLength:"200" doc:"Name of the artifact" example:"plan/outputs.json"`
	Size     int64  `json:"size" minimum:"1" doc:"Its bytes" example:"120"`
	SHA256   string `json:"sha256" minLength:"64" maxLength:"64" doc:"SHA-256 of the bytes, in hexadecimal digits" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
}

// Lock is a state lock that was found held.
type Lock struct {
	ID        string `json:"id" maxLength:"255" doc:"Id of the lock" example:"5e1f3c1a-0d7e-4c3b-9b2f-1f6f0a3a8b11"`
	Who       string `json:"who,omitempty" maxLength:"255" doc:"Its holder"`
	Operation string `json:"operation,omitempty" maxLength:"255" doc:"Operation that took the lock"`
	Created   string `json:"created,omitempty" maxLength:"64" doc:"When it was taken, as the engine says it"`
	Path      string `json:"path,omitempty" maxLength:"1000" doc:"Where the locked state is"`
}

// Result is how a run ended. It is sent once, after the engine's process group is dead.
type Result struct {
	Outcome          workflow.State    `json:"outcome" enum:"succeeded,failed,cancelled" doc:"How it ended"`
	Reason           workflow.Reason   `json:"reason,omitempty" doc:"Why it failed"`
	Detail           string            `json:"detail,omitempty" maxLength:"2000" doc:"The reason in a sentence"`
	Changes          *Changes          `json:"changes,omitempty" doc:"Changes of the plan, or changes that were made" example:"{\"add\":1,\"change\":0,\"destroy\":0}"`
	Outputs          []Output          `json:"outputs,omitempty" maxItems:"500" doc:"Outputs of the engine"`
	OmittedOutputs   []string          `json:"omitted_outputs,omitempty" maxItems:"50" doc:"Names of the first outputs that were left out to stay within bounds" example:"certificates"`
	Lock             *Lock             `json:"lock,omitempty" doc:"A state lock that is still held"`
	State            *StateFound       `json:"state,omitempty" doc:"Where the run found its engine's state; absent where it did not come to that"`
	Plan             *PlanMade         `json:"plan,omitempty" doc:"The plan that a preview stored for its approval"`
	Units            []UnitResult      `json:"units,omitempty" maxItems:"1000" doc:"With Terragrunt: the result of each unit"`
	Inventory        *Inventory        `json:"inventory,omitempty" doc:"Of a scan: the content of the state"`
	SensitiveOutputs *SensitiveOutputs `json:"sensitive_outputs,omitempty" doc:"With share_outputs: the artifact that has the values of sensitive outputs"`
	Policies         []PolicyResult    `json:"policies,omitempty" maxItems:"50" doc:"Results of the policy groups that it was held to"`
	Checks           *Checks           `json:"checks,omitempty" doc:"With terraform, tofu and terragrunt: check blocks that fail; none is known to where it is absent"`
	LogEnd           int64             `json:"log_end" minimum:"0" doc:"Number of lines of the whole log" example:"120"`
	Truncated        bool              `json:"truncated,omitempty" doc:"Whether outputs or resources were left out to stay within bounds"`
}

// Handover is what a runner sends at its end in one call: the result, the steps that were not reported yet, and the end
// of the log that was not taken yet. A relay keeps it where the control plane is away.
type Handover struct {
	Result
	Steps []Step   `json:"steps,omitempty" maxItems:"20" doc:"Steps that were not reported yet"`
	Tail  *LogTail `json:"tail,omitempty" doc:"The last lines of the log, as far as they were not taken yet"`
}

// HandedOver answers a result.
type HandedOver struct {
	Control
	Next int64 `json:"next,omitempty" doc:"With a tail: number of the next line of the log that is wanted" example:"120"`
}

// MaxLastSteps is how many steps go with a result.
const MaxLastSteps = 20

// Slim returns the essentials of a result, for a control plane that refuses the whole: the outcome, its
// reason, the lock and the counts of changes, failing checks and policy findings, without outputs, resources and findings.
func (r Result) Slim() Result {
	const maxDetail = 500
	out := Result{
		Outcome: r.Outcome, Reason: r.Reason, Lock: r.Lock, State: r.State, Plan: r.Plan, SensitiveOutputs: r.SensitiveOutputs, LogEnd: r.LogEnd, Truncated: true,
		Detail: text.Middle(r.Detail, maxDetail),
	}
	if r.Changes != nil {
		changes := *r.Changes
		changes.Resources, changes.Outputs = nil, nil
		out.Changes = &changes
	}
	if r.Checks != nil {
		out.Checks = &Checks{Failing: r.Checks.Failing}
	}
	for _, group := range r.Policies {
		group.Findings, group.Waivers, group.Error = nil, nil, text.Middle(group.Error, maxDetail)
		out.Policies = append(out.Policies, group)
	}
	return out
}
