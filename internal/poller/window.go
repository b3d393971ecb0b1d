package poller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Stint counts the work of one window of polling.
type Stint struct {
	Passes   int
	Claims   int
	Claimed  int
	Sent     int
	Released int
	Note     string // the control plane's, of the last answer
	Why      string // why the window ended
}

func (t *Stint) add(s Summary) {
	t.Passes++
	t.Claims += s.Claims
	t.Claimed += s.Claimed
	t.Sent += s.Sent
	t.Released += s.Released
	t.Note = s.Note
}

// Window polls for d and returns; the pauses between its passes are those of Loop. The last claim waits until d is over,
// and its jobs are sent in the few seconds after that; the deadline of ctx ends both sooner. With d 0 the claims do not
// wait: it ends when one comes back short, or when the queue stays too full until the deadline of ctx. It leaves nothing
// running. An error is that of the last pass, if that was the reason to stop or time did not allow another.
func (p *Poller) Window(ctx context.Context, d time.Duration) (t Stint, err error) {
	hold := p.cfg.Wait
	if d <= 0 {
		hold = 0
	} else {
		limited, cancel := context.WithTimeout(ctx, d+sendTime)
		defer cancel()
		ctx = limited
	}
	streak := 0
	for n := 0; ; n++ {
		var s Summary
		s, err = p.pass(ctx, hold)
		t.add(s)
		pause, why := Pause(s, err, streak, jitter(p.cfg.Instance, n), p.cfg)
		remaining := d
		if end, ok := ctx.Deadline(); ok {
			remaining = time.Until(end)
		}
		p.cfg.Log.Debug("poll ended", "claimed", s.Claimed, "sent", s.Sent, "next_in", pause, "reason", why, "err", err)
		var again bool
		if again, t.Why = Again(s, err, pause, remaining, d > 0); !again {
			return t, err
		}
		if ctx.Err() != nil {
			t.Why = "the poller was told to stop"
			return t, err
		}
		if err == nil && (s.Claimed > 0 || worked(s, p.cfg)) {
			streak = 0
		} else {
			streak++
		}
		_ = wait.For(ctx, pause)
	}
}

// Again decides whether a window makes another pass after this one and its pause, and if not, says why. remaining is
// the rest of the window.
func Again(s Summary, err error, pause, remaining time.Duration, window bool) (bool, string) {
	switch {
	case err != nil && lasting(err):
		return false, "the control plane refuses this poller"
	case !window && err != nil:
		return false, "the pass failed"
	case s.Blocked != "" && pause < remaining-sendTime:
		return true, "" // its claims did not come back short: more work waits for room, and no other pass may come for it
	case !window && s.Blocked != "":
		return false, s.Blocked
	case !window:
		return false, "nothing more can start now"
	case pause >= remaining-sendTime && err != nil:
		return false, fmt.Sprintf("the pass failed, and the next try in %s would be too late for this window", pause.Round(time.Millisecond))
	case pause >= remaining-sendTime && s.Blocked != "":
		return false, s.Blocked
	case pause >= remaining-sendTime && s.RetryAfter > 0:
		return false, "the control plane asked to wait for longer than the window lasts"
	case pause >= remaining-sendTime:
		return false, "the window is over"
	}
	return true, ""
}

// lasting reports whether an error is a refusal that no repeat in this window changes.
func lasting(err error) bool {
	return slices.ContainsFunc([]error{
		workflow.ErrUnauthenticated, workflow.ErrRevoked, workflow.ErrForbidden, workflow.ErrInvalid,
		workflow.ErrUnsupported, workflow.ErrInUse, workflow.ErrNotFound,
	}, func(kind error) bool { return errors.Is(err, kind) })
}
