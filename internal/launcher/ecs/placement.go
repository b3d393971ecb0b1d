package ecs

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The two kinds of capacity, as the names of placements begin.
const (
	kindSpot     = "spot"
	kindOnDemand = "on-demand"
)

// Placements names the tries of a launch in their order, for dispatcher.Config. Each is one subnet: first on
// Spot, if the policy and the run allow it, then on demand. Jobs begin with different subnets, and so do the
// attempts of a job. The same message gives the same names.
func (c Config) Placements(m api.LaunchMessage) []string {
	if len(c.Subnets) == 0 {
		return nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(m.Job))
	first := (int(h.Sum32()%uint32(len(c.Subnets))) + m.Attempt) % len(c.Subnets) //nolint:gosec // bounded by Validate
	subnets := slices.Concat(c.Subnets[first:], c.Subnets[:first])
	var out []string
	if c.allowsSpot(m) {
		for _, s := range subnets {
			out = append(out, placement{true, s}.String())
		}
	}
	for _, s := range subnets {
		out = append(out, placement{false, s}.String())
	}
	return out
}

func (c Config) allowsSpot(m api.LaunchMessage) bool {
	switch careful(c.Spot, Spot(m.Spot)) {
	case SpotAll:
		return true
	case SpotReads:
		return m.ReadsState && !workflow.ChangesState(m.Type, m.Operation) // both, so that doubt means on demand
	case SpotNever:
	}
	return false
}

// careful returns the more careful of the pool's policy and the workspace's; empty means the pool's.
func careful(pool, workspace Spot) Spot {
	order := []Spot{SpotNever, SpotReads, SpotAll}
	if at := slices.Index(order, workspace); workspace != "" && at < slices.Index(order, pool) {
		return order[max(at, 0)] // an unknown policy means never
	}
	return pool
}

// placement is a name of Placements, taken apart.
type placement struct {
	spot   bool
	subnet string
}

func (p placement) String() string {
	if p.spot {
		return kindSpot + "/" + p.subnet
	}
	return kindOnDemand + "/" + p.subnet
}

// parsePlacement reads a name that Placements of this configuration could have given.
func (c Config) parsePlacement(name string) (placement, error) {
	kind, subnet, _ := strings.Cut(name, "/")
	if kind != kindSpot && kind != kindOnDemand || !slices.Contains(c.Subnets, subnet) {
		return placement{}, fmt.Errorf("the placement %q is not one of this pool's: it must be %s or %s and one of its subnets, such as %s/%s",
			name, kindOnDemand, kindSpot, kindOnDemand, strings.Join(c.Subnets[:min(1, len(c.Subnets))], ""))
	}
	return placement{kind == kindSpot, subnet}, nil
}
