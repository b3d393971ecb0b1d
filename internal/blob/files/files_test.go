package files_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/blob/blobtest"
	"github.com/dayfly-dev/dayfly/internal/blob/files"
)

var _ blob.Store = (*files.Store)(nil)

func TestStore_Conformance(t *testing.T) {
	blobtest.Run(t, files.New(filepath.Join(t.TempDir(), "blobs")))
}

func TestPut_OnlyTheOwnerCanRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	if err := files.New(dir).Put(t.Context(), "a/b/c", []byte("x")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
