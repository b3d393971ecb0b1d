package runs

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
)

func TestPlan_SaysWhatIsKnownOfEachChange(t *testing.T) {
	got := strings.Join(planLines(term.Style{}, api.Plan{Workflow: "wf_a", Workspace: "net", Truncated: true, Changes: api.Changes{Move: 1, Import: 2, Resources: []api.ResourceChange{
		{Address: "x.b\x1b[2J", Action: "update", From: "x.a", Imported: true, Drifted: true},
	}}}), "\n")
	for _, want := range []string{"2 to import, 1 to move", "moved from x.a", "imported", "outside the code", "the list is cut"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant it to contain %q", got, want)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("a name controls the terminal: %q", got)
	}
}
