package runner

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// allowed refuses a hook that the runner's own configuration does not have. No workspace can change that.
func (r *run) allowed(hooks []api.Hook) error {
	for _, hook := range hooks {
		if !hook.Allowed(r.cfg.Hooks) {
			return fmt.Errorf("the hook %q has the SHA-256 %s, which is not in %s of this runner: have it added there, or remove the hook",
				hook.Title(), hook.Digest(), task.Name("Hooks"))
		}
	}
	return nil
}

// Step implements engine.Host. The hooks of the step run around it. If one fails before the step, the step does not
// run. A hook that fails after it never hides a failure of the step, and stops the run, unless the step has changed
// something: then the run goes on to report that, and fails at its end.
func (h *host) Step(ctx context.Context, name string, fn func(ctx context.Context) (string, error)) error {
	if !h.early || name != stepInit {
		if err := h.before(ctx, name); err != nil && ctx.Err() == nil {
			return err
		}
	}
	if err := h.given(ctx, name, name, fn); err != nil {
		_ = h.hooks(ctx, name, workflow.StepFailed) // that step's failure is the run's
		return err
	}
	err := h.hooks(ctx, name, workflow.StepSucceeded)
	if err == nil || !api.Changing(name) {
		return err
	}
	if h.late == nil {
		h.late = err
	}
	return nil
}

// before runs the hooks before a step, which is skipped if one fails.
func (h *host) before(ctx context.Context, step string) error {
	err := h.hooks(ctx, step, "")
	if err != nil && ctx.Err() == nil {
		_ = h.Skip(ctx, step, "a hook before it failed")
	}
	return err
}

// makes reports whether a workspace's hooks may make its root module: it has some before init.
func makes(hooks []api.Hook) bool {
	return slices.ContainsFunc(hooks, func(hook api.Hook) bool { return hook.Before == stepInit })
}

// makeRoot runs the hooks before init ahead of the engine, in the top of the source, because the root module is not
// there yet. No process of theirs can change it after the check.
func (h *host) makeRoot(ctx context.Context, top string, check func() error) error {
	root := h.root
	h.root, h.early = top, true
	if err := cmp.Or(h.before(ctx, stepInit), context.Cause(ctx)); err != nil {
		return err
	}
	if err := h.EndProcesses(ctx); err != nil {
		return failure(workflow.ReasonRunnerError, err)
	}
	err := check()
	if err == nil {
		err = h.r.writeFiles(root, h.spec.Files)
	}
	if err != nil {
		_ = h.Skip(ctx, stepInit, "the root module that the hooks before it made cannot be used")
		return failure(workflow.ReasonSourceFailed, err)
	}
	h.root = root
	return nil
}

// ForHooks implements engine.Host.
func (h *host) ForHooks(env []string, plan []byte) {
	if h.hookEnv = env; len(h.spec.Hooks) > 0 {
		h.plan = string(plan)
	}
}

// planFile writes the plan for a hook, for the engine's user alone, and returns its variable. The file is emptied at the
// end of the hook's step as those of secrets are, whatever name code has given it.
func (h *host) planFile(temp *os.Root) (env []string, remove func(), err error) {
	if h.plan == "" {
		return nil, func() {}, nil
	}
	name := "plan-" + rand.Text() + ".json"
	file, err := writeNew(temp, name, h.plan, h.r.owner())
	if err == nil {
		h.r.dirs.written = append(h.r.dirs.written, file)
		err = file.Chmod(0o400)
	}
	return []string{"DAYFLY_PLAN_JSON=" + filepath.Join(h.r.dirs.temp, name)}, func() { _ = temp.Remove(name) }, err
}

// hooks runs those before a step, which has no status yet, until one fails; or all of those after it. A run that was told
// to end runs no more of them: its grace is the engine's.
func (h *host) hooks(ctx context.Context, step string, status workflow.StepStatus) (failed error) {
	for _, hook := range h.spec.Hooks {
		if on := hook.After; status == "" && hook.Before != step || status != "" && on != step || ctx.Err() != nil {
			continue
		}
		err := h.given(ctx, hook.Title(), step, func(ctx context.Context) (string, error) { return "", h.hook(ctx, hook, step, status) })
		if failed == nil {
			failed = err
		}
		if failed != nil && status == "" {
			break
		}
	}
	return failed
}

// hook runs the script of a hook in the root module. If only some hooks may run, no process of an earlier step can
// replace the script.
func (h *host) hook(ctx context.Context, hook api.Hook, step string, status workflow.StepStatus) error {
	if len(h.r.cfg.Hooks) > 0 {
		if err := h.EndProcesses(ctx); err != nil {
			return failure(workflow.ReasonRunnerError, err)
		}
	}
	temp, err := os.OpenRoot(h.r.dirs.temp)
	if err != nil {
		return failure(workflow.ReasonRunnerError, err)
	}
	defer func() { _ = temp.Close() }()
	name := "hook-" + rand.Text() + ".sh"
	script, err := writeNew(temp, name, hook.Script()+"\n", h.r.owner())
	if err == nil {
		err = script.Close()
	}
	if err != nil {
		return failure(workflow.ReasonRunnerError, fmt.Errorf("write the script of a hook: %w", err))
	}
	plan, remove, err := h.planFile(temp)
	defer remove()
	if err != nil {
		return failure(workflow.ReasonRunnerError, fmt.Errorf("write the plan for a hook: %w", err))
	}
	code, err := h.Exec(ctx, engine.Command{
		Args: []string{"/bin/sh", "-e", filepath.Join(h.r.dirs.temp, name)}, Dir: h.root, Quiet: true,
		Env: slices.Concat(h.hookEnv, plan, []string{"DAYFLY_STEP=" + step, "DAYFLY_STEP_STATUS=" + string(status)}),
	})
	if err == nil && code == 0 {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("exit code %d", code)
	}
	err = fmt.Errorf("the hook %q failed: %w; its log has the cause", hook.Title(), err)
	if status == workflow.StepSucceeded && api.Changing(step) {
		err = fmt.Errorf("%w. The step %s itself succeeded, and its changes remain", err, step)
	}
	return failure(workflow.ReasonHookFailed, err)
}

// given runs fn as a step of its own with the secrets that a step gets. The files of these are there until it ends, and
// the variables only in the environment of its commands.
func (h *host) given(ctx context.Context, name, step string, fn func(ctx context.Context) (string, error)) error {
	return h.step(ctx, name, func(ctx context.Context) (string, error) {
		bare := h.env
		defer func() {
			h.env = bare
			h.r.dirs.removeSecrets(h.r.log)
		}()
		if err := h.give(ctx, step); err != nil {
			return "", failure(workflow.ReasonSecretUnavailable, err)
		}
		return fn(ctx)
	})
}

// give writes the secrets of a step to their files. No process of an earlier step sees one that is limited to some
// steps.
func (h *host) give(ctx context.Context, step string) (err error) {
	var env []string
	var files []resolved
	limited := false
	for _, s := range h.secrets {
		switch {
		case !s.goesTo(step):
			continue
		case s.Env != "":
			env = append(env, s.Env+"="+s.value.Reveal())
		default:
			files = append(files, s)
		}
		limited = limited || len(s.Steps) > 0
	}
	if limited {
		if err := h.EndProcesses(ctx); err != nil {
			return err
		}
	}
	h.r.dirs.removeSecrets(h.r.log) // in case code has left something there
	if h.env, err = h.r.environment(h.spec, h.forwarded, env); err != nil {
		return err
	}
	if h.modules.goTo(step) {
		h.env = append(h.env, h.modules.env...)
		if err := h.r.dirs.writeSecrets(h.r.dirs.modules, h.modules.files, h.r.owner()); err != nil {
			return fmt.Errorf("the credentials for modules cannot be written: %w", err)
		}
	}
	return h.r.dirs.writeSecrets(h.r.dirs.secrets, files, h.r.owner())
}

// writeFiles writes the files of the workspace below the root module. None of them replaces one of the source.
func (r *run) writeFiles(root string, files []api.File) error {
	if len(files) == 0 {
		return nil
	}
	top, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	for _, f := range files {
		err := api.CheckFilePath(f.Path)
		if err == nil {
			var file *os.File
			if file, err = writeNew(top, f.Path, f.Content, r.owner()); err == nil {
				err = file.Close()
			}
		}
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("the source has %s already, and files of the workspace replace nothing: remove it there, or from files of the workspace", text.Quote(f.Path, 255))
		}
		if err != nil {
			return fmt.Errorf("the file %s of the workspace cannot be written: %w", text.Quote(f.Path, 255), err)
		}
	}
	return nil
}
