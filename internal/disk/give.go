package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrTooMany means that a directory holds more entries than it may.
var ErrTooMany = errors.New("too many files")

// errOther means that an entry is neither a directory nor a plain file with one name.
var errOther = errors.New("not a directory or a file with one name")

// Give makes a user the owner of a directory, and of the directories and plain files in it. Somebody may change them
// meanwhile: each is opened first, and the opened file is checked and given away. It leaves a file with a second name
// alone, because that name may be anywhere, and returns such names. It leaves links, pipes and sockets alone too:
// they can be removed by the owner of their directory. More than limit entries are ErrTooMany; 0 means no limit.
func Give(dir *os.Root, uid, gid, limit int) (left []string, err error) {
	n := 0
	err = fs.WalkDir(dir.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n++; limit > 0 && n > limit {
			return ErrTooMany
		}
		if !e.IsDir() && !e.Type().IsRegular() {
			return nil
		}
		if err = GiveOne(dir, name, uid, gid); errors.Is(err, errOther) {
			left = append(left, name)
			return nil
		}
		return err
	})
	return left, err
}

// GiveOne makes a user the owner of one directory, or of one plain file that has no other name. It follows no link
// out of dir.
func GiveOne(dir *os.Root, name string, uid, gid int) error {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() && (!info.Mode().IsRegular() || st.Nlink > 1) {
		return fmt.Errorf("%s: %w", name, errOther)
	}
	if int(st.Uid) == uid && int(st.Gid) == gid {
		return nil
	}
	return f.Chown(uid, gid)
}
