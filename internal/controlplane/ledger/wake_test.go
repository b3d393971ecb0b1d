package ledger_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// waker notes its targets, and fails for a caller that has gone.
type waker struct{ targets []string }

func (w *waker) Wake(ctx context.Context, target string) error {
	w.targets = append(w.targets, target)
	return ctx.Err()
}

// leaving is a store whose caller leaves as soon as a commit is made.
type leaving struct {
	store.Store
	leave func()
}

func (s leaving) Commit(ctx context.Context, id string, ops ...store.Op) error {
	defer s.leave()
	return s.Store.Commit(ctx, id, ops...)
}

// The work is there although its client has left.
func TestOwe_WakesForAClientThatLeft(t *testing.T) {
	wk := &waker{}
	ctx, leave := context.WithCancel(t.Context())
	l := ledger.New(leaving{memory.New(), leave}, ledger.Config{Now: time.Now, Log: slog.New(slog.DiscardHandler), Waker: wk})
	target := "dayfly-wake-default"
	err := l.Change(ctx, func(_ context.Context, c *ledger.Change) error {
		c.Put(record.WakeTargetKey("pool_1"), record.WakeTarget{Target: target})
		c.Wake("pool_1")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(wk.targets, []string{target}) {
		t.Errorf("woken: %v", wk.targets)
	}
}
