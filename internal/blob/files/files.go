// Package files keeps blobs as files below one directory. It is for one machine: the directory is not shared.
package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Store keeps blobs below a directory.
type Store struct{ dir string }

// New returns the store below a directory, which is made with the first blob. Only its owner may read it.
func New(dir string) *Store { return &Store{dir} }

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, name string, body []byte) error {
	if err := blob.CheckPut(name, body); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// A record that names a blob must not outlive it, so the names of its directories are on disk too.
	if err := disk.MakeDirs(s.dir, path.Dir(name)); err != nil {
		return fmt.Errorf("put blob: %w", err)
	}
	err := disk.Create(filepath.Join(s.dir, filepath.FromSlash(name)), body)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, name string) ([]byte, error) {
	if err := blob.CheckName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	body, err := os.ReadFile(filepath.Join(s.dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, workflow.Refuse(workflow.ErrNotFound, "", "there is no blob %s", name)
	}
	return body, err
}

// DeleteAll deletes all blobs whose names begin with dir and a slash.
func (s *Store) DeleteAll(ctx context.Context, dir string) error {
	if err := blob.CheckName(dir); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(s.dir, filepath.FromSlash(dir)))
}
