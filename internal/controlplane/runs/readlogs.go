package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	logPage = 1000 // lines of one answer, and the default
	readFor = 30 * time.Second
)

// Logs reads lines of an attempt (0: the latest) from a line on; a negative offset counts from the end. To follow a
// log, a reader passes the Next of the previous page. It waits up to wait for the first line.
func (p *Calls) Logs(ctx context.Context, who identity.Principal, id string, attempt int, offset int64, limit int, wait time.Duration) (api.LogPage, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workflow.logs", id, p.inWorkflow(who.Organization, id)); err != nil {
		return api.LogPage{}, err
	}
	if offset < 0 {
		latest, end, err := p.LogEnd(ctx, who, id, attempt)
		if err != nil {
			return api.LogPage{}, err
		}
		attempt, offset = latest, max(0, end+offset)
	}
	limit = ledger.PageSize(limit, logPage)
	var out api.LogPage
	err := p.ledger.Await(ctx, ledger.LogOf(id), wait, func(bool) (bool, error) {
		var err error
		out, err = p.logs(ctx, who, id, attempt, offset, limit, wait > 0)
		return len(out.Lines) > 0 || out.Done, err
	})
	return out, err
}

// LogEnd returns the number of an attempt (0: the latest) and that of its log's next line, which is the count of its
// lines.
func (p *Calls) LogEnd(ctx context.Context, who identity.Principal, id string, attempt int) (int, int64, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workflow.logs", id, p.inWorkflow(who.Organization, id)); err != nil {
		return 0, 0, err
	}
	w, _, err := p.ledger.Workflow(ctx, who.Organization, id)
	if err == nil {
		attempt, err = attemptOf(&w, attempt)
	}
	if err != nil {
		return 0, 0, err
	}
	end, err := endOfLog(ctx, p.ledger.View(), id, attempt)
	return attempt, end.Next, err
}

// attemptOf is the attempt of a workflow that a reader asks for; 0 is the latest.
func attemptOf(w *record.Workflow, attempt int) (int, error) {
	if attempt < 0 || attempt > w.Attempt {
		return 0, workflow.Refuse(workflow.ErrNotFound, "attempt", "workflow %s has no attempt %d: %s", w.ID, attempt, attempts(w.Attempt))
	}
	return cmp.Or(attempt, w.Attempt), nil
}

func (p *Calls) logs(ctx context.Context, who identity.Principal, id string, attempt int, offset int64, limit int, waits bool) (api.LogPage, error) {
	w, _, err := p.ledger.Workflow(ctx, who.Organization, id)
	if err != nil {
		return api.LogPage{}, err
	}
	if attempt, err = attemptOf(&w, attempt); err != nil {
		return api.LogPage{}, err
	}
	out := api.LogPage{Attempt: attempt, Lines: []api.LogLine{}, Next: offset}
	r, err := p.ledger.Read(ctx, record.ResultKey(id, attempt), record.ReaderKey(id))
	if err != nil {
		return out, err
	}
	if err := p.logKept(ctx, &w); err != nil {
		return out, err
	}
	end, whole, err := p.readLines(ctx, &out, id, limit)
	if err != nil {
		return out, err
	}
	if end.Next == 0 && p.logWas(&w, r, attempt) {
		return out, logExpired(id)
	}
	out.Done = whole && logClosed(&w, r, attempt, end, p.ledger.Now())
	if waits && !out.Done {
		p.noteReader(ctx, r, id)
	}
	return out, nil
}

// logKept refuses a log that is past its retention, whether or not its lines are deleted by now.
func (p *Calls) logKept(ctx context.Context, w *record.Workflow) error {
	days, err := p.ledger.Retention(ctx, w.Org)
	if err == nil && w.Over() && w.Attempt > 0 && w.Submitted.Before(record.Before(p.ledger.Now(), days.Logs)) {
		err = logExpired(w.ID)
	}
	return err
}

// logWas says that a log without lines had some: they were written when logs were kept for a shorter time.
func (p *Calls) logWas(w *record.Workflow, r ledger.Read, attempt int) bool {
	result, ok, err := ledger.Get[api.Result](r, record.ResultKey(w.ID, attempt))
	shortest := slices.Min(api.LogRetentions())
	return err == nil && ok && result.LogEnd > 0 && w.Over() && w.Submitted.Before(record.Before(p.ledger.Now(), shortest))
}

func logExpired(id string) error {
	return workflow.Refuse(workflow.ErrExpired, "", "the log of workflow %s is past its retention and is not kept any longer; dayfly organization show says how long logs are kept", id)
}

// noteReader notes that a reader waits for lines, so that the runner sends them sooner. If it fails, the lines only
// come later.
func (p *Calls) noteReader(ctx context.Context, r ledger.Read, id string) {
	k, now := record.ReaderKey(id), p.ledger.Now()
	if noted, _, err := ledger.Get[record.Reader](r, k); err != nil || noted.Until.Sub(now) > readFor/2 {
		return
	}
	rec := record.Encode(k, record.Reader{Until: now.Add(readFor)})
	rec.Expires = now.Add(24 * time.Hour).Unix()
	for range 3 {
		if err := p.ledger.Commit(ctx, []store.Op{store.Put(rec, r.Version(k))}); !errors.Is(err, store.ErrBusy) {
			return // noted by this call or another; otherwise the next look notes it
		}
	}
}

func attempts(n int) string {
	if n == 0 {
		return "it was not claimed yet"
	}
	return fmt.Sprintf("its latest is %d", n)
}

// logClosed says whether an attempt's log can no longer grow.
func logClosed(w *record.Workflow, r ledger.Read, attempt int, end record.Chunk, now time.Time) bool {
	if attempt < w.Attempt || end.Full {
		return true
	}
	if !w.State.Terminal() {
		return false
	}
	if result, ok, err := ledger.Get[api.Result](r, record.ResultKey(w.ID, attempt)); err == nil && ok {
		return end.Next >= result.LogEnd || now.Sub(w.Ended) > workflow.LateLogs
	}
	// Without a result the end is not known: a lost run that holds its slot may still write.
	return !w.SlotHeld
}

// readLines fills a page from its Next on. whole says that it came to the last chunk, which is then the end.
func (p *Calls) readLines(ctx context.Context, out *api.LogPage, id string, limit int) (end record.Chunk, whole bool, err error) {
	part, from := record.WorkflowKey(id).Part, record.LogKey(id, out.Attempt, out.Next).Sort
	// The chunk that has the first line begins at or before it.
	page, err := p.ledger.Range(ctx, store.Scan{Part: part, From: from, To: record.LogPrefix(out.Attempt), Reverse: true, Limit: 1})
	if err != nil {
		return end, false, err
	}
	if len(page.Records) > 0 {
		from = page.Records[0].Key.Sort + "\x00"
	}
	for chunks := 1; ; {
		all, err := p.unpackAll(ctx, page.Records, out.Next)
		if err != nil {
			return end, false, err
		}
		for _, u := range all {
			end = u.chunk
			for i, l := range u.lines {
				at := end.First + int64(i)
				if at < out.Next { // it may be larger, if lines are missing
					continue
				}
				if len(out.Lines) == limit {
					return end, false, nil
				}
				out.Lines, out.Next = append(out.Lines, l), at+1
			}
			// As many as the page still needs if they are like this one, but not many on one guess.
			chunks = min(2*chunks, (limit-len(out.Lines))/max(len(u.lines), 1)+1, 200)
		}
		page, err = p.ledger.Range(ctx, store.Scan{Part: part, From: from, To: record.After(record.LogPrefix(out.Attempt)), Limit: chunks})
		if err != nil {
			return end, false, err
		}
		if len(page.Records) == 0 {
			return end, true, nil
		}
		from = page.Records[len(page.Records)-1].Key.Sort + "\x00"
	}
}

// unpacked is a chunk with its lines.
type unpacked struct {
	chunk record.Chunk
	lines []api.LogLine
}

// unpackAll reads the chunks of records. One that ends before a line has none of the lines.
func (p *Calls) unpackAll(ctx context.Context, records []store.Record, from int64) ([]unpacked, error) {
	all := make([]unpacked, len(records))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8) // of blobs at once
	for i, r := range records {
		group.Go(func() (err error) {
			u := &all[i]
			if u.chunk, err = record.DecodeChunk(r); err == nil && u.chunk.Next > from {
				u.lines, err = p.linesOf(ctx, u.chunk)
			}
			return err
		})
	}
	return all, group.Wait()
}

// linesOf returns the lines of a chunk. One line stands in for those of a deleted blob.
func (p *Calls) linesOf(ctx context.Context, c record.Chunk) (lines []api.LogLine, err error) {
	packed := c.Lines
	switch {
	case c.Blob != "" && p.cfg.Blobs == nil:
		return nil, fmt.Errorf("the lines from %d on lie in the blob %s, and this control plane was given no place of blobs", c.First, c.Blob)
	case c.Blob != "":
		if packed, err = p.cfg.Blobs.Get(ctx, c.Blob); errors.Is(err, workflow.ErrNotFound) {
			return []api.LogLine{{Text: fmt.Sprintf("[dayfly] lines %d to %d are no longer kept", c.First, c.Next-1)}}, nil
		}
	}
	if err == nil {
		lines, err = record.UnpackLines(packed)
	}
	if err != nil {
		return nil, fmt.Errorf("read the lines from %d on: %w", c.First, err)
	}
	return lines, nil
}
