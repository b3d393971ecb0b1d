package taskdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Olds returns the other state directories that a request names and that exist, as paths below the root of all
// states.
func (d *Dir[E]) Olds(r launcher.Request) []string {
	var out []string
	for _, old := range r.States.Olds {
		if info, err := os.Lstat(d.State(old)); d.StateRoot != "" && err == nil && info.IsDir() {
			out = append(out, old)
		}
	}
	return out
}

// State returns the directory of a state from its path below the root of all states.
func (d *Dir[E]) State(dir string) string { return filepath.Join(d.StateRoot, dir) }

// checkStates refuses a request that names a directory outside the root, or that needs one if there is no root.
func (d *Dir[E]) checkStates(r launcher.Request) error {
	if d.StateRoot == "" && r.States.Required {
		return launcher.Never("this launcher does not keep states: the state kind directory cannot be used here")
	}
	for _, dir := range append([]string{r.States.Own}, r.States.Olds...) {
		organization, key, _ := strings.Cut(dir, "/")
		if dir != "" && (!workflow.IsPathPart(organization) || !workflow.IsPathPart(key)) {
			return launcher.Never("%q does not name a directory for a state", dir)
		}
	}
	return nil
}

// passed is the mode of the directories above states: engines of other users pass through them and cannot list them. Each
// launcher makes them so, because the next one to use a data directory may be of another kind.
const passed = 0o711

// MakeState makes the directory of a state. Where it may not, the error is final and names the owner of the
// directory.
func (d *Dir[E]) MakeState(dir string) error {
	root, err := os.OpenRoot(d.StateRoot)
	if err != nil {
		return barred(fmt.Errorf("open directory for states: %w", err), d.StateRoot)
	}
	defer func() { _ = root.Close() }()
	above := filepath.Dir(dir)
	if err := root.Mkdir(above, passed); err != nil && !errors.Is(err, fs.ErrExist) {
		return barred(fmt.Errorf("make directory for states: %w", err), d.StateRoot)
	}
	if err := widen(root, above); err != nil {
		return barred(fmt.Errorf("set mode of directory for states: %w", err), d.State(above))
	}
	err = root.Mkdir(dir, 0o700)
	if err == nil {
		err = root.Chmod(dir, 0o700) // also where the umask took bits away
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return barred(fmt.Errorf("make directory for state: %w", err), d.State(above))
	}
	return nil
}

// makeRoot makes the directory above all states.
func makeRoot(dir string) error {
	if err := os.MkdirAll(dir, passed); err != nil {
		return fmt.Errorf("make directory for states: %w", err)
	}
	above, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("open directory for states: %w", err)
	}
	defer func() { _ = above.Close() }()
	if err := widen(above, filepath.Base(dir)); err != nil {
		return barred(fmt.Errorf("set mode of directory for states: %w", err), dir)
	}
	return nil
}

// widen lets others pass through a directory. It takes nothing away: jobs may be using it.
func widen(root *os.Root, name string) error {
	info, err := root.Stat(name)
	if err != nil || info.Mode().Perm()&passed == passed {
		return err
	}
	return root.Chmod(name, info.Mode().Perm()|passed)
}

// barred adds to an error of permission the owner of the directory and the remedy.
func barred(err error, dir string) error {
	info, serr := os.Stat(dir)
	if serr != nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	owner, us := info.Sys().(*syscall.Stat_t).Uid, os.Geteuid()
	return launcher.Never("%v: the directory %s belongs to user %d, has the mode %04o, and this process is user %d: chown -R %d %s, or run as that user",
		err, dir, owner, info.Mode().Perm(), us, us, dir)
}

// GiveState gives the directory of a state and its files to a user. It leaves files with a second name alone: see
// disk.Give.
func (d *Dir[E]) GiveState(dir string, uid int) error {
	all, err := os.OpenRoot(d.StateRoot)
	if err != nil {
		return fmt.Errorf("open directory for states: %w", err)
	}
	defer func() { _ = all.Close() }()
	root, err := all.OpenRoot(dir) // no link in it leads to the state of another workspace
	if err != nil {
		return fmt.Errorf("open directory for states: %w", err)
	}
	defer func() { _ = root.Close() }()
	skipped, err := disk.Give(root, uid, uid, 0)
	for _, name := range skipped {
		d.Log.Warn("file of a state not given to its user, because it has a second name", "state", dir, "file", name)
	}
	if err != nil {
		return fmt.Errorf("give state to user %d: %w", uid, err)
	}
	return nil
}
