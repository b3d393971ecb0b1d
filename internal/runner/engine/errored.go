package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	// erroredName is the file to which both engines write the state, beside the code, if its backend refuses it after
	// an apply. It is the only record of the new resources:
	// https://developer.hashicorp.com/terraform/cli/state/recover.
	erroredName = "errored.tfstate"
	keepTime    = 2 * time.Minute // to keep it, also while a run is being ended
)

// keepErrored keeps the state that an apply could not write, and adds to the failure where it is. Any other failure stays
// as it is.
func (t *terraform) keepErrored(ctx context.Context, failed error) error {
	if _, err := t.root.root.Lstat(erroredName); errors.Is(err, os.ErrNotExist) {
		return failed
	}
	return keepErrored(ctx, t.h, t.j, failed, t.root, map[string]string{".": erroredName})
}

// keepErrored keeps the states that units could not write.
func (g *terragrunt) keepErrored(ctx context.Context, failed error) error {
	files := map[string]string{}
	_ = fs.WalkDir(g.root.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.IsDir() && d.Name() == ".terraform":
			return fs.SkipDir
		case d.Name() == erroredName:
			unit, _, _ := strings.Cut("./"+path.Dir(name), "/.terragrunt-cache")
			files[path.Clean(unit)] = name
		}
		return nil //nolint:nilerr // readable files are kept
	})
	if len(files) == 0 {
		return failed
	}
	return keepErrored(ctx, g.h, g.j, failed, g.root, files)
}

// keepErrored keeps files with states as artifacts, by the units that they are of. States that cannot be kept stay on
// the machine if possible: they are the only record of the new resources.
func keepErrored(ctx context.Context, h Host, j Job, failed error, from *folder, files map[string]string) error {
	keep, stop := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer stop()
	var kept, local, lost []string
	var errs []error
	for _, unit := range slices.Sorted(maps.Keys(files)) {
		name := api.ErroredOf(unit)
		file, aside, err := setAside(j, from, files[unit], strings.ReplaceAll(strings.TrimPrefix(name, api.PlanDir), "/", "-"))
		if err == nil {
			_, _, err = h.Keep(keep, name, api.ArtifactState, file)
			_ = file.Close()
		}
		switch {
		case err == nil:
			kept = append(kept, name)
			if aside != "" {
				err = os.Remove(aside)
			}
			if err != nil {
				h.Logf("a copy of the artifact %s remains on the machine: %v", name, err)
			}
		case aside != "":
			local, errs = append(local, path.Base(aside)), append(errs, err)
		default:
			lost, errs = append(lost, unit), append(errs, err)
		}
	}
	get, push := api.PushErrored(j.Spec.Workflow, j.Spec.Workspace, j.Spec.Engine)
	var said string
	if len(kept) > 0 {
		said = fmt.Sprintf("; its state could not be written, and is kept as the artifact %s: get it (%s), then %s", text.Some(kept, maxListed), get, push)
	}
	if len(local) > 0 {
		said += fmt.Sprintf("; its state could not be written, nor kept as an artifact (%v): the only copy is %s in %s: there %s, then remove it", errs[0], text.Some(local, maxListed), j.Unsaved, push)
	}
	if len(lost) > 0 {
		lostState := "its state"
		if lost[0] != "." {
			lostState = "the state of " + text.Some(lost, maxListed)
		}
		said += fmt.Sprintf("; %s could not be written, and is lost: %v; import or delete the resources that the log lists as created, then dayfly repair unlock %s", lostState, errs[0], j.Spec.Workspace)
	}
	h.Logf("%s", said[2:])
	return saying(asFailure(ctx, failed), said)
}

// setAside opens a state, and moves it to a directory that outlives those of the run, until it is kept elsewhere. So
// it survives an abrupt end of the run or the agent. It is moved and not copied because the disk may be full. aside
// is empty if it could not be moved.
func setAside(j Job, from *folder, name, as string) (file *os.File, aside string, err error) {
	if file, err = from.open(name); err != nil || j.Unsaved == "" {
		return file, "", err
	}
	work, err := os.OpenRoot(j.Work)
	if err != nil {
		return file, "", nil //nolint:nilerr // it is kept as ever
	}
	defer func() { _ = work.Close() }()
	rel, err := filepath.Rel(j.Work, filepath.Join(from.path, name))
	if err != nil || work.MkdirAll(task.UnsavedName, 0o700) != nil || work.Rename(rel, path.Join(task.UnsavedName, as)) != nil {
		return file, "", nil //nolint:nilerr // it is kept as ever
	}
	// The engine may be another user.
	if err := errors.Join(file.Chown(os.Geteuid(), os.Getegid()), file.Chmod(0o600)); err != nil {
		return file, "", errors.Join(err, file.Close())
	}
	return file, filepath.Join(j.Work, task.UnsavedName, as), nil
}

// saying is a failure with more at the end of its sentence.
func saying(f *Failure, more string) *Failure {
	out := *f
	out.Detail = text.Middle(f.Detail, max(maxDetail-len(more), 0)) + text.Cut(more, maxDetail)
	return &out
}
