package main

import (
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/access"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/ci"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/runs"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/serve"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/setup"
)

const description = `Runs infrastructure-as-code workflows on runners that live for one job.

Start with "dayfly up" in one terminal and "dayfly run ./DIR --op preview --follow" in another. Commands talk to the control plane in DAYFLY_URL, with the token in DAYFLY_API_TOKEN, or else to that of the last "dayfly up" or "dayfly login".

Exit codes: 0 done, or the workflow succeeded; 1 the workflow failed, you did not confirm, the audit trail is broken, or a server stopped on an error; 2 the control plane refused, or with --detailed-exitcode there are changes; 3 the control plane cannot be reached; 4 the workflow was cancelled; 5 the wait timed out, and the work goes on; 6 the previews of a report found changes; 7 the plan of the run waits for an approval; 64 wrong usage; 130 interrupted at a prompt, with --watch, or while following a workflow (which goes on).`

// grammar is the command line.
type grammar struct {
	Output string `short:"o" enum:"table,json,yaml,name,dot" default:"table" help:"How results are printed: table, json, yaml, or name: only names or ids, one to a line; of graph also dot."`

	Color string `enum:"auto,always,never" default:"auto" help:"Whether results have colours: auto, always or never."`

	Up     serve.UpCommand      `cmd:"" group:"serve" help:"Run control plane and agent in one process, on this machine."`
	Server serve.ServerCommands `cmd:"" group:"serve" help:"Run the control plane alone; back up and restore its records."`
	Agent  serve.AgentCommand   `cmd:"" group:"serve" help:"Run the workflows of a pool on this machine, or as Fargate tasks."`

	Configure serve.ConfigureCommand `cmd:"" group:"serve" help:"Write the settings file of an agent, and try its token."`

	Run       runs.RunCommand         `cmd:"" group:"work" help:"Run a workspace, or a directory as one."`
	Apply     setup.ApplyCommand      `cmd:"" group:"work" help:"Create or change workspaces, pools, projects, settings of all kinds and the organization as files describe them; show the differences."`
	CI        ci.Command              `cmd:"" name:"ci" group:"work" help:"In a pipeline of GitHub Actions or GitLab CI: preview the changes of a pull request and report them there; apply merged changes."`
	Open      runs.OpenCommand        `cmd:"" group:"work" help:"Print and open the web page of a workflow, a workspace or a pool."`
	Why       runs.WhyCommand         `cmd:"" group:"work" help:"Show what a workflow waits for, since when, and what happens next."`
	Workflow  runs.WorkflowCommands   `cmd:"" group:"work" aliases:"wf" help:"List, show, follow, cancel and retry workflows; approve their plans."`
	Tree      runs.TreeCommands       `cmd:"" group:"work" help:"List, show and cancel trees: runs of a workspace and of all that depend on it."`
	Workspace setup.WorkspaceCommands `cmd:"" group:"work" aliases:"ws" help:"Discover, list, show and delete workspaces."`
	Graph     setup.GraphCommand      `cmd:"" group:"work" help:"Draw which workspaces depend on which."`
	Schedule  setup.SettingCommands   `cmd:"" group:"work" help:"List, show and delete schedules, which run workspaces by the clock."`
	Takeover  setup.TakeoverCommands  `cmd:"" group:"work" help:"Preview many workspaces, and list what each of them would do."`
	Outputs   runs.OutputCommand      `cmd:"" name:"output" group:"work" help:"Print the outputs of a workspace's last run that changed its state."`
	State     runs.StateCommands      `cmd:"" group:"work" help:"List, copy and replace a workspace's state, and release its lock."`
	Policy    setup.PolicyCommands    `cmd:"" group:"work" help:"List, show and delete policy groups, which hold runs to rules; test packages of policies."`
	Artifact  runs.ArtifactCommands   `cmd:"" group:"work" help:"List and copy the artifacts of workflows."`
	Hook      serve.HookCommands      `cmd:"" group:"work" help:"Print the digests of hooks, by which pools allow them."`
	Secret    runs.SecretCommands     `cmd:"" group:"work" help:"Store secrets on this machine for its runners."`

	Pool         setup.PoolCommands         `cmd:"" group:"admin" help:"Create, list, show, change, assign, explain, drain and delete pools of runners."`
	Waiver       setup.SettingCommands      `cmd:"" group:"admin" help:"List, show and delete waivers, by which a workspace passes a rule of a policy group for a time."`
	Project      setup.ProjectCommands      `cmd:"" group:"admin" help:"Create, list, show, change and delete projects."`
	Organization setup.OrganizationCommands `cmd:"" group:"admin" aliases:"org" help:"Show and change the default pool, the limit, the required approvals and the retention times."`

	Issuer           setup.SettingCommands  `cmd:"" group:"admin" help:"List, show and delete the OIDC issuers whose tokens are accepted."`
	GitHost          setup.GitHostCommands  `cmd:"" group:"admin" help:"List, show and delete the git hosts whose webhooks are accepted; rotate the secrets of these webhooks."`
	ServicePrincipal access.ServiceCommands `cmd:"" group:"admin" aliases:"sp" help:"Create and change programs that log in with an id and a secret."`

	Notification setup.SettingCommands  `cmd:"" group:"admin" help:"List, show and delete notifications, which report the events of runs."`
	Delivery     setup.DeliveryCommands `cmd:"" group:"admin" help:"List the deliveries of notifications, and send failed ones again."`

	Repair    runs.RepairCommands      `cmd:"" group:"admin" help:"Free a workspace that a lost run still holds, and decide which workspace owns a state."`
	Audit     access.AuditCommands     `cmd:"" group:"admin" help:"List, follow, export and verify who did what."`
	Principal access.PrincipalCommands `cmd:"" group:"admin" help:"Create and list the people and programs that tokens are issued to."`
	Token     access.TokenCommands     `cmd:"" group:"admin" help:"Create, list and revoke user tokens."`
	Login     access.LoginCommand      `cmd:"" group:"admin" help:"Log in to a control plane, and make it the one that commands talk to."`
	Logout    access.LogoutCommand     `cmd:"" group:"admin" help:"Forget the token for a control plane."`
	Whoami    access.WhoamiCommand     `cmd:"" group:"admin" help:"Show the principal of the token in use, and its rights."`
	Version   versionCommand           `cmd:"" group:"admin" help:"Print the version."`

	Schema     schemaCommand     `cmd:"" group:"admin" help:"Print the JSON Schema of a settings file, or of a kind of documents of dayfly apply, for editors."`
	Completion completionCommand `cmd:"" group:"admin" help:"Print the script that completes commands, flags, ids and names in bash, zsh or fish."`
}
