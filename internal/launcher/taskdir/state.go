package taskdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// MakeState makes the directory of a state.
func (d *Dir[E]) MakeState(dir string) error {
	root, err := os.OpenRoot(d.StateRoot)
	if err != nil {
		return fmt.Errorf("open directory for states: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, one := range []struct {
		name string
		mode fs.FileMode
	}{{filepath.Dir(dir), d.mode}, {dir, 0o700}} {
		err := root.Mkdir(one.name, one.mode)
		if err == nil {
			err = root.Chmod(one.name, one.mode) // whatever the umask took away
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make directory for state: %w", err)
		}
	}
	return nil
}

// GiveState gives the directory of a state and what is in it to a user. It leaves files with a second name alone: see
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
	left, err := disk.Give(root, uid, uid, 0)
	for _, name := range left {
		d.Log.Warn("file of a state not given to its user, because it has a second name", "state", dir, "file", name)
	}
	if err != nil {
		return fmt.Errorf("give state to user %d: %w", uid, err)
	}
	return nil
}
