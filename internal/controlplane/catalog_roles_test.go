package controlplane_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const netRole = "arn:aws:iam::123456789012:role/dayfly/default/net"

// R8: only the control plane says whose run it is; the settings give the ARN of the role and nothing else of it.
func TestRole_IsToldToTheRunWithItsOwner(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) {
		ws.Role = netRole
		ws.Environment = map[string]string{"organization": "another"}
	})
	w.workspace("plain")
	w.submit("net", workflow.Update)
	job, r := w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	if !strings.HasPrefix(spec.WorkspaceID, "ws_") {
		t.Fatalf("the workspace's id is %q", spec.WorkspaceID)
	}
	want := &api.Role{ARN: netRole, ExternalID: spec.WorkspaceID, Tags: map[string]string{
		"organization": "default", "workspace": "net", "workspace_id": spec.WorkspaceID,
	}}
	if d := cmp.Diff(want, spec.Role); d != "" {
		t.Error(d)
	}
	w.submit("plain", workflow.Update)
	job, r = w.started()
	spec, err = w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	if spec.Role != nil {
		t.Errorf("a workspace without a role has %v", spec.Role)
	}
}

// The id that a role's trust policy compares is shown. It is the same in every change, and cannot be chosen.
func TestWorkspace_ShowsTheIDThatARoleTrusts(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.Role = netRole })
	w.submit("net", workflow.Update)
	job, r := w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	ws, err := w.plane.Workspace(w.ctx(), w.admin, "net")
	w.must(err)
	if ws.ID == "" || ws.ID != spec.Role.ExternalID {
		t.Fatalf("it shows %q, and runs are told %q", ws.ID, spec.Role.ExternalID)
	}
	ws.Description = "as it was read, with its id"
	again, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
	w.must(err)
	if again.ID != ws.ID {
		t.Errorf("its id changes from %q to %q", ws.ID, again.ID)
	}
	again.ID = "ws_another"
	if _, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, again); !errors.Is(err, workflow.ErrConflict) {
		t.Errorf("another id: %v", err)
	}
}

func TestRole_IsAnAdminsField(t *testing.T) {
	w := newWorld(t, memory.New())
	operator := w.as(api.RoleOperator)
	w.workspace("net", func(ws *api.Workspace) { ws.Role = netRole })
	for name, role := range map[string]string{"another": netRole + "2", "none": ""} {
		ws, err := w.plane.Workspace(w.ctx(), operator, "net")
		w.must(err)
		ws.Role = role
		_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
		wantErr(t, err, workflow.ErrForbidden)
		if ws, err = w.plane.Workspace(w.ctx(), operator, "net"); err != nil || ws.Role != netRole {
			t.Errorf("%s: %v, %v", name, ws.Role, err)
		}
	}
	ws, err := w.plane.Workspace(w.ctx(), operator, "net")
	w.must(err)
	ws.MaxRuntime = "2h" // an operator may change everything except the role
	_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
	w.must(err)
}

// If runners cannot assume roles, a role is refused when it is set, not when it is needed.
func TestRole_IsRefusedWhereNobodyCouldAssumeIt(t *testing.T) {
	w := newWorld(t, memory.New())
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, NoRoles: true})
	ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, Role: netRole}
	_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
	if e, ok := errors.AsType[*workflow.Error](err); !ok || e.Field != "role" || !strings.Contains(e.Message, "secrets") {
		t.Errorf("got %v, want a refusal that says what to use instead", err)
	}
	ws.Role = ""
	_, _, err = w.plane.PutWorkspace(w.ctx(), w.admin, ws)
	w.must(err)
}

func TestRole_WhatIsNoneIsRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	for name, role := range map[string]string{
		"a user":       "arn:aws:iam::123456789012:user/net",
		"no account":   "arn:aws:iam:::role/net",
		"a session":    "arn:aws:sts::123456789012:assumed-role/net/x",
		"no name":      "arn:aws:iam::123456789012:role/dayfly/",
		"a wildcard":   "arn:aws:iam::123456789012:role/dayfly/*",
		"a space":      "arn:aws:iam::123456789012:role/day fly/net",
		"a line":       netRole + "\n",
		"a long path":  "arn:aws:iam::123456789012:role/" + strings.Repeat("x", 600) + "/net",
		"another word": "net",
	} {
		t.Run(name, func(t *testing.T) {
			ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, Role: role}
			_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
			wantErr(t, err, workflow.ErrInvalid)
		})
	}
	for _, role := range []string{netRole, "arn:aws-cn:iam::123456789012:role/net", "arn:aws-us-gov:iam::123456789012:role/a/b/c=+,.@_-"} {
		ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, Role: role}
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		w.must(err)
	}
}

// A pool with a path takes only roles below it, when the workspace is saved and again when it runs: the path may have
// been set in between.
func TestRole_LiesUnderThePathOfItsPool(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.Role = "arn:aws:iam::123456789012:role/dayfly/other/net" })
	path := "/dayfly/default/"
	_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{RolePath: &path})
	w.must(err)
	_, err = w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Preview})
	wantErr(t, err, workflow.ErrForbidden)

	ws, err := w.plane.Workspace(w.ctx(), w.admin, "net")
	w.must(err)
	ws.Role = "arn:aws:iam::123456789012:role/dayfly/default-of-others/net"
	_, _, err = w.plane.PutWorkspace(w.ctx(), w.admin, ws)
	wantErr(t, err, workflow.ErrForbidden)
	ws.Role = netRole
	_, _, err = w.plane.PutWorkspace(w.ctx(), w.admin, ws)
	w.must(err)
	w.submit("net", workflow.Preview)

	for _, path := range []string{"dayfly/", "/dayfly", "/dayfly/*/", "/day fly/", "//"} {
		_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{RolePath: &path})
		wantErr(t, err, workflow.ErrInvalid)
	}
	path = ""
	pool, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{RolePath: &path})
	w.must(err)
	if pool.RolePath != "" {
		t.Errorf("the path is still %q", pool.RolePath)
	}
}

// R6: a reference names something in a store that runners read, and not something that only looks like it.
func TestWorkspace_ReferencesToStores(t *testing.T) {
	w := newWorld(t, memory.New())
	ref := "arn:aws:secretsmanager:us-east-1:123456789012:secret:net-AbCdEf"
	w.workspace("net", func(ws *api.Workspace) {
		ws.Secrets = []api.Secret{{Env: "TOKEN", Ref: ref}, {Env: "PART", Ref: ref + "#part"},
			{Env: "PARAMETER", Ref: "arn:aws:ssm:us-east-1:123456789012:parameter/app/db"}, {Env: "VAULT", Ref: "vault:secret/app/db#password"}}
	})
	for _, ref := range []string{"arn:aws:s3:::bucket", "arn:aws:secretsmanager:us-east-1:123456789012:secret:", "arn:aws:secretsmanager:us-east-1::secret:x", "arn:aws:secretsmanager:us-east-1:123456789012:secret:a b",
		"arn:aws:ssm:us-east-1:123456789012:document/x", "arn:aws:ssm:us-east-1:123456789012:parameter/", "vault:secret/db", "vault:db#password", "vault:secret/db#", "vault:secret/" + strings.Repeat("x", 160) + "#key"} {
		ws := api.Workspace{Name: "bad", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}, Secrets: []api.Secret{{Env: "A", Ref: ref}}}}
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		wantErr(t, err, workflow.ErrInvalid)
	}
}
