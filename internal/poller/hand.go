package poller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Direct launches jobs whose messages wait in the queue.
type Direct interface {
	// Offer names the placement at which a job may be launched now; "" leaves it to the queue.
	Offer(m api.LaunchMessage) (placement string)
	// Direct tries that once, before ctx ends, and says whether the job was launched and the control plane knows its
	// task.
	Direct(ctx context.Context, m api.LaunchMessage) bool
}

// Bounds of direct launches.
const (
	directTime  = 10 * time.Second // from the answer of a claim to the end of its direct launches
	directDelay = 30 * time.Second // of their messages: no dispatcher gets one while its direct launch may be under way
	// shortQueue is the depth from which nothing is launched directly: the whole rate is the dispatcher's then, and jobs
	// that came earlier are launched earlier.
	shortQueue = queue.MaxBatch
)

// hand sends the jobs' messages, a batch at a time. After the first batch that was not taken whole it releases the
// rest. Direct launches end at the time that is given.
func (p *Poller) hand(ctx context.Context, jobs []api.Job, directEnd time.Time) (sent, released int, err error) {
	for len(jobs) > 0 {
		var refused []api.Job
		var taken []launch
		batch := p.launches(jobs[:min(len(jobs), queue.MaxBatch)], directEnd)
		queued := 0
		for i, why := range p.send(ctx, batch) {
			switch one := batch[i]; {
			case why != nil:
				refused = append(refused, one.job)
				err = cmp.Or(err, why)
			case one.direct():
				taken = append(taken, one)
			default:
				taken, queued = append(taken, one), queued+1
			}
		}
		p.mu.Lock()
		p.sent += queued
		p.mu.Unlock()
		p.follow(ctx, taken, directEnd)
		sent += len(taken)
		jobs = jobs[len(batch):]
		if err != nil {
			return sent, p.giveBack(ctx, append(refused, jobs...), err), err
		}
	}
	return sent, 0, nil
}

// launch is a job and its message, or why it has none.
type launch struct {
	job     api.Job
	message api.LaunchMessage
	err     error
}

// direct reports whether the poller launches it itself.
func (l launch) direct() bool { return l.message.Placement != "" }

// launches makes the messages of a batch, and chooses which of them are launched directly.
func (p *Poller) launches(jobs []api.Job, directEnd time.Time) []launch {
	now := p.cfg.Now()
	waiting, _ := p.known(now)
	out := make([]launch, len(jobs))
	for i, job := range jobs {
		out[i].job = job
		if out[i].message, out[i].err = p.message(job); out[i].err != nil {
			continue
		}
		if p.cfg.Direct != nil && waiting < shortQueue && now.Before(directEnd) {
			out[i].message.Placement = p.cfg.Direct.Offer(out[i].message)
		}
	}
	return out
}

// follow finishes messages that were sent: it launches their jobs, or tells the control plane that they are queued. A
// failure is not repeated here: the claim lapses sooner then, and the dispatcher finds out.
func (p *Poller) follow(ctx context.Context, sent []launch, directEnd time.Time) {
	var group errgroup.Group
	group.SetLimit(p.cfg.Reports)
	for _, one := range sent {
		group.Go(func() error {
			job := one.job
			if one.direct() && p.direct(ctx, one.message, directEnd) {
				return nil
			}
			if err := p.upstream.Queued(ctx, job.ID, api.Attempt{Attempt: job.Attempt}); err != nil {
				p.cfg.Log.Warn("queued job not reported", "job_id", job.ID, "attempt", job.Attempt, "err", err)
			}
			p.cfg.Log.Info("job queued", "job_id", job.ID, "attempt", job.Attempt, "workspace", job.Workspace)
			return nil
		})
	}
	_ = group.Wait() // no member fails
}

func (p *Poller) direct(ctx context.Context, m api.LaunchMessage, end time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, end.Sub(p.cfg.Now()))
	defer cancel()
	return ctx.Err() == nil && p.cfg.Direct.Direct(ctx, m)
}

// send puts the messages of a batch into the queue, and says for each why it was not taken.
func (p *Poller) send(ctx context.Context, batch []launch) []error {
	errs := make([]error, len(batch))
	var messages []queue.Outgoing
	var of []int // the launch of each message
	for i, one := range batch {
		body, err := one.message.Encode()
		if err != nil {
			err = fmt.Errorf("write launch message of job %s: %w", one.job.ID, err)
		}
		if errs[i] = cmp.Or(one.err, err, ctx.Err()); errs[i] != nil {
			continue
		}
		out := queue.Outgoing{Body: body, Group: group(one.job)}
		if one.direct() {
			out.Delay = directDelay
		}
		messages, of = append(messages, out), append(of, i)
	}
	if len(messages) == 0 {
		return errs
	}
	for i, err := range p.queue.SendBatch(ctx, messages) {
		if err != nil {
			errs[of[i]] = fmt.Errorf("queue job %s: %w", batch[of[i]].job.ID, err)
		}
	}
	return errs
}

// group is the owner of the messages about a job: no workspace keeps those of another one waiting.
func group(job api.Job) string { return job.Organization + "/" + job.Workspace }

// message returns the launch message of a job, with its token sealed into a ticket.
func (p *Poller) message(job api.Job) (m api.LaunchMessage, err error) {
	now := p.cfg.Now()
	life := api.Seconds(job.LaunchSeconds) + api.Seconds(job.MaxRuntimeSeconds) + workflow.ReportRetention
	sealed, err := p.sealer.Seal(ticket.Claims{
		Job: job.ID, Attempt: job.Attempt, Token: redact.New(job.Token), Expires: now.Add(life), Group: group(job),
		Organization: job.Organization, WorkspaceID: job.Needs.WorkspaceID,
	})
	if err != nil {
		return m, fmt.Errorf("seal ticket of job %s: %w", job.ID, err)
	}
	return api.NewLaunchMessage(job, sealed, now), nil
}

// giveBack releases jobs, also when ctx has ended: it records an outcome. A message may have been taken although its
// send failed; it then names an attempt that is over, and is dropped. A claim that cannot be released lapses.
func (p *Poller) giveBack(ctx context.Context, jobs []api.Job, why error) (released int) {
	text := "the launch queue did not take it"
	if errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded) {
		text = "the poller was told to stop before it was queued"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTime)
	defer cancel()
	for _, job := range jobs {
		if err := p.upstream.Release(ctx, job.ID, api.Release{Attempt: job.Attempt, Text: text}); err != nil {
			p.cfg.Log.Warn("claim not released; it lapses", "job_id", job.ID, "attempt", job.Attempt, "err", err)
			continue
		}
		released++
		p.cfg.Log.Info("claim released", "job_id", job.ID, "attempt", job.Attempt, "reason", text)
	}
	return released
}
