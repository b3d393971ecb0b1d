package setup

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestFixOf_NamesTheCauseAndNoMore(t *testing.T) {
	const theError = "correct what the error names"
	for detail, want := range map[string]string{
		"init: Error: No valid credential sources found":                                      "store the credentials",
		"plan: Error: failed to refresh cached credentials, no EC2 IMDS role found":           "store the credentials",
		"plan: google: could not find default credentials":                                    "store the credentials",
		"plan: Error: Unauthorized":                                                           "store the credentials",
		"init: 403; the backend s3 reads its credentials from AWS_PROFILE, and this run none": "store the credentials",
		"plan: UnauthorizedOperation: You are not authorized to perform this operation":       "the right that the error",
		`plan: Error: Unsupported argument "credentials" is not expected here`:                theError,
		"plan: app.py: KeyError: 'credentials'":                                               theError,
		"plan: Error: Invalid index: local.unauthorized_ips":                                  theError,
		`plan: Error: Unsupported argument "passphrase"`:                                      theError,
		"plan: passphrase must be set with PULUMI_CONFIG_PASSPHRASE":                          "store the passphrase",
		"init: Error: Unsupported OpenTofu Core version":                                      "set engine_version",
		"init: Error: Unsupported Terraform Core version":                                     "set engine_version",
	} {
		run := api.Workflow{State: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: detail}
		if got := fixOf(run, api.Workspace{}); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", detail, got, want)
		}
	}
}

// No log says more about these.
func TestFixOf_WithoutALog(t *testing.T) {
	for _, reason := range []workflow.Reason{workflow.ReasonRunnerLost, workflow.ReasonNeverStarted, workflow.ReasonArtifactFailed} {
		got := fixOf(api.Workflow{ID: "wf_1", State: workflow.Failed, Reason: reason}, api.Workspace{})
		if !strings.Contains(got, "repeat the report") || strings.Contains(got, " log") || strings.Contains(got, "dayfly why") {
			t.Errorf("%s: got %q", reason, got)
		}
	}
}
