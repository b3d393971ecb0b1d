package runs

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// specOf is the spec of a workflow, which is frozen at its submission.
//
// The code of a pull request's run is a stranger's until somebody has approved its plan. So it gets preview_role or
// none, only the secrets and the credentials for modules that are marked for previews, and no secret that the machine
// serves to its engines. The reference to the credential of the git source stays: the runner reads the source with
// it, masks it, and gives it neither to the engine's environment nor to its files.
func specOf(w *record.Workflow, ws record.Workspace, in api.Submit) api.Spec {
	settings := ws.W.RunSettings
	settings.Source, settings.Secrets, settings.Modules = sourceOf(w.Trigger, in.Options, settings.Source), secretsOf(w, ws.W), modulesOf(w, ws.W)
	return api.Spec{
		Workflow: w.ID, Organization: w.Org, WorkspaceID: ws.ID, Workspace: ws.W.Name,
		Type: w.Type, Operation: w.Op, RunSettings: settings, State: *ws.W.State,
		TakeOver: in.TakeOver, TakeOverFrom: in.TakeOverFrom, BeginAnew: in.BeginAnew, LockID: in.LockID, Push: in.Push, For: w.For,
		Role: roleOf(w, ws), PullRequest: untrusted(w), MaxRuntimeSeconds: w.MaxRuntime.Seconds(), Options: in.Options, Inputs: inputsOf(w, ws.W),
	}
}

// untrusted says that a run executes the code of a pull request before anybody has approved its plan.
func untrusted(w *record.Workflow) bool { return w.Trigger.Pull() && w.PlanOf == "" }

// sourceOf is the source of a run: at the commit that its trigger names or the ref that its options name, if any.
func sourceOf(t *record.Trigger, options *api.Options, src api.Source) api.Source {
	switch {
	case t != nil && t.Commit != "":
		return src.At(t.Commit)
	case options != nil && options.Ref != "":
		return src.At(options.Ref)
	}
	return src
}

// secretsOf are the secrets of a workspace that a run gets.
func secretsOf(w *record.Workflow, ws api.Workspace) []api.Secret {
	if !untrusted(w) {
		return ws.Secrets
	}
	return slices.DeleteFunc(slices.Clone(ws.Secrets), func(s api.Secret) bool { return !s.Preview })
}

// modulesOf are the credentials for modules that a run gets, as secretsOf.
func modulesOf(w *record.Workflow, ws api.Workspace) []api.ModuleCredential {
	if !untrusted(w) {
		return ws.Modules
	}
	return slices.DeleteFunc(slices.Clone(ws.Modules), func(m api.ModuleCredential) bool { return !m.Preview })
}

// arnOf is the role of a run; empty if it has none. A run that changes the state has the workspace's role, and one
// that only reads has preview_role; an untrusted run never has the workspace's.
func arnOf(w *record.Workflow, ws api.Workspace) string {
	switch {
	case untrusted(w):
		return ws.PreviewRole
	case w.Type == workflow.InsightsScan, w.Type == workflow.PolicyEvaluation, w.Op == workflow.Preview:
		return cmp.Or(ws.PreviewRole, ws.Role)
	}
	return ws.Role
}

// roleOf is the role of a run in its spec. Only the ARN comes from the settings, so the role's trust policy can rely
// on the other fields.
func roleOf(w *record.Workflow, ws record.Workspace) *api.Role {
	arn := arnOf(w, ws.W)
	if arn == "" {
		return nil
	}
	return &api.Role{
		ARN: arn, ExternalID: ws.ID,
		Tags: map[string]string{
			api.TagOrganization: w.Org, api.TagWorkspace: ws.W.Name, api.TagWorkspaceID: ws.ID,
		},
	}
}

// olds names the directories, apart from the one that the run uses, that may have a state for it: the workspace's own
// from when its state was kept in a directory, and those of deleted namesakes.
func olds(spec api.Spec) []string {
	if api.EngineOf(spec.Engine).OwnState != "" {
		return nil
	}
	var out []string
	if spec.State.Directory() == "" {
		out = append(out, spec.State.Key)
	}
	for _, n := range spec.Namesakes {
		out = append(out, n.ID)
	}
	return out
}

// machineRefs are the references of a spec to secrets that a launcher may have to hand over, once each: those on the
// runner's machine, and those of Vault. The settings that name them are bounded. A reference that is too long for a
// launch message cannot name an existing secret.
func machineRefs(spec api.Spec) []string {
	var out []string
	add := func(ref string) {
		if (strings.HasPrefix(ref, "file:") || strings.HasPrefix(ref, "vault:")) && len(ref) <= api.MaxSecretRef && len(out) < api.MaxSecretRefs && !slices.Contains(out, ref) {
			out = append(out, ref)
		}
	}
	for _, s := range spec.Secrets {
		add(s.Ref)
	}
	sources := []api.Source{spec.Source}
	for _, p := range spec.Policies {
		sources = append(sources, p.Source)
	}
	for _, src := range sources {
		if git := src.Git; git != nil {
			add(git.TokenRef)
			add(git.SSHKeyRef)
		}
		if archive := src.Archive; archive != nil {
			add(archive.TokenRef)
		}
	}
	for _, m := range spec.Modules {
		add(m.TokenRef)
		add(m.SSHKeyRef)
	}
	return out
}
