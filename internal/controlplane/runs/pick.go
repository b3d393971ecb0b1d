package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxRefused = 1000 // entries of one type, refused by assignment, that one claim skips
	perBroken  = 50   // what an entry counts whose workflow cannot be read: each costs another read
	claimPage  = 200  // entries of one read of the claimable index
)

// skipped logs a record that a person must look at.
func (p *Calls) skipped(err error) {
	p.ledger.Log.Error("unreadable record skipped", "err", err)
}

// pick reads what is to be claimed, with the records that its claim begins with. A record that cannot be read does
// not stop the claims of other workflows.
func (p *Calls) pick(ctx context.Context, c *ledger.Change, pool record.Pool, types []workflow.Type, n int) (first []record.Entry, more bool, err error) {
	broken := map[string]bool{}
	for {
		first, more, err = p.heads(ctx, c, pool, types, n, broken)
		if err != nil {
			return nil, false, err
		}
		var keys []store.Key // all of them in one request
		for _, e := range first {
			keys = append(keys, firstKeys(e)...)
		}
		if err = c.Load(ctx, keys...); err != nil {
			return nil, false, err
		}
		before := len(broken)
		for _, e := range first {
			if err := readable(c, e); err != nil {
				p.skipped(err)
				broken[e.ID] = true
			}
		}
		if len(broken) == before {
			return first, more, nil
		}
	}
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

// heads merges the first entries of the keys that a pool covers, best rank first, without those that are broken.
func (p *Calls) heads(ctx context.Context, c *ledger.Change, pool record.Pool, types []workflow.Type, n int, broken map[string]bool) (first []record.Entry, more bool, err error) {
	k := record.CursorKey(pool.ID)
	cursor, _, err := ledger.Get[record.Cursor](c.Read, k)
	if err != nil {
		p.skipped(err) // the claims start from the beginning again
	}
	var covered []workflow.Type
	var scans []store.Scan
	for _, t := range workflow.Types() {
		if len(types) > 0 && !slices.Contains(types, t) || !pool.Takes(t) {
			continue
		}
		covered = append(covered, t)
		scans = append(scans, store.Scan{Part: record.ClaimPart(record.PoolRoute(pool.ID), t), From: cursor.Types[t], Limit: min(claimPage, max(n, 10))})
	}
	pages, err := c.Ranges(ctx, scans...)
	if err != nil {
		return nil, false, err
	}
	var all []head
	resume := maps.Clone(cursor.Types)
	for i, t := range covered {
		some, last, err := p.headsOf(ctx, c, pool, scans[i], pages[i], n, broken)
		if err != nil {
			return nil, false, err
		}
		all = append(all, some...)
		if delete(resume, t); last != "" {
			if resume == nil {
				resume = map[workflow.Type]string{}
			}
			resume[t] = last
		}
	}
	c.Forget(k) // from an earlier try
	if !maps.Equal(resume, cursor.Types) {
		c.Put(k, record.Cursor{Types: resume})
	}
	slices.SortFunc(all, func(a, b head) int { return cmp.Compare(a.rank, b.rank) })
	for _, h := range all[:min(n, len(all))] {
		first = append(first, h.entry)
	}
	return first, len(resume) > 0, nil
}

// head is an entry that can be claimed.
type head struct {
	rank  string
	entry record.Entry
}

// headsOf reads the first entries of one key. Entries that may not be claimed do not count, but the reading is
// bounded. At the bound, resume is where the next claim continues; it is empty once all were read, and the next claim
// begins at the start. Each key has its own bound, so that refused entries of one type do not hide another type.
func (p *Calls) headsOf(ctx context.Context, c *ledger.Change, pool record.Pool, scan store.Scan, page store.Page, n int, broken map[string]bool) (out []head, resume string, err error) {
	refused, last := 0, ""
	for {
		for _, r := range page.Records {
			e, err := record.Decode[record.Entry](r)
			switch {
			case err != nil:
				p.skipped(err)
				refused++
			case broken[e.ID]:
				refused += perBroken
			case !pool.AssignedTo(record.Scope{Workspace: e.Workspace}):
				refused++
			default:
				out = append(out, head{r.Key.Sort, e})
				continue
			}
			last = r.Key.Sort
		}
		switch {
		case refused >= maxRefused:
			return out, last, nil
		case page.Next == "" || len(out) >= n:
			return out, "", nil
		}
		scan.After, scan.Limit = page.Next, claimPage
		if page, err = c.Range(ctx, scan); err != nil {
			return nil, "", err
		}
	}
}

// firstKeys are the records that the claim of an entry's workflow begins with.
func firstKeys(e record.Entry) []store.Key {
	return []store.Key{record.WorkflowKey(e.ID), record.BeatKey(e.ID), record.SpecKey(e.ID)}
}
