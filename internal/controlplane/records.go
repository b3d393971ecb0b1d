package controlplane

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The records. Each is JSON under a key made by a function below; new fields must have a safe
// zero, because old records stay. Workflow records are kept under 1 KiB: what is long lies beside.

// wfRec is one workflow.
type wfRec struct {
	ID          string             `json:"id"`
	Org         string             `json:"org"`
	Workspace   string             `json:"ws"`
	WorkspaceID string             `json:"wsid"`
	PoolID      string             `json:"pool"`
	Type        workflow.Type      `json:"type"`
	Op          workflow.Operation `json:"op,omitempty"`
	Size        string             `json:"size,omitempty"`
	StateKind   string             `json:"sk,omitempty"`
	Priority    int                `json:"prio,omitempty"`
	Message     string             `json:"msg,omitempty"`
	By          string             `json:"by"`
	RetryOf     string             `json:"retry_of,omitempty"`
	MaxRuntime  time.Duration      `json:"max"`

	State  workflow.State  `json:"state"`
	Reason workflow.Reason `json:"reason,omitempty"`
	Detail string          `json:"detail,omitempty"`

	Submitted time.Time `json:"submitted"`
	Since     time.Time `json:"since"` // when it came into its state
	Claimed   time.Time `json:"claimed,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`

	Attempt  int       `json:"attempt,omitempty"`
	Starts   int       `json:"starts,omitempty"`
	Lapses   int       `json:"lapses,omitempty"`
	Instance string    `json:"instance,omitempty"`
	Lease    time.Time `json:"lease,omitzero"`
	Tasks    []taskRec `json:"tasks,omitempty"` // reported for this attempt, the latest maxTasks
	Held     heldRec   `json:"held,omitzero"`

	Holder     holderRec `json:"holder,omitzero"` // the boot whose start was granted
	Deadline   time.Time `json:"deadline,omitzero"`
	CancelAt   time.Time `json:"cancel,omitzero"`
	HandedOver time.Time `json:"handed,omitzero"`

	Active   bool  `json:"active,omitempty"`    // it counts against the limits
	SlotHeld bool  `json:"slot_held,omitempty"` // it holds its workspace's slot
	Timer    int64 `json:"timer,omitempty"`     // Unix ms of its entry in the timers; 0 means none
	Seq      int64 `json:"seq"`                 // events in the timeline so far
}

// maxTasks bounds the tasks that are remembered of one attempt.
const maxTasks = 3

type taskRec struct {
	Ref     string `json:"ref"`
	Stopped bool   `json:"stopped,omitempty"`
}

// heldRec is why a claimed workflow is not launched yet.
type heldRec struct {
	Reason workflow.Reason `json:"reason,omitempty"`
	Text   string          `json:"text,omitempty"`
	Until  time.Time       `json:"until,omitzero"`
	// Placement is the launch whose answer is not known: it is repeated before any other.
	Placement string `json:"placement,omitempty"`
}

// poolHoldRec says that the latest launch of a pool was refused for want of quota or capacity.
type poolHoldRec struct {
	Reason workflow.Reason `json:"reason"`
	Until  time.Time       `json:"until"`
}

type holderRec struct {
	Attempt int    `json:"attempt,omitempty"`
	Task    string `json:"task,omitempty"`
	Boot    string `json:"boot,omitempty"`
}

func (h holderRec) is(run api.Run) bool {
	sameBoot := h.Boot == run.Boot || mutate.On(mutate.NoBoot) // see package mutate
	return h.Boot != "" && h.Attempt == run.Attempt && h.Task == run.Task && sameBoot
}

func (w *wfRec) changesState() bool { return workflow.ChangesState(w.Type, w.Op) }

// beatRec is the last sign of life of the run that holds a workflow.
type beatRec struct {
	At   time.Time `json:"at"`
	Step string    `json:"step,omitempty"`
}

// attemptRec holds the hash of a job token.
type attemptRec struct {
	Hash string `json:"hash"`
}

// entryRec stands for a pending workflow under a claim key or in its workspace's waiting list.
type entryRec struct {
	ID        string        `json:"id"`
	Workspace string        `json:"ws"`
	PoolID    string        `json:"pool"`
	Type      workflow.Type `json:"type"`
}

// laneRec is what runs and waits in one workspace. Whoever changes the waiting lists or the
// promoted ones of a workspace also writes this record, so that its version orders them.
type laneRec struct {
	Changer string `json:"changer,omitempty"` // the state-changing run that is claimable, or holds the slot
	Others  int    `json:"others,omitempty"`  // other runs that are claimable or active
	WaitC   int    `json:"wait_c,omitempty"`  // state-changing runs in the waiting list
	WaitO   int    `json:"wait_o,omitempty"`  // other runs in the waiting list
	Max     int    `json:"max"`
}

type activeRec struct {
	Instance string `json:"instance"`
}

// limitRec counts active workflows and remembers who was cut short.
type limitRec struct {
	Active int      `json:"active"`
	Cut    []string `json:"cut,omitempty"` // ids of the pools whose last claim the limit cut short
}

type orgRec struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

type poolRec struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	Description   string          `json:"description,omitempty"`
	BuiltIn       bool            `json:"built_in,omitempty"`
	Disabled      bool            `json:"disabled,omitempty"`
	Multiple      bool            `json:"multiple,omitempty"`
	AssignedToAll bool            `json:"all"`
	Assigned      []string        `json:"assigned,omitempty"`
	Types         []workflow.Type `json:"types,omitempty"`
	Concurrency   int             `json:"concurrency,omitempty"`
	RolePath      string          `json:"role_path,omitempty"`
	Created       time.Time       `json:"created"`
}

type nameRec struct {
	ID string `json:"id"`
}

type workspaceRec struct {
	ID      string        `json:"id"`
	Created time.Time     `json:"created"`
	W       api.Workspace `json:"w"`
}

// secretRec is a user or pool token, under the hash of its value.
type secretRec struct {
	ID       string    `json:"id"`
	Org      string    `json:"org"`
	Audience string    `json:"aud"`
	Name     string    `json:"name"`
	Role     string    `json:"role,omitempty"`
	PoolID   string    `json:"pool,omitempty"`
	Deployed bool      `json:"deployed,omitempty"` // made from the secret of a deployment
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"`
	Revoked  bool      `json:"revoked,omitempty"`
	Hash     string    `json:"hash"`
}

type runnerRec struct {
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

type passRec struct {
	Last    time.Time `json:"last"`
	UpSince time.Time `json:"up_since"`
}

type wakeRec struct {
	At time.Time `json:"at"`
}

type cursorRec struct {
	After string `json:"after"`
}

type idemRec struct {
	Request string `json:"request"` // hash of what was asked
	Result  string `json:"result"`  // id of what was made
}

type logEndRec struct {
	Next  int64 `json:"next"`
	Bytes int64 `json:"bytes"`
}

// Keys.

func wfKey(id string) store.Key   { return store.Key{Part: "wf/" + id, Sort: "wf"} }
func beatKey(id string) store.Key { return store.Key{Part: "wf/" + id, Sort: "beat"} }
func specKey(id string) store.Key { return store.Key{Part: "wf/" + id, Sort: "spec"} }

func eventKey(id string, seq int64) store.Key {
	return store.Key{Part: "wf/" + id, Sort: fmt.Sprintf("ev/%010d", seq)}
}

func attemptKey(id string, attempt int) store.Key {
	return store.Key{Part: "wf/" + id, Sort: fmt.Sprintf("attempt/%04d", attempt)}
}

func resultKey(id string, attempt int) store.Key {
	return store.Key{Part: "wf/" + id, Sort: fmt.Sprintf("result/%04d", attempt)}
}

func stepKey(id string, attempt, seq int) store.Key {
	return store.Key{Part: "wf/" + id, Sort: fmt.Sprintf("step/%04d/%04d", attempt, seq)}
}

func logEndKey(id string, attempt int) store.Key {
	return store.Key{Part: "wf/" + id, Sort: fmt.Sprintf("logend/%04d", attempt)}
}

func logKey(id string, attempt int, first int64) store.Key {
	return store.Key{Part: "wf/" + id, Sort: fmt.Sprintf("log/%04d/%012d", attempt, first)}
}

func lanePart(wsid string) string        { return "lane/" + wsid }
func laneKey(wsid string) store.Key      { return store.Key{Part: lanePart(wsid), Sort: "lane"} }
func limitOrg(org string) store.Key      { return store.Key{Part: "limit/" + org, Sort: "org"} }
func limitPool(org, id string) store.Key { return store.Key{Part: "limit/" + org, Sort: "pool/" + id} }
func orgKey(org string) store.Key        { return store.Key{Part: "orgs", Sort: org} }
func orgPart(org string) string          { return "org/" + org }
func poolKey(org, id string) store.Key   { return store.Key{Part: orgPart(org), Sort: "pool/" + id} }
func poolNameKey(org, name string) store.Key {
	return store.Key{Part: orgPart(org), Sort: "poolname/" + name}
}
func workspaceKey(org, name string) store.Key {
	return store.Key{Part: orgPart(org), Sort: "workspace/" + name}
}
func tokenIDKey(org, id string) store.Key { return store.Key{Part: orgPart(org), Sort: "token/" + id} }
func tokenKey(hash string) store.Key      { return store.Key{Part: "token/" + hash, Sort: "token"} }
func wakeKey(poolID string) store.Key     { return store.Key{Part: "pool/" + poolID, Sort: "wake"} }
func holdKey(poolID string) store.Key     { return store.Key{Part: "pool/" + poolID, Sort: "hold"} }
func cursorKey(poolID string) store.Key   { return store.Key{Part: "pool/" + poolID, Sort: "cursor"} }
func runnerKey(poolID, name string) store.Key {
	return store.Key{Part: "pool/" + poolID, Sort: "runner/" + name}
}
func activePart(poolID string) string       { return "active/" + poolID }
func activeKey(poolID, id string) store.Key { return store.Key{Part: activePart(poolID), Sort: id} }
func timerPart(org string) string           { return "timer/" + org }
func passKey() store.Key                    { return store.Key{Part: "pass", Sort: "pass"} }
func idemKey(org, who, key string) store.Key {
	return store.Key{Part: "idem/" + org, Sort: who + "/" + key}
}
func auditPart(org string) string { return "audit/" + org }

func timerKey(org string, at int64, id string) store.Key {
	return store.Key{Part: timerPart(org), Sort: fmt.Sprintf("%015d/%s", at, id)}
}

// claimPart is one key under which a claim looks: a pool's own work of one type. Label sets and
// pinned runners are to be further kinds of it.
func claimPart(poolID string, t workflow.Type) string {
	return "claim/pool:" + poolID + "/" + string(t)
}

// rank orders pending workflows as bytes: higher priority first, then the older.
func (w *wfRec) rank() string {
	return fmt.Sprintf("%04d/%020d/%s", 1000-w.Priority, w.Submitted.UnixNano(), w.ID)
}

func (w *wfRec) claimKey() store.Key {
	return store.Key{Part: claimPart(w.PoolID, w.Type), Sort: w.rank()}
}

// The waiting lists of a workspace: runs that change its state, and others.
const (
	waitChangers = "wait/c/"
	waitOthers   = "wait/o/"
)

func (w *wfRec) waitKey() store.Key {
	list := waitOthers
	if w.changesState() {
		list = waitChangers
	}
	return store.Key{Part: lanePart(w.WorkspaceID), Sort: list + w.rank()}
}

func (w *wfRec) entry() entryRec {
	return entryRec{ID: w.ID, Workspace: w.Workspace, PoolID: w.PoolID, Type: w.Type}
}

// record encodes a value for a key. The types above always encode.
func record(k store.Key, v any) store.Record {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("controlplane: encode %s: %v", k, err))
	}
	return store.Record{Key: k, Value: data}
}

// wfRecord encodes a workflow with its places in the indexes for people's lists.
func wfRecord(w *wfRec) store.Record {
	r := record(wfKey(w.ID), w)
	at := fmt.Sprintf("%020d", w.Submitted.UnixNano())
	r.Indexes = map[store.Index]store.Entry{
		store.Index1: {Part: "org/" + w.Org, Sort: at},
		store.Index2: {Part: "ws/" + w.WorkspaceID, Sort: at},
	}
	return r
}

func decode[T any](r store.Record) (T, error) {
	var v T
	if err := json.Unmarshal(r.Value, &v); err != nil {
		return v, fmt.Errorf("record %s does not decode: %w", r.Key, err)
	}
	return v, nil
}

// read is a set of records that a decision was made on.
type read map[store.Key]store.Record

// version is what the commit must name: 0 where there was no record.
func (r read) version(k store.Key) int64 { return r[k].Version }

// get decodes the record of a key; ok is false where there is none.
func get[T any](r read, k store.Key) (v T, ok bool, err error) {
	rec, ok := r[k]
	if !ok {
		return v, false, nil
	}
	v, err = decode[T](rec)
	return v, true, err
}
