package runs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestTreeSteps_AreAsLateAsWhatTheyWaitFor(t *testing.T) {
	g := api.Graph{Workspaces: []string{"account", "app", "db", "dns", "net", "web"}}
	for _, d := range []string{"net account", "db net", "dns net", "app db", "app net", "web app", "web dns"} {
		name, on, _ := strings.Cut(d, " ")
		g.Dependencies = append(g.Dependencies, api.Dependency{Workspace: name, On: on})
	}
	for root, want := range map[string][][]string{
		"net": {{"net"}, {"db", "dns"}, {"app"}, {"web"}}, "web": {{"web"}}, "elsewhere": {{"elsewhere"}},
	} {
		if diff := cmp.Diff(want, treeSteps(g, root, workflow.Update)); diff != "" {
			t.Errorf("update of %s (-want +got):\n%s", root, diff)
		}
	}
	if diff := cmp.Diff([][]string{{"web"}, {"app"}, {"db", "dns"}, {"net"}}, treeSteps(g, "net", workflow.Destroy)); diff != "" {
		t.Errorf("destroy (-want +got):\n%s", diff)
	}
}
