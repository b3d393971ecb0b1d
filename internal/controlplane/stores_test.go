package controlplane_test

import (
	"path/filepath"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/store/storefault"
)

// everyStore runs a test of the rules over each store, so that none of them is taken on trust.
func everyStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memory.New() },
		"sqlite": openSQLite,
		// C8: an index that lags, commits that are busy, and answers that are lost.
		"faulty": func(*testing.T) store.Store {
			return storefault.New(memory.New(), 7, storefault.Faults{Busy: 0.1, LostRequest: 0.05, LostAnswer: 0.1, Stale: 0.5})
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, open(t))) })
	}
}

func openSQLite(t *testing.T) store.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "dayfly.db"), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}
