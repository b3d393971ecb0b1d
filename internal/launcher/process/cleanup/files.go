package cleanup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// shared are the directories in which every user may leave files, those of message queues included.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"}

const (
	maxDepth  = 200 // of directories that are removed: each level holds a descriptor
	namesRead = 1000
)

var errRest = errors.New("more than could be removed in time")

// DropFiles removes the files of a user without processes in the shared directories, and its shared memory,
// semaphores and message queues. It follows no link and removes nothing else. A file that cannot be removed before
// the time is over becomes root's and is closed to others, so that the next task with that user cannot use it.
func DropFiles(uid uint32, by time.Time) error {
	errs := []error{dropMemory(uid)}
	mounted, done := queues()
	defer done()
	for _, dir := range append([]string{mounted}, shared...) {
		errs = append(errs, dropIn(dir, uid, by))
	}
	return errors.Join(errs...)
}

// dropIn removes the entries of a directory that belong to a user.
func dropIn(path string, uid uint32, by time.Time) error {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil //nolint:nilerr // there is no such directory
	}
	defer func() { _ = dir.Close() }()
	all, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }()
	var errs []error
	for {
		names, err := all.Readdirnames(namesRead)
		for _, name := range names {
			info, err := dir.Lstat(name)
			if err != nil || owner(info) != uid {
				continue
			}
			if err := drop(dir, name, by, maxDepth); err != nil {
				errs = append(errs, fmt.Errorf("remove %s/%s: %w", path, name, errors.Join(err, take(dir, name, info))))
			}
		}
		if errors.Is(err, io.EOF) || len(names) == 0 {
			return errors.Join(errs...)
		}
	}
}

func owner(info fs.FileInfo) uint32 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid
	}
	return 0
}

// drop removes an entry and, if it is a directory, all in it.
func drop(dir *os.Root, name string, by time.Time, depth int) error {
	if depth == 0 || time.Now().After(by) {
		return errRest
	}
	err := dir.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	sub, err := dir.OpenRoot(name)
	if err != nil {
		return err
	}
	err = empty(sub, by, depth-1)
	if err = errors.Join(err, sub.Close()); err != nil {
		return err
	}
	return dir.Remove(name)
}

// empty removes all that is in a directory. Entries may be passed over while others go, so it looks again.
func empty(dir *os.Root, by time.Time, depth int) error {
	for {
		all, err := dir.Open(".")
		if err != nil {
			return err
		}
		names, err := all.Readdirnames(namesRead)
		_ = all.Close()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := drop(dir, name, by, depth); err != nil {
				return err
			}
		}
	}
}

// take gives an entry to root.
func take(dir *os.Root, name string, info fs.FileInfo) error {
	err := dir.Lchown(name, 0, 0)
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		err = dir.Chmod(name, 0o700)
	}
	return err
}
