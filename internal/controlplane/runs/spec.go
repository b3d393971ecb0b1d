package runs

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// specOf freezes at its submission what a workflow does.
func specOf(w *record.Workflow, ws record.Workspace, in api.Submit) api.Spec {
	return api.Spec{
		Workflow: w.ID, Organization: w.Org, WorkspaceID: ws.ID, Workspace: ws.W.Name,
		Type: w.Type, Operation: w.Op, Engine: ws.W.Engine, EngineVersion: ws.W.EngineVersion,
		Commands: ws.W.Commands, Source: ws.W.Source, State: *ws.W.State,
		TakeOver: in.TakeOver, TakeOverFrom: in.TakeOverFrom, BeginAnew: in.BeginAnew, LockID: in.LockID, Push: in.Push, For: w.For,
		Variables: ws.W.Variables, Environment: ws.W.Environment, Secrets: ws.W.Secrets, Role: roleOf(w.Org, ws),
		Size: w.Size, MaxRuntimeSeconds: w.MaxRuntime.Seconds(),
	}
}

// roleOf is what a spec says about its workspace's role. Of the settings only the ARN has a part in it, so the role's
// trust policy can rely on the rest.
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

// olds names the directories, apart from the workspace's own, that may have a state of its name: those of deleted
// namesakes, the one that its name had, and its own from when its state was kept in a directory.
func olds(spec api.Spec) []string {
	if spec.State.Key == "" || spec.Engine == api.EngineCommand {
		return nil
	}
	out := []string{spec.Workspace}
	if spec.State.Directory() == "" {
		out = append(out, spec.State.Key)
	}
	for _, n := range spec.Namesakes {
		out = append(out, n.ID)
	}
	return out
}

// machineRefs are the references of a spec to secrets on the runner's machine, once each. The settings that name them
// are bounded. A reference that is too long for a launch message cannot name an existing secret.
func machineRefs(spec api.Spec) []string {
	var out []string
	add := func(ref string) {
		if strings.HasPrefix(ref, "file:") && len(ref) <= api.MaxSecretRef && len(out) < api.MostSecretRefs && !slices.Contains(out, ref) {
			out = append(out, ref)
		}
	}
	for _, s := range spec.Secrets {
		add(s.Ref)
	}
	if git := spec.Source.Git; git != nil {
		add(git.TokenRef)
		add(git.SSHKeyRef)
	}
	if archive := spec.Source.Archive; archive != nil {
		add(archive.TokenRef)
	}
	return out
}
