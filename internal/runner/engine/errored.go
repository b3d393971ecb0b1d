package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	// erroredName is where both engines leave the state, beside the code, if its backend refuses it after an apply. Nothing
	// else has what was made: https://developer.hashicorp.com/terraform/cli/state/recover.
	erroredName = "errored.tfstate"
	keepTime    = 2 * time.Minute // in which it is kept, also of a run that is being ended
)

// keepErrored keeps the state that an apply could not write, and adds to the failure where it is. Any other failure stays
// as it is.
func (t *terraform) keepErrored(ctx context.Context, failed error) error {
	if _, err := t.root.root.Lstat(erroredName); errors.Is(err, os.ErrNotExist) {
		return failed
	}
	return keepErrored(ctx, t.h, t.j.Spec, failed, t.root, map[string]string{".": erroredName})
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
		return nil //nolint:nilerr // what can be read is kept
	})
	if len(files) == 0 {
		return failed
	}
	return keepErrored(ctx, g.h, g.j.Spec, failed, g.root, files)
}

// keepErrored keeps files with states as artifacts, by the units that they are of.
func keepErrored(ctx context.Context, h Host, spec api.Spec, failed error, from *folder, files map[string]string) error {
	keep, stop := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer stop()
	var kept, lost []string
	var errs []error
	for _, unit := range slices.Sorted(maps.Keys(files)) {
		name := api.ErroredOf(unit)
		file, err := from.open(files[unit])
		if err == nil {
			_, _, err = h.Keep(keep, name, api.ArtifactState, file)
			_ = file.Close()
		}
		if err != nil {
			lost, errs = append(lost, unit), append(errs, err)
		} else {
			kept = append(kept, name)
		}
	}
	var said string
	if len(kept) > 0 {
		get, push := api.PushErrored(spec.Workflow, spec.Workspace, spec.Engine)
		said = fmt.Sprintf("; its state could not be written, and is kept as the artifact %s: get it (%s), then %s", text.Some(kept, mostTold), get, push)
	}
	if len(lost) > 0 {
		whose := "its state"
		if lost[0] != "." {
			whose = "the state of " + text.Some(lost, mostTold)
		}
		said += fmt.Sprintf("; %s could not be written, and is lost: %v", whose, errs[0])
	}
	h.Logf("%s", said[2:])
	return saying(asFailure(ctx, failed), said)
}

// saying is a failure with more at the end of its sentence.
func saying(f *Failure, more string) *Failure {
	out := *f
	out.Detail = text.Middle(f.Detail, max(maxDetail-len(more), 0)) + text.Cut(more, maxDetail)
	return &out
}
