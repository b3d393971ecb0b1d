package main

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

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// callsAtOnce is how many calls a command about many workspaces makes at once.
const callsAtOnce = 8

type workspaceApply struct {
	File    []string `short:"f" required:"" sep:"none" help:"A workspace file, a directory with some, or - for standard input; --- separates several workspaces. May be repeated."`
	DryRun  bool     `help:"Show what would change, and change nothing."`
	Prune   bool     `help:"Delete the workspaces that no file describes, in the projects that the files name."`
	Project []string `help:"With --prune: only in this project. May be repeated."`
	confirmed
}

// readWorkspaces reads all files, before anything is registered.
func readWorkspaces(a *app, args []string) (list []api.Workspace, err error) {
	var errs []error
	var files []string
	for _, arg := range args {
		more, err := filesOf(arg)
		files, errs = append(files, more...), append(errs, err)
	}
	from := map[string]string{}
	for i, file := range files {
		var more []api.Workspace
		var err error
		switch {
		case file != "-":
			more, err = workspacefile.Read(file)
		case slices.Contains(files[:i], "-"):
			err = errors.New("-f -: standard input can be read only once")
		default:
			more, err = workspacefile.ReadFrom(a.stdin, "standard input", ".")
		}
		for _, w := range more {
			if bad := workflow.CheckWorkspaceName(w.Name); bad != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", file, bad))
			}
			if first, twice := from[w.Name]; twice {
				err = errors.Join(err, fmt.Errorf("%s: workspace %s is described in %s too; describe it once", file, w.Name, first))
			}
			from[w.Name] = file
		}
		list, errs = append(list, more...), append(errs, err)
	}
	return list, errors.Join(errs...)
}

// outcomePruned is what became of a workspace that no file describes, beside the outcomes of api.
const outcomePruned api.Outcome = "pruned"

// applied is a workspace and what was done with it, or would be.
type applied struct {
	api.Workspace
	Outcome api.Outcome `json:"outcome"`
	Changes []string    `json:"changes,omitempty"` // where it is changed: field, old -> new
}

// Run checks all workspaces of the files, then registers them, then deletes those that no file describes.
func (c *workspaceApply) Run(a *app, cl *client.Client) error {
	list, err := readWorkspaces(a, c.File)
	if err != nil {
		return usage(err)
	}
	there, err := workspaces(a, cl)
	if err != nil {
		return err
	}
	gone, err := c.unnamed(list, there)
	if err != nil {
		return usage(err)
	}
	would, err := c.check(a, cl, list, there)
	if err != nil {
		return err
	}
	if c.DryRun {
		for _, w := range gone {
			would = append(would, applied{Workspace: w, Outcome: outcomePruned})
		}
		return c.show(a, would, "would be")
	}
	if len(gone) > 0 {
		names := make([]string, len(gone))
		for i, w := range gone {
			names[i] = w.Name
		}
		if err := c.confirm(a, "this deletes the settings of %s that no file describes (%s), and leaves the infrastructure that they made", text.Count(len(gone), "workspace"), text.Some(names, 10)); err != nil {
			return err
		}
	}
	done, err := put(a.ctx, cl, list)
	if err != nil {
		if shown := c.show(a, done, "is"); shown != nil {
			return shown
		}
		return err
	}
	pruned, err := prune(a.ctx, cl, gone)
	if shown := c.show(a, append(done, pruned...), "is"); shown != nil {
		return shown
	}
	return err
}

// workspaces are all that there are, by name.
func workspaces(a *app, cl *client.Client) (map[string]api.Workspace, error) {
	all := map[string]api.Workspace{}
	list, _, err := gather(a, math.MaxInt, cl.Workspaces)
	for _, w := range list {
		all[w.Name] = w
	}
	return all, err
}

// unnamed are the workspaces that --prune deletes: in the projects of --project, else in those that the files name in
// words. A file that names no project says nothing about what else there may be.
func (c *workspaceApply) unnamed(list []api.Workspace, there map[string]api.Workspace) ([]api.Workspace, error) {
	if !c.Prune {
		if len(c.Project) > 0 {
			return nil, errors.New("--project: goes with --prune")
		}
		return nil, nil
	}
	scope, named := slices.Clone(c.Project), map[string]bool{}
	for _, w := range list {
		named[w.Name] = true
		if w.Project != "" && len(c.Project) == 0 {
			scope = append(scope, w.Project)
		}
	}
	if len(scope) == 0 {
		return nil, errors.New("--prune: no file names a project, so it is not clear which workspaces are meant; say --project")
	}
	var gone []api.Workspace
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if w := there[name]; !named[name] && slices.Contains(scope, cmp.Or(w.Project, "global")) {
			gone = append(gone, w)
		}
	}
	return gone, nil
}

// each calls do for every number below n, some at once, and stops at the first error of ctx. All errors are returned,
// in their order.
func each(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	errs := make([]error, n)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				errs[i] = do(ctx, i)
			}
			return nil
		})
	}
	_ = group.Wait() // it has none of its own
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// ofWorkspace says which workspace an error is about.
func ofWorkspace(name string, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitCode(err), err: fmt.Errorf("workspace %s: %s", name, sentence(err))}
}

// check asks the control plane what would become of each workspace, before any of them is changed.
func (c *workspaceApply) check(a *app, cl *client.Client, list []api.Workspace, there map[string]api.Workspace) ([]applied, error) {
	would := make([]applied, len(list))
	err := each(a.ctx, len(list), callsAtOnce, func(ctx context.Context, i int) error {
		w, outcome, err := cl.CheckWorkspace(ctx, list[i])
		if earlier(err) && !c.DryRun {
			return nil // it is checked when it is put
		} else if earlier(err) {
			return refused(errors.New("this control plane is of an earlier version, which cannot say what would change: apply without --dry-run, or upgrade it"))
		}
		if err != nil {
			return ofWorkspace(list[i].Name, err)
		}
		would[i] = applied{Workspace: w, Outcome: outcome}
		if outcome == api.OutcomeChanged {
			would[i].Changes, err = differences(there[w.Name], w)
		}
		return err
	})
	if err != nil && a.ctx.Err() == nil {
		return nil, &exitError{code: exitCode(err), err: fmt.Errorf("%s\nnothing was changed", firstLines(err))}
	}
	return would, err
}

// earlier reports whether a control plane does not know a call.
func earlier(err error) bool {
	refusal, ok := errors.AsType[*workflow.Error](err)
	return ok && errors.Is(err, workflow.ErrNotFound) && refusal.Field == ""
}

// firstLines are the different lines of an error, up to a number.
func firstLines(err error) string {
	const most = 20
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// put registers workspaces. After an error no new one is begun.
func put(ctx context.Context, cl *client.Client, list []api.Workspace) ([]applied, error) {
	stored := make([]applied, len(list))
	inner, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var first error
	_ = each(inner, len(list), callsAtOnce, func(_ context.Context, i int) error {
		// What has begun is not cut off: its outcome would not be known.
		w, outcome, err := cl.PutWorkspace(context.WithoutCancel(ctx), list[i])
		if err != nil {
			mu.Lock()
			if first == nil {
				first = ofWorkspace(list[i].Name, err)
			}
			mu.Unlock()
			stop()
			return nil
		}
		stored[i] = applied{Workspace: w, Outcome: outcome}
		return nil
	})
	if first == nil && ctx.Err() != nil {
		first = &exitError{code: exitInterrupted, err: errors.New("interrupted: the workspaces above are registered; repeat the command for the rest")}
	}
	return slices.DeleteFunc(stored, func(w applied) bool { return w.Outcome == "" }), first
}

// prune deletes workspaces. One that has runs stays, and the others go all the same.
func prune(ctx context.Context, cl *client.Client, gone []api.Workspace) ([]applied, error) {
	stay := make([]bool, len(gone))
	err := each(ctx, len(gone), callsAtOnce, func(ctx context.Context, i int) error {
		err := cl.DeleteWorkspace(ctx, gone[i].Name)
		stay[i] = err != nil && !errors.Is(err, workflow.ErrNotFound)
		if !stay[i] {
			return nil
		}
		return ofWorkspace(gone[i].Name, err)
	})
	var done []applied
	for i, w := range gone {
		if !stay[i] && ctx.Err() == nil {
			done = append(done, applied{Workspace: w, Outcome: outcomePruned})
		}
	}
	if err != nil && ctx.Err() == nil {
		err = &exitError{code: exitCode(err), err: errors.New(firstLines(err))}
	}
	return done, err
}

// show prints what was done, or would be.
func (c *workspaceApply) show(a *app, list []applied, is string) error {
	if a.json() {
		return a.encode(list)
	}
	count := map[api.Outcome]int{}
	for _, w := range list {
		count[w.Outcome]++
		if err := a.print("workspace %s %s %s", w.Name, is, w.Outcome); err != nil {
			return err
		}
		for _, line := range w.Changes {
			if err := a.print("  %s", term.Clean(line)); err != nil {
				return err
			}
		}
	}
	if c.DryRun || len(list) > 1 {
		a.say("%s %d created, %d changed, %d unchanged, %d pruned", map[bool]string{true: "would be:", false: "in all:"}[c.DryRun], count[api.OutcomeCreated], count[api.OutcomeChanged], count[api.OutcomeUnchanged], count[outcomePruned])
	}
	return nil
}

// differences are the fields that differ between two workspaces, each on a line with both values. Variables and the
// environment are named without their values: what stands there is for the engine, and a log of CI has many readers.
func differences(before, after api.Workspace) ([]string, error) {
	was, err := fieldsOf(before)
	if err != nil {
		return nil, err
	}
	now, err := fieldsOf(after)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(was)
	maps.Copy(all, now)
	var out []string
	for _, field := range slices.Sorted(maps.Keys(all)) {
		old, had := was[field]
		value, has := now[field]
		top, _, below := strings.Cut(field, ".")
		hidden := below && slices.Contains([]string{"variables", "environment", "commands"}, top)
		switch {
		case field == "version" || field == "id" || old == value && had == has:
		case hidden && !had:
			out = append(out, field+"  (added)")
		case hidden && !has:
			out = append(out, field+"  (removed)")
		case hidden:
			out = append(out, field+"  (changed)")
		default:
			out = append(out, fmt.Sprintf("%s  %s -> %s", field, cmp.Or(old, "(none)"), cmp.Or(value, "(none)")))
		}
	}
	return out, nil
}

// fieldsOf are the values of a workspace by the path of their field.
func fieldsOf(w api.Workspace) (map[string]string, error) {
	data, err := json.Marshal(w)
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
			out[field] = text.Cut(string(value), 300)
			return
		}
		for name, v := range inner {
			add(strings.TrimPrefix(field+"."+name, "."), v)
		}
	}
	add("", tree)
	return out, nil
}
