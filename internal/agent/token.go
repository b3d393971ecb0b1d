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

// tokenPatience is how long a pool token that is refused is tried: a slip in its rotation may be put right.
const tokenPatience = 5 * time.Minute

// TokenRefused puts an answer by which the control plane at an address refuses the pool's token into words that fit an
// agent, with what to do about it; empty advice means to give the agent another token. It returns nil for every other
// error: one that says that the control plane is away, or that a gateway refuses, says nothing about the token.
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
	// One kind for all: the others would be taken for a person's token.
	return workflow.Refuse(workflow.ErrForbidden, "", "the control plane at %s does not accept the pool token: %s; %s", url, why, advice)
}

// tokenWatch is an upstream that sees whether the control plane accepts the pool's token, and ends the agent where it
// does not for too long. An agent asks for what it holds, or for work, at least once a minute.
type tokenWatch struct {
	Upstream
	url, advice string
	now         func() time.Time
	log         *slog.Logger
	giveUp      func()

	mu    sync.Mutex
	since time.Time // when the token was refused first; zero: it is accepted, or nobody knows
	last  error     // the refusal that the agent ends for
}

// Claim implements Upstream.
func (t *tokenWatch) Claim(ctx context.Context, in api.Claim) (api.Claimed, error) {
	out, err := t.Upstream.Claim(ctx, in)
	return out, t.heard(err)
}

// Held implements Upstream.
func (t *tokenWatch) Held(ctx context.Context, instance, cursor string) (api.Page[api.JobState], error) {
	out, err := t.Upstream.Held(ctx, instance, cursor)
	return out, t.heard(err)
}

// heard takes note of an answer, and puts a refusal of the token into words that fit.
func (t *tokenWatch) heard(err error) error {
	if errors.Is(err, context.Canceled) {
		return err // whoever gave up heard nothing
	}
	refused := TokenRefused(err, t.url, t.advice)
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.since
	var over bool
	t.since, over = tokenStands(first, refused != nil, t.now())
	switch {
	case refused == nil && err == nil && !first.IsZero():
		t.log.Info("pool token accepted again")
	case refused != nil && first.IsZero():
		t.log.Error("pool token refused", "err", refused, "tried_for", tokenPatience.String())
	case over && t.last == nil:
		t.last = refused
		t.log.Error("pool token refused for too long: the agent ends when what it runs has ended", "err", refused)
		t.giveUp()
	}
	return cmp.Or(refused, err)
}

// tokenStands decides since when a token is refused, and whether that is too long. Only one refusal after another
// counts: a control plane that is away begins the time anew.
func tokenStands(since time.Time, refused bool, now time.Time) (first time.Time, over bool) {
	switch {
	case !refused:
		return time.Time{}, false
	case since.IsZero():
		return now, false
	}
	return since, now.Sub(since) >= tokenPatience
}

// ended is why the agent gave up; nil where it did not.
func (t *tokenWatch) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
