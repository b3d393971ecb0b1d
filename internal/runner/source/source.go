// Package source brings the code of a job into its work directory: a copy of a directory, a checkout
// of a git repository, or the content of an archive. Nothing in it points outside the tree, and it has no directory
// .git. It runs no program and keeps no cache.
//
// A directory is copied alone: files outside of it are missing even if its modules name them, and .terraform is left
// out. State files are set aside for the runner to check, because the state of a run is only in the place that its
// workspace names. Large files of git (LFS) are left as they are in the tree, as pointer files, and so are submodules
// that the source does not ask for, as empty directories.
package source

import (
	"context"
	"errors"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The bounds of one source.
const (
	maxEntries = 50_000  // files, directories and links
	maxBytes   = 1 << 30 // of all files, and of the answer of a server
)

// ErrCredential means that the token or key of a source did not resolve. The cause is wrapped
// beside it.
var ErrCredential = errors.New("credential of the source")

// Owner is the user that the code is to belong to, where it is not the runner's own.
type Owner struct{ UID, GID int }

// Request names a source and its destination.
type Request struct {
	Source  api.Source
	Dest    string                           // a directory that does not exist or is empty
	Roots   []string                         // directories below which a directory source may lie; none refuses all
	Data    string                           // the data directory of this machine, no part of which is a source; empty: unknown
	Secrets secrets.Resolver                 // for the token or key of a source
	Objects Objects                          // for an archive in a bucket; nil refuses it
	Owner   *Owner                           // nil leaves the files with the runner's user
	Log     func(format string, args ...any) // a line for the log; nil drops it
	TempDir string                           // for files that are needed only while fetching
	Aside   string                           // an empty directory for state that lies beside the code; empty leaves it out
	Mask    func(values ...string)           // hides values in the log; called before they are used; nil drops them

	Made bool // hooks may make the root module: it need not be there yet

	limits limits // zero fields mean the bounds above
	caPEM  []byte // trusted for https beside the machine's own; for tests
}

type limits struct {
	entries int
	bytes   int64
}

// Fetched is a source that is in place.
type Fetched struct {
	Root   string // the directory of the root module
	Aside  string // directory of the files that the engine left beside the root module, under their names there
	Digest string // of a directory: see Sources.Digest; of an archive its SHA-256
	Commit string // of a git source

	// Awaited checks, after the hooks that make the root module, that it is there and that nothing in it leads out of the
	// source; nil: it was there from the beginning.
	Awaited func() error

	// Pointers are the files, relative to Dest, whose contents git LFS keeps elsewhere: the run finds only pointers there.
	Pointers []string
}

// Fetch brings the source to Dest. Its error is
// a sentence without any secret: a workflow.ErrInvalid or ErrForbidden where the source may not be
// fetched, workflow.ErrNotFound where it is not there, workflow.ErrTooLarge beyond the bounds,
// ErrCredential where a secret reference did not resolve.
func Fetch(ctx context.Context, r Request) (Fetched, error) {
	if r.Log == nil {
		r.Log = func(string, ...any) {}
	}
	if r.Mask == nil {
		r.Mask = func(...string) {}
	}
	switch s := r.Source; {
	case s.Directory != "" && s.Git == nil && s.Archive == nil:
		return fetchDirectory(ctx, r)
	case s.Git != nil && s.Directory == "" && s.Archive == nil:
		return fetchGit(ctx, r)
	case s.Archive != nil && s.Directory == "" && s.Git == nil:
		return fetchArchive(ctx, r)
	default:
		return Fetched{}, workflow.Refuse(workflow.ErrInvalid, "source", "a source has one of a directory, a git repository and an archive")
	}
}
