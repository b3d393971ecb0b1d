package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func (s *server) workflowRoutes() {
	const tag = "workflows"
	s.add(route{id: "submit-workflow", method: http.MethodPost, path: "/v1/workflows", summary: "Submit a workflow", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, status: http.StatusCreated, large: true, errors: []int{404, 409}}, keyed(s.plane.Submit))
	s.add(route{id: "list-workflows", method: http.MethodGet, path: "/v1/workflows", summary: "List workflows, the newest first", tag: tag, audience: people, role: api.RoleViewer, scope: inAny, errors: []int{404}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			Paged
			Workspace string    `query:"workspace" maxLength:"64" doc:"Only those of this workspace"`
			Pool      string    `query:"pool" maxLength:"64" doc:"Only those that this pool has claimed last"`
			Operation string    `query:"operation" enum:"preview,update,refresh,destroy,scan,state_list,state_unlock,state_pull,state_push" doc:"Only those with this operation; scan means workflows of type insights_scan"`
			Since     time.Time `query:"since" doc:"Only those submitted at this time or later" example:"2026-11-01T00:00:00Z"`
			State     string    `query:"state" enum:"pending,claimed,running,succeeded,failed,cancelled,active,awaiting_approval" doc:"Only those in this state; active means claimed, running, or ended with the slot still held; awaiting_approval means previews whose plan can be approved"`
		}) (*answer[api.Page[api.Workflow]], error) {
			return reply(s.plane.Workflows(ctx, who, controlplane.Filter{Workspace: in.Workspace, Pool: in.Pool, State: in.State, Operation: in.Operation, Since: in.Since, Cursor: in.Cursor, Limit: in.Limit}))
		}))
	s.add(route{id: "get-workflow", method: http.MethodGet, path: "/v1/workflows/{id}", summary: "Show a workflow with its steps", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			ByID
			Wait     int    `query:"wait_seconds" minimum:"0" maximum:"20" doc:"How long to wait until the workflow has another revision"`
			Revision string `query:"revision" maxLength:"64" doc:"The revision that the caller has seen" example:"2pbm1vq6u7mzi"`
		}) (*answer[api.Workflow], error) {
			return reply(s.plane.WorkflowAfter(ctx, who, in.ID, in.Revision, time.Duration(in.Wait)*time.Second))
		}))
	type reasoned struct {
		ByID
		Sent
	}
	reason := reflect.TypeFor[*api.WithReason]()
	s.add(route{id: "cancel-workflow", body: reason, method: http.MethodPost, path: "/v1/workflows/{id}/cancel", summary: "Cancel a workflow", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, errors: []int{404, 409}}, sent[reasoned](s.plane.Cancel))
	s.add(route{id: "own-states", method: http.MethodPost, path: "/v1/workflows/{id}/own", summary: "Give the states of other workspaces, which a run was refused, to its workspace, or say that they are copies", tag: tag, audience: people, role: api.RoleAdmin, scope: inProject, errors: []int{404, 409}}, sent[struct {
		ByID
		Sent
	}](s.plane.Own))
	s.add(route{id: "retry-workflow", body: reason, method: http.MethodPost, path: "/v1/workflows/{id}/retry", summary: "Submit an ended workflow again, as a new one", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, status: http.StatusCreated, errors: []int{404, 409}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			Keyed
			ByID
			Sent
		}) (*answer[api.Workflow], error) {
			var reason api.WithReason
			if err := read(in.text(), &reason); err != nil {
				return nil, err
			}
			return reply(s.plane.Retry(ctx, who, in.Key, in.ID, reason))
		}))
	s.add(route{id: "get-workflow-timeline", method: http.MethodGet, path: "/v1/workflows/{id}/timeline", summary: "List the events of a workflow, the oldest first", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			ByID
			Paged
		}) (*answer[api.Page[api.Event]], error) {
			return reply(s.plane.Timeline(ctx, who, in.ID, in.Cursor, in.Limit))
		}))
	s.add(route{id: "get-workflow-logs", method: http.MethodGet, path: "/v1/workflows/{id}/logs", summary: "Read a workflow's log, also while it runs", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404, 410}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			ByID
			Attempt int   `query:"attempt" minimum:"1" doc:"Attempt whose log is asked for; default the latest that started"`
			Offset  int64 `query:"offset" doc:"Number of the first line, counted from 0; below 0, counted from the end of the log"`
			Limit   int   `query:"limit" minimum:"1" maximum:"5000" doc:"Maximum number of lines of the answer"`
			Wait    int   `query:"wait_seconds" minimum:"0" maximum:"20" doc:"How long to wait for a line"`
		}) (*answer[api.LogPage], error) {
			return reply(s.plane.Logs(ctx, who, in.ID, in.Attempt, in.Offset, in.Limit, time.Duration(in.Wait)*time.Second))
		}))
	s.add(route{id: "list-workflow-artifacts", method: http.MethodGet, path: "/v1/workflows/{id}/artifacts", summary: "List the files that a workflow left, by attempt and name", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404, 410}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			ByID
			Paged
		}) (*answer[api.Page[api.Artifact]], error) {
			return reply(s.plane.Artifacts(ctx, who, in.ID, in.Cursor, in.Limit))
		}))
	s.add(route{id: "explain-workflow", method: http.MethodGet, path: "/v1/workflows/{id}/why", summary: "Say what a workflow waits for, since when, and what happens next", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}}, one[ByID](s.plane.Why))
	s.add(route{id: "get-workflow-plan", method: http.MethodGet, path: "/v1/workflows/{id}/plan", summary: "Show the changes of a preview, and the review of its plan", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404, 409}}, one[ByID](s.plane.Plan))
	type decision struct {
		ByID
		Sent
	}
	s.add(route{id: "approve-workflow", method: http.MethodPost, path: "/v1/workflows/{id}/approve", summary: "Approve the plan of a preview; once that is enough, a run applies exactly this plan", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, errors: []int{404, 409}}, sent[decision](s.plane.Approve))
	s.add(route{id: "reject-workflow", method: http.MethodPost, path: "/v1/workflows/{id}/reject", summary: "Reject the plan of a preview", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, errors: []int{404, 409}}, sent[decision](s.plane.Reject))
}

func (s *server) workspaceRoutes() {
	const tag = "workspaces"
	type settings struct {
		ByWorkspace
		Sent
	}
	named := func(w api.Workspace) string { return w.Name }
	s.add(route{id: "put-workspace", method: http.MethodPut, path: "/v1/workspaces/{workspace}", summary: "Create or change a workspace", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, large: true, errors: []int{404, 409}}, put[settings](http.StatusCreated, named, s.plane.PutWorkspace))
	s.add(route{id: "check-workspace", method: http.MethodPost, path: "/v1/workspaces/{workspace}/check", summary: "Check the creation or change of a workspace, and change nothing", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, large: true, errors: []int{404, 409}}, put[settings](http.StatusOK, named, s.plane.CheckWorkspace))
	s.add(route{id: "list-workspaces", method: http.MethodGet, path: "/v1/workspaces", summary: "List workspaces", tag: tag, audience: people, role: api.RoleViewer, scope: inAny}, paged(s.plane.Workspaces))
	s.add(route{id: "list-workspace-activity", method: http.MethodGet, path: "/v1/workspace-activity", summary: "List workspaces with their activity", tag: tag, audience: people, role: api.RoleViewer, scope: inAny},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			Paged
			Name string `query:"name" maxLength:"64" doc:"Only those whose name has this in it"`
		}) (*answer[api.Page[api.Activity]], error) {
			return reply(s.plane.Activities(ctx, who, in.Name, in.Cursor, in.Limit))
		}))
	s.add(route{id: "get-workspace-activity", method: http.MethodGet, path: "/v1/workspaces/{workspace}/activity", summary: "Show the activity of a workspace, the place of its state, and the requirements of its plans", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}}, one[ByWorkspace](s.plane.Activity))
	s.add(route{id: "get-workspace", method: http.MethodGet, path: "/v1/workspaces/{workspace}", summary: "Show a workspace", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}}, one[ByWorkspace](s.plane.Workspace))
	s.add(route{id: "list-deleted-workspaces", method: http.MethodGet, path: "/v1/deleted-workspaces", summary: "List deleted workspaces, and where their states are", tag: tag, audience: people, role: api.RoleViewer, scope: inAny}, paged(s.plane.DeletedWorkspaces))
	s.add(route{id: "get-graph", method: http.MethodGet, path: "/v1/graph", summary: "Say which workspaces depend on which", tag: tag, audience: people, role: api.RoleViewer, scope: inAny},
		known(func(ctx context.Context, who controlplane.Principal, _ *struct{}) (*answer[api.Graph], error) {
			return reply(s.plane.Graph(ctx, who))
		}))
	s.add(route{id: "explain-workspace-pools", method: http.MethodGet, path: "/v1/workspaces/{workspace}/pools", summary: "Say of each pool whether it would get a workflow of a workspace, and why or why not", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			ByWorkspace
			Paged
			Type workflow.Type `query:"type" enum:"deployment,insights_scan,policy_evaluation" doc:"Type of the workflow; default deployment"`
		}) (*answer[api.Page[api.PoolVerdict]], error) {
			return reply(s.plane.ExplainPools(ctx, who, api.ExplainPools{Workspace: in.Workspace, Type: in.Type, Cursor: in.Cursor, Limit: in.Limit}))
		}))
	s.add(route{id: "get-workspace-slot", method: http.MethodGet, path: "/v1/workspaces/{workspace}/slot", summary: "Show the holder of the right to change a workspace's state", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}}, one[ByWorkspace](s.plane.Slot))
	s.add(route{id: "unlock-workspace", method: http.MethodPost, path: "/v1/workspaces/{workspace}/unlock", summary: "Free a workspace that a run holds which has ended and is not proven over, or could not write its state", tag: tag, audience: people, role: api.RoleAdmin, scope: inProject, errors: []int{404, 409}}, sent[struct {
		ByWorkspace
		Sent
	}](s.plane.Unlock))
	s.add(route{id: "delete-workspace", method: http.MethodDelete, path: "/v1/workspaces/{workspace}", summary: "Delete a workspace", tag: tag, audience: people, role: api.RoleAdmin, scope: inProject, errors: []int{404, 409}}, gone[ByWorkspace](s.plane.DeleteWorkspace))
}

func (s *server) organizationRoutes() {
	const tag = "organizations"
	s.add(route{id: "get-organization", method: http.MethodGet, path: "/v1/organization", summary: "Show the organization of the token", tag: tag, audience: people, role: api.RoleViewer, scope: inAny},
		known(func(ctx context.Context, who controlplane.Principal, _ *struct{}) (*answer[api.Organization], error) {
			return reply(s.plane.Organization(ctx, who))
		}))
	s.add(route{id: "update-organization", method: http.MethodPatch, path: "/v1/organization", summary: "Change the settings of the organization that are named", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, posted(s.plane.UpdateOrganization))
}

func (s *server) projectRoutes() {
	const tag = "projects"
	s.add(route{id: "create-project", method: http.MethodPost, path: "/v1/projects", summary: "Create a project", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{404, 409}}, keyed(s.plane.CreateProject))
	s.add(route{id: "list-projects", method: http.MethodGet, path: "/v1/projects", summary: "List projects", tag: tag, audience: people, role: api.RoleViewer, scope: inAny}, paged(s.plane.ListProjects))
	s.add(route{id: "get-project", method: http.MethodGet, path: "/v1/projects/{project}", summary: "Show a project", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}}, one[ByProject](s.plane.Project))
	s.add(route{id: "update-project", method: http.MethodPatch, path: "/v1/projects/{project}", summary: "Change the settings of a project that are named", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, sent[struct {
		ByProject
		Sent
	}](s.plane.UpdateProject))
	s.add(route{id: "delete-project", method: http.MethodDelete, path: "/v1/projects/{project}", summary: "Delete a project that nothing belongs to", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, gone[ByProject](s.plane.DeleteProject))
}

// A secret is not kept, so no repeat can be answered as the first call was.
const (
	poolRepeated  = "A repeat with the same Idempotency-Key makes nothing and is answered with already_exists: where the first answer was lost, make a new token of the pool."
	issueRepeated = "It has no Idempotency-Key: a repeat for a principal makes another token, and without one it is answered with already_exists. Where the first answer was lost, make another token for the principal, and revoke the one that nobody has."
)

func (s *server) poolRoutes() {
	const tag = "pools"
	s.add(route{id: "create-pool", method: http.MethodPost, path: "/v1/pools", summary: "Create a pool; the answer has its token, this once", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{409}, note: poolRepeated}, keyed(s.plane.CreatePool))
	s.add(route{id: "list-pools", method: http.MethodGet, path: "/v1/pools", summary: "List pools", tag: tag, audience: people, role: api.RoleViewer, scope: inAny}, paged(s.plane.Pools))
	s.add(route{id: "get-pool", method: http.MethodGet, path: "/v1/pools/{pool}", summary: "Show a pool", tag: tag, audience: people, role: api.RoleViewer, scope: inAny, errors: []int{404}}, one[ByPool](s.plane.Pool))
	s.add(route{id: "update-pool", method: http.MethodPatch, path: "/v1/pools/{pool}", summary: "Change the settings of a pool that are named", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, sent[struct {
		ByPool
		Sent
	}](s.plane.UpdatePool))
	s.add(route{id: "assign-pool", method: http.MethodPost, path: "/v1/pools/{pool}/assignments", summary: "Change the assignments of a pool, all at once", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, sent[struct {
		ByPool
		Sent
	}](s.plane.AssignPool))
	s.add(route{id: "delete-pool", method: http.MethodDelete, path: "/v1/pools/{pool}", summary: "Delete a pool", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, gone[ByPool](s.plane.DeletePool))
	s.add(route{id: "rotate-pool-token", method: http.MethodPost, path: "/v1/pools/{pool}/token", summary: "Make a new token of a pool; the answer has it, this once", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{404, 409}}, sent[struct {
		ByPool
		Sent
	}](s.plane.RotatePoolToken))
	s.add(route{id: "list-pool-runners", method: http.MethodGet, path: "/v1/pools/{pool}/runners", summary: "List the runners seen under a pool", tag: tag, audience: people, role: api.RoleViewer, errors: []int{404}}, one[ByPool](s.plane.Runners))
}

func (s *server) tokenRoutes() {
	const tag = "tokens"
	s.add(route{id: "create-principal", method: http.MethodPost, path: "/v1/principals", summary: "Make a principal, which can get tokens", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{409}}, posted(s.plane.CreatePrincipal))
	s.add(route{id: "list-principals", method: http.MethodGet, path: "/v1/principals", summary: "List the principals that were made here", tag: tag, audience: people, role: api.RoleAdmin}, paged(s.plane.Principals))
	s.add(route{id: "create-token", method: http.MethodPost, path: "/v1/tokens", summary: "Make a user token; the answer has its value, this once", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{409}, note: issueRepeated}, posted(s.plane.CreateToken))
	s.add(route{id: "list-tokens", method: http.MethodGet, path: "/v1/tokens", summary: "List user tokens, without their values", tag: tag, audience: people, role: api.RoleAdmin}, paged(s.plane.Tokens))
	s.add(route{id: "revoke-token", method: http.MethodDelete, path: "/v1/tokens/{id}", summary: "Revoke a user token", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			ID string `path:"id" maxLength:"64" doc:"Id of the token" example:"tok_01k1xz4m2p7q9r3s5t8v"`
		}) (*nothing, error) {
			return nil, s.plane.RevokeToken(ctx, who, in.ID)
		}))
	s.auditRoutes()
	s.add(route{id: "whoami", method: http.MethodGet, path: "/v1/whoami", summary: "Show the principal and the rights of a token", tag: tag, audience: either},
		known(func(_ context.Context, who controlplane.Principal, _ *struct{}) (*answer[api.Identity], error) {
			out := api.Identity{
				Organization: who.Organization, Name: who.Name, PrincipalID: who.ID, Audience: who.Audience, Role: who.Role, Grants: who.Grants, Pool: who.Pool,
				Kind: who.Kind, Issuer: who.Issuer, TokenID: who.TokenID, Pipeline: who.Pipeline.View(),
			}
			if !who.Expires.IsZero() {
				out.ExpiresAt = &who.Expires
			}
			return reply(out, nil)
		}))
}
