package embedded

import (
	"context"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// singleRun lets one job through and ends over when the control plane knows of its end. A job that
// was given back before it was launched does not count. Everything else passes through.
type singleRun struct {
	agent.Upstream
	over chan struct{} // closed when its job is over
	end  func()

	mu    sync.Mutex
	job   string        // the one that was handed out; empty: none yet
	freed chan struct{} // closed, and replaced, when another may be
}

func newSingleRun(upstream agent.Upstream) *singleRun {
	over := make(chan struct{})
	return &singleRun{Upstream: upstream, over: over, end: sync.OnceFunc(func() { close(over) }), freed: make(chan struct{})}
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
		s.job = out.Jobs[0].ID
		s.mu.Unlock()
	}
	return out, err
}

// Release gives the job back: another may come.
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
	if in.Kind == api.LaunchFailed {
		s.ended(id, err)
	}
	return err
}

// Lost reports the end of the job's task.
func (s *singleRun) Lost(ctx context.Context, id string, in api.Lost) error {
	err := s.Upstream.Lost(ctx, id, in)
	s.ended(id, err)
	return err
}

func (s *singleRun) ended(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.job == id {
		s.end()
	}
}
