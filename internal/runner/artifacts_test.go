package runner_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// stepNamed returns the step of that name; nil: there was none.
func (r *relay) stepNamed(name string) *api.Step {
	for i := range r.steps {
		if r.steps[i].Name == name {
			return &r.steps[i]
		}
	}
	return nil
}

func TestRunJob_KeepsTheFilesThatAJobLeaves(t *testing.T) {
	for script, reason := range map[string]workflow.Reason{"exit 0": "", "exit 3": workflow.ReasonStepFailed} {
		spec, cfg := job(t, `cd "$DAYFLY_ARTIFACTS"; mkdir -p a/b; printf sbom > a/b/sbom.json; : > empty; for i in $(seq 43); do echo $i > n$i; done; `+script)
		r := newRelay(t, spec)
		runJob(t, r, cfg)
		if got := r.result(); got.Reason != reason {
			t.Errorf("%s: got %+v", script, got)
		}
		if r.bytes["files/a/b/sbom.json"] != "sbom" || r.bytes["files/n43"] != "43\n" || len(r.bytes) != 45 || r.announced["files/empty"].Kind != api.ArtifactFile {
			t.Errorf("%s: got %q", script, r.bytes)
		}
		slices.Sort(r.placed)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(r.bytes)), r.placed); diff != "" {
			t.Errorf("%s: reported as placed: %s", script, diff)
		}
		if diff := cmp.Diff([]int{20, 20, 5, 0}, r.batches); diff != "" {
			t.Errorf("%s: calls: %s", script, diff)
		}
		if got := r.stepNamed("artifacts"); got == nil || got.Status != workflow.StepSucceeded || got.Text != "45 files kept" {
			t.Errorf("%s: got the step %+v", script, got)
		}
	}
}

func TestRunJob_WithoutFilesNothingIsAsked(t *testing.T) {
	for _, script := range []string{"true", `rmdir "$DAYFLY_ARTIFACTS"`} {
		spec, cfg := job(t, script)
		r := newRelay(t, spec)
		runJob(t, r, cfg)
		if got := r.result(); got.Outcome != workflow.Succeeded || r.called("artifacts") > 0 || r.stepNamed("artifacts") != nil {
			t.Errorf("%s: got %+v after %q", script, got, r.asked())
		}
	}
}

// What a job leaves is hostile: only what is plainly its own file is read.
func TestRunJob_KeepsOnlyPlainFiles(t *testing.T) {
	spec, cfg := job(t, `cd "$DAYFLY_ARTIFACTS"
ln -s "$DAYFLY_SECRETS_DIR/f" link; ln -s "$DAYFLY_SECRETS_DIR" linked; echo x > "$HOME/x"; ln "$HOME/x" second; ln "$DAYFLY_SECRETS_DIR/f" third
mkfifo pipe; truncate -s 300M sparse; echo x > 'a name'; echo x > 'two
lines'; mkdir 'bad dir' loop; echo x > 'bad dir/x'; ln -s .. loop/up; echo x > "$(printf 'n%.0s' $(seq 195))"; echo good > good; chmod 0 good`)
	spec.Secrets = []api.Secret{{File: "f", Ref: "file:f"}}
	cfg.Secrets = known{"file:f": "secret-value"}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	want := map[string]string{"files/third": "", "files/good": "good\n"} // a secret's file is emptied at the end of its step
	if os.Getuid() != 0 {
		delete(want, "files/good") // it cannot be read
	}
	if diff := cmp.Diff(want, r.bytes); diff != "" {
		t.Error(diff)
	}
	text := r.text()
	for _, said := range []string{
		`"link": only regular files`, `"linked": only regular files`, `"second": it has a second name`, `"pipe": only regular files`,
		`"sparse": it has 314572800 bytes`, `"a name": the name`, `"two\nlines": the name`, `"bad dir": the name`, `"loop/up": only regular files`, `nnn": the name`,
	} {
		if !strings.Contains(text, said) {
			t.Errorf("the log does not say %s: %s", said, text)
		}
	}
	if got := r.result(); got.Outcome != workflow.Succeeded {
		t.Errorf("got %+v", got)
	}
}

func TestRunJob_ManyFilesAreBounded(t *testing.T) {
	spec, cfg := job(t, `cd "$DAYFLY_ARTIFACTS"; mkdir d; cd d; seq 10100 | xargs touch`)
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	text := r.text()
	if len(r.placed) != api.MaxArtifacts || strings.Count(text, "left out of the artifacts") != 11 || !strings.Contains(text, "more left out") {
		t.Errorf("%d placed; log: %s", len(r.placed), text)
	}
}

// The bytes that were announced are sent, or none: whoever receives them checks.
func TestRunJob_AFileThatChangesIsNotKeptAsAnother(t *testing.T) {
	for name, c := range map[string]struct {
		flags int
		kept  string
	}{
		"grows":       {os.O_APPEND | os.O_WRONLY, "first"},
		"is replaced": {os.O_WRONLY, ""},
	} {
		spec, cfg := job(t, `printf first > "$DAYFLY_ARTIFACTS/file"`)
		r := newRelay(t, spec)
		r.refuse = func(call string, _ []byte) error {
			if call != "artifacts" || len(r.announced) > 0 {
				return nil
			}
			f, err := os.OpenFile(filepath.Join(cfg.WorkDir, "artifacts", "file"), c.flags, 0)
			if err == nil {
				_, err = f.WriteString("other")
				_ = f.Close()
			}
			return err
		}
		runJob(t, r, cfg)
		if got := r.result(); got.Outcome != workflow.Succeeded || r.bytes["files/file"] != c.kept || (c.kept == "") != (r.stepNamed("artifacts").Status == workflow.StepFailed) {
			t.Errorf("%s: got %+v, %q, %+v", name, got, r.bytes, r.stepNamed("artifacts"))
		}
	}
}

func TestRunJob_FilesThatCannotBeKeptFailNoRun(t *testing.T) {
	for name, c := range map[string]struct {
		call string
		err  error
		kept bool
	}{
		"not there":         {"artifacts", workflow.ErrNotFound, false},
		"no place":          {"artifacts", workflow.Refuse(workflow.ErrUnsupported, "", "no artifacts here"), false},
		"away for a moment": {"artifacts", errAway, true},
		"forgotten":         {"bytes", workflow.Refuse(workflow.ErrConflict, "", "announce it again"), true},
	} {
		t.Run(name, func(t *testing.T) {
			spec, cfg := job(t, `echo x > "$DAYFLY_ARTIFACTS/file"; echo y > "$DAYFLY_ARTIFACTS/second"`)
			r := newRelay(t, spec)
			tries := 0
			r.refuse = func(call string, _ []byte) error {
				if call == c.call {
					if tries++; !c.kept || tries == 2 {
						return c.err
					}
				}
				return nil
			}
			runJob(t, r, cfg)
			step := r.stepNamed("artifacts")
			if got := r.result(); got.Outcome != workflow.Succeeded || c.kept != (step.Status == workflow.StepSucceeded) || c.kept != (len(r.placed) == 2) {
				t.Errorf("got %+v and %+v; placed %q", got, step, r.placed)
			}
			if !c.kept && !strings.Contains(r.text(), "[dayfly] the files in DAYFLY_ARTIFACTS are not kept") {
				t.Errorf("log: %s", r.text())
			}
		})
	}
}

func TestRunJob_ACancelledRunKeepsItsFiles(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, `echo x > "$DAYFLY_ARTIFACTS/file"; `+pipe.listens())
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	pipe.ready(t)
	r.set(func() { r.control.Cancel = true })
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got := r.result(); got.Outcome != workflow.Cancelled || !slices.Equal(r.placed, []string{"files/file"}) {
		t.Errorf("got %+v; placed %q; log: %s", got, r.placed, r.text())
	}
}

// A plan is applied with the source that it was made from, or not at all.
func TestRunJob_APlanOfAnotherSourceIsStale(t *testing.T) {
	const run = "echo ran"
	spec, cfg := job(t, run)
	spec.SourceDigest = strings.Repeat("ab", 32) // of when its preview was submitted
	spec.Plan = &api.PlanRef{PlanMade: api.PlanMade{Source: spec.SourceDigest}}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got := r.result(); got.Reason != workflow.ReasonPlanStale || !strings.Contains(got.Detail, fmt.Sprintf("made from source %s: the source is now", spec.Plan.Source)) || strings.Contains(r.text(), "ran\n") {
		t.Errorf("got %+v", got)
	}
}
