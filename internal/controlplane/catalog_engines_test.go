package controlplane_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A run that an engine cannot do is refused at its submission, with the reason, and not by a runner.
func TestEngine_WhatItCannotDoIsRefusedAtOnce(t *testing.T) {
	w := newWorld(t, memory.New())
	refused := func(what string, err error, says string) {
		t.Helper()
		wantErr(t, err, workflow.ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q does not say %q", what, err, says)
		}
	}
	ws := api.Workspace{Name: "live", RunSettings: api.RunSettings{Engine: api.EngineTerragrunt, EngineVersion: "~> 0.90", Source: api.Source{Directory: "/src"}}}
	put := func(state *api.State, approval *api.Approval) error {
		in := ws
		in.State, in.Approval = state, approval
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, in)
		return err
	}
	for _, kind := range []string{api.StateDirectory, api.StateS3} {
		refused(kind, put(&api.State{Kind: kind, Bucket: "b", Region: "r"}, nil), "own remote_state")
	}
	refused("workspace", put(&api.State{Kind: api.StateSource, Workspace: "prod"}, nil), "terraform and tofu")
	w.must(put(&api.State{Kind: api.StateSource}, nil))
	w.must(put(nil, nil))
	submit := func(change func(in *api.Submit)) error {
		in := api.Submit{Workspace: "live", Type: workflow.Deployment, Operation: workflow.Update}
		change(&in)
		_, err := w.plane.Submit(w.ctx(), w.admin, "", in)
		return err
	}
	refused("take over", submit(func(in *api.Submit) { in.TakeOver = true }), "own remote_state")
	refused("pull", submit(func(in *api.Submit) { in.Operation = workflow.StatePull }), "own remote_state")
	w.must(submit(func(*api.Submit) {}))
	w.must(put(nil, &api.Approval{Required: true}))
	w.must(submit(func(*api.Submit) {})) // it becomes a preview

	w.workspace("stack", func(ws *api.Workspace) {
		ws.Engine, ws.Commands, ws.State = api.EnginePulumi, nil, &api.State{Workspace: "dev"}
	})
	_, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "stack", Type: workflow.Deployment, Operation: workflow.StatePull})
	w.must(err)
	w.workspace("script", func(ws *api.Workspace) { ws.Approval = required() })
	_, err = w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "script", Type: workflow.Deployment, Operation: workflow.Update})
	refused("approval", err, "engine command keeps no plan")
}
