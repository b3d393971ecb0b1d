package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/wait"
)

func TestFor_WaitsAsLongAsItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{-time.Second, 0, time.Second, time.Hour} {
			begun := time.Now()
			if err := wait.For(t.Context(), d); err != nil {
				t.Errorf("%s: %v", d, err)
			}
			if got := time.Since(begun); got != max(d, 0) {
				t.Errorf("got %s, want %s", got, d)
			}
		}
	})
}

func TestFor_EndsWithItsContextAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the program stops")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		begun := time.Now()
		for _, d := range []time.Duration{time.Hour, time.Hour, 0} { // the second and the third begin too late
			if err := wait.For(ctx, d); !errors.Is(err, why) {
				t.Errorf("%s: got %v, want %v", d, err, why)
			}
		}
		if got := time.Since(begun); got != time.Second {
			t.Errorf("got %s, want 1s", got)
		}
	})
}

func TestUntil_EndsWhenWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		time.AfterFunc(time.Second, func() { wake <- struct{}{} })
		begun := time.Now()
		if err := wait.Until(t.Context(), time.Hour, wake); err != nil {
			t.Error(err)
		}
		if got := time.Since(begun); got != time.Second {
			t.Errorf("got %s, want 1s", got)
		}
	})
}

func TestBackoff_DoublesUpToItsBound(t *testing.T) {
	const first, most = 10 * time.Millisecond, 100 * time.Millisecond
	for n, mean := range map[int]time.Duration{0: first, 1: 2 * first, 3: 8 * first, 4: most, 1000: most} {
		var sum time.Duration
		for range 10_000 {
			d := wait.Backoff(first, most, n)
			if d < 0 || d >= 2*mean {
				t.Fatalf("repeat %d: got %s, want less than %s", n, d, 2*mean)
			}
			sum += d
		}
		if got := sum / 10_000; got < mean*9/10 || got > mean*11/10 { // 17 standard deviations
			t.Errorf("repeat %d: got a mean of %s, want %s", n, got, mean)
		}
	}
}
