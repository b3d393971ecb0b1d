package api

import (
	"fmt"
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

// HeaderTicket carries the ticket of a call to a relay whose gateway needs the Authorization header for
// itself, as one that checks AWS signatures does. Elsewhere the ticket is the call's bearer token.
const HeaderTicket = "Dayfly-Ticket"

// Run names a start: which attempt of which workflow, by which boot of which task.
type Run struct {
	Workflow string
	Attempt  int
	Task     string // the launcher's reference, never reused
	Boot     string // 32 hexadecimal digits, made in memory when the runner begins
}

// Start asks for a run. It names what of this list the runner knows, because an older one would not notice that
// it does not: a kind of state, an operation, an instruction.
type Start struct {
	Knows []string `json:"knows,omitempty" maxItems:"50" doc:"What the runner knows beyond what every version does"`
}

// Instructions of a spec that an older runner would pass over.
const (
	KnowsTakeOver  = "take_over"
	KnowsBeginAnew = "begin_anew"
)

// RunnerKnows is what a runner of this version names at its start.
func RunnerKnows() []string {
	return []string{
		StateDeclared, StateOwnDirectory, StateOwnS3, string(workflow.StateList), string(workflow.StateUnlock), KnowsTakeOver, KnowsBeginAnew,
	}
}

// Needs is what a run of the spec needs its runner to know.
func (s Spec) Needs() []string {
	var out []string
	kind := s.State.Kind
	if s.Engine == EngineCommand && s.State.Directory() == "" {
		kind = "" // its commands are told of nothing else
	}
	for _, what := range RunnerKnows() {
		switch {
		case what == kind, what == string(s.Operation), what == KnowsTakeOver && s.TakeOver, what == KnowsBeginAnew && s.BeginAnew:
			out = append(out, what)
		}
	}
	return out
}

// Control is what every answer to a runner carries. Seconds count from when the request was
// sent.
type Control struct {
	Cancel           bool    `json:"cancel"`
	RemainingSeconds float64 `json:"remaining_seconds" doc:"Until the deadline"`
	HeartbeatSeconds float64 `json:"heartbeat_seconds" doc:"Until the next heartbeat"`
	HoldSeconds      float64 `json:"hold_seconds,omitempty" doc:"How long the next heartbeat may be held before it is answered"`
	LogSeconds       float64 `json:"log_seconds,omitempty" doc:"How long lines of the log are gathered; none means 5"`
}

// Heartbeat says that a runner lives.
type Heartbeat struct {
	Step string `json:"step,omitempty" maxLength:"64" doc:"The step it is in"`
}

// Spec is what a run does. It holds references to secrets, never values.
type Spec struct {
	Workflow          string             `json:"workflow"`
	Attempt           int                `json:"attempt"`
	Organization      string             `json:"organization"`
	WorkspaceID       string             `json:"workspace_id"`
	Workspace         string             `json:"workspace"`
	Type              workflow.Type      `json:"type"`
	Operation         workflow.Operation `json:"operation,omitempty"`
	Engine            string             `json:"engine"`
	EngineVersion     string             `json:"engine_version,omitempty"`
	Commands          map[string]string  `json:"commands,omitempty"`
	Source            Source             `json:"source"`
	SourceDigest      string             `json:"source_digest,omitempty" doc:"Of a directory source: what its files were when the run was submitted; none where nobody looked"`
	State             State              `json:"state"`
	Known             *StateFound        `json:"known,omitempty" doc:"What the last run of the workspace found of its state; none: nothing is known"`
	RanBefore         bool               `json:"ran_before,omitempty" doc:"The state was changed by a run of which nothing is known any more"`
	Namesakes         []Namesake         `json:"namesakes,omitempty" doc:"Deleted workspaces of this name, the latest first; only while nothing is known"`
	TakeOver          bool               `json:"take_over,omitempty"`
	TakeOverFrom      string             `json:"take_over_from,omitempty"`
	BeginAnew         bool               `json:"begin_anew,omitempty"`
	LockID            string             `json:"lock_id,omitempty"`
	Variables         map[string]any     `json:"variables,omitempty"`
	Environment       map[string]string  `json:"environment,omitempty"`
	Secrets           []Secret           `json:"secrets,omitempty"`
	Role              *Role              `json:"role,omitempty" doc:"The run's role in the cloud; none means that of its task for secrets, and none for the engine"`
	Size              string             `json:"size"`
	MaxRuntimeSeconds float64            `json:"max_runtime_seconds"`
	LogQuota          int64              `json:"log_quota,omitempty" doc:"Bytes that the log may hold; none means 64 MiB"`
}

// Step is a named piece of a run.
type Step struct {
	Seq       int                 `json:"seq" minimum:"1" doc:"Its place in the run"`
	Name      string              `json:"name" minLength:"1" maxLength:"64"`
	Status    workflow.StepStatus `json:"status" enum:"running,succeeded,failed,skipped"`
	StartedAt time.Time           `json:"started_at"`
	Seconds   float64             `json:"seconds,omitempty" doc:"How long it took"`
	ExitCode  *int                `json:"exit_code,omitempty"`
	Text      string              `json:"text,omitempty" maxLength:"1000" doc:"What it found, or why it failed"`
	LogEnd    int64               `json:"log_end,omitempty" minimum:"0" doc:"Number of lines of the log at its end"`
}

// Steps reports steps; a later report of the same sequence number replaces the earlier.
type Steps struct {
	Steps []Step `json:"steps" minItems:"1" maxItems:"50"`
}

// LogLine is one line of a log. Text has no line end. A line longer than the bound is sent in
// pieces, all but the last with More set.
type LogLine struct {
	At   time.Time `json:"at"`
	Step string    `json:"step,omitempty" maxLength:"64"`
	Text string    `json:"text"`
	More bool      `json:"more,omitempty"`
}

// Logs sends lines; First is the number of the first of them, counted from 0 over the run.
type Logs struct {
	First int64     `json:"first" minimum:"0" maximum:"100000000000"`
	Lines []LogLine `json:"lines" minItems:"1" maxItems:"5000"`
	Lost  bool      `json:"lost,omitempty" doc:"Lines before these that are not there yet never will be"`
}

// LogsTaken says how far the log is now.
type LogsTaken struct {
	Control
	Next int64 `json:"next" doc:"Number of the next line that is wanted"`
}

// Tail sends what the runner of an ended task left of its log; without lines it asks which line is wanted next.
type Tail struct {
	Attempt int       `json:"attempt" minimum:"1"`
	Task    string    `json:"task" minLength:"1" maxLength:"512"`
	First   int64     `json:"first" minimum:"0" maximum:"100000000000"`
	Lines   []LogLine `json:"lines,omitempty" maxItems:"5000"`
}

// TailTaken says how far the log is now.
type TailTaken struct {
	Next int64 `json:"next" doc:"Number of the next line that is wanted"`
	Full bool  `json:"full,omitempty" doc:"The log holds all that it may: no line is wanted any more"`
}

// Changes counts what a plan would do, or what drifted.
type Changes struct {
	Add     int `json:"add"`
	Change  int `json:"change"`
	Destroy int `json:"destroy"`
	Drift   int `json:"drift,omitempty"`
	// Resources are the addresses and actions, at most 200 of them; no values.
	Resources []ResourceChange `json:"resources,omitempty" maxItems:"200"`
}

// Text counts changes: those of a plan, or what was done.
func (c Changes) Text(done bool) string {
	words := [3]string{"to add", "to change", "to destroy"}
	if done {
		words = [3]string{"added", "changed", "destroyed"}
	}
	out := fmt.Sprintf("%d %s, %d %s, %d %s", c.Add, words[0], c.Change, words[1], c.Destroy, words[2])
	if c.Drift > 0 {
		out += fmt.Sprintf(", %d drifted", c.Drift)
	}
	return out
}

// ResourceChange is one line of a plan, without any value.
type ResourceChange struct {
	Address string `json:"address" maxLength:"1000"`
	Action  string `json:"action" maxLength:"32" doc:"create, update, delete, replace, read, drift"`
}

// Output is one output of the engine; a sensitive one has no value.
type Output struct {
	Name      string `json:"name" maxLength:"255"`
	Sensitive bool   `json:"sensitive,omitempty"`
	Value     any    `json:"value,omitempty"`
}

// Lock is a state lock that was found held.
type Lock struct {
	ID        string `json:"id" maxLength:"255"`
	Who       string `json:"who,omitempty" maxLength:"255"`
	Operation string `json:"operation,omitempty" maxLength:"255"`
	Created   string `json:"created,omitempty" maxLength:"64"`
	Path      string `json:"path,omitempty" maxLength:"1000"`
}

// Result is how a run ended. It is sent once, after the engine's process group is dead.
type Result struct {
	Outcome   workflow.State  `json:"outcome" enum:"succeeded,failed,cancelled"`
	Reason    workflow.Reason `json:"reason,omitempty"`
	Detail    string          `json:"detail,omitempty" maxLength:"2000" doc:"The reason in a sentence"`
	Changes   *Changes        `json:"changes,omitempty"`
	Outputs   []Output        `json:"outputs,omitempty" maxItems:"500"`
	Lock      *Lock           `json:"lock,omitempty" doc:"A state lock that is still held"`
	State     *StateFound     `json:"state,omitempty" doc:"Where the run found its engine's state, and which; none where it did not come to that"`
	LogEnd    int64           `json:"log_end" minimum:"0" doc:"Number of lines of the whole log"`
	Truncated bool            `json:"truncated,omitempty" doc:"Outputs or resources were left out to stay within bounds"`
}

// Slim returns what counts of a result, for a control plane that refuses the whole: the outcome, its
// reason, the lock and the counts of changes, without outputs and resources.
func (r Result) Slim() Result {
	const mostDetail = 500
	out := Result{
		Outcome: r.Outcome, Reason: r.Reason, Lock: r.Lock, State: r.State, LogEnd: r.LogEnd, Truncated: true,
		Detail: text.Middle(r.Detail, mostDetail),
	}
	if r.Changes != nil {
		out.Changes = &Changes{Add: r.Changes.Add, Change: r.Changes.Change, Destroy: r.Changes.Destroy, Drift: r.Changes.Drift}
	}
	return out
}
