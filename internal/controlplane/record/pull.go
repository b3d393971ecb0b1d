package record

import (
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// HookKey is the key of a body that was taken from a git host, to recognise a replay.
func HookKey(org, hostID, digest string) store.Key {
	return store.Key{Part: "hook/" + org, Sort: hostID + "/" + digest}
}

// HookKept is how long that is stored. GitHub signs no time, so nothing else shows a replay.
const HookKept = 3 * 24 * time.Hour

// PullKey is the key of a pull request.
func PullKey(org, hostID, repository string, number int) store.Key {
	return store.Key{Part: "pull/" + org, Sort: fmt.Sprintf("%s/%s#%d", hostID, repository, number)}
}

// PullKept is how long a pull request is stored after its last event.
const PullKept = 60 * 24 * time.Hour

// Pull is a pull request of a git host, with its previews and its comment.
type Pull struct {
	HostID     string        `json:"host_id"`
	Repository string        `json:"repo"`
	Number     int           `json:"number"`
	State      string        `json:"state,omitempty"` // api.Pull*
	Head       string        `json:"head,omitempty"`
	Released   string        `json:"released,omitempty"`    // the commit that a member released
	ReleasedBy int64         `json:"released_by,omitempty"` // number of that member at the host
	Read       time.Time     `json:"read,omitzero"`         // when it was last read from the host
	Waits      string        `json:"waits,omitempty"`       // why nothing is previewed
	Note       string        `json:"note,omitempty"`        // outcome of the last command
	Previews   []PullPreview `json:"previews,omitempty"`    // of Head; of a merged one also the runs of the merge
	More       int           `json:"more,omitempty"`        // workspaces that it concerns beyond these
	Comment    int64         `json:"comment,omitempty"`     // number of ours
	Showing    string        `json:"showing,omitempty"`     // the delivery that shows it
	Stale      bool          `json:"stale,omitempty"`       // something has happened since that delivery was claimed
}

// PullPreview is a run that a pull request started.
type PullPreview struct {
	Workspace string    `json:"ws"`
	Run       string    `json:"run,omitempty"`
	Refused   string    `json:"refused,omitempty"` // why there is none
	Commit    string    `json:"commit"`
	Merged    bool      `json:"merged,omitempty"` // it is of the merge, whose commit can be the head
	Shown     time.Time `json:"shown,omitzero"`   // when its plan was first in the comment, by the host's clock
}

// PullDelivery is the pull request that a delivery is about.
type PullDelivery struct {
	HostID     string   `json:"host_id"`
	Repository string   `json:"repo"`
	Number     int      `json:"number"`
	Said       *Said    `json:"said,omitempty"`  // the command that is read back
	Shows      []string `json:"shows,omitempty"` // the runs whose plans are shown, once it is claimed
}

// Said is a comment as an event reported it. It counts only if the host confirms it.
type Said struct {
	Comment int64  `json:"comment"`
	Author  int64  `json:"author"`
	Text    string `json:"text"`
}
