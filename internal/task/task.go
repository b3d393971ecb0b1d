// Package task is the contract between a launcher and the runner that it starts: the facts that a launch needs about
// a job, the runner's environment, the gate at which it waits, the secrets that come through it, and the meaning of a
// size. Only this package writes and reads it, so that each shared name has one place. It starts nothing.
//
// A launcher may start the runner of an earlier or a later image. Unknown variables are ignored, and a missing one
// has the meaning that its field documents. So a name here is never reused and never changes its meaning.
package task

// Needs has the facts that the launch of a job needs. It goes unchanged from the claim (api.Job) through the
// queue (api.LaunchMessage) to the launcher (launcher.Request). A new field arrives there by itself: set it where a job
// is claimed, and use it in a launcher.
type Needs struct {
	Attempt           int      `json:"attempt" doc:"Number of the attempt, counted from 1" example:"1"`
	Organization      string   `json:"organization" doc:"Name of the organization" example:"default"`
	Workspace         string   `json:"workspace" doc:"Name of the workspace" example:"network"`
	WorkspaceID       string   `json:"workspace_id,omitempty" doc:"Id of the workspace" example:"ws_01k1xz4m2p7q9r3s5t8v"`
	Pool              string   `json:"pool" doc:"Name of the pool" example:"default"`
	Size              string   `json:"size" doc:"CPU and memory: small, medium, large, xlarge, or CPU/MEMORY" example:"small"`
	StateKind         string   `json:"state_kind,omitempty" doc:"Where the engine's state is kept" example:"s3"`
	StateKey          string   `json:"state_key,omitempty" doc:"The directory of a state that has a name of its own, where the run may need it"`
	StateOlds         []string `json:"state_olds,omitempty" doc:"Names of other directories of states, which the run only looks at"`
	SourceDirectory   string   `json:"source_directory,omitempty" doc:"The directory source, for a launcher that must copy it"`
	SourcePath        string   `json:"source_path,omitempty" doc:"With source_directory: the root module's directory below it" example:"envs/prod"`
	SecretRefs        []string `json:"secret_refs,omitempty" doc:"References to secrets of the runner's machine, for a launcher that must hand their values over"`
	MaxRuntimeSeconds float64  `json:"max_runtime_seconds" doc:"Maximum seconds of the run" example:"3600"`
	Image             string   `json:"image,omitempty" doc:"Name of one of the pool's images" example:"gpu"`
	Spot              string   `json:"spot,omitempty" enum:"never,reads,all" doc:"Runs that may use Spot, if the pool allows them" example:"reads"`
	DiskGiB           int      `json:"disk_gib,omitempty" doc:"Disk of the run in GiB, within the pool's limits" example:"50"`
	Engine            string   `json:"engine,omitempty" enum:"terraform,tofu,terragrunt,pulumi,command" doc:"Program that runs the code, for a launcher that provides it" example:"tofu"`
	EngineVersion     string   `json:"engine_version,omitempty" doc:"A version or constraint of it" example:"~> 1.10"`
	Packages          bool     `json:"packages,omitempty" doc:"Whether the run may use and fill its workspace's cache of packages: its code is neither that of a pull request nor of a ref that somebody chose"`
}

// StateDirs are the state directories of a task, each as a path below the root of all states.
type StateDirs struct {
	Own      string   // its workspace's directory; empty: none
	Olds     []string // other directories, which are only read, if they exist
	Required bool     // the state is kept nowhere else: without a root, the task is refused
}

const (
	// SpoolName is the file of a task's work directory in which its runner keeps its log until all of it is taken.
	SpoolName = "log-spool"
	// UnsavedName is the directory of a task's work directory with the states that its engine could not write, until they
	// are kept elsewhere. Its launcher does not remove them.
	UnsavedName = "unsaved"
	// ExitUnreported is the exit code of a runner that could not reach its relay to hand its result over.
	ExitUnreported = 75
	// ProbeArg as the only argument makes a runner's program probe instead of run.
	ProbeArg = "probe"
	// ProbeFile is the file of the work directory whose content a probe sends to the relay.
	ProbeFile = "nonce"
	// ProbePath is the relay's path for it; the content follows.
	ProbePath = "/probe/"
)
