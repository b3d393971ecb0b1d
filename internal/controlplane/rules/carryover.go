package rules

import (
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// CarryOverTime is for how long an approval of a pull request's plan counts for the plan of the merged commit.
const CarryOverTime = 14 * 24 * time.Hour

// CarryOver gives the plan of a merged commit the approvals of a pull request's plan, if all planned changes of the
// two are equal. Each approval is decided on again by Decide: by the present requirements, and by those of the pull
// request's plan, whose submitters are submitters of this one as well. An approval that does not count any more is
// left out. why says why nothing is carried over, as a clause; it is empty where something is. It is a pure function.
func CarryOver(to, from record.Review, p Present, now time.Time) (out record.Review, why string) {
	if why := notCarried(to, from, p, now); why != "" {
		return to, why
	}

	out = to
	out.NotBySubmitter = out.NotBySubmitter || from.NotBySubmitter
	out.Strangers = out.Strangers || from.Strangers
	out.Submitters = Submitters(slices.Concat(out.Submitters, from.Submitters)...)
	if from.Needed > out.Needed {
		out.Needed, out.NeededWhy = from.Needed, from.NeededWhy
	}
	for _, v := range from.Votes {
		if v.Reject || now.Sub(v.At) > CarryOverTime {
			continue
		}
		d := Decision{Decision: api.Decision{SHA256: to.Plan.SHA256, Comment: v.Comment}, By: api.PrincipalRef{ID: v.ByID, Name: v.By}}
		if next, made, err := Decide(out, d, p, now); err == nil && made {
			next.Votes[len(next.Votes)-1].At = v.At
			out = next
		}
	}
	if len(out.Votes) == 0 {
		return to, "none of those who gave them may approve this plan, or they are too old"
	}
	out.CarriedFrom = from.Plan.Workflow
	return out, ""
}

// notCarried says why no approval of one plan counts for another, as a clause; empty if some may.
func notCarried(to, from record.Review, p Present, now time.Time) string {
	switch {
	case from.Status == api.ReviewRejected:
		return "that plan was rejected " + Rejection(from)
	case from.Status != api.ReviewWaiting && from.Status != api.ReviewMerge:
		return "they were used already"
	case Expired(from, now):
		return "that plan was not approved in time"
	case from.For != to.For:
		return "that plan was for the operation " + string(from.For)
	case from.Values == "" || from.Values != to.Values:
		return "the planned changes are not all equal"
	case from.Settings != to.Settings || p.Settings != to.Settings:
		return "the settings of the workspace were changed since"
	case Moved(to, p.State) != "":
		return Moved(to, p.State)
	}
	return ""
}
