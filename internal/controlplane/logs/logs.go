// Package logs keeps the logs of runs: complete and in order up to their end, whatever was sent twice.
package logs

import (
	"context"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/authority"
	"github.com/dayfly-dev/dayfly/internal/controlplane/jobs"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/moves"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Calls answers who writes and reads logs.
type Calls struct {
	ledger *ledger.Ledger
	board  *moves.Board
	wakes  *wake.Wakes
	guard  *authority.Guard
}

// New returns the calls.
func New(ledger *ledger.Ledger, board *moves.Board, wakes *wake.Wakes, guard *authority.Guard) *Calls {
	return &Calls{ledger: ledger, board: board, wakes: wakes, guard: guard}
}

const (
	maxLogBatch = 300 << 10 // bytes of text in one call
	maxLogLine  = 64 << 10  // bytes of one line
	logPage     = 1000      // lines of one answer, and the default
)

// AppendLogs adds lines to the log of a run. Lines that are there already are passed over; lines
// behind a gap are refused with the number of the first that is missing. So a log is complete and
// in order up to its end, whatever was sent twice or out of order.
func (p *Calls) AppendLogs(ctx context.Context, token string, run api.Run, in api.Logs) (api.LogsTaken, error) {
	size := 0
	for _, l := range in.Lines {
		if len(l.Text) > maxLogLine {
			return api.LogsTaken{}, workflow.Refuse(workflow.ErrTooLarge, "lines", "a line has at most %d bytes; send it in pieces", maxLogLine)
		}
		size += len(l.Text)
	}
	if size > maxLogBatch {
		return api.LogsTaken{}, workflow.Refuse(workflow.ErrTooLarge, "lines", "one call takes at most %d bytes of text", maxLogBatch)
	}
	if in.First < 0 || len(in.Lines) == 0 {
		return api.LogsTaken{}, workflow.Refuse(workflow.ErrInvalid, "lines", "send at least one line, counted from 0")
	}
	var out api.LogsTaken
	err := p.board.Change(ctx, func(ctx context.Context, c *moves.Change) error {
		k := record.LogEndKey(run.Workflow, run.Attempt)
		w, s, err := jobs.Admit(ctx, c, token, run, k)
		if err != nil {
			return err
		}
		if s == rules.MayStart {
			return rules.NeedsHold(s)
		}
		if s == rules.Ended && c.Now.Sub(w.Ended) > workflow.LateLogs {
			return workflow.Refuse(workflow.ErrOver, "", "the run ended more than %s ago; its log is closed", workflow.LateLogs)
		}
		out.Control = rules.Control(w, c.Now)
		c.Drop(w)
		end, _, err := ledger.Get[record.LogEnd](c.Read, k)
		if err != nil {
			return err
		}
		if in.First > end.Next {
			return &api.LogGapError{Next: end.Next}
		}
		out.Next = end.Next
		skip := end.Next - in.First
		if skip >= int64(len(in.Lines)) {
			return nil
		}
		lines := in.Lines[skip:]
		chunk := record.Encode(record.LogKey(w.ID, run.Attempt, end.Next), lines)
		if len(chunk.Value) > store.MaxValue {
			return workflow.Refuse(workflow.ErrTooLarge, "lines", "these lines take %d bytes, the most is %d; send fewer at once", len(chunk.Value), store.MaxValue)
		}
		c.Add(store.Put(chunk, store.Absent))
		end.Next += int64(len(lines))
		end.Bytes += int64(size)
		c.Put(k, end)
		out.Next = end.Next
		return nil
	})
	if err == nil {
		p.wakes.Ring(wake.LogOf(run.Workflow))
	}
	return out, err
}

// Logs reads lines of an attempt (0: the latest) from a line on; a following reader names the Next of
// the page before. It waits up to wait for the first line.
func (p *Calls) Logs(ctx context.Context, who authority.Principal, id string, attempt int, offset int64, limit int, wait time.Duration) (api.LogPage, error) {
	if err := p.guard.Allow(ctx, who, api.RoleViewer, "workflow.logs", id); err != nil {
		return api.LogPage{}, err
	}
	if offset < 0 || attempt < 0 {
		return api.LogPage{}, workflow.Refuse(workflow.ErrInvalid, "offset", "attempt and offset are not negative")
	}
	limit = ledger.PageSize(limit, logPage)
	var out api.LogPage
	err := p.wakes.Await(ctx, wake.LogOf(id), min(wait, 20*time.Second), func(bool) (bool, error) {
		var err error
		out, err = p.logs(ctx, who, id, attempt, offset, limit)
		return len(out.Lines) > 0 || out.Done, err
	})
	return out, err
}

func (p *Calls) logs(ctx context.Context, who authority.Principal, id string, attempt int, offset int64, limit int) (api.LogPage, error) {
	w, err := p.board.Workflow(ctx, who.Organization, id)
	if err != nil {
		return api.LogPage{}, err
	}
	if attempt > w.Attempt {
		return api.LogPage{}, workflow.Refuse(workflow.ErrNotFound, "attempt", "workflow %s has no attempt %d: %s", id, attempt, attempts(w.Attempt))
	}
	if attempt == 0 {
		attempt = w.Attempt
	}
	out := api.LogPage{Attempt: attempt, Lines: []api.LogLine{}, Next: offset}
	r, err := p.ledger.Read(ctx, record.LogEndKey(id, attempt), record.ResultKey(id, attempt))
	if err != nil {
		return out, ledger.OutOfStore(err)
	}
	end, _, err := ledger.Get[record.LogEnd](r, record.LogEndKey(id, attempt))
	if err != nil {
		return out, err
	}
	if offset < end.Next {
		if err := p.readLines(ctx, &out, id, limit); err != nil {
			return out, err
		}
	}
	out.Done = out.Next >= end.Next && logClosed(&w, r, attempt, end.Next, p.ledger.Now())
	return out, nil
}

func attempts(n int) string {
	if n == 0 {
		return "it was not claimed yet"
	}
	return fmt.Sprintf("its latest is %d", n)
}

// logClosed says whether no more lines of an attempt will come.
func logClosed(w *record.Workflow, r ledger.Read, attempt int, next int64, now time.Time) bool {
	if attempt < w.Attempt {
		return true
	}
	if !w.State.Terminal() {
		return false
	}
	if result, ok, err := ledger.Get[api.Result](r, record.ResultKey(w.ID, attempt)); err == nil && ok {
		return next >= result.LogEnd || now.Sub(w.Ended) > workflow.LateLogs
	}
	// Without a result nobody knows the end: a lost run that holds its slot may still write.
	return !w.SlotHeld
}

// readLines fills a page from its Next on.
func (p *Calls) readLines(ctx context.Context, out *api.LogPage, id string, limit int) error {
	// The chunk that holds the first line begins at or before it.
	first, err := p.ledger.Range(ctx, store.Scan{
		Part: record.WorkflowKey(id).Part, From: record.LogKey(id, out.Attempt, out.Next).Sort, To: fmt.Sprintf("log/%04d/", out.Attempt), Reverse: true, Limit: 1,
	})
	if err != nil {
		return ledger.OutOfStore(fmt.Errorf("read log: %w", err))
	}
	from := record.LogKey(id, out.Attempt, out.Next).Sort
	if len(first.Records) > 0 {
		from = first.Records[0].Key.Sort
	}
	page := store.Page{}
	// A chunk holds one line or thousands: few are read at first, so that not all of a page's
	// chunks are read for the lines of one.
	for chunks := 1; ; chunks = min(2*chunks, 20) {
		page, err = p.ledger.Range(ctx, store.Scan{Part: record.WorkflowKey(id).Part, From: from, To: fmt.Sprintf("log/%04d0", out.Attempt), Limit: chunks, After: page.Next})
		if err != nil {
			return ledger.OutOfStore(fmt.Errorf("read log: %w", err))
		}
		for _, r := range page.Records {
			lines, err := record.Decode[[]api.LogLine](r)
			if err != nil {
				return err
			}
			var at int64
			if _, err := fmt.Sscanf(r.Key.Sort[len("log/0000/"):], "%d", &at); err != nil {
				return fmt.Errorf("log record %s: %w", r.Key, err)
			}
			for _, l := range lines {
				if at == out.Next {
					if len(out.Lines) == limit {
						return nil
					}
					out.Lines = append(out.Lines, l)
					out.Next++
				}
				at++
			}
		}
		if page.Next == "" {
			return nil
		}
	}
}
