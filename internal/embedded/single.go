package embedded

import (
	"context"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// singleRun is an upstream that lets one job through, and calls end when the control plane knows its end. A job that
// was released before its launch does not count.
type singleRun struct {
	agent.Upstream
	end func() // called when the control plane knows that its job is over; more than once does no harm

	mu      sync.Mutex
	job     string // the job that was claimed; empty: none yet
	attempt int
	freed   chan struct{} // closed, and replaced, when another may be
}

func newSingleRun(upstream agent.Upstream) *singleRun {
	return &singleRun{Upstream: upstream, end: func() {}, freed: make(chan struct{})}
}

// Claim asks for one job, once.
func (s *singleRun) Claim(ctx context.Context, in api.Claim) (api.Claimed, error) {
	for {
		s.mu.Lock()
		job, freed := s.job, s.freed
		s.mu.Unlock()
		if job == "" {
			break
		}
		select {
		case <-ctx.Done():
			return api.Claimed{}, context.Cause(ctx)
		case <-freed:
		}
	}
	in.Max = 1
	out, err := s.Upstream.Claim(ctx, in)
	if err == nil && len(out.Jobs) > 0 {
		s.mu.Lock()
		s.job, s.attempt = out.Jobs[0].ID, out.Jobs[0].Attempt
		s.mu.Unlock()
	}
	return out, err
}

// Release gives the job back: another one may be claimed.
func (s *singleRun) Release(ctx context.Context, id string, in api.Release) error {
	err := s.Upstream.Release(ctx, id, in)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job == id {
		s.job = ""
		close(s.freed)
		s.freed = make(chan struct{})
	}
	return err
}

// Launch reports a launch; one that failed for good is the end of the job.
func (s *singleRun) Launch(ctx context.Context, id string, in api.Launch) error {
	err := s.Upstream.Launch(ctx, id, in)
	if err == nil && in.Kind == api.LaunchFailed {
		s.acknowledged(id, in.Attempt)
	}
	return err
}

// acknowledged is called when the control plane knows the end of a job's task.
func (s *singleRun) acknowledged(job string, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job == job && s.attempt == attempt {
		s.end()
	}
}
