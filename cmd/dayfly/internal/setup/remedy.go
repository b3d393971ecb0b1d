package setup

import (
	"cmp"
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

// remedies are what to do about a failed step, by a part of its error, in small letters. The first that
// matches counts.
var remedies = []struct{ says, fix string }{
	{"dayfly state unlock", "ask the holder of the lock; if nobody runs there any more, release it with that command"},
	{"no value for required variable", giveVariables},
	{"no declaration found for", "remove the variable from the workspace, or declare it in the code"},
	{"credential", giveCredentials},
	{"unauthorized", giveCredentials},
	{"access denied", "give the role or the credentials of the workspace the right that the error names"},
	{"accessdenied", "give the role or the credentials of the workspace the right that the error names"},
	{"passphrase", "store the passphrase with dayfly secret set, and name it under secrets as PULUMI_CONFIG_PASSPHRASE"},
	{"unsupported terraform core version", "set engine_version of the workspace to a version that the code allows"},
	{"unsupported opentofu core version", "set engine_version of the workspace to a version that the code allows"},
	{"dependency lock file", "run the engine's init in the root module, and commit .terraform.lock.hcl"},
	{"unreadable module directory", "let source.directory be a directory that holds all modules, and source.path the root module in it"},
	{"could not download module", "give the host of the module credentials under modules of the workspace"},
	{"failed to query available provider packages", "let the runners reach the registry of the providers"},
	{"has no pulumi.yaml", "set the path of the source to the directory with the Pulumi.yaml"},
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
			if strings.Contains(detail, r.says) {
				return r.fix
			}
		}
		return "correct what the error names, in the code or in the settings of the workspace" + again
	case run.Reason == workflow.ReasonHookFailed:
		return "correct the hook that the detail names, under hooks of the workspace" + again
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
