// Package disk writes small files that exist in full or not at all, even after a power failure. Only their owner can
// read them. It also removes directories with everything in them.
package disk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// TempSuffix ends the names of unfinished files. A crash may leave such a file behind; its name begins with a dot.
const TempSuffix = ".tmp"

// Replace writes a file in place of what is at its path. When it returns without an error, the file and its name are
// on disk.
func Replace(path string, data []byte) error {
	return in(path, func(dir *os.Root, name string) error { return ReplaceIn(dir, name, data) })
}

// ReplaceIn is Replace for a name in an open directory: a link cannot lead out of it.
func ReplaceIn(dir *os.Root, name string, data []byte) error {
	return write(dir, name, data, dir.Rename)
}

// Create is Replace that keeps a file that already exists: then its error is fs.ErrExist. A link, unlike a rename,
// does not replace a file that another process made meanwhile.
func Create(path string, data []byte) error {
	return in(path, func(dir *os.Root, name string) error { return write(dir, name, data, dir.Link) })
}

// Sync puts the names in a directory on disk, as they are.
func Sync(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func in(path string, do func(dir *os.Root, name string) error) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err == nil {
		err = errors.Join(do(dir, filepath.Base(path)), dir.Close())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// write writes a temporary file, moves it to its place, and removes the temporary name.
func write(dir *os.Root, name string, data []byte, place func(temp, name string) error) (err error) {
	temp := "." + name + "." + rand.Text() + TempSuffix
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if left := dir.Remove(temp); !errors.Is(left, fs.ErrNotExist) { // after a rename it is gone
			err = errors.Join(err, left)
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(temp, name); err != nil {
		return err
	}
	return Sync(dir)
}
