package poller_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestWindow_WithoutALengthEndsWithAShortClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{pending: jobs(25)}
		began := time.Now()
		got, err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Window(t.Context(), 0)
		if err != nil || got.Claims != 3 || got.Sent != 25 || got.Why != "nothing more can start now" {
			t.Errorf("%+v, %v; want 25 jobs in 3 claims", got, err)
		}
		for _, c := range w.claims {
			if c.WaitSeconds != 0 {
				t.Errorf("a claim waits %d s", c.WaitSeconds)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}

func TestWindow_LongPollsToItsEndAndPicksUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		var waits []int
		w.answer = func(in api.Claim) (api.Claimed, error) {
			waits = append(waits, in.WaitSeconds)
			if len(waits) == 2 { // work appears 5 s into the second claim
				<-time.After(5 * time.Second)
				return api.Claimed{Jobs: jobs(1), Short: true}, nil
			}
			<-time.After(time.Duration(in.WaitSeconds) * time.Second)
			return api.Claimed{Short: true}, nil
		}
		began := time.Now()
		got, err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Window(t.Context(), 55*time.Second)
		if err != nil || got.Sent != 1 || got.Why != "the window is over" {
			t.Errorf("%+v, %v", got, err)
		}
		// Somebody waits for all of it, but for the fraction of a second that a claim cannot ask for.
		if took := time.Since(began); took < 54*time.Second || took > 55*time.Second {
			t.Errorf("a window of 55 s took %s", took)
		}
		if waits[0] != 20 || waits[1] != 20 || waits[2] != 20 {
			t.Errorf("waits of the claims: %v", waits)
		}
	})
}

// The deadline of the invocation wins over a longer window.
func TestWindow_EndsBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		w := &world{}
		if _, err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Window(ctx, 55*time.Second); err != nil || ctx.Err() != nil {
			t.Errorf("%v, %v after the window", err, ctx.Err())
		}
	})
}

func TestWindow_EndsWhenToldToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		got, err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Window(endAfter(t, 7*time.Second), 55*time.Second)
		if err != nil || got.Why != "the poller was told to stop" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestWindow_HonoursRetryAfterOrEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		after := 15.0
		w.answer = func(api.Claim) (api.Claimed, error) {
			return api.Claimed{Short: true, RetryAfterSeconds: after, Note: "held"}, nil
		}
		p := w.poller(t, poller.Config{Wait: 20 * time.Second})
		got, err := p.Window(t.Context(), 55*time.Second)
		if err != nil || len(w.at) != 4 || got.Note != "held" {
			t.Fatalf("%+v, %v after %d claims; want 4", got, err, len(w.at))
		}
		for i := range w.at[1:] {
			if d := w.at[i+1].Sub(w.at[i]); d < 15*time.Second {
				t.Errorf("asked again after %s", d)
			}
		}
		w.at, after = nil, 60
		began := time.Now()
		got, err = p.Window(t.Context(), 55*time.Second)
		if err != nil || len(w.at) != 1 || time.Since(began) != 0 || got.Why != "the control plane asked to wait for longer than the window lasts" {
			t.Errorf("%+v, %v after %d claims and %s", got, err, len(w.at), time.Since(began))
		}
	})
}

func TestWindow_TriesAgainWhatMayPassAndStopsAtARefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		least int
		most  int
	}{
		"away":            {workflow.ErrBusy, 5, 12},
		"revoked":         {workflow.ErrRevoked, 1, 1},
		"another polls":   {workflow.ErrInUse, 1, 1},
		"too much of it":  {workflow.ErrTooMany, 5, 12},
		"something dying": {errors.New("connection reset"), 5, 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{}
				w.answer = func(api.Claim) (api.Claimed, error) { return api.Claimed{}, tc.err }
				_, err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Window(t.Context(), 55*time.Second)
				if !errors.Is(err, tc.err) || len(w.claims) < tc.least || len(w.claims) > tc.most {
					t.Errorf("%v after %d claims; want it after %d to %d", err, len(w.claims), tc.least, tc.most)
				}
			})
		})
	}
}

func TestWindow_LooksAgainWhileTheQueueIsDeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{pending: jobs(5), depth: 400}
		p := w.poller(t, poller.Config{Wait: 20 * time.Second})
		got, err := p.Window(t.Context(), 0)
		if err != nil || len(w.claims) != 0 || got.Why != "400 launches are waiting already" {
			t.Errorf("%+v, %v", got, err)
		}
		began := time.Now()
		draining, err := poller.New(w, drains{w, began.Add(12 * time.Second)}, w, poller.Config{Instance: "a", Wait: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		got, err = draining.Window(t.Context(), 55*time.Second)
		if err != nil || got.Sent != 5 || w.at[0].Sub(began) < 12*time.Second || w.at[0].Sub(began) > 20*time.Second {
			t.Errorf("%+v, %v; first claim after %s", got, err, w.at[0].Sub(began))
		}
	})
}

// Nobody comes for what one pass left: the next schedule is up to a minute away, and what was launched wakes nobody.
func TestWindow_WithoutALengthWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{pending: jobs(5)}
		began := time.Now()
		p, err := poller.New(w, drains{w, began.Add(12 * time.Second)}, w, poller.Config{Instance: "a", Wait: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
		defer cancel()
		got, err := p.Window(ctx, 0)
		if err != nil || got.Sent != 5 || w.claims[0].WaitSeconds != 0 || got.Why != "nothing more can start now" {
			t.Errorf("%+v, %v after claims %+v", got, err, w.claims)
		}
		if took := time.Since(began); took < 12*time.Second || took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// drains is a queue that is too deep until a time.
type drains struct {
	*world
	until time.Time
}

func (d drains) Depth(context.Context) (int, error) {
	if time.Now().Before(d.until) {
		return 400, nil
	}
	return 0, nil
}

func TestAgain_SaysWhyAWindowEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		s      poller.Summary
		err    error
		pause  time.Duration
		left   time.Duration
		window bool
		again  bool
		why    string
	}{
		"one pass":           {why: "nothing more can start now", left: time.Hour},
		"one that failed":    {err: workflow.ErrBusy, why: "the pass failed", left: time.Hour},
		"one that is kept":   {s: poller.Summary{Blocked: "full"}, pause: 5 * time.Second, left: time.Hour, again: true},
		"one kept too long":  {s: poller.Summary{Blocked: "full"}, pause: 5 * time.Second, left: 8 * time.Second, why: "full"},
		"work, and time":     {s: poller.Summary{Claimed: 3}, left: 30 * time.Second, window: true, again: true},
		"no time to send":    {left: 3 * time.Second, window: true, why: "the window is over"},
		"a pause too long":   {pause: 10 * time.Second, left: 13 * time.Second, window: true, why: "the window is over"},
		"one that fits":      {pause: 10 * time.Second, left: 14 * time.Second, window: true, again: true},
		"a lasting refusal":  {err: workflow.ErrForbidden, left: time.Hour, window: true, why: "the control plane refuses this poller"},
		"blocked to the end": {s: poller.Summary{Blocked: "full"}, pause: time.Minute, left: time.Second, window: true, why: "full"},
	} {
		t.Run(name, func(t *testing.T) {
			again, why := poller.Again(tc.s, tc.err, tc.pause, tc.left, tc.window)
			if again != tc.again || why != tc.why {
				t.Errorf("%v, %q; want %v, %q", again, why, tc.again, tc.why)
			}
		})
	}
}
