package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func busyFor(after time.Duration) error {
	return &workflow.Error{Kind: workflow.ErrBusy, Message: "busy", RetryAfter: after}
}

// near allows for the jitter of a wait.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want*3/4 || got > want*5/4 {
		t.Errorf("%s: got %s, want about %s", what, got, want)
	}
}

func TestClient_TransientErrorsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answering(refusing(busyFor(0)), gateway(502, "text/html", ""), ok(api.Workflow{ID: "w1"}))
		got, err := newClient(t, server).Submit(t.Context(), api.Submit{Workspace: "net"})
		is(t, "submit", err, nil)
		equal(t, "workflow", got.ID, "w1")
		equal(t, "requests", len(server.seen), 3)
		near(t, "first wait", server.waits()[0], 200*time.Millisecond)
		near(t, "second wait", server.waits()[1], 400*time.Millisecond)
		key := server.seen[0].Header.Get("Idempotency-Key")
		if len(key) < 20 {
			t.Errorf("idempotency key %q", key)
		}
		for _, r := range server.seen {
			equal(t, "key of every try", r.Header.Get("Idempotency-Key"), key)
		}
		_, err = newClient(t, server).Submit(t.Context(), api.Submit{Workspace: "net"})
		is(t, "another submit", err, nil)
		if server.seen[3].Header.Get("Idempotency-Key") == key {
			t.Error("two submits have the same key")
		}
	})
}

func TestClient_TryingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answering(refusing(busyFor(0)))
		_, err := newClient(t, server).Pools(t.Context(), "", 0)
		is(t, "error", err, workflow.ErrBusy)
		equal(t, "requests", len(server.seen), 4)
	})
}

func TestClient_PermanentErrorsAreNot(t *testing.T) {
	for _, kind := range api.Kinds() {
		err := error(&workflow.Error{Kind: kind.Err, Message: "no", RetryAfter: time.Hour})
		server := answering(refusing(err))
		_, got := newClient(t, server).Pools(t.Context(), "", 0)
		is(t, kind.Code, got, kind.Err)
		equal(t, "requests for "+kind.Code, len(server.seen), 1)
	}
}

// C17: nobody is asked again before the time that they named; a time that is too long to wait is
// left to the caller.
func TestClient_RetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answering(refusing(busyFor(4*time.Second)), ok(api.Page[api.Pool]{}))
		_, err := newClient(t, server).Pools(t.Context(), "", 0)
		is(t, "error", err, nil)
		equal(t, "wait", server.waits()[0], 4*time.Second)

		server = answering(refusing(busyFor(time.Minute)))
		_, err = newClient(t, server).Pools(t.Context(), "", 0)
		is(t, "long wait", err, workflow.ErrBusy)
		equal(t, "requests", len(server.seen), 1)
		equal(t, "left to the caller", api.RetryAfter(err), time.Minute)

		at := time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat)
		server = answering(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", at)
			gateway(503, "", "")(w, r)
		}, ok(api.Page[api.Pool]{}))
		_, err = newClient(t, server).Pools(t.Context(), "", 0)
		is(t, "error", err, nil)
		equal(t, "wait until a date", server.waits()[0], 3*time.Second)
	})
}

// A call that could do something twice is made once.
func TestClient_UnsafeCallsAreMadeOnce(t *testing.T) {
	name := "new"
	for what, call := range map[string]func(context.Context, *client.Client) error{
		"create token": func(ctx context.Context, c *client.Client) error { return second(c.CreateToken(ctx, api.NewToken{})) },
		"rotate token": func(ctx context.Context, c *client.Client) error {
			return second(c.RotatePoolToken(ctx, "prod", api.RotateToken{}))
		},
		"rename pool": func(ctx context.Context, c *client.Client) error {
			return second(c.UpdatePool(ctx, "prod", api.PoolSettings{Name: &name}))
		},
		"put over a version": func(ctx context.Context, c *client.Client) error {
			_, _, err := c.PutWorkspace(ctx, api.Workspace{Name: "net", Version: 3})
			return err
		},
	} {
		server := answering(refusing(busyFor(0)))
		is(t, what, call(t.Context(), newClient(t, server)), workflow.ErrBusy)
		equal(t, "requests to "+what, len(server.seen), 1)
	}
}

// A delete whose answer was lost has succeeded.
func TestClient_DeleteAfterLostAnswerIsDone(t *testing.T) {
	gone := refusing(&workflow.Error{Kind: workflow.ErrNotFound, Message: "no such pool"})
	synctest.Test(t, func(t *testing.T) {
		is(t, "repeat", newClient(t, answering(gateway(504, "", ""), gone)).DeletePool(t.Context(), "prod"), nil)
	})
	is(t, "first try", newClient(t, answering(gone)).DeletePool(t.Context(), "prod"), workflow.ErrNotFound)
}

func TestClient_DoesNotWaitForWhatCannotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answering(refusing(busyFor(3 * time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := newClient(t, server).Pools(ctx, "", 0)
		is(t, "error", err, workflow.ErrBusy)
		equal(t, "time", time.Since(start), 0)

		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		start = time.Now()
		_, err = newClient(t, server).Pools(ctx, "", 0)
		is(t, "error of a stopped wait", err, context.Canceled)
		is(t, "what it waited for", err, workflow.ErrBusy)
		equal(t, "time of a stopped wait", time.Since(start), time.Second)
	})
}

// L1: polling is patient, by its settings.
func TestClaim_WaitsByItsSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answering(refusing(busyFor(0)))
		_, err := newClient(t, server).Claim(t.Context(), api.Claim{})
		is(t, "error", err, workflow.ErrBusy)
		equal(t, "requests", len(server.seen), 3)
		near(t, "first wait", server.waits()[0], 20*time.Second)
		near(t, "second wait", server.waits()[1], 40*time.Second)

		server = answering(refusing(busyFor(0)))
		c := newClient(t, server, func(cfg *client.Config) {
			cfg.RetryCount, cfg.RetryWait, cfg.RetryMaxWait = 4, time.Second, 3*time.Second
		})
		_, err = c.Claim(t.Context(), api.Claim{})
		is(t, "error", err, workflow.ErrBusy)
		equal(t, "requests", len(server.seen), 5)
		for i, want := range []time.Duration{1, 2, 3, 3} {
			near(t, "wait", server.waits()[i], want*time.Second)
		}
	})
}

// L1: after two claims that failed there is quiet, then one try.
func TestClaim_BreakerPausesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := refusing(busyFor(0))
		server := answering(func(w http.ResponseWriter, r *http.Request) { answer(w, r) })
		c := newClient(t, server, func(cfg *client.Config) { cfg.RetryCount = -1 })
		claim := func() error { return second(c.Claim(t.Context(), api.Claim{})) }

		is(t, "first failure", claim(), workflow.ErrBusy)
		is(t, "second failure", claim(), workflow.ErrBusy)
		equal(t, "requests", len(server.seen), 2)
		err := claim()
		is(t, "pause", err, workflow.ErrBusy)
		equal(t, "when to ask again", api.RetryAfter(err), 10*time.Minute)
		<-time.After(4 * time.Minute)
		equal(t, "when to ask again, later", api.RetryAfter(claim()), 6*time.Minute)
		equal(t, "requests in the pause", len(server.seen), 2)

		<-time.After(6*time.Minute + time.Second)
		is(t, "the one try", claim(), workflow.ErrBusy)
		is(t, "after it failed", claim(), workflow.ErrBusy)
		equal(t, "requests after the pause", len(server.seen), 3)

		<-time.After(10*time.Minute + time.Second)
		answer = ok(api.Claimed{})
		is(t, "it is back", claim(), nil)
		is(t, "it stays", claim(), nil)
		equal(t, "requests in the end", len(server.seen), 5)

		// The other calls go on whatever the breaker thinks.
		answer = refusing(busyFor(time.Hour))
		_, _ = claim(), claim()
		is(t, "open again", claim(), workflow.ErrBusy)
		answer = ok(api.States{})
		_, err = c.States(t.Context(), api.StatesQuery{IDs: []string{"w1"}})
		is(t, "states", err, nil)
	})
}

// A refusal proves that the control plane is there; being told to slow down, or leaving, proves
// nothing.
func TestClaim_OnlyOutagesOpenTheBreaker(t *testing.T) {
	for what, answer := range map[string]error{
		"refusal":   &workflow.Error{Kind: workflow.ErrRevoked, Message: "revoked"},
		"slow down": &workflow.Error{Kind: workflow.ErrTooMany, Message: "too many", RetryAfter: time.Hour},
	} {
		server := answering(refusing(answer))
		c := newClient(t, server)
		for range 5 {
			_, err := c.Claim(t.Context(), api.Claim{})
			is(t, what, err, errors.Unwrap(answer))
		}
		equal(t, "requests: "+what, len(server.seen), 5)
	}
	server := answering(ok(api.Claimed{}))
	c := newClient(t, server)
	left, leave := context.WithCancel(t.Context())
	leave()
	for range 5 {
		_, err := c.Claim(left, api.Claim{})
		is(t, "leaving", err, context.Canceled)
	}
	_, err := c.Claim(t.Context(), api.Claim{})
	is(t, "claim", err, nil)
}

// A limit bounds a call with all its repeats, beside the time that it asks the control plane to wait.
func TestClient_CallTimeoutBoundsRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := func(cfg *client.Config) { cfg.RequestTimeout, cfg.CallTimeout = 4*time.Second, 10*time.Second }
		silent := answering(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		late := answering(func(w http.ResponseWriter, r *http.Request) {
			<-time.After(15 * time.Second)
			refusing(busyFor(0))(w, r)
		})
		for what, tt := range map[string]struct {
			server   *script
			call     func(c *client.Client) error
			took     time.Duration
			requests int
		}{
			"a question": {silent, func(c *client.Client) error { return second(c.States(t.Context(), api.StatesQuery{})) }, 10 * time.Second, 3},
			"a report":   {silent, func(c *client.Client) error { return c.Lost(t.Context(), "w1", api.Lost{}) }, 10 * time.Second, 3},
			"a claim":    {silent, func(c *client.Client) error { return second(c.Claim(t.Context(), api.Claim{})) }, 4 * time.Second, 1}, // it pauses for 20 s
			"a claim that waits": {
				silent, func(c *client.Client) error { return second(c.Claim(t.Context(), api.Claim{WaitSeconds: 20})) }, 24 * time.Second, 1,
			},
			"a question that waits": {
				silent, func(c *client.Client) error {
					return second(c.States(t.Context(), api.StatesQuery{WaitSeconds: 20}))
				}, 24 * time.Second, 1,
			},
			"a repeat that would be cut off": {
				late, func(c *client.Client) error {
					return second(c.States(t.Context(), api.StatesQuery{WaitSeconds: 20}))
				}, 15 * time.Second, 1,
			},
		} {
			begun, before := time.Now(), len(tt.server.seen)
			err := tt.call(newClient(t, tt.server, limited))
			equal(t, what+": transient", client.Transient(err), true)
			equal(t, what+": time", time.Since(begun).Round(10*time.Millisecond), tt.took)
			equal(t, what+": requests", len(tt.server.seen)-before, tt.requests)
		}
	})
}
