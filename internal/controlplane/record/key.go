package record

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// RunPrefix is the prefix of the partitions of runs.
const RunPrefix = "wf/"

// WorkflowKey is the key of a workflow; its long parts have keys of their own.
func WorkflowKey(id string) store.Key { return store.Key{Part: RunPrefix + id, Sort: "wf"} }

// BeatKey is the key of the last sign of life of a run.
func BeatKey(id string) store.Key { return store.Key{Part: RunPrefix + id, Sort: "beat"} }

// ReaderKey is the key of the Reader of a log.
func ReaderKey(id string) store.Key { return store.Key{Part: RunPrefix + id, Sort: "reader"} }

// SpecKey is the key of the frozen spec of a workflow.
func SpecKey(id string) store.Key { return store.Key{Part: RunPrefix + id, Sort: "spec"} }

// EventKey is the key of one event of a timeline.
func EventKey(id string, seq int64) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: fmt.Sprintf("ev/%010d", seq)}
}

// AttemptKey is the key of the hash of a job token.
func AttemptKey(id string, attempt int) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: fmt.Sprintf("attempt/%04d", attempt)}
}

// ResultKey is the key of the result of an attempt.
func ResultKey(id string, attempt int) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: fmt.Sprintf("result/%04d", attempt)}
}

// StepKey is the key of a step of an attempt.
func StepKey(id string, attempt, seq int) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: fmt.Sprintf("step/%04d/%04d", attempt, seq)}
}

// LogKey is the key of the chunk of a log that begins with the line first.
func LogKey(id string, attempt int, first int64) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: fmt.Sprintf("%s%012d", LogPrefix(attempt), first)}
}

// LogsPrefix begins the sort keys of all chunks of a run.
const LogsPrefix = "log/"

// LogPrefix begins the sort keys of the chunks of an attempt's log.
func LogPrefix(attempt int) string { return fmt.Sprintf("%s%04d/", LogsPrefix, attempt) }

// QueuePart has the queue of a workspace: its record and its waiting lists.
func QueuePart(wsid string) string { return "lane/" + wsid }

// QueueKey is the key of the record of a workspace's queue.
func QueueKey(wsid string) store.Key { return store.Key{Part: QueuePart(wsid), Sort: "lane"} }

// LimitPart has the limits of an organization.
func LimitPart(org string) string { return "limit/" + org }

// OrganizationLimitKey is the key of the count of an organization's active workflows.
func OrganizationLimitKey(org string) store.Key { return store.Key{Part: LimitPart(org), Sort: "org"} }

// PoolLimitKey is the key of the count of a pool's active workflows.
func PoolLimitKey(org, id string) store.Key {
	return store.Key{Part: LimitPart(org), Sort: poolLimit + id}
}

const poolLimit = "pool/"

// PoolOfLimit is the pool that a limit is of; "" if it is the organization's.
func PoolOfLimit(k store.Key) string {
	id, _ := strings.CutPrefix(k.Sort, poolLimit)
	if id == k.Sort {
		return ""
	}
	return id
}

// FreedParts has the places of a limit that were freed and are still counted.
func FreedParts(limit store.Key) []string { return parts(freedPart(limit), freedShards) }

func freedPart(limit store.Key) string {
	return "freed/" + strings.TrimPrefix(limit.Part, LimitPart("")) + "/" + limit.Sort
}

// FreedKey is the key of the freed place of one attempt. An attempt frees its places once, so the key is never
// reused.
func FreedKey(limit store.Key, id string, attempt int) store.Key {
	return store.Key{Part: fmt.Sprintf("%s/%d", freedPart(limit), shard(id, freedShards)), Sort: fmt.Sprintf("%s/%04d", id, attempt)}
}

// CutPart has the pools of an organization whose claims a limit cut short.
func CutPart(org string) string { return "cut/" + org }

// CutKey is the key of the Cut of a pool. The record is never deleted while the pool exists.
func CutKey(org, poolID string) store.Key { return store.Key{Part: CutPart(org), Sort: poolID} }

// OrganizationKey is the key of an organization.
func OrganizationKey(org string) store.Key { return store.Key{Part: "orgs", Sort: org} }

// OrganizationPart has the settings of an organization.
func OrganizationPart(org string) string { return "org/" + org }

// PoolKey is the key of a pool.
func PoolKey(org, id string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "pool/" + id}
}

// ClosedPart has the closed pools of an organization, which are deleted when their work has ended.
func ClosedPart(org string) string { return "closed/" + org }

// ClosedKey is the key of one entry there.
func ClosedKey(org, id string) store.Key { return store.Key{Part: ClosedPart(org), Sort: id} }

// PoolNameKey leads from a pool's name to its id.
func PoolNameKey(org, name string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "poolname/" + name}
}

// ProjectKey is the key of a project.
func ProjectKey(org, name string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "project/" + name}
}

// TreeKey is the key of the record of the whole tree of projects.
func TreeKey(org string) store.Key { return store.Key{Part: OrganizationPart(org), Sort: "tree"} }

// WorkspaceKey is the key of a workspace.
func WorkspaceKey(org, name string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "workspace/" + name}
}

// StateKey is the key of the engine's state as the last run of a workspace found it.
func StateKey(org, wsid string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "state/" + wsid}
}

// DeletedKey is the key of a Deleted.
func DeletedKey(org, name string, at time.Time, wsid string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: fmt.Sprintf("%s%020d/%s", DeletedPrefix(name), at.UnixNano(), wsid)}
}

// DeletedPrefix begins the sort keys of all deleted workspaces of a name.
func DeletedPrefix(name string) string { return "deleted/" + name + "/" }

// TokenIDKey is the key of a token by its id, to manage it.
func TokenIDKey(org, id string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "token/" + id}
}

// TokenKey is the key of a token by its hash, to authenticate a caller.
func TokenKey(hash string) store.Key { return store.Key{Part: "token/" + hash, Sort: "token"} }

// SessionKey is the key of a session of the web pages, by the hash of its value.
func SessionKey(hash string) store.Key { return store.Key{Part: "session/" + hash, Sort: "session"} }

// WakeKey is the key of the wake mark of a pool.
func WakeKey(poolID string) store.Key { return store.Key{Part: "pool/" + poolID, Sort: "wake"} }

// HoldKey is the key of the hold of a pool.
func HoldKey(poolID string) store.Key { return store.Key{Part: "pool/" + poolID, Sort: "hold"} }

// CursorKey is the key of the cursor of a pool's claims.
func CursorKey(poolID string) store.Key { return store.Key{Part: "pool/" + poolID, Sort: "cursor"} }

// SoleKey is the key of the Sole of a pool.
func SoleKey(poolID string) store.Key { return store.Key{Part: "pool/" + poolID, Sort: "sole"} }

// RunnerKey is the key of an instance of a pool.
func RunnerKey(poolID, name string) store.Key {
	return store.Key{Part: "pool/" + poolID, Sort: "runner/" + name}
}

// ActivePart has the active workflows of a pool.
func ActivePart(poolID string) string { return "active/" + poolID }

// ActiveKey is the key of one entry there.
func ActiveKey(poolID, id string) store.Key { return store.Key{Part: ActivePart(poolID), Sort: id} }

// ClockKey is the key of the service clock.
func ClockKey() store.Key { return store.Key{Part: "pass", Sort: "clock"} }

// PurgedKey is the key of the Purged of an organization.
func PurgedKey(org string) store.Key { return store.Key{Part: "pass", Sort: "purged/" + org} }

// PoolCallKey is the key of the last call of a pool.
func PoolCallKey(poolID string) store.Key { return store.Key{Part: "pool/" + poolID, Sort: "call"} }

// PlacesKey is the key of the Places.
func PlacesKey() store.Key { return store.Key{Part: "pass", Sort: "places"} }

// IdempotencyKey is the key of the use of an Idempotency-Key.
func IdempotencyKey(org, who, key string) store.Key {
	return store.Key{Part: "idem/" + org, Sort: who + "/" + key}
}

// AuditPart has the audit trail of an organization.
func AuditPart(org string) string { return "audit/" + org }

// AuditKey is the key of a new line of the audit trail.
func AuditKey(org string, at time.Time) store.Key {
	return store.Key{Part: AuditPart(org), Sort: At(at) + "/" + Random(6)}
}

// SealPart has the seals of the audit trail of an organization.
func SealPart(org string) string { return "seal/" + org }

// SealKey is the key of a seal.
func SealKey(org string, number int64) store.Key {
	return store.Key{Part: SealPart(org), Sort: fmt.Sprintf("%012d", number)}
}

// SealedKey is the key of the Sealed of an organization.
func SealedKey(org string) store.Key { return store.Key{Part: "pass", Sort: "sealed/" + org} }

// ForwardedKey is the key of the Forwarded of an organization.
func ForwardedKey(org string) store.Key { return store.Key{Part: "pass", Sort: "forwarded/" + org} }

// The kinds of timers: of claims and of queue time-outs on the wall clock, and of runs on the service clock. Each
// kind is a range of its own, so that many timers of one kind do not delay another.
const (
	LeaseTimers   = "l/"
	WaitTimers    = "p/"
	ServiceTimers = "s/"
)

// Timers are written several times in the life of a job, and freed places twice. So they are spread over several
// partitions, by the workflow's id.
const (
	timerShards = 4
	freedShards = 8
)

func shard(id string, of uint32) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32() % of
}

// TimerParts has the timers of an organization.
func TimerParts(org string) []string { return parts("timer/"+org, timerShards) }

func parts(of string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s/%d", of, i)
	}
	return out
}

// Due begins the sort keys of timers of one kind and one time.
func Due(kind string, at int64) string { return fmt.Sprintf("%s%015d/", kind, at) }

// TimerKey is the key of a timer of a workflow; the earliest comes first.
func TimerKey(org, due, id string) store.Key {
	return store.Key{Part: fmt.Sprintf("timer/%s/%d", org, shard(id, timerShards)), Sort: due + "/" + id}
}

// ClaimPart has the claimable runs of one type under the key of a Route.
func ClaimPart(route string, t workflow.Type) string { return "claim/" + route + "/" + string(t) }

// Rank orders pending workflows as bytes: higher priority first, then older first.
func (w *Workflow) Rank() string {
	return fmt.Sprintf("%04d/%020d/%s", 1000-w.Priority, w.Submitted.UnixNano(), w.ID)
}

// ClaimKey is the key of the entry of a claimable workflow under the key of a Route.
func (w *Workflow) ClaimKey(route string) store.Key {
	return store.Key{Part: ClaimPart(route, w.Type), Sort: w.Rank()}
}

// The waiting lists of a workspace: runs that change its state, and others.
const (
	WaitChangers = "wait/c/"
	WaitOthers   = "wait/o/"
)

// WaitKey is the key of the entry of a workflow that waits in its workspace.
func (w *Workflow) WaitKey() store.Key {
	list := WaitOthers
	if w.ChangesState() {
		list = WaitChangers
	}
	return store.Key{Part: QueuePart(w.WorkspaceID), Sort: list + w.Rank()}
}

// Entry is the workflow's entry in that list.
func (w *Workflow) Entry() Entry {
	return Entry{ID: w.ID, Workspace: w.Workspace, WorkspaceID: w.WorkspaceID, Pin: w.PlanPin(), Type: w.Type, Push: w.Op == workflow.StatePush}
}

// PlanPin names the pool or instance that has the plan which a run applies: see Entry. The run belongs to that pool
// from its submission on.
func (w *Workflow) PlanPin() string {
	switch {
	case w.PlanOf == "":
		return ""
	case w.Pin == "":
		return w.PoolID
	}
	return w.PoolID + "/" + w.Pin
}

// WakeTargetKey is the key of the wake target of a pool.
func WakeTargetKey(poolID string) store.Key {
	return store.Key{Part: "pool/" + poolID, Sort: "wake-target"}
}

// At writes a time as a sort key, so that earlier ones come first.
func At(at time.Time) string { return fmt.Sprintf("%020d", at.UnixNano()) }

// OrganizationRuns is the list of an organization's runs in the first index, the oldest first.
func OrganizationRuns(org string) string { return "org/" + org }

// Under scans the keys of a partition that start with prefix, which ends with '/'.
func Under(part, prefix string, limit int) store.Scan {
	return store.Scan{Part: part, From: prefix, To: After(prefix), Limit: limit}
}

// After returns the first key after all that start with prefix, which ends with '/'.
func After(prefix string) string { return prefix[:len(prefix)-1] + "0" }

// RankedAt is the submission time of the workflow with this rank; zero if it is not a rank.
func RankedAt(rank string) time.Time {
	_, rest, _ := strings.Cut(rank, "/")
	nano, _, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(nano, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
