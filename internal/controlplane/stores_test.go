package controlplane_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// everyStore runs a test of the rules over each store, so that none of them is taken on trust.
func everyStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memory.New() },
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, open(t))) })
	}
}
