package scenario

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// stories are all that can happen, in the order of the table.
func stories() []story {
	return []story{
		{name: "network: its life", engine: true, tell: life},
		{name: "failing plan", engine: true, tell: failingPlan},
		{name: "failing apply", engine: true, tell: failingApply},
		{name: "cancelled apply", engine: true, tell: cancelledApply},
		{name: "approval: state in S3", engine: true, tell: approvals},
		{name: "approval: declared backend", engine: true, tell: approvalsDeclared},
		{name: "console: an approval in a page", engine: true, tell: consolePages},
		{name: "a pull request", engine: true, tell: pullRequest},
		{name: "policies and a tree", engine: true, tell: policiesAndTree},
		{name: "command", now: true, tell: command},
		{name: "artifacts", now: true, tell: artifacts},
		{name: "notified of a failure", now: true, tell: notified},
		{name: "orphan", tell: orphan},
		{name: "cancelled while provisioning", tell: cancelledProvisioning},
		{name: "cancelled in the queue", now: true, tell: cancelledQueued},
		{name: "cancelled command", tell: cancelledRunning},
		{name: "redelivered scan", tell: redeliveredScan},
		{name: "lost update", now: true, tell: lostUpdate},
		{name: "interrupted preview", tell: interruptedPreview},
		{name: "never started", now: true, tell: neverStarted},
		{name: "throttled launch", tell: throttledLaunch},
		{name: "lost answer", tell: lostAnswer},
		{name: "adopted task", tell: adopted},
		{name: "wrong token", tell: wrongToken},
		{name: "directory source", now: true, tell: directory},
		{name: "cancelled while pending", alone: true, now: true, tell: cancelledPending},
		{name: "no capacity in a subnet", alone: true, tell: noCapacity},
		{name: "messages delivered twice", alone: true, ours: true, tell: deliveredTwice},
		{name: "dead letter", alone: true, now: true, tell: deadLetter},
		{name: "control plane away", last: true, tell: controlPlaneAway},
	}
}

// password gives a workspace a password that must not be readable anywhere.
func (s *scene) password(w *api.Workspace) {
	w.Secrets = []api.Secret{{Env: "TF_VAR_password", Ref: s.secrets[1].arn}}
}

// life is that of a workspace: each run in a task of its own, the state in S3 between them.
func life(ctx context.Context, s *scene) {
	const name = "network"
	s.workspace(ctx, name, name, s.password)
	update := s.submit(ctx, name, "update", "plan and apply; code from private git, state in S3")
	update = s.ends(ctx, update.ID, workflow.Succeeded, "", 1)
	s.counts(update, 2, 0, 0)
	s.check(output(update, "greeting") == "hello" && output(update, "password") == nil, "its outputs are %+v", update.Result)
	state := s.object(ctx, name, "")
	s.check(resources(state) == 2, "the state in S3 holds %d resources, not 2", resources(state))
	s.check(s.object(ctx, name, ".tflock") == "", "the lock of the state is still held")

	preview := s.submit(ctx, name, "preview", "reads the state of another task")
	preview = s.ends(ctx, preview.ID, workflow.Succeeded, "", 1)
	s.counts(preview, 0, 0, 0)

	destroy := s.submit(ctx, name, "destroy", "in another task")
	destroy = s.ends(ctx, destroy.ID, workflow.Succeeded, "", 1)
	s.counts(destroy, 0, 0, 2)
	s.check(destroy.Task != update.Task, "it ran in the task of the update")
	state = s.object(ctx, name, "")
	s.check(state != "" && resources(state) == 0, "the state in S3 still holds %d resources", resources(state))
}

func output(w api.Workflow, name string) any {
	if w.Result != nil {
		for _, o := range w.Result.Outputs {
			if o.Name == name {
				return o.Value
			}
		}
	}
	return nil
}

// resources counts those of a state; -1 means that there is no state.
func resources(state string) int {
	var in struct {
		Resources []struct {
			Instances []json.RawMessage `json:"instances"`
		} `json:"resources"`
	}
	if json.Unmarshal([]byte(state), &in) != nil {
		return -1
	}
	n := 0
	for _, r := range in.Resources {
		n += len(r.Instances)
	}
	return n
}

func failingPlan(ctx context.Context, s *scene) {
	s.workspace(ctx, "failing-plan", "failing-plan")
	w := s.submit(ctx, "failing-plan", "update", "its plan fails")
	w = s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonStepFailed, 1)
	s.check(strings.Contains(w.Detail, "The environment must be dev or prod."), "the reason is %q", w.Detail)
	s.check(s.object(ctx, "failing-plan", ".tflock") == "", "the lock of the state is still held")
}

func failingApply(ctx context.Context, s *scene) {
	s.workspace(ctx, "failing-apply", "failing-apply")
	w := s.submit(ctx, "failing-apply", "update", "its apply fails half-way")
	w = s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonStepFailed, 1)
	s.check(strings.Contains(w.Detail, "local-exec provisioner error"), "the reason is %q", w.Detail)
	s.check(resources(s.object(ctx, "failing-apply", "")) == 2, "the state in S3 lacks what was made")
	s.check(s.object(ctx, "failing-apply", ".tflock") == "", "the lock of the state is still held")
}

func cancelledApply(ctx context.Context, s *scene) {
	s.workspace(ctx, "slow", "slow")
	w := s.submit(ctx, "slow", "update", "cancelled while its apply runs")
	s.prints(ctx, w.ID, "it is at work")
	s.check(s.object(ctx, "slow", ".tflock") != "", "the state is not locked while it is changed")
	_, err := s.c.Client.Cancel(ctx, w.ID, "")
	s.must(err)
	s.ends(ctx, w.ID, workflow.Cancelled, workflow.ReasonCancelled, 1)
	s.check(s.object(ctx, "slow", ".tflock") == "", "the lock of the state is still held")
}

func command(ctx context.Context, s *scene) {
	s.workspace(ctx, "command", "plain", s.password, commands("update", `echo "the password is $TF_VAR_password"; cat README.md
		n=0; while [ $n -lt 1300 ]; do printf "%01000d\n" $n; n=$((n+1)); done`)) // more than the table takes
	w := s.submit(ctx, "command", "update", "a plain command, with a secret in its environment")
	s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	s.prints(ctx, w.ID, "What runs here is a command.")
	page, err := s.c.Client.Logs(ctx, w.ID, 0, 1200, 1000, 0)
	s.must(err)
	last := slices.ContainsFunc(page.Lines, func(l api.LogLine) bool { return strings.HasSuffix(l.Text, "001299") })
	s.check(page.Done && last, "its log does not have the lines beyond the first MiB")
	s.prints(ctx, w.ID, "the password is ") // and what followed it is searched for in the end
}
