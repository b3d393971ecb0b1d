// Package controlplane is the rules: who may do what, which run may start, who holds a slot, what
// a report changes. It is the only owner of workflow state and works over any store. It does no
// HTTP, starts no goroutine and keeps nothing in memory that a restart could lose.
//
// # Consistency model
//
// Every change is one conditional commit that names the version of each record that the decision
// was made on. A commit that loses the race is decided again from fresh records; one whose answer
// was lost is repeated with the same id. Lists of workflows for people are read from an index and
// may lag; nothing is decided on them.
package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Config holds what a Plane may be told. The zero value works.
type Config struct {
	Now               func() time.Time // the control plane's clock; nil means time.Now
	Log               *slog.Logger     // nil means no log
	OrganizationLimit int              // most active workflows of an organization; 0 means 150
	DefaultState      string           // api.State* kind of a workspace that names none; empty means api.StateSource
	// Wake is told, after the commit, that work became claimable for a pool that owes a wake; it
	// must not block. Nil means that nobody is told.
	Wake func(pool string)
}

// Plane is the control plane's rules over a store. Its methods may be called concurrently, also
// by several processes over the same store.
type Plane struct {
	store store.Store
	cfg   Config
}

// New returns the rules over st.
func New(st store.Store, cfg Config) *Plane { return &Plane{store: st, cfg: cfg} }

// Principal is who a user or pool token speaks for.
type Principal struct {
	Organization string
	Name         string // for the audit trail
	Audience     string // "user" or "pool"
	Role         string // of a user: api.Role*
	PoolID       string // of a pool
	Pool         string // its name
}

// Filter narrows a list of workflows.
type Filter struct {
	Workspace string
	State     string // a state, or "active"; empty means any
	Cursor    string
	Limit     int // 0 means 50, at most 200
}

// Bootstrap makes the organization, its built-in pool and, where there is none yet, a first admin
// token, whose value it returns once (empty when there is one already).
func (p *Plane) Bootstrap(ctx context.Context, organization string) (adminToken string, err error) {
	panic("not yet")
}

// EnsurePoolToken gives the built-in pool a new token with the given name, ending older ones of
// that name: how a process that is control plane and agent in one gets its own.
func (p *Plane) EnsurePoolToken(ctx context.Context, organization, pool, name string) (token string, err error) {
	panic("not yet")
}

func (p *Plane) Authenticate(ctx context.Context, token string) (Principal, error) { panic("not yet") }

func (p *Plane) Submit(ctx context.Context, who Principal, key string, in api.Submit) (api.Workflow, error) {
	panic("not yet")
}
func (p *Plane) Retry(ctx context.Context, who Principal, key, id string) (api.Workflow, error) {
	panic("not yet")
}
func (p *Plane) Cancel(ctx context.Context, who Principal, id string) (api.Workflow, error) {
	panic("not yet")
}
func (p *Plane) Workflow(ctx context.Context, who Principal, id string) (api.Workflow, error) {
	panic("not yet")
}
func (p *Plane) Workflows(ctx context.Context, who Principal, f Filter) (api.Page[api.Workflow], error) {
	panic("not yet")
}
func (p *Plane) Timeline(ctx context.Context, who Principal, id, cursor string, limit int) (api.Page[api.Event], error) {
	panic("not yet")
}
func (p *Plane) Why(ctx context.Context, who Principal, id string) (api.Why, error) { panic("not yet") }

// Logs reads from line offset of attempt (0: the latest that started). It waits up to wait for a line.
func (p *Plane) Logs(ctx context.Context, who Principal, id string, attempt int, offset int64, limit int, wait time.Duration) (api.LogPage, error) {
	panic("not yet")
}

func (p *Plane) CreatePool(ctx context.Context, who Principal, key string, in api.PoolSettings) (api.PoolToken, error) {
	panic("not yet")
}
func (p *Plane) Pools(ctx context.Context, who Principal, cursor string, limit int) (api.Page[api.Pool], error) {
	panic("not yet")
}
func (p *Plane) Pool(ctx context.Context, who Principal, name string) (api.Pool, error) {
	panic("not yet")
}
func (p *Plane) UpdatePool(ctx context.Context, who Principal, name string, in api.PoolSettings) (api.Pool, error) {
	panic("not yet")
}
func (p *Plane) DeletePool(ctx context.Context, who Principal, name string) error { panic("not yet") }
func (p *Plane) RotatePoolToken(ctx context.Context, who Principal, name string, in api.RotateToken) (api.PoolToken, error) {
	panic("not yet")
}
func (p *Plane) Runners(ctx context.Context, who Principal, pool string) (api.Page[api.Runner], error) {
	panic("not yet")
}

func (p *Plane) PutWorkspace(ctx context.Context, who Principal, in api.Workspace) (w api.Workspace, created bool, err error) {
	panic("not yet")
}
func (p *Plane) Workspaces(ctx context.Context, who Principal, cursor string, limit int) (api.Page[api.Workspace], error) {
	panic("not yet")
}
func (p *Plane) Workspace(ctx context.Context, who Principal, name string) (api.Workspace, error) {
	panic("not yet")
}
func (p *Plane) DeleteWorkspace(ctx context.Context, who Principal, name string) error {
	panic("not yet")
}

func (p *Plane) CreateToken(ctx context.Context, who Principal, in api.NewToken) (api.TokenValue, error) {
	panic("not yet")
}
func (p *Plane) Tokens(ctx context.Context, who Principal, cursor string, limit int) (api.Page[api.Token], error) {
	panic("not yet")
}
func (p *Plane) RevokeToken(ctx context.Context, who Principal, id string) error { panic("not yet") }
func (p *Plane) Audit(ctx context.Context, who Principal, cursor string, limit int) (api.Page[api.AuditEvent], error) {
	panic("not yet")
}

func (p *Plane) Claim(ctx context.Context, who Principal, in api.Claim) (api.Claimed, error) {
	panic("not yet")
}

// Held lists the pool's active jobs; with an instance, those that it claimed.
func (p *Plane) Held(ctx context.Context, who Principal, instance, cursor string) (api.Page[api.JobState], error) {
	panic("not yet")
}
func (p *Plane) Queued(ctx context.Context, who Principal, id string, in api.Attempt) error {
	panic("not yet")
}
func (p *Plane) Release(ctx context.Context, who Principal, id string, in api.Release) error {
	panic("not yet")
}
func (p *Plane) Launch(ctx context.Context, who Principal, id string, in api.Launch) error {
	panic("not yet")
}
func (p *Plane) Lost(ctx context.Context, who Principal, id string, in api.Lost) error {
	panic("not yet")
}
func (p *Plane) States(ctx context.Context, who Principal, in api.StatesQuery) (api.States, error) {
	panic("not yet")
}

// The runner's calls authenticate with the job token themselves.

func (p *Plane) Start(ctx context.Context, token string, run api.Run) (api.Control, error) {
	panic("not yet")
}
func (p *Plane) Spec(ctx context.Context, token string, run api.Run) (api.Spec, error) {
	panic("not yet")
}
func (p *Plane) Heartbeat(ctx context.Context, token string, run api.Run, in api.Heartbeat) (api.Control, error) {
	panic("not yet")
}
func (p *Plane) Steps(ctx context.Context, token string, run api.Run, in api.Steps) (api.Control, error) {
	panic("not yet")
}
func (p *Plane) AppendLogs(ctx context.Context, token string, run api.Run, in api.Logs) (api.LogsTaken, error) {
	panic("not yet")
}
func (p *Plane) Result(ctx context.Context, token string, run api.Run, in api.Result) (api.Control, error) {
	panic("not yet")
}

// PassSummary counts what one pass did.
type PassSummary struct {
	Looked, Moved, Failed int
	UpSince               time.Time
}

// Pass moves what time alone moves: lapsed leases, silent runners, passed deadlines and queue
// time-outs. It is bounded in records and in time, and harmless twice or twice at once. Run it once a minute.
func (p *Plane) Pass(ctx context.Context) (PassSummary, error) { panic("not yet") }
