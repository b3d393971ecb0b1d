package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	oldestTerragrunt = "0.89.0" // before it a report of a run is an experiment
	withinFrom       = "1.0.0"  // units outside of the directory are skipped by default, and the variable for that is an error

	planName = "tfplan.json" // of each unit, below the directory that --json-out-dir names

	maxUnits     = 1000
	maxUnitBytes = 40 << 10 // of the JSON of their results
	maxCounted   = 100_000  // outputs of one unit
	maxReport    = 16 << 20
	maxCauses    = 3 // units whose errors a failure shows
)

// askTerragrunt are the arguments with which it prints its version.
func askTerragrunt() []string { return []string{"--version"} }

var terragruntVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^terragrunt version v?(\d+\.\d+\.\d+\S*)`)
})

// versionOfTerragrunt reads its answer.
func versionOfTerragrunt(answer []byte) (*version.Version, error) {
	m := terragruntVersion().FindStringSubmatch(strings.TrimSpace(text.WithoutEscapes(string(answer))))
	if m == nil {
		return nil, errors.New("its answer is not that of terragrunt")
	}
	return version.NewVersion(m[1])
}

// terragrunt is one run of terragrunt over all units below a directory. The order of the units is terragrunt's.
type terragrunt struct {
	h    Host
	j    Job
	mode mode
	op   workflow.Operation
	bin  binary
	env  []string
	temp *folder
	root *folder

	approved *approved         // nil: none was asked for
	pinned   map[string][]byte // plan and lock files that are to be approved, or were, by their names below planDir
	planDir  string
	sums     string // file with the digests of the plans that may be applied
	shownIn  string // directory of what the wrapped engine shows of each plan, once it is there
	mocked   *spot  // of a plan on mock outputs

	nothing bool               // applying would do nothing
	plans   map[string]summary // by the path of their units
	units   []string           // that have outputs
	ignored []string           // units whose error terragrunt ignored in the apply
	printed string             // directory of what the wrapped engine printed of each apply
	shown   PolicyInputs       // the input of policies
	done    *api.Changes       // changes that were applied
	out     Outcome
}

func runTerragrunt(ctx context.Context, h Host, j Job) (Outcome, error) {
	op, m, _, err := modeOfJob(j)
	if err != nil {
		return Outcome{}, err
	}
	g := &terragrunt{h: h, j: j, op: op, mode: m, plans: map[string]summary{}}
	if kind := j.Spec.State.Kind; kind != api.StateSource {
		return Outcome{}, &Failure{
			Reason: workflow.ReasonStateNotKept, Err: workflow.ErrInvalid,
			Detail: api.EngineOf(j.Spec.Engine).OwnState + "; set the workspace's state to kind source",
		}
	}
	if j.Providers != "" {
		h.Logf("the cache of providers is not used with terragrunt: each of its units has a lock file of its own")
	}
	err = g.prepare()
	defer closeAll(g.temp, g.root)
	if err == nil {
		err = g.steps(ctx)
	}
	if err != nil {
		out := denied(j.Spec, g.out, err)
		if g.done != nil {
			out.Changes, out.Units, out.Truncated = g.done, g.out.Units, g.out.Truncated
		}
		return out, asFailure(ctx, err)
	}
	return g.out, nil
}

func (g *terragrunt) prepare() (err error) {
	if g.temp, err = openFolder(g.j.TempDir, g.j.Owner); err != nil {
		return err
	}
	if g.root, err = openFolder(g.j.Root, g.j.Owner); err != nil {
		return err
	}
	if g.j.Root, err = filepath.EvalSymlinks(g.j.Root); err != nil { // as terragrunt prints it
		return err
	}
	g.env = append(baseEnv(""), secretsEnv(g.j.SecretsDir)...)
	variables := variablesOf(g.j.Spec)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value, err := variableText(name, variables[name])
		if err != nil {
			return err
		}
		g.env = append(g.env, "TF_VAR_"+name+"="+value)
	}
	return g.clear()
}

// clear removes files of an earlier terragrunt from the source: they could name a wrong place of a state, or say that
// one could not be written.
func (g *terragrunt) clear() error {
	return fs.WalkDir(g.root.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == erroredName {
			return g.root.root.RemoveAll(name)
		}
		if err != nil || !d.IsDir() || d.Name() != ".terragrunt-cache" && d.Name() != ".terraform" {
			return err
		}
		return cmp.Or(g.root.root.RemoveAll(name), fs.SkipDir)
	})
}

func (g *terragrunt) steps(ctx context.Context) error {
	if err := g.h.Step(ctx, stepInit, g.init); err != nil {
		return err
	}
	var err error
	if g.approved != nil {
		err = g.h.Step(ctx, stepCheck, g.check)
	} else {
		err = g.h.Step(ctx, stepPlan, g.plan)
	}
	if err == nil {
		err = g.checkPolicies(ctx)
	}
	if err != nil || !g.mode.apply {
		return err
	}
	if g.nothing {
		err = g.h.Skip(ctx, stepApply, "no changes")
	} else {
		err = g.h.Step(ctx, stepApply, g.apply)
	}
	if err != nil || g.mode.destroy { // then there are no outputs, and units that need them would fail
		return err
	}
	return g.h.Step(ctx, stepOutput, g.output)
}

// init finds terragrunt, and the tofu or terraform that it is to run. engine_version is terragrunt's own: of the other
// any version will do, because the code itself says which it needs.
func (g *terragrunt) init(ctx context.Context) (_ string, err error) {
	if g.bin, err = located(ctx, g.h, g.j); err != nil {
		return "", err
	}
	said := "terragrunt " + g.bin.version.String()
	if !minAt(g.bin.version, oldestTerragrunt) {
		return "", &Failure{Reason: workflow.ReasonEngineNotFound, Detail: fmt.Sprintf("%s at %s is too old: Dayfly runs %s or newer", said, g.bin.path, oldestTerragrunt)}
	}
	if !minAt(g.bin.version, withinFrom) { // units outside of the workspace's source path are others' business
		g.env = append(g.env, "TG_QUEUE_EXCLUDE_EXTERNAL=true")
	}
	wrapped := ""
	if own := g.j.Getenv; own != nil {
		wrapped = own("TG_TF_PATH")
	}
	if wrapped != "" {
		said += " with " + wrapped
	} else {
		name := api.EngineTofu
		bin, err := find(ctx, g.h, g.j, name, "")
		if err != nil && context.Cause(ctx) == nil {
			name = api.EngineTerraform
			bin, err = find(ctx, g.h, g.j, name, "")
		}
		if err != nil {
			return "", &Failure{Reason: workflow.ReasonEngineNotFound, Err: err, Detail: text.Middle("terragrunt runs tofu or terraform, and there is neither: "+err.Error(), maxDetail)}
		}
		wrapped = bin.path
		said += fmt.Sprintf(" with %s %s", name, bin.version)
	}
	g.h.Logf("%s at %s", said, g.bin.path)
	if g.j.Spec.Plan != nil {
		if err := g.fetchApproved(ctx); err != nil {
			return "", err
		}
	}
	return said, g.wrapEngine(wrapped)
}

// wrapEngine gives terragrunt a script in place of the wrapped engine. The script refuses to change a unit if its
// state would be lost with the run. Checking the plans is not enough, because units that need outputs may have no
// plan before the apply. It also keeps what an apply prints, with its directory. The engine replaces the shell, so that
// it gets terragrunt's signals itself; a signal must not end tee before it.
func (g *terragrunt) wrapEngine(wrapped string) error {
	dir := newName("engine-", "")
	g.printed = newName("printed-", "")
	if err := cmp.Or(g.temp.mkdir(dir), g.temp.mkdir(g.printed)); err != nil {
		return err
	}
	name := path.Join(dir, filepath.Base(wrapped))
	script := fmt.Sprintf(`#!/bin/sh
case "$1" in apply | destroy)
	backend=$(tr -d ' \n' <"${TF_DATA_DIR:-.terraform}/%[1]s" 2>/dev/null | sed -n 's/.*"backend":{"type":"\([a-z0-9]*\)".*/\1/p')
	case "$backend" in '' | local)
		echo "Error: %[2]s" >&2
		exit 1 ;;
	esac
%[5]s	if kept=$(mktemp -d %[3]s/XXXXXXXXXX) && pwd -P >"$kept/dir" && mkfifo "$kept/pipe"; then
		(trap '' HUP INT TERM && exec tee "$kept/printed" <"$kept/pipe") &
		exec %[4]s "$@" >"$kept/pipe"
	fi ;;
%[6]sesac
exec %[4]s "$@"
`, stateName, "the state of this unit would be lost when the task ends, or stay on this machine: it is a local file. "+wantRemote, text.ShellWord(g.temp.join(g.printed)), text.ShellWord(wrapped), g.onlyApproved(), g.keepsShown())
	err := g.temp.write(name, []byte(script))
	if err == nil {
		err = g.temp.root.Chmod(name, 0o700)
	}
	g.env = append(g.env, "TG_TF_PATH="+g.temp.join(name))
	return err
}

// wantRemote is what to do about units without a remote backend.
const wantRemote = "Declare a remote_state with a remote backend"

// stateLost says why units without a remote backend are not run.
func stateLost(units string, outside bool) string {
	if outside {
		return "the state of " + units + " is a file outside of the source, which a run on another machine would not find"
	}
	return "the state of " + units + " would be lost when the task ends: it is a file in the source"
}

// plan plans all units. For a run that applies, it is a forecast: terragrunt plans each unit again after its
// dependencies were applied.
func (g *terragrunt) plan(ctx context.Context) (string, error) {
	dir := newName("plans-", "")
	if err := g.temp.mkdir(dir); err != nil {
		return "", err
	}
	ended, err := g.run(ctx, stepPlan, []string{"--out-dir", g.temp.join(dir), "--json-out-dir", g.temp.join(dir)}, g.planArgs())
	if err != nil {
		return "", err
	}
	mocked := g.mocked.seen
	if len(g.j.Spec.Policies) > 0 {
		if err := g.h.EndProcesses(ctx); err != nil {
			return "", runnerError(err)
		}
	}
	if err := g.readPlans(dir, ended); err != nil {
		return "", err
	}
	switch {
	case ended.failed() && (!g.mode.apply || g.mode.destroy || !ended.tooEarly()):
		return "", ended.failure(stepPlan)
	case len(g.plans)+len(ended.named(unitIgnored)) == 0:
		return "", stepFailed(stepPlan, errors.New("terragrunt found no unit, which is a directory with a terragrunt.hcl"))
	}
	why := g.notApprovable(ended, mocked)
	if g.j.Spec.For != "" && why == "" {
		return g.storePlans(ctx, dir, ended)
	}
	g.units = slices.Sorted(maps.Keys(g.plans))
	states, err := g.checkBackends(g.units)
	if err == nil {
		err = claimStates(ctx, g.h, g.j.Spec.Workflow, !g.mode.apply, states...)
	}
	if err != nil {
		return "", err
	}
	all, err := mergePlans(g.plans)
	if err != nil {
		return "", stepFailed(stepPlan, err)
	}
	said := g.recordPlans(ctx, ended, all)
	if g.j.Spec.For == "" {
		return said, nil
	}
	g.h.Logf("%s", why)
	return said + "; " + why, nil
}

// recordPlans records the changes of all units together as those of the run, and describes them.
func (g *terragrunt) recordPlans(ctx context.Context, e ended, all summary) string {
	c := all.changes
	g.out.Changes, g.out.Truncated, g.out.Checks = &c, all.truncated, all.checks.result()
	g.listUnits(e, g.plans, nil)
	ignored := len(e.named(unitIgnored)) > 0
	g.nothing = !e.failed() && !ignored && !all.truncated && len(c.Resources)+len(c.Outputs) == 0
	if g.mode.scan {
		g.out.Inventory = keepInventory(ctx, g.h, all.managed)
	}
	said := fmt.Sprintf("%s, in %s", all.text(g.mode), text.Count(len(g.plans), "unit"))
	if e.failed() || ignored {
		g.unplanned(e)
	}
	if e.failed() {
		said += "; the others need outputs of units that were never applied"
	}
	return said + e.leftOut()
}

func (g *terragrunt) planArgs() []string {
	args := []string{"plan", "-input=false", "-lock=false"}
	if g.mode.destroy {
		args = append(args, "-destroy")
	}
	if g.mode.refreshOnly {
		args = append(args, "-refresh-only")
	}
	return args
}

// readPlans reads the plan of each unit that has one. That of a unit whose error was ignored is not whole.
func (g *terragrunt) readPlans(dir string, e ended) error {
	return fs.WalkDir(g.temp.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != planName {
			return err
		}
		unit := path.Dir(strings.TrimPrefix(name, dir+"/"))
		if len(g.plans) == maxUnits {
			return stepFailed(stepPlan, fmt.Errorf("there are more than %d units: give the workspace a smaller part of the tree", maxUnits))
		}
		var s summary
		raw, err := g.temp.read(name, maxPlanJSON)
		if err == nil {
			s, err = readPlan(raw, g.mode)
		}
		if e.result(unit) == unitIgnored {
			g.h.Mask(s.secrets...)
			return nil
		}
		if err != nil {
			return stepFailed(stepPlan, fmt.Errorf("read the plan of unit %s: %w", unit, err))
		}
		g.h.Mask(s.secrets...)
		g.plans[unit] = s
		g.addPolicyInput(unit, raw)
		return nil
	})
}

// mergePlans makes one summary of the plans of several units, under addresses that begin with the units' paths.
func mergePlans(plans map[string]summary) (all summary, err error) {
	c := &all.changes
	for _, unit := range slices.Sorted(maps.Keys(plans)) {
		s := plans[unit]
		all.truncated = all.truncated || s.truncated
		for _, r := range s.changes.Resources {
			r.Address = inUnit(unit, r.Address)
			if r.From != "" {
				r.From = inUnit(unit, r.From)
			}
			c.Resources = append(c.Resources, r)
		}
		for _, o := range s.changes.Outputs {
			c.Outputs = append(c.Outputs, api.OutputChange{Name: inUnit(unit, o.Name), Action: o.Action})
		}
		for _, name := range s.checks {
			all.checks = append(all.checks, inUnit(unit, name))
		}
		for _, m := range s.managed {
			m.Address = inUnit(unit, m.Address)
			all.managed = append(all.managed, m)
		}
		more := s.changes
		c.Add, c.Change, c.Destroy, c.Drift = c.Add+more.Add, c.Change+more.Change, c.Destroy+more.Destroy, c.Drift+more.Drift
		c.Replace, c.Import, c.Move, c.Forget = c.Replace+more.Replace, c.Import+more.Import, c.Move+more.Move, c.Forget+more.Forget
	}
	return all, all.finish()
}

// inUnit names something of a unit. The unit may be the directory of the run itself.
func inUnit(unit, name string) string {
	if unit == "." {
		return name
	}
	return unit + "/" + name
}

// checkBackends refuses units whose state would be lost with the run: those without a backend, or with the backend
// local. A unit with a plan has been initialised. It returns the places of the units' states.
func (g *terragrunt) checkBackends(units []string) ([]api.StateRef, error) {
	states, lost, outside, err := g.places(units)
	if err != nil || len(lost)+len(outside) == 0 {
		return states, err
	}
	var said []string
	if len(lost) > 0 {
		said = append(said, stateLost(text.Some(lost, maxListed), false))
	}
	if len(outside) > 0 {
		said = append(said, stateLost(text.Some(outside, maxListed), true))
	}
	return nil, &Failure{
		Reason: workflow.ReasonStateNotKept,
		Detail: text.Middle(strings.Join(append(said, wantRemote), ". "), maxDetail),
	}
}

// places says where units have their states, and which have none that outlives the run, or only one in a file of this
// machine.
func (g *terragrunt) places(units []string) (states []api.StateRef, lost, outside []string, err error) {
	workspace := defaultWorkspace
	if g.j.Getenv != nil {
		workspace = cmp.Or(g.j.Getenv("TF_WORKSPACE"), workspace)
	}
	for _, unit := range units {
		is, err := g.backend(unit)
		if err != nil {
			return nil, nil, nil, err
		}
		switch {
		case g.outside(is):
			outside = append(outside, unit)
			continue
		case is.Type == "" || is.Type == "local":
			lost = append(lost, unit)
			continue
		}
		found := api.StateFound{Backend: is.Type, Settings: digest(is.Type, is.Config), Workspace: workspace}
		states = append(states, api.StateRef{Place: placeID(found, is.Config, g.j.Getenv), Unit: text.Cut(unit, 1000)})
	}
	return states, lost, outside, nil
}

// outside reports whether a state is a file that does not lie in the copy of the source.
func (g *terragrunt) outside(is backendRecord) bool {
	file, _ := is.Config["path"].(string)
	if is.Type != "local" || !filepath.IsAbs(file) {
		return false
	}
	top, err := filepath.EvalSymlinks(cmp.Or(g.j.Top, g.j.Root)) // as terragrunt sees it
	rel, relErr := filepath.Rel(top, file)
	return err != nil || relErr != nil || !filepath.IsLocal(rel)
}

// backend is the backend that the wrapped engine has set up for a unit: beside its terragrunt.hcl, or in terragrunt's
// cache there.
func (g *terragrunt) backend(unit string) (found backendRecord, err error) {
	for _, top := range []string{path.Join(unit, ".terraform"), path.Join(unit, ".terragrunt-cache")} {
		err := fs.WalkDir(g.root.root.FS(), top, func(name string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.Name() != ".terraform" {
				return err
			}
			is, err := recorded(g.root, path.Join(name, stateName))
			if err == nil && is.Type != "" && found.Type != "local" { // one that is local is enough
				found = is
			}
			return cmp.Or(err, fs.SkipDir)
		})
		if err != nil {
			return found, fmt.Errorf("find out where the state of unit %s is kept: %w", unit, err)
		}
	}
	return found, nil
}

// apply applies or destroys all units. The result is what each unit did, also of a run that failed or was interrupted.
func (g *terragrunt) apply(ctx context.Context) (string, error) {
	args := []string{"apply", "-input=false"} // with --all, terragrunt adds -auto-approve
	var flags []string
	switch {
	case g.mode.destroy:
		args[0] = "destroy"
	case g.mode.refreshOnly && g.approved == nil: // a plan file says so itself
		args = append(args, "-refresh-only")
	}
	if g.approved != nil {
		if err := g.placePlans(ctx); err != nil {
			return "", err
		}
		flags = []string{"--out-dir", g.temp.join(g.planDir)}
	}
	ended, err := g.run(ctx, stepApply, flags, args)
	did, asPlanned := g.did(ended)
	if all, mergeErr := mergePlans(did); mergeErr == nil && (len(did)+len(ended.units) > 0 || !ended.failed()) {
		g.done, g.out.Changes, g.out.Truncated = &all.changes, &all.changes, all.truncated
		g.listUnits(ended, did, asPlanned)
	}
	if err != nil {
		return "", g.keepErrored(ctx, err)
	}
	if ended.failed() {
		failed := ended.failure(stepApply)
		none := g.done == nil || !g.done.Any()
		if g.approved != nil && none && strings.Contains(ended.printed, "Saved plan is stale") {
			failed = planStale("the state of a unit has moved: " + failed.Error())
		}
		return "", g.keepErrored(ctx, failed)
	}
	g.out.Checks = nil // they were the plans'
	var late []string
	for _, unit := range ended.named(unitSucceeded, unitIgnored) {
		info, err := g.root.root.Stat(unit)
		if _, planned := g.plans[unit]; !planned && err == nil && info.IsDir() {
			late = append(late, unit)
		}
	}
	g.units = append(g.units, late...)
	g.ignored = ended.named(unitIgnored)
	states, _, _, err := g.places(late) // which were not known before
	if err == nil && len(states) > 0 {
		err = claimStates(ctx, g.h, g.j.Spec.Workflow, true, states...) // they are applied by now
	}
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(did, func(unit string, _ summary) bool { return !ended.succeeded(unit) })
	said := fmt.Sprintf("%s, in %s%s", runtext.Changes(*g.done, true), text.Count(len(did), "unit"), ended.leftOut())
	if len(asPlanned) > 0 {
		said += "; as planned, because the engine did not print what it did: " + text.Some(asPlanned, maxListed)
	}
	return said, nil
}

// outputsOf reads the outputs of a unit, in the form of `output -json`, and its checks that fail. Both are in its
// state. Where that cannot be read, the engine is asked for the outputs, and nothing is known of the checks.
func (g *terragrunt) outputsOf(ctx context.Context, unit string) (raw []byte, failing checks, err error) {
	doc, err := g.pull(ctx, unit)
	if err == nil && doc != nil {
		if raw, err = doc.outputs(); !errors.Is(err, errNotToRead) {
			return raw, doc.checks, err
		}
	}
	out := &buffer{limit: maxOutputJSON}
	if err = g.ask(ctx, unit, out, "output", "-json"); err == nil && out.over {
		err = errTooLong
	}
	return out.Bytes(), nil, err
}

// pull reads the state of a unit.
func (g *terragrunt) pull(ctx context.Context, unit string) (*document, error) {
	file := newName("pulled-", ".tfstate")
	out, err := g.temp.create(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.temp.root.Remove(file) }()
	if err := errors.Join(g.ask(ctx, unit, &limited{out, maxState}, "state", "pull"), out.Close()); err != nil {
		return nil, err
	}
	return documentOf(g.temp, file)
}

// ask runs a command of the wrapped engine in a unit.
func (g *terragrunt) ask(ctx context.Context, unit string, to io.Writer, command ...string) error {
	said := &tail{limit: 32 << 10}
	code, err := g.h.Exec(ctx, Command{
		Args: append([]string{g.bin.path, "run", "--non-interactive", "--no-color", "--tf-forward-stdout", "--"}, command...),
		Dir:  g.root.join(unit), Env: g.env, Stdout: to, Stderr: said, Quiet: true,
	})
	switch {
	case err != nil:
		return runnerError(err)
	case code != 0:
		return fmt.Errorf("exit code %d: %s", code, firstOf(string(said.bytes())))
	}
	return nil
}

// output reads the outputs of each unit and, after an apply, its checks.
func (g *terragrunt) output(ctx context.Context) (string, error) {
	var all found
	var failing checks
	for _, unit := range g.units {
		raw, fails, err := g.outputsOf(ctx, unit)
		for _, name := range fails {
			failing = append(failing, inUnit(unit, name))
		}
		if errors.Is(err, errTooLong) {
			g.out.Truncated = true
			continue
		}
		var f found
		if err == nil {
			f, err = readOutputs(raw)
		}
		if _, notRun := errors.AsType[*Failure](err); notRun {
			return "", err
		}
		if err != nil && slices.Contains(g.ignored, unit) {
			g.h.Logf("the outputs of unit %s, whose error terragrunt ignored, cannot be read: %v", unit, err)
			continue
		}
		if err != nil {
			return "", stepFailed(stepOutput, fmt.Errorf("unit %s: %w", unit, err))
		}
		for _, o := range f.outputs {
			o.Name = inUnit(unit, o.Name)
			all.outputs = append(all.outputs, o)
		}
		all.secrets = append(all.secrets, f.secrets...)
		for name, value := range f.hidden {
			if all.hidden == nil {
				all.hidden = map[string]any{}
			}
			all.hidden[inUnit(unit, name)] = value
		}
	}
	if g.done != nil {
		g.out.Checks = failing.result()
	}
	g.out.storeSensitive(ctx, g.h, g.j.Spec, all)
	return g.out.takeOutputs(g.h, all), nil
}

// run runs a command of the wrapped engine in all units.
func (g *terragrunt) run(ctx context.Context, step string, flags, command []string) (ended, error) {
	args := append([]string{g.bin.path, "run", "--all", "--non-interactive", "--no-color"}, flags...)
	for _, flag := range g.j.Spec.Flags[step] {
		switch {
		case strings.HasPrefix(flag, "--log-level=") && g.j.Spec.For != "": // its warnings say which plans are of mock outputs
		case strings.HasPrefix(flag, "--"): // terragrunt's own
			args = append(args, flag)
		case flag != "-refresh=false" || !g.mode.refreshOnly:
			command = append(command, flag)
		}
	}
	report := newName("report-", ".json")
	args = append(args, "--report-file", g.temp.join(report), "--report-format", "json")
	said := &tail{limit: 64 << 10}
	g.mocked = &spot{text: []byte("mock outputs provided and returning those")}
	log := g.h.LogWriter()
	code, err := g.h.Exec(ctx, Command{
		Args: append(append(args, "--"), command...), Dir: g.j.Root, Env: g.env, Stderr: io.MultiWriter(said, g.mocked, log),
	})
	if err = errors.Join(err, log.Close()); err != nil || context.Cause(ctx) != nil {
		if context.Cause(ctx) != nil {
			err = interrupted(ctx, " during "+step)
		}
		return ended{code: -1}, err
	}
	e := ended{code: code, printed: string(said.bytes()), root: g.j.Root}
	raw, err := g.temp.read(report, maxReport)
	if err == nil {
		e.units, err = readReport(raw, g.j.Root)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // there is none where no unit could begin
		return ended{code: -1}, stepFailed(step, fmt.Errorf("the report of terragrunt cannot be read: %w", err))
	}
	return e, nil
}
