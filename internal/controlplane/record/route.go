package record

import (
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Route says where the claimable runs of a workspace lie, and which pools may claim them. It is part of the record of
// the workspace's queue. The zero value is out of date: that of a queue that had no run yet.
type Route struct {
	// Key is where claims look: PoolRoute, RunnerRoute or LabelRoute.
	Key   string   `json:"key,omitempty"`
	Epoch int64    `json:"epoch,omitempty"` // of Routes, when the workspace was routed; another one is out of date
	Scope Scope    `json:"scope,omitzero"`
	Wake  []string `json:"wake,omitempty"` // ids of pools that are woken when a run becomes claimable
	Old   []string `json:"old,omitempty"`  // other keys that may still have claimable runs
}

// Fresh says whether a route is that of the present settings.
func (r Route) Fresh(now Routes) bool { return r.Key != "" && r.Epoch == now.Epoch }

// Scope has the properties of a workspace that the assignments of a pool are compared with.
type Scope struct {
	ID        string   `json:"id,omitempty"` // of the workspace
	Workspace string   `json:"ws,omitempty"` // its name, for people
	Stack     string   `json:"stack,omitempty"`
	Namespace string   `json:"ns,omitempty"`
	Projects  []string `json:"projects,omitempty"` // the nearest first; without the root
	Role      string   `json:"role,omitempty"`     // path of the workspace's role; empty means that it has none
}

// Equal says whether two scopes are the same.
func (s Scope) Equal(o Scope) bool {
	return s.ID == o.ID && s.Workspace == o.Workspace && s.Stack == o.Stack && s.Namespace == o.Namespace && s.Role == o.Role && slices.Equal(s.Projects, o.Projects)
}

// Routes is the routing state of an organization, which its claims and submits follow. Each change that may lead
// workspaces to another pool raises the epoch: until a workspace is routed again, none of its runs is claimed. A
// claim names the version of this record in its commit. No record is epoch 0.
type Routes struct {
	Epoch int64 `json:"epoch"`
	// Scopes counts changes of a scope under an unchanged key. They make no route out of date, but a claim that has
	// read the scope before.
	Scopes int64          `json:"scopes,omitempty"`
	Labels map[string]int `json:"labels,omitempty"` // keys of the label sets in use, with the number of workspaces
	Pins   map[string]int `json:"pins,omitempty"`   // names of the instances that workspaces are pinned to, as well
}

// Zero says whether no workspace was ever routed to another pool, and pools are the only routes.
func (r *Routes) Zero() bool {
	return r.Epoch == 0 && r.Scopes == 0 && len(r.Labels) == 0 && len(r.Pins) == 0
}

// Rerouting is how far the workspaces of an organization are routed again: those up to After are done.
type Rerouting struct {
	Epoch int64  `json:"epoch"`
	After string `json:"after,omitempty"`
}

// RoutesKey is the key of an organization's Routes.
func RoutesKey(org string) store.Key { return store.Key{Part: OrganizationPart(org), Sort: "routes"} }

// ReroutingKey is the key of an organization's Rerouting. The pass reads it with the limits.
func ReroutingKey(org string) store.Key { return store.Key{Part: LimitPart(org), Sort: "rerouting"} }

const (
	poolRoute   = "pool:"
	runnerRoute = "runner:"
	labelRoute  = "labels:"
)

// PoolRoute is the key of runs that any instance of a pool may claim.
func PoolRoute(id string) string { return poolRoute + id }

// RunnerRoute is the key of runs that one instance of a pool may claim.
func RunnerRoute(id, instance string) string { return runnerRoute + id + "/" + instance }

// LabelRoute is the key of runs that any pool with all these labels may claim. The labels are sorted.
func LabelRoute(labels []string) string { return labelRoute + strings.Join(labels, ",") }

// PoolOfRoute is the pool that a key is of; "" if the key is a set of labels.
func PoolOfRoute(key string) string {
	if id, ok := strings.CutPrefix(key, poolRoute); ok {
		return id
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(key, runnerRoute), "/")
	if !strings.HasPrefix(key, runnerRoute) {
		return ""
	}
	return id
}

// RunnerOfRoute is the instance that a key is of; "" if it is not of one.
func RunnerOfRoute(key string) string {
	id, ok := strings.CutPrefix(key, runnerRoute)
	if !ok {
		return ""
	}
	_, name, _ := strings.Cut(id, "/")
	return name
}

// LabelsOfRoute are the labels of a key; none if it is not of labels.
func LabelsOfRoute(key string) []string {
	set, ok := strings.CutPrefix(key, labelRoute)
	if !ok {
		return nil
	}
	return strings.Split(set, ",")
}

// Has says whether the pool has all of some labels.
func (r Pool) Has(labels []string) bool {
	for _, l := range labels {
		if !slices.Contains(r.Labels, l) {
			return false
		}
	}
	return true
}

// AssignedTo says whether the pool is assigned to a workspace.
func (r Pool) AssignedTo(s Scope) bool {
	return r.AssignedToAll || r.Names(s.ID) || s.Stack != "" && slices.Contains(r.Stacks, s.Stack) ||
		s.Namespace != "" && slices.Contains(r.Namespaces, s.Namespace) || slices.Contains(r.Projects, GlobalProject) ||
		slices.ContainsFunc(s.Projects, func(name string) bool { return slices.Contains(r.Projects, name) })
}

// MayAssume says whether the tasks of the pool may assume a role of the scope's path. For a pool without a path, the
// account's policies decide alone.
func (r Pool) MayAssume(s Scope) bool {
	return s.Role == "" || r.RolePath == "" || strings.HasPrefix(s.Role, r.RolePath)
}

// Serves says whether the pool may claim runs of a scope.
func (r Pool) Serves(s Scope) bool { return r.AssignedTo(s) && r.MayAssume(s) }
