// Package controlplane is the rules: who may do what, which run may start, who holds a slot, what
// a report changes. It is the only owner of workflow state and works over any store. It does no
// HTTP, leaves no goroutine behind and keeps nothing in memory that a restart could lose.
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
	"log/slog"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/authority"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/moves"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Config holds what a Plane may be told. The zero value works.
type Config struct {
	Now               func() time.Time // the control plane's clock; nil means time.Now
	Log               *slog.Logger     // nil means no log
	OrganizationLimit int              // most active workflows of an organization; 0 means 150
	DefaultState      string           // api.State* kind of a workspace that names none; empty means api.StateSource
	// Waker wakes a pool's wake target after the commit that made work claimable for it. Nil means
	// that pools find their work by themselves.
	Waker Waker
}

// Principal is who a user or pool token speaks for.
type Principal = authority.Principal

// Waker wakes what works for a pool.
type Waker = wake.Waker

// The parts that answer calls.
type (
	authorityCalls = authority.Calls
)

// Plane is the control plane's rules over a store. Its methods may be called concurrently, also
// by several processes over the same store.
type Plane struct {
	*authorityCalls
	ledger *ledger.Ledger
	guard  *authority.Guard
	cfg    Config
	log    *slog.Logger
	wakes  *wake.Wakes
	board  *moves.Board
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
	cfg.DefaultState = cmp.Or(cfg.DefaultState, api.StateSource)
	l := ledger.New(st, cfg.Now)
	guard := authority.NewGuard(l, cfg.Log)
	wakes := wake.New(l, cfg.Waker, cfg.Log)
	return &Plane{
		authorityCalls: authority.New(l, guard), ledger: l, guard: guard, wakes: wakes, board: moves.New(l, wakes), cfg: cfg, log: cfg.Log,
	}
}

// Filter narrows a list of workflows.
type Filter struct {
	Workspace string
	State     string // a state, or "active"; empty means any
	Cursor    string
	Limit     int // 0 means 50, at most 200
}

// PassSummary counts what one pass did.
type PassSummary struct {
	Looked, Moved, Failed int
	Left                  bool // something was left to the next pass
	UpSince               time.Time
}
