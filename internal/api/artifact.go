package api

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// HeaderArtifact names the artifact whose bytes a call to a relay sends.
const HeaderArtifact = "Dayfly-Artifact"

// HeaderInput says which input of the spec a run asks for, counted from 0. Without it a run asks for its plan, or for the
// state that it is to push.
const HeaderInput = "Dayfly-Input"

// Kinds of artifact.
const (
	ArtifactPlan  = "plan"  // a plan that an update applies once it is approved: see PlanMade
	ArtifactState = "state" // a state that was pulled, or that could not be written
	ArtifactFile  = "file"  // stored by a step

	ArtifactOutputs = "outputs" // values of sensitive outputs, for runs of other workspaces alone
)

// ErroredName is the name of the artifact with the state that a run could not write to its backend. With terragrunt those
// of its units lie in a directory beside it.
const (
	ErroredName = PlanDir + "errored.tfstate"
	erroredDir  = PlanDir + "errored/"
)

// FormerName is the name of the artifact with the state that a push has replaced, where the engine's backend keeps none.
const FormerName = PlanDir + "former.json"

// PulledName is the name of the artifact with the state that a run has pulled.
func PulledName(engine string) string {
	if engine == EnginePulumi {
		return PlanDir + "stack.json"
	}
	return PlanDir + "terraform.tfstate"
}

// ErroredDays is for how many days such an artifact is kept, unless somebody pushes the state or gives it up before.
const ErroredDays = 3 * 365

// ErroredOf names that artifact of a unit; "." is the directory of the run itself.
func ErroredOf(unit string) string {
	name := erroredDir + unit + path.Ext(ErroredName)
	switch {
	case unit == ".":
		return ErroredName
	case CheckArtifactName(name) != nil:
		sum := sha256.Sum256([]byte(unit))
		return erroredDir + hex.EncodeToString(sum[:8]) + path.Ext(ErroredName)
	}
	return name
}

// IsErrored says whether an artifact has a state that could not be written.
func IsErrored(name string) bool { return name == ErroredName || strings.HasPrefix(name, erroredDir) }

// PushErrored says how those of a run of a workspace are got and pushed.
func PushErrored(run, workspace, engine string) (get, push string) {
	if engine == EngineTerragrunt {
		return "dayfly artifact list " + run, "terragrunt state push FILE in each unit, then dayfly repair unlock " + workspace
	}
	return "dayfly artifact get " + run + " " + ErroredName, "dayfly state push " + workspace + " " + path.Base(ErroredName)
}

// OutputsName is the name of the artifact of that kind.
const OutputsName = PlanDir + "outputs.json"

// Bounds of the artifacts of one attempt.
const (
	MaxArtifacts     = 100
	MaxArtifactSize  = 256 << 20 // bytes of one
	MaxArtifactBytes = 1 << 30   // of all together
	MaxArtifactName  = 200
)

// Directories of artifacts' names. The first is the runner's own.
const (
	PlanDir  = "plan/"
	FilesDir = "files/"
)

// Artifact is a named file that a run leaves. Its bytes stay on the side of the pool and never pass through the control
// plane.
type Artifact struct {
	Name       string     `json:"name" doc:"plan/... is the runner's own, files/... is from a step" example:"files/sbom.json"`
	Kind       string     `json:"kind" enum:"plan,state,file,outputs" doc:"Its kind; outputs are values of sensitive outputs, which only runs of other workspaces get" example:"file"`
	Attempt    int        `json:"attempt" doc:"Number of the attempt that stored it" example:"1"`
	Size       int64      `json:"size" doc:"Bytes" example:"1024"`
	SHA256     string     `json:"sha256" doc:"SHA-256 of the bytes, in hexadecimal digits" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	RecordedAt time.Time  `json:"recorded_at" doc:"When the runner announced it"`
	PlacedAt   *time.Time `json:"placed_at,omitempty" doc:"When its bytes had arrived; none: they never did"`
	ExpiresAt  time.Time  `json:"expires_at" doc:"Until when it is kept"`
	Place      Place      `json:"place" doc:"Where its bytes are"`
}

// Place is where the bytes of artifacts are: files of an agent, or a bucket of a pool's stack.
type Place struct {
	Kind     string `json:"kind" enum:"directory,s3" doc:"directory: below the data directory of an agent; s3" example:"s3"`
	Pool     string `json:"pool,omitempty" doc:"Name of the pool that the agent or the bucket belongs to" example:"default"`
	Instance string `json:"instance,omitempty" doc:"With directory: name of the agent" example:"build-01"`
	Bucket   string `json:"bucket,omitempty" maxLength:"63" doc:"With s3: name of the bucket" example:"dayfly-default-artifacts"`
	Region   string `json:"region,omitempty" maxLength:"30" doc:"With s3: region of the bucket" example:"eu-central-1"`
	Key      string `json:"key,omitempty" maxLength:"500" doc:"Name there" example:"runs/default/ws_01k1xz4m2p7q9r3s5t8v/wf_01k1xz4m2p7q9r3s5t8v/1/files/sbom.json"`
}

// The kinds of Place.
const (
	PlaceDirectory = "directory"
	PlaceS3        = "s3"
)

// NewArtifact announces an artifact.
type NewArtifact struct {
	Name   string `json:"name" minLength:"1" maxLength:"200" doc:"plan/... or files/..., of A-Z, a-z, 0-9 and ._@+=,- between slashes" example:"files/sbom.json"`
	Kind   string `json:"kind" enum:"plan,state,file,outputs" doc:"Its kind" example:"file"`
	Size   int64  `json:"size" minimum:"0" maximum:"268435456" doc:"Bytes" example:"1024"`
	SHA256 string `json:"sha256" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the bytes, in hexadecimal digits" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
}

// NewArtifacts announces artifacts, or says that their bytes have arrived. An artifact that was announced may be
// announced again, if it is the same; another one of its name is refused.
type NewArtifacts struct {
	Artifacts []NewArtifact `json:"artifacts,omitempty" maxItems:"20" doc:"Artifacts to store"`
	Placed    []string      `json:"placed,omitempty" maxItems:"20" doc:"Names of those whose bytes have arrived"`
	Place     *Place        `json:"place,omitempty" doc:"Where the bytes go; set by the relay; a value of the runner is ignored"`
}

// ArtifactsTaken answers an announcement of artifacts.
type ArtifactsTaken struct {
	Control
	Artifacts []Artifact `json:"artifacts,omitempty" doc:"The announced artifacts, as recorded"`
	Uploads   []Transfer `json:"uploads,omitempty" doc:"Where to send the bytes of each, in the same order; said by the relay"`
}

// Input answers a run that asks for the artifact that it is to use.
type Input struct {
	Control
	Artifact Artifact  `json:"artifact" doc:"The artifact"`
	Download *Transfer `json:"download,omitempty" doc:"Where to get the bytes; said by the relay"`
}

// Transfer is a request with which a runner sends or gets the bytes of an artifact. It is valid for some minutes and
// then asked for again. On AWS the URL is signed, and so a secret.
type Transfer struct {
	Method string            `json:"method" enum:"GET,PUT" doc:"Method of the request" example:"PUT"`
	URL    string            `json:"url" doc:"Where to; a path is one of the relay"`
	Header map[string]string `json:"header,omitempty" doc:"Headers of the request"`
}

// Where the bytes of artifacts lie in a place: a bucket keeps those in the second one longer.
const (
	artifactsTop = "runs"
	erroredTop   = "errored"
)

// ArtifactsOf begins the keys of all that runs of a workspace can be given.
func ArtifactsOf(org, workspaceID string) string {
	return path.Join(artifactsTop, org, workspaceID) + "/"
}

// ArtifactKey names the bytes of an artifact among all those of a place.
func ArtifactKey(org, workspaceID, workflowID string, attempt int, name string) string {
	top := artifactsTop
	if IsErrored(name) {
		top = erroredTop
	}
	return path.Join(top, org, workspaceID, workflowID, strconv.Itoa(attempt), name)
}

// PushedKey names a state that a person has uploaded to be pushed. Its name is its SHA-256.
func PushedKey(org, workspaceID, sha256 string) string {
	return ArtifactsOf(org, workspaceID) + path.Join("push", sha256)
}

// CheckArtifactName refuses invalid names. A name is a path below plan/ or files/ of plain characters, which
// means the same as a file, in a URL and as a key of S3.
func CheckArtifactName(name string) error {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@+=,-"
	bad := len(name) > MaxArtifactName || !strings.HasPrefix(name, PlanDir) && !strings.HasPrefix(name, FilesDir)
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == "" || part == "." || part == ".." || strings.Trim(part, plain) != ""
	}
	if bad {
		return workflow.Refuse(workflow.ErrInvalid, "name", "an artifact's name has at most %d characters of A-Z, a-z, 0-9 and ._@+=,- between slashes, and begins with plan/ or files/; %.250q does not", MaxArtifactName, name)
	}
	return nil
}
