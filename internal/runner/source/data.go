package source

import (
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// DataMarker is a file of every data directory of Dayfly. No directory that has it, or lies below one that has it, is
// a source.
const DataMarker = ".dayfly-data"

func isDataDir(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, DataMarker))
	return err == nil && info.Mode().IsRegular()
}

// upwards yields a path and each directory above it.
func upwards(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(path) && path != filepath.Dir(path) {
			path = filepath.Dir(path)
		}
	}
}

// DataAbove returns the data directory in which a directory lies; empty where it lies in none.
func DataAbove(dir string) string {
	for at := range upwards(dir) {
		if filepath.IsAbs(at) && isDataDir(at) {
			return at
		}
	}
	return ""
}

// ownData is the data directory of this machine's own agent. Its directories are recognised by device and inode,
// because they may be mounted elsewhere too. nil is an unknown one.
type ownData struct {
	path string
	dirs []fs.FileInfo // itself and those in it
}

func newOwnData(path string) *ownData {
	info, err := os.Stat(path)
	if path == "" || err != nil {
		return nil
	}
	d := &ownData{path: path, dirs: []fs.FileInfo{info}}
	entries, _ := os.ReadDir(path) // where it cannot be listed, the marker is enough
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.IsDir() {
			d.dirs = append(d.dirs, info)
		}
	}
	return d
}

// has reports whether a directory is the data directory or one in it.
func (d *ownData) has(dir fs.FileInfo) bool {
	return d != nil && slices.ContainsFunc(d.dirs, func(one fs.FileInfo) bool { return os.SameFile(one, dir) })
}

// within reports whether the data directory lies in a directory.
func (d *ownData) within(dir fs.FileInfo) bool {
	if d == nil {
		return false
	}
	for at := range upwards(d.path) {
		if info, err := os.Stat(at); err == nil && os.SameFile(info, dir) {
			return true
		}
	}
	return false
}

// fileID identifies a file of the machine.
type fileID struct{ device, inode uint64 }

func idOf(st *syscall.Stat_t) fileID {
	return fileID{uint64(st.Dev), st.Ino} //nolint:gosec,unconvert // a number of another size on other systems
}

// linked returns the files of the data directory that have several names. Unreadable directories are skipped: this
// process could not copy from them either.
func (d *ownData) linked() map[fileID]bool {
	out := map[fileID]bool{}
	if d == nil {
		return out
	}
	_ = filepath.WalkDir(d.path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // see above
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
				out[idOf(st)] = true
			}
		}
		return nil
	})
	return out
}

// refuseData refuses a directory that is a data directory, or lies in one, or in which that of this machine's own
// agent lies. where is its path without links.
func refuseData(where string, dir fs.FileInfo, own *ownData) error {
	for at := range upwards(where) {
		info, err := os.Stat(at)
		if err != nil {
			return reading(at, err)
		}
		if isDataDir(at) || own.has(info) {
			return workflow.Refuse(workflow.ErrForbidden, "source.directory",
				"%s is in the data directory %s of Dayfly, with its secrets, tokens and states: keep the code outside of it", quote(where), quote(at))
		}
	}
	if own.within(dir) {
		return workflow.Refuse(workflow.ErrForbidden, "source.directory",
			"%s contains the data directory %s of Dayfly, with its secrets, tokens and states: name a directory that has only the code, or keep the data elsewhere (--data)", quote(where), quote(own.path))
	}
	return nil
}

// containsData refuses a source in which a data directory was found.
func containsData(name string) error {
	return workflow.Refuse(workflow.ErrForbidden, "source.directory",
		"the directory %s of the source is a data directory of Dayfly, with its secrets, tokens and states: name a directory that has only the code, or keep the data elsewhere (--data)", quote(name))
}
