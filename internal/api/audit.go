package api

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// AuditEvent is one change or refusal, with its actor.
type AuditEvent struct {
	ID      string    `json:"id,omitempty" doc:"Where it lies in the trail; ids sort by time" example:"00001771150000000000/4Jv0aZ2b"`
	At      time.Time `json:"at" doc:"When it happened"`
	Actor   string    `json:"actor" doc:"Name of the principal that asked" example:"ann"`
	ActorID string    `json:"actor_id,omitempty" doc:"Its id" example:"prn_01k1xz4m2p7q9r3s5t8v"`
	Action  string    `json:"action" doc:"Requested action, such as workflow.submit" example:"workflow.submit"`
	Target  string    `json:"target" doc:"Target of the action: a name or an id" example:"network"`
	Outcome string    `json:"outcome" enum:"done,refused" doc:"Whether it was done or refused"`
	Detail  string    `json:"detail,omitempty" doc:"The changes, or why it was refused"`
}

// Orders of a list.
const (
	OldestFirst = "asc"
	NewestFirst = "desc"
)

// AuditFilter narrows the audit trail. The zero value asks for the newest of all.
type AuditFilter struct {
	Actor   string // the name of a principal, or its id
	Action  string // ends with '*': all that begin so
	Target  string
	Outcome string
	Since   time.Time // the zero time: from the beginning
	Until   time.Time // it is not part of it; the zero time: to the end
	After   string    // with OldestFirst: only events after this id
	Order   string    // empty means NewestFirst
	Cursor  string
	Limit   int // 0 leaves it to the control plane
}

// All reports whether it passes every event between its bounds.
func (f AuditFilter) All() bool { return f.Actor+f.Action+f.Target+f.Outcome == "" }

// Has says whether an entry passes, its time aside.
func (f AuditFilter) Has(e AuditEvent) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	begin, prefix := strings.CutSuffix(f.Action, "*")
	return (is(f.Actor, e.Actor) || f.Actor == e.ActorID) && is(f.Target, e.Target) && is(f.Outcome, e.Outcome) && (prefix && strings.HasPrefix(e.Action, begin) || is(f.Action, e.Action))
}

// Seal closes a part of the audit trail: nothing in it or before it can be changed without another digest.
type Seal struct {
	Number   int64     `json:"number" doc:"Counted from 1" example:"7"`
	After    string    `json:"after,omitempty" doc:"Id of the last entry of the seal before it; none for the first seal" example:"00001771150000000000/4Jv0aZ2b"`
	To       string    `json:"to" doc:"Id of its last entry" example:"00001771150060000000/9xW1c7Qe"`
	Count    int       `json:"count" doc:"How many entries it has" example:"12"`
	Previous string    `json:"previous,omitempty" doc:"Digest of the seal before it; none for the first seal"`
	Digest   string    `json:"digest" doc:"SHA-256 of all of this, of the organization and of the entries, in hexadecimal digits" example:"5b41f3c0a5e9d4a8f1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718"`
	At       time.Time `json:"at" doc:"When it was made"`
}

// SealPage is one page of seals, the oldest first, and their total.
type SealPage struct {
	Items     []Seal      `json:"items" nullable:"false" doc:"The seals of the page"`
	Next      string      `json:"next,omitempty" doc:"Cursor of the following page; empty at the end"`
	First     int64       `json:"first" doc:"Number of the first seal that is kept: earlier ones are past the retention" example:"1"`
	Last      int64       `json:"last" doc:"Number of the last seal; 0 if none exists yet" example:"7"`
	To        string      `json:"to,omitempty" doc:"Id of the last entry that is sealed" example:"00001771150060000000/9xW1c7Qe"`
	Forwarded *Forwarding `json:"forwarded,omitempty" doc:"How far the trail was forwarded; none if it never was"`
}

// Forwarding is how far the audit trail was forwarded.
type Forwarding struct {
	Seal   int64      `json:"seal" doc:"Number of the last seal that was forwarded" example:"7"`
	Failed string     `json:"failed,omitempty" doc:"Why the next one was not, if it was tried"`
	Since  *time.Time `json:"since,omitempty" doc:"Since when that fails"`
}

// AuditLine is one line of a forwarded trail: an entry, or the seal of the entries before it.
type AuditLine struct {
	Organization string      `json:"organization"`
	Entry        *AuditEvent `json:"entry,omitempty"`
	Seal         *Seal       `json:"seal,omitempty"`
}

// Sum is the digest of a seal of an organization over its entries, in the order of their ids. Each value is written
// with its length before it, as 8 bytes, so that no two different trails are written alike: first "dayfly audit 1", the
// organization and the seal's own fields, then for each entry the names and values of the fields that are not empty,
// and the empty string. A field that comes later thus leaves the digests of earlier entries as they are.
func (s Seal) Sum(organization string, entries []AuditEvent) string {
	h := sha256.New()
	put := func(values ...string) {
		for _, v := range values {
			_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(v))))
			_, _ = h.Write([]byte(v))
		}
	}
	moment := func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
	put("dayfly audit 1", organization, strconv.FormatInt(s.Number, 10), s.Previous, s.After, s.To, strconv.Itoa(s.Count), moment(s.At))
	for _, e := range entries {
		for _, field := range [][2]string{
			{"id", e.ID}, {"at", moment(e.At)}, {"actor", e.Actor}, {"actor_id", e.ActorID}, {"action", e.Action}, {"target", e.Target}, {"outcome", e.Outcome}, {"detail", e.Detail},
		} {
			if field[1] != "" {
				put(field[0], field[1])
			}
		}
		put("")
	}
	return hex.EncodeToString(h.Sum(nil))
}

// AuditTime is the time in the id of an entry; the zero time if there is none.
func AuditTime(id string) time.Time {
	digits, _, _ := strings.Cut(id, "/")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
