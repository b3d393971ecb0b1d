package isolation_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// files: a workspace's files are written before its code runs, by the runner.
func (w *world) files() {
	source := filepath.Join(filepath.Dir(w.Data), "linking")
	w.must(os.MkdirAll(filepath.Join(source, "module", "down"), 0o755))
	in := func(path string) api.Workspace {
		return api.Workspace{
			Name: "files", RunSettings: api.RunSettings{
				Engine: api.EngineCommand, Source: api.Source{Directory: source, Path: "module"}, Commands: map[string]string{"update": "/bin/sh say"},
				Files: []api.File{{Path: path, Content: "written"}},
			},
		}
	}
	precious := filepath.Join(w.precious.dir, "written")
	for _, path := range []string{precious, "../written", "down/../../written", "down/../../../../../../../../../.." + precious, ".git/hooks/post-checkout", "a/.terraform/written", ".."} {
		_, _, err := w.Client.PutWorkspace(w.T.Context(), in(path))
		w.tried("name the path "+path, errors.Is(err, workflow.ErrInvalid), "%v", err)
	}
	for target, path := range map[string]string{
		w.precious.dir: "link/written", w.precious.dir + "/written": "link", "../..": "link/written", "..": "link/written",
		"../../home/written": "link", "down/../../../tmp": "link/written", "/proc/self/cwd": "link/written",
	} {
		link := filepath.Join(source, "module", "link")
		w.must(os.Symlink(target, link))
		_, _, err := w.Client.PutWorkspace(w.T.Context(), in(path))
		w.must(err)
		wf, err := w.Client.Submit(w.T.Context(), api.Submit{Workspace: "files", Operation: workflow.Update})
		if err == nil { // the link stays within the source, as one out of the root module does
			wf = w.Over(wf.ID)
		}
		held := errors.Is(err, workflow.ErrInvalid) || wf.Reason == workflow.ReasonSourceFailed
		w.tried("write "+path+" by a link to "+target, held, "%s %s %v", wf.State, wf.Detail, err)
		w.must(os.Remove(link))
	}
}

// preapproved are the hooks that the dayfly of tests allows.
var preapproved = []api.Hook{
	{Name: "environ", Before: "run", Run: "./attack environ"}, {Name: "mem", Before: "run", Run: "./attack mem"}, {Name: "fds", Before: "run", Run: "./attack fds"},
	{Name: "one", After: "run", Run: "./attack allowed"}, {Name: "two", After: "run", Run: "./attack allowed"}, {Name: "three", After: "run", Run: "./attack allowed"},
}

// hooks: some run beside code that fails and leaves a process that replaces their scripts.
func (w *world) hooks() {
	for what, script := range map[string]string{"another script": "./attack another", "one with another behind it": "./attack allowed\r./attack another"} {
		wf, log := w.job("hooks-refused", "say", func(in *api.Workspace) { in.Hooks = []api.Hook{{Name: "three", Before: "run", Run: script}} })
		w.tried("run "+what, wf.Reason == workflow.ReasonHookRefused && !strings.Contains(log, "the engine ran"), "%s (%s: %s)", wf.State, wf.Reason, wf.Detail)
	}
	wf, log := w.job("hooks", "failing", func(in *api.Workspace) { in.Hooks = preapproved })
	ran := strings.Count(log, "the allowed hook ran")
	if !strings.Contains(log, "left: replacer") || !strings.Contains(log, "tried fds: ") {
		w.T.Errorf("the hooks did not run, or no process was left:\n%s", log)
	}
	w.tried("replace the script of a hook", ran == 3, "%d of 3 ran", ran)
	w.tried("hide a failure", wf.State == workflow.Failed && wf.Reason == workflow.ReasonStepFailed, "%s (%s: %s)", wf.State, wf.Reason, wf.Detail)
}

// steps: the engine has some secrets in init, others in apply, and looks for them in each step.
func (w *world) steps() {
	for name, value := range map[string]string{"of-apply": "value-for-the-step-apply", "of-init": "value-for-modules-in-init", "of-every": "value-for-every-step", "mode": "mode:steps"} {
		w.secret(name, value)
	}
	source := filepath.Join(filepath.Dir(w.Data), "stepwise")
	w.must(errors.Join(os.Mkdir(source, 0o755), os.WriteFile(filepath.Join(source, "address"), []byte("thing.planned"), 0o644)))
	_, _, err := w.Client.PutWorkspace(w.T.Context(), api.Workspace{
		Name: "steps", RunSettings: api.RunSettings{
			Engine: api.EngineTerraform, Source: api.Source{Directory: source},
			Modules: []api.ModuleCredential{{Host: "modules.example.com", TokenRef: "file:of-init"}},
			Secrets: []api.Secret{
				{Env: "MODE", Ref: "file:mode"}, {File: "every", Ref: "file:of-every"},
				{Env: "LATER", Ref: "file:of-apply", Steps: []string{"apply"}}, {File: "later", Ref: "file:of-apply", Steps: []string{"apply"}},
			},
		},
		State: &api.State{Kind: api.StateDirectory},
	})
	w.must(err)
	id := w.Update("steps")
	wf, log := w.Over(id), w.attempted(id)
	for _, said := range []string{"init has its own: true", "plan has its own: true", "apply has its own: true", "left: keeper", "left: watcher"} {
		if !strings.Contains(log, said) || wf.State != workflow.Succeeded {
			w.T.Errorf("got %s (%s: %s) and not %q:\n%s", wf.State, wf.Reason, wf.Detail, said, log)
		}
	}
}
