// Package record has every record that the control plane stores: its fields, its key, and its encoding. It is data
// only: it does not read or decide anything.
//
// Each record is JSON under a key made by a function of this package. New fields must have a safe zero, because old
// records stay. A workflow's record stays under 1 KiB: long fields have records of their own.
package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Workflow is one workflow.
type Workflow struct {
	ID          string             `json:"id"`
	Org         string             `json:"org"`
	Workspace   string             `json:"ws"`
	WorkspaceID string             `json:"wsid"`
	PoolID      string             `json:"pool"`
	Type        workflow.Type      `json:"type"`
	Op          workflow.Operation `json:"op,omitempty"`
	Size        string             `json:"size,omitempty"`
	Priority    int                `json:"prio,omitempty"`
	Message     string             `json:"msg,omitempty"`
	By          string             `json:"by"`
	ByID        string             `json:"by_id"`
	RetryOf     string             `json:"retry_of,omitempty"`
	Needs       []string           `json:"needs,omitempty"` // features that its runner must know: api.Spec.Needs
	Trigger     *Trigger           `json:"trigger,omitempty"`
	// Unsaved says that its engine could not write the state, which it announced as api.ErroredName, and that this is
	// not decided yet: see Queue.Unsaved.
	Unsaved bool `json:"unsaved,omitempty"`
	// Of a preview: the operation that its plan can be approved for, and whether that operation was asked for. Of a
	// run that applies such a plan: the preview.
	For        workflow.Operation `json:"for,omitempty"`
	Then       bool               `json:"then,omitempty"`
	PlanOf     string             `json:"plan_of,omitempty"`
	Pin        string             `json:"pin,omitempty"` // the only instance with the plan; empty: all instances of the pool have it
	MaxRuntime time.Duration      `json:"max"`
	OwnMax     bool               `json:"own_max,omitempty"` // the run named its MaxRuntime; else it is the workspace's
	Options    bool               `json:"options,omitempty"` // the run has options, which are in its spec

	State  workflow.State  `json:"state"`
	Reason workflow.Reason `json:"reason,omitempty"`
	Detail string          `json:"detail,omitempty"`

	Submitted time.Time `json:"submitted"`
	Since     time.Time `json:"since"` // when it entered its state
	Claimed   time.Time `json:"claimed,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`

	Changes *api.Changes `json:"changes,omitempty"` // of its result, the counts alone
	Checks  int          `json:"checks,omitempty"`  // of its result: check blocks that fail

	Attempt  int       `json:"attempt,omitempty"`
	Starts   int       `json:"starts,omitempty"`
	Lapses   int       `json:"lapses,omitempty"`
	Instance string    `json:"instance,omitempty"`
	Lease    time.Time `json:"lease,omitzero"`
	Tasks    []Task    `json:"tasks,omitempty"` // reported for this attempt, the latest maxTasks
	Held     Held      `json:"held,omitzero"`

	Holder     Holder    `json:"holder,omitzero"` // the boot whose start was granted
	CancelAt   time.Time `json:"cancel,omitzero"`
	HandedOver time.Time `json:"handed,omitzero"`
	Service    Service   `json:"svc,omitzero"`

	Active   bool   `json:"active,omitempty"`    // it counts against the limits
	SlotHeld bool   `json:"slot_held,omitempty"` // it holds its workspace's slot
	Due      string `json:"due,omitempty"`       // its timer: kind, time, and the version of this record that set it
	Seq      int64  `json:"seq"`                 // events in the timeline so far

	Stuck bool      `json:"stuck,omitempty"` // it was found to be stuck, and is not looked at for that again
	Look  time.Time `json:"look,omitzero"`   // the next check whether it is stuck is not before this time; see rules.LooksAt
}

// Service has the times of a workflow on the service clock, in Unix ms to be short; 0 means none.
type Service struct {
	Deadline   int64 `json:"deadline,omitempty"`
	HandedOver int64 `json:"handed,omitempty"`
}

// MaxDetail is how much of the detail of an end the workflow's record keeps; the result's record has all of it.
const MaxDetail = 200

// Task is a task that was reported for an attempt.
type Task struct {
	Ref     string `json:"ref"`
	Stopped bool   `json:"stopped,omitempty"`
}

// Held is why a claimed workflow is not launched yet.
type Held struct {
	Reason workflow.Reason `json:"reason,omitempty"`
	Text   string          `json:"text,omitempty"`
	Until  time.Time       `json:"until,omitzero"`
	// Placement is the launch whose answer is not known: it is repeated before any other placement is tried.
	Placement string `json:"placement,omitempty"`
}

// Hold says that the latest launch of a pool was refused because quota or capacity was short.
type Hold struct {
	Reason workflow.Reason `json:"reason"`
	Until  time.Time       `json:"until"`
}

// Holder is the boot whose start was granted.
type Holder struct {
	Attempt int    `json:"attempt,omitempty"`
	Task    string `json:"task,omitempty"`
	Boot    string `json:"boot,omitempty"`
}

// Is reports whether a call comes from the holder.
func (h Holder) Is(run api.Run) bool {
	return h.Boot != "" && h.Attempt == run.Attempt && h.Task == run.Task && h.Boot == run.Boot
}

// Submitter is the principal that submitted it.
func (w *Workflow) Submitter() api.PrincipalRef { return api.PrincipalRef{ID: w.ByID, Name: w.By} }

// ChangesState says whether the run needs the slot of its workspace.
func (w *Workflow) ChangesState() bool { return workflow.ChangesState(w.Type, w.Op) }

// Beat is the last sign of life of the run that holds a workflow: when it came, on the wall clock and on the service
// clock, and by how much its pool's clock was behind the service clock.
type Beat struct {
	At      time.Time     `json:"at"`
	Step    string        `json:"step,omitempty"`
	Service time.Time     `json:"svc,omitzero"`
	Lag     time.Duration `json:"lag,omitempty"`
}

// Attempt holds the hash of a job token, and which boot of which task started the attempt.
type Attempt struct {
	Hash string `json:"hash"`
	Task string `json:"task,omitempty"`
	Boot string `json:"boot,omitempty"`
	Used string `json:"used,omitempty"` // digest of the inputs that it was given; empty: its workspace has none
}

// Reader says until when a log of the workflow counts as being read.
type Reader struct {
	Until time.Time `json:"until"`
}

// Entry is a pending workflow's entry under a claim key or in its workspace's waiting list.
type Entry struct {
	ID          string `json:"id"`
	Workspace   string `json:"ws"`
	WorkspaceID string `json:"wsid"`
	// Pin is the owner of the plan that the run applies: the id of a pool, or POOL/INSTANCE; empty for other runs.
	Pin  string        `json:"pin,omitempty"`
	Type workflow.Type `json:"type"`
	Push bool          `json:"push,omitempty"` // it pushes a state: see Queue.Unsaved
}

// Queue has the runs of one workspace that run or wait. Each commit that changes the waiting lists or the claimable
// runs of a workspace also writes this record, so that its version orders such commits.
type Queue struct {
	Changer string `json:"changer,omitempty"` // the state-changing run that is claimable, or holds the slot
	WaitC   int    `json:"wait_c,omitempty"`  // state-changing runs in the waiting list
	WaitO   int    `json:"wait_o,omitempty"`  // other runs in the waiting list
	Max     int    `json:"max"`
	// Placed has the ids of the other runs that are claimable or active.
	Placed []string `json:"placed,omitempty"`
	Route  Route    `json:"route,omitzero"`
	// Unsaved is the last run whose engine could not write the state to its backend: the state is in an artifact of
	// the run. Until a run has pushed a state, or an admin gives that one up, no other run that changes the state is
	// claimable.
	Unsaved string `json:"unsaved,omitempty"`
}

// Used is how many runs of the workspace are claimable or active.
func (q *Queue) Used() int {
	if q.Changer != "" {
		return len(q.Placed) + 1
	}
	return len(q.Placed)
}

// Empty says that no workflow of the workspace runs or waits.
func (q *Queue) Empty() bool { return q.Used()+q.WaitC+q.WaitO == 0 }

// Active is an active workflow's entry under its pool.
type Active struct {
	Instance string `json:"instance"`
}

// Limit counts active workflows, and those whose freed places are not folded into it yet.
type Limit struct {
	Active int `json:"active"`
}

// Freed is a place of a limit that was freed and is still counted.
type Freed struct{}

// Cut says that a limit cut the last claim of a pool short, and when; zero means that it did not, or that the pool
// was woken since.
type Cut struct {
	At           time.Time `json:"at,omitzero"`
	Organization bool      `json:"org,omitempty"` // the organization's limit; else the pool's own
}

// Places are the organizations at which the next pass goes on with its two parts; empty means at the first.
type Places struct {
	Urgent string `json:"urgent,omitempty"`
	Waits  string `json:"waits,omitempty"`
}

// Organization is a tenant.
type Organization struct {
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Retention Retention `json:"retention,omitzero"`
	// DefaultPool is the id of the pool of workspaces if neither they nor their projects name one; empty means the
	// built-in pool.
	DefaultPool string `json:"default_pool,omitempty"`
	Limit       int    `json:"limit,omitempty"` // maximum of active workflows; 0 means the process's setting
}

// Pool is a pool and its settings.
type Pool struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	Description   string          `json:"description,omitempty"`
	BuiltIn       bool            `json:"built_in,omitempty"`
	Disabled      bool            `json:"disabled,omitempty"`
	Multiple      bool            `json:"multiple,omitempty"`
	AssignedToAll bool            `json:"all"`
	Assigned      []Assigned      `json:"assigned,omitempty"` // workspaces
	Projects      []string        `json:"projects,omitempty"` // with all that lie below them
	Stacks        []string        `json:"stacks,omitempty"`
	Namespaces    []string        `json:"namespaces,omitempty"`
	Labels        []string        `json:"labels,omitempty"` // sorted
	Types         []workflow.Type `json:"types,omitempty"`
	Concurrency   int             `json:"concurrency,omitempty"`
	RolePath      string          `json:"role_path,omitempty"`
	Created       time.Time       `json:"created"`
	Closed        bool            `json:"closed,omitempty"` // deleted; the record is removed when its work has ended
}

// Assigned is a workspace that a pool is assigned to. The name is for people: by now it may belong to another
// workspace.
type Assigned struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Name is the record that a name or a time leads to: it has the id.
type Name struct {
	ID string `json:"id"`
}

// GlobalProject is the root of every organization's projects. It always exists, also without a record.
const GlobalProject = "global"

// Project is a node of an organization's tree of projects. Its name is unique in the organization and never changes.
type Project struct {
	ID          string    `json:"id,omitempty"` // the root has none
	Name        string    `json:"name"`
	Parent      string    `json:"parent,omitempty"` // its name; the root has none
	Description string    `json:"description,omitempty"`
	PoolID      string    `json:"pool,omitempty"` // for its workspaces and those of the projects below it
	Created     time.Time `json:"created"`
}

// Tree is written by every change that depends on an organization's whole tree of projects, and by every change of
// roles in projects: no two of them are decided on the same version of the tree.
type Tree struct {
	Changed time.Time `json:"changed"`
}

// Workspace is a workspace and its settings.
type Workspace struct {
	ID      string        `json:"id"`
	Created time.Time     `json:"created"`
	W       api.Workspace `json:"w"`
	By      string        `json:"by,omitempty"` // who last changed its Settings
	ByID    string        `json:"by_id,omitempty"`
}

// Editor is the principal that last changed its Settings.
func (w Workspace) Editor() api.PrincipalRef { return api.PrincipalRef{ID: w.ByID, Name: w.By} }

// Settings is a digest of the settings that a plan of the workspace depends on. Its description, the order of its
// runs, its approvals and its rules for pull requests do not count.
func (w Workspace) Settings() string {
	s := w.W
	s.ID, s.Version, s.Description, s.DefaultPriority, s.MaxActive, s.Approval, s.PullRequests, s.After = "", 0, "", 0, 0, nil, nil, nil
	data, err := json.Marshal(s) // maps are sorted
	if err != nil {
		panic(fmt.Sprintf("controlplane: encode workspace %s: %v", w.ID, err)) // it was decoded from JSON
	}
	return Hash(string(data))
}

// Deleted is a workspace that was deleted. It records where the engine's state is: the state is not moved, and its
// place is not given to another workspace.
type Deleted struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Project   string    `json:"project,omitempty"`    // in which it was
	ProjectID string    `json:"project_id,omitempty"` // of that project, whose name may be another one's by now
	State     api.State `json:"state"`
	At        time.Time `json:"at"`
	By        string    `json:"by"`
}

// Token is a user or pool token, under the hash of its value.
type Token struct {
	ID       string `json:"id"`
	Org      string `json:"org"`
	Audience string `json:"aud"`
	Name     string `json:"name"`
	// Principal is the token's holder. A pool's own token stands for the pool and has none.
	Principal api.PrincipalRef `json:"principal,omitzero"`
	Role      string           `json:"role,omitempty"`
	PoolID    string           `json:"pool,omitempty"`
	// Grants are roles in projects, beside Role.
	Grants   map[string]string `json:"grants,omitempty"`
	Deployed bool              `json:"deployed,omitempty"` // made from the secret of a deployment
	Created  time.Time         `json:"created"`
	Expires  time.Time         `json:"expires,omitzero"`
	Revoked  bool              `json:"revoked,omitempty"`
	Hash     string            `json:"hash"`
	// Of a token that ends by itself: the kind of its holder (api.Kind*), and its source.
	Kind   string  `json:"kind,omitempty"`
	Source *Source `json:"source,omitempty"`
	// Of a token that was exchanged for that of a git host's pipeline.
	Pipeline *Pipeline `json:"pipeline,omitempty"`
}

// Runner is an instance that was seen under a pool.
type Runner struct {
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"`
	Boot    string    `json:"boot,omitempty"` // the process that works as the instance; empty: it names none
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Clock is the service clock: what it showed at the last pass, and the time of that pass on the wall clock. It began
// as the wall clock and lags behind it by all the time that was not counted.
type Clock struct {
	Last    time.Time `json:"last"`
	Service time.Time `json:"svc"`
}

// PoolCall is when the last call of a pool came, on the service clock, and by how much the pool's clock was behind
// then.
type PoolCall struct {
	At  time.Time     `json:"at"`
	Lag time.Duration `json:"lag,omitempty"`
}

// Wake is the mark that a pool is owed a wake.
type Wake struct {
	At time.Time `json:"at"`
}

// WakeTarget is the target that is woken for a pool. It is stored near the mark, not in the pool's settings, so that
// one request reads both.
type WakeTarget struct {
	Target string `json:"target"`
}

// Cursor is where a claim continues that was cut short by entries that it may not claim.
type Cursor struct {
	After map[string]string `json:"after,omitempty"` // the rank of the last entry that was read, by ClaimPart
}

// Sole is the instance that polls a pool which allows only one.
type Sole struct {
	Instance string    `json:"instance"`
	Last     time.Time `json:"last"`
}

// Idempotency is the request that an idempotency key was used for.
type Idempotency struct {
	Request string `json:"request"` // hash of the request
	Result  string `json:"result"`  // id of the created object
}

// IdempotencyKept is how long a key is remembered.
const IdempotencyKept = 24 * time.Hour

// TaskRef returns the task of the latest start, else one that was launched; "" if there is none.
func (w *Workflow) TaskRef() string { return cmp.Or(w.Holder.Task, w.LiveTask()) }

// LiveTask returns a task of the attempt that was reported as launched and not as stopped.
func (w *Workflow) LiveTask() string {
	for _, t := range w.Tasks {
		if !t.Stopped {
			return t.Ref
		}
	}
	return ""
}

// Valid says whether a token is valid.
func (s Token) Valid(now time.Time) bool {
	return !s.Revoked && (s.Expires.IsZero() || now.Before(s.Expires))
}

// Names says whether an admin assigned the workspace of this id to the pool.
func (r Pool) Names(id string) bool {
	return !r.AssignedToAll && slices.ContainsFunc(r.Assigned, func(one Assigned) bool { return one.ID == id })
}

// AssignedNames are the names of the workspaces that it is assigned to.
func (r Pool) AssignedNames() (names []string) {
	for _, one := range r.Assigned {
		names = append(names, one.Name)
	}
	return names
}

// Takes says whether the pool serves a type of workflow.
func (r Pool) Takes(t workflow.Type) bool {
	return len(r.Types) == 0 || slices.Contains(r.Types, t)
}
