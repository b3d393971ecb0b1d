package record

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// OutboxEvent is an event that people may want to be notified of. It is written in the commit that causes it, and
// removed in the commit that makes its deliveries. It has no values of plans, no outputs and no secrets.
type OutboxEvent struct {
	Event       string             `json:"event"` // api.Event*
	Workflow    string             `json:"wf"`
	Workspace   string             `json:"ws"`
	WorkspaceID string             `json:"wsid"`
	Type        workflow.Type      `json:"type"`
	Op          workflow.Operation `json:"op,omitempty"`
	Reason      workflow.Reason    `json:"reason,omitempty"`
	Detail      string             `json:"detail,omitempty"`
	Changes     *api.Changes       `json:"changes,omitempty"` // the counts alone
	By          string             `json:"by,omitempty"`      // submitter of the run
	Trigger     *Trigger           `json:"trigger,omitempty"` // of a run that no person submitted
	At          time.Time          `json:"at"`
}

// EventMoved means that a run of a pull request or a tree has ended, or that its plan was decided on: the comment is
// updated, and the tree goes on. It makes no notification.
const EventMoved = "moved"

// OutboxEventOf is an event of a workflow with its present values.
func OutboxEventOf(event string, w *Workflow, at time.Time) OutboxEvent {
	return OutboxEvent{Event: event, Workflow: w.ID, Workspace: w.Workspace, WorkspaceID: w.WorkspaceID, Type: w.Type, Op: w.Op, Reason: w.Reason, Detail: w.Detail, Changes: w.Changes, By: w.By, Trigger: w.Trigger, At: at}
}

// OutboxPart has the outbox events of an organization, the oldest first.
func OutboxPart(org string) string { return "outbox/" + org }

// OutboxKey is the key of a new event.
func OutboxKey(org string, at time.Time) store.Key {
	return store.Key{Part: OutboxPart(org), Sort: At(at) + "/" + Random(6)}
}

// Stuck is when the last notification of stuck runs in a pool was made.
type Stuck struct {
	At time.Time `json:"at"`
}

// StuckKey is the key of the Stuck of a pool; an empty id is for runs without a chosen pool.
func StuckKey(org, poolID string) store.Key {
	return store.Key{Part: "stuck/" + org, Sort: "pool/" + poolID}
}

// Delivery is an action that the control plane wants done elsewhere. The side of its pool claims it for a time, does
// it and reports. Exactly one of the pointers is set.
type Delivery struct {
	ID      string    `json:"id"`
	Org     string    `json:"org"`
	Kind    string    `json:"kind"` // api.Deliver*
	For     string    `json:"for"`  // name of the notification or git host that it is for
	ForID   string    `json:"for_id"`
	PoolID  string    `json:"pool_id,omitempty"`
	Pool    string    `json:"pool"` // its name
	State   string    `json:"state"`
	Attempt int       `json:"attempt,omitempty"`
	Tries   int       `json:"tries,omitempty"` // attempts since Since
	Detail  string    `json:"detail,omitempty"`
	Created time.Time `json:"created"`
	Since   time.Time `json:"since"`          // when it was made, or last replayed: it is tried for a day from then on
	Next    time.Time `json:"next,omitzero"`  // when it is due: for its next try, or because its lease lapses
	Due     string    `json:"due,omitempty"`  // sort key of its entry among those of its pool
	Ended   time.Time `json:"ended,omitzero"` // when it was done or given up

	Notice *Notice       `json:"notice,omitempty"`
	Pull   *PullDelivery `json:"pull,omitempty"`
}

// Notice is a notification that is to be sent. Where it is sent to is read when it is claimed.
type Notice struct {
	Event     string `json:"event"`
	Workflow  string `json:"wf,omitempty"`
	Workspace string `json:"ws,omitempty"`
	Body      string `json:"body"`
}

// DeliveryIDs is the prefix of the ids of deliveries.
const DeliveryIDs = "dlv_"

// How long deliveries are kept, and tried.
const (
	DeliveryTried      = 24 * time.Hour // since it was made or replayed
	DeliveryKeptDone   = 3 * Day        // since its end
	DeliveryKeptFailed = 14 * Day       // since its end, or its last change
)

// Stands is the state of a delivery at a time: one that is not done within a day has failed, even if no pass has seen
// it since.
func (d Delivery) Stands(now time.Time) string {
	over := !now.Before(d.Since.Add(DeliveryTried))
	if over && (d.State == api.DeliveryWaiting || d.State == api.DeliveryClaimed && !now.Before(d.Next)) {
		return api.DeliveryFailed
	}
	if d.State == api.DeliveryClaimed && !now.Before(d.Next) {
		return api.DeliveryWaiting // its lease has lapsed
	}
	return d.State
}

// Expires is when a delivery is deleted.
func (d Delivery) Expires() time.Time {
	switch d.State {
	case api.DeliveryDone:
		return d.Ended.Add(DeliveryKeptDone)
	case api.DeliveryFailed:
		return d.Ended.Add(DeliveryKeptFailed)
	}
	return d.Since.Add(DeliveryTried + DeliveryKeptFailed)
}

// Deliveries says when a delivery of a pool is due next, or earlier; zero means never. Each commit that makes one, or
// makes one due earlier, writes it.
type Deliveries struct {
	Next time.Time `json:"next,omitzero"`
}

// Due says whether a delivery may be due at a time.
func (d Deliveries) Due(now time.Time) bool { return !d.Next.IsZero() && !now.Before(d.Next) }

// DeliveryPart has the deliveries of an organization, the oldest first.
func DeliveryPart(org string) string { return "delivery/" + org }

// DeliveryKey is the key of a delivery.
func DeliveryKey(org, id string) store.Key { return store.Key{Part: DeliveryPart(org), Sort: id} }

// UndoneIndex is the partition of Index1 that lists the deliveries of an organization that are not done, the oldest
// first.
func UndoneIndex(org string) string { return "undone/" + org }

// EncodeDelivery encodes a delivery with its place in that list.
func EncodeDelivery(d Delivery) store.Record {
	r := Encode(DeliveryKey(d.Org, d.ID), d)
	r.Expires = d.Expires().Unix()
	if d.State != api.DeliveryDone {
		r.Indexes = map[store.Index]store.Entry{store.Index1: {Part: UndoneIndex(d.Org), Sort: At(d.Created)}}
	}
	return r
}

// DuePart has an entry for each delivery of a pool that is not over, the earliest due first.
func DuePart(poolID string) string { return "deliver/" + poolID }

// DueKey is the key of the entry of a delivery.
func DueKey(poolID, due string) store.Key { return store.Key{Part: DuePart(poolID), Sort: due} }

// DeliveriesKey is the key of the Deliveries of a pool.
func DeliveriesKey(poolID string) store.Key {
	return store.Key{Part: "pool/" + poolID, Sort: "deliveries"}
}
