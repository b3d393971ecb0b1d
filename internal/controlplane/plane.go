// Package controlplane is the rules: who may do what, which run may start, who holds a slot, what
// a report changes. It is the only owner of workflow state and works over any store. It does no
// HTTP, leaves no goroutine behind and keeps nothing in memory that a restart could lose.
//
// It lies in rooms, by domain, and each builds on those before it: what is stored and under which keys (record), what
// is decided about a workflow (rules, pure functions), how it is committed with all that hangs on it (ledger), who is
// who and who may do what (identity), what an organization has (catalog), the life of a workflow from its submission to
// its result (runs), and what time alone moves (clock). A Plane is all of them over one store.
//
// # Consistency model
//
// Every change is one conditional commit that names the version of each record that the decision
// was made on. A commit that loses the race is decided again from fresh records; one whose answer
// was lost is repeated with the same id. Lists of workflows for people are read from an index and
// may lag; nothing is decided on them.
package controlplane

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/clock"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Config holds what a Plane may be told. The zero value works.
type Config struct {
	Now               func() time.Time // the control plane's clock; nil means time.Now
	Log               *slog.Logger     // nil means no log
	OrganizationLimit int              // most active workflows of an organization; 0 means 150
	LogQuota          int64            // bytes that the log of one attempt may hold, as api.LogLine.Weight counts; 0 means 64 MiB
	LogWait           time.Duration    // how long a runner gathers lines while somebody reads them; 0 means 500 ms
	// Alone says that this process makes all passes, as `up` and `server` do: its first pass adds nothing to the service
	// clock. False means that another process may make any of them, as a function does.
	Alone bool
	// DefaultState is where the engine's state is kept of a workspace that names no place and whose code declares
	// none: api.StateDirectory or api.StateS3. Empty means nowhere: such runs are refused.
	DefaultState string
	// Digest says what the files of a directory source are, for runs of the built-in pool: it may look only below
	// the source roots of that pool's machine. Nil means that nobody looks.
	Digest func(ctx context.Context, directory string) (string, error)
	// Waker wakes a pool's wake target after the commit that made work claimable for it. Nil means
	// that pools find their work by themselves, and a wake target is refused.
	Waker Waker
	// NoRoles refuses roles of workspaces, because no runner could assume one. False means that runners may.
	NoRoles bool
}

// Principal is who a user or pool token speaks for.
type Principal = identity.Principal

// Waker wakes what works for a pool.
type Waker = ledger.Waker

// Filter narrows a list of workflows.
type Filter = runs.Filter

// PassSummary counts what one pass did.
type PassSummary = clock.Summary

// The rooms that answer calls, under names that a struct can hold together.
type (
	identityCalls = identity.Calls
	catalogCalls  = catalog.Calls
	runCalls      = runs.Calls
	clockCalls    = clock.Calls
)

// Plane is the control plane's rules over a store: its methods are those of its rooms. They may be called
// concurrently, also by several processes over the same store.
type Plane struct {
	*identityCalls
	*catalogCalls
	*runCalls
	*clockCalls
}

// New returns the rules over st.
func New(st store.Store, cfg Config) *Plane {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.OrganizationLimit = cmp.Or(cfg.OrganizationLimit, 150)
	cfg.LogQuota = cmp.Or(cfg.LogQuota, api.DefaultLogQuota)
	cfg.LogWait = cmp.Or(cfg.LogWait, 500*time.Millisecond)
	l := ledger.New(st, ledger.Config{Now: cfg.Now, Log: cfg.Log, Waker: cfg.Waker, Alone: cfg.Alone})
	c := catalog.New(l, catalog.Config{DefaultState: cfg.DefaultState, NoRoles: cfg.NoRoles, NoWakes: cfg.Waker == nil})
	r := runs.New(l, c, runs.Config{OrganizationLimit: cfg.OrganizationLimit, LogQuota: cfg.LogQuota, LogWait: cfg.LogWait, Digest: cfg.Digest})
	return &Plane{identity.New(l), c, r, clock.New(l, c, r)}
}
