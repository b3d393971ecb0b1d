package api

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Project is a node of the tree of an organization's projects.
type Project struct {
	Name        string     `json:"name" doc:"Name of the project; global is the root" example:"payments"`
	Parent      string     `json:"parent,omitempty" doc:"Name of the project above it; the root has none" example:"global"`
	Description string     `json:"description,omitempty" doc:"Description of the project"`
	Pool        string     `json:"pool,omitempty" doc:"Pool of its workspaces, and of those in the projects below it, that name none themselves" example:"production"`
	Approval    *Approval  `json:"approval,omitempty" doc:"Requirements before a plan is applied, in its workspaces and those of the projects below it"`
	CreatedAt   *time.Time `json:"created_at,omitempty" doc:"When it was created; none for a root that was never changed"`
	Version     int64      `json:"version" doc:"Version of the stored record; 0 for a root that was never changed" example:"2"`
}

// ProjectSettings creates or changes a project. On change, a field that is left out stays as it is.
type ProjectSettings struct {
	Name        *string   `json:"name,omitempty" maxLength:"64" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -; it never changes" example:"payments"`
	Parent      *string   `json:"parent,omitempty" maxLength:"64" doc:"Name of the project above it; default global" example:"global"`
	Description *string   `json:"description,omitempty" maxLength:"1000" doc:"Description of the project"`
	Approval    *Approval `json:"approval,omitempty" doc:"Requirements before a plan is applied, in its workspaces and those of the projects below it; with required false they are removed"`
	Pool        *string   `json:"pool,omitempty" maxLength:"64" doc:"Name of a pool; empty takes that of the project above it" example:"production"`
	Version     int64     `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// Assignments are the projects and workspaces that a pool is assigned to.
type Assignments struct {
	All        bool     `json:"all,omitempty" doc:"Every workspace; the names of the pool are kept and act when this is taken away"`
	Workspaces []string `json:"workspaces,omitempty" maxItems:"500" doc:"Names of workspaces" example:"network"`
	Projects   []string `json:"projects,omitempty" maxItems:"500" doc:"Names of projects, with all projects below them"`
	Stacks     []string `json:"stacks,omitempty" maxItems:"500" doc:"Stacks"`
	Namespaces []string `json:"namespaces,omitempty" maxItems:"500" doc:"Namespaces"`
}

// AssignmentChange changes the assignments of a pool, all at once.
type AssignmentChange struct {
	Add    Assignments `json:"add,omitzero" doc:"Projects and workspaces to assign"`
	Remove Assignments `json:"remove,omitzero" doc:"Projects and workspaces to remove; a name that is not assigned is refused"`
}

// PoolVerdict says whether a pool would get a workflow of a workspace, and why or why not.
type PoolVerdict struct {
	Pool string `json:"pool" doc:"Name of the pool" example:"default"`
	Gets bool   `json:"gets" doc:"Whether it would get it; with labels several may" example:"true"`
	Why  string `json:"why" doc:"Why, or why not, in a sentence" example:"it is the built-in pool"`
}

// ExplainPools asks which pools would get a workflow of a type.
type ExplainPools struct {
	Workspace string
	Type      workflow.Type // empty means a deployment
	Cursor    string
	Limit     int
}
