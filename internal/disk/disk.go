// Package disk writes files that exist in full or not at all, even after a power failure. Only their owner can
// read them. It also removes directories with everything in them.
package disk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// TempSuffix ends the names of unfinished files. A crash may leave such a file behind; its name begins with a dot.
const TempSuffix = ".tmp"

// Replace writes a file, or replaces the one at its path. When it returns without an error, the file and its name are
// on disk.
func Replace(path string, data []byte) error {
	return in(path, func(dir *os.Root, name string) error { return ReplaceIn(dir, name, data) })
}

// ReplaceIn is Replace for a name in an open directory: a link cannot lead out of it.
func ReplaceIn(dir *os.Root, name string, data []byte) error {
	return write(dir, name, bytesOf(data), dir.Rename)
}

func bytesOf(data []byte) func(io.Writer) error {
	return func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	}
}

// Create is Replace that keeps a file that already exists: then its error is fs.ErrExist. A link, unlike a rename,
// does not replace a file that another process made meanwhile.
func Create(path string, data []byte) error {
	return in(path, func(dir *os.Root, name string) error { return CreateIn(dir, name, bytesOf(data)) })
}

// CreateIn is Create for a name in an open directory. fill writes the file; where it fails, there is none.
func CreateIn(dir *os.Root, name string, fill func(io.Writer) error) error {
	return write(dir, name, fill, dir.Link)
}

// MakeDirs makes a directory below another, with those between them and that other one, and puts their names on disk.
// Only their owner can enter them.
func MakeDirs(base, name string) error {
	at := base
	for part := range strings.SplitSeq("./"+name, "/") {
		parent := at
		at = filepath.Join(at, part)
		err := os.Mkdir(at, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if part == "." {
			parent = filepath.Dir(at)
		}
		above, err := os.OpenRoot(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(Sync(above), above.Close()); err != nil {
			return err
		}
	}
	return nil
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
func write(dir *os.Root, name string, fill func(io.Writer) error, place func(temp, name string) error) (err error) {
	temp := "." + name + "." + rand.Text() + TempSuffix
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if failed := dir.Remove(temp); !errors.Is(failed, fs.ErrNotExist) { // after a rename it is gone
			err = errors.Join(err, failed)
		}
	}()
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := place(temp, name); err != nil {
		return err
	}
	return Sync(dir)
}
