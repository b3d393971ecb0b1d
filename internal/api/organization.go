package api

import (
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// Days for which an organization keeps its workflows, if it sets none, and their bounds. Days are counted from a
// workflow's submission. A workflow lives for some days itself, so that none may be kept shorter.
const (
	DefaultWorkflowRetention = 400
	MinWorkflowRetention     = 30
	MaxWorkflowRetention     = 3650
	DefaultLogRetention      = 90
	DefaultArtifactRetention = 90
	MaxAuditRetention        = 36500
)

// LogRetentions are the days for which logs can be kept. They are few, because a rule of S3 is needed for each.
func LogRetentions() []int { return []int{7, 30, 90, 180, 400} }

// ArtifactRetentions are the days for which artifacts can be kept. No plan is deleted while it can still be approved.
func ArtifactRetentions() []int { return LogRetentions() }

// Organization is a tenant and its settings.
type Organization struct {
	Name              string    `json:"name" doc:"Name of the organization" example:"default"`
	WorkflowRetention int       `json:"workflow_retention_days" doc:"Days for which workflows are kept, from their submission" example:"400"`
	LogRetention      int       `json:"log_retention_days" enum:"7,30,90,180,400" doc:"Days for which logs are kept, from the workflow's submission; a log is not kept longer than its workflow" example:"90"`
	ArtifactRetention int       `json:"artifact_retention_days" enum:"7,30,90,180,400" doc:"Days for which artifacts are kept, from the workflow's submission, and not longer than it; default 90" example:"90"`
	AuditRetention    int       `json:"audit_retention_days" doc:"Days for which the audit trail is kept; 0 means for ever" example:"0"`
	Approval          *Approval `json:"approval,omitempty" doc:"Requirements before a plan is applied, in all workspaces"`
	Limit             int       `json:"limit" doc:"Maximum number of active workflows; 0 means that of the installation" example:"150"`
	DefaultPool       string    `json:"default_pool" doc:"Pool of workspaces for which neither they nor their projects name one" example:"default"`
	CreatedAt         time.Time `json:"created_at" doc:"When the organization was created"`
	Version           int64     `json:"version" doc:"Version of the stored record" example:"7"`
}

// OrganizationSettings changes an organization. A field that is left out stays as it is.
type OrganizationSettings struct {
	WorkflowRetention *int      `json:"workflow_retention_days,omitempty" minimum:"30" maximum:"3650" doc:"Days for which workflows are kept, from their submission" example:"400"`
	LogRetention      *int      `json:"log_retention_days,omitempty" enum:"7,30,90,180,400" doc:"Days for which logs are kept, from the workflow's submission" example:"90"`
	ArtifactRetention *int      `json:"artifact_retention_days,omitempty" enum:"7,30,90,180,400" doc:"Days for which artifacts are kept, from the workflow's submission" example:"90"`
	Approval          *Approval `json:"approval,omitempty" doc:"Requirements before a plan is applied, in all workspaces; with required false they are removed"`
	Limit             *int      `json:"limit,omitempty" minimum:"0" maximum:"100000" doc:"Maximum number of active workflows; 0 means that of the installation" example:"150"`
	DefaultPool       *string   `json:"default_pool,omitempty" maxLength:"64" doc:"Pool of workspaces for which neither they nor their projects name one; empty, or the built-in pool, clears it" example:"production"`
	AuditRetention    *int      `json:"audit_retention_days,omitempty" minimum:"0" maximum:"36500" doc:"Days for which the audit trail is kept; 0 means for ever" example:"0"`
	Version           int64     `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// Restored counts the things that were ended after a control plane's records were restored from an earlier copy.
type Restored struct {
	Workflows  int `json:"workflows"`  // cancelled, because they had not started
	Plans      int `json:"plans"`      // expired, that waited for an approval or for a merge
	Trees      int `json:"trees"`      // whose waiting runs were cancelled
	Deliveries int `json:"deliveries"` // dropped
	Schedules  int `json:"schedules"`  // paused, because they change states
}

// Plus is the sum of two.
func (r Restored) Plus(more Restored) Restored {
	return Restored{r.Workflows + more.Workflows, r.Plans + more.Plans, r.Trees + more.Trees, r.Deliveries + more.Deliveries, r.Schedules + more.Schedules}
}

// String says how many of each.
func (r Restored) String() string {
	return fmt.Sprintf("%s cancelled, %s expired, %s cancelled, %s dropped, %s paused", text.Count(r.Workflows, "workflow"), text.Count(r.Plans, "plan"),
		text.Count(r.Trees, "tree"), text.Count(r.Deliveries, "delivery"), text.Count(r.Schedules, "schedule"))
}
