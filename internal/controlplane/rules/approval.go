package rules

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Requirement is what one level requires before a plan is applied.
type Requirement struct {
	Of string // such as "the organization", "project payments", "the workspace"
	api.Approval
}

// Required says whether one of the levels requires approvals at all.
func Required(levels []Requirement) bool { return len(levels) > 0 }

// Wanted is what the levels want of one plan. Without a Why it may be applied as it is.
type Wanted struct {
	Why            []string      // the levels that want an approval, with what they want it for
	NotBySubmitter bool          // of those levels
	Expires        time.Duration // the shortest of all levels
}

// Wants decides what the levels want of a plan. It is a pure function.
func Wants(levels []Requirement, op workflow.Operation, made api.PlanMade, changes api.Changes) Wanted {
	panic("not written yet")
}
