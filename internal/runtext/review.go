package runtext

import (
	"cmp"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// ForApproval is the state of a plan that can be approved.
const ForApproval = "waiting for approval"

// CarryOver says how the approvals of a pull request's plan are carried over.
const CarryOver = "after the merge, its approvals carry over to the plan of the merged commit, if all planned changes are equal"

// Unfixed says what a loose plan leaves open.
const Unfixed = "the engine computes the changes again and stops at the first that goes beyond this plan; values that are known only then are not fixed"

// Review is where a plan stands.
func Review(r api.Review) string {
	return cmp.Or(map[string]string{
		api.ReviewWaiting: ForApproval, api.ReviewExpired: "not approved in time", api.ReviewEmpty: "without changes",
		api.ReviewMerge: "approved, waiting for the merge", api.ReviewCarried: "carried over",
	}[r.Status], r.Status)
}

// Needed says how many approvals a plan needs, and why; empty where one will do.
func Needed(r api.Review) string {
	if r.Needed < 2 {
		return ""
	}
	said := fmt.Sprintf("%d approvals of different people and has %d", r.Needed, len(r.Votes))
	if r.NeededWhy != "" {
		said += ", because " + r.NeededWhy
	}
	return said
}

// Vote is an approval or rejection of a plan, with its author and comment.
func Vote(v api.Vote) string {
	said := "approved by " + v.By
	if v.Reject {
		said = "rejected by " + v.By
	}
	if v.Comment != "" {
		said += ": " + v.Comment
	}
	return said
}
