// Package controlplane is the rules: permissions, which run may start, which run holds a slot, and the effect of a
// report. It is the only owner of workflow state and works over any store. It does no HTTP, leaves no goroutines
// behind and keeps nothing in memory that a restart could lose.
//
// It has one package for each domain, and each imports those before it: the stored records and their keys (record),
// the decisions about a workflow (rules, pure functions), the commit of a decision with everything that depends on it
// (ledger), callers and their permissions (identity), the objects of an organization (catalog), the life of a
// workflow from its submission to its result (runs), the triggers of work without a person at the keyboard
// (schedules, trees and pulls), notifications (notifications), and the changes that time alone makes (clock). A Plane
// is all of them over one store.
//
// # Consistency model
//
// Every change is one conditional commit that names the version of each record that the decision was made on. A
// commit that loses the race is decided again from fresh records. A commit whose answer does not arrive is repeated
// with the same id. Lists of workflows for people are read from an index and may lag; no decision is made on them.
package controlplane

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/clock"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/notifications"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pulls"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/controlplane/schedules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/trees"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Config is the settings of a Plane. The zero value works.
type Config struct {
	Now               func() time.Time // the control plane's clock; nil means time.Now
	Log               *slog.Logger     // nil means no log
	OrganizationLimit int              // maximum of active workflows of an organization; 0 means 150
	LogQuota          int64            // bytes that the log of one attempt may have, as api.LogLine.Weight counts; 0 means 64 MiB
	Blobs             blob.Store       // stores logs beyond their first MiB; nil means that the records have all of it
	LogWait           time.Duration    // how long a runner gathers lines while the log has a reader; 0 means 500 ms
	LogIdle           time.Duration    // how long while it has none, up to 30 s; 0 means the runners' default, 5 s
	ReportWait        time.Duration    // how long a start waits for the report of its launch; 0 means 3 s
	// Alone says that this process makes all passes, as `up` and `server` do: its first pass adds nothing to the
	// service clock. False means that other processes may make passes too, as functions do.
	Alone bool
	// Expires says that the store deletes expired records on its own. False means that only the pass does.
	Expires bool
	// DefaultState is where the engine's state of a workspace is kept if the workspace names no place and its code
	// declares none: api.StateDirectory or api.StateS3. Empty means nowhere: such runs are refused.
	DefaultState string
	// Digest returns a digest of the files of a directory source, for runs of the built-in pool: it may look only
	// below the source roots of that pool's machine. Nil means that the files are not checked.
	Digest func(ctx context.Context, directory, path string) (string, error)
	// Waker wakes a pool's wake target after the commit that made work claimable for it. Nil means that pools find
	// their work on their own, and a wake target is refused.
	Waker Waker
	// Issuers checks the tokens of OIDC issuers. Nil means one that calls no private address.
	Issuers *oidc.Verifier
	// Forward sends the sealed audit trail to another place. Nil means that it stays here.
	Forward Forwarder
	// NoRoles refuses roles of workspaces, because runners could not assume them. False means that they can.
	NoRoles bool
	// Address is where people reach the console, such as https://dayfly.example.com. Empty means that messages name no
	// link.
	Address string
	// WebhookKey returns the key from which the secrets of webhooks are derived. Nil means that webhooks are refused.
	WebhookKey func(ctx context.Context) ([]byte, error)
}

// Principal is the user or pool that a token is of.
type Principal = identity.Principal

// DataDirectory is the actor of changes that the owner of a data directory makes without a token.
const DataDirectory = identity.DataDirectory

// Waker wakes the poller of a pool.
type Waker = ledger.Waker

// Forwarder sends the sealed audit trail to another place.
type Forwarder = clock.Forwarder

// Filter narrows a list of workflows.
type Filter = runs.Filter

// PassSummary counts what one pass did.
type PassSummary = clock.Summary

// The parts that answer calls, under names that one struct can embed together.
type (
	identityCalls     = identity.Calls
	catalogCalls      = catalog.Calls
	runCalls          = runs.Calls
	scheduleCalls     = schedules.Calls
	treeCalls         = trees.Calls
	pullCalls         = pulls.Calls
	notificationCalls = notifications.Calls
	clockCalls        = clock.Calls
)

// Plane is the control plane's rules over a store: its methods are those of its parts. They may be called
// concurrently, also by several processes over the same store.
type Plane struct {
	*identityCalls
	*catalogCalls
	*runCalls
	*scheduleCalls
	*treeCalls
	*pullCalls
	*notificationCalls
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
	cfg.ReportWait = cmp.Or(cfg.ReportWait, 3*time.Second)
	l := ledger.New(st, ledger.Config{Now: cfg.Now, Log: cfg.Log, Waker: cfg.Waker, Alone: cfg.Alone, Expires: cfg.Expires})
	c := catalog.New(l, catalog.Config{DefaultState: cfg.DefaultState, NoRoles: cfg.NoRoles, NoWakes: cfg.Waker == nil})
	r := runs.New(l, c, runs.Config{OrganizationLimit: cfg.OrganizationLimit, LogQuota: cfg.LogQuota, Blobs: cfg.Blobs, LogWait: cfg.LogWait, LogIdle: cfg.LogIdle, ReportWait: cfg.ReportWait, Digest: cfg.Digest})
	s, t := schedules.New(l, c, r), trees.New(l, c, r)
	g := pulls.New(l, c, r, pulls.Config{Address: cfg.Address, WebhookKey: cfg.WebhookKey})
	n := notifications.New(l, t, g, notifications.Config{Address: cfg.Address})
	return &Plane{identity.New(l, cfg.Issuers), c, r, s, t, g, n, clock.New(l, c, r, s, t, n, cfg.Blobs, cfg.Forward)}
}

// Settings are the calls about each kind of settings.
func (p *Plane) Settings() []identity.SettingsCalls {
	return []identity.SettingsCalls{p.Issuers, p.GitHosts, p.Notifications, p.Schedules, p.PolicyGroups, p.Waivers}
}
