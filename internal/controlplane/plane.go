// Package controlplane is the rules: who may do what, which run may start, who holds a slot, what
// a report changes. It is the only owner of workflow state and works over any store. It does no
// HTTP, leaves no goroutine behind and keeps nothing in memory that a restart could lose.
//
// Most of it lies in its parts, and a part builds on those before it: the records (record) and how they are
// committed (ledger), who is woken (wake) and who may do what (authority), what is decided about a workflow
// (rules) and all that hangs on its moves (moves). On these stand those that answer calls, by who calls:
// people (pools, workspaces, views, why, submit), a pool's stack (claims, launches), runners (jobs, logs)
// and the clock (pass). A Plane is all of them over one store.
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
	"github.com/dayfly-dev/dayfly/internal/controlplane/authority"
	"github.com/dayfly-dev/dayfly/internal/controlplane/claims"
	"github.com/dayfly-dev/dayfly/internal/controlplane/jobs"
	"github.com/dayfly-dev/dayfly/internal/controlplane/launches"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/logs"
	"github.com/dayfly-dev/dayfly/internal/controlplane/moves"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pass"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pools"
	"github.com/dayfly-dev/dayfly/internal/controlplane/submit"
	"github.com/dayfly-dev/dayfly/internal/controlplane/views"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/controlplane/why"
	"github.com/dayfly-dev/dayfly/internal/controlplane/workspaces"
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
type Principal = authority.Principal

// Waker wakes what works for a pool.
type Waker = wake.Waker

// Filter narrows a list of workflows.
type Filter = views.Filter

// PassSummary counts what one pass did.
type PassSummary = pass.Summary

// The parts that answer calls, each a package of its own.
type (
	authorityCalls = authority.Calls  // who is who, tokens, the audit trail
	poolCalls      = pools.Calls      // pools
	workspaceCalls = workspaces.Calls // workspaces
	submitCalls    = submit.Calls     // submit, retry, cancel, unlock
	viewCalls      = views.Calls      // workflows and timelines
	whyCalls       = why.Calls        // why a workflow waits
	claimCalls     = claims.Calls     // claim, held, states
	launchCalls    = launches.Calls   // a pool's reports
	jobCalls       = jobs.Calls       // a runner's calls
	logCalls       = logs.Calls       // logs
	passCalls      = pass.Calls       // the clock
)

// Plane is the control plane's rules over a store: its methods are those of its parts. They may be called
// concurrently, also by several processes over the same store.
type Plane struct {
	*authorityCalls
	*poolCalls
	*workspaceCalls
	*submitCalls
	*viewCalls
	*whyCalls
	*claimCalls
	*launchCalls
	*jobCalls
	*logCalls
	*passCalls
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
	l := ledger.New(st, cfg.Now)
	guard, wakes := authority.NewGuard(l, cfg.Log), wake.New(l, cfg.Waker, cfg.Log)
	board, reader := moves.New(l, wakes, cfg.Alone), why.NewReader(l, cfg.OrganizationLimit)
	poolsOf := pools.New(l, board, guard, wakes)
	shown, spaces := views.New(l, board, guard), workspaces.New(l, board, guard, cfg.DefaultState, cfg.NoRoles)
	return &Plane{
		authorityCalls: authority.New(l, guard),
		poolCalls:      poolsOf,
		workspaceCalls: spaces,
		submitCalls:    submit.New(l, board, guard, wakes, shown, spaces, cfg.Log, cfg.Digest),
		viewCalls:      shown,
		whyCalls:       why.New(l, board, reader, shown),
		claimCalls:     claims.New(l, board, wakes, cfg.Log, cfg.OrganizationLimit),
		launchCalls:    launches.New(board, wakes),
		jobCalls:       jobs.New(l, board, wakes, cfg.Log, cfg.LogQuota, cfg.LogWait),
		logCalls:       logs.New(l, board, wakes, guard, cfg.LogQuota, cfg.LogWait),
		passCalls:      pass.New(l, board, wakes, reader, poolsOf),
	}
}
