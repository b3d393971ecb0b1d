package e2e_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// tree asks for a tree and waits until it has ended.
func (w *world) tree(in api.NewTree) (got api.Tree) {
	w.T.Helper()
	got, err := w.Client.SubmitTree(w.T.Context(), in)
	if err != nil {
		w.T.Fatal(err)
	}
	uptest.Eventually(w.T, "the end of tree "+got.ID, func() bool {
		got, err = w.Client.Tree(w.T.Context(), got.ID)
		if err != nil {
			w.T.Fatal(err)
		}
		return got.EndedAt != nil
	})
	return got
}

func (w *world) wantNodes(got api.Tree, state string, want ...string) {
	w.T.Helper()
	var nodes []string
	for _, n := range got.Nodes {
		nodes = append(nodes, n.Workspace+" "+n.State)
	}
	if diff := cmp.Diff(want, nodes); diff != "" || got.State != state {
		w.T.Errorf("the tree is %s, want %s (-want +got):\n%s\n%+v", got.State, state, diff, got.Nodes)
	}
}

// Real runners, one for each run: a workspace gets what the one before it has left in the same tree.
func TestTree_OfRealRunsPassesOutputsOnInOrder(t *testing.T) {
	w := start(t)
	w.put("net", map[string]string{
		"update":  `echo net >> "$EFFECTS"; printf '{"subnet": "%s"}' "$(cat "$SHARED/subnet" 2>/dev/null || echo one)" > "$DAYFLY_OUTPUTS"`,
		"destroy": `echo net gone >> "$EFFECTS"`,
	})
	w.put("db", map[string]string{
		"update":  `echo "db in $DAYFLY_VAR_subnet" >> "$EFFECTS"; printf '{"address": "10.0.0.1"}' > "$DAYFLY_OUTPUTS"`,
		"destroy": `echo db gone >> "$EFFECTS"`,
	}, func(ws *api.Workspace) { ws.Inputs = []api.WorkspaceInput{{Workspace: "net", Output: "subnet"}} })
	w.put("app", map[string]string{"update": `echo "app at $DAYFLY_VAR_db" >> "$EFFECTS"`, "destroy": `echo app gone >> "$EFFECTS"`}, func(ws *api.Workspace) {
		ws.Inputs = []api.WorkspaceInput{{Workspace: "db", Output: "address", Variable: "db"}}
	})

	update := api.NewTree{Workspace: "net", Operation: workflow.Update}
	w.wantNodes(w.tree(update), api.TreeSucceeded, "net succeeded", "db succeeded", "app succeeded")
	w.wantNodes(w.tree(update), api.TreeSucceeded, "net succeeded", "db skipped", "app skipped")
	w.put("net", map[string]string{"update": `echo net >> "$EFFECTS"; printf '{"subnet": "two"}' > "$DAYFLY_OUTPUTS"`, "destroy": `echo net gone >> "$EFFECTS"`})
	w.wantNodes(w.tree(update), api.TreeSucceeded, "net succeeded", "db succeeded", "app skipped")
	w.wantNodes(w.tree(api.NewTree{Workspace: "net", Operation: workflow.Destroy}), api.TreeSucceeded, "net succeeded", "db succeeded", "app succeeded")
	want := []string{"net", "db in one", "app at 10.0.0.1", "net", "net", "db in two", "app gone", "db gone", "net gone"}
	if got := w.lines(); !slices.Equal(got, want) {
		t.Errorf("the runs did %q, want %q", got, want)
	}
}
