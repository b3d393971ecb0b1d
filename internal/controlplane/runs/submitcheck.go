package runs

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// checkSubmit refuses a request that is invalid for any workspace, and completes the type.
func checkSubmit(in *api.Submit) error {
	if in.Type == "" {
		in.Type = workflow.Deployment
	}
	switch in.Type {
	case workflow.Deployment:
		if !slices.Contains(workflow.Operations(), in.Operation) {
			return workflow.Refuse(workflow.ErrInvalid, "operation", "a deployment needs an operation: preview, update, refresh, destroy, state_list, state_unlock, state_pull or state_push")
		}
	case workflow.InsightsScan, workflow.PolicyEvaluation:
		if in.Operation != "" {
			return workflow.Refuse(workflow.ErrInvalid, "operation", "only a deployment has an operation")
		}
	default:
		return workflow.Refuse(workflow.ErrInvalid, "type", "the type is deployment, insights_scan or policy_evaluation, not %q", text.Cut(string(in.Type), 40))
	}
	if in.Priority != nil && (*in.Priority < -100 || *in.Priority > 100) {
		return workflow.Refuse(workflow.ErrInvalid, "priority", "a priority lies between -100 and 100")
	}
	if err := workflow.CheckText("message", in.Message, 200); err != nil {
		return err
	}
	if len(in.Options.Asked()) == 0 {
		in.Options = nil
	}
	return checkInstructions(in)
}

// checkInstructions refuses instructions about the state that contradict each other, or that do not apply to the run.
func checkInstructions(in *api.Submit) error {
	switch {
	case in.TakeOver && in.BeginAnew:
		return workflow.Invalid("take_over", "take_over and begin_anew contradict each other; set only one of them")
	case in.TakeOverFrom != "" && !in.TakeOver:
		return workflow.Invalid("take_over_from", "take_over_from goes with take_over")
	case (in.TakeOver || in.BeginAnew) && !workflow.Plans(in.Type, in.Operation):
		return workflow.Invalid("take_over", "take_over and begin_anew go with a run that plans")
	case (in.LockID == "") == (in.Operation == workflow.StateUnlock):
		return workflow.Invalid("lock_id", "lock_id is required for operation state_unlock, and is for no other")
	case (in.Push == nil) == (in.Operation == workflow.StatePush):
		return workflow.Invalid("push", "push is required for operation state_push, and is for no other")
	case in.Push != nil && !rules.IsSHA256(in.Push.SHA256):
		return workflow.Invalid("push.sha256", "the state to push is named by its SHA-256: 64 hexadecimal digits in lower case")
	case in.Push != nil && (in.Push.Size < 1 || in.Push.Size > api.MaxArtifactSize):
		return workflow.Invalid("push.size", "a state has 1 to %d bytes", api.MaxArtifactSize)
	case len(in.LockID) > 255 || strings.HasPrefix(in.LockID, "-") || strings.ContainsFunc(in.LockID, func(r rune) bool { return r < ' ' || r > '~' }):
		return workflow.Invalid("lock_id", "the id of a lock has at most 255 printable characters and does not begin with -")
	}
	return nil
}

// checkOptions refuses options that a run cannot have, or that its submitter may not choose. A ref chooses the code:
// people may choose it, because members who may submit runs may also change the source of the workspace. A pipeline
// is bound to its own commit. It is a pure function.
func checkOptions(who identity.Principal, ws api.Workspace, in api.Submit, trigger *record.Trigger) error {
	switch {
	case in.Options == nil:
		return nil
	case trigger != nil:
		return workflow.Refuse(workflow.ErrInvalid, "options", "a run of a commit or of a trigger has no options: submit a run of your own")
	case in.Options.Ref != "" && who.Pipeline != nil:
		return workflow.Refuse(workflow.ErrForbidden, "options.ref", "a pipeline runs its own commit or the ref of the workspace: name its commit instead")
	}
	return in.Options.Check(ws.Engine, ws.Source, in.Type, in.Operation)
}

// maxRuntimeOf is the maximum runtime of a run: its own, else the workspace's. A maximum that the workspace names
// bounds that of its runs; without one there is a default, and a run may ask for more. A retry asks for the maximum
// of the run before it, and gets less if the workspace allows less by now.
func maxRuntimeOf(ws api.Workspace, asked string, retry bool) (time.Duration, error) {
	limit, err := catalog.MaxRuntime(ws)
	if err != nil || asked == "" {
		return limit, err
	}
	d, err := catalog.MaxRuntime(api.Workspace{MaxRuntime: asked})
	switch {
	case err != nil || ws.MaxRuntime == "" || d <= limit:
		return d, err
	case retry:
		return limit, nil
	}
	return 0, workflow.Refuse(workflow.ErrInvalid, "max_runtime", "a run of workspace %s may take at limit %s, the workspace's max_runtime; %s is more: ask for less, or change the workspace", ws.Name, limit, d)
}

// runnable refuses a run if its workspace does not say how to do it.
func runnable(ws api.Workspace, in api.Submit) error {
	engine := api.EngineOf(ws.Engine)
	own := func(field string) error {
		return workflow.Refuse(workflow.ErrInvalid, field, "workspace %s has engine %s: %s", ws.Name, ws.Engine, engine.OwnState)
	}
	switch {
	case in.Type == workflow.PolicyEvaluation && !engine.Evaluates:
		return workflow.Refuse(workflow.ErrInvalid, "type", "workspace %s has engine %s, whose state policies cannot read: only those of terraform and tofu can be evaluated", ws.Name, ws.Engine)
	case engine.OwnState != "" && in.TakeOver:
		return own("take_over")
	case engine.OwnState != "" && in.BeginAnew:
		return own("begin_anew")
	case engine.OwnState != "" && !engine.Runs(in.Type, in.Operation):
		return own("operation")
	case !engine.Runs(in.Type, in.Operation): // of a record that another version wrote
		return workflow.Refuse(workflow.ErrInvalid, "operation", "workspace %s has engine %s, which cannot run %s", ws.Name, ws.Engine, cmp.Or(string(in.Operation), string(in.Type)))
	case ws.Engine != api.EngineCommand:
		return nil
	}
	name := commandName(in.Type, in.Operation)
	if ws.Commands[name] == "" {
		return workflow.Refuse(workflow.ErrInvalid, "operation", "workspace %s has no command for %s; add commands.%s to it", ws.Name, name, name)
	}
	return nil
}

func commandName(t workflow.Type, op workflow.Operation) string {
	if t == workflow.Deployment {
		return string(op)
	}
	return string(t)
}
