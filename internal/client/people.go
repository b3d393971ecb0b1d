package client

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Filter narrows a list of workflows. The zero value asks for the newest of all.
type Filter struct {
	Workspace string
	Pool      string    // only workflows that this pool claimed last
	State     string    // a state, "active" or "awaiting_approval"
	Operation string    // of a deployment, or "scan"
	Since     time.Time // only those submitted at this time or later; the zero time means all
	Cursor    string
	Limit     int // 0 leaves it to the control plane
}

// ask makes a call under a policy.
func ask[T any](ctx context.Context, c *Client, p policy, req call) (out T, err error) {
	err = c.repeat(ctx, p, req.wait, func(ctx context.Context, _ int) error {
		_, err := c.do(ctx, req, &out)
		return err
	})
	return out, err
}

// remove deletes something. It is not an error if it is gone after a first try without an answer.
func (c *Client) remove(ctx context.Context, req call) error {
	req.method = http.MethodDelete
	return c.repeat(ctx, brief, 0, func(ctx context.Context, n int) error {
		_, err := c.do(ctx, req, nil)
		if n > 0 && errors.Is(err, workflow.ErrNotFound) {
			return nil
		}
		return err
	})
}

func get[T any](ctx context.Context, c *Client, op string, query url.Values, path ...string) (T, error) {
	return ask[T](ctx, c, brief, call{op: op, method: http.MethodGet, path: path, query: query})
}

func listing(cursor string, limit int) url.Values {
	q := url.Values{}
	set(q, "cursor", cursor)
	setInt(q, "limit", int64(limit))
	return q
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setInt(q url.Values, name string, value int64) {
	if value != 0 {
		q.Set(name, strconv.FormatInt(value, 10))
	}
}

// Health asks whether the control plane is up. It needs no token.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	return get[api.Health](ctx, c, "ask for health", nil, "healthz")
}

// Whoami says who the token speaks for.
func (c *Client) Whoami(ctx context.Context) (api.Identity, error) {
	return get[api.Identity](ctx, c, "ask who the token speaks for", nil, "v1", "whoami")
}

// Submit asks for a run. A repeat within the call cannot make two.
func (c *Client) Submit(ctx context.Context, in api.Submit) (api.Workflow, error) {
	return c.SubmitOnce(ctx, rand.Text(), in)
}

// SubmitOnce is Submit under a key: a call with the key of an earlier one answers with the run that it made, for a day.
func (c *Client) SubmitOnce(ctx context.Context, key string, in api.Submit) (api.Workflow, error) {
	return ask[api.Workflow](ctx, c, brief, call{op: "submit workflow of " + in.Workspace, method: http.MethodPost, path: []string{"v1", "workflows"}, in: in, key: key})
}

// Retry submits an ended workflow again, as a new one. The reason may be empty.
func (c *Client) Retry(ctx context.Context, id, reason string) (api.Workflow, error) {
	return ask[api.Workflow](ctx, c, brief, call{op: "retry workflow " + id, method: http.MethodPost, path: []string{"v1", "workflows", id, "retry"}, in: api.WithReason{Reason: reason}, key: rand.Text()})
}

// Cancel asks for a workflow's end. The reason may be empty.
func (c *Client) Cancel(ctx context.Context, id, reason string) (api.Workflow, error) {
	return ask[api.Workflow](ctx, c, brief, call{op: "cancel workflow " + id, method: http.MethodPost, path: []string{"v1", "workflows", id, "cancel"}, in: api.WithReason{Reason: reason}})
}

// Own decides about the states of other workspaces that a run was refused.
func (c *Client) Own(ctx context.Context, id string, in api.Own) (api.Owned, error) {
	return ask[api.Owned](ctx, c, once, call{op: "decide about the states of workflow " + id, method: http.MethodPost, path: []string{"v1", "workflows", id, "own"}, in: in})
}

// Workflow shows a workflow with its steps.
func (c *Client) Workflow(ctx context.Context, id string) (api.Workflow, error) {
	return get[api.Workflow](ctx, c, "show workflow "+id, nil, "v1", "workflows", id)
}

// WorkflowAfter is Workflow. It waits up to wait, in whole seconds, until the workflow has another revision than
// seen.
func (c *Client) WorkflowAfter(ctx context.Context, id, seen string, wait time.Duration) (api.Workflow, error) {
	q := url.Values{}
	set(q, "revision", seen)
	setInt(q, "wait_seconds", int64(wait/time.Second))
	return ask[api.Workflow](ctx, c, brief, call{op: "show workflow " + id, method: http.MethodGet, path: []string{"v1", "workflows", id}, query: q, wait: wait})
}

// Workflows lists workflows, the newest first.
func (c *Client) Workflows(ctx context.Context, f Filter) (api.Page[api.Workflow], error) {
	q := listing(f.Cursor, f.Limit)
	set(q, "workspace", f.Workspace)
	set(q, "pool", f.Pool)
	set(q, "state", f.State)
	set(q, "operation", f.Operation)
	setTime(q, "since", f.Since)
	return get[api.Page[api.Workflow]](ctx, c, "list workflows", q, "v1", "workflows")
}

// Timeline lists what happened to a workflow, the oldest first.
func (c *Client) Timeline(ctx context.Context, id, cursor string, limit int) (api.Page[api.Event], error) {
	return get[api.Page[api.Event]](ctx, c, "show timeline of workflow "+id, listing(cursor, limit), "v1", "workflows", id, "timeline")
}

// Artifacts lists the files that a workflow stored, by attempt and name.
func (c *Client) Artifacts(ctx context.Context, id, cursor string, limit int) (api.Page[api.Artifact], error) {
	return get[api.Page[api.Artifact]](ctx, c, "list artifacts of workflow "+id, listing(cursor, limit), "v1", "workflows", id, "artifacts")
}

// Why says what a workflow waits for.
func (c *Client) Why(ctx context.Context, id string) (api.Why, error) {
	return get[api.Why](ctx, c, "explain workflow "+id, nil, "v1", "workflows", id, "why")
}

// WorkflowPlan shows what a preview would change.
func (c *Client) WorkflowPlan(ctx context.Context, id string) (api.Plan, error) {
	return get[api.Plan](ctx, c, "show plan of workflow "+id, nil, "v1", "workflows", id, "plan")
}

// Approve approves the plan of a preview. A repeat changes nothing.
func (c *Client) Approve(ctx context.Context, id string, in api.Decision) (api.Workflow, error) {
	return ask[api.Workflow](ctx, c, brief, call{op: "approve plan of workflow " + id, method: http.MethodPost, path: []string{"v1", "workflows", id, "approve"}, in: in})
}

// Reject rejects the plan of a preview.
func (c *Client) Reject(ctx context.Context, id string, in api.Decision) (api.Workflow, error) {
	return ask[api.Workflow](ctx, c, brief, call{op: "reject plan of workflow " + id, method: http.MethodPost, path: []string{"v1", "workflows", id, "reject"}, in: in})
}

// Logs reads from line offset of an attempt (0: the latest that started), waiting up to wait, in
// whole seconds, for a line. limit 0 leaves the number of lines to the control plane.
func (c *Client) Logs(ctx context.Context, id string, attempt int, offset int64, limit int, wait time.Duration) (api.LogPage, error) {
	q := url.Values{}
	setInt(q, "attempt", int64(attempt))
	setInt(q, "offset", offset)
	setInt(q, "limit", int64(limit))
	setInt(q, "wait_seconds", int64(wait/time.Second))
	return ask[api.LogPage](ctx, c, brief, call{op: "read log of workflow " + id, method: http.MethodGet, path: []string{"v1", "workflows", id, "logs"}, query: q, wait: wait})
}

// PutWorkspace creates or changes a workspace, or leaves it as it is, and says which.
func (c *Client) PutWorkspace(ctx context.Context, in api.Workspace) (api.Workspace, api.Outcome, error) {
	var (
		stored  api.Workspace
		outcome api.Outcome
	)
	p := brief
	if in.Version != 0 {
		p = once // a repeat of a successful write would find a newer version: its own
	}
	req := call{op: "put workspace " + in.Name, method: http.MethodPut, path: []string{"v1", "workspaces", in.Name}, in: in, header: http.Header{}}
	err := c.repeat(ctx, p, 0, func(ctx context.Context, n int) error {
		status, err := c.do(ctx, req, &stored)
		outcome = api.Outcome(req.header.Get(api.OutcomeHeader))
		switch {
		case status == http.StatusCreated:
			outcome = api.OutcomeCreated
		case n > 0: // an earlier try may have changed it
			outcome = api.OutcomeChanged
		}
		return err
	})
	return stored, outcome, err
}

// CheckWorkspace says what PutWorkspace would do, or why it would be refused. It changes nothing.
func (c *Client) CheckWorkspace(ctx context.Context, in api.Workspace) (api.Workspace, api.Outcome, error) {
	req := call{op: "check workspace " + in.Name, method: http.MethodPost, path: []string{"v1", "workspaces", in.Name, "check"}, in: in, header: http.Header{}}
	would, err := ask[api.Workspace](ctx, c, brief, req)
	return would, api.Outcome(req.header.Get(api.OutcomeHeader)), err
}

// Workspaces lists workspaces.
func (c *Client) Workspaces(ctx context.Context, cursor string, limit int) (api.Page[api.Workspace], error) {
	return get[api.Page[api.Workspace]](ctx, c, "list workspaces", listing(cursor, limit), "v1", "workspaces")
}

// Workspace shows a workspace.
func (c *Client) Workspace(ctx context.Context, name string) (api.Workspace, error) {
	return get[api.Workspace](ctx, c, "show workspace "+name, nil, "v1", "workspaces", name)
}

// Graph says which workspaces depend on which.
func (c *Client) Graph(ctx context.Context) (api.Graph, error) {
	return get[api.Graph](ctx, c, "show the graph of workspaces", nil, "v1", "graph")
}

// WorkspaceActivity says what goes on in a workspace.
func (c *Client) WorkspaceActivity(ctx context.Context, name string) (api.Activity, error) {
	return get[api.Activity](ctx, c, "show what goes on in workspace "+name, nil, "v1", "workspaces", name, "activity")
}

// DeletedWorkspaces lists deleted workspaces.
func (c *Client) DeletedWorkspaces(ctx context.Context, cursor string, limit int) (api.Page[api.DeletedWorkspace], error) {
	return get[api.Page[api.DeletedWorkspace]](ctx, c, "list deleted workspaces", listing(cursor, limit), "v1", "deleted-workspaces")
}

// DeleteWorkspace deletes a workspace.
func (c *Client) DeleteWorkspace(ctx context.Context, name string) error {
	return c.remove(ctx, call{op: "delete workspace " + name, path: []string{"v1", "workspaces", name}})
}

// Slot says who holds a workspace.
func (c *Client) Slot(ctx context.Context, workspace string) (api.Slot, error) {
	return get[api.Slot](ctx, c, "show slot of workspace "+workspace, nil, "v1", "workspaces", workspace, "slot")
}

// Unlock frees a workspace that an ended workflow still holds. It is not repeated: a repeat would find it free.
func (c *Client) Unlock(ctx context.Context, workspace string, in api.Unlock) (api.Workflow, error) {
	return ask[api.Workflow](ctx, c, once, call{op: "unlock workspace " + workspace, method: http.MethodPost, path: []string{"v1", "workspaces", workspace, "unlock"}, in: in})
}

// Organization shows the organization of the token.
func (c *Client) Organization(ctx context.Context) (api.Organization, error) {
	return get[api.Organization](ctx, c, "show organization", nil, "v1", "organization")
}

// UpdateOrganization changes the settings that are not nil.
func (c *Client) UpdateOrganization(ctx context.Context, in api.OrganizationSettings) (api.Organization, error) {
	return ask[api.Organization](ctx, c, brief, call{op: "update organization", method: http.MethodPatch, path: []string{"v1", "organization"}, in: in})
}

// CreateProject creates a project.
func (c *Client) CreateProject(ctx context.Context, in api.ProjectSettings) (api.Project, error) {
	return ask[api.Project](ctx, c, brief, call{op: "create project", method: http.MethodPost, path: []string{"v1", "projects"}, in: in, key: rand.Text()})
}

// Projects lists projects.
func (c *Client) Projects(ctx context.Context, cursor string, limit int) (api.Page[api.Project], error) {
	return get[api.Page[api.Project]](ctx, c, "list projects", listing(cursor, limit), "v1", "projects")
}

// Project shows a project.
func (c *Client) Project(ctx context.Context, name string) (api.Project, error) {
	return get[api.Project](ctx, c, "show project "+name, nil, "v1", "projects", name)
}

// UpdateProject changes the settings that are not nil.
func (c *Client) UpdateProject(ctx context.Context, name string, in api.ProjectSettings) (api.Project, error) {
	return ask[api.Project](ctx, c, brief, call{op: "update project " + name, method: http.MethodPatch, path: []string{"v1", "projects", name}, in: in})
}

// DeleteProject deletes a project.
func (c *Client) DeleteProject(ctx context.Context, name string) error {
	return c.remove(ctx, call{op: "delete project " + name, path: []string{"v1", "projects", name}})
}

// ExplainPools says which pools would get a workflow of a workspace, and why the others would not.
func (c *Client) ExplainPools(ctx context.Context, in api.ExplainPools) (api.Page[api.PoolVerdict], error) {
	q := listing(in.Cursor, in.Limit)
	set(q, "type", string(in.Type))
	return get[api.Page[api.PoolVerdict]](ctx, c, "explain the pools of workspace "+in.Workspace, q, "v1", "workspaces", in.Workspace, "pools")
}

// AssignPool changes the assignments of a pool. It is not repeated: a repeat would find nothing to remove.
func (c *Client) AssignPool(ctx context.Context, name string, in api.AssignmentChange) (api.Pool, error) {
	return ask[api.Pool](ctx, c, once, call{op: "assign pool " + name, method: http.MethodPost, path: []string{"v1", "pools", name, "assignments"}, in: in})
}

// CreatePool creates a pool and returns its token.
func (c *Client) CreatePool(ctx context.Context, in api.PoolSettings) (api.PoolToken, error) {
	return ask[api.PoolToken](ctx, c, brief, call{op: "create pool", method: http.MethodPost, path: []string{"v1", "pools"}, in: in, key: rand.Text()})
}

// Pools lists pools.
func (c *Client) Pools(ctx context.Context, cursor string, limit int) (api.Page[api.Pool], error) {
	return get[api.Page[api.Pool]](ctx, c, "list pools", listing(cursor, limit), "v1", "pools")
}

// Pool shows a pool.
func (c *Client) Pool(ctx context.Context, name string) (api.Pool, error) {
	return get[api.Pool](ctx, c, "show pool "+name, nil, "v1", "pools", name)
}

// UpdatePool changes the settings that are not nil.
func (c *Client) UpdatePool(ctx context.Context, name string, in api.PoolSettings) (api.Pool, error) {
	p := brief
	if in.Name != nil {
		p = once // a repeat would not find the pool under its old name
	}
	return ask[api.Pool](ctx, c, p, call{op: "update pool " + name, method: http.MethodPatch, path: []string{"v1", "pools", name}, in: in})
}

// DeletePool deletes a pool.
func (c *Client) DeletePool(ctx context.Context, name string) error {
	return c.remove(ctx, call{op: "delete pool " + name, path: []string{"v1", "pools", name}})
}

// RotatePoolToken makes a new token of a pool.
func (c *Client) RotatePoolToken(ctx context.Context, name string, in api.RotateToken) (api.PoolToken, error) {
	return ask[api.PoolToken](ctx, c, once, call{op: "rotate token of pool " + name, method: http.MethodPost, path: []string{"v1", "pools", name, "token"}, in: in})
}

// Runners lists the runners seen under a pool.
func (c *Client) Runners(ctx context.Context, pool string) (api.Page[api.Runner], error) {
	return get[api.Page[api.Runner]](ctx, c, "list runners of pool "+pool, nil, "v1", "pools", pool, "runners")
}

// CreatePrincipal creates a principal. Tokens can be issued to it.
func (c *Client) CreatePrincipal(ctx context.Context, in api.NewPrincipal) (api.Principal, error) {
	return ask[api.Principal](ctx, c, once, call{op: "create principal " + in.Name, method: http.MethodPost, path: []string{"v1", "principals"}, in: in})
}

// Principals lists the principals that were made at the control plane.
func (c *Client) Principals(ctx context.Context, cursor string, limit int) (api.Page[api.Principal], error) {
	return get[api.Page[api.Principal]](ctx, c, "list principals", listing(cursor, limit), "v1", "principals")
}

// CreateToken makes a user token and returns its value.
func (c *Client) CreateToken(ctx context.Context, in api.NewToken) (api.TokenValue, error) {
	return ask[api.TokenValue](ctx, c, once, call{op: "create token " + in.Name, method: http.MethodPost, path: []string{"v1", "tokens"}, in: in})
}

// Tokens lists user tokens.
func (c *Client) Tokens(ctx context.Context, cursor string, limit int) (api.Page[api.Token], error) {
	return get[api.Page[api.Token]](ctx, c, "list tokens", listing(cursor, limit), "v1", "tokens")
}

// RevokeToken ends a user token.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.remove(ctx, call{op: "revoke token " + id, path: []string{"v1", "tokens", id}})
}
