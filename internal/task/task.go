// Package task is the contract between a launcher and the runner that it starts: what a launch needs to know of a
// job, the runner's environment, the gate at which it waits, the secrets that come through it, and what a size
// means. It is written and read here alone, so that a name which both sides must know has one place. It starts
// nothing.
//
// Versions mix: a launcher may start the runner of an earlier or a later image. A variable that is not known is
// passed over, and one that is missing means what its field says, so a name here is never reused and never changes
// its meaning.
package task

// Needs is what the launch of a job needs to know of it. It travels as it is: from the claim (api.Job) through the
// queue (api.LaunchMessage) to the launcher (launcher.Request). A field that is added here arrives there; what is left
// is to set it, where a job is claimed, and to use it, in a launcher.
type Needs struct {
	Attempt           int      `json:"attempt" doc:"Number of the attempt, counted from 1" example:"1"`
	Organization      string   `json:"organization" doc:"Name of the organization" example:"default"`
	Workspace         string   `json:"workspace" doc:"Name of the workspace" example:"network"`
	Pool              string   `json:"pool" doc:"Name of the pool" example:"default"`
	Size              string   `json:"size" doc:"CPU and memory: small, medium, large, xlarge, or CPU/MEMORY" example:"small"`
	StateKind         string   `json:"state_kind,omitempty" doc:"Where the engine's state is kept" example:"own-s3"`
	StateKey          string   `json:"state_key,omitempty" doc:"The directory of a state that has a name of its own, where the run may need it"`
	StateOlds         []string `json:"state_olds,omitempty" doc:"Names of other directories of states, which the run only looks at"`
	SourceDirectory   string   `json:"source_directory,omitempty" doc:"The directory source, for a launcher that must mount it"`
	SecretRefs        []string `json:"secret_refs,omitempty" doc:"References to secrets of the runner's machine, for a launcher that must hand their values over"`
	MaxRuntimeSeconds float64  `json:"max_runtime_seconds" doc:"Most seconds that the run may take" example:"3600"`
}

// StateDirs are the directories of states that a task is given, each as a path below the root of all states.
type StateDirs struct {
	Own      string   // that of its workspace; empty: none
	Olds     []string // others, which are only looked at, where they are there
	Required bool     // the state is kept nowhere else: where there is no root, the task is refused
}

const (
	// SpoolName is the file of a task's work directory in which its runner keeps its log until all of it is taken.
	SpoolName = "log-spool"
	// ProbeArg makes a runner's program probe, instead of run, when it is the only argument.
	ProbeArg = "probe"
	// ProbeFile is the file of the work directory whose content a probe carries to the relay.
	ProbeFile = "nonce"
	// ProbePath is where at the relay it does so; the content follows.
	ProbePath = "/probe/"
)
