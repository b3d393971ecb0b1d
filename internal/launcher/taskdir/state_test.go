package taskdir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
)

// Jobs of one launcher do not lock out those of the next: whichever comes first, engines of other users pass through to
// their states, and list nothing.
func TestState_DirectoriesAboveItCanBePassedThrough(t *testing.T) {
	for name, before := range map[string]fs.FileMode{"new": 0, "made by an earlier launcher": 0o700, "open to a group": 0o750} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "state")
			if before != 0 {
				if err := errors.Join(os.MkdirAll(filepath.Join(root, "default"), before), os.Chmod(root, before), os.Chmod(filepath.Join(root, "default"), before)); err != nil {
					t.Fatal(err)
				}
			}
			for _, mode := range []fs.FileMode{0, 0o711} { // a container's, and a process's of root
				d, err := taskdir.Open[*entry](launcher.Machine{Dir: filepath.Join(dir, mode.String()), StateRoot: root, Now: time.Now}, mode, os.Geteuid())
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(d.MakeState("default/net"), d.Unlock()); err != nil {
					t.Fatal(err)
				}
				for path, want := range map[string]fs.FileMode{root: before | 0o711, filepath.Join(root, "default"): before | 0o711, filepath.Join(root, "default/net"): 0o700} {
					info, err := os.Stat(path)
					if err != nil {
						t.Fatal(err)
					}
					if got := info.Mode().Perm(); got != want {
						t.Errorf("%s has the mode %04o, want %04o", path, got, want)
					}
				}
			}
		})
	}
}
