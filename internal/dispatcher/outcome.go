package dispatcher

import (
	"errors"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// asRefusal reads the error of a launch. One that is no refusal says nothing about what became of the
// request, so the task may exist.
func asRefusal(err error) *launcher.Refusal {
	if r, ok := errors.AsType[*launcher.Refusal](err); ok {
		out := *r
		switch {
		case out.Permanent:
			out.Reason = workflow.ReasonLaunchFailed
		case !out.Reason.Held():
			out.Reason = workflow.ReasonUnavailable // the only one that is left for a transient refusal
		}
		if out.Text == "" {
			out.Text = "the launcher gave no reason"
		}
		return &out
	}
	return &launcher.Refusal{
		Reason: workflow.ReasonUnavailable, Text: "the launcher did not answer: " + err.Error(), Unknown: true,
	}
}
