package setup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// TakeoverCommands are the commands of dayfly takeover.
type TakeoverCommands struct {
	Report takeoverReport `cmd:"" help:"Preview workspaces, change nothing, and list which have no changes, which have some, and which are refused and why."`
}

type takeoverReport struct {
	Workspaces  []string `arg:"" optional:"" help:"The workspaces."`
	File        []string `short:"f" sep:"none" help:"The workspaces that a file or the files of a directory describe, as with dayfly apply. May be repeated."`
	Project     []string `help:"All workspaces of a project. May be repeated."`
	Name        string   `default:"takeover" help:"Name of the report. For a day, the same name keeps the previews that have succeeded; another name previews all again."`
	TakeOver    bool     `help:"Where a state exists elsewhere, such as beside the code, preview on a copy of it; it stays where it is."`
	Concurrency int      `default:"20" help:"How many previews at once."`
	Out         string   `placeholder:"FILE" help:"Write the report into a file."`
}

// The verdicts of a report, in the order in which they are listed.
const (
	verdictRefused   = "refused"
	verdictFailed    = "failed"
	verdictChanges   = "changes"
	verdictUncounted = "uncounted"
	verdictNoChanges = "no changes"
)

// refusals are the reasons to change the settings of a workspace first, or the things that they refer to.
var refusals = []workflow.Reason{
	workflow.ReasonStateElsewhere, workflow.ReasonStateOwned, workflow.ReasonStateNotKept, workflow.ReasonSecretUnavailable, workflow.ReasonRoleUnavailable,
	workflow.ReasonEngineNotFound, workflow.ReasonSourceFailed, workflow.ReasonSourceMoved, workflow.ReasonHookRefused, workflow.ReasonPolicyFailed,
	workflow.ReasonRunnerTooOld, workflow.ReasonExpiredInQueue, workflow.ReasonNeverStarted, workflow.ReasonLaunchFailed,
}

// Verdict is a line of the report.
type Verdict struct {
	Workspace string          `json:"workspace"`
	Verdict   string          `json:"verdict"`
	Changes   *api.Changes    `json:"changes,omitempty"`
	Reason    workflow.Reason `json:"reason,omitempty"`
	Detail    string          `json:"detail,omitempty"`
	Fix       string          `json:"fix,omitempty"`
	Workflow  string          `json:"workflow,omitempty"`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
}

// Run previews the workspaces and prints the report. It submits nothing but previews.
func (c *takeoverReport) Run(a *cli.App, cl *client.Client) error {
	if c.Concurrency < 1 || c.Concurrency > 200 {
		return cli.Usage(fmt.Errorf("--concurrency: want a number from 1 to 200, not %d", c.Concurrency))
	}
	list, err := c.chosen(a, cl)
	if err != nil {
		return err
	}
	r := &reporter{a: a, cl: cl, name: c.Name, takeOver: c.TakeOver, of: len(list), waiting: map[string]string{}}
	verdicts := make([]Verdict, len(list))
	err = cli.Each(a.Ctx, len(list), c.Concurrency, func(ctx context.Context, i int) (err error) {
		verdicts[i], err = r.preview(ctx, list[i])
		r.ended(list[i].Name)
		return err
	})
	if a.Ctx.Err() != nil {
		r.sayInterrupted()
		return &cli.ExitError{Code: cli.ExitInterrupted}
	}
	if err != nil {
		return &cli.ExitError{Code: cli.ExitCode(err), Err: errors.New(cli.FirstLines(err))}
	}

	rank := []string{verdictRefused, verdictFailed, verdictChanges, verdictUncounted, verdictNoChanges}
	slices.SortFunc(verdicts, func(x, y Verdict) int {
		return cmp.Or(slices.Index(rank, x.Verdict)-slices.Index(rank, y.Verdict), strings.Compare(x.Workspace, y.Workspace))
	})
	if err := c.print(a, verdicts); err != nil {
		return err
	}
	switch count := counted(verdicts); {
	case count[verdictRefused]+count[verdictFailed] > 0:
		return &cli.ExitError{Code: cli.ExitFailed}
	case count[verdictChanges] > 0:
		return &cli.ExitError{Code: cli.ExitChanges}
	}
	return nil
}

// chosen are the workspaces of the report, by name.
func (c *takeoverReport) chosen(a *cli.App, cl *client.Client) ([]api.Workspace, error) {
	if len(c.Workspaces)+len(c.File)+len(c.Project) == 0 {
		return nil, cli.Usage(errors.New("which workspaces? name some, or give -f DIR or --project PROJECT"))
	}
	names := slices.Clone(c.Workspaces)
	if len(c.File) > 0 {
		docs, err := readDocuments(a, c.File)
		if err != nil {
			return nil, cli.Usage(err)
		}
		for _, doc := range docs { // of other kinds as well, as dayfly apply takes them
			if w, ok := doc.Value.(api.Workspace); ok {
				names = append(names, w.Name)
			}
		}
		if len(names)+len(c.Project) == 0 {
			return nil, cli.Usage(fmt.Errorf("%s describes no workspace", strings.Join(c.File, ", ")))
		}
	}

	there, err := workspaces(a, cl)
	if err != nil {
		return nil, err
	}
	for name, w := range there {
		if slices.Contains(c.Project, cmp.Or(w.Project, "global")) {
			names = append(names, name)
		}
	}

	slices.Sort(names)
	var list []api.Workspace
	var missing []string
	for _, name := range slices.Compact(names) {
		if w, ok := there[name]; ok {
			list = append(list, w)
		} else {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) > 0:
		return nil, workflow.Refuse(workflow.ErrNotFound, "workspace", "there is no workspace %s, and nothing was previewed: register the missing ones with dayfly apply -f FILE", text.Cut(strings.Join(missing, ", "), 300))
	case len(list) == 0:
		return nil, cli.Refused(fmt.Errorf("there is no workspace in %s", strings.Join(c.Project, ", ")))
	}
	return list, nil
}

// reporter previews workspaces and says how far it is.
type reporter struct {
	a    *cli.App
	cl   *client.Client
	name string
	of   int

	takeOver bool

	mu       sync.Mutex
	done     int
	reported time.Time
	waiting  map[string]string // workflow by workspace
}

// preview submits a preview of a workspace, or finds the one that this report submitted before, and waits for its
// end.
func (r *reporter) preview(ctx context.Context, w api.Workspace) (Verdict, error) {
	run, err := r.submit(ctx, w)
	if refusal, ok := errors.AsType[*workflow.Error](err); ok && !errors.Is(err, workflow.ErrBusy) && !errors.Is(err, workflow.ErrUnauthenticated) && !errors.Is(err, workflow.ErrRevoked) && !errors.Is(err, workflow.ErrForbidden) {
		return Verdict{Workspace: w.Name, Verdict: verdictRefused, Detail: refusal.Message, Fix: fixOfRefusal(refusal, w.Name)}, nil
	}
	if err != nil {
		return Verdict{}, err
	}
	r.mu.Lock()
	r.waiting[w.Name] = run.ID
	r.mu.Unlock()
	for n := 0; !run.State.Terminal(); n++ {
		if err := wait.For(ctx, min(200*time.Millisecond<<min(n/4, 5), 5*time.Second)); err != nil {
			return Verdict{}, err
		}
		r.sayProgress()
		if run, err = r.cl.Workflow(ctx, run.ID); err != nil {
			return Verdict{}, err
		}
	}
	return judge(run, w), nil
}

// submit asks for the preview under a key that is the same for the same report, workspace and settings, so that an
// interrupted command goes on when it is repeated. A failed preview is submitted again, under a key that is made from
// the run that failed.
func (r *reporter) submit(ctx context.Context, w api.Workspace) (api.Workflow, error) {
	const maxTries = 100
	low := -50
	in := api.Submit{
		Workspace: w.Name, Type: workflow.Deployment, Operation: workflow.Preview,
		Priority: &low, Message: text.Cut("takeover report "+r.name, 200), TakeOver: r.takeOver && api.EngineOf(w.Engine).OwnState == "",
	}
	w.Version = 0
	settings, err := json.Marshal(w)
	if err != nil {
		return api.Workflow{}, err
	}
	last := ""
	for range maxTries {
		key := fmt.Sprintf("takeover-%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %q %t", r.name, settings, last, in.TakeOver)))
		if ctx.Err() != nil {
			return api.Workflow{}, context.Cause(ctx)
		}
		run, err := r.submitOne(ctx, key, in)
		if err != nil || run.State == workflow.Succeeded || !run.State.Terminal() {
			return run, err
		}
		last = run.ID
	}
	return api.Workflow{}, fmt.Errorf("workspace %s was previewed %d times in a day under this name: give the report another one with --name", w.Name, maxTries)
}

// submitOne also waits for its answer after an interrupt: previews that go on must be named.
func (r *reporter) submitOne(ctx context.Context, key string, in api.Submit) (api.Workflow, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.SubmitTimeout)
	defer cancel()
	return r.cl.SubmitOnce(ctx, key, in)
}

// judge is the verdict on a preview that has ended.
func judge(run api.Workflow, w api.Workspace) Verdict {
	v := Verdict{Workspace: run.Workspace, Reason: run.Reason, Detail: run.Detail, Workflow: run.ID, EndedAt: run.EndedAt}
	switch {
	case run.State == workflow.Succeeded && (run.Result == nil || run.Result.Changes == nil):
		v.Verdict, v.Detail = verdictUncounted, "its commands do not say what they would change: read the log"
	case run.State == workflow.Succeeded:
		counts := *run.Result.Changes
		counts.Resources = nil
		v.Verdict, v.Changes = verdictNoChanges, &counts
		if counts.Any() {
			v.Verdict = verdictChanges
		}
	case slices.Contains(refusals, run.Reason):
		v.Verdict, v.Fix = verdictRefused, fixOf(run, w)
	default:
		v.Verdict, v.Fix = verdictFailed, fixOf(run, w)
	}
	return v
}

func (r *reporter) ended(workspace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.a.Ctx.Err() == nil {
		r.done++
		delete(r.waiting, workspace)
	}
}

// sayProgress says now and then how far the report is.
func (r *reporter) sayProgress() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.reported.IsZero() {
		r.reported = now
	}
	if now.Sub(r.reported) < 10*time.Second {
		return
	}
	r.reported = now
	for _, workspace := range slices.Sorted(maps.Keys(r.waiting)) {
		r.a.Say("previewed %d of %d; %s not ended, such as %s of %s: dayfly why %s", r.done, r.of, text.Are(len(r.waiting), "preview"), r.waiting[workspace], workspace, r.waiting[workspace])
		return
	}
}

// sayInterrupted lists the previews that go on after an interrupt.
func (r *reporter) sayInterrupted() {
	r.a.Say("interrupted: previewed %d of %d", r.done, r.of)
	for _, workspace := range slices.Sorted(maps.Keys(r.waiting)) {
		r.a.Say("  %s of %s goes on; dayfly workflow cancel %s ends it", r.waiting[workspace], workspace, r.waiting[workspace])
	}
	r.a.Say("repeat the command with --name %s to go on with the report", r.name)
}

func counted(verdicts []Verdict) map[string]int {
	count := map[string]int{}
	for _, v := range verdicts {
		count[v.Verdict]++
	}
	return count
}

// print writes the report to standard output, or into its file.
func (c *takeoverReport) print(a *cli.App, verdicts []Verdict) error {
	var b bytes.Buffer
	var err error
	count := counted(verdicts)
	totals := fmt.Sprintf("%s: %d no changes, %d changes, %d refused, %d failed", text.Count(len(verdicts), "workspace"),
		count[verdictNoChanges], count[verdictChanges], count[verdictRefused], count[verdictFailed])
	if n := count[verdictUncounted]; n > 0 {
		totals += fmt.Sprintf(", %d not counted", n)
	}
	if a.JSON() {
		err = a.EncodeTo(&b, map[string]any{"report": c.Name, "totals": count, "workspaces": verdicts})
	} else {
		style := a.Style()
		if c.Out != "" {
			style = term.Style{}
		}
		err = writeReport(&b, style, verdicts, totals)
	}
	switch {
	case err != nil:
		return err
	case c.Out == "":
		_, err = io.Copy(a.Stdout, &b)
		return err
	}
	if err := disk.Replace(c.Out, b.Bytes()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	a.Say("%s; the report is in %s", totals, c.Out)
	return nil
}

func writeReport(w io.Writer, style term.Style, verdicts []Verdict, totals string) error {
	t := term.NewTable("WORKSPACE", "VERDICT", "CHANGES", "REASON", "WORKFLOW")
	for _, v := range verdicts {
		changes := ""
		if v.Changes != nil {
			changes = runtext.Changes(*v.Changes, false)
		}
		t.Row(v.Workspace, v.Verdict, cli.Dash(changes), cli.Dash(string(v.Reason)), cli.Dash(v.Workflow))
	}
	if err := t.Write(w, style, ""); err != nil {
		return err
	}
	var b strings.Builder
	for _, v := range verdicts {
		if v.Verdict == verdictRefused || v.Verdict == verdictFailed {
			fmt.Fprintf(&b, "\n%s: %s\n  fix: %s\n", style.Bold(v.Workspace), cli.Dash(v.Detail), term.Clean(v.Fix))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", totals)
	_, err := io.WriteString(w, b.String())
	return err
}
