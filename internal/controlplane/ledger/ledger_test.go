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
