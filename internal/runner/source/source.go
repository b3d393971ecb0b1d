// Package source brings the code of a job into its work directory: a copy of a directory, or a
// checkout of a git repository. Nothing that it leaves there points outside the tree. It runs no
// program and keeps no cache.
package source

import (
	"context"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Owner is the user that the code is to belong to, where it is not the runner's own.
type Owner struct{ UID, GID int }

// Request says what to fetch, and where to.
type Request struct {
	Source  api.Source
	Dest    string                           // a directory that does not exist or is empty
	Roots   []string                         // directories below which a directory source may lie; none refuses all
	Secrets secrets.Resolver                 // for the token or key of a git source
	Owner   *Owner                           // nil leaves the files with the runner's user
	Log     func(format string, args ...any) // a line for the log; nil drops it
	TempDir string                           // for files that are needed only while fetching
	Mask    func(values ...string)           // hides values in the log; called before they are used; nil drops them
}

// Fetch brings the source to Dest and returns the directory of the root module in it. An error is
// a sentence without any secret: a workflow.ErrInvalid or ErrForbidden where the source may not be
// fetched, workflow.ErrNotFound where it is not there, workflow.ErrTooLarge beyond the bounds.
func Fetch(ctx context.Context, r Request) (root string, err error) {
	switch {
	case r.Source.Directory != "" && r.Source.Git == nil:
		return fetchDirectory(ctx, r)
	case r.Source.Git != nil && r.Source.Directory == "":
		return fetchGit(ctx, r)
	default:
		return "", workflow.Refuse(workflow.ErrInvalid, "source", "a source has either a directory or a git repository")
	}
}

func fetchDirectory(_ context.Context, _ Request) (string, error) { return "", fmt.Errorf("not yet") }
func fetchGit(_ context.Context, _ Request) (string, error)       { return "", fmt.Errorf("not yet") }
