package wake_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// waker notes what it is to wake, and fails for a caller that has left.
type waker struct{ targets []string }

func (w *waker) Wake(ctx context.Context, target string) error {
	w.targets = append(w.targets, target)
	return ctx.Err()
}

// The work is there although its client is not any more.
func TestOwe_WakesForAClientThatLeft(t *testing.T) {
	l, wk := ledger.New(memory.New(), time.Now), &waker{}
	wakes := wake.New(l, wk, slog.New(slog.DiscardHandler))
	target := "dayfly-wake-default"
	err := l.Change(t.Context(), func(ctx context.Context, c *ledger.Change) error {
		return wakes.SetTarget(ctx, c, "pool_1", &target)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	wakes.Owe(ctx, []string{"pool_1"})
	if !slices.Equal(wk.targets, []string{target}) {
		t.Errorf("woken: %v", wk.targets)
	}
}
