package runner_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The copy that a launcher put into the work directory is gone when the engine begins.
func TestRunJob_TheLaunchersCopyOfTheSourceIsRemoved(t *testing.T) {
	spec, cfg := job(t, `cat file; test ! -e "$TMPDIR/../given" || echo left`)
	given := filepath.Join(cfg.WorkDir, "given")
	if err := errors.Join(os.MkdirAll(cfg.WorkDir, 0o700), os.Rename(spec.Source.Directory, given)); err != nil {
		t.Fatal(err)
	}
	cfg.SourceDir, cfg.SourceRoots = given, nil
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got, text := r.result(), r.text(); got.Outcome != workflow.Succeeded || !strings.Contains(text, "content") || strings.Contains(text, "left") {
		t.Errorf("got %+v; log: %s", got, text)
	}
}

func TestRunJob_TheLaunchersCopyHasThePath(t *testing.T) {
	spec, cfg := job(t, "cat file")
	given := filepath.Join(cfg.WorkDir, "given")
	if err := errors.Join(os.MkdirAll(given, 0o700), os.Rename(spec.Source.Directory, filepath.Join(given, "envs"))); err != nil {
		t.Fatal(err)
	}
	spec.Source.Path = "envs"
	cfg.SourceDir, cfg.SourceRoots = given, nil
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got := r.result(); got.Outcome != workflow.Succeeded {
		t.Errorf("got %+v", got)
	}
}

// A runner knows the data directory in which it works, and any other by its marker.
func TestRunJob_DataDirectoriesAreNoSources(t *testing.T) {
	for name, refused := range map[string]bool{"": true, "data": true, "data/state": true, "other": true, "code": false, "linked": true} {
		spec, cfg := job(t, "true")
		top := filepath.Dir(cfg.WorkDir)
		cfg.WorkDir = filepath.Join(top, "data", "jobs", "task")
		for _, dir := range []string{"data/state", "other", "linked"} {
			if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{"data", "other"} {
			if err := os.WriteFile(filepath.Join(top, dir, runner.DataMarker), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Link(filepath.Join(top, "data", runner.DataMarker), filepath.Join(top, "linked", "file")); err != nil {
			t.Fatal(err)
		}
		spec.Source.Directory = filepath.Join(top, name)
		r := newRelay(t, spec)
		runJob(t, r, cfg)
		got := r.result()
		if !refused && got.Outcome != workflow.Succeeded || refused && (got.Reason != workflow.ReasonSourceFailed || !strings.Contains(got.Detail, "data directory")) {
			t.Errorf("%q: got %+v", name, got)
		}
	}
}

// An engine can link to root's files from its state directory. They stay root's.
func TestRunJob_AFileWithASecondNameKeepsItsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give the engine a user of its own")
	}
	spec, cfg := job(t, `echo x > "$DAYFLY_STATE_DIR/own"`)
	cfg.StateDir = filepath.Join(filepath.Dir(cfg.WorkDir), "state")
	cfg.Engine = &child.User{UID: 200_077, GID: 200_077}
	publish(t, cfg.WorkDir)
	precious, own := filepath.Join(filepath.Dir(cfg.WorkDir), "precious"), filepath.Join(cfg.StateDir, "own")
	if err := errors.Join(os.Mkdir(cfg.StateDir, 0o700), os.WriteFile(own, nil, 0o600), os.WriteFile(precious, nil, 0o600), os.Link(precious, filepath.Join(cfg.StateDir, "linked"))); err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got, text := r.result(), r.text(); got.Outcome != workflow.Succeeded || !strings.Contains(text, `"linked" of the state directory has a second name`) {
		t.Errorf("got %+v; log: %s", got, text)
	}
	for path, want := range map[string]uint32{precious: 0, own: 200_077, cfg.StateDir: 200_077} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to %d, want %d", path, got, want)
		}
	}
}
