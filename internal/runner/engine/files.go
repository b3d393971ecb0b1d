package engine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// folder is a directory in which the engine's user can change everything, and the runner, which
// may be root, writes and reads. All goes through one open directory, and no link is followed at
// the end of a name, so that no file of the engine leads the runner elsewhere.
type folder struct {
	root  *os.Root
	path  string
	owner *Owner
}

func openFolder(path string, owner *Owner) (*folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open directory of the run: %w", err)
	}
	return &folder{root: root, path: path, owner: owner}, nil
}

func (f *folder) close() { _ = f.root.Close() }

// closeAll closes those that were opened.
func closeAll(folders ...*folder) {
	for _, f := range folders {
		if f != nil {
			f.close()
		}
	}
}

// names lists a directory, and nothing where there is none.
func (f *folder) names(dir string) (names []string, err error) {
	if f == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(f.root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// hollow says whether a file is there and empty.
func (f *folder) hollow(name string) bool {
	if f == nil {
		return false
	}
	info, err := f.root.Lstat(name)
	return err == nil && info.Size() == 0
}

// join returns the path of a name, for the engine.
func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

// write replaces anything of that name by a file that only the engine's user can read.
func (f *folder) write(name string, data []byte) error {
	file, err := f.create(name)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (f *folder) create(name string) (*os.File, error) {
	if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if f.owner != nil {
		if err := file.Chown(f.owner.UID, f.owner.GID); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	return file, nil
}

// mkdir makes a directory for the engine's user.
func (f *folder) mkdir(name string) error {
	if err := f.root.Mkdir(name, 0o700); err != nil {
		return err
	}
	if f.owner != nil {
		return disk.GiveOne(f.root, name, f.owner.UID, f.owner.GID)
	}
	return nil
}

// fill replaces the file of that name, whole or not at all.
func (f *folder) fill(name string, content io.Reader) error {
	part := name + ".part"
	file, err := f.create(part)
	if err != nil {
		return err
	}
	if _, err = io.Copy(file, content); err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return f.root.Rename(part, name)
}

// linkTo makes a name lead to a directory elsewhere, for the engine's user.
func (f *folder) linkTo(name, target string) error {
	if err := f.mkdirs(path.Dir(name)); err != nil {
		return err
	}
	if err := f.root.RemoveAll(name); err != nil {
		return err
	}
	return f.root.Symlink(target, name) // a link needs no owner: the owner of its directory may replace it
}

// mkdirs makes a directory and those on the way to it, where they are not there yet.
func (f *folder) mkdirs(name string) error {
	if name == "." || name == "" {
		return nil
	}
	if err := f.mkdirs(path.Dir(name)); err != nil {
		return err
	}
	err := f.mkdir(name)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

var errTooLong = errors.New("it is too long")

// read returns a plain file that the engine wrote itself. It refuses a symbolic or hard link to the file of another
// user.
func (f *folder) read(name string, limit int64) ([]byte, error) {
	file, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooLong
	}
	return data, err
}

func (f *folder) open(name string) (*os.File, error) {
	seen, err := f.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := f.plain(name, seen); err != nil {
		return nil, err
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = f.plain(name, info)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func (f *folder) plain(name string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a plain file", name)
	case ok && st.Nlink > 1:
		return fmt.Errorf("%s has other names", name)
	case ok && f.owner != nil && int(st.Uid) != f.owner.UID && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", name)
	default:
		return nil
	}
}

// give makes the engine's user the owner of everything in the directory, which an earlier run may have given to
// another user. It returns the names that it skipped: see disk.Give.
func (f *folder) give() (skipped []string, err error) {
	if f.owner == nil {
		return nil, nil
	}
	const limit = 10_000
	skipped, err = disk.Give(f.root, f.owner.UID, f.owner.GID, limit)
	if errors.Is(err, disk.ErrTooMany) {
		err = workflow.Refuse(workflow.ErrTooLarge, "state", "the state directory holds more than %d files", limit)
	}
	return skipped, err
}

// newName returns a random name, so that the engine cannot have made a file of that name before.
func newName(prefix, suffix string) string { return prefix + rand.Text() + suffix }
