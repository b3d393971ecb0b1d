package identity

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A filter may skip many entries: the reading of one page is bounded, and its cursor goes on from there.
const (
	trailReads = 10
	trailPage  = 200
)

// Audit lists the entries of the audit trail that pass a filter.
func (p *Calls) Audit(ctx context.Context, who Principal, f api.AuditFilter) (out api.Page[api.AuditEvent], err error) {
	out.Items = []api.AuditEvent{}
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "audit.list", ""); err != nil {
		return out, err
	}
	scan, err := trail(who.Organization, f)
	if err != nil {
		return out, err
	}
	list := scan.Part + " " + f.Order
	if scan.After, err = ledger.OpenCursor(list, f.Cursor); err != nil {
		return out, err
	}
	limit := ledger.PageSize(f.Limit, trailPage)
	if scan.Limit = trailPage; f.All() {
		scan.Limit = limit
	}
	for range trailReads {
		page, err := p.ledger.Range(ctx, scan)
		if err != nil {
			return out, err
		}
		for _, r := range page.Records {
			if scan.After = r.Key.Sort; len(out.Items) == limit {
				break
			}
			if e := Entry(r); f.Has(e) {
				out.Items, out.Next = append(out.Items, e), r.Key.Sort
			}
		}
		if len(out.Items) == limit {
			out.Next = ledger.SealCursor(list, out.Next)
			return out, nil
		}
		if scan.After = page.Next; page.Next == "" {
			break
		}
	}
	out.Next = ledger.SealCursor(list, scan.After)
	return out, nil
}

// trail is the scan of the audit trail between the bounds of a filter. It is a pure function.
func trail(org string, f api.AuditFilter) (store.Scan, error) {
	scan := store.Scan{Part: record.AuditPart(org)}
	var since, until string
	if !f.Since.IsZero() {
		since = record.At(f.Since)
	}
	if !f.Until.IsZero() {
		until = record.At(f.Until)
	}
	switch f.Order {
	case "", api.NewestFirst:
		if f.After != "" {
			return scan, workflow.Refuse(workflow.ErrInvalid, "after", "after goes with the order %s: the newest entry is the first one otherwise", api.OldestFirst)
		}
		scan.From, scan.To, scan.Reverse = until, since, true
	case api.OldestFirst:
		if scan.From, scan.To = since, until; f.After >= since && f.After != "" {
			scan.From = f.After + "\x00" // the first id after it
		}
	default:
		return scan, workflow.Refuse(workflow.ErrInvalid, "order", "the order is %s or %s, not %q", api.NewestFirst, api.OldestFirst, text.Cut(f.Order, 40))
	}
	return scan, nil
}

// Entry decodes an entry of the audit trail. An unreadable record still counts as an entry, but not as the one that
// was sealed.
func Entry(r store.Record) api.AuditEvent {
	e, err := record.Decode[api.AuditEvent](r)
	if err != nil {
		e = api.AuditEvent{Detail: "this record cannot be read"}
	}
	e.ID = r.Key.Sort
	return e
}

// Seals lists the seals of the trail, the oldest first.
func (p *Calls) Seals(ctx context.Context, who Principal, cursor string, limit int) (out api.SealPage, err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "audit.seals", ""); err != nil {
		return out, err
	}
	sealed, forwarded := record.SealedKey(who.Organization), record.ForwardedKey(who.Organization)
	r, err := p.ledger.Read(ctx, sealed, forwarded)
	if err != nil {
		return out, err
	}
	state, _, err := ledger.Get[record.Sealed](r, sealed)
	if err != nil {
		return out, err
	}
	to, has, err := ledger.Get[record.Forwarded](r, forwarded)
	if err != nil {
		return out, err
	}
	page, err := p.ledger.List(ctx, store.Scan{Part: record.SealPart(who.Organization), Limit: ledger.PageSize(limit, trailPage)}, cursor)
	if err != nil {
		return out, err
	}
	out = api.SealPage{Items: []api.Seal{}, Next: page.Next, First: state.Purged + 1, Last: state.Number, To: state.To}
	for _, r := range page.Records {
		if r.Key.Sort <= record.SealKey("", state.Purged).Sort {
			continue // it is just being deleted, with its entries
		}
		s, err := record.Decode[api.Seal](r)
		if err != nil {
			s = api.Seal{} // an unreadable seal is listed as an empty one, so a verification fails
		}
		out.Items = append(out.Items, s)
	}
	if has {
		out.Forwarded = &api.Forwarding{Seal: to.Number, Failed: to.Failed}
		if !to.Since.IsZero() {
			out.Forwarded.Since = &to.Since
		}
	}
	return out, nil
}
