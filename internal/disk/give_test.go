package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/disk"
)

// A link to somebody's file, of either kind, does not make that file another's.
func TestGive_LeavesWhatHasASecondName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files to another user")
	}
	base := t.TempDir()
	state, precious := filepath.Join(base, "state"), filepath.Join(base, "precious")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(state, "sub"), 0o700),
		os.WriteFile(filepath.Join(state, "sub", "file"), nil, 0o600),
		os.WriteFile(precious, nil, 0o600),
		os.Link(precious, filepath.Join(state, "sub", "hard")),
		os.Symlink(precious, filepath.Join(state, "soft")),
		syscall.Mkfifo(filepath.Join(state, "pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenRoot(state)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close() //nolint:errcheck // a directory
	left, err := disk.Give(dir, 4711, 4712, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join("sub", "hard")}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	for name, want := range map[string]uint32{"state": 4711, "state/sub": 4711, "state/sub/file": 4711, "precious": 0, "state/sub/hard": 0} {
		info, err := os.Lstat(filepath.Join(base, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to %d, want %d", name, got, want)
		}
	}
	for _, name := range []string{"soft", "sub/hard", "pipe"} {
		if err := disk.GiveOne(dir, name, 4711, 4711); err == nil {
			t.Errorf("%s was given away", name)
		}
	}
	if _, err := disk.Give(dir, 4711, 4712, 3); !errors.Is(err, disk.ErrTooMany) {
		t.Errorf("got %v, want ErrTooMany", err)
	}
}
