package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxLogBatch = 300 << 10 // bytes of text in one call
	logPage     = 1000      // lines of one answer, and the default
	readFor     = 30 * time.Second
)

// AppendLogs adds lines to the log of a run. Lines that the log already has are skipped. Lines after a gap are
// refused with the number of the first missing line, unless that line can no longer come. So a log is complete and in
// order up to its end, even if lines were sent twice or out of order. Lines sent to a full log count as accepted.
func (p *Calls) AppendLogs(ctx context.Context, token string, run api.Run, in api.Logs) (out api.LogsTaken, err error) {
	if len(in.Lines) == 0 {
		return out, workflow.Refuse(workflow.ErrInvalid, "lines", "send at least one line, counted from 0")
	}
	err = p.appendLines(ctx, run.Workflow, in, func(ctx context.Context, c *ledger.Change) (*record.Workflow, int, error) {
		w, s, err := admit(ctx, c, token, run, record.LogEndKey(run.Workflow, run.Attempt), record.ReaderKey(run.Workflow))
		if errors.Is(err, workflow.ErrOver) && w != nil && startedBy(c, w, run) {
			s, err = rules.Ended, nil // a later attempt exists
		}
		if err != nil {
			return nil, 0, err
		}
		if s == rules.MayStart {
			return nil, 0, rules.NeedsHold(s)
		}
		now, err := alive(ctx, c, w, s, nil)
		if err != nil {
			return nil, 0, err
		}
		out.Control = p.control(c, w, now)
		return w, run.Attempt, nil
	}, func(t api.TailTaken) { out.Next = t.Next })
	return out, err
}

// AppendTail adds what the runner of an ended task left of its log, as AppendLogs does. The pool that has the
// workflow may send it, for the task that started the attempt.
func (p *Calls) AppendTail(ctx context.Context, who identity.Principal, id string, in api.Tail) (out api.TailTaken, err error) {
	err = p.appendLines(ctx, id, api.Logs{First: in.First, Lines: in.Lines}, func(ctx context.Context, c *ledger.Change) (*record.Workflow, int, error) {
		w, _, err := claimedBy(ctx, c, who, id, in.Attempt)
		if err == nil {
			err = c.Load(ctx, record.AttemptKey(id, in.Attempt), record.LogEndKey(id, in.Attempt))
		}
		if err == nil && !startedBy(c, w, api.Run{Attempt: in.Attempt, Task: in.Task}) {
			err = workflow.Refuse(workflow.ErrConflict, "task", "attempt %d of %s was started by another task, or was not started", in.Attempt, id)
		}
		return w, in.Attempt, err
	}, func(t api.TailTaken) { out = t })
	return out, err
}

// startedBy reports whether a task started an attempt; if the run names a boot too, whether that boot did.
func startedBy(c *ledger.Change, w *record.Workflow, run api.Run) bool {
	a, _, err := ledger.Get[record.Attempt](c.Read, record.AttemptKey(w.ID, run.Attempt))
	h := record.Holder{Attempt: run.Attempt, Task: a.Task, Boot: a.Boot}
	if w.Holder.Attempt == run.Attempt {
		h = w.Holder
	}
	return err == nil && h.Task != "" && h.Task == run.Task && (run.Boot == "" || run.Boot == h.Boot)
}

// appendLines adds lines to the log of the attempt that admit names. The commit names the versions of the records
// that admit decided on.
func (p *Calls) appendLines(ctx context.Context, id string, in api.Logs, admit func(context.Context, *ledger.Change) (*record.Workflow, int, error), answer func(api.TailTaken)) error {
	size := 0
	for _, l := range in.Lines {
		if len(l.Text) > api.MaxLogText {
			return workflow.Refuse(workflow.ErrTooLarge, "lines", "a line has at most %d bytes; send it in pieces", api.MaxLogText)
		}
		size += len(l.Text)
	}
	if size > maxLogBatch {
		return workflow.Refuse(workflow.ErrTooLarge, "lines", "one call takes at most %d bytes of text", maxLogBatch)
	}
	if in.First < 0 || in.First > 1e11 {
		return workflow.Refuse(workflow.ErrInvalid, "first", "lines are counted from 0")
	}
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		w, attempt, err := admit(ctx, c)
		if err != nil {
			return err
		}
		if w.State.Terminal() && !w.SlotHeld && c.Now.Sub(w.Ended) > workflow.ReportRetention {
			return workflow.Refuse(workflow.ErrOver, "", "the run ended more than %s ago; its log is closed", workflow.ReportRetention)
		}
		c.Drop(w)
		k := record.LogEndKey(id, attempt)
		end, _, err := ledger.Get[record.LogEnd](c.Read, k)
		if err != nil {
			return err
		}
		added, chunks, err := extend(end, in, p.cfg.LogQuota)
		if err != nil {
			return err
		}
		answer(api.TailTaken{Next: max(added.Next, in.First+int64(len(in.Lines))), Full: added.Full})
		for _, chunk := range chunks {
			r := record.Encode(record.LogKey(id, attempt, chunk.First), chunk.Lines)
			if len(r.Value) > store.MaxValue {
				return workflow.Refuse(workflow.ErrTooLarge, "lines", "these lines take %d bytes, the limit is %d; send fewer at once", len(r.Value), store.MaxValue)
			}
			c.Add(store.Put(r, store.Absent))
		}
		if added != end {
			c.Put(k, added)
		}
		return nil
	})
	if err == nil {
		p.ledger.Notify(logOf(id))
	}
	return err
}

// extend decides what becomes of lines at the end of a log: the log's new end, and what is written. It is a pure
// function.
func extend(end record.LogEnd, in api.Logs, quota int64) (record.LogEnd, []api.Logs, error) {
	skip := max(end.Next-in.First, 0)
	if end.Full || skip >= int64(len(in.Lines)) {
		return end, nil, nil
	}
	var chunks []api.Logs
	say := func(format string, args ...any) {
		chunks = append(chunks, api.Logs{First: end.Next, Lines: []api.LogLine{{At: in.Lines[0].At, Text: fmt.Sprintf(format, args...)}}})
	}
	switch {
	case in.First > end.Next && !in.Lost:
		return end, nil, &api.LogGapError{Next: end.Next}
	case in.First == end.Next+1 && in.Lost:
		say("[dayfly] line %d is missing here: it could not be sent before its task was gone", end.Next)
	case in.First > end.Next:
		say("[dayfly] lines %d to %d are missing here: they could not be sent before their task was gone", end.Next, in.First-1)
	}
	end.Next = in.First + skip
	lines, weight := in.Lines[skip:], int64(0)
	for _, l := range lines {
		weight += l.Weight()
	}
	if end.Bytes+weight > quota {
		say("[dayfly] log_full: a log holds at most %d MiB; what the run printed from here on is not kept", quota>>20)
		end.Next, end.Full = end.Next+1, true
		return end, chunks, nil
	}
	end.Next, end.Bytes = end.Next+int64(len(lines)), end.Bytes+weight
	return end, append(chunks, api.Logs{First: in.First + skip, Lines: lines}), nil
}

// Logs reads lines of an attempt (0: the latest) from a line on. To follow a log, a reader passes the Next of the
// previous page. It waits up to wait for the first line.
func (p *Calls) Logs(ctx context.Context, who identity.Principal, id string, attempt int, offset int64, limit int, wait time.Duration) (api.LogPage, error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleViewer, "workflow.logs", id); err != nil {
		return api.LogPage{}, err
	}
	if offset < 0 || attempt < 0 {
		return api.LogPage{}, workflow.Refuse(workflow.ErrInvalid, "offset", "attempt and offset are not negative")
	}
	limit = ledger.PageSize(limit, logPage)
	var out api.LogPage
	err := p.ledger.Await(ctx, logOf(id), min(wait, 20*time.Second), func(bool) (bool, error) {
		var err error
		out, err = p.logs(ctx, who, id, attempt, offset, limit, wait > 0)
		return len(out.Lines) > 0 || out.Done, err
	})
	return out, err
}

func (p *Calls) logs(ctx context.Context, who identity.Principal, id string, attempt int, offset int64, limit int, waits bool) (api.LogPage, error) {
	w, _, err := p.ledger.Workflow(ctx, who.Organization, id)
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
	r, err := p.ledger.Read(ctx, record.LogEndKey(id, attempt), record.ResultKey(id, attempt), record.ReaderKey(id))
	if err != nil {
		return out, err
	}
	end, _, err := ledger.Get[record.LogEnd](r, record.LogEndKey(id, attempt))
	if err != nil {
		return out, err
	}
	if offset < end.Next {
		if err := p.logKept(ctx, &w); err != nil {
			return out, err
		}
		if err := p.readLines(ctx, &out, id, limit); err != nil {
			return out, err
		}
		if len(out.Lines) == 0 { // they were there, and were written when logs were kept for a shorter time
			return out, logExpired(id)
		}
	}
	out.Done = out.Next >= end.Next && logClosed(&w, r, attempt, end, p.ledger.Now())
	if waits && !out.Done {
		p.noteReader(ctx, r, id)
	}
	return out, nil
}

// logKept refuses a log that is past its retention, whether or not its lines are deleted by now.
func (p *Calls) logKept(ctx context.Context, w *record.Workflow) error {
	days, err := p.ledger.Retention(ctx, w.Org)
	if err == nil && w.Over() && w.Submitted.Before(record.Before(p.ledger.Now(), days.Logs)) {
		err = logExpired(w.ID)
	}
	return err
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
func logClosed(w *record.Workflow, r ledger.Read, attempt int, end record.LogEnd, now time.Time) bool {
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

// readLines fills a page from its Next on.
func (p *Calls) readLines(ctx context.Context, out *api.LogPage, id string, limit int) error {
	// The chunk that contains the first line begins at or before it.
	first, err := p.ledger.Range(ctx, store.Scan{
		Part: record.WorkflowKey(id).Part, From: record.LogKey(id, out.Attempt, out.Next).Sort, To: fmt.Sprintf("log/%04d/", out.Attempt), Reverse: true, Limit: 1,
	})
	if err != nil {
		return err
	}
	from := record.LogKey(id, out.Attempt, out.Next).Sort
	if len(first.Records) > 0 {
		from = first.Records[0].Key.Sort
	}
	page := store.Page{}
	// A chunk has one line or thousands. The first reads take few chunks, so that a page of one line does not read
	// all chunks of a full page.
	for chunks := 1; ; chunks = min(2*chunks, 20) {
		page, err = p.ledger.Range(ctx, store.Scan{Part: record.WorkflowKey(id).Part, From: from, To: fmt.Sprintf("log/%04d0", out.Attempt), Limit: chunks, After: page.Next})
		if err != nil {
			return err
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
				if at >= out.Next { // larger if lines are missing
					if len(out.Lines) == limit {
						return nil
					}
					out.Lines = append(out.Lines, l)
					out.Next = at + 1
				}
				at++
			}
		}
		if page.Next == "" {
			return nil
		}
	}
}
