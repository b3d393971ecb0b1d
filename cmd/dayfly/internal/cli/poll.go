package cli

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// LookEvery is the pause between requests that do not wait for a change.
const LookEvery = 500 * time.Millisecond

// MaxAway is the time without an answer after which a poll gives up.
const MaxAway = 2 * time.Minute

// SubmitTimeout bounds a submission.
const SubmitTimeout = time.Minute

// Poll repeats requests. It tolerates a control plane that does not answer for a while. Several goroutines may use
// one.
type Poll struct {
	away atomic.Pointer[time.Time] // since when the control plane has not answered; nil: it answers
}

// Until calls ask until it is done, with a pause after each call.
func (p *Poll) Until(ctx context.Context, ask func() (bool, error), every time.Duration) error {
	var away time.Time
	for {
		done, err := ask()
		pause := every
		if err != nil {
			pause = max(every, LookEvery)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			away = time.Time{}
			p.away.Store(nil)
		case !errors.Is(err, client.ErrUnreachable) && !errors.Is(err, workflow.ErrBusy) && !errors.Is(err, workflow.ErrTooMany):
			return err
		case away.IsZero():
			since := time.Now()
			away = since
			p.away.CompareAndSwap(nil, &since)
		case time.Since(away) > MaxAway:
			return err
		}
		if done {
			return nil
		}
		if err := wait.For(ctx, pause); err != nil {
			return err
		}
	}
}

// Silent is how long the control plane has not answered; 0 if it answers.
func (p *Poll) Silent(now time.Time) time.Duration {
	if since := p.away.Load(); since != nil {
		return now.Sub(*since)
	}
	return 0
}
