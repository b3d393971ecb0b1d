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

// globals are the flags of every command.
type globals struct {
	Output string `short:"o" enum:"table,json,yaml,name,dot" default:"table" help:"How results are printed: table, json, yaml, or name: only names or ids, one to a line; of graph also dot."`

	Color string `enum:"auto,always,never" default:"auto" help:"Whether results have colours: auto, always or never."`
}

// topLevel is a command that the first word of a line names.
type topLevel struct {
	name, alias, group string
	make               func() any // with its arguments, its flags and the commands below it
	help               string
}

// of makes a command of a type.
func of[T any]() any { return new(T) }

// commands are in the order of the help.
var commands = []topLevel{
	{"up", "", "serve", of[serve.UpCommand], "Run control plane and agent in one process, on this machine."},
	{"server", "", "serve", of[serve.ServerCommands], "Run the control plane alone; back up and restore its records."},
	{"agent", "", "serve", of[serve.AgentCommand], "Run the workflows of a pool on this machine, or as Fargate tasks."},

	{"configure", "", "serve", of[serve.ConfigureCommand], "Write the settings file of an agent, and try its token."},

	{"run", "", "work", of[runs.RunCommand], "Run a workspace, or a directory as one."},
	{"apply", "", "work", of[setup.ApplyCommand], "Create or change workspaces, pools, projects, settings of all kinds and the organization as files describe them; show the differences."},
	{"ci", "", "work", of[ci.Command], "In a pipeline of GitHub Actions or GitLab CI: preview the changes of a pull request and report them there; apply merged changes."},
	{"open", "", "work", of[runs.OpenCommand], "Print and open the web page of a workflow, a workspace or a pool."},
	{"why", "", "work", of[runs.WhyCommand], "Show what a workflow waits for, since when, and what happens next."},
	{"workflow", "wf", "work", of[runs.WorkflowCommands], "List, show, follow, cancel and retry workflows; approve their plans."},
	{"tree", "", "work", of[runs.TreeCommands], "List, show and cancel trees: runs of a workspace and of all that depend on it."},
	{"workspace", "ws", "work", of[setup.WorkspaceCommands], "Discover, list, show and delete workspaces."},
	{"graph", "", "work", of[setup.GraphCommand], "Draw which workspaces depend on which."},
	{"schedule", "", "work", of[setup.SettingCommands], "List, show and delete schedules, which run workspaces by the clock."},
	{"takeover", "", "work", of[setup.TakeoverCommands], "Preview many workspaces, and list what each of them would do."},
	{"output", "", "work", of[runs.OutputCommand], "Print the outputs of a workspace's last run that changed its state."},
	{"state", "", "work", of[runs.StateCommands], "List, copy and replace a workspace's state, and release its lock."},
	{"policy", "", "work", of[setup.PolicyCommands], "List, show and delete policy groups, which hold runs to rules; test packages of policies."},
	{"artifact", "", "work", of[runs.ArtifactCommands], "List and copy the artifacts of workflows."},
	{"hook", "", "work", of[serve.HookCommands], "Print the digests of hooks, by which pools allow them."},
	{"secret", "", "work", of[runs.SecretCommands], "Store secrets on this machine for its runners."},

	{"pool", "", "admin", of[setup.PoolCommands], "Create, list, show, change, assign, explain, drain and delete pools of runners."},
	{"waiver", "", "admin", of[setup.SettingCommands], "List, show and delete waivers, by which a workspace passes a rule of a policy group for a time."},
	{"project", "", "admin", of[setup.ProjectCommands], "Create, list, show, change and delete projects."},
	{"organization", "org", "admin", of[setup.OrganizationCommands], "Show and change the default pool, the limit, the required approvals and the retention times."},

	{"issuer", "", "admin", of[setup.SettingCommands], "List, show and delete the OIDC issuers whose tokens are accepted."},
	{"git-host", "", "admin", of[setup.GitHostCommands], "List, show and delete the git hosts whose webhooks are accepted; rotate the secrets of these webhooks."},
	{"service-principal", "sp", "admin", of[access.ServiceCommands], "Create and change programs that log in with an id and a secret."},

	{"notification", "", "admin", of[setup.SettingCommands], "List, show and delete notifications, which report the events of runs."},
	{"delivery", "", "admin", of[setup.DeliveryCommands], "List the deliveries of notifications, and send failed ones again."},

	{"repair", "", "admin", of[runs.RepairCommands], "Free a workspace that a lost run still holds, and decide which workspace owns a state."},
	{"audit", "", "admin", of[access.AuditCommands], "List, follow, export and verify who did what."},
	{"principal", "", "admin", of[access.PrincipalCommands], "Create and list the people and programs that tokens are issued to."},
	{"token", "", "admin", of[access.TokenCommands], "Create, list and revoke user tokens."},
	{"login", "", "admin", of[access.LoginCommand], "Log in to a control plane, and make it the one that commands talk to."},
	{"logout", "", "admin", of[access.LogoutCommand], "Forget the token for a control plane."},
	{"whoami", "", "admin", of[access.WhoamiCommand], "Show the principal of the token in use, and its rights."},
	{"version", "", "admin", of[versionCommand], "Print the version."},

	{"schema", "", "admin", of[schemaCommand], "Print the JSON Schema of a settings file, or of a kind of documents of dayfly apply, for editors."},
	{"completion", "", "admin", of[completionCommand], "Print the script that completes commands, flags, ids and names in bash, zsh or fish."},
}
