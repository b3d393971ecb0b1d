package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// tokenPatience is how long a refused agent tries on: a mistake in the rotation of its token may be corrected, and a
// process that has its instance name is gone before.
const tokenPatience = 5 * time.Minute

// TokenRefused words the refusal of a pool token for the operator of the agent, with what to do; empty advice means
// to give the agent another token. It returns nil for every other error: an absent control plane or the refusal of a
// gateway says nothing about the token.
func TokenRefused(err error, url, advice string) error {
	said, ours := errors.AsType[*workflow.Error](err)
	why := ""
	switch {
	case !ours:
	case errors.Is(said, workflow.ErrUnauthenticated):
		why = "it is not known there"
	case errors.Is(said, workflow.ErrRevoked), errors.Is(said, workflow.ErrForbidden):
		why = said.Message
	}
	if why == "" {
		return nil
	}
	advice = cmp.Or(advice, "make one with dayfly pool create or dayfly pool rotate-token, and give it to the agent as token or DAYFLY_TOKEN")
	// One kind for all: the other kinds would be read as about a person's token.
	return workflow.Refuse(workflow.ErrForbidden, "", "the control plane at %s does not accept the pool token: %s; %s", url, why, advice)
}

// refusal says whether the control plane refuses the agent: its token, or its instance name.
func refusal(err error) bool {
	return errors.Is(err, workflow.ErrForbidden) || errors.Is(err, workflow.ErrInstanceTaken)
}

// tokenWatch is an upstream that watches whether the control plane accepts the pool token and the instance name, and ends
// the agent if they are refused for too long. An agent asks for its claims or for work at least once a minute.
type tokenWatch struct {
	Upstream
	url, advice string
	now         func() time.Time
	log         *slog.Logger
	giveUp      func()
	polled      func(now time.Time) // called for each claim that was answered
	admitted    func() error        // called for the first answer to a question about the instance; nil: no call

	mu    sync.Mutex
	since time.Time // when it was first refused; zero: it is accepted, or this is not known
	last  error     // the refusal that the agent ends for
}

// Claim implements Upstream.
func (t *tokenWatch) Claim(ctx context.Context, in api.Claim) (api.Claimed, error) {
	out, err := t.Upstream.Claim(ctx, in)
	if err == nil {
		t.polled(t.now())
	}
	return out, t.note(err)
}

// Held implements Upstream.
func (t *tokenWatch) Held(ctx context.Context, instance, cursor string) (api.Page[api.JobState], error) {
	out, err := t.Upstream.Held(ctx, instance, cursor)
	return out, t.note(err)
}

// note notes an answer about the instance, and rewords a refusal of the token.
func (t *tokenWatch) note(err error) error {
	if errors.Is(err, context.Canceled) {
		return err // the caller gave up: there was no answer
	}
	refused := TokenRefused(err, t.url, t.advice)
	twin := errors.Is(err, workflow.ErrInstanceTaken)
	if twin {
		refused = err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.admitted != nil {
		if err := t.admitted(); err != nil {
			t.log.Error("process not noted: after its end, the next one is refused for some minutes", "err", err)
		}
		t.admitted = nil
	}
	first := t.since
	var over bool
	t.since, over = tokenStands(first, refused != nil, t.now())
	switch {
	case refused == nil && err == nil && !first.IsZero():
		t.log.Info("agent accepted again")
	case twin && first.IsZero():
		t.log.Error("instance name refused", "err", refused, "tried_for", tokenPatience.String())
	case refused != nil && first.IsZero():
		t.log.Error("pool token refused", "err", refused, "tried_for", tokenPatience.String())
	case over && t.last == nil:
		t.last = refused
		t.log.Error("agent refused for too long: it ends when its running jobs have ended", "err", refused)
		t.giveUp()
	}
	return cmp.Or(refused, err)
}

// tokenStands decides since when a token is refused, and whether that is too long. Only consecutive refusals count: if
// the control plane does not answer, the time starts again.
func tokenStands(since time.Time, refused bool, now time.Time) (first time.Time, over bool) {
	switch {
	case !refused:
		return time.Time{}, false
	case since.IsZero():
		return now, false
	}
	return since, now.Sub(since) >= tokenPatience
}

// ended is why the agent gave up; nil if it did not.
func (t *tokenWatch) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
