package disk

import (
	"fmt"
	"io/fs"
	"os"
)

// RemoveTree removes a directory, also where something in it was closed to us or made read-only, as module caches are.
// It follows no link out of it.
func RemoveTree(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	if root, err := os.OpenRoot(path); err == nil {
		_ = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, _ error) error {
			if e != nil && e.IsDir() {
				_ = root.Chmod(name, 0o700)
			}
			return nil
		})
		_ = root.Close()
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove directory %s: %w", path, err)
	}
	return nil
}
