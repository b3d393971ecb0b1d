package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	file, err := t.root.open(erroredName)
	if errors.Is(err, os.ErrNotExist) {
		return failed
	}
	f := *asFailure(ctx, failed)
	if err == nil {
		defer func() { _ = file.Close() }()
		keep, stop := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
		defer stop()
		_, _, err = t.h.Keep(keep, api.ErroredName, api.ArtifactState, file)
	}
	get, push := api.PushErrored(t.j.Spec.Workflow, t.j.Spec.Workspace)
	said := fmt.Sprintf("; its state could not be written, and is kept as the artifact %s: get it (%s), then %s", api.ErroredName, get, push)
	if err != nil {
		said = fmt.Sprintf("; its state could not be written, and is lost: %v", err)
	}
	t.h.Logf("%s", said[2:])
	f.Detail = text.Middle(f.Detail, max(maxDetail-len(said), 0)) + text.Cut(said, maxDetail)
	return &f
}
