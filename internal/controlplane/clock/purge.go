package clock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The deletions of one pass in one organization are bounded, and so is each commit: other changes wait for at most
// one commit.
const (
	maxDeleted = 20_000 // records, and runs that it looks at
	maxPurge   = 10 * time.Second
	perCommit  = 40 // records
	runsAtOnce = 50 // of one page
	// A read of lines of a log can be large.
	recordsAtOnce = 25
)

// ownDeletes is how long the purge waits for a store that deletes expired records on its own, at no cost. After that
// the purge deletes the records that the store has missed.
const ownDeletes = 7 * record.Day

// purge is one purge of an organization. Runs are found by the list of all, the oldest first, so nothing needs to be
// written for them to be found. The list may lag, but a run that it shows as over stays over. Every delete names the
// version that was seen. The next purge goes on after a crash: the record by which a run is found is deleted last.
type purge struct {
	ledger  *ledger.Ledger
	blobs   deleter
	org     string
	until   time.Time
	looked  int // runs and records
	deleted int
	ops     []store.Op
}

// purge deletes data past its retention: runs, trees, logs, artifacts, and entries of the audit trail.
func (p *Calls) purge(ctx context.Context, org string, until time.Time, sum *Summary) error {
	now := p.ledger.Now()
	days, err := p.ledger.Retention(ctx, org)
	if err != nil {
		return err
	}
	s := &purge{ledger: p.ledger, blobs: p.blobs, org: org, until: now.Add(min(maxPurge, until.Sub(now)))}
	defer func() { sum.Deleted += s.deleted }()
	kept := now
	if p.ledger.StoreExpires {
		kept = kept.Add(-ownDeletes)
	}
	err = s.runs(ctx, record.Before(kept, days.Workflows))
	if err == nil {
		err = s.trees(ctx, record.Before(kept, days.Workflows))
	}
	if err == nil {
		err = s.parts(ctx, record.LogsPrefix, record.Before(kept, days.Logs), func(p *record.Purged) *time.Time { return &p.Logs })
	}
	if err == nil {
		err = s.parts(ctx, record.ArtifactsPrefix, record.Before(kept, days.Artifacts), func(p *record.Purged) *time.Time { return &p.Artifacts })
	}
	if err == nil && !p.ledger.StoreExpires {
		err = s.deliveries(ctx)
	}
	if err == nil && days.Audit > 0 {
		err = s.audit(ctx, record.Before(now, days.Audit), p.forward != nil)
	}
	lost := errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrBusy) || errors.Is(err, workflow.ErrBusy)
	if s.enough() || lost {
		sum.More = true
	}
	if err != nil && !lost {
		return fmt.Errorf("delete expired records of %s: %w", org, err)
	}
	return nil
}

func (s *purge) enough() bool { return s.looked >= maxDeleted || !s.ledger.Now().Before(s.until) }

// runs deletes the runs that were submitted before a time.
func (s *purge) runs(ctx context.Context, before time.Time) error {
	_, err := s.each(ctx, time.Time{}, before, func(w *record.Workflow) error {
		if !w.Over() {
			return nil
		}
		if err := s.files(ctx, w); err != nil {
			return err
		}
		return s.all(ctx, store.Scan{Part: record.WorkflowKey(w.ID).Part, Limit: recordsAtOnce})
	})
	return err
}

// parts deletes the logs, or the artifacts, of the runs that were submitted before a time, from where the last purge
// ended. A run that still lives then keeps them until it is deleted itself.
func (s *purge) parts(ctx context.Context, prefix string, before time.Time, at func(*record.Purged) *time.Time) error {
	k := record.PurgedKey(s.org)
	c := s.ledger.View()
	purged, _, err := ledger.Load[record.Purged](ctx, c, k)
	if err != nil {
		return err
	}
	until := at(&purged)
	last, err := s.each(ctx, *until, before, func(w *record.Workflow) error {
		if !w.Over() { // the list may lag, and no later purge looks at this run
			now, _, err := ledger.Load[record.Workflow](ctx, s.ledger.View(), record.WorkflowKey(w.ID))
			if err != nil || !now.Over() {
				return err
			}
			w = &now
		}
		if prefix == record.LogsPrefix {
			if err := s.files(ctx, w); err != nil {
				return err
			}
		}
		return s.all(ctx, record.Under(record.WorkflowKey(w.ID).Part, prefix, recordsAtOnce))
	})
	if err == nil && last.After(*until) {
		*until = last
		err = s.add(ctx, store.Put(record.Encode(k, purged), c.Version(k)))
	}
	return errors.Join(err, s.flush(ctx))
}

// deliveries deletes expired deliveries, where the store does not. Failed ones are kept longer than others, so some
// are read each time.
func (s *purge) deliveries(ctx context.Context) error {
	now := s.ledger.Now()
	scan := store.Scan{Part: record.DeliveryPart(s.org), To: record.NewID(record.DeliveryIDs, now.Add(-record.DeliveryKeptDone)), Limit: recordsAtOnce}
	for !s.enough() {
		page, err := s.ledger.Range(ctx, scan)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			s.looked++
			d, err := record.Decode[record.Delivery](r)
			if err != nil {
				s.ledger.Log.Warn("record skipped", "err", err)
				continue
			}
			if now.Before(d.Expires()) {
				continue
			}
			if d.Due != "" {
				s.ops = append(s.ops, store.Delete(record.DueKey(d.PoolID, d.Due), 1)) // it is never changed
			}
			if err := s.add(ctx, store.Delete(r.Key, r.Version)); err != nil {
				return err
			}
		}
		if scan.After = page.Next; scan.After == "" {
			break
		}
	}
	return s.flush(ctx)
}

// trees deletes the trees that were made before a time, and have ended.
func (s *purge) trees(ctx context.Context, before time.Time) error {
	scan := store.Scan{Part: record.RunTreePart(s.org), To: record.NewID(record.RunTreeIDs, before), Limit: recordsAtOnce}
	for !s.enough() {
		page, err := s.ledger.Range(ctx, scan)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			s.looked++
			if t, err := record.Decode[record.RunTree](r); err != nil || !t.Over() {
				continue
			}
			if err := s.add(ctx, store.Delete(r.Key, r.Version)); err != nil {
				return err
			}
		}
		if scan.After = page.Next; scan.After == "" {
			break
		}
	}
	return s.flush(ctx)
}

// files deletes the blobs of a run, before the records that name them.
func (s *purge) files(ctx context.Context, w *record.Workflow) error {
	if s.blobs == nil || w.Attempt == 0 {
		return nil
	}
	for _, dir := range record.BlobDirs(w.ID) {
		if err := s.blobs.DeleteAll(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for the runs that were submitted after one time and before another, the oldest first, until it is
// enough. It returns up to when it has seen all. A record that cannot be read is passed over.
func (s *purge) each(ctx context.Context, after, before time.Time, do func(*record.Workflow) error) (last time.Time, err error) {
	last = after
	scan := store.Scan{Part: record.OrganizationRuns(s.org), From: record.At(after.Add(1)), To: record.At(before), Limit: runsAtOnce}
	if after.IsZero() {
		scan.From = ""
	}
	var unread []error
	for !s.enough() && scan.From < scan.To {
		page, err := s.ledger.Query(ctx, store.Index1, scan)
		if err != nil {
			return last, err
		}
		for _, r := range page.Records {
			s.looked++
			w, err := record.Decode[record.Workflow](r)
			if err != nil {
				unread = append(unread, err)
				continue
			}
			if err := do(&w); err != nil {
				return last, err
			}
			if s.enough() {
				break // perhaps in the middle of this one
			}
			last = w.Submitted
		}
		if err := s.flush(ctx); err != nil {
			return last, err
		}
		if scan.After = page.Next; scan.After == "" {
			break
		}
	}
	for _, err := range unread {
		s.ledger.Log.Warn("record skipped", "err", err)
	}
	return last, nil
}

// all deletes all records of a scan, until it is enough.
func (s *purge) all(ctx context.Context, scan store.Scan) error {
	for !s.enough() {
		page, err := s.ledger.Range(ctx, scan)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			s.looked++
			if err := s.add(ctx, store.Delete(r.Key, r.Version)); err != nil {
				return err
			}
		}
		if scan.After = page.Next; scan.After == "" {
			break
		}
	}
	return nil
}

// add adds an operation to the next commit, and commits when that is full.
func (s *purge) add(ctx context.Context, op store.Op) error {
	s.ops = append(s.ops, op)
	if len(s.ops) < perCommit {
		return nil
	}
	return s.flush(ctx)
}

// flush commits the operations that were added. If it fails, the purge must end: it may not delete the record by
// which a run is found while others of the run remain.
func (s *purge) flush(ctx context.Context) error {
	if len(s.ops) == 0 {
		return nil
	}
	err := s.ledger.Commit(ctx, s.ops)
	if err == nil {
		s.deleted += len(s.ops)
	}
	s.ops = s.ops[:0]
	return err
}
