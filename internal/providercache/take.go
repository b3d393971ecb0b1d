package providercache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/dayfly-dev/dayfly/internal/disk"
)

const (
	maxEntries = 10_000 // files and directories of one task that are looked at
	levels     = 5      // HOST/NAMESPACE/TYPE/VERSION/OS_ARCH
	program    = "terraform-provider-"
)

var (
	errKnown = errors.New("the package is in the cache already")
	errMany  = fmt.Errorf("the task has more than %d files and directories for the cache", maxEntries)
)

// reading reads the packages of a task. Its code may have written them: no link is followed, nothing is opened that
// could block, and all is bounded.
type reading struct {
	root      *os.Root
	limit     int64 // bytes of a package
	remaining int   // entries that may still be read
}

// taskPackage is a package of a task.
type taskPackage struct {
	dir      string // in the root
	platform string // that its directory names
}

// packages lists the packages. Links are skipped: the engine links to packages in a mirror, such as the cache itself.
func (l *reading) packages() (found []taskPackage, err error) {
	dirs := []string{TaskPackages}
	for range levels {
		var below []string
		for _, dir := range dirs {
			entries, err := l.entries(dir)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if e.IsDir() {
					below = append(below, path.Join(dir, e.Name()))
				}
			}
		}
		dirs = below
	}
	for _, dir := range dirs {
		found = append(found, taskPackage{dir: dir, platform: path.Base(dir)})
	}
	return found, nil
}

// entries lists a directory, within the bound.
func (l *reading) entries(dir string) ([]fs.DirEntry, error) {
	f, err := l.root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(l.remaining + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if l.remaining -= len(entries); l.remaining < 0 && err == nil {
		err = errMany
	}
	return entries, err
}

// files lists the files of a package, by their names in it.
func (l *reading) files(dir string) (names []string, bytes int64, err error) {
	var walk func(below string) error
	walk = func(below string) error {
		entries, err := l.entries(path.Join(dir, below))
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := path.Join(below, e.Name())
			if e.IsDir() {
				if err := walk(name); err != nil {
					return err
				}
				continue
			}
			info, err := l.root.Lstat(path.Join(dir, name))
			if err == nil {
				err = plain(info)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if bytes += info.Size(); bytes > l.limit {
				return fmt.Errorf("it has more than %d bytes, which the whole cache may have", l.limit)
			}
			names = append(names, name)
		}
		return nil
	}
	return names, bytes, walk(".")
}

// plain refuses anything but a file, and a file with another name, because it might never have been the job's.
func plain(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || !ok || st.Nlink != 1 {
		return errors.New("it is not a plain file with one name")
	}
	return nil
}

// open opens a plain file.
func open(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = plain(info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// reader ends with ctx.
type reader struct {
	io.Reader
	ctx context.Context //nolint:containedctx // io.Reader has no place for one
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// add copies a package into the cache, unless it is there, and returns its name. The copy counts: a descriptor of the
// job's files may live on in another job. The hash covers no modes, so the cache sets them. It covers no platform
// either, so the program itself must be for the one that the package is said to be for: a lock file has the hashes of
// several.
func (s *Store) add(ctx context.Context, l *reading, p taskPackage) (name string, bytes int64, err error) {
	names, bytes, err := l.files(p.dir)
	if err != nil {
		return "", 0, err
	}
	hash, err := dirhash.Hash1(names, func(name string) (io.ReadCloser, error) {
		f, err := open(l.root, path.Join(p.dir, name))
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{reader{io.LimitReader(f, bytes), ctx}, f}, nil
	})
	if err != nil {
		return "", 0, err
	}
	name, _ = nameOf(hash)
	known, err := s.known(name)
	if err == nil && known {
		err = errKnown
	}
	if err != nil {
		return name, bytes, err
	}
	temp, err := os.MkdirTemp(s.path(packagesDir), unfinished)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = disk.RemoveTree(temp) }() // unless it has its name already
	if bytes, err = copyPackage(ctx, l.root, p.dir, names, bytes, temp); err != nil {
		return "", 0, err
	}
	if err := checkPrograms(temp, p.platform); err != nil {
		return "", 0, err
	}
	copied, err := dirhash.HashDir(temp, "", dirhash.Hash1)
	if err != nil {
		return "", 0, err
	}
	if copied != hash {
		return "", 0, errors.New("its files changed while they were copied")
	}
	return name, bytes, s.place(temp, name, &entry{bytes: bytes, platform: p.platform})
}

// copyPackage copies files, at most limit bytes, and returns how many it copied.
func copyPackage(ctx context.Context, root *os.Root, dir string, names []string, limit int64, to string) (bytes int64, err error) {
	target, err := os.OpenRoot(to)
	if err != nil {
		return 0, err
	}
	defer func() { _ = target.Close() }()
	for _, name := range names {
		n, err := copyFile(ctx, root, path.Join(dir, name), target, name, limit-bytes)
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	err = filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, 0o755) //nolint:gosec // G302: engines run as other users
		}
		return err
	})
	if err == nil {
		err = disk.Sync(target)
	}
	return bytes, err
}

func copyFile(ctx context.Context, root *os.Root, from string, target *os.Root, name string, limit int64) (n int64, err error) {
	in, err := open(root, from)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()
	if err := target.MkdirAll(path.Dir(name), 0o755); err != nil {
		return 0, err
	}
	out, err := target.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	if n, err = io.Copy(out, reader{io.LimitReader(in, limit), ctx}); err == nil {
		err = out.Chmod(0o555)
	}
	if err == nil {
		err = out.Sync() // an engine would refuse a package that lost its bytes with the power
	}
	return n, errors.Join(err, out.Close())
}

// checkPrograms refuses a package without a program for its platform.
func checkPrograms(dir, platform string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := 0
	for _, e := range entries {
		if e.IsDir() || !strings.HasPrefix(e.Name(), program) {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name())) //nolint:gosec // G304: the copy
		if err != nil {
			return err
		}
		is := PlatformOf(f)
		if err := f.Close(); err != nil {
			return err
		}
		if is == "" || is != platform {
			return fmt.Errorf("%s is not a program for %s", e.Name(), platform)
		}
		found++
	}
	if found == 0 {
		return fmt.Errorf("it has no file whose name begins with %s", program)
	}
	return nil
}
