package disk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/disk"
)

func TestRemoveTree_OpensWhatWasClosed(t *testing.T) {
	base := t.TempDir()
	outside, tree := filepath.Join(base, "outside"), filepath.Join(base, "tree")
	deep := filepath.Join(tree, "a", "b")
	err := errors.Join(os.Mkdir(outside, 0o500), os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(deep, "f"), nil, 0o400),
		os.Symlink(outside, filepath.Join(deep, "link")), os.Chmod(deep, 0o500), os.Chmod(filepath.Dir(deep), 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.RemoveTree(tree); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want nothing left", err)
	}
	if info, err := os.Lstat(outside); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("got %v, %v, want the unchanged target of the link", info, err)
	}
	if err := disk.RemoveTree(tree); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}
