package isolation_test

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// tools has a job try to replace an engine of the cache, which the next job would run.
func (w *world) tools() {
	const content = "an engine that was downloaded"
	dir := filepath.Join(w.Data, embedded.ToolsDir)
	version := filepath.Join(dir, "terraform", "1.9.5")
	kept := filepath.Join(version, "terraform")
	err := errors.Join(os.MkdirAll(version, 0o755), os.WriteFile(kept, []byte(content), 0o755))
	for _, path := range []string{dir, filepath.Dir(version), version, kept} { // as a download leaves them
		err = errors.Join(err, os.Chmod(path, 0o755))
	}
	if err != nil {
		w.T.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(version)) }()
	at := dir
	if w.target == config.TargetDocker {
		at = "/dayfly/tools"
	}
	w.jobSucceeds("tools", "tools "+filepath.Join(at, "terraform", "1.9.5", "terraform"))
	got, err := os.ReadFile(kept)
	info, missing := os.Lstat(kept)
	w.tried("change the engine of the next job", err == nil && missing == nil && string(got) == content && info.Mode() == 0o755, "%q, %v, %v", got, err, missing)
	entries, err := os.ReadDir(filepath.Dir(version))
	w.tried("add an engine for the next job", err == nil && len(entries) == 1, "%v, %v", entries, err)
}
