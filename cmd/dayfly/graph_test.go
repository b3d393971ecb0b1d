package main

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

func TestApply_OrdersWorkspacesByDependency(t *testing.T) {
	w := newWorld(t)
	file := w.put(
		described("apps")+"\nafter: [cluster]\n",
		described("cluster")+"\ninputs: [{workspace: network, output: subnet_id}]\n",
		described("network"),
	)
	has(t, "a dry run", w.ok("apply", "-f", file, "--dry-run"), "workspace apps would be created", "workspace network would be created")
	has(t, "apply", w.ok("apply", "-f", file), "workspace apps is created", "workspace cluster is created", "workspace network is created")
	has(t, "again", w.ok("apply", "-f", file), "workspace apps is unchanged")
	has(t, "the graph", w.ok("graph"), "network\n└── cluster: subnet_id\n    └── apps\n")
	has(t, "dot", w.ok("graph", "cluster", "-o", "dot"), `"network" -> "cluster" [label="subnet_id"];`)
	has(t, "show", w.ok("workspace", "show", "cluster"), "waits for       network: subnet_id", "feeds           apps")
	if got := w.run("workspace", "show", "cluster", "-o", "dot"); got.code != cli.ExitUsage {
		t.Errorf("another command in dot: %+v", got)
	}
	if got := w.run("graph", "no-such"); got.code != cli.ExitRefused {
		t.Errorf("of no workspace: %+v", got)
	}
	w.workspace("alone")
	has(t, "alone", w.ok("graph", "alone"), "waits for no other")
	if got := w.run("workspace", "delete", "network", "--yes"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "cluster") {
		t.Errorf("deleted: %+v", got)
	}
	// The other way round: a former dependency no longer comes first.
	has(t, "turned", w.ok("apply", "-f", w.put(
		described("network")+"\nafter: [apps]\n", described("apps"), described("cluster"),
	)), "workspace network is changed")
	w.ok("apply", "-f", w.put(described("network")+"\nafter: [apps]\n", described("apps")+"\nafter: [cluster]\n", described("cluster")))
	has(t, "pruned", w.ok("apply", "-f", w.put(described("other")), "--prune", "--yes", "--project", "global"),
		"workspace cluster is pruned", "workspace apps is pruned", "workspace network is pruned")
}
