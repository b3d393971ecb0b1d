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

const maxLogBatch = 300 << 10 // bytes of text in one call

// AppendLogs adds lines to the log of a run. Lines that the log already has are skipped. Lines after a gap are
// refused with the number of the first missing line, unless that line can no longer come. So a log is complete and in
// order up to its end, even if lines were sent twice or out of order. Lines sent to a full log count as accepted.
func (p *Calls) AppendLogs(ctx context.Context, token string, run api.Run, in api.Logs) (out api.LogsTaken, err error) {
	if len(in.Lines) == 0 {
		return out, workflow.Refuse(workflow.ErrInvalid, "lines", "send at least one line, counted from 0")
	}
	// The sign of life is a commit of its own: with the lines in one transaction, they would cost twice as much.
	var w *record.Workflow
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		var s rules.Standing
		var err error
		w, s, err = admit(ctx, c, token, run, record.ReaderKey(run.Workflow))
		if errors.Is(err, workflow.ErrOver) && w != nil && startedBy(c, w, run) {
			s, err = rules.Ended, nil // a later attempt exists
		}
		if err != nil {
			return err
		}
		if s == rules.MayStart {
			return rules.NeedsHold(s)
		}
		if err := logOpen(w, c.Now); err != nil {
			return err
		}
		c.Drop(w)
		now, err := alive(ctx, c, w, s, nil)
		out.Control = p.control(c, w, now)
		return err
	})
	if err != nil {
		return out, err
	}
	taken, err := p.addLines(ctx, w, run.Attempt, in)
	out.Next = taken.Next
	return out, err
}

// AppendTail adds the unsent log lines of an ended task's runner, as AppendLogs does. The pool that has the workflow
// may send it, for the task that started the attempt.
func (p *Calls) AppendTail(ctx context.Context, who identity.Principal, id string, in api.Tail) (api.TailTaken, error) {
	c := p.ledger.View()
	w, _, err := claimedBy(ctx, c, who, id, in.Attempt)
	if err == nil {
		err = c.Load(ctx, record.AttemptKey(id, in.Attempt))
	}
	if err == nil && !startedBy(c, w, api.Run{Attempt: in.Attempt, Task: in.Task}) {
		err = workflow.Refuse(workflow.ErrConflict, "task", "attempt %d of %s was started by another task, or was not started", in.Attempt, id)
	}
	if err == nil {
		err = logOpen(w, c.Now)
	}
	if err != nil {
		return api.TailTaken{}, err
	}
	return p.addLines(ctx, w, in.Attempt, api.Logs{First: in.First, Lines: in.Lines})
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

// logOpen refuses lines of a run that ended too long ago.
func logOpen(w *record.Workflow, now time.Time) error {
	if w.State.Terminal() && !w.SlotHeld && now.Sub(w.Ended) > workflow.ReportRetention {
		return workflow.Refuse(workflow.ErrOver, "", "the run ended more than %s ago; its log is closed", workflow.ReportRetention)
	}
	return nil
}

// checkLines refuses lines beyond the bounds of a call.
func checkLines(in api.Logs) error {
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
	return nil
}

// addLines adds lines to the log of an attempt, chunk by chunk. Each chunk is a commit of its own, which reads its
// predecessor and makes the record where that ends: two writers at once meet at one key, and the one that comes too
// late looks again.
func (p *Calls) addLines(ctx context.Context, w *record.Workflow, attempt int, in api.Logs) (taken api.TailTaken, err error) {
	if err := checkLines(in); err != nil {
		return taken, err
	}
	last := in.First + int64(len(in.Lines))
	for done, grown := false, false; !done; {
		err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
			c.Keep(w)
			c.Drop(w) // its chunks expire with it
			end, err := endOfLog(ctx, c, w.ID, attempt)
			if err != nil {
				return err
			}
			next, lines, err := extend(end, in, p.cfg.LogQuota)
			if err != nil {
				return err
			}
			if grown = len(lines) > 0; grown {
				err = p.putChunk(ctx, c, w, attempt, &next, lines)
			}
			taken = api.TailTaken{Next: max(next.Next, last), Full: next.Full}
			done = next.Full || next.Next >= last
			return err
		})
		if err != nil {
			return taken, err
		}
		if grown {
			p.ledger.Notify(ledger.LogOf(w.ID))
		}
	}
	return taken, nil
}

// endOfLog reads the last chunk of a log; the zero chunk if it has none.
func endOfLog(ctx context.Context, c *ledger.Change, id string, attempt int) (end record.Chunk, err error) {
	page, err := c.Range(ctx, store.Scan{
		Part: record.WorkflowKey(id).Part, From: record.LogKey(id, attempt, 1e12-1).Sort, To: record.LogPrefix(attempt), Reverse: true, Limit: 1,
	})
	if err != nil || len(page.Records) == 0 {
		return end, err
	}
	return record.DecodeChunk(page.Records[0])
}

// extend decides how a log goes on: the next chunk, without its end, and the lines for it; no lines mean that there
// is nothing to add, and the chunk is the end. It is a pure function.
func extend(end record.Chunk, in api.Logs, quota int64) (next record.Chunk, lines []api.LogLine, err error) {
	skip := max(end.Next-in.First, 0)
	if end.Full || skip >= int64(len(in.Lines)) {
		return end, nil, nil
	}
	next = record.Chunk{First: end.Next, Bytes: end.Bytes}
	say := func(format string, args ...any) []api.LogLine {
		return []api.LogLine{{At: in.Lines[0].At, Text: fmt.Sprintf(format, args...)}}
	}
	if in.First > end.Next {
		next.Next = in.First
		switch {
		case !in.Lost:
			return end, nil, &api.LogGapError{Next: end.Next}
		case in.First == end.Next+1:
			return next, say("[dayfly] line %d is missing here: it could not be sent before its task was gone", end.Next), nil
		}
		return next, say("[dayfly] lines %d to %d are missing here: they could not be sent before their task was gone", end.Next, in.First-1), nil
	}
	lines = in.Lines[skip:]
	if end.Bytes+weightOf(lines) > quota {
		next.Next, next.Full = end.Next+1, true
		return next, say("[dayfly] log_full: a log holds at most %d MiB; the rest of the run's output is not kept", quota>>20), nil
	}
	return next, lines[:min(len(lines), record.MaxChunkLines)], nil
}

func weightOf(lines []api.LogLine) (weight int64) {
	for _, l := range lines {
		weight += l.Weight()
	}
	return weight
}

// putChunk adds a chunk to a change, with as many of the lines as it takes. Where its lines lie follows from its
// predecessor's bytes alone. A blob is made before the record that names it. It is named by its content, so it does
// no harm if the commit is decided again.
func (p *Calls) putChunk(ctx context.Context, c *ledger.Change, w *record.Workflow, attempt int, chunk *record.Chunk, lines []api.LogLine) error {
	packed := record.PackLines(lines)
	for len(packed) > record.MaxChunk && len(lines) > 1 {
		lines = lines[:len(lines)/2]
		packed = record.PackLines(lines)
	}
	beside := chunk.Bytes >= record.BlobAfter && p.cfg.Blobs != nil
	if chunk.Next == 0 {
		chunk.Next, chunk.Bytes = chunk.First+int64(len(lines)), chunk.Bytes+weightOf(lines)
	}
	if beside {
		days, err := p.ledger.Times(ctx, w.Org)
		if err != nil {
			return err
		}
		chunk.Blob = record.BlobName(days.Logs, w.ID, attempt, packed)
		if err := p.cfg.Blobs.Put(ctx, chunk.Blob, packed); err != nil {
			return fmt.Errorf("keep lines of the log: %w", err)
		}
	} else {
		chunk.Lines = packed
	}
	c.Add(store.Append(chunk.Encode(w.ID, attempt)))
	return nil
}
