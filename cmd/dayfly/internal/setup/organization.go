package setup

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// OrganizationCommands are the commands of dayfly organization.
type OrganizationCommands struct {
	Show   organizationShow   `cmd:"" aliases:"get" help:"Show the default pool, the limit, the required approvals, and how long workflows, logs, artifacts and the audit trail are kept."`
	Update organizationUpdate `cmd:"" help:"Change the settings that you name."`
}

type organizationShow struct{}

// Run prints the organization.
func (c *organizationShow) Run(a *cli.App, cl *client.Client) error {
	o, err := cl.Organization(a.Ctx)
	if err != nil {
		return err
	}
	return organization(a, o)
}

type organizationUpdate struct {
	WorkflowDays *int    `placeholder:"DAYS" help:"Days for which workflows are kept, from 30 to 3650; default 400."`
	LogDays      *int    `placeholder:"DAYS" help:"Days for which logs are kept: 7, 30, 90, 180 or 400; default 90."`
	ArtifactDays *int    `placeholder:"DAYS" help:"Days for which artifacts are kept: 7, 30, 90, 180 or 400; default 90."`
	AuditDays    *int    `placeholder:"DAYS" help:"Days for which the audit trail is kept; 0, the default, means for ever."`
	Limit        *int    `placeholder:"N" help:"Maximum active workflows; 0, the default, means the limit of the installation."`
	DefaultPool  *string `placeholder:"POOL" help:"Pool of workspaces for which neither they nor their projects name one; default the built-in one."`
	approvalFlags
	cli.Confirmed
}

// Run changes the settings. It asks, because a shorter time deletes older data.
func (c *organizationUpdate) Run(a *cli.App, cl *client.Client) error {
	approval, err := c.approval()
	if err != nil {
		return err
	}
	in := api.OrganizationSettings{
		Approval: approval, WorkflowRetention: c.WorkflowDays, LogRetention: c.LogDays, ArtifactRetention: c.ArtifactDays, AuditRetention: c.AuditDays,
		Limit: c.Limit, DefaultPool: c.DefaultPool,
	}
	if in == (api.OrganizationSettings{}) {
		return cli.Usage(errors.New("name what to change: --workflow-days, --log-days, --artifact-days, --audit-days, --limit, --default-pool or --approval"))
	}
	if c.WorkflowDays != nil || c.LogDays != nil || c.ArtifactDays != nil || c.AuditDays != nil {
		if err := c.Confirm(a, "data older than the days that you name is deleted within minutes, and cannot be restored"); err != nil {
			return err
		}
	}
	o, err := cl.UpdateOrganization(a.Ctx, in)
	if err != nil {
		return err
	}
	return organization(a, o)
}

func organization(a *cli.App, o api.Organization) error {
	if a.JSON() {
		return shown(a, kind.Organization, asOrganization(o), o, "")
	}
	audit := "for ever"
	if o.AuditRetention > 0 {
		audit = text.Count(o.AuditRetention, "day")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "organization %s\n", o.Name)
	line := cli.Lines(&b, a.Style(), "  ", 18)
	line("default pool", o.DefaultPool)
	line("active at most", limit(o.Limit))
	line("workflows kept", text.Count(o.WorkflowRetention, "day"))
	line("logs kept", text.Count(o.LogRetention, "day"))
	line("artifacts kept", text.Count(o.ArtifactRetention, "day"))
	line("audit trail kept", audit)
	line("approval", o.Approval.Text())
	return a.Print("%s", strings.TrimSuffix(b.String(), "\n"))
}
