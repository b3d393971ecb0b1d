package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// books are what the store has besides the workflows' records: which may be claimed, which wait, and which count. They
// follow each commit, so that what a commit did is judged by what was there just before.
type books struct {
	w       *world
	commits int
	queued  map[store.Key]queued       // entries that can be claimed, and those that wait in a workspace
	cursors map[string]cursor          // of pools
	polled  map[store.Key]time.Time    // when an instance of a pool did so last
	active  map[string]map[string]bool // ids of active workflows, by pool
	freed   map[string]map[string]bool // places that are free and still counted, by limit
	inQueue map[string]map[string]bool // ids of those that can be claimed or are active, by workspace
}

// queued is an entry. Its key ends with its rank.
type queued struct {
	ID        string `json:"id"`
	Workspace string `json:"ws"`
	Pin       string `json:"pin"` // who has the plan that it applies
	since     int    // the commit that made it
}

const (
	claimable   = "claim/"
	waitChanger = "wait/c/"
	waitOther   = "wait/o/"
)

// cursor is where the next claim of a pool continues to read, by type.
type cursor struct {
	After map[string]string `json:"after"`
}

// workspaceQueue is what the store says of a workspace's queue.
type workspaceQueue struct {
	Changer string   `json:"changer"`
	Placed  []string `json:"placed"`
	WaitC   int      `json:"wait_c"`
	WaitO   int      `json:"wait_o"`
	Max     int      `json:"max"`
}

type assigned struct {
	Name string `json:"name"`
}

// poolRecord is what the store says of a pool.
type poolRecord struct {
	ID          string          `json:"id"`
	Disabled    bool            `json:"disabled"`
	Labels      []string        `json:"labels"`
	Multiple    bool            `json:"multiple"`
	All         bool            `json:"all"`
	Assigned    []assigned      `json:"assigned"`
	Types       []workflow.Type `json:"types"`
	Concurrency int             `json:"concurrency"`
}

func (p *poolRecord) serves(workspace string, t workflow.Type) bool {
	return (p.All || slices.Contains(p.Assigned, assigned{workspace})) && (len(p.Types) == 0 || slices.Contains(p.Types, t))
}

func newBooks(w *world) *books {
	return &books{w: w, queued: map[store.Key]queued{}, cursors: map[string]cursor{}, polled: map[store.Key]time.Time{}, active: map[string]map[string]bool{}, freed: map[string]map[string]bool{}, inQueue: map[string]map[string]bool{}}
}

// stored reads a record of the store as it is.
func stored[T any](w *world, k store.Key) (out T, ok bool) {
	out, version := versioned[T](w, k)
	return out, version > 0
}

// versioned is a record and its version, 0 if there is none.
func versioned[T any](w *world, k store.Key) (out T, version int64) {
	found, err := w.cp.inner.Get(context.Background(), k)
	if err != nil || len(found) != 1 {
		return out, 0
	}
	if err := json.Unmarshal(found[0].Value, &out); err != nil {
		w.fail("readable", "%s does not decode: %v", k, err)
	}
	return out, found[0].Version
}

// follow notes a commit, in which claimed were claimed, and checks what it did. seen is the last commit before the
// claimable entries were read.
func (b *books) follow(ops []store.Op, claimed []*record, seen int) {
	b.commits++
	ranks := map[string]string{} // of what was claimed
	for k, q := range b.queued {
		if len(claimed) > 0 && strings.HasPrefix(k.Part, claimable) && slices.ContainsFunc(claimed, func(r *record) bool { return r.ID == q.ID }) {
			ranks[q.ID] = k.Sort
		}
	}
	pools, workspaces, folds := map[string]bool{}, map[string]bool{}, false
	cursors := map[string]cursor{}
	for _, op := range ops {
		k := op.Key()
		part, rest, _ := strings.Cut(k.Part, "/")
		switch {
		case op.IsCheck():
		case part == "active":
			pools[rest] = true
			if b.active[rest] == nil {
				b.active[rest] = map[string]bool{}
			}
			delete(b.active[rest], k.Sort)
			if _, ok := stored[struct{}](b.w, k); ok {
				b.active[rest][k.Sort] = true
			}
			if len(b.active[rest]) > 100 {
				b.w.met[metHeld]++
			}
		case part == "limit" && strings.HasPrefix(k.Sort, "pool/"):
			pools[strings.TrimPrefix(k.Sort, "pool/")] = true
		case part == "limit" && k.Sort == "org":
			folds = true
		case part == "freed":
			limit := path.Dir(strings.TrimPrefix(rest, "default/")) // without its shard
			if b.freed[limit] == nil {
				b.freed[limit] = map[string]bool{}
			}
			delete(b.freed[limit], k.Sort)
			if _, ok := stored[struct{}](b.w, k); ok {
				b.freed[limit][k.Sort] = true
			}
		case part == "pool" && strings.HasPrefix(k.Sort, "runner/"):
			b.alone(k)
		case part == "pool" && k.Sort == "cursor":
			cursors[rest], _ = stored[cursor](b.w, k)
			b.w.met[metRefused]++
		case part == "org" && op.IsDelete():
			b.gone(k)
		case part == "wf" && k.Sort == "wf":
			workspaces[b.w.truth.of(rest).WorkspaceID] = true
		case strings.HasPrefix(k.Part, claimable), part == "lane" && k.Sort != "lane":
			q, ok := stored[queued](b.w, k)
			if q.since = b.commits; !ok {
				delete(b.queued, k)
			} else if _, before := b.queued[k]; !before {
				b.queued[k] = q
			}
			if part == "lane" {
				workspaces[rest] = true
			}
		case part == "lane":
			workspaces[rest] = true
		}
	}
	if folds && len(pools) == 0 { // of the organization alone
		for id := range b.active {
			pools[id] = true
		}
	}
	b.limits(pools, len(claimed) > 0)
	b.order(claimed, ranks, seen, cursors)
	for _, ws := range slices.Sorted(maps.Keys(workspaces)) {
		b.queue(ws)
	}
	maps.Copy(b.cursors, cursors)
}

// gone: a pool or a workspace is not removed while work waits or runs there. A run whose task has handed its result
// over, and which waits only for that, does not count for its workspace.
func (b *books) gone(k store.Key) {
	if _, still := stored[struct{}](b.w, k); still {
		return
	}
	kind, name, _ := strings.Cut(k.Sort, "/")
	for at := range b.queued {
		if kind == "pool" && (strings.HasPrefix(at.Part, "claim/pool:"+name+"/") || strings.HasPrefix(at.Part, "claim/runner:"+name+"/")) {
			b.w.fail("nothing goes before its work", "%s was deleted, and %s lies there", k.Sort, at)
		}
	}
	b.w.met[kind+" is gone"]++
	for _, id := range b.w.truth.order {
		r := b.w.truth.of(id)
		mine := kind == "pool" && r.PoolID == name && r.State != workflow.Pending || kind == "workspace" && r.Workspace == name && (r.State != workflow.Running || r.SlotHeld || !r.changesState())
		if mine && (!r.State.Terminal() || r.Active) {
			b.w.fail("nothing goes before its work", "%s was deleted, and %s is %s there", k.Sort, id, r.State)
		}
	}
}

// alone: if a pool allows one instance, another may poll only three minutes after that one's last poll.
func (b *books) alone(k store.Key) {
	r, _ := stored[struct{ Last time.Time }](b.w, k)
	if r.Last.Equal(b.polled[k]) {
		return
	}
	b.polled[k] = r.Last
	p := b.pool(strings.TrimPrefix(k.Part, "pool/"))
	for other, last := range b.polled {
		if other.Part != k.Part || other == k || p == nil || p.Multiple {
			continue
		}
		if ago := b.w.cp.now().Sub(last); ago < 3*time.Minute {
			b.w.fail("one instance of a pool polls", "%s polls %s after %s did", k, ago, other)
		}
		b.w.met[metTakeover]++
	}
}

// limits: what is counted, less what was freed since, is what is active. A claim respects the limits of its pool and
// its organization, also by what is counted.
func (b *books) limits(pools map[string]bool, claim bool) {
	all, w := 0, b.w
	for _, of := range b.active {
		all += len(of)
	}
	type limit struct{ Active int }
	for _, id := range slices.Sorted(maps.Keys(pools)) {
		l, _ := stored[limit](w, store.Key{Part: "limit/default", Sort: "pool/" + id})
		o, _ := stored[limit](w, store.Key{Part: "limit/default", Sort: "org"})
		ofPool, ofOrg := len(b.freed["pool/"+id]), len(b.freed["org"])
		if l.Active-ofPool != len(b.active[id]) || o.Active-ofOrg != all || w.truth.active[id] != len(b.active[id]) {
			w.fail("limits count what is active", "pool %s: %d counted, %d freed, %d by the workflows' records, %d listed; organization: %d counted, %d freed, %d listed",
				id, l.Active, ofPool, w.truth.active[id], len(b.active[id]), o.Active, ofOrg, all)
		}
		if p := b.pool(id); claim && p != nil && (p.Concurrency > 0 && l.Active > p.Concurrency || o.Active > w.truth.orgLimit) {
			w.fail("a claim keeps the limits", "pool %s counts %d active workflows of %d, the organization %d of %d", id, l.Active, p.Concurrency, o.Active, w.truth.orgLimit)
		}
	}
}

func (b *books) pool(id string) *poolRecord {
	p, ok := stored[poolRecord](b.w, store.Key{Part: "org/default", Sort: "pool/" + id})
	if !ok {
		return nil
	}
	return &p
}

// leads says whether a workspace leads to a pool now, by the rules as they are written down. An instance that is "" is any.
func (b *books) leads(workspace string, p *poolRecord, instance string) bool {
	ws, ok := stored[struct{ W api.Workspace }](b.w, store.Key{Part: "org/default", Sort: "workspace/" + workspace})
	if !ok {
		return false
	}
	if len(ws.W.Labels) > 0 {
		return !slices.ContainsFunc(ws.W.Labels, func(l string) bool { return !slices.Contains(p.Labels, l) })
	}
	named, _ := stored[struct {
		ID string `json:"id"`
	}](b.w, store.Key{Part: "org/default", Sort: "poolname/" + cmp.Or(ws.W.Pool, "default")})
	o, _ := stored[struct {
		DefaultPool string `json:"default_pool"`
	}](b.w, store.Key{Part: "orgs", Sort: "default"})
	id := named.ID
	if ws.W.Pool == "" {
		id = cmp.Or(b.poolOfProject(ws.W.Project), o.DefaultPool, named.ID)
	}
	return p.ID == id && (ws.W.Runner == "" || instance == "" || ws.W.Runner == instance)
}

// poolOfProject is the pool of a project, or else of the nearest one above it.
func (b *books) poolOfProject(name string) string {
	for name != "" {
		p, _ := stored[struct {
			Parent string `json:"parent"`
			Pool   string `json:"pool"`
		}](b.w, store.Key{Part: "org/default", Sort: "project/" + name})
		if p.Pool != "" {
			return p.Pool
		}
		name = p.Parent
	}
	return ""
}

// routed: what can be claimed lies where its workspace leads, once nobody has changed anything for a while.
func (b *books) routed() {
	for k, q := range b.queued {
		part, ok := strings.CutPrefix(k.Part, claimable)
		if !ok {
			continue
		}
		kind, of, _ := strings.Cut(part[:strings.LastIndexByte(part, '/')], ":")
		id, instance, _ := strings.Cut(of, "/")
		ws, _ := stored[struct{ W api.Workspace }](b.w, store.Key{Part: "org/default", Sort: "workspace/" + q.Workspace})
		p := b.pool(id)
		right := p != nil && len(ws.W.Labels) == 0 && ws.W.Runner == instance && b.leads(q.Workspace, p, instance)
		if kind == "labels" {
			right = of == strings.Join(ws.W.Labels, ",")
		}
		if !right {
			b.w.fail("nothing is left under a key that is out of date", "%s of %s lies under %s", q.ID, q.Workspace, k)
		}
	}
}

// order: a claim takes only what its pool may take at the claim's commit, the best rank first of all that it could
// see. A run that changes a workspace does not start before one with a better rank that waits there.
func (b *books) order(claimed []*record, ranks map[string]string, seen int, cursors map[string]cursor) {
	worst := ""
	for _, r := range claimed {
		worst = max(worst, ranks[r.ID])
		if p := b.pool(r.PoolID); p == nil || p.Disabled || !p.serves(r.Workspace, r.Type) || !b.leads(r.Workspace, p, r.Instance) {
			b.w.fail("a pool claims what it is for", "%s of %s was claimed by %s for pool %s, which is %+v", r.ID, r.Workspace, r.Instance, r.PoolID, p)
		}
	}
	for k, q := range b.queued {
		for _, r := range claimed {
			waits := r.changesState() && k.Part == "lane/"+r.WorkspaceID && strings.HasPrefix(k.Sort, waitChanger)
			if waits && strings.TrimPrefix(k.Sort, waitChanger) < ranks[r.ID] {
				b.w.fail("a queue keeps its order", "attempt %d of %s is claimed, and %s of higher rank waits in its workspace", r.Attempt, r.ID, q.ID)
			}
		}
		if len(claimed) == 0 || q.since > seen || k.Sort >= worst || !strings.HasPrefix(k.Part, "claim/pool:"+claimed[0].PoolID+"/") {
			continue
		}
		pool := claimed[0].PoolID
		if q.Pin != "" && q.Pin != pool && q.Pin != pool+"/"+claimed[0].Instance {
			continue
		}
		p, typ := b.pool(pool), workflow.Type(k.Part[strings.LastIndexByte(k.Part, '/')+1:])
		// If a thousand entries are not assigned to the pool, the next claim continues after them.
		all := b.cursors[pool].After[k.Part] == "" && cursors[pool].After[k.Part] == ""
		if p != nil && p.serves(q.Workspace, typ) && all && b.leads(q.Workspace, p, "") {
			b.w.fail("a claim takes the best first", "%s was left behind, and %d of lower rank were claimed", q.ID, len(claimed))
		}
	}
}

// queue: the record of a workspace's queue counts what there is, and a full queue gets no new entries.
func (b *books) queue(ws string) {
	l, _ := stored[workspaceQueue](b.w, store.Key{Part: "lane/" + ws, Sort: "lane"})
	in, changers := map[string]bool{}, []string(nil)
	waitC, waitO, more := 0, 0, 0
	for k, q := range b.queued {
		if b.inQueue[ws][q.ID] && strings.HasPrefix(k.Sort, waitChanger) {
			more-- // it was overtaken by another one, in whose place it waits
		}
		switch {
		case b.w.truth.of(q.ID).WorkspaceID != ws:
		case strings.HasPrefix(k.Sort, waitChanger):
			waitC++
		case strings.HasPrefix(k.Sort, waitOther):
			waitO++
		default:
			in[q.ID] = true
		}
	}
	for pool := range b.active {
		for id := range b.active[pool] {
			if r := b.w.truth.of(id); r.WorkspaceID == ws && (r.SlotHeld || !r.changesState()) {
				in[id] = true
			}
		}
	}
	for id := range in {
		if b.w.truth.of(id).changesState() {
			changers = append(changers, id)
		}
		if !b.inQueue[ws][id] {
			more++
		}
	}
	others := len(in) - len(changers)
	switch {
	case len(changers) > 1:
		b.w.fail("one run at a time changes a workspace", "workspace %s: %v", ws, changers)
	case len(l.Placed) != others, l.WaitC != waitC, l.WaitO != waitO, l.Changer != strings.Join(changers, ""):
		b.w.fail("a queue counts what is in it", "workspace %s: %+v; in it %v and %d others, waiting %d and %d", ws, l, changers, others, waitC, waitO)
	case more > 0 && len(in) > l.Max:
		b.w.fail("a full queue gets no new entries", "workspace %s has %d of %d in its queue, %d of them new", ws, len(in), l.Max, more)
	}
	b.inQueue[ws] = in
}
