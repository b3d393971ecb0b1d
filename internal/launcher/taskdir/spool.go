package taskdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxSpools are kept at once; the oldest make room.
const maxSpools = 64

// SpoolDir keeps spools in a directory, named by their tasks. It is a launcher.Spooler.
type SpoolDir struct {
	Dir   string
	Owner int // the user of runners, which owns all spools
	Now   func() time.Time
}

// Keep moves the spool of a task, if there is one, out of the task's directory. All processes of the task must have
// ended.
func (s *SpoolDir) Keep(ref, workDir string) error {
	from := filepath.Join(workDir, task.SpoolName)
	if info, err := os.Lstat(from); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil //nolint:nilerr // there is none
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("keep the log of task %s: %w", ref, err)
	}
	if err := os.Rename(from, filepath.Join(s.Dir, ref)); err != nil {
		return fmt.Errorf("keep the log of task %s: %w", ref, err)
	}
	_, err := s.Spools()
	return err
}

// Spools implements launcher.Spooler. It drops spools that are too old for the control plane, and the oldest of too
// many.
func (s *SpoolDir) Spools() ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the logs of ended tasks: %w", err)
	}
	kept := map[string]time.Time{}
	var refs []string
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			kept[e.Name()] = info.ModTime()
			refs = append(refs, e.Name())
		}
	}
	slices.SortFunc(refs, func(a, b string) int { return kept[b].Compare(kept[a]) })
	for i, ref := range refs {
		if i == maxSpools || s.Now().Sub(kept[ref]) > workflow.ReportRetention {
			for _, old := range refs[i:] {
				err = errors.Join(err, s.DropSpool(old))
			}
			return refs[:i], err
		}
	}
	return refs, nil
}

// Spool implements launcher.Spooler. It opens only a plain file of the runners' user that has no other name.
func (s *SpoolDir) Spool(ref string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, filepath.Base(ref)), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open the log of task %s: %w", ref, err)
	}
	info, err := f.Stat()
	if err == nil {
		st, ok := info.Sys().(*syscall.Stat_t)
		if !info.Mode().IsRegular() || !ok || st.Nlink != 1 || int(st.Uid) != s.Owner {
			err = errors.New("the file was not made by a runner")
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log of task %s: %w", ref, err), f.Close())
	}
	return f, nil
}

// DropSpool implements launcher.Spooler.
func (s *SpoolDir) DropSpool(ref string) error {
	if err := os.Remove(filepath.Join(s.Dir, filepath.Base(ref))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop the log of task %s: %w", ref, err)
	}
	return nil
}

// Has reports whether a spool is kept: its task is to stay known until it is delivered.
func (s *SpoolDir) Has(ref string) bool {
	_, err := os.Lstat(filepath.Join(s.Dir, ref))
	return err == nil
}
