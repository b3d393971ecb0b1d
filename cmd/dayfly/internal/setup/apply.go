// Package setup has the commands by which an organization is set up: apply and all that it reads, pools, projects,
// workspaces, and the settings of each kind.
package setup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/discover"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ApplyCommand is dayfly apply.
type ApplyCommand struct {
	File             []string `short:"f" required:"" sep:"none" help:"A file, a directory (its files *.yaml and *.yml, not those below it), or - for standard input; --- separates several documents. May be repeated."`
	DryRun           bool     `help:"Show what would change, and change nothing."`
	DetailedExitcode bool     `help:"Exit with 2 if something is changed, or would be, and with 1 where the control plane refuses."`
	Prune            bool     `help:"Delete the workspaces that no file describes, in the projects that the files name."`
	Project          []string `help:"With --prune: only in this project. May be repeated."`
	cli.Confirmed
}

// readDocuments reads all files, before anything is changed.
func readDocuments(a *cli.App, args []string) (docs []workspacefile.Document, err error) {
	var errs []error
	var files []string
	for _, arg := range args {
		more, err := filesOf(arg)
		files, errs = append(files, more...), append(errs, err)
	}
	for i, file := range files {
		var more []workspacefile.Document
		var err error
		switch {
		case file != "-":
			more, err = workspacefile.ReadAll(file)
		case slices.Contains(files[:i], "-"):
			err = errors.New("-f -: standard input can be read only once")
		default:
			more, err = workspacefile.ReadFrom(a.Stdin, "standard input", ".")
		}
		docs, errs = append(docs, more...), append(errs, err)
	}

	from := map[string]string{}
	for i, doc := range docs {
		if w, ok := doc.Value.(api.Workspace); ok {
			discover.Widen(&w)
			docs[i].Value = w
		}
		name, bad := nameOf(doc)
		if bad != nil {
			errs = append(errs, fmt.Errorf("%s: %w", doc.Place, bad))
		}
		thing := strings.TrimSpace(doc.Kind + " " + name)
		if first, twice := from[thing]; twice && bad == nil {
			errs = append(errs, fmt.Errorf("%s: %s is described in %s too; describe it once", doc.Place, thing, first))
		}
		from[thing] = doc.Place
	}
	return docs, errors.Join(errs...)
}

// outcomePruned is the outcome of a workspace that no file describes, beside the outcomes of api.
const outcomePruned api.Outcome = "pruned"

// Change is the change of a thing that a document describes, or of a workspace that none describes.
type Change struct {
	Kind    string      `json:"kind"`
	Name    string      `json:"name,omitempty"`
	Outcome api.Outcome `json:"outcome"`
	Changes []string    `json:"changes,omitempty"` // where it is changed: the lines of the difference

	place  string                                         // of the document
	stage  int                                            // in which it is done: things that others refer to come first
	wave   int                                            // within the stage: of workspaces, those that depend on others come later
	hidden []string                                       // fields whose values a difference does not show
	ask    string                                         // the loss to confirm, in a sentence; empty: nothing is lost
	do     func(ctx context.Context) (api.Outcome, error) // makes the change
	then   func(ctx context.Context) error                // second step, when all things exist; nil: none
}

// title is its kind and name.
func (ch Change) title() string { return strings.TrimSpace(ch.Kind + " " + ch.Name) }

// wrong says which document an error is about.
func (ch Change) wrong(err error) error {
	if err == nil {
		return nil
	}
	said := fmt.Sprintf("%s: %s", ch.title(), cli.Sentence(err))
	if ch.place != "" {
		said = ch.place + ": " + said
	}
	return &cli.ExitError{Code: cli.ExitCode(err), Err: errors.New(said)}
}

// Run checks all documents, then makes things as they say, then deletes the workspaces that none describes.
func (c *ApplyCommand) Run(a *cli.App, cl *client.Client) error {
	if !c.Prune && len(c.Project) > 0 {
		return cli.Usage(errors.New("--project: goes with --prune"))
	}
	return cli.Detailed(c.DetailedExitcode, c.apply(a, cl))
}

// apply makes things as files describe them, then deletes the workspaces that are unnamed in them.
func (c *ApplyCommand) apply(a *cli.App, cl *client.Client) error {
	docs, err := readDocuments(a, c.File)
	if err != nil {
		return cli.Usage(err)
	}
	there, err := workspaces(a, cl)
	if err != nil {
		return err
	}
	gone, err := c.unnamed(cl, docs, there)
	if err != nil {
		return cli.Usage(err)
	}

	p := planner{a: a, cl: cl, docs: docs, workspaces: there, organizationName: sync.OnceValues(func() (string, error) {
		org, err := cl.Organization(a.Ctx)
		return org.Name, err
	})}
	list, err := p.plan()
	if err != nil {
		return err
	}
	all := slices.Concat(list, gone)
	if c.DryRun {
		return cmp.Or(c.show(a, all, "would be"), c.differs(all))
	}

	for _, ch := range list {
		if ch.ask != "" {
			if err := c.Confirm(a, "%s", ch.ask); err != nil {
				return err
			}
		}
	}
	if len(gone) > 0 {
		names := make([]string, len(gone))
		for i, w := range gone {
			names[i] = w.Name
		}
		if err := c.Confirm(a, "this deletes the settings of %s that no file describes (%s), and leaves the infrastructure that they made", text.Count(len(gone), "workspace"), text.Some(names, 10)); err != nil {
			return err
		}
	}

	done, err := applyAll(a.Ctx, all)
	if shown := c.show(a, done, "is"); shown != nil {
		return shown
	}
	return cmp.Or(err, c.differs(done))
}

// differs is the exit code that --detailed-exitcode asks for.
func (c *ApplyCommand) differs(list []Change) error {
	if c.DetailedExitcode && slices.ContainsFunc(list, func(ch Change) bool { return ch.Outcome != api.OutcomeUnchanged }) {
		return &cli.ExitError{Code: cli.ExitDiffers}
	}
	return nil
}

// workspaces are all that there are, by name.
func workspaces(a *cli.App, cl *client.Client) (map[string]api.Workspace, error) {
	all := map[string]api.Workspace{}
	list, _, err := cli.Gather(a, math.MaxInt, cl.Workspaces)
	for _, w := range list {
		all[w.Name] = w
	}
	return all, err
}

// unnamed deletes the workspaces that --prune means: in the projects of --project, else in those that the files name
// in words. A file that names no project defines no scope.
func (c *ApplyCommand) unnamed(cl *client.Client, docs []workspacefile.Document, there map[string]api.Workspace) ([]Change, error) {
	if !c.Prune {
		return nil, nil
	}
	scope, named := slices.Clone(c.Project), map[string]bool{}
	for _, doc := range docs {
		if w, ok := doc.Value.(api.Workspace); ok {
			named[w.Name] = true
			if w.Project != "" && len(c.Project) == 0 {
				scope = append(scope, w.Project)
			}
		}
	}
	if len(scope) == 0 {
		return nil, errors.New("--prune: no file names a project, so it is not clear which workspaces are meant; use --project")
	}

	var gone []Change
	order, last := waves(slices.Collect(maps.Values(there))), 0
	for _, wave := range order {
		last = max(last, wave)
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if w := there[name]; !named[name] && slices.Contains(scope, cmp.Or(w.Project, "global")) {
			gone = append(gone, Change{Kind: kind.Workspace, Name: name, Outcome: outcomePruned, stage: kind.StagePrune, wave: last - order[name], do: func(ctx context.Context) (api.Outcome, error) {
				err := cl.DeleteWorkspace(ctx, name)
				if errors.Is(err, workflow.ErrNotFound) {
					err = nil
				}
				return outcomePruned, err
			}})
		}
	}
	return gone, nil
}

// applyAll makes changes, stage by stage, and returns those that were made. After an error no new one is begun; but a
// workspace that cannot be deleted, because it has runs, does not stop the deletion of others.
func applyAll(ctx context.Context, list []Change) (done []Change, err error) {
	made, errs := make([]bool, len(list)), make([]error, len(list))
	inner, stop := context.WithCancel(ctx)
	defer stop()
	for stage := range kind.Stages {
		atOnce := 1
		if stage == kind.StageWorkspaces || stage == kind.StagePrune {
			atOnce = cli.CallsAtOnce
		}
		for wave := range 1 + lastWave(list, stage) {
			_ = cli.Each(inner, len(list), atOnce, func(_ context.Context, i int) error {
				ch, outcome := &list[i], list[i].Outcome
				// A call that has begun is not cut off: its outcome would not be known.
				ctx, err := context.WithoutCancel(ctx), error(nil)
				switch {
				case ch.stage == stage && ch.wave == wave:
					outcome, err = ch.do(ctx)
				case stage == kind.StageAssignments && wave == 0 && ch.then != nil:
					err = ch.then(ctx)
				default:
					return nil
				}
				if errs[i] = ch.wrong(err); err == nil {
					ch.Outcome, made[i] = outcome, true
				} else if stage != kind.StagePrune {
					stop()
				}
				return nil
			})
		}
	}

	if err = errors.Join(errs...); err != nil {
		err = &cli.ExitError{Code: cli.ExitCode(err), Err: errors.New(cli.FirstLines(err))}
	} else if ctx.Err() != nil {
		err = &cli.ExitError{Code: cli.ExitInterrupted, Err: errors.New("interrupted: the changes listed above are done; repeat the command for the rest")}
	}
	for i, ch := range list {
		if made[i] {
			done = append(done, ch)
		}
	}
	return done, err
}

// lastWave is the last wave of a stage.
func lastWave(list []Change, stage int) (last int) {
	for _, ch := range list {
		if ch.stage == stage {
			last = max(last, ch.wave)
		}
	}
	return last
}

// waves say in which order workspaces are made, so that each comes after those that it depends on: by their names,
// counted from 0. Those of a cycle, which is refused, come in any order.
func waves(all []api.Workspace) map[string]int {
	on, out := map[string][]string{}, map[string]int{}
	for _, w := range all {
		on[w.Name], _ = rules.DependsOn(w)
		out[w.Name] = 0
	}
	for range all { // the longest way has fewer steps than there are workspaces
		moved := false
		for name, list := range on {
			for _, other := range list {
				if at, described := out[other]; described && other != name && out[name] <= at && at < len(all) {
					out[name], moved = at+1, true
				}
			}
		}
		if !moved {
			break
		}
	}
	return out
}

// show prints the changes that were made, or would be.
func (c *ApplyCommand) show(a *cli.App, list []Change, is string) error {
	count, style := map[api.Outcome]int{}, a.Style()
	var err error
	if a.JSON() {
		err = a.Encode(list)
	}
	for _, ch := range list {
		count[ch.Outcome]++
		if a.JSON() {
			continue
		}
		err = errors.Join(err, a.Print("%s %s %s", ch.title(), is, ch.Outcome))
		for _, line := range ch.Changes {
			err = errors.Join(err, a.Print("  %s", style.Difference(term.Clean(line))))
		}
	}
	if !a.JSON() && (c.DryRun || len(list) > 1) {
		a.Say("%s %d created, %d changed, %d unchanged, %d pruned", map[bool]string{true: "would be:", false: "in all:"}[c.DryRun], count[api.OutcomeCreated], count[api.OutcomeChanged], count[api.OutcomeUnchanged], count[outcomePruned])
	}
	return err
}

// maxValue is how many characters of a value a difference shows.
const maxValue = 300

// differences are the fields that differ between two things, as the lines of a difference. Hidden fields, such as
// variables and the environment, are named without their values: these are for the engine, and a log of CI has many
// readers. Partly: only fields that the second one names.
func differences(before, after any, partly bool, hiddenFields []string) (out []string, err error) {
	was, err := fieldsOf(before)
	if err != nil {
		return nil, err
	}
	now, err := fieldsOf(after)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for field := range now {
		top, _, _ := strings.Cut(field, ".")
		named[top] = true
	}

	all := maps.Clone(was)
	maps.Copy(all, now)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		old, had := was[field]
		value, has := now[field]
		top, _, below := strings.Cut(field, ".")
		switch {
		case field == "version" || field == "id" || partly && !named[top] || old == value && had == has:
		case below && slices.Contains(hiddenFields, top):
			out = append(out, hiddenLine(field, had, has))
		default:
			if had {
				out = append(out, "- "+field+": "+text.Cut(old, maxValue))
			}
			if has {
				out = append(out, "+ "+field+": "+text.Cut(value, maxValue))
			}
		}
	}
	return out, nil
}

// hiddenLine is the line of a difference for a field whose values are not shown.
func hiddenLine(field string, had, has bool) string {
	switch {
	case !had:
		return "+ " + field + " (not shown)"
	case !has:
		return "- " + field + " (not shown)"
	}
	return "~ " + field + " (changed, not shown)"
}

// fieldsOf are the values of a thing by the path of their field.
func fieldsOf(thing any) (map[string]string, error) {
	data, err := json.Marshal(thing)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	out := map[string]string{}
	var add func(field string, v any)
	add = func(field string, v any) {
		inner, ok := v.(map[string]any)
		if !ok || strings.HasPrefix(field, "variables.") {
			value, err := json.Marshal(v)
			if err != nil {
				value = []byte("?") // it was JSON before
			}
			out[field] = string(value)
			return
		}
		for name, v := range inner {
			add(strings.TrimPrefix(field+"."+name, "."), v)
		}
	}
	add("", tree)
	return out, nil
}
