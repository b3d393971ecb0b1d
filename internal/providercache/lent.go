package providercache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/disk"
)

// Directories of a task, in its work directory, for the packages that the programs of a workspace are built from.
const (
	TaskLent = "packages-lent" // the workspace's cache of packages, which the task may fill
	TaskKept = "packages-kept" // its name once it may be kept
)

const (
	maxLent = 300_000 // files and directories of a cache that are given to a user
	lentDir = ".lent" // has a note for each task with a cache: the id of its workspace
)

// Lend moves a workspace's cache of packages into the work directory of a task, or makes an empty one there, and gives it
// to the task's user; 0: that of this process. A second task at the same time gets an empty one. One that cannot be
// given as a whole is dropped.
func (s *Store) Lend(ref, workspace, workDir string, owner int) error {
	if s.cfg.Packages == "" {
		return nil
	}
	if workspace == "" || strings.ContainsAny(workspace, "./") {
		return fmt.Errorf("lend packages: %q is not the id of a workspace", workspace)
	}
	to := filepath.Join(workDir, TaskLent)
	err := makeDir(filepath.Join(s.cfg.Packages, lentDir), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.cfg.Packages, lentDir, ref), []byte(workspace), 0o600)
	}
	s.mu.Lock()
	for _, c := range s.caches() {
		if err == nil && c.workspace == workspace {
			err = os.Rename(c.path, to)
		}
	}
	s.mu.Unlock()
	if err == nil && give(to, owner) == nil {
		return nil
	}
	_ = disk.RemoveTree(to)
	if err = errors.Join(err, os.Mkdir(to, 0o700)); err == nil {
		err = give(to, owner)
	}
	return err
}

// give makes a user the owner of all of a directory.
func give(dir string, owner int) error {
	root, err := os.OpenRoot(dir)
	if err != nil || owner == 0 {
		return err
	}
	defer func() { _ = root.Close() }()
	left, err := disk.Give(root, owner, owner, maxLent)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s has files with a second name", dir)
	}
	return err
}

// takeBack keeps the cache that was lent to a task, if the task says that it may be kept and it fits. Only a task that was
// lent one can leave one, whatever its code has made in the work directory.
func (s *Store) takeBack(ref, workDir string) error {
	note := filepath.Join(s.cfg.Packages, lentDir, ref)
	workspace, err := os.ReadFile(note) //nolint:gosec // G304: of the store itself
	if err != nil || s.cfg.Packages == "" || os.Remove(note) != nil {
		return nil //nolint:nilerr // it was lent none
	}
	from := filepath.Join(workDir, TaskKept)
	if info, err := os.Lstat(from); err != nil || !info.IsDir() {
		s.cfg.Log.Info("cache of packages dropped", "task", ref, "workspace", string(workspace), "reason", "its run did not end well")
		return nil
	}
	size := bytesOf(from)
	if size > s.cfg.Bytes {
		s.cfg.Log.Warn("cache of packages dropped", "task", ref, "workspace", string(workspace), "bytes", size, "limit", s.cfg.Bytes)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	total := size
	for _, c := range s.caches() { // the last used one first
		if total += c.bytes; c.workspace == string(workspace) || total > s.cfg.Bytes {
			total -= c.bytes
			if err := disk.RemoveTree(c.path); err != nil {
				return fmt.Errorf("make room for packages: %w", err)
			}
		}
	}
	to := filepath.Join(s.cfg.Packages, string(workspace)+"."+strconv.FormatInt(size, 10))
	if err = os.Rename(from, to); err == nil { //nolint:gosec // G703: see the note
		err = os.Chtimes(to, s.cfg.Now(), s.cfg.Now())
	}
	return err
}

// lent is a cache of packages, by its name in the store: WORKSPACE.BYTES.
type lent struct {
	path, workspace string
	bytes           int64
	used            time.Time
}

// caches lists those that no task has, the last used one first.
func (s *Store) caches() (all []lent) {
	entries, _ := os.ReadDir(s.cfg.Packages)
	for _, e := range entries {
		workspace, size, _ := strings.Cut(e.Name(), ".")
		bytes, err := strconv.ParseInt(size, 10, 64)
		if info, infoErr := e.Info(); err == nil && infoErr == nil && workspace != "" {
			all = append(all, lent{filepath.Join(s.cfg.Packages, e.Name()), workspace, bytes, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b lent) int { return b.used.Compare(a.used) })
	return all
}
