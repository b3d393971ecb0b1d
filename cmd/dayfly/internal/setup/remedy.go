package setup

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	giveCredentials = "store the credentials with dayfly secret set, and name them under secrets (env and ref) of the workspace; or give it a role"
	giveVariables   = "set the variable under variables of the workspace, or its file under var_files"
	again           = "; then repeat the report, which previews it again"
)

// remedies are what to do about a failed step, by parts of its error, in small letters. The first that
// matches counts. A part is a sentence of a program that says what it lacks, and no word that code has as a name.
var remedies = []struct {
	fix  string
	says []string
}{
	{"ask the holder of the lock; if nobody runs there any more, release it with that command", []string{
		"dayfly state unlock",
	}},
	{giveVariables, []string{"no value for required variable"}},
	{"remove the variable from the workspace, or declare it in the code", []string{"no declaration found for"}},
	{giveCredentials, []string{
		"no valid credential", "cached credentials", "default credentials", "locate credentials",
		"load credentials", "retrieve credentials", "no credentials", "missing credentials", "invalid credentials", "expired credentials", "reads its credentials from",
		"invalidclienttokenid", "expiredtoken", "error: unauthorized", "401 unauthorized", "unauthorized: ",
	}},
	{"give the role or the credentials of the workspace the right that the error names", []string{
		"access denied", "accessdenied", "unauthorizedoperation", "not authorized to perform",
	}},
	{"store the passphrase with dayfly secret set, and name it under secrets as PULUMI_CONFIG_PASSPHRASE", []string{
		"pulumi_config_passphrase", "incorrect passphrase",
	}},
	{"set engine_version of the workspace to a version that the code allows", []string{
		"unsupported terraform core version", "unsupported opentofu core version",
	}},
	{"run the engine's init in the root module, and commit .terraform.lock.hcl", []string{"dependency lock file"}},
	{"let source.directory be a directory that holds all modules, and source.path the root module in it", []string{
		"unreadable module directory",
	}},
	{"give the host of the module credentials under modules of the workspace", []string{"could not download module"}},
	{"let the runners reach the registry of the providers", []string{"failed to query available provider packages"}},
	{"set the path of the source to the directory with the Pulumi.yaml", []string{"has no pulumi.yaml"}},
}

// byReason are what to do about reasons of which no log says more than the detail.
var byReason = map[workflow.Reason]string{
	workflow.ReasonHookFailed:     "correct the hook that the detail names, under hooks of the workspace",
	workflow.ReasonRunnerLost:     "let the runners of the pool go on running (size, Spot, machine) and reach the control plane",
	workflow.ReasonNeverStarted:   "let the pool start tasks: look at its agent, or at its image, role, size and network",
	workflow.ReasonArtifactFailed: "let the runners of the pool reach the place of artifacts, and have the rights to it",
}

// fixOf is what to do about a preview that was refused or failed.
func fixOf(run api.Workflow, w api.Workspace) string {
	switch {
	case run.Reason == workflow.ReasonStateNotKept && w.Engine == api.EngineTerragrunt:
		return "declare a remote_state with a remote backend in the code of the units, and leave state.kind of the workspace out"
	case run.Reason == workflow.ReasonStateNotKept && w.Engine == api.EnginePulumi:
		return "set backend.url in Pulumi.yaml to a backend that is not file://, or state.kind of the workspace to s3 or directory"
	case run.Reason == workflow.ReasonStepFailed:
		detail := strings.ToLower(run.Detail)
		for _, r := range remedies {
			if slices.ContainsFunc(r.says, func(part string) bool { return strings.Contains(detail, part) }) {
				return r.fix
			}
		}
		return "correct what the error names, in the code or in the settings of the workspace" + again
	case byReason[run.Reason] != "":
		return byReason[run.Reason] + again
	case run.State == workflow.Cancelled:
		return "somebody cancelled it: repeat the report, which previews it again"
	}
	return cmp.Or(runtext.ToDo(run), "repeat the report, which previews it again")
}

// fixOfRefusal is what to do about a preview that the control plane refused to take.
func fixOfRefusal(e *workflow.Error, workspace string) string {
	if e.Field == "" {
		return "change the workspace as the sentence says, with dayfly workspace show " + workspace + " and dayfly apply -f FILE"
	}
	return "correct " + e.Field + " in the workspace's file, and register it again with dayfly apply -f FILE"
}
