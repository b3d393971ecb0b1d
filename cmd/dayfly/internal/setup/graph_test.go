package setup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
)

var someGraph = api.Graph{
	Workspaces: []string{"apps", "cluster", "dns", "network", "alone", "vault"},
	Dependencies: []api.Dependency{
		{Workspace: "apps", On: "cluster", Outputs: []string{"name"}},
		{Workspace: "apps", On: "dns"},
		{Workspace: "cluster", On: "network", Outputs: []string{"subnet_id", "vpc_id"}},
		{Workspace: "dns", On: "network"},
		{Workspace: "monitor", On: "apps"},
		{Workspace: "apps", On: "vault"},
	},
}

func TestGraph_IsDrawnFromItsRootsWithDiamondsOnce(t *testing.T) {
	want := `network
├── cluster: subnet_id, vpc_id
│   └── apps: name
│       └── monitor
└── dns
    └── apps (*)
vault
└── apps (*)
`
	if d := cmp.Diff(want, drawn(someGraph, "", term.Style{})); d != "" {
		t.Error(d)
	}
}

func TestGraph_OfAWorkspaceIsWhatItWaitsForAndFeeds(t *testing.T) {
	g := around(someGraph, "dns")
	if d := cmp.Diff([]string{"apps", "dns", "monitor", "network"}, g.Workspaces); d != "" {
		t.Error(d)
	}
	want := `dns waits for
└── network
dns feeds
└── apps
    └── monitor
`
	if d := cmp.Diff(want, drawn(g, "dns", term.Style{})); d != "" {
		t.Error(d)
	}
	if got := drawn(around(someGraph, "network"), "network", term.Style{}); !strings.HasPrefix(got, "network waits for none\n") {
		t.Errorf("got %s", got)
	}
}

func TestGraph_InDotQuotesWhatItNames(t *testing.T) {
	got := dot(api.Graph{Workspaces: []string{"a-b", "c"}, Dependencies: []api.Dependency{{Workspace: "c", On: "a-b", Outputs: []string{`x"y`}}}})
	want := "digraph dayfly {\n  rankdir=LR;\n  \"a-b\";\n  \"c\";\n  \"a-b\" -> \"c\" [label=\"x\\\"y\"];\n}"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestWaves_PutWhatIsDependedOnFirst(t *testing.T) {
	input := func(names ...string) (out []api.WorkspaceInput) {
		for _, name := range names {
			out = append(out, api.WorkspaceInput{Workspace: name, Output: "x"})
		}
		return out
	}
	got := waves([]api.Workspace{
		{Name: "apps", Inputs: input("cluster", "elsewhere")}, {Name: "cluster", After: []string{"network"}}, {Name: "network"}, {Name: "other"},
	})
	if d := cmp.Diff(map[string]int{"network": 0, "other": 0, "cluster": 1, "apps": 2}, got); d != "" {
		t.Error(d)
	}
	waves([]api.Workspace{{Name: "a", After: []string{"b"}}, {Name: "b", After: []string{"a"}}, {Name: "c", After: []string{"c"}}}) // it ends
}
