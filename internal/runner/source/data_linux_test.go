package source_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A directory is known by what it is, and not by its name.
func TestSources_AMountOfADataDirectoryIsOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	home := tempDir(t)
	write(t, home, map[string]string{"own/state/default/ws/main.tf": "x", "other/.dayfly-data": "", "code/own/": "", "code/state/": "", "code/other/": "", "code/main.tf": "x"})
	s := source.Sources{Roots: []string{home}, Data: filepath.Join(home, "own")}
	for from, to := range map[string]string{"own": "code/own", "own/state": "code/state", "other": "code/other"} {
		at := filepath.Join(home, to)
		if err := syscall.Mount(filepath.Join(home, from), at, "", syscall.MS_BIND, ""); err != nil {
			t.Skipf("a directory cannot be mounted here: %v", err)
		}
		for _, dir := range []string{filepath.Join(home, "code"), at} {
			for how, err := range everywhere(t, s, dir) {
				if !errors.Is(err, workflow.ErrForbidden) {
					t.Errorf("%s of %s with %s at %s: got %v, want it refused", how, dir, from, to, err)
				}
			}
		}
		if err := syscall.Unmount(at, 0); err != nil {
			t.Fatal(err)
		}
	}
	for how, err := range everywhere(t, s, filepath.Join(home, "code")) {
		if err != nil {
			t.Errorf("%s without a mount: %v", how, err)
		}
	}
}
