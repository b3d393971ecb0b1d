package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxRefused = 1000 // entries of one key and type, refused by assignment, that one claim skips
	perBroken  = 50   // the weight of an entry whose workflow cannot be read: each costs another read
	claimPage  = 200  // entries of one read of the claimable index
)

// skipped logs an unreadable record, which a person must look at.
func (p *Calls) skipped(err error) {
	p.ledger.Log.Error("unreadable record skipped", "err", err)
}

// search is one search for runs that a pool may claim.
type search struct {
	pool     record.Pool
	instance string
	types    []workflow.Type // none means all
	n        int
	routes   record.Routes // read before any queue's record
	repaired repairs

	first   []head         // runs that can be claimed, best rank first
	stale   []record.Entry // runs to be repaired before
	more    bool           // it has not read all entries
	tired   bool           // it has seen more outdated runs than one claim repairs
	verdict map[string]verdict
}

// verdict says whether an entry may be claimed.
type verdict int

const (
	unknown verdict = iota
	allowed
	refused // by assignment, because another pool or instance has the plan, or it is under a key that is out of date and is not repaired now
	broken
	stale
)

// pick reads the runs to claim, with the records that their claims begin with. A record that cannot be read does not
// stop the claims of other workflows.
func (p *Calls) pick(ctx context.Context, c *ledger.Change, l *search) error {
	l.verdict = map[string]verdict{}
	for bulk := false; ; bulk = true {
		if err := p.heads(ctx, c, l, bulk); err != nil {
			return err
		}
		var keys []store.Key // all of them in one request
		for _, h := range l.first {
			keys = append(keys, firstKeys(h.entry)...)
		}
		if err := c.Load(ctx, keys...); err != nil {
			return err
		}
		if err := p.judge(ctx, c, l, l.first); err != nil {
			return err
		}
		again := false
		for _, h := range l.first {
			if err := readable(c, h.entry); err != nil {
				p.skipped(err)
				l.verdict[h.entry.ID] = broken
			}
			again = again || l.verdict[h.entry.ID] != allowed
		}
		if !again || len(l.stale) > 0 {
			return nil
		}
	}
}

// judge decides whether the pool may claim entries: only if the route of their workspace leads to their key and is up
// to date, and the pool serves the workspace.
func (p *Calls) judge(ctx context.Context, c *ledger.Change, l *search, some []head) error {
	lanes := make([]store.Key, len(some))
	for i, h := range some {
		lanes[i] = record.QueueKey(h.entry.WorkspaceID)
	}
	if err := c.Load(ctx, lanes...); err != nil {
		return err
	}
	for i, h := range some {
		if l.verdict[h.entry.ID] != unknown {
			continue
		}
		q, _, err := ledger.Get[record.Queue](c.Read, lanes[i])
		if err != nil {
			p.skipped(err)
			l.verdict[h.entry.ID] = broken
			continue
		}
		fresh := q.Route.Key == h.key && len(q.Route.Old) == 0 && q.Route.Fresh(l.routes)
		switch {
		case !fresh && l.repaired.mayTry(h.entry.ID, len(l.stale)):
			l.verdict[h.entry.ID] = stale
			l.stale = append(l.stale, h.entry)
		case !fresh:
			l.verdict[h.entry.ID], l.tired = refused, true
		case !l.pool.Serves(q.Route.Scope), !l.has(h.entry.Pin):
			l.verdict[h.entry.ID] = refused
		default:
			l.verdict[h.entry.ID] = allowed
		}
	}
	return nil
}

// has says whether the claiming instance has the plan that a run applies.
func (l *search) has(pin string) bool {
	pool, instance, one := strings.Cut(pin, "/")
	return pin == "" || pool == l.pool.ID && (!one || instance == l.instance)
}

// readable returns an error if a record that the claim of an entry begins with is missing or cannot be decoded.
func readable(c *ledger.Change, e record.Entry) error {
	_, ok, err := ledger.Get[record.Workflow](c.Read, record.WorkflowKey(e.ID))
	if err == nil && !ok {
		err = fmt.Errorf("claimable workflow %s has no record", e.ID)
	}
	_, ok, err2 := ledger.Get[api.Spec](c.Read, record.SpecKey(e.ID))
	if err2 == nil && !ok {
		err2 = fmt.Errorf("claimable workflow %s has no spec", e.ID)
	}
	return errors.Join(err, err2, c.Read.Into(record.BeatKey(e.ID), &record.Beat{}))
}

// keys are those that a pool searches: its own, that of its instance if workspaces are pinned to it, and the label
// sets in use that its labels cover.
func (l *search) keys() []string {
	out := []string{record.PoolRoute(l.pool.ID)}
	if l.routes.Pins[l.instance] > 0 {
		out = append(out, record.RunnerRoute(l.pool.ID, l.instance))
	}
	for _, set := range slices.Sorted(maps.Keys(l.routes.Labels)) {
		if l.pool.Has(record.LabelsOfRoute(set)) {
			out = append(out, set)
		}
	}
	return out
}

// heads merges the first entries of the keys that a pool covers, best rank first, without those that it may not
// claim. bulk means that it judges all that it reads, because those that it read first were refused.
func (p *Calls) heads(ctx context.Context, c *ledger.Change, l *search, bulk bool) error {
	k := record.CursorKey(l.pool.ID)
	cursor, _, err := ledger.Get[record.Cursor](c.Read, k)
	if err != nil {
		p.skipped(err) // the claims start from the beginning again
	}
	var scans []store.Scan
	var under []string // the key of each
	for _, key := range l.keys() {
		for _, t := range workflow.Types() {
			if len(l.types) > 0 && !slices.Contains(l.types, t) || !l.pool.Takes(t) {
				continue
			}
			part := record.ClaimPart(key, t)
			under = append(under, key)
			scans = append(scans, store.Scan{Part: part, From: cursor.After[part], Limit: min(claimPage, max(l.n, 10))})
		}
	}
	pages, err := c.Ranges(ctx, scans...)
	if err != nil {
		return err
	}
	var all []head
	resume := maps.Clone(cursor.After)
	for i, scan := range scans {
		some, last, err := p.headsOf(ctx, c, l, under[i], scan, pages[i], bulk)
		if err != nil {
			return err
		}
		all = append(all, some...)
		if delete(resume, scan.Part); last != "" {
			if resume == nil {
				resume = map[string]string{}
			}
			resume[scan.Part] = last
		}
	}
	c.Forget(k) // from an earlier try
	if !maps.Equal(resume, cursor.After) {
		c.Put(k, record.Cursor{After: resume})
	}
	slices.SortFunc(all, func(a, b head) int { return cmp.Compare(a.rank, b.rank) })
	l.first, l.more = all[:min(l.n, len(all))], len(resume) > 0 || l.tired
	return nil
}

// head is an entry that can be claimed, and its route key.
type head struct {
	rank, key string
	entry     record.Entry
}

// headsOf reads the first entries of one key. Entries that may not be claimed do not count, but the reading is
// bounded. At the bound, resume is where the next claim continues; it is empty once all were read, and the next claim
// begins at the start. Each key and type has its own bound, so that the refused entries of one never hide another.
func (p *Calls) headsOf(ctx context.Context, c *ledger.Change, l *search, key string, scan store.Scan, page store.Page, bulk bool) (out []head, resume string, err error) {
	skipped, last := 0, ""
	for {
		var some []head
		for _, r := range page.Records {
			e, err := record.Decode[record.Entry](r)
			if err != nil {
				p.skipped(err)
				skipped, last = skipped+1, r.Key.Sort
				continue
			}
			some = append(some, head{r.Key.Sort, key, e})
		}
		if bulk {
			if err := p.judge(ctx, c, l, some); err != nil {
				return nil, "", err
			}
		}
		for _, h := range some {
			switch l.verdict[h.entry.ID] {
			case unknown, allowed:
				out = append(out, h)
				continue
			case broken:
				skipped += perBroken
			case refused, stale:
				skipped++
			}
			last = h.rank
		}
		switch {
		case skipped >= maxRefused:
			return out, last, nil
		case page.Next == "" || len(out) >= l.n:
			return out, "", nil
		}
		scan.After, scan.Limit = page.Next, claimPage
		if page, err = c.Range(ctx, scan); err != nil {
			return nil, "", err
		}
	}
}

// firstKeys are the records that the claim of an entry's workflow begins with, and the queue of its workspace.
func firstKeys(e record.Entry) []store.Key {
	return []store.Key{record.WorkflowKey(e.ID), record.BeatKey(e.ID), record.SpecKey(e.ID), record.QueueKey(e.WorkspaceID)}
}
