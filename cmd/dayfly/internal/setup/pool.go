package setup

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// PoolCommands are the commands of dayfly pool.
type PoolCommands struct {
	Create      poolCreate     `cmd:"" help:"Create a pool and print its token, once."`
	List        poolList       `cmd:"" help:"List pools."`
	Show        poolShow       `cmd:"" aliases:"get" help:"Show a pool and its runners."`
	Update      poolUpdate     `cmd:"" help:"Change the settings that you name."`
	Assign      poolAssign     `cmd:"" help:"Let workspaces, projects, stacks or namespaces use a pool."`
	Unassign    poolUnassign   `cmd:"" help:"Remove such assignments."`
	SetDefault  poolSetDefault `cmd:"" help:"Make a pool the organization's default."`
	Explain     poolExplain    `cmd:"" help:"Say which pools would get a workflow of a workspace, and why the others would not."`
	Runners     poolRunners    `cmd:"" help:"Show a pool's runners and what each runs."`
	Pause       poolPause      `cmd:"" help:"Claim no more workflows; running ones go on."`
	Drain       poolDrain      `cmd:"" help:"Pause, and wait until nothing runs."`
	Resume      poolResume     `cmd:"" help:"Claim again."`
	RotateToken poolRotate     `cmd:"" help:"Print a new token, once."`
	Delete      poolDelete     `cmd:"" help:"Delete a pool."`
}

// poolSettings are the flags that creating and changing a pool share. A flag that is not given
// stays nil: it changes nothing.
type poolSettings struct {
	Description   *string  `help:"Description of the pool."`
	Concurrency   *int     `help:"Maximum active workflows; 0 means no limit."`
	Type          []string `name:"type" help:"A workflow type to run; default all. May be repeated."`
	AllTypes      bool     `help:"Run all types again."`
	RolePath      *string  `help:"Path of the roles that its tasks may assume, such as /dayfly/POOL/; empty means any that the account's policies allow."`
	WakeTarget    *string  `help:"Lambda function to invoke when there is work for the pool: name or ARN of a dayfly-wake-... function; empty for none."`
	Multiple      *bool    `name:"multiple-instances" negatable:"" help:"Let several agents poll for the pool."`
	Workspace     []string `help:"Let only this workspace use the pool. May be repeated, as all of these four."`
	Project       []string `help:"Let only the workspaces of this project use it, and of all projects below it."`
	Stack         []string `help:"Let only the workspaces of this stack use it."`
	Namespace     []string `help:"Let only the workspaces of this namespace use it."`
	AllWorkspaces bool     `help:"Let all workspaces use the pool again."`
	Label         []string `help:"A label of the pool: a workspace that wants labels goes to the pools that have them all. May be repeated; the previous labels are replaced."`
	NoLabels      bool     `help:"Remove all labels."`
	Disabled      *bool    `negatable:"" help:"Claim no workflows."`
}

func (p poolSettings) settings() (api.PoolSettings, error) {
	s := api.PoolSettings{Description: p.Description, Concurrency: p.Concurrency, RolePath: p.RolePath, WakeTarget: p.WakeTarget, AllowMultipleInstances: p.Multiple, IsDisabled: p.Disabled}
	named := len(p.Workspace) + len(p.Project) + len(p.Stack) + len(p.Namespace)
	if p.AllTypes && len(p.Type) > 0 || p.AllWorkspaces && named > 0 || p.NoLabels && len(p.Label) > 0 {
		return s, cli.Usage(fmt.Errorf("--all-types, --all-workspaces and --no-labels contradict --type, --label, and --workspace, --project, --stack and --namespace"))
	}
	if p.AllTypes || len(p.Type) > 0 {
		types := make([]workflow.Type, 0, len(p.Type))
		for _, t := range p.Type {
			types = append(types, workflow.Type(t))
		}
		s.EnabledTypes = &types
	}
	if p.NoLabels || len(p.Label) > 0 {
		s.Labels = given(p.Label)
	}
	if p.AllWorkspaces || named > 0 { // all previous assignments are replaced
		s.AssignedToAll, s.AssignedWorkspaces, s.AssignedProjects, s.AssignedStacks, s.AssignedNamespaces = &p.AllWorkspaces, given(p.Workspace), given(p.Project), given(p.Stack), given(p.Namespace)
	}
	return s, nil
}

// given is a list as a setting: an empty one removes the previous items.
func given(list []string) *[]string { return new(append([]string{}, list...)) }

type poolCreate struct {
	Name string `arg:"" help:"Name of the pool."`
	poolSettings
}

// Run creates the pool.
func (c *poolCreate) Run(a *cli.App, cl *client.Client) error {
	in, err := c.settings()
	if err != nil {
		return err
	}
	in.Name = &c.Name
	made, err := cl.CreatePool(a.Ctx, in)
	if err != nil {
		return err
	}
	if err := poolToken(a, made); err != nil || a.JSON() {
		return err
	}
	to, err := credentials.Find(a.Getenv)
	if err != nil {
		return err
	}
	who, err := cl.Whoami(a.Ctx)
	if err != nil {
		return err
	}
	a.Say("start an agent for it, with the token in a file that nobody else can read:\n"+
		"  DAYFLY_TOKEN=\"$(cat TOKEN_FILE)\" dayfly agent --service-url %s\n"+
		"without a stored token, where a rule of an issuer gives tokens of this pool:\n"+
		"  dayfly agent --service-url %s --organization-name %s --runner-pool-id %s --oidc-token-file FILE", to.URL, to.URL, who.Organization, made.Pool.ID)
	return nil
}

func poolToken(a *cli.App, t api.PoolToken) error {
	return a.PrintSecret(t, t.Token, "pool %s; its token is shown only once: store it, and give it to the agent as token or DAYFLY_TOKEN", t.Pool.Name)
}

type poolList struct{ cli.Watching }

// Run prints the list.
func (c *poolList) Run(a *cli.App, cl *client.Client) error {
	return cli.List(a, cl.Pools, "no pools",
		[]string{"POOL", "STATUS", "ACTIVE", "LIMIT", "TYPES", "LAST SEEN", "DESCRIPTION"}, func(p api.Pool) []string {
			return []string{p.Name, poolStatus(p), strconv.Itoa(p.Active), limit(p.Concurrency), types(p.EnabledTypes), seen(p), cli.Dash(p.Description)}
		})
}

func poolStatus(p api.Pool) string {
	if p.IsDisabled {
		return p.Status + ", disabled"
	}
	return p.Status
}

// assignedTo lists the assignments of a pool.
func assignedTo(p api.Pool) string {
	if p.AssignedToAll {
		return "all workspaces"
	}
	var parts []string
	for _, list := range []struct {
		one, many string
		names     []string
	}{
		{"workspace", "workspaces", p.AssignedWorkspaces}, {"project", "projects", p.AssignedProjects},
		{"stack", "stacks", p.AssignedStacks}, {"namespace", "namespaces", p.AssignedNamespaces},
	} {
		switch len(list.names) {
		case 0:
		case 1:
			parts = append(parts, list.one+" "+list.names[0])
		default:
			parts = append(parts, list.many+" "+strings.Join(list.names, ", "))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

func limit(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func types(list []workflow.Type) string {
	if len(list) == 0 {
		return "all"
	}
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = string(t)
	}
	return strings.Join(names, ",")
}

// seen says when an agent of a pool was last seen.
func seen(p api.Pool) string {
	switch {
	case p.LastSeen != nil:
		return cli.Ago(p.LastSeen)
	case time.Since(p.CreatedAt) > api.RunnerKept:
		return "over a day ago" // the control plane remembers no more
	}
	return "never"
}

type poolShow struct {
	Name string `arg:"" help:"The pool."`
	cli.Watching
}

// Run prints the pool and its runners.
func (c *poolShow) Run(a *cli.App, cl *client.Client) error {
	p, err := cl.Pool(a.Ctx, c.Name)
	if err != nil {
		return err
	}
	runners, err := cl.Runners(a.Ctx, c.Name)
	if err != nil {
		return err
	}
	if a.JSON() {
		return shown(a, kind.Pool, asPool(p), struct {
			api.Pool
			Runners []api.Runner `json:"runners"`
		}{p, runners.Items}, "")
	}

	var b strings.Builder
	line := cli.Lines(&b, term.Style{}, "", 21)
	line("pool", p.Name)
	line("description", cli.Dash(p.Description))
	line("status", poolStatus(p))
	line("role path", cli.Dash(p.RolePath))
	line("wake target", cli.Dash(p.WakeTarget))
	line("active", strconv.Itoa(p.Active)+" of "+limit(p.Concurrency))
	if p.OldestPending != nil {
		line("pending", fmt.Sprintf("%d, the oldest since %s", p.Pending, term.Time(*p.OldestPending)))
	}
	for _, r := range p.Refused {
		line("launches refused", fmt.Sprintf("%d by %s, tried again at %s: %s", r.Count, r.Reason, term.Time(r.RetryAt), term.Clean(r.Text)))
	}
	line("types", types(p.EnabledTypes))
	line("multiple instances", strconv.FormatBool(p.AllowMultipleInstances))
	line("labels", strings.Join(p.Labels, ", "))
	line("assigned to", assignedTo(p))
	line("last seen", seen(p))
	if _, err := fmt.Fprint(a.Stdout, b.String()+"\n"); err != nil {
		return err
	}
	return listRunners(a, runners.Items)
}

type poolUpdate struct {
	Name   string  `arg:"" help:"The pool."`
	Rename *string `help:"Its new name."`
	poolSettings
}

// Run changes the pool.
func (c *poolUpdate) Run(a *cli.App, cl *client.Client) error {
	in, err := c.settings()
	if err != nil {
		return err
	}
	in.Name = c.Rename
	if in == (api.PoolSettings{}) {
		return cli.Usage(fmt.Errorf("name at least one setting to change: see dayfly pool update --help"))
	}
	p, err := cl.UpdatePool(a.Ctx, c.Name, in)
	if err != nil {
		return err
	}
	return a.Done(p, "pool %s is changed", p.Name)
}

type poolRotate struct {
	Name    string        `arg:"" help:"The pool."`
	Overlap time.Duration `help:"How long the old token stays valid, such as 1h; default 0, which ends it at once."`
	cli.Confirmed
}

// Run makes the new token.
func (c *poolRotate) Run(a *cli.App, cl *client.Client) error {
	if err := c.ConfirmOverlap(a, c.Overlap, "token of pool "+c.Name); err != nil {
		return err
	}
	t, err := cl.RotatePoolToken(a.Ctx, c.Name, api.RotateToken{OverlapSeconds: int(c.Overlap / time.Second)})
	if err != nil {
		return err
	}
	return poolToken(a, t)
}

type poolDelete struct {
	Name string `arg:"" help:"The pool."`
	cli.Confirmed
}

// Run deletes the pool.
func (c *poolDelete) Run(a *cli.App, cl *client.Client) error {
	if err := c.Confirm(a, "this deletes pool %s and ends its token: its agents will claim nothing more", c.Name); err != nil {
		return err
	}
	if err := cl.DeletePool(a.Ctx, c.Name); err != nil {
		return err
	}
	if p, err := cl.Pool(a.Ctx, c.Name); err == nil && p.Status == "closed" {
		return a.Done(map[string]string{"closed": c.Name}, "pool %s is closed: it takes nothing new, and is deleted when the workflows submitted meanwhile have ended", c.Name)
	}
	return a.Done(map[string]string{"deleted": c.Name}, "pool %s is deleted", c.Name)
}
