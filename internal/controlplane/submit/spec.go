package submit

import (
	"cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// specOf freezes what a workflow does at its submission.
func specOf(w *record.Workflow, ws record.Workspace, in api.Submit) api.Spec {
	return api.Spec{
		Workflow: w.ID, Organization: w.Org, WorkspaceID: ws.ID, Workspace: ws.W.Name,
		Type: w.Type, Operation: w.Op, Engine: ws.W.Engine, EngineVersion: ws.W.EngineVersion,
		Commands: ws.W.Commands, Source: ws.W.Source, State: *ws.W.State,
		TakeOver: in.TakeOver, TakeOverFrom: in.TakeOverFrom, BeginAnew: in.BeginAnew, LockID: in.LockID,
		Variables: ws.W.Variables, Environment: ws.W.Environment, Secrets: ws.W.Secrets, Role: roleOf(w.Org, ws),
		Size: w.Size, MaxRuntimeSeconds: w.MaxRuntime.Seconds(),
	}
}

// roleOf is what a spec says of its workspace's role. No setting but the ARN has a part in it: whoever
// trusts the role can rely on the rest.
func roleOf(org string, ws record.Workspace) *api.Role {
	if ws.W.Role == "" {
		return nil
	}
	return &api.Role{
		ARN: ws.W.Role, ExternalID: ws.ID,
		Tags: map[string]string{
			api.TagOrganization: org, api.TagWorkspace: ws.W.Name,
			api.TagWorkspaceID: ws.ID, api.TagStateKey: cmp.Or(ws.W.State.Key, ws.W.Name),
		},
	}
}
