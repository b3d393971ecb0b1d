package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// planned asks for an update, whose plan then waits for an approval.
func (w *world) planned(workspace string, add int) api.Workflow {
	w.T.Helper()
	got := w.Over(w.Update(workspace))
	w.wants(got, workflow.Succeeded, workflow.ReasonNone)
	if r := got.Review; r == nil || r.Status != api.ReviewWaiting || got.Result.Changes.Add != add {
		w.T.Fatalf("no plan of %d that waits: %+v, %+v\n%s", add, r, got.Result, w.Log(got.ID, 1))
	}
	return got
}

// approve approves a plan and returns the run that applies it.
func (w *world) approve(preview api.Workflow) (id string) {
	w.T.Helper()
	got, err := w.Client.Approve(w.T.Context(), preview.ID, api.Decision{SHA256: preview.Review.SHA256})
	if err != nil {
		w.T.Fatal(err)
	}
	return got.Review.Applies
}

// C7, C13: what an apply had done when its runner was killed is in the state. The same plan is stale then, and a new
// one has the rest. Each engine makes one thing, and while it makes the next it waits for somebody who writes to a
// pipe.
func TestApproved_KilledInTheApply(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the product")
	}
	w := start(t, func(c *embedded.UpConfig) { c.Agent.Path = os.Getenv("PATH") })
	url, held := states(t), regexp.MustCompile(`STATE LOCK STILL HELD: (\S+) `)
	resource := func(name, first, command string) string {
		return fmt.Sprintf("resource \"terraform_data\" %q {\n%s  provisioner \"local-exec\" {\n    command = %q\n  }\n}\n",
			name, first, command+"echo $DAYFLY_WORKSPACE "+name+" >>$EFFECTS")
	}
	const wait = "cat $SHARED/$DAYFLY_WORKSPACE && "
	backend := func(unit string) string {
		return "terraform {\n  backend \"http\" {\n    address = \"" + url + "/" + unit + "\"\n  }\n}\n"
	}
	for name, files := range map[string]map[string]string{
		api.EngineTerraform: { // tofu would save the first one later
			"main.tf": resource("first", "", "") + resource("second", "  depends_on = [terraform_data.first]\n", wait),
		},
		api.EngineTerragrunt: {
			"net/terragrunt.hcl": "", "net/main.tf": backend("net") + resource("first", "", ""),
			"app/terragrunt.hcl": "dependencies {\n  paths = [\"../net\"]\n}\n",
			"app/main.tf":        backend("app") + resource("second", "", wait),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("%s is not on this machine", name)
			}
			one := *w
			one.World = w.As(t)
			w := &one
			source, pipe := filepath.Join(w.Source, name), filepath.Join(w.shared, name)
			for file, content := range files {
				at := filepath.Join(source, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(syscall.Mkfifo(pipe, 0o644), os.Chmod(pipe, 0o644)); err != nil {
				t.Fatal(err)
			}
			w.put(name, nil, func(ws *api.Workspace) {
				ws.Engine, ws.Commands, ws.Source.Directory = name, nil, source
				ws.Approval = &api.Approval{Required: true}
			})
			plan, same := w.planned(name, 2), w.planned(name, 2)

			killed := w.approve(plan)
			var writer *os.File
			uptest.Eventually(t, "the second one is being made", func() (ok bool) {
				var err error
				writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0) // it fails as long as nobody reads
				return err == nil
			})
			w.kill(killed)
			w.wants(w.Over(killed), workflow.Failed, workflow.ReasonTaskStopped)
			if err := errors.Join(writer.Close(), os.Remove(pipe), os.WriteFile(pipe, []byte("go on\n"), 0o644)); err != nil {
				t.Fatal(err)
			}

			stale := w.Over(w.approve(same))
			w.wants(stale, workflow.Failed, workflow.ReasonPlanStale)
			if w.has(name + " second") {
				t.Error("a stale plan was applied")
			}
			if lock := held.FindStringSubmatch(w.Timeline(stale.ID)); lock != nil {
				unlock := api.Submit{Workspace: name, Operation: workflow.StateUnlock, LockID: lock[1]}
				w.wants(w.Over(w.Submit(unlock)), workflow.Succeeded, workflow.ReasonNone)
			}
			w.wants(w.Over(w.approve(w.planned(name, 1))), workflow.Succeeded, workflow.ReasonNone)
			made := strings.Count(strings.Join(w.lines(), "\n"), name+" ")
			if made != 2 || !w.has(name+" first") || !w.has(name+" second") {
				t.Errorf("each was to be made once: %q", w.lines())
			}
		})
	}
}
