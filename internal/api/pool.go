package api

import (
	"log/slog"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Claim asks for jobs. Instance names who asks; it is the name that Held is asked by.
type Claim struct {
	Instance    string          `json:"instance" minLength:"1" maxLength:"128" doc:"Name of the claiming instance, stable over its restarts"`
	Version     string          `json:"version,omitempty" maxLength:"64"`
	Max         int             `json:"max" minimum:"1" maximum:"50"`
	Types       []workflow.Type `json:"types,omitempty" maxItems:"3" doc:"None means all"`
	WaitSeconds int             `json:"wait_seconds,omitempty" minimum:"0" maximum:"20" doc:"How long to wait for the first job"`
}

// Claimed is the answer to a claim. Short says that fewer jobs than asked for can start now, so
// that asking again at once is of no use.
type Claimed struct {
	Jobs              []Job   `json:"jobs" nullable:"false"`
	Short             bool    `json:"short"`
	RetryAfterSeconds float64 `json:"retry_after_seconds,omitempty"`
	Note              string  `json:"note,omitempty" doc:"Why nothing is handed out, where that is not obvious"`
}

// Job is what one claim hands out.
type Job struct {
	ID                string             `json:"id" doc:"The workflow's id"`
	Attempt           int                `json:"attempt"`
	Token             string             `json:"token" doc:"Job token, valid for this attempt only"`
	Organization      string             `json:"organization"`
	Workspace         string             `json:"workspace"`
	Pool              string             `json:"pool"`
	Type              workflow.Type      `json:"type"`
	Operation         workflow.Operation `json:"operation,omitempty"`
	Size              string             `json:"size"`
	StateKind         string             `json:"state_kind,omitempty" doc:"Where the engine's state is kept"`
	StateKey          string             `json:"state_key,omitempty" doc:"The directory of a state that has a name of its own, where the run may need it"`
	StateOlds         []string           `json:"state_olds,omitempty" doc:"Other directories of states that the run looks at, by their names"`
	SourceDirectory   string             `json:"source_directory,omitempty" doc:"The directory source, for a launcher that must mount it"`
	SecretRefs        []string           `json:"secret_refs,omitempty" doc:"References to secrets of the runner's machine, for a launcher that must hand their values over"`
	LaunchSeconds     float64            `json:"launch_seconds" doc:"Seconds left of the launch window"`
	MaxRuntimeSeconds float64            `json:"max_runtime_seconds"`
}

// LogValue keeps the token out of logs.
func (j Job) LogValue() slog.Value {
	return slog.GroupValue(slog.String("job_id", j.ID), slog.Int("attempt", j.Attempt))
}

// Attempt names one attempt of a workflow in a pool's report.
type Attempt struct {
	Attempt int `json:"attempt" minimum:"1"`
}

// Release gives a claim back.
type Release struct {
	Attempt int    `json:"attempt" minimum:"1"`
	Text    string `json:"text,omitempty" maxLength:"500" doc:"Why, for the timeline"`
}

// Kinds of launch report.
const (
	LaunchAccepted = "launched" // the launcher took it; Task names it
	LaunchProgress = "progress" // the task moves towards running
	LaunchRefused  = "refused"  // transient: tried again after RetrySeconds
	LaunchFailed   = "failed"   // permanent: no retry can help
)

// Launch reports what became of a launch.
type Launch struct {
	Attempt      int             `json:"attempt" minimum:"1"`
	Kind         string          `json:"kind" enum:"launched,progress,refused,failed"`
	Task         string          `json:"task,omitempty" maxLength:"512" doc:"The launcher's reference; required for launched and progress"`
	Reason       workflow.Reason `json:"reason,omitempty" doc:"With refused: throttled, quota, capacity or unavailable"`
	Text         string          `json:"text,omitempty" maxLength:"1000"`
	RetrySeconds float64         `json:"retry_seconds,omitempty" minimum:"0"`
	// Placement is the one that must be repeated before any other, because a request with it may have
	// been taken: with refused, the one whose answer was lost or that is tried next; with failed, the
	// one that was refused for good. A refusal without it says that none may have been taken.
	Placement string `json:"placement,omitempty" maxLength:"128" doc:"With refused: the placement that may have been taken, which a repeat tries first"`
}

// Lost reports the proven end of a task: it exited, was stopped, or is gone.
type Lost struct {
	Attempt  int    `json:"attempt" minimum:"1"`
	Task     string `json:"task" minLength:"1" maxLength:"512"`
	ExitCode *int   `json:"exit_code,omitempty" doc:"Where known; 0 means that the result was handed over"`
	Text     string `json:"text,omitempty" maxLength:"1000" doc:"The stop reason in a sentence"`
}

// JobState is what a pool may know of a job, and whether it still wants it.
type JobState struct {
	ID               string         `json:"id"`
	Known            bool           `json:"known" doc:"False: no such workflow in this pool"`
	State            workflow.State `json:"state,omitempty"`
	Attempt          int            `json:"attempt,omitempty" doc:"The current attempt"`
	Task             string         `json:"task,omitempty" doc:"The task that holds the run or its slot"`
	Instance         string         `json:"instance,omitempty" doc:"Who claimed it"`
	PendingPlacement string         `json:"pending_placement,omitempty" doc:"Claimed: the placement whose launch may have been taken without an answer"`
	LaunchText       string         `json:"launch_text,omitempty" doc:"Claimed: why its launch was refused last"`
	Active           bool           `json:"active" doc:"Claimed, running, or ended with its slot still held"`
	Started          bool           `json:"started" doc:"A start was granted for the current attempt"`
	Cancel           bool           `json:"cancel" doc:"Its cancellation was requested"`
	ClaimAge         float64        `json:"claim_age_seconds,omitempty"`
	SilentSeconds    float64        `json:"silent_seconds,omitempty" doc:"Since the last sign of life of a started run"`
	RemainingSeconds float64        `json:"remaining_seconds,omitempty" doc:"Until the deadline; negative after it"`
	CancelAge        float64        `json:"cancel_age_seconds,omitempty"`
}

// Wanted reports whether attempt n of this job should be launched, or still run.
func (s JobState) Wanted(attempt int) bool {
	return s.Known && s.Active && s.Attempt == attempt && !(s.Cancel && !s.Started)
}

// StatesQuery asks for the states of up to 100 jobs. With WaitSeconds it waits until one of them
// is to be cancelled or is over.
type StatesQuery struct {
	IDs         []string `json:"ids" minItems:"1" maxItems:"100"`
	WaitSeconds int      `json:"wait_seconds,omitempty" minimum:"0" maximum:"20"`
}

// States is the answer, in the order of the query. A job whose records cannot be read is left out: nothing is known
// of it, also not that nobody wants it.
type States struct {
	Jobs []JobState `json:"jobs" nullable:"false"`
}
