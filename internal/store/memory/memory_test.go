package memory_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/storetest"
)

func TestStore_Conformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memory.New() })
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(*testing.B) store.Store { return memory.New() })
}
