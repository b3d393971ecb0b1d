package api

import (
	"log/slog"

	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Claim asks for jobs.
type Claim struct {
	Instance    string          `json:"instance" minLength:"1" maxLength:"128" doc:"Name of the claiming instance, stable over its restarts" example:"dayfly-default"`
	Version     string          `json:"version,omitempty" maxLength:"64" doc:"Version of the claiming program" example:"1.0.0"`
	Max         int             `json:"max" minimum:"1" maximum:"50" doc:"Maximum number of jobs to hand out" example:"10"`
	Types       []workflow.Type `json:"types,omitempty" maxItems:"3" doc:"Types that are claimed; an empty list means all"`
	WaitSeconds int             `json:"wait_seconds,omitempty" minimum:"0" maximum:"20" doc:"Seconds to wait for the first job" example:"20"`
}

// Headers in which an agent names its process with each call.
const (
	HeaderProcess = "Dayfly-Process"
	HeaderAfter   = "Dayfly-After"
)

// Process names a process that works as an instance.
type Process struct {
	Boot  string // made anew with each start; empty: it is not distinguished from others of its instance
	After string // the process before it in the same data directory; empty: there was none
}

// Claimed is the answer to a claim.
type Claimed struct {
	Jobs              []Job   `json:"jobs" nullable:"false" doc:"The jobs that are handed out, with their tokens"`
	Short             bool    `json:"short" doc:"Whether fewer jobs than asked for can start now, so that asking again at once is of no use"`
	RetryAfterSeconds float64 `json:"retry_after_seconds,omitempty" doc:"Seconds to wait before the next claim"`
	Note              string  `json:"note,omitempty" doc:"Why nothing is handed out, where that is not obvious"`
	Deliveries        bool    `json:"deliveries,omitempty" doc:"Whether deliveries wait for the pool's side"`
}

// Job is a run that a claim hands out.
type Job struct {
	task.Needs

	ID            string             `json:"id" doc:"Id of the workflow" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Token         string             `json:"token" doc:"Job token, valid for this attempt only" example:"dfj_..."`
	Type          workflow.Type      `json:"type" doc:"Type of the run"`
	Operation     workflow.Operation `json:"operation,omitempty" doc:"Operation of a deployment" example:"preview"`
	LaunchSeconds float64            `json:"launch_seconds" doc:"Remaining seconds of the launch window" example:"3600"`
}

// LogValue keeps the token out of logs.
func (j Job) LogValue() slog.Value {
	return slog.GroupValue(slog.String("job_id", j.ID), slog.Int("attempt", j.Attempt))
}

// Attempt names one attempt of a workflow in a pool's report.
type Attempt struct {
	Attempt int `json:"attempt" minimum:"1" doc:"Number of the attempt, counted from 1" example:"1"`
}

// Release gives a claim back.
type Release struct {
	Attempt int    `json:"attempt" minimum:"1" doc:"Number of the attempt, counted from 1" example:"1"`
	Text    string `json:"text,omitempty" maxLength:"500" doc:"Why, for the timeline" example:"the queue is full"`
}

// Kinds of launch report.
const (
	LaunchAccepted = "launched" // the launcher took it; Task names it
	LaunchProgress = "progress" // the task moves towards running; no part of this version says so, but others may
	LaunchRefused  = "refused"  // transient: tried again after RetrySeconds
	LaunchFailed   = "failed"   // permanent: no retry can help
)

// Launch reports the outcome of a launch.
type Launch struct {
	Attempt      int             `json:"attempt" minimum:"1" doc:"Number of the attempt, counted from 1" example:"1"`
	Kind         string          `json:"kind" enum:"launched,progress,refused,failed" doc:"Outcome: launched, the launcher took it; progress, it moves towards running; refused, it is tried again; failed, no retry can help"`
	Task         string          `json:"task,omitempty" maxLength:"512" doc:"The launcher's reference; required for launched and progress" example:"arn:aws:ecs:eu-central-1:123456789012:task/dayfly/0f8a1c2d3e4b5a697887766554433221"`
	Reason       workflow.Reason `json:"reason,omitempty" doc:"With refused: throttled, quota, capacity or unavailable"`
	Text         string          `json:"text,omitempty" maxLength:"1000" doc:"Message of the launcher"`
	RetrySeconds float64         `json:"retry_seconds,omitempty" minimum:"0" doc:"With refused: seconds until the next try"`
	Placement    string          `json:"placement,omitempty" maxLength:"128" doc:"With refused: the placement that a repeat must try first, because a request with it may have been taken; without one, none was taken. With failed: the one that was refused for good"`
}

// Lost reports the proven end of a task: it exited, was stopped, or is gone.
type Lost struct {
	Attempt  int    `json:"attempt" minimum:"1" doc:"Number of the attempt, counted from 1" example:"1"`
	Task     string `json:"task" minLength:"1" maxLength:"512" doc:"The launcher's reference to the task" example:"arn:aws:ecs:eu-central-1:123456789012:task/dayfly/0f8a1c2d3e4b5a697887766554433221"`
	ExitCode *int   `json:"exit_code,omitempty" doc:"Where known; 0 means that the result was handed over" example:"137"`
	Text     string `json:"text,omitempty" maxLength:"1000" doc:"The stop reason in a sentence" example:"OutOfMemoryError: container killed due to memory usage"`

	Reason workflow.Reason `json:"reason,omitempty" doc:"Cause of its end, where the launcher knows it: out_of_memory, spot_taken or relay_lost" example:"out_of_memory"`
}

// JobState is the part of a job's state that a pool may see, and whether the job is still wanted.
type JobState struct {
	ID               string         `json:"id" doc:"Id of the workflow" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Known            bool           `json:"known" doc:"Whether there is such a workflow in this pool" example:"true"`
	State            workflow.State `json:"state,omitempty" doc:"Where it stands" example:"running"`
	Attempt          int            `json:"attempt,omitempty" doc:"Number of the current attempt" example:"1"`
	Task             string         `json:"task,omitempty" doc:"The task that holds the run or its slot" example:"arn:aws:ecs:eu-central-1:123456789012:task/dayfly/0f8a1c2d3e4b5a697887766554433221"`
	Instance         string         `json:"instance,omitempty" doc:"Instance that claimed it" example:"dayfly-default"`
	PendingPlacement string         `json:"pending_placement,omitempty" doc:"Claimed: the placement whose launch may have been taken without an answer"`
	LaunchText       string         `json:"launch_text,omitempty" doc:"Claimed: why its launch was refused last"`
	Active           bool           `json:"active" doc:"Whether it is claimed, running, or ended with its slot still held" example:"true"`
	Started          bool           `json:"started" doc:"Whether a start was granted for the current attempt" example:"true"`
	Cancel           bool           `json:"cancel" doc:"Whether its cancellation was requested"`
	ClaimAge         float64        `json:"claim_age_seconds,omitempty" doc:"Seconds since the claim" example:"95"`
	SilentSeconds    float64        `json:"silent_seconds,omitempty" doc:"Seconds since the last sign of life of a started run" example:"12"`
	RemainingSeconds float64        `json:"remaining_seconds,omitempty" doc:"Seconds until the deadline; negative after it" example:"3480"`
	CancelAge        float64        `json:"cancel_age_seconds,omitempty" doc:"Seconds since the cancellation was requested"`
}

// Wanted reports whether attempt n of this job should be launched, or still run.
func (s JobState) Wanted(attempt int) bool {
	return s.Known && s.Active && s.Attempt == attempt && !(s.Cancel && !s.Started)
}

// StatesQuery asks for the states of jobs.
type StatesQuery struct {
	IDs         []string `json:"ids" minItems:"1" maxItems:"100" doc:"Ids of the workflows" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	WaitSeconds int      `json:"wait_seconds,omitempty" minimum:"0" maximum:"20" doc:"Seconds to wait until one of them is to be cancelled or is over" example:"0"`
}

// States answers with the states of jobs. Of a job that is left out nothing is known, and so not that nobody wants it.
type States struct {
	Jobs []JobState `json:"jobs" nullable:"false" doc:"The states, in the order of the query. A job whose records cannot be read is left out"`
}
