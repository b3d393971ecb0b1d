// Package runs is the life of a workflow: people submit, show and cancel it, a pool claims and launches it, its
// runner starts, reports and ends it. Each call reads, lets package rules decide, and commits through the ledger.
package runs

import (
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
)

// Config has the limits of runs. Everything except Blobs and Digest is required.
type Config struct {
	OrganizationLimit int           // maximum of active workflows of an organization
	LogQuota          int64         // bytes that the log of one attempt may have, as api.LogLine.Weight counts
	LogWait           time.Duration // how long a runner gathers lines while the log has a reader
	LogIdle           time.Duration // and while it has none; 0 means the runner's default
	ReportWait        time.Duration // how long a start waits for the report of its launch
	// Blobs stores logs beyond their first MiB. Nil means that the records have all of it.
	Blobs blob.Store
	// Digest returns a digest of the present files of a directory source. Nil means that this process cannot read
	// directory sources.
	Digest func(ctx context.Context, directory, path string) (string, error)
}

// Calls answers people, pools and runners about workflows.
type Calls struct {
	ledger  *ledger.Ledger
	catalog *catalog.Calls
	cfg     Config
}

// New returns the calls over a ledger.
func New(l *ledger.Ledger, c *catalog.Calls, cfg Config) *Calls {
	return &Calls{ledger: l, catalog: c, cfg: cfg}
}

// startOf is the name under which the start of a workflow waits for the report of its launch.
func startOf(id string) string { return "start/" + id }
