package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/store/storetest"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("SQLITE_TEST_WRITE_TO"); path != "" {
		writeUntilKilled(path)
		return
	}
	os.Exit(leak.Main(m))
}

func open(t testing.TB, path string, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dataFile(t testing.TB) string { return filepath.Join(t.TempDir(), "dayfly.db") }

func TestStore_Conformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, dataFile(t), sqlite.Config{}) })
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B) store.Store { return open(b, dataFile(b), sqlite.Config{}) })
}
