package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Claim asks for jobs under the retry settings and the breaker. A claim whose answer was lost is
// repeated: the jobs of the lost answer lapse, and Held lists them until then.
func (c *Client) Claim(ctx context.Context, in api.Claim) (api.Claimed, error) {
	req := call{
		op: "claim jobs", method: http.MethodPost, path: []string{"v1", "claims"}, in: in,
		wait: time.Duration(in.WaitSeconds) * time.Second,
	}
	return c.claims.claim(func() (api.Claimed, error) { return ask[api.Claimed](ctx, c, c.claims.policy, req) })
}

// Held lists the pool's active jobs; with an instance, those that it claimed.
func (c *Client) Held(ctx context.Context, instance, cursor string) (api.Page[api.JobState], error) {
	q := url.Values{}
	set(q, "instance", instance)
	set(q, "cursor", cursor)
	return get[api.Page[api.JobState]](ctx, c, "list claims", q, "v1", "claims")
}

// States asks where jobs stand; with WaitSeconds it waits until one is to be cancelled or over.
func (c *Client) States(ctx context.Context, in api.StatesQuery) (api.States, error) {
	return ask[api.States](ctx, c, brief, call{
		op: "ask for states", method: http.MethodPost, path: []string{"v1", "jobs", "states"}, in: in,
		wait: time.Duration(in.WaitSeconds) * time.Second,
	})
}

// Queued reports that a claimed job is in the launch queue.
func (c *Client) Queued(ctx context.Context, id string, in api.Attempt) error {
	return c.report(ctx, "report queued", id, "queued", in)
}

// Release gives a claim back.
func (c *Client) Release(ctx context.Context, id string, in api.Release) error {
	return c.report(ctx, "release", id, "release", in)
}

// Launch reports the outcome of a launch.
func (c *Client) Launch(ctx context.Context, id string, in api.Launch) error {
	return c.report(ctx, "report launch of", id, "launches", in)
}

// Lost reports the proven end of a task.
func (c *Client) Lost(ctx context.Context, id string, in api.Lost) error {
	return c.report(ctx, "report lost", id, "lost", in)
}

// Tail sends the rest of an ended task's log, or asks which line is wanted next. A *api.LogGapError names that too.
func (c *Client) Tail(ctx context.Context, id string, in api.Tail) (api.TailTaken, error) {
	return ask[api.TailTaken](ctx, c, brief, call{op: "send tail of job " + id, method: http.MethodPost, path: []string{"v1", "jobs", id, "tail"}, in: in})
}

// report makes a call about a job's attempt. Each reports an observation, so a repeat changes nothing.
func (c *Client) report(ctx context.Context, op, id, kind string, in any) error {
	return c.repeat(ctx, brief, 0, func(ctx context.Context, _ int) error {
		_, err := c.do(ctx, call{op: op + " job " + id, method: http.MethodPost, path: []string{"v1", "jobs", id, kind}, in: in}, nil)
		return err
	})
}
