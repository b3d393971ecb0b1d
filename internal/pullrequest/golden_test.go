package pullrequest_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/test/runtable"
)

// The comment and the status for a run are as in the golden file: as a preview, and as the run that applies a
// plan.
func TestWords_OfRuns(t *testing.T) {
	runtable.Golden(t, *update, func(r runtable.Run) string {
		w := r.Why.Workflow
		c := pullrequest.Comment{Organization: "default", Key: "infra", Previews: []pullrequest.Preview{{Run: w}}}
		if w.Result != nil && w.Result.Changes != nil {
			c.Previews[0].Plan = &api.Plan{Workflow: w.ID, Workspace: w.Workspace, Changes: *w.Result.Changes, Review: w.Review}
		}
		said := func(c pullrequest.Comment) string {
			state, status := pullrequest.Status(c)
			_, body, _ := strings.Cut(pullrequest.Render(c, pullrequest.GitHubLimit), "\n")
			return state + ": " + status + "\n" + body
		}
		out := said(c)
		if w.Operation == "update" {
			c.Previews = []pullrequest.Preview{applied(previewed("net", create), w.State)}
			did := c.Previews[0].Apply
			did.Type, did.Operation, did.Reason, did.Changes = w.Type, w.Operation, w.Reason, w.Changes
			out += "\nas the one that applies:\n" + said(c)
		}
		return out
	})
}
