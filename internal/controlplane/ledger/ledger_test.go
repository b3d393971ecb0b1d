package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// failing is a store whose commits fail.
type failing struct {
	store.Store
	err error
}

func (f failing) Commit(context.Context, string, ...store.Op) error { return f.err }

// A person must make room: to be told to try again would not help.
func TestDecide_ThatFindsNoRoomSaysSo(t *testing.T) {
	for name, err := range map[string]error{
		"at once":        fmt.Errorf("insert: %w", store.ErrFull),
		"outcome open":   fmt.Errorf("%w: %w", store.ErrUnknown, store.ErrFull),
		"another outage": store.ErrUnknown,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := ledger.New(failing{memory.New(), err}, ledger.Config{Now: time.Now})
			got := l.Change(t.Context(), func(_ context.Context, c *ledger.Change) error {
				c.Create(store.Key{Part: "p", Sort: "s"}, "")
				return nil
			})
			if !errors.Is(got, workflow.ErrBusy) || strings.Contains(fmt.Sprint(got), "disk with the control plane's records is full") != errors.Is(err, store.ErrFull) {
				t.Errorf("%s: got %v, want a refusal that may be tried again, and names a full disk", name, got)
			}
		})
	}
}

// slow is a store whose calls take a while, and whose first answers are lost.
type slow struct {
	store.Store
	now     *time.Time
	takes   time.Duration
	unknown int
	commits *int
}

func (s slow) Commit(ctx context.Context, id string, ops ...store.Op) error {
	*s.commits++
	*s.now = s.now.Add(s.takes)
	if *s.commits <= s.unknown {
		return store.ErrUnknown
	}
	return s.Store.Commit(ctx, id, ops...)
}

// O14: nothing is written with a time that lies so far back that a seal may be beyond it.
func TestDecide_RepeatsADecisionThatWaitedTooLong(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	begun, decisions := now, 0
	l := ledger.New(memory.New(), ledger.Config{Now: func() time.Time { return now }})
	var dated time.Time
	err := l.Change(t.Context(), func(_ context.Context, c *ledger.Change) error {
		if decisions++; decisions == 1 {
			now = now.Add(2*time.Minute + time.Second) // its reads took so long
		}
		dated = c.Now
		c.Create(store.Key{Part: "p", Sort: "s"}, "")
		return nil
	})
	if err != nil || decisions != 2 || now.Sub(dated) > 2*time.Minute {
		t.Errorf("%v, decided %d times, dated %s at %s", err, decisions, dated.Sub(begun), now.Sub(begun))
	}
}

func TestCommit_IsNotRepeatedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, commits := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), 0
		l := ledger.New(slow{memory.New(), &now, 50 * time.Second, 9, &commits}, ledger.Config{Now: func() time.Time { return now }})
		err := l.Change(t.Context(), func(_ context.Context, c *ledger.Change) error {
			c.Create(store.Key{Part: "p", Sort: "s"}, "")
			return nil
		})
		if !errors.Is(err, workflow.ErrBusy) || commits != 3 {
			t.Errorf("got %v after %d commits, want a refusal that may be tried again after 3", err, commits)
		}
	})
}

// forgetful is a store that makes the first commit, and whose answer to it is lost.
type forgetful struct {
	store.Store
	commits *int
}

func (f forgetful) Commit(ctx context.Context, id string, ops ...store.Op) error {
	err := f.Store.Commit(ctx, id, ops...)
	if *f.commits++; *f.commits == 1 && err == nil {
		return store.ErrUnknown
	}
	return err
}

// C8: the store knows a commit whose answer was lost by its id, so it is made once and decided once.
func TestCommit_WhoseAnswerWasLostIsRepeatedUnderItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		commits, decided := 0, 0
		l := ledger.New(forgetful{memory.New(), &commits}, ledger.Config{Now: time.Now})
		err := l.Change(t.Context(), func(_ context.Context, c *ledger.Change) error {
			decided++
			c.Create(store.Key{Part: "p", Sort: "s"}, "")
			return nil
		})
		if err != nil || decided != 1 || commits != 2 {
			t.Errorf("decided %d times, with %d commits: %v", decided, commits, err)
		}
	})
}
