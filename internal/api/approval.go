package api

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// DefaultApprovalExpires is how long a plan waits for its approval if no requirement says less, and MaxApprovalExpires
// the longest that one may say. A plan is kept for at least as long.
const (
	DefaultApprovalExpires = 72 * time.Hour
	MaxApprovalExpires     = 7 * 24 * time.Hour
)

// Approval is the requirement of an organization, a project or a workspace before a plan is applied. Each level
// counts by itself: a plan needs an approval if one of them requires it.
type Approval struct {
	Required       bool     `json:"required" doc:"Whether runs that change the state need an approved plan" example:"true"`
	NotBySubmitter bool     `json:"not_by_submitter,omitempty" doc:"Whether the person who submitted the run or changed the workspace last may not approve"`
	Expires        string   `json:"expires,omitempty" maxLength:"40" doc:"Go duration for which a plan waits for its approval, at most 168h; default 72h" example:"24h"`
	AfterMerge     bool     `json:"after_merge,omitempty" doc:"Whether the plan of a pull request is applied only after the merge: its approvals carry over to the run of the merged commit, if all planned changes are equal. Else an approval applies it at once"`
	Rules          []string `json:"rules,omitempty" maxItems:"10" doc:"Which plans need an approval: destroys, replaces, changes > N. Without any, all that change something; with some, others are approved by themselves" example:"destroys"`
}

// Text describes the requirement, for people; nil requires nothing.
func (a *Approval) Text() string {
	if a == nil || !a.Required {
		return "none"
	}
	out := "required"
	if len(a.Rules) > 0 {
		out += " for " + strings.Join(a.Rules, ", ")
	}
	if a.NotBySubmitter {
		out += "; not by the submitter"
	}
	if a.AfterMerge {
		out += "; of a pull request after the merge"
	}
	if a.Expires != "" {
		out += "; within " + a.Expires
	}
	return out
}

// PlanMade is the plan that a preview stored for its approval. Two hashes name it: that of the bundle, which has the
// plan file and its inputs, and that of the summary of the planned changes, which approvers see.
//
// Values is a hash, but a few unknown values can be guessed from it. So it is kept only to be compared, and is
// removed from all answers to people and runs.
type PlanMade struct {
	Artifact string `json:"artifact" maxLength:"200" doc:"Name of the bundle among the artifacts of the run" example:"plan/bundle.tar"`
	Size     int64  `json:"size" minimum:"1" doc:"Bytes of the bundle" example:"20480"`
	SHA256   string `json:"sha256" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the bundle" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Summary  string `json:"summary" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the summary of all planned changes" example:"60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"`
	Values   string `json:"values,omitempty" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of all planned changes with their values, by which the plan is compared with another one; none where it cannot be. Runners report it, and no answer has it"`
	Empty    bool   `json:"empty,omitempty" doc:"Whether the plan changes nothing"`
	Loose    bool   `json:"loose,omitempty" doc:"Whether the engine computes the changes again when it applies the plan, which then is a bound of them"`
	Source   string `json:"source,omitempty" maxLength:"100" doc:"Commit of the git source, or digest of the directory's files or of the archive"`
}

// PlanRef is the plan that a run applies.
type PlanRef struct {
	Workflow string `json:"workflow" doc:"Id of the preview that made it" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Attempt  int    `json:"attempt" doc:"Attempt of the preview" example:"1"`
	PlanMade
}

// PushedState is a state that is to become that of a workspace. A person has placed its bytes on the side of the pool.
type PushedState struct {
	SHA256 string `json:"sha256" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the state document" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Size   int64  `json:"size" minimum:"1" maximum:"268435456" doc:"Its bytes" example:"2048"`
	Force  bool   `json:"force,omitempty" doc:"Whether it may have another lineage, or a serial that is not higher"`
}

// Statuses of a review.
const (
	ReviewWaiting  = "waiting"  // for an approval
	ReviewApproved = "approved" // a run that applies the plan was made
	ReviewRejected = "rejected"
	ReviewExpired  = "expired"   // nobody approved it in time
	ReviewEmpty    = "unchanged" // the plan changes nothing, so there is nothing to approve
	ReviewStale    = "stale"     // the state has moved since it was made
	// The plan of a pull request is approved, and the approvals wait for the plan of the merged commit.
	ReviewMerge = "awaiting_merge"
	// The approvals of a pull request's plan were carried over to that of the merged commit.
	ReviewCarried = "carried_over"
)

// Review is the outcome of a plan that needs an approval.
type Review struct {
	Status         string             `json:"status" enum:"waiting,approved,rejected,expired,stale,unchanged,awaiting_merge,carried_over" doc:"Where it stands" example:"waiting"`
	Stale          string             `json:"stale,omitempty" doc:"The change that made the plan stale" example:"the state has moved since the plan was made: its serial was 7, and is 8"`
	For            workflow.Operation `json:"for" doc:"Operation of the run that applies the plan" example:"update"`
	SHA256         string             `json:"sha256" doc:"SHA-256 of the plan's bundle; an approval names it"`
	Summary        string             `json:"summary" doc:"SHA-256 of the summary of the planned changes"`
	Why            []string           `json:"why,omitempty" doc:"Which requirements want an approval, in words; none where the plan needs none" example:"project payments: it destroys 2 resources"`
	NotBySubmitter bool               `json:"not_by_submitter,omitempty" doc:"Whether the submitters may not approve"`
	AfterMerge     bool               `json:"after_merge,omitempty" doc:"Whether the plan is of a pull request and applied only after its merge: its approvals carry over to the plan of the merged commit, if all planned changes are equal"`
	Submitters     PrincipalRefs      `json:"submitters,omitempty" doc:"Principals that count as submitters"`
	Needed         int                `json:"needed" doc:"How many approvals it needs, of different people" example:"1"`
	NeededWhy      string             `json:"needed_why,omitempty" doc:"Why it needs more than one, as a clause" example:"the authors of the commits since the last apply are not known here"`
	Unfixed        string             `json:"unfixed,omitempty" doc:"What the plan leaves open until it is applied; none where it is applied as it is"`
	Votes          []Vote             `json:"votes,omitempty" doc:"Approvals and rejections, the oldest first"`
	CarriedFrom    string             `json:"carried_from,omitempty" doc:"Id of the pull request's preview whose approvals were carried over to this plan, because all planned changes are equal" example:"wf_01k1xz4m2p7q9r3s5t8u"`
	CarriedTo      string             `json:"carried_to,omitempty" doc:"Id of the preview of the merged commit to which the approvals of this plan were carried over" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	ExpiresAt      time.Time          `json:"expires_at" doc:"Until when it may be approved"`
	Applies        string             `json:"applies,omitempty" doc:"Id of the run that applies the plan" example:"wf_01k1xz4m2p7q9r3s5t8w"`
}

// Vote is one approval or the rejection.
type Vote struct {
	By      string    `json:"by" doc:"Name of the principal; rule where the requirements' rules let the plan pass" example:"ada"`
	ByID    string    `json:"by_id,omitempty" doc:"Id of the principal" example:"prn_01k1xz4m2p7q9r3s5t8v"`
	At      time.Time `json:"at" doc:"When"`
	Reject  bool      `json:"reject,omitempty" doc:"Whether it is the rejection"`
	Comment string    `json:"comment,omitempty" doc:"Comment of the principal"`
}

// Decision approves or rejects a plan.
type Decision struct {
	SHA256  string `json:"sha256" pattern:"^[0-9a-f]{64}$" doc:"SHA-256 of the bundle of the plan that was looked at; refused if the preview has another" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Comment string `json:"comment,omitempty" maxLength:"500" doc:"Why" example:"checked with the network team"`
}

// WithReason goes with a cancellation or a retry, if somebody says why.
type WithReason struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"Why; it is shown in the timeline and in the audit trail" example:"wrong branch"`
}

// Check refuses a reason that is too long, or has control characters.
func (in WithReason) Check() error {
	if utf8.RuneCountInString(in.Reason) > 200 {
		return workflow.Refuse(workflow.ErrInvalid, "reason", "a reason has at most 200 characters")
	}
	return workflow.CheckText("reason", in.Reason, utf8.UTFMax*200)
}

// Plan is the changes of a preview, as people read them: structure, never values.
type Plan struct {
	Workflow  string    `json:"workflow" doc:"Id of the preview" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Workspace string    `json:"workspace" doc:"Name of the workspace" example:"network"`
	Changes   Changes   `json:"changes" doc:"The planned changes: destroyed and replaced resources first" example:"{\"add\":1,\"change\":0,\"destroy\":0}"`
	Truncated bool      `json:"truncated,omitempty" doc:"Whether some were left out to stay within bounds; the log has all of them"`
	Options   *Options  `json:"options,omitempty" doc:"Options of its run"`
	Made      *PlanMade `json:"made,omitempty" doc:"The bundle that it stored; none where no approval was required"`
	Review    *Review   `json:"review,omitempty" doc:"Its review; none where no approval was required"`
}
