package relay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/strict"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Reports keeps results that the control plane cannot take now, and brings them back at least once.
type Reports interface {
	// Send adds a message; group names its owner, so that no owner starves the others.
	Send(ctx context.Context, body []byte, group string) error
}

// MaxReport bounds a report in bytes, because SQS does. A larger one is kept without the rest of its log, or stays with
// its runner, which repeats it.
const MaxReport = 1 << 20

// keepTime is how long keeping a result may take.
const keepTime = 5 * time.Second

// Report is a result on its way, and the run that it belongs to. It carries the ticket and never the token: too many may
// read a queue.
type Report struct {
	Ticket   string          `json:"ticket"`
	Job      string          `json:"job"`
	Attempt  int             `json:"attempt"`
	Task     string          `json:"task"`
	Boot     string          `json:"boot"`
	LogEnd   int64           `json:"log_end"`        // number of lines of the whole log
	SentAtMS int64           `json:"sent_at_ms"`     // the relay's clock, milliseconds since 1970
	Result   json.RawMessage `json:"result"`         // as the runner sent it, but for the rest of the log
	Tail     *api.LogTail    `json:"tail,omitempty"` // the part of the log that the control plane has not taken
}

// EncodeReport writes a report as a message.
func EncodeReport(r Report) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "result", "the result is not JSON: %v", err)
	}
	if body = text.EscapeJSON(body); len(body) > MaxReport {
		return nil, tooLongReport(len(body))
	}
	return body, nil
}

func tooLongReport(n int) error {
	return workflow.Refuse(workflow.ErrTooLarge, "result", "the report has %d bytes; the limit is %d", n, MaxReport)
}

// DecodeReport reads one message. It takes nothing that is beyond a bound, incomplete, or followed by
// something else. A field that it does not know is passed over, so that it can run beside a newer relay.
func DecodeReport(body []byte) (Report, error) {
	if len(body) > MaxReport {
		return Report{}, tooLongReport(len(body))
	}
	var r Report
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&r); err != nil {
		return Report{}, workflow.Refuse(workflow.ErrInvalid, "", "the report is not the JSON that was expected: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Report{}, workflow.Refuse(workflow.ErrInvalid, "", "the report is followed by something else")
	}
	return r, r.check()
}

func (r Report) check() error {
	bad := func(field, format string, args ...any) error {
		return workflow.Refuse(workflow.ErrInvalid, field, format, args...)
	}
	for _, f := range []struct {
		name, value string
		limit       int
	}{{"ticket", r.Ticket, 2 << 10}, {"job", r.Job, 128}, {"task", r.Task, 512}, {"boot", r.Boot, 64}} {
		if f.value == "" || len(f.value) > f.limit {
			return bad(f.name, "has %d bytes; it needs 1 to %d", len(f.value), f.limit)
		}
		if strings.ContainsFunc(f.value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return bad(f.name, "holds a byte outside printable ASCII")
		}
	}
	if _, call, ok := ParsePath("/v1/jobs/" + r.Job + "/result"); !ok || call != "result" {
		return bad("job", "is not the id of a job")
	}
	if r.Attempt < 1 || r.Attempt > 1<<20 {
		return bad("attempt", "%d is not the number of an attempt", r.Attempt)
	}
	if r.LogEnd < 0 || r.SentAtMS < 0 || r.SentAtMS > 1<<53 {
		return bad("log_end", "the log's end or the time is out of range")
	}
	_, err := decodeResult(r.Result)
	return err
}

// decodeResult reads a runner's result. Anything else is not kept: its runner is gone when the control plane refuses
// it later.
func decodeResult(body []byte) (api.Result, error) {
	var in api.Result
	if err := strict.Unmarshal(body, &in); err != nil {
		return in, workflow.Refuse(workflow.ErrInvalid, "result", "is not the JSON that was expected: %v", err)
	}
	if !in.Outcome.Terminal() {
		return in, workflow.Refuse(workflow.ErrInvalid, "result.outcome", "an outcome is succeeded, failed or cancelled")
	}
	return in, nil
}

// away reports whether an answer means that the control plane cannot take a call now, and will later.
func (a answer) away() bool { return a.status >= http.StatusInternalServerError }

// split takes the rest of the log out of a runner's result: it is kept beside the result, so that it can be dropped.
// A body that has a member twice, or is not an object, stays as it is, so that it is refused as that.
func split(body []byte) (result []byte, tail *api.LogTail) {
	var object map[string]json.RawMessage
	if strict.Unmarshal(body, &object) != nil || object["tail"] == nil {
		return body, nil
	}
	tail = &api.LogTail{}
	if json.Unmarshal(object["tail"], tail) != nil {
		tail = nil
	}
	delete(object, "tail")
	result, _ = json.Marshal(object) // it was JSON before: it cannot fail
	return result, tail
}

// result forwards a result with the rest of its log. If the control plane cannot take it now, it is kept, and the
// runner gets the answer that it was handed over; if it cannot be kept either, it stays with the runner.
func (r *Relay) result(ctx context.Context, c call, sealed string) answer {
	a := r.forward(ctx, c, r.cfg.Forward)
	if r.cfg.Reports == nil || !a.away() {
		return a
	}
	log := r.cfg.Log.With("job_id", c.job, "attempt", c.claims.Attempt, "task", c.header.Get(api.HeaderTask))
	body, tail := split(c.body)
	in, err := decodeResult(body)
	if err != nil {
		log.Warn("result left with its runner", "err", err)
		return a
	}
	report := Report{
		Ticket: sealed, Job: c.job, Attempt: c.claims.Attempt,
		Task: c.header.Get(api.HeaderTask), Boot: c.header.Get(api.HeaderBoot),
		LogEnd: in.LogEnd, SentAtMS: r.cfg.Now().UnixMilli(), Result: body, Tail: tail,
	}
	for err = r.keep(ctx, report, c.claims.Group); err != nil; err = r.keep(ctx, report, c.claims.Group) {
		log.Warn("result not kept; its runner repeats it", "with_log", report.Tail != nil, "err", err)
		if report.Tail == nil {
			return a
		}
		report.Tail = nil // the result matters more
	}
	log.Info("result kept for later", "state", in.Outcome, "reason", in.Reason, "log_end", in.LogEnd, "with_log", report.Tail != nil)
	control, _ := json.Marshal(api.Control{}) // it says nothing about the run: only the control plane can
	return answer{status: http.StatusAccepted, header: http.Header{"Content-Type": {"application/json"}}, body: control}
}

// keep puts a report into the queue.
func (r *Relay) keep(ctx context.Context, report Report, group string) error {
	body, err := EncodeReport(report)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	return r.cfg.Reports.Send(ctx, body, group)
}

// ErrUnread means that a message is not a report that this version can read.
var ErrUnread = errors.New("the report cannot be read")

// Deliver takes a kept result to the control plane, the rest of its log first. It returns nil when there is nothing
// more to do about it: it was taken, or never will be, which is logged as an error. ErrUnread means that it may be a
// result of another version, and belongs to the dead letters. Any other error means that it is to be delivered
// again; api.RetryAfter may say when. Delivering twice does no harm.
func (r *Relay) Deliver(ctx context.Context, body []byte) error {
	in, err := DecodeReport(body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnread, err)
	}
	log := r.cfg.Log.With("job_id", in.Job, "attempt", in.Attempt, "task", in.Task, "log_end", in.LogEnd)
	now := r.cfg.Now()
	claims, err := r.open(ctx, in.Ticket, now)
	if errors.Is(err, workflow.ErrUnauthenticated) {
		if _, before := r.opener.Open(in.Ticket, time.UnixMilli(in.SentAtMS)); before == nil {
			log.Error("result dropped: its ticket has expired", "err", err)
			return nil
		}
		// Else its key was withdrawn, because the relay has opened it once: if that is put back, the result is delivered.
	}
	if err != nil {
		return fmt.Errorf("open ticket of job %s: %w", in.Job, err)
	}
	if claims.Job != in.Job || claims.Attempt != in.Attempt {
		log.Error("result dropped: its ticket is for another job")
		return nil
	}
	c := call{job: in.Job, claims: claims, header: http.Header{}}
	c.header.Set("Content-Type", "application/json")
	c.header.Set(api.HeaderAttempt, strconv.Itoa(in.Attempt))
	c.header.Set(api.HeaderTask, in.Task)
	c.header.Set(api.HeaderBoot, in.Boot)

	if in.Tail != nil {
		if err := r.deliverTail(ctx, c, *in.Tail, log); err != nil {
			return fmt.Errorf("deliver log of job %s: %w", in.Job, err)
		}
	}
	c.name, c.route, c.body = "result", routes["result"], in.Result
	a := r.forward(ctx, c, r.cfg.Forward)
	if a.status == http.StatusUnprocessableEntity || a.status == http.StatusRequestEntityTooLarge {
		// Its runner is gone and cannot send less. The outcome matters most.
		whole, err := decodeResult(in.Result)
		if err == nil {
			c.body, err = json.Marshal(whole.Slim())
		}
		if err != nil {
			log.Error("result dropped: it cannot be shortened", "err", err)
			return nil
		}
		log.Warn("result refused; sent again without its details", "err", a.err())
		a = r.forward(ctx, c, r.cfg.Forward)
	}
	waited := now.Sub(time.UnixMilli(in.SentAtMS)).Round(time.Second)
	switch {
	case a.ok():
		log.Info("kept result delivered", "waited", waited)
		return nil
	case a.away(), a.status == http.StatusTooManyRequests:
		return fmt.Errorf("deliver result of job %s: %w", in.Job, a.err())
	}
	log.Error("result dropped: the control plane refuses it", "status", a.status, "waited", waited, "err", a.err())
	return nil
}

// deliverTail sends the rest of a log as its runner would have. Its error means that it is to be delivered again; a
// log that the control plane refuses for good is given up, but its result is not.
func (r *Relay) deliverTail(ctx context.Context, c call, tail api.LogTail, log *slog.Logger) error {
	lines, err := tail.Unpack()
	c.name, c.route = "logs", routes["logs"]
	for first := tail.First; err == nil && len(lines) > 0; {
		n := api.LogBatch(lines)
		if c.body, err = json.Marshal(api.Logs{First: first, Lines: lines[:n], Lost: true}); err != nil {
			break
		}
		a := r.forward(ctx, c, r.cfg.Forward)
		if a.away() || a.status == http.StatusTooManyRequests {
			return a.err()
		}
		if !a.ok() {
			err = a.err()
		}
		first, lines = first+int64(n), lines[n:]
	}
	if err != nil {
		log.Error("rest of a log dropped", "err", err)
	}
	return nil
}

// err is the error that an answer other than a success stands for.
func (a answer) err() error {
	var p api.Problem
	if json.Unmarshal(a.body, &p) != nil {
		p = api.Problem{}
	}
	p.Status = cmp.Or(p.Status, a.status)
	after, _ := strconv.Atoi(a.header.Get("Retry-After"))
	return p.Err(time.Duration(max(0, after)) * time.Second)
}

// Later is how long after its n-th delivery a report that failed is tried again: soon at first, for a short outage, then
// so that the eight hundred deliveries after which its queue makes it a dead letter take more than three of its four
// days. It is a pure function.
func Later(receives int) time.Duration {
	const first, last = 5 * time.Second, 6 * time.Minute
	return min(first<<min(max(receives-1, 0), 10), last)
}
