package setup

import (
	"errors"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// approvalFlags are the flags for the approvals that an organization or a project requires.
type approvalFlags struct {
	Approval               string   `enum:"required,none," default:"" placeholder:"required|none" help:"Whether changes to the state need an approved plan: required or none."`
	ApprovalNotBySubmitter bool     `help:"With --approval required: somebody else than the submitter must approve."`
	ApprovalAfterMerge     bool     `help:"With --approval required: the plan of a pull request is applied only after the merge."`
	ApprovalExpires        string   `placeholder:"DURATION" help:"With --approval required: how long a plan waits for its approval, at most 168h; default 72h."`
	ApprovalRule           []string `sep:"none" placeholder:"RULE" help:"With --approval required: which plans need an approval: destroys, replaces or 'changes > N'; without any, all that change something. May be repeated."`
}

// approval is the requirement that the flags describe; nil leaves the present one. It is replaced as a whole.
func (f approvalFlags) approval() (*api.Approval, error) {
	in := api.Approval{Required: f.Approval == "required", NotBySubmitter: f.ApprovalNotBySubmitter, AfterMerge: f.ApprovalAfterMerge, Expires: f.ApprovalExpires, Rules: f.ApprovalRule}
	if !in.Required && (in.NotBySubmitter || in.AfterMerge || in.Expires != "" || len(in.Rules) > 0) {
		return nil, cli.Usage(errors.New("--approval-not-by-submitter, --approval-after-merge, --approval-expires and --approval-rule go with --approval required, and replace the previous requirements"))
	}
	if f.Approval == "" {
		return nil, nil
	}
	return &in, nil
}
