package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// terraform is one run of terraform or tofu.
type terraform struct {
	h        Host
	j        Job
	op       workflow.Operation // operation of the plan: the run's, or the one that it prepares
	mode     mode
	readOnly bool
	silent   bool // its commands are not shown
	bin      binary

	temp   *folder // of this run
	top    *folder // the source
	inner  string  // the root module in it
	root   *folder // the root module
	data   *folder // TF_DATA_DIR
	aside  *folder // state files of the source, beside the root module; nil: none
	state  *folder // with a directory of states, that or a copy
	opened []*folder

	planName    string
	planFile    string
	varFile     string // of the workspace's variables
	runVarFile  string // of the run's
	backendFile string // settings that complete the backend of the code

	code      declared
	place     place
	workspace string         // the engine's
	settings  backendRecord  // of the backend that init has set up
	is        api.StateFound // the place, as it is known again
	doc       *document      // the state as it was last seen
	taken     string         // the place that it was taken over from
	keeps     bool           // found is recorded for the next run

	providers providers // from the cache

	forHooks []string // variables with which hooks use the engine

	approved *approved    // the plan to apply; nil: the run makes its own
	pinned   []byte       // the plan file that policies have seen, or that was approved: it alone is applied; nil: any
	shown    PolicyInputs // the input of policies

	locking bool // a call that takes the state's lock was started and did not succeed
	out     Outcome
}

func runTerraform(ctx context.Context, h Host, j Job) (Outcome, error) {
	op, m, readOnly, err := modeOfJob(j)
	if err != nil {
		return Outcome{}, err
	}
	t := &terraform{h: h, j: j, op: op, mode: m, readOnly: readOnly}
	t.mode.refreshOnly = m.refreshOnly || t.options().RefreshOnly
	err = t.prepare()
	defer t.close()
	if err != nil {
		return Outcome{}, runnerError(err)
	}
	err = t.steps(ctx)
	t.out.State = t.found()
	if err != nil {
		out := denied(j.Spec, t.out, err)
		out.State = t.out.State
		return out, t.failure(ctx, err)
	}
	return t.out, nil
}

// prepare opens the directories of the run, before the engine can have changed them.
func (t *terraform) prepare() (err error) {
	if t.temp, err = openFolder(t.j.TempDir, t.j.Owner); err != nil {
		return err
	}
	if t.root, err = openFolder(t.j.Root, t.j.Owner); err != nil {
		return err
	}
	top := cmp.Or(t.j.Top, t.j.Root)
	if t.inner, err = filepath.Rel(top, t.j.Root); err != nil {
		return err
	}
	if t.top, err = openFolder(top, t.j.Owner); err != nil {
		return err
	}
	data := newName("tf-data-", "")
	if err = t.temp.mkdir(data); err != nil {
		return err
	}
	if t.data, err = openFolder(t.temp.join(data), t.j.Owner); err != nil {
		return err
	}
	if t.j.Aside != "" {
		if t.aside, err = openFolder(t.j.Aside, nil); errors.Is(err, fs.ErrNotExist) {
			t.aside = nil // a module of a repository that has nothing of the kind
		} else if err != nil {
			return err
		}
	}
	t.planName = newName("plan-", ".tfplan")
	t.planFile = t.temp.join(t.planName)
	t.varFile, err = t.writeVariables(t.j.Spec.Variables)
	return err
}

// writeVariables writes variables to a file of this run, and returns its path; empty where there are none.
func (t *terraform) writeVariables(variables map[string]any) (string, error) {
	if len(variables) == 0 {
		return "", nil
	}
	name := newName("vars-", ".tfvars.json")
	raw, err := json.Marshal(variables)
	if err == nil {
		err = t.temp.write(name, raw)
	}
	if err != nil {
		return "", fmt.Errorf("write variables: %w", err)
	}
	return t.temp.join(name), nil
}

// placedVariables is the name of the n-th file of variables that lies beside the code. Both engines read it by
// themselves, after the code's own.
func placedVariables(n int, ending string) string {
	return fmt.Sprintf("~dayfly-%02d.auto.tfvars%s", n, ending)
}

// placeVariables also puts the files of variables of plan beside the code, where other commands need them: with tofu,
// backends and sources of modules may have variables, and an ephemeral variable is asked for again when a plan is
// applied. The names are ours: a file of such a name in the source is not part of the code.
func (t *terraform) placeVariables() error {
	if !t.code.asks {
		return nil
	}
	if err := t.removeVariables(); err != nil {
		return err
	}
	for n, name := range t.varFiles() {
		if t.readable(name) != nil {
			continue // the plan says so
		}
		from := t.top
		if own, ok := strings.CutPrefix(name, t.temp.path+"/"); ok {
			from, name = t.temp, own
		} else {
			name = t.fromTop(name)
		}
		raw, err := from.root.ReadFile(name)
		if err == nil {
			ending := ""
			if path.Ext(name) == ".json" {
				ending = ".json"
			}
			err = t.root.write(placedVariables(n, ending), raw)
		}
		if err != nil {
			return runnerError(fmt.Errorf("write variables: %w", err))
		}
	}
	return nil
}

// removeVariables removes these files.
func (t *terraform) removeVariables() error {
	for n := range t.varFiles() {
		for _, ending := range []string{"", ".json"} {
			if err := t.root.root.Remove(placedVariables(n, ending)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return runnerError(fmt.Errorf("remove variables: %w", err))
			}
		}
	}
	return nil
}

func (t *terraform) close() {
	closeAll(append(t.opened, t.temp, t.root, t.top, t.data, t.state, t.aside)...)
}

func (t *terraform) steps(ctx context.Context) error {
	if err := t.h.Step(ctx, stepInit, t.init); err != nil {
		return err
	}
	empty, err := t.planOrCheck(ctx)
	if err == nil {
		err = t.checkPolicies(ctx)
	}
	if err != nil || t.mode.evaluate {
		return err
	}
	switch t.op { //nolint:exhaustive // all others plan
	case workflow.StateList:
		return t.h.Step(ctx, stepState, t.list)
	case workflow.StateUnlock:
		return t.h.Step(ctx, stepState, t.unlock)
	case workflow.StatePull:
		return t.h.Step(ctx, stepState, t.pullState)
	case workflow.StatePush:
		if t.mode.apply {
			return t.h.Step(ctx, stepState, t.pushState)
		}
		return t.h.Step(ctx, stepPlan, t.storePush)
	}
	if !t.mode.apply {
		return err
	}
	if empty {
		err = t.h.Skip(ctx, stepApply, "no changes")
	} else {
		err = t.h.Step(ctx, stepApply, t.apply)
	}
	if err != nil {
		return err
	}
	return t.h.Step(ctx, stepOutput, t.output)
}

// planOrCheck plans, or checks the approved plan. empty means that applying the plan would change nothing.
func (t *terraform) planOrCheck(ctx context.Context) (empty bool, err error) {
	switch {
	case t.approved != nil:
		return t.j.Spec.Plan.Empty, t.h.Step(ctx, stepCheck, t.check)
	case !t.mode.push && workflow.Plans(t.j.Spec.Type, t.op):
		err = t.h.Step(ctx, stepPlan, func(ctx context.Context) (text string, err error) {
			text, empty, err = t.plan(ctx)
			return text, err
		})
	}
	return empty, err
}

// init finds the engine, says where the state lies, and initialises the root module.
func (t *terraform) init(ctx context.Context) (text string, err error) {
	if t.bin, err = located(ctx, t.h, t.j); err != nil {
		return "", err
	}
	engine := t.j.Spec.Engine
	if t.j.Spec.Plan != nil {
		if err := t.fetchApproved(ctx); err != nil {
			return "", err
		}
	}
	t.h.Logf("%s %s at %s%s", engine, t.bin.version, t.bin.path, t.bin.origin())
	if err := t.resolveState(ctx); err != nil {
		return "", err
	}
	text = fmt.Sprintf("%s %s, backend %s", engine, t.bin.version, t.settings.Type) + t.handOverProviders()
	if t.taken != "" && !t.readOnly {
		text += fmt.Sprintf("; took over %s as %s", t.taken, t.doc)
	}
	if err := t.letHooks(); err != nil {
		return "", runnerError(fmt.Errorf("prepare hooks: %w", err))
	}
	return text, nil
}

// letHooks lets hooks use the engine as init has set it up. Its name leads them to the program of the run, which may have
// another name, or lie outside of PATH.
func (t *terraform) letHooks() error {
	dir := newName("bin-", "")
	if err := t.temp.mkdir(dir); err != nil {
		return err
	}
	if err := t.temp.root.Symlink(t.bin.path, path.Join(dir, t.j.Spec.Engine)); err != nil {
		return err
	}
	t.forHooks = t.env()
	if t.j.Getenv != nil {
		t.forHooks = append(t.forHooks, "PATH="+t.temp.join(dir)+":"+t.j.Getenv("PATH"))
	}
	t.h.ForHooks(t.forHooks, nil)
	return nil
}

// list shows the addresses of the resources in the state.
func (t *terraform) list(ctx context.Context) (string, error) {
	if t.doc == nil {
		return "there is no state in " + t.place.String(), nil
	}
	_, err := t.run(ctx, stepState, []string{t.bin.path, "state", "list"})
	return t.doc.String(), err
}

// unlock releases the state's lock that the run names.
func (t *terraform) unlock(ctx context.Context) (string, error) {
	if t.place.kind == api.StateDirectory {
		return "a state in a directory is locked only while the engine that locked it runs: there is nothing to release", nil
	}
	_, err := t.run(ctx, stepState, []string{t.bin.path, "force-unlock", "-force", t.j.Spec.LockID})
	return "lock " + t.j.Spec.LockID + " is released", err
}

// plan writes the plan file and reads it. The engine validates the code first, by itself. empty means that applying
// it would change nothing, outputs included.
func (t *terraform) plan(ctx context.Context) (text string, empty bool, err error) {
	asked, err := t.asked()
	if err != nil {
		return "", false, err
	}
	imports, err := t.writeImports()
	if err != nil {
		return "", false, err
	}
	// It gets them as options, and would warn twice about variables that the code does not declare.
	if err := t.removeVariables(); err != nil {
		return "", false, err
	}
	t.locking = !t.readOnly
	code, err := t.run(ctx, stepPlan, append(planArgs(t.bin.path, t.mode, t.planFile, !t.readOnly), asked...), 2)
	if imports != "" {
		_ = t.root.root.Remove(imports) // it is removed with the run at the latest
	}
	if err == nil {
		err = t.placeVariables()
	}
	if err != nil {
		return "", false, err
	}
	t.locking = false
	var s summary
	if t.j.Spec.For != "" {
		s, err = t.storePlan(ctx, code == 0)
	} else {
		var raw []byte
		raw, err = t.showPlan(ctx)
		if errors.Is(err, errTooLong) && !t.mode.refreshOnly {
			t.h.Logf("the plan has more than %d MiB of JSON: it is applied as it is, but not summarised", maxPlanJSON>>20)
			t.out.Truncated = true
			t.shown.Missing = fmt.Sprintf("the plan has more than %d MiB of JSON, which is too large for policies", maxPlanJSON>>20)
			return "too large to be summarised", code == 0, nil
		}
		if err == nil {
			s, err = t.recordPlan(stepPlan, raw)
		}
	}
	if err != nil {
		return "", false, err
	}
	if t.mode.scan {
		t.out.Inventory = keepInventory(ctx, t.h, s.managed)
	}
	text = s.text(t.mode)
	if code == 0 && !t.mode.refreshOnly {
		text = "no changes"
	}
	return text, code == 0, nil
}

// recordPlan reads the JSON form of a plan and records its changes as those of the run. Policies read the same bytes.
func (t *terraform) recordPlan(step string, raw []byte) (summary, error) {
	s, err := readPlan(raw, t.mode)
	if err != nil {
		return s, stepFailed(step, err)
	}
	t.h.Mask(s.secrets...)
	t.h.ForHooks(t.forHooks, raw)
	if len(t.j.Spec.Policies) > 0 {
		t.shown.Inputs = []PolicyInput{{JSON: raw}}
	}
	t.out.Changes, t.out.Truncated, t.out.Checks = &s.changes, s.truncated, s.checks.result()
	return s, nil
}

func (t *terraform) apply(ctx context.Context) (string, error) {
	if t.pinned != nil {
		file, err := placePlan(ctx, t.h, t.temp, t.pinned, ".tfplan")
		if err != nil {
			return "", err
		}
		t.planFile = file
	}
	t.locking = true
	_ = t.root.root.Remove(erroredName) // of an earlier run, whose code was committed with it
	if _, err := t.run(ctx, stepApply, applyArgs(t.bin.path, t.planFile, t.flags(stepApply)...)); err != nil {
		return "", t.keepErrored(ctx, err)
	}
	t.locking = false
	if err := t.checkStateChanged(ctx); err != nil {
		return "", err
	}
	t.out.Checks = t.doc.failing()
	if t.out.Changes != nil && !t.mode.refreshOnly {
		c := *t.out.Changes
		c.Drift = 0 // it is the plan's
		return runtext.Changes(c, true), nil
	}
	return "", nil
}

// output reads the outputs of the state that was read last, and asks the engine only where they are not to be read
// there.
func (t *terraform) output(ctx context.Context) (string, error) {
	raw, err := t.doc.outputs()
	if errors.Is(err, errNotToRead) {
		raw, err = t.quiet(ctx, stepOutput, outputArgs(t.bin.path), nil, maxOutputJSON)
	}
	if errors.Is(err, errTooLong) {
		t.out.Truncated = true
		return "too large to be kept", nil
	}
	if err != nil {
		return "", err
	}
	f, err := readOutputs(raw)
	if err != nil {
		return "", stepFailed(stepOutput, err)
	}
	t.out.storeSensitive(ctx, t.h, t.j.Spec, f)
	return t.out.takeOutputs(t.h, f), nil
}

// takeOutputs masks sensitive values, then keeps the outputs within the bounds, and describes them in a line.
func (o *Outcome) takeOutputs(h Host, f found) string {
	h.Mask(f.secrets...)
	outputs, omitted := f.bound()
	o.Outputs, o.OmittedOutputs = outputs, omitted[:min(len(omitted), maxOmitted)]
	if len(omitted) > 0 {
		o.Truncated = true
		return fmt.Sprintf("%s, of which %d fit", text.Count(len(f.outputs), "output"), len(outputs))
	}
	return text.Count(len(outputs), "output")
}

func (t *terraform) env() []string {
	env := append(baseEnv(t.data.path), secretsEnv(t.j.SecretsDir)...)
	switch {
	case t.workspace != defaultWorkspace:
		return append(env, "TF_WORKSPACE="+t.workspace)
	case t.inCloud():
		return env // there the empty text would be a name
	}
	return append(env, "TF_WORKSPACE=") // the variable was read before
}

// inCloud says whether the state is where a cloud block says, which knows no default workspace.
func (t *terraform) inCloud() bool { return t.code.cloud && t.place.kind == api.StateSource }

// namedInCloud is the workspace that such a block names; empty: none.
func (t *terraform) namedInCloud() string {
	if !t.inCloud() {
		return ""
	}
	return t.code.cloudWorkspace
}

// run runs the engine with its output in the log. fine are the exit codes, besides 0, that are not a failure.
func (t *terraform) run(ctx context.Context, step string, args []string, fine ...int) (int, error) {
	return t.runWith(ctx, step, args, nil, fine...)
}

// runWith is run with more in the environment.
func (t *terraform) runWith(ctx context.Context, step string, args, env []string, fine ...int) (int, error) {
	if t.silent {
		return t.exec(ctx, step, Command{Args: args, Env: env, Stdout: io.Discard, Quiet: true}, fine...)
	}
	log := t.h.LogWriter()
	code, err := t.exec(ctx, step, Command{Args: args, Env: env, Stderr: log}, fine...)
	if closeErr := log.Close(); closeErr != nil && err == nil {
		err = notRun(ctx, t.j.Spec.Engine, step, closeErr, nil)
	}
	return code, err
}

// quiet runs the engine and returns its output, which does not go to the log.
func (t *terraform) quiet(ctx context.Context, step string, args, env []string, limit int) ([]byte, error) {
	out := &buffer{limit: limit}
	if _, err := t.exec(ctx, step, Command{Args: args, Env: env, Stdout: out, Quiet: true}); err != nil {
		return nil, err
	}
	if out.over {
		return nil, errTooLong
	}
	return out.Bytes(), nil
}

// exec runs the engine in the root module. Its error stream explains a failure, and also goes to c.Stderr if that is
// set.
func (t *terraform) exec(ctx context.Context, step string, c Command, fine ...int) (int, error) {
	said := &tail{limit: 32 << 10}
	c.Dir, c.Env = t.j.Root, append(t.env(), c.Env...)
	if !slices.Contains([]string{"init", "plan", "apply"}, c.Args[1]) {
		c.Env = append(c.Env, withoutFlags) // which are meant for those
	}
	if c.Stderr == nil {
		c.Stderr = said
	} else {
		c.Stderr = io.MultiWriter(said, c.Stderr)
	}
	code, err := t.h.Exec(ctx, c)
	switch {
	case err != nil || code != 0 && context.Cause(ctx) != nil:
		return code, notRun(ctx, t.j.Spec.Engine, step, err, lockFromText(string(said.bytes())))
	case code != 0 && !slices.Contains(fine, code):
		return code, t.exited(step, code, string(said.bytes()))
	}
	return code, nil
}

// buffer keeps a stream up to a bound, and takes the rest without keeping it.
type buffer struct {
	bytes.Buffer
	limit int
	over  bool
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.over || b.Len()+len(p) > b.limit {
		b.over = true
		b.Reset()
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

func (t *terraform) exited(step string, code int, said string) error {
	if first := firstError(said); t.approved != nil && step == stepApply && strings.HasPrefix(first, "Error: Saved plan ") {
		return planStale(strings.TrimSuffix(first, ".")) // both engines begin so, and have changed nothing
	}
	detail := failedWith(step, t.j.Spec.Engine, code)
	lock := lockFromText(said)
	if lock != nil {
		detail += ": " + lockSentence(lock, t.j.Spec.Workspace)
	} else if e := readError(plainLines(said)); e.count > 0 {
		detail += ": " + e.String() + e.otherVersion()
	} else {
		detail += "; its log has the cause"
	}
	return &Failure{Reason: workflow.ReasonStepFailed, Detail: text.Middle(detail, maxDetail), Lock: lock}
}

// notRun says why an engine could not run, or was interrupted.
func notRun(ctx context.Context, engine, step string, err error, lock *api.Lock) error {
	if context.Cause(ctx) != nil {
		f := interrupted(ctx, " during "+step)
		f.Lock = lock
		return f
	}
	return &Failure{
		Reason: workflow.ReasonRunnerError, Err: err,
		Detail: text.Middle(fmt.Sprintf("%s could not run %s: %v", step, engine, err), maxDetail),
	}
}

// interrupted says that a run was ended from outside, where that was, and why.
func interrupted(ctx context.Context, where string) *Failure {
	cause := context.Cause(ctx)
	return &Failure{
		Reason: workflow.ReasonInterrupted, Err: errors.Join(ctx.Err(), cause),
		Detail: text.Middle(fmt.Sprintf("interrupted%s: %v", where, cause), maxDetail),
	}
}

// failure makes a Failure of any error, and adds a lock that remains beside the state.
func (t *terraform) failure(ctx context.Context, err error) error {
	f := asFailure(ctx, err)
	if f.Lock == nil && t.locking && t.state != nil {
		f.Lock = lockFromFile(t.state, path.Join(path.Dir(statePath(t.workspace)), lockInfoName))
	}
	return f
}

// asFailure makes a Failure of any error.
func asFailure(ctx context.Context, err error) *Failure {
	f, ok := errors.AsType[*Failure](err)
	switch {
	case context.Cause(ctx) != nil && (!ok || f.Reason == workflow.ReasonRunnerError):
		return interrupted(ctx, "")
	case !ok:
		return &Failure{Reason: workflow.ReasonRunnerError, Detail: text.Middle(err.Error(), maxDetail), Err: err}
	}
	return f
}

func stepFailed(step string, err error) error {
	return &Failure{Reason: workflow.ReasonStepFailed, Detail: text.Middle(fmt.Sprintf("%s: %v", step, err), maxDetail), Err: err}
}

func runnerError(err error) error {
	if _, ok := errors.AsType[*Failure](err); ok {
		return err
	}
	return &Failure{Reason: workflow.ReasonRunnerError, Detail: text.Middle(err.Error(), maxDetail), Err: err}
}
