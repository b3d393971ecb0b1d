package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// operation is the command of pulumi for the run's operation.
func (p *pulumi) operation() string {
	switch {
	case p.mode.push:
		return "stack import"
	case p.mode.destroy:
		return "destroy"
	case p.mode.refreshOnly:
		return "refresh"
	}
	return "up"
}

// plan previews the operation, and stores a plan that is to be approved.
func (p *pulumi) plan(ctx context.Context) (string, error) {
	s, plan, err := p.preview(ctx, stepPlan)
	if err == nil && p.j.Spec.For != "" {
		err = p.storePlan(ctx, s, plan)
	}
	return s.text(p.mode), err
}

// preview previews the operation, reads its changes, and writes them and the messages to the log. plan is the update plan
// where one is to be approved, or was.
func (p *pulumi) preview(ctx context.Context, step string) (s summary, plan []byte, err error) {
	args, file := []string{"preview", "--json"}, ""
	if operation := p.operation(); operation != "up" {
		args = []string{operation, "--preview-only", "--json"}
	} else if p.j.Spec.For != "" || p.approved != nil {
		file = newName("plan-", ".json")
		args = append(args, "--save-plan", p.temp.join(file))
	}
	out := &buffer{limit: maxPlanJSON}
	err = p.exec(ctx, step, p.asked(stepPlan, args...), call{stdout: out, explain: func() string {
		_, said, _ := readPreview(out.Bytes(), nil, p.mode)
		return strings.Join(said, "\n")
	}})
	if out.over && err == nil {
		err = stepFailed(step, errTooLong)
	}
	if err == nil && file != "" {
		plan, err = p.readPlan(ctx, step, file)
	}
	s, said, unread := readPreview(out.Bytes(), plan, p.mode)
	for _, line := range said {
		p.h.Logf("%s", line)
	}
	if err == nil && unread != nil {
		err = stepFailed(step, unread)
	}
	if err != nil {
		return s, nil, err
	}
	p.out.Changes, p.out.Truncated = &s.changes, s.truncated
	for _, r := range s.changes.Resources {
		p.h.Logf("%s", planLine(r))
	}
	return s, plan, nil
}

// planLine is a line of the log for a resource. It has no values.
func planLine(r api.ResourceChange) string {
	line := r.Action + " " + r.Address
	if len(r.Changed) > 0 {
		line += ", changes " + strings.Join(r.Changed, ", ")
	}
	if len(r.Forces) > 0 {
		line += ", replaced because of " + strings.Join(r.Forces, ", ")
	}
	return line
}

// apply runs the operation that was previewed, which pulumi plans again, and checks that the state has changed.
func (p *pulumi) apply(ctx context.Context) (string, error) {
	args := []string{p.operation(), "--yes", "--skip-preview"}
	if p.approved != nil && p.operation() == "up" {
		file, err := placePlan(ctx, p.h, p.temp, p.approved.entries[entryPlan], ".json")
		if err != nil {
			return "", err
		}
		args = append(args, "--plan", file)
	}
	p.locking = true
	if p.mode.refreshOnly && len(p.was.Pending) > 0 {
		args = append(args, "--clear-pending-creates") // pulumi would ask about these, and keeps them where it cannot
	}
	if err := p.run(ctx, stepApply, p.asked(stepApply, args...)); err != nil {
		return "", p.cutOff(ctx, beyondPlan(err))
	}
	p.locking = false
	before := p.was.document(p.lineage())
	now, exists, err := p.export(ctx)
	if err != nil {
		return "", err
	}
	p.doc = now.document(p.lineage())
	c := *p.out.Changes
	if c.Drift = 0; !exists || c.Add+c.Change+c.Destroy > 0 && p.doc.serial <= before.serial {
		return "", &Failure{
			Reason: workflow.ReasonStepFailed,
			Detail: fmt.Sprintf("pulumi says that it has made the changes, but the state in %s is as before (%s): find out where it was written before you run anything else", p.place, before),
		}
	}
	if p.mode.refreshOnly {
		return "", nil
	}
	return runtext.Changes(c, true), nil
}

// cutOff notes the changes that were made before a failure, and adds to it the operations that pulumi had started and
// whose end it does not know. Its state has both.
func (p *pulumi) cutOff(ctx context.Context, failed error) error {
	if f := asFailure(ctx, failed); f.Lock != nil || strings.Contains(f.Detail, "[409] Conflict") {
		return failed // another run has the stack, also at Pulumi Cloud
	}
	reading, stop := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer stop()
	now, exists, err := p.export(reading)
	if err != nil || !exists {
		return failed
	}
	p.doc = now.document(p.lineage())
	if s := now.since(p.was); len(s.changes.Resources) > 0 && !p.mode.refreshOnly && s.finish() == nil {
		p.done = Outcome{Changes: &s.changes, Truncated: s.truncated}
	}
	if now.pending() == "" {
		return failed
	}
	said := fmt.Sprintf("; %s. Look whether that was done, then let dayfly run %s --op refresh correct the state", now.pending(), p.j.Spec.Workspace)
	p.h.Logf("%s", said[2:])
	return saying(asFailure(ctx, failed), said)
}

// output reads the outputs of the stack. Those that are secrets are read for the mask alone.
func (p *pulumi) output(ctx context.Context) (string, error) {
	shown, err := p.quiet(ctx, stepOutput, "stack", "output", "--json")
	open := shown
	if err == nil && strings.Contains(string(shown), blinded) {
		open, err = p.quiet(ctx, stepOutput, "stack", "output", "--json", "--show-secrets")
	}
	if errors.Is(err, errTooLong) {
		p.out.Truncated = true
		return "too large to be kept", nil
	}
	if err != nil {
		return "", err
	}
	f, err := readStackOutputs(shown, open)
	if err != nil {
		return "", stepFailed(stepOutput, err)
	}
	p.out.storeSensitive(ctx, p.h, p.j.Spec, f)
	return p.out.takeOutputs(p.h, f), nil
}

// found is the state to record after the run; nil if the run only reads another state than the workspace's own.
func (p *pulumi) found() *api.StateFound {
	if !p.keeps {
		return nil
	}
	f := p.is
	f.Taken = p.taken
	if p.doc != nil {
		f.Lineage, f.Serial = p.doc.lineage, p.doc.serial
	}
	return &f
}

// env are the variables that every call gets in addition to the environment that the runner builds.
func (p *pulumi) env() []string {
	env := append(secretsEnv(p.j.SecretsDir), "PULUMI_HOME="+p.home.path, "PULUMI_SKIP_UPDATE_CHECK=true")
	if p.address != "" {
		env = append(env, "PULUMI_BACKEND_URL="+p.address)
	}
	env = append(env, packageCaches(p.j.Packages, p.getenv)...)
	if p.state != nil { // the runner copies states as plain text
		env = append(env, "PULUMI_SELF_MANAGED_STATE_GZIP=false", "PULUMI_DIY_BACKEND_GZIP=false")
	}
	if p.private && !p.exists && p.getenv("PULUMI_CONFIG_PASSPHRASE")+p.getenv("PULUMI_CONFIG_PASSPHRASE_FILE") == "" {
		env = append(env, "PULUMI_CONFIG_PASSPHRASE=") // nothing of a stack without one is kept
	}
	return env
}

// packageCaches are the variables that name the cache of each package manager, but for those that the workspace sets
// itself.
func packageCaches(dir string, getenv func(string) string) (env []string) {
	for _, of := range [][2]string{{"npm_config_cache", "npm"}, {"PIP_CACHE_DIR", "pip"}, {"UV_CACHE_DIR", "uv"}, {"GOMODCACHE", "go/mod"}, {"GOCACHE", "go/build"}} {
		if name := of[0]; dir != "" && getenv(name) == "" && getenv(strings.ToUpper(name)) == "" {
			env = append(env, name+"="+filepath.Join(dir, of[1]))
		}
	}
	return env
}

// on returns the arguments of a command on the stack.
func (p *pulumi) on(args ...string) []string { return append(args, "--stack", p.stack) }

// asked returns the arguments of the run's main command, with those that the workspace and the run add to it.
func (p *pulumi) asked(step string, args ...string) []string {
	options := optionsOf(p.j.Spec)
	for _, urn := range options.Targets {
		args = append(args, "--target", urn)
	}
	for _, urn := range options.Replace {
		args = append(args, "--replace", urn)
	}
	for _, flag := range p.j.Spec.Flags[step] {
		if flag != "--continue-on-error" || !p.mode.refreshOnly { // a refresh does not know it
			args = append(args, flag)
		}
	}
	return p.on(args...)
}

// call is how one call of pulumi is shown and explained.
type call struct {
	dir     string // empty: that of the program
	stdin   io.Reader
	stdout  io.Writer
	silent  bool          // its error stream does not go to the log
	explain func() string // other output that may explain a failure; nil: none
}

// run runs pulumi with its output in the log.
func (p *pulumi) run(ctx context.Context, step string, args []string) error {
	return p.runIn(ctx, p.j.Root, step, args)
}

// runIn is run in a directory that pulumi knows by this path.
func (p *pulumi) runIn(ctx context.Context, dir, step string, args []string) error {
	log := p.h.LogWriter()
	said := &tail{limit: 32 << 10}
	err := p.exec(ctx, step, args, call{dir: dir, stdout: io.MultiWriter(said, log), explain: func() string { return string(said.bytes()) }})
	if closeErr := log.Close(); closeErr != nil && err == nil {
		err = notRun(ctx, p.j.Spec.Engine, step, closeErr, nil)
	}
	return err
}

// quiet runs pulumi on the stack and returns its output, which does not go to the log.
func (p *pulumi) quiet(ctx context.Context, step string, args ...string) ([]byte, error) {
	out := &buffer{limit: maxOutputJSON}
	err := p.exec(ctx, step, p.on(args...), call{stdout: out})
	if err == nil && out.over {
		err = errTooLong
	}
	return out.Bytes(), err
}

// exec runs pulumi.
func (p *pulumi) exec(ctx context.Context, step string, args []string, c call) error {
	said := &tail{limit: 32 << 10}
	var stderr io.Writer = said
	var log io.WriteCloser
	if !c.silent {
		log = p.h.LogWriter()
		stderr = io.MultiWriter(said, log)
	}
	args = append([]string{p.bin.path}, args...)
	dir := cmp.Or(c.dir, p.j.Root)
	code, err := p.h.Exec(ctx, Command{
		Args: append(args, "--non-interactive", "--color", "never"), Dir: dir, Env: append(p.env(), "PWD="+dir),
		Stdin: c.stdin, Stdout: c.stdout, Stderr: stderr, Quiet: c.silent,
	})
	if log != nil {
		if closeErr := log.Close(); err == nil {
			err = closeErr
		}
	}
	printed := string(said.bytes())
	if c.explain != nil {
		printed += "\n" + c.explain()
	}
	switch {
	case err != nil || code != 0 && context.Cause(ctx) != nil:
		return notRun(ctx, p.j.Spec.Engine, step, err, lockOfPulumi(printed))
	case code != 0:
		return p.exited(step, code, printed)
	}
	return nil
}

// exited says why a call failed.
func (p *pulumi) exited(step string, code int, printed string) error {
	detail := failedWith(step, p.j.Spec.Engine, code)
	lock := lockOfPulumi(printed)
	if lock != nil {
		detail += ": " + lockSentence(lock, p.j.Spec.Workspace)
	} else if first := pulumiError(printed); first != "" {
		detail += ": " + first
		switch {
		case pluginEnded().MatchString(first):
			detail += "; a plugin of pulumi was killed or crashed: see whether the memory of the run was enough for it"
		case strings.Contains(first, "unknown stack "):
			detail += "; a stack that Dayfly keeps has a backend of its own: name outputs of other workspaces under inputs, instead of a stack reference"
		}
	} else {
		detail += "; its log has the cause"
	}
	return &Failure{Reason: workflow.ReasonStepFailed, Detail: text.Middle(detail, maxDetail), Lock: lock}
}
