package runs

import (
	"flag"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/test/runtable"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The output of commands about a run is as in the golden file.
func TestWords_OfRuns(t *testing.T) {
	var style term.Style
	runtable.Golden(t, *update, func(r runtable.Run) string {
		w := r.Why.Workflow
		out := []string{
			"list: " + strings.Join(listed(style, w, runtable.Now), " | "),
			"line: " + cli.JobLine(w, cli.Dash(runtext.Took(w, runtable.Now))),
			"live: " + (&follower{wait: r.Why.Waiting}).status(w, 0, runtable.Now),
			"", shown(style, w, runtable.Now),
		}
		if w.State.Terminal() {
			out = append(append(out, "", "followed:"), summary(style, w)...)
		}
		if w.StartedAt == nil || !w.State.Terminal() {
			out = append(out, "", "log: "+noLog(w, 0))
		}
		if w.Result != nil && w.Result.Changes != nil {
			out = append(append(out, "", "plan:"), planLines(style, api.Plan{Workflow: w.ID, Workspace: w.Workspace, Changes: *w.Result.Changes, Review: w.Review, Options: w.Options})...)
		}
		return strings.Join(out, "\n")
	})
}

func TestWords_OfNodesOfATree(t *testing.T) {
	tree := runtable.Tree()
	var out strings.Builder
	for _, n := range tree.Nodes {
		out.WriteString(nodeLine(term.Style{}, n, 4) + "\n")
	}
	runtable.Same(t, *update, "tree.txt", out.String()+treeDone(tree)+"\n")
}
