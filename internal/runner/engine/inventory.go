package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// inventoryName is the artifact with all resources that a scan found. It is a file like those that code writes, under
// a name that code has no reason to use.
const inventoryName = api.FilesDir + "dayfly-inventory.json"

const maxTypes = 200

// managed is one resource of a state, without its values.
type managed struct {
	Address  string `json:"address"`
	Type     string `json:"type"`
	Provider string `json:"provider,omitempty"`
	Module   string `json:"module,omitempty"`
}

// managedIn lists the resources in the state that a plan was made for. The plan has the refreshed state, without
// resources that are gone; those are still in the state, and the plan has them as drift.
func managedIn(plan *tfjson.Plan) []managed {
	all := map[string]managed{}
	if plan.PriorState != nil && plan.PriorState.Values != nil {
		modules := []*tfjson.StateModule{plan.PriorState.Values.RootModule}
		for i := 0; i < len(modules); i++ {
			if modules[i] == nil {
				continue
			}
			for _, r := range modules[i].Resources {
				if r != nil && r.Mode == tfjson.ManagedResourceMode {
					all[r.Address] = managed{r.Address, r.Type, r.ProviderName, modules[i].Address}
				}
			}
			modules = append(modules, modules[i].ChildModules...)
		}
	}
	for _, c := range plan.ResourceDrift {
		if c != nil && c.Change != nil && c.Change.Actions.Delete() && c.Mode == tfjson.ManagedResourceMode {
			all[c.Address] = managed{c.Address, c.Type, c.ProviderName, c.ModuleAddress}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b managed) int { return strings.Compare(a.Address, b.Address) })
}

// inventoryOf counts resources by their type.
func inventoryOf(all []managed) *api.Inventory {
	counts := map[string]int{}
	for _, m := range all {
		counts[m.Type]++
	}
	out := &api.Inventory{Resources: len(all)}
	for name, n := range counts {
		out.Types = append(out.Types, api.InventoryCount{Type: name, Count: n})
	}
	slices.SortFunc(out.Types, func(a, b api.InventoryCount) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Type, b.Type))
	})
	out.Types = out.Types[:min(len(out.Types), maxTypes)]
	return out
}

// keepInventory counts the resources that a scan found, and keeps their list. A scan does not fail because the list
// cannot be kept: not every runner has a place for it.
func keepInventory(ctx context.Context, h Host, all []managed) *api.Inventory {
	raw, err := json.MarshalIndent(all, "", "  ")
	if err == nil && len(all) > 0 {
		_, _, err = h.Keep(ctx, inventoryName, api.ArtifactFile, bytes.NewReader(raw))
	}
	if err != nil {
		h.Logf("the list of the resources was not kept: %v", err)
	}
	return inventoryOf(all)
}
