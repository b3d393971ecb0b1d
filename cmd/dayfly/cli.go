package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Exit codes. They are part of the interface: scripts decide by them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitRefused     = 2
	exitDiffers     = 2 // with --detailed-exitcode, where a refusal is 1
	exitUnreachable = 3
	exitCancelled   = 4
	exitTimeout     = 5
	exitChanges     = 6
	exitAwaiting    = 7
	exitUsage       = 64
	exitInterrupted = 130
)

const description = `Runs infrastructure-as-code workflows on runners that live for one job.

Start with "dayfly up" in one terminal and "dayfly run ./DIR --op preview --follow" in another. Commands talk to the control plane in DAYFLY_URL, with the token in DAYFLY_API_TOKEN, or else to that of the last "dayfly up" or "dayfly login".

Exit codes: 0 done, or the workflow succeeded; 1 the workflow failed, you did not confirm, the audit trail is broken, or a server stopped on an error; 2 the control plane refused, or with --detailed-exitcode there are changes; 3 the control plane cannot be reached; 4 the workflow was cancelled; 5 what you waited for goes on after the time that you gave; 6 the previews of a report found changes; 7 the plan of the run waits for an approval; 64 wrong usage; 130 interrupted at a prompt, with --watch, or while following a workflow (which goes on).`

// grammar is the command line.
type grammar struct {
	Output string `short:"o" enum:"table,json,yaml,name,dot" default:"table" help:"How results are printed: table, json, yaml, or name: only names or ids, one to a line; of graph also dot."`

	Color string `enum:"auto,always,never" default:"auto" help:"Whether results have colours: auto, always or never."`

	Up     upCommand      `cmd:"" group:"serve" help:"Run control plane and agent in one process, on this machine."`
	Server serverCommands `cmd:"" group:"serve" help:"Run the control plane alone; back up and restore its records."`
	Agent  agentCommand   `cmd:"" group:"serve" help:"Run the workflows of a pool on this machine, or as Fargate tasks."`

	Configure configureCommand `cmd:"" group:"serve" help:"Write the settings file of an agent, and try its token."`

	Run       runCommand        `cmd:"" group:"work" help:"Run a workspace, or a directory as one."`
	Apply     applyCommand      `cmd:"" group:"work" help:"Make workspaces, pools, projects, settings of all kinds and those of the organization as files describe them; show the difference."`
	CI        ciCommand         `cmd:"" name:"ci" group:"work" help:"In a pipeline of GitHub Actions or GitLab CI: preview what a pull request changes, and say so there; apply what was merged."`
	Open      openCommand       `cmd:"" group:"work" help:"Print and open the web page of a workflow, a workspace or a pool."`
	Why       whyCommand        `cmd:"" group:"work" help:"Show what a workflow waits for, since when, and what happens next."`
	Workflow  workflowCommands  `cmd:"" group:"work" aliases:"wf" help:"List, show, follow, cancel and retry workflows; approve their plans."`
	Tree      treeCommands      `cmd:"" group:"work" help:"List, show and cancel trees: runs of a workspace and of all that depend on it."`
	Workspace workspaceCommands `cmd:"" group:"work" aliases:"ws" help:"Discover, list, show and delete workspaces."`
	Graph     graphCommand      `cmd:"" group:"work" help:"Draw which workspaces depend on which."`
	Schedule  settingCommands   `cmd:"" group:"work" help:"List, show and delete schedules, which run workspaces by the clock."`
	Takeover  takeoverCommands  `cmd:"" group:"work" help:"Preview many workspaces, and list what each of them would do."`
	Outputs   outputCommand     `cmd:"" name:"output" group:"work" help:"Print the outputs of a workspace's last run that changed its state."`
	State     stateCommands     `cmd:"" group:"work" help:"List, copy and replace a workspace's state, and release its lock."`
	Policy    policyCommands    `cmd:"" group:"work" help:"List, show and delete policy groups, which hold runs to rules; test packages of policies."`
	Artifact  artifactCommands  `cmd:"" group:"work" help:"List and copy the files that workflows left."`
	Hook      hookCommands      `cmd:"" group:"work" help:"Print the digests of hooks, by which pools allow them."`
	Secret    secretCommands    `cmd:"" group:"work" help:"Store secrets on this machine for its runners."`

	Pool         poolCommands         `cmd:"" group:"admin" help:"Create, list, show, change, assign, explain, drain and delete pools of runners."`
	Waiver       settingCommands      `cmd:"" group:"admin" help:"List, show and delete waivers, by which a workspace passes a rule of a policy group for a time."`
	Project      projectCommands      `cmd:"" group:"admin" help:"Create, list, show, change and delete projects."`
	Organization organizationCommands `cmd:"" group:"admin" aliases:"org" help:"Show and change the default pool, the limit, and for how long things are kept."`

	Issuer           settingCommands `cmd:"" group:"admin" help:"List, show and delete the OIDC issuers whose tokens are taken."`
	GitHost          gitHostCommands `cmd:"" group:"admin" help:"List, show and delete the git hosts whose webhooks are taken; make the secrets of these anew."`
	ServicePrincipal serviceCommands `cmd:"" group:"admin" aliases:"sp" help:"Create and change programs that log in with an id and a secret."`

	Notification settingCommands  `cmd:"" group:"admin" help:"List, show and delete notifications, which send what happens to runs."`
	Delivery     deliveryCommands `cmd:"" group:"admin" help:"List what was sent for notifications, and send again what failed."`

	Repair    repairCommands    `cmd:"" group:"admin" help:"Free a workspace that a lost run still holds, and say whose a state is."`
	Audit     auditCommands     `cmd:"" group:"admin" help:"List, follow, export and verify who did what."`
	Principal principalCommands `cmd:"" group:"admin" help:"Create and list the people and programs that tokens are given to."`
	Token     tokenCommands     `cmd:"" group:"admin" help:"Create, list and revoke user tokens."`
	Login     loginCommand      `cmd:"" group:"admin" help:"Log in to a control plane, and make it the one that commands talk to."`
	Logout    logoutCommand     `cmd:"" group:"admin" help:"Forget the token for a control plane."`
	Whoami    whoamiCommand     `cmd:"" group:"admin" help:"Show who the token in use speaks for, and what it may do."`
	Version   versionCommand    `cmd:"" group:"admin" help:"Print the version."`

	Schema     schemaCommand     `cmd:"" group:"admin" help:"Print the JSON Schema of a settings file or of a workspace file, for editors."`
	Completion completionCommand `cmd:"" group:"admin" help:"Print the script that completes commands, flags, ids and names in bash, zsh or fish."`
}

// app is what every command gets.
type app struct {
	ctx    context.Context //nolint:containedctx // a command is one call; kong binds values, not parameters
	getenv func(string) string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	output string
	parsed *kong.Context

	detailed bool // whether the exit code tells changes of a workflow that is followed

	color  string
	screen io.Writer // where stdout leads in the end; nil: it is that itself
	over   bool      // nothing more will change
}

// everything is the number of items that lists without a limit stop at.
const everything = 10_000

// list prints all that there is of something: as JSON, or as a table with these headings and a row for each.
func list[T any](a *app, page func(ctx context.Context, cursor string, limit int) (api.Page[T], error), empty string, head []string, row func(T) []string) error {
	_, err := listUpTo(a, everything, page, empty, head, row)
	return err
}

// gather reads up to a number of items; more says that some are left.
func gather[T any](a *app, most int, page func(ctx context.Context, cursor string, limit int) (api.Page[T], error)) (items []T, more bool, err error) {
	items, more = []T{}, true
	for cursor := ""; more && len(items) < most; more = cursor != "" {
		p, err := page(a.ctx, cursor, min(200, most-len(items)))
		if err != nil {
			return nil, false, err
		}
		items, cursor = append(items, p.Items...), p.Next
	}
	return items, more, nil
}

// listUpTo prints up to a number of items; more says that some are left.
func listUpTo[T any](a *app, most int, page func(ctx context.Context, cursor string, limit int) (api.Page[T], error), empty string, head []string, row func(T) []string) (more bool, err error) {
	items, more, err := gather(a, most, page)
	if err != nil {
		return false, err
	}
	if a.json() {
		return more, a.encode(items)
	}
	t := term.NewTable(head...)
	for _, one := range items {
		t.Row(row(one)...)
	}
	return more, t.Write(a.stdout, a.style(), empty)
}

// lines returns what writes one fact to a line, if there is anything to say of it.
func lines(b *strings.Builder, style term.Style, indent string, width int) func(name, value string) {
	return func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "%s%s%s%s\n", indent, style.Dim(name), strings.Repeat(" ", width-len(name)), term.Clean(value))
		}
	}
}

// environ lists the environment, for settings, where unknown names are mistakes.
func (a *app) environ() []string {
	var list []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if v := a.getenv(name); v != "" {
			list = append(list, name+"="+v)
		}
	}
	return list
}

// json reports whether results are wanted for programs: as JSON, or what is made of it.
func (a *app) json() bool { return a.output != "table" }

func (a *app) style() term.Style {
	if a.screen != nil {
		return a.styleOf(a.screen)
	}
	return a.styleOf(a.stdout)
}

func (a *app) styleOf(w io.Writer) term.Style {
	style := term.StyleOf(w, a.getenv)
	style.Color = style.Color && a.color != "never" || a.color == "always"
	return style
}

// print writes a line of result.
func (a *app) print(format string, args ...any) error {
	_, err := fmt.Fprintf(a.stdout, format+"\n", args...)
	return err
}

// say writes a line for the person, which is not a result.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, format+"\n", args...)
}

// connect returns the client of the control plane that commands talk to.
func (a *app) connect() (*client.Client, error) {
	target, err := credentials.Find(a.getenv)
	if err != nil {
		return nil, usage(err)
	}
	if target.Expired(time.Now()) {
		return nil, refused(fmt.Errorf("your login at %s has expired: dayfly login", target.URL))
	}
	return dial(target)
}

// dial returns a client; it does not connect.
func dial(to credentials.Target) (*client.Client, error) {
	return client.New(client.Config{URL: to.URL, Token: func() redact.String { return to.Token }, UserAgent: "dayfly/" + versionText()})
}

// exitError ends the process with a code; err is empty where everything was already said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as a mistake of whoever typed the command: it was found without asking a control plane.
func usage(err error) error { return &exitError{code: exitUsage, err: err} }

// refused marks an error as the control plane's answer, in words that fit the command.
func refused(err error) error { return &exitError{code: exitRefused, err: err} }

// detailed is an error with the exit code that --detailed-exitcode wants: 2 means changes, and so never a refusal.
func detailed(wanted bool, err error) error {
	if err == nil || !wanted || exitCode(err) != exitRefused || sentence(err) == "" { // without a sentence it is no refusal
		return err
	}
	return &exitError{code: exitFailed, err: errors.New(sentence(err))}
}

// report says what went wrong, in one sentence, and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if text := sentence(err); text != "" {
		_, _ = fmt.Fprintln(stderr, "dayfly: "+text)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if errors.Is(err, client.ErrUnreachable) {
		return exitUnreachable
	}
	if refusal, ok := errors.AsType[*workflow.Error](err); ok {
		if errors.Is(refusal, workflow.ErrBusy) || errors.Is(refusal, workflow.ErrTooMany) {
			return exitUnreachable
		}
		return exitRefused
	}
	return exitFailed
}

// refusals are the texts of all refusals in an error, in their order.
func refusals(err error) []string {
	switch e := err.(type) { //nolint:errorlint // each layer is looked at
	case *workflow.Error:
		for _, kind := range []error{workflow.ErrNotFound, workflow.ErrExists, workflow.ErrInUse, workflow.ErrConflict, workflow.ErrForbidden} {
			if e.Kind == kind { //nolint:errorlint // it is the sentinel itself
				return []string{e.Message} // nothing is wrong with what was typed: the field is for programs
			}
		}
		return []string{e.Error()}
	case interface{ Unwrap() []error }:
		var all []string
		for _, one := range e.Unwrap() {
			all = append(all, refusals(one)...)
		}
		return all
	case interface{ Unwrap() error }:
		return refusals(e.Unwrap())
	}
	return nil
}

// sentence is the text of an error for a person.
func sentence(err error) string {
	switch {
	case errors.Is(err, workflow.ErrUnauthenticated), errors.Is(err, workflow.ErrRevoked):
		return "the control plane does not accept this token: log in again with dayfly login, or set DAYFLY_API_TOKEN"
	case errors.Is(err, client.ErrUnreachable):
		return err.Error() + "; is it running? dayfly up starts one here"
	}
	text := err.Error()
	if _, ours := errors.AsType[*exitError](err); !ours {
		text = cmp.Or(strings.Join(refusals(err), "\n"), text) // without the call that was refused
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = term.Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}
