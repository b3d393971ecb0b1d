package record

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Review is the review of a preview's plan that can be approved. It is made with the preview, without a status, and
// has its plan from the preview's end on. Each approval and the rejection write it, so that of two decisions at once
// the second is made on the result of the first.
type Review struct {
	Status         string             `json:"status,omitempty"` // api.Review*; an expired or stale review is still waiting here
	For            workflow.Operation `json:"for"`
	Plan           api.PlanRef        `json:"plan,omitzero"`
	Values         string             `json:"values,omitempty"` // api.PlanMade.Values; only to be compared, and shown to nobody
	Base           *Base              `json:"base,omitempty"`   // the state that the plan was made on; nil where the runner did not say
	Settings       string             `json:"settings"`         // digest of the workspace's settings that it was made with
	Used           string             `json:"used,omitempty"`   // and of the inputs that its preview was given
	Why            []string           `json:"why,omitempty"`
	NotBySubmitter bool               `json:"not_by_submitter,omitempty"`
	AfterMerge     bool               `json:"after_merge,omitempty"` // of a pull request: its approvals are carried over, and apply nothing
	Submitters     api.PrincipalRefs  `json:"submitters,omitempty"`
	Strangers      bool               `json:"strangers,omitempty"` // an author of the applied changes is not a principal, so not in Submitters
	Needed         int                `json:"needed,omitempty"`
	NeededWhy      string             `json:"needed_why,omitempty"` // why more than one
	Votes          []api.Vote         `json:"votes,omitempty"`
	Expires        time.Time          `json:"expires,omitzero"`
	Applies        string             `json:"applies,omitempty"`
	CarriedFrom    string             `json:"carried_from,omitempty"` // the preview that had the votes first
	CarriedTo      string             `json:"carried_to,omitempty"`   // and the one that has them now
}

// Base is the state that a plan was made on; the zero value means that there was none.
type Base struct {
	Lineage string `json:"lineage,omitempty"`
	Serial  int64  `json:"serial,omitempty"`
}

// Awaited is an entry of the list of previews that wait for an approval.
type Awaited struct {
	ID          string `json:"id"`
	WorkspaceID string `json:"wsid,omitempty"`
}

// CarriedKey has, as a Name, the preview of a pull request whose plan was approved last of all those with the same
// values in a workspace. It ends when the approvals do not carry over any more.
func CarriedKey(org, wsid, values string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: CarriedPrefix(wsid) + values}
}

// CarriedPrefixes begins the sort keys of those of all workspaces.
const CarriedPrefixes = "carried/"

// CarriedPrefix begins the sort keys of those of one workspace.
func CarriedPrefix(wsid string) string { return CarriedPrefixes + wsid + "/" }

// ApprovalKey is the key of the approval requirements of a project: an api.Approval. An empty project is the
// organization.
func ApprovalKey(org, project string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "approval/" + project}
}

// ReviewKey has the review of a preview.
func ReviewKey(id string) store.Key { return store.Key{Part: RunPrefix + id, Sort: "review"} }

// ReviewPart lists the previews of an organization that wait for an approval, by their ids.
func ReviewPart(org string) string { return "review/" + org }

// AwaitedKey is an entry of that list, an Awaited.
func AwaitedKey(org, id string) store.Key { return store.Key{Part: ReviewPart(org), Sort: id} }

// AppliedKey is the key of the Applied of a workspace.
func AppliedKey(org, wsid string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "applied/" + wsid}
}

// Applied has the commit of the git source whose approved plan was applied last, and the last applied commit of a
// push, which may have needed no approval.
type Applied struct {
	Commit string             `json:"commit,omitempty"`
	Push   *api.AppliedCommit `json:"push,omitempty"`
}

// ArtifactKey has an artifact of an attempt.
func ArtifactKey(id string, attempt int, name string) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: AttemptArtifacts(attempt) + name}
}

// AttemptArtifacts begins the sort keys of the artifacts of an attempt.
func AttemptArtifacts(attempt int) string { return fmt.Sprintf("%s%04d/", ArtifactsPrefix, attempt) }

// ArtifactOf reads the key of an artifact.
func ArtifactOf(k store.Key) (attempt int, name string) {
	number, name, _ := strings.Cut(strings.TrimPrefix(k.Sort, ArtifactsPrefix), "/")
	attempt, _ = strconv.Atoi(number) // ArtifactKey wrote it
	return attempt, name
}

// ArtifactsPrefix begins the sort keys of a workflow's artifacts.
const ArtifactsPrefix = "artifact/"

// Artifact is an artifact of an attempt. Its Place names the pool by its id.
type Artifact struct {
	Kind     string    `json:"kind"`
	Size     int64     `json:"size"`
	SHA256   string    `json:"sha256"`
	Place    api.Place `json:"place"`
	Recorded time.Time `json:"recorded"`
	Placed   time.Time `json:"placed,omitzero"`
}
