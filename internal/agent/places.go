package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// attempt is one attempt of a job, which occupies a place.
type attempt struct {
	job string
	n   int
}

// places counts the agent's jobs against its limit: each attempt from its claim until its task has ended, or will
// certainly not be launched. The count may be wrong for a while, for instance when a task ends before the answer to
// its launch; correct sets it right from the launcher's list.
type places struct {
	limit int
	now   func() time.Time
	freed chan struct{} // holds one token when a place may have become free

	mu     sync.Mutex
	taken  map[attempt]place
	gone   map[string]time.Time // tasks that have ended, and when that was reported
	pruned time.Time            // when those of long ago were last forgotten
}

// keepGone is how long a task is remembered that has ended: the answer to its launch may come after its end.
const keepGone = time.Hour

type place struct {
	task  string // empty until launched
	since time.Time
	job   api.Job // as it was claimed, without its token; empty if the task was adopted
}

// Run is a living task and the run in it.
type Run struct {
	Workflow  string
	Workspace string             // empty if an earlier process launched the task
	Type      workflow.Type      // the same
	Operation workflow.Operation // of a deployment
	Since     time.Time          // when the task was made
}

// runs lists the living tasks, oldest first.
func (s *places) runs(tasks []launcher.Task) []Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Run
	for _, t := range tasks {
		if t.Phase == launcher.Stopped {
			continue
		}
		job := s.taken[attempt{t.Workflow, t.Attempt}].job
		out = append(out, Run{Workflow: t.Workflow, Workspace: job.Workspace, Type: job.Type, Operation: job.Operation, Since: t.CreatedAt})
	}
	slices.SortFunc(out, func(a, b Run) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Workflow, b.Workflow)) })
	return out
}

func newPlaces(limit int, now func() time.Time) *places {
	return &places{limit: limit, now: now, freed: make(chan struct{}, 1), taken: map[attempt]place{}, gone: map[string]time.Time{}}
}

// free is how many more jobs may be claimed. It is negative if more tasks were adopted than the limit allows.
func (s *places) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit - len(s.taken)
}

func (s *places) claimed(job api.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job.Token = ""
	s.taken[attempt{job.ID, job.Attempt}] = place{since: s.now(), job: job}
}

// dropped gives up a place whose attempt will not be launched.
func (s *places) dropped(a attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.taken[a]; ok && have.task == "" {
		s.remove(a)
	}
}

func (s *places) launched(a attempt, task string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ended := s.gone[task]; !ended {
		s.taken[a] = place{task: task, since: s.now(), job: s.taken[a].job}
	} else if s.taken[a].task == "" {
		s.remove(a)
	}
}

// dispatched corrects the count by a disposition of the dispatcher.
func (s *places) dispatched(d dispatcher.Disposition) {
	a := attempt{d.Job, d.Attempt}
	switch {
	case d.Job == "":
	case d.Task != "":
		s.launched(a, d.Task)
	case d.Delete:
		s.dropped(a)
	}
}

func (s *places) ended(t launcher.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.pruned).Abs() > keepGone/4 {
		s.pruned = now
		maps.DeleteFunc(s.gone, func(_ string, at time.Time) bool { return now.Sub(at) > keepGone })
	}
	s.gone[t.Ref] = now
	a := attempt{t.Workflow, t.Attempt}
	if have, ok := s.taken[a]; ok && have.task == t.Ref {
		s.remove(a)
	}
}

// correct compares the count with a list of tasks that was requested at the time begun.
func (s *places) correct(tasks []launcher.Task, begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := map[string]bool{}
	for _, t := range tasks {
		if _, ended := s.gone[t.Ref]; ended || t.Phase == launcher.Stopped {
			continue
		}
		live[t.Ref] = true
		a := attempt{t.Workflow, t.Attempt}
		if have, ok := s.taken[a]; !ok || have.task == "" {
			s.taken[a] = place{task: t.Ref, since: begun, job: have.job}
		}
	}
	for a, have := range s.taken {
		switch {
		case have.task != "" && !live[have.task] && have.since.Before(begun):
			s.remove(a)
		case have.task == "" && begun.Sub(have.since) > workflow.LaunchWindow:
			s.remove(a) // no launch can come any more
		}
	}
}

// remove frees a place and says so. The lock is held.
func (s *places) remove(a attempt) {
	delete(s.taken, a)
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// counted is the poller's upstream: it counts claimed and released jobs.
type counted struct {
	poller.Upstream
	places *places
}

// Claim implements poller.Upstream.
func (c counted) Claim(ctx context.Context, in api.Claim) (api.Claimed, error) {
	out, err := c.Upstream.Claim(ctx, in)
	for _, job := range out.Jobs {
		c.places.claimed(job)
	}
	return out, err
}

// Release implements poller.Upstream. The place becomes free even if the release fails: the job will not be launched.
func (c counted) Release(ctx context.Context, id string, in api.Release) error {
	c.places.dropped(attempt{id, in.Attempt})
	return c.Upstream.Release(ctx, id, in)
}

// Stock is the decision about one job that this agent holds by the control plane's record.
type Stock struct {
	Job     api.JobState
	Task    string // the living task of it, if there is one
	Release bool   // it was never launched: release it
	Why     string
}

// TakeStock decides about the jobs that an agent holds, while nothing is being launched. tasks must
// have been listed after the jobs.
func TakeStock(jobs []api.JobState, tasks []launcher.Task) []Stock {
	type fate struct {
		live, ended string
	}
	of := map[attempt]fate{}
	for _, t := range tasks {
		a := attempt{t.Workflow, t.Attempt}
		f := of[a]
		if t.Phase == launcher.Stopped {
			f.ended = t.Ref
		} else {
			f.live = t.Ref
		}
		of[a] = f
	}
	var out []Stock
	for _, job := range jobs {
		f := of[attempt{job.ID, job.Attempt}]
		s := Stock{Job: job, Task: f.live}
		switch {
		case !job.Known || !job.Active:
			s.Why, s.Task = "it is over", ""
		case f.live != "":
			s.Why = "its task lives"
		case f.ended != "":
			s.Why = "its task has ended: the reaper reports that"
		case job.Started:
			s.Why = "it runs, and its task is not known here: its silence or its deadline ends it"
		case job.Task != "":
			s.Why = "it was launched, and its task is not known here: its lease ends it"
		default:
			s.Release, s.Why = true, "it was claimed and never launched"
		}
		out = append(out, s)
	}
	return out
}

// takeStock counts the jobs that live and releases those that were never launched.
func (a *Agent) takeStock(ctx context.Context, text string) error {
	var jobs []api.JobState
	cursor := ""
	for {
		page, err := a.cfg.Upstream.Held(ctx, a.cfg.Instance, cursor)
		if err != nil {
			return fmt.Errorf("list claims of %s: %w", a.cfg.Instance, err)
		}
		jobs = append(jobs, page.Items...)
		if page.Next == "" || page.Next == cursor {
			break
		}
		cursor = page.Next
	}
	tasks, err := a.cfg.Launcher.List(ctx)
	if err != nil {
		return fmt.Errorf("list tasks: %w", err)
	}
	var errs []error
	for _, s := range TakeStock(jobs, tasks) {
		log := a.log.With("job_id", s.Job.ID, "attempt", s.Job.Attempt, "reason", s.Why)
		at := attempt{s.Job.ID, s.Job.Attempt}
		switch {
		case s.Task != "":
			// The process that launched it may have died before it reported that, and only a reported task starts.
			if !s.Job.Started {
				err := a.cfg.Upstream.Launch(ctx, s.Job.ID, api.Launch{Attempt: s.Job.Attempt, Kind: api.LaunchAccepted, Task: s.Task})
				if err != nil && !moved(err) {
					errs = append(errs, fmt.Errorf("report task of job %s: %w", s.Job.ID, err))
					continue
				}
			}
			a.places.launched(at, s.Task)
			log.Debug("task counted", "task", s.Task)
		case s.Release:
			err := a.cfg.Upstream.Release(ctx, s.Job.ID, api.Release{Attempt: s.Job.Attempt, Text: text})
			if err != nil && !moved(err) {
				errs = append(errs, fmt.Errorf("release job %s: %w", s.Job.ID, err))
				continue
			}
			a.places.dropped(at)
			log.Info("claim released")
		default:
			log.Info("job left as it is")
		}
	}
	return errors.Join(errs...)
}

// moved reports whether a job no longer needs the call.
func moved(err error) bool {
	return errors.Is(err, workflow.ErrNotFound) || errors.Is(err, workflow.ErrConflict) || errors.Is(err, workflow.ErrInUse)
}
